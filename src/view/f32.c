#include "view/f32.h"

#include "pack/diag.h"
#include "pack/dtype.h"
#include "pack/meta.h"
#include "pack/util.h"
#include "view/convert.h"
#include "view/dequant.h"

#include <errno.h>
#include <inttypes.h>

enum { CHUNK = 32 << 10 }; /* bytes that are converted at a time */

struct bpk_f32 {
    uint64_t count;
    unsigned size;               /* bytes of an element */
    bpk_convert_fn *convert;     /* NULL: the bytes are float32 as they are */
    struct bpk_dequant *dequant; /* QFloat only, the two above are not used then */
};

/* The shape's product in its order: an overflow before a zero stays one, as in a pack. */
static bool count_elements(const struct bpk_array *array, uint64_t *ret_count) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < array->rank; i++)
        if (!bpk_mul_u64(count, array->dims[i], &count))
            return false;
    *ret_count = count;
    return true;
}

/* `needed`: bytes; NULL: more than can be counted. */
static int wrong_length(const struct bpk_array *array, const uint64_t *needed,
                        struct bpk_diag *diag) {
    char shape[100] = "[]";
    if (array->rank > 0)
        bpk_shape_show((struct bpk_shape){.dims = array->dims, .left = array->rank}, shape,
                       sizeof(shape));
    if (!needed)
        return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET,
                            "has %" PRIu64 " bytes, but the size of shape %s overflows",
                            array->size, shape);
    return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET,
                        "has %" PRIu64 " bytes, but shape %s of %s needs %" PRIu64, array->size,
                        shape, bpk_kind_name(array->dtype.kind), *needed);
}

int bpk_f32_new(const struct bpk_array *array, struct bpk_f32 **ret_f32, struct bpk_diag *diag) {
    const struct bpk_dtype *dtype = &array->dtype;
    _cleanup_free_ struct bpk_f32 *f32 = calloc(1, sizeof(*f32));
    if (!f32)
        return bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    if (!count_elements(array, &f32->count))
        return wrong_length(array, NULL, diag);
    if (dtype->kind == BPK_QFLOAT) {
        int r = bpk_dequant_new(array, f32->count, &f32->dequant, diag);
        if (r < 0)
            return r;
    } else {
        uint64_t needed;
        if (!bpk_dtype_length(dtype, f32->count, &needed))
            return wrong_length(array, NULL, diag);
        if (needed != array->size)
            return wrong_length(array, &needed, diag);
        f32->size = bpk_dtype_size(dtype);
        if (dtype->kind != BPK_F32 && dtype->kind != BPK_FLEX32)
            f32->convert = bpk_convert_for_dtype(dtype);
    }
    *ret_f32 = bpk_steal_ptr(f32);
    return 0;
}

void bpk_f32_free(struct bpk_f32 *f32) {
    if (!f32)
        return;
    bpk_dequant_free(f32->dequant);
    free(f32);
}

uint64_t bpk_f32_count(const struct bpk_f32 *f32) {
    return f32->count;
}

int bpk_f32_read(const struct bpk_f32 *f32, const struct bpk_source *source, uint64_t first,
                 size_t count, float *ret_values) {
    if (count == 0)
        return 0;
    if (f32->dequant)
        return bpk_dequant_read(f32->dequant, source, first, count, ret_values);
    if (!f32->convert)
        return source->read(source->context, first * f32->size, ret_values,
                            count * sizeof(*ret_values));
    uint8_t bytes[CHUNK];
    while (count > 0) {
        size_t n = count < CHUNK / f32->size ? count : CHUNK / f32->size;
        int r = source->read(source->context, first * f32->size, bytes, n * f32->size);
        if (r < 0)
            return r;
        f32->convert(bytes, n, ret_values);
        ret_values += n;
        first += n;
        count -= n;
    }
    return 0;
}
