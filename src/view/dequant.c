/* A tensor is seen as few dimensions as its places and blocks allow, innermost first: dimensions
 * over which both run on as over one are one here. So most tensors have a single one.
 *
 * Reading goes along the innermost dimension in runs. Bytes and scales come through a window each,
 * which moves when something beyond it is wanted, to there and as far as the rest of the elements
 * can need: a few large reads, whatever the blocks look like. */
#include "view/dequant.h"

#include "pack/diag.h"
#include "pack/dtype.h"
#include "pack/util.h"
#include "view/convert.h"

#include <errno.h>
#include <inttypes.h>

enum {
    VALUE_WINDOW = 16 << 10, /* bytes; a multiple of every element */
    SCALE_WINDOW = 2048,     /* scales */
    MAX_SCALE_SIZE = 4,
};

struct axis {
    uint64_t dim;
    uint64_t block;  /* elements that share a scale; not more than dim */
    uint64_t stride; /* bytes from one element of storage to the next along this axis */
    uint64_t grid;   /* scales from one block to the next */
    bool packed;     /* elements of storage hold neighbours along this axis */
};

struct bpk_dequant {
    unsigned value_bits;  /* 8 where a value has a byte of its own */
    unsigned per_element; /* values in an element of storage */
    unsigned element_size;
    bool side_by_side;       /* neighbours along the innermost axis are neighbours in storage too */
    bpk_convert_fn *convert; /* side by side, a byte each */
    bpk_unpack_fn *unpack;   /* the others */
    uint64_t value_bytes;    /* of all; the scales follow */
    uint64_t scales;
    unsigned scale_size;
    bpk_convert_fn *convert_scale;
    bool has_global; /* one more scale, F32, for the whole tensor */
    uint32_t rank;
    struct axis axes[]; /* innermost first */
};

/* ---- what Burn dequantises ------------------------------------------------------------------- */

static bool is_integer(enum bpk_quant_value value) {
    return value != BPK_E4M3 && value != BPK_E5M2 && value != BPK_E2M1;
}

static bool is_stored_so(const struct bpk_scheme *scheme) {
    switch (scheme->store) {
    case BPK_STORE_NATIVE:
        return scheme->value != BPK_E2M1;
    case BPK_STORE_PACKED_NATIVE:
        return scheme->value == BPK_E2M1;
    default:
        return is_integer(scheme->value);
    }
}

static int check_support(const struct bpk_scheme *scheme, struct bpk_diag *diag) {
    if (scheme->mode == BPK_MODE_LOOKUP)
        return bpk_diag_set(diag, -ENOTSUP, BPK_NO_OFFSET,
                            "is quantised with the mode Lookup, whose table is in no pack");
    if (scheme->form == BPK_SCHEME_LEVELLED && scheme->level == BPK_LEVEL_BLOCK_TENSOR)
        return bpk_diag_set(diag, -ENOTSUP, BPK_NO_OFFSET,
                            "is quantised with the level BlockTensor, which no version of Burn "
                            "dequantises");
    if (!is_stored_so(scheme))
        return bpk_diag_set(diag, -ENOTSUP, BPK_NO_OFFSET,
                            "is quantised to %s stored as %s, which no version of Burn dequantises",
                            bpk_quant_value_name(scheme->value),
                            bpk_quant_store_name(scheme->store));
    if (scheme->has_block && scheme->has_tensor && scheme->tensor_scale != BPK_SCALE_F32)
        return bpk_diag_set(diag, -ENOTSUP, BPK_NO_OFFSET,
                            "has a scale of %s over the scales of its blocks; Burn takes F32 alone",
                            bpk_scale_name(scheme->tensor_scale));
    return 0;
}

/* What the tensor consists of. The scales' dtype is the scheme's; but the CPU back ends up to Burn
 * 0.21 wrote F32 whatever it said, and then the length tells. */
static int split(const struct bpk_array *array, struct bpk_scheme_parts *ret_parts,
                 struct bpk_diag *diag) {
    const struct bpk_scheme *scheme = &array->dtype.scheme;
    struct bpk_scheme_parts parts;
    uint64_t needed;
    uint64_t wide;
    if (!bpk_scheme_split(scheme, array->dims, array->rank, &parts) ||
        !bpk_scheme_length(scheme, array->dims, array->rank, &needed))
        return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET,
                            "has a quantization scheme that does not fit its shape");
    if (needed != array->size) {
        if (scheme->form != BPK_SCHEME_LEVELLED ||
            !bpk_mul_u64(parts.scales, bpk_scale_size(BPK_SCALE_F32), &wide) ||
            !bpk_add_u64(wide, parts.value_bytes, &wide) || wide != array->size)
            return bpk_diag_set(diag, -ENOTSUP, BPK_NO_OFFSET,
                                "has %" PRIu64 " bytes, its shape and quantization scheme would "
                                "give %" PRIu64,
                                array->size, needed);
        parts.scale = BPK_SCALE_F32;
    }
    *ret_parts = parts;
    return 0;
}

/* ---- where things lie ------------------------------------------------------------------------ */

/* Makes `inner` run over the next dimension outwards as well, if it can. A dimension of 1 adds
 * nothing to any place, even if it is the packed one: then every value is in lane 0. */
static bool merge(struct axis *inner, const struct axis *outer, unsigned per_element) {
    if (inner->dim == 1) {
        *inner = *outer;
        return true;
    }
    if (outer->dim == 1)
        return true;
    if (outer->packed || (inner->packed && inner->dim % per_element != 0))
        return false;
    if (inner->block == inner->dim)
        inner->block *= outer->block;
    else if (outer->block != 1 || inner->dim % inner->block != 0)
        return false;
    inner->dim *= outer->dim;
    return true;
}

/* Lays out dims and blocks. `packed_dim` counts from the innermost; the rank or more: none. */
static void lay_out(struct bpk_dequant *dequant, const struct bpk_array *array,
                    uint64_t packed_dim) {
    const struct bpk_scheme *scheme = &array->dtype.scheme;
    dequant->rank = 1;
    dequant->axes[0] = (struct axis){.dim = 1, .block = 1};
    for (uint32_t i = array->rank; i-- > 0;) {
        struct axis axis = {
            .dim = array->dims[i],
            .block = array->dims[i],
            .packed = array->rank - 1 - i == packed_dim,
        };
        if (scheme->has_block && bpk_scheme_block(scheme, array->rank, i) < axis.block)
            axis.block = bpk_scheme_block(scheme, array->rank, i);
        if (!merge(&dequant->axes[dequant->rank - 1], &axis, dequant->per_element))
            dequant->axes[dequant->rank++] = axis;
    }
    uint64_t stride = dequant->element_size;
    uint64_t grid = 1;
    for (uint32_t i = 0; i < dequant->rank; i++) {
        struct axis *axis = &dequant->axes[i];
        axis->stride = stride;
        axis->grid = grid;
        uint64_t per_element = axis->packed ? dequant->per_element : 1;
        stride *= axis->dim / per_element + (axis->dim % per_element != 0);
        grid *= axis->dim / axis->block + (axis->dim % axis->block != 0);
    }
}

/* Up to Burn 0.22.0-pre.2 blocks were rectangles for some back ends and runs of as many values for
 * others. Whether that is the same here. */
static bool blocks_are_runs(struct bpk_dequant *dequant, const struct bpk_array *array) {
    const struct bpk_scheme *scheme = &array->dtype.scheme;
    uint64_t run = 1;
    for (unsigned i = 0; i < scheme->block_len; i++)
        run *= scheme->block_dims[i];
    lay_out(dequant, array, array->rank);
    const struct axis *axis = &dequant->axes[0];
    return dequant->rank == 1 && (axis->block == run || axis->block == axis->dim);
}

static int find_places(struct bpk_dequant *dequant, const struct bpk_array *array, bool packs_a_dim,
                       struct bpk_diag *diag) {
    const struct bpk_scheme *scheme = &array->dtype.scheme;
    if (scheme->form == BPK_SCHEME_LEVELLED && scheme->has_block &&
        !blocks_are_runs(dequant, array))
        return bpk_diag_set(diag, -ENOTSUP, BPK_NO_OFFSET,
                            "has blocks that Burn's back ends cut in two ways before 0.22, and "
                            "the pack does not say in which");
    lay_out(dequant, array, packs_a_dim ? scheme->packed_dim : array->rank);
    dequant->side_by_side = !packs_a_dim || dequant->axes[0].packed;
    if (!dequant->side_by_side)
        dequant->unpack = bpk_unpack_for_lane(scheme->value);
    else if (dequant->value_bits < 8)
        dequant->unpack = bpk_unpack_for_neighbours(scheme->value);
    else
        dequant->convert = bpk_convert_for_value(scheme->value);
    return 0;
}

int bpk_dequant_new(const struct bpk_array *array, uint64_t count, struct bpk_dequant **ret_dequant,
                    struct bpk_diag *diag) {
    const struct bpk_scheme *scheme = &array->dtype.scheme;
    struct bpk_scheme_parts parts = {0};
    int r = check_support(scheme, diag);
    if (r == 0)
        r = split(array, &parts, diag);
    if (r < 0)
        return r;
    _cleanup_free_ struct bpk_dequant *dequant =
        calloc(1, sizeof(*dequant) + ((size_t)array->rank + 1) * sizeof(dequant->axes[0]));
    if (!dequant)
        return bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    dequant->per_element = parts.element_bits / parts.value_bits;
    dequant->element_size = (parts.element_bits + 7) / 8;
    dequant->value_bits = dequant->per_element == 1 ? 8 : parts.value_bits;
    dequant->value_bytes = parts.value_bytes;
    dequant->scales = parts.scales;
    dequant->scale_size = bpk_scale_size(parts.scale);
    dequant->convert_scale = bpk_convert_for_scale(parts.scale);
    dequant->has_global = scheme->has_block && scheme->has_tensor;
    if (count > 0) /* else nothing lies anywhere */
        r = find_places(dequant, array, parts.packs_a_dim, diag);
    if (r < 0)
        return r;
    *ret_dequant = bpk_steal_ptr(dequant);
    return 0;
}

void bpk_dequant_free(struct bpk_dequant *dequant) {
    free(dequant);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct place {
    uint64_t byte; /* of the value's element; where neighbours lie side by side, of the value */
    unsigned lane; /* of the value in the element, or in that byte */
    uint64_t scale;
    uint64_t along; /* coordinate along the innermost axis */
};

static struct place locate(const struct bpk_dequant *dequant, uint64_t index) {
    struct place place = {.along = index % dequant->axes[0].dim};
    for (uint32_t i = 0; i < dequant->rank; i++) {
        const struct axis *axis = &dequant->axes[i];
        uint64_t at = index % axis->dim;
        index /= axis->dim;
        place.scale += at / axis->block * axis->grid;
        if (axis->packed) {
            place.lane = (unsigned)(at % dequant->per_element);
            at /= dequant->per_element;
        }
        place.byte += at * axis->stride;
    }
    if (dequant->side_by_side) {
        place.byte += place.lane * dequant->value_bits / 8;
        place.lane %= 8 / dequant->value_bits;
    }
    return place;
}

struct reader {
    const struct bpk_dequant *dequant;
    const struct bpk_source *source;
    float global;
    struct place last; /* of the last element that is wanted */
    uint64_t bytes_start;
    uint64_t bytes_end;
    uint64_t scales_start;
    uint64_t scales_end;
    uint8_t bytes[VALUE_WINDOW];
    float scales[SCALE_WINDOW];
};

static int read_global(struct reader *reader) {
    const struct bpk_dequant *dequant = reader->dequant;
    return reader->source->read(reader->source->context,
                                dequant->value_bytes + dequant->scales * dequant->scale_size,
                                &reader->global, sizeof(reader->global));
}

/* How far a window from `start` on may reach: to the last place that is wanted where places rise
 * with the elements, else for as many as are left, at most to `end`. */
static uint64_t window_end(uint64_t start, uint64_t end, uint64_t capacity, bool rising,
                           uint64_t last, uint64_t left) {
    uint64_t size = rising ? last + 1 - start : left;
    if (size > end - start)
        size = end - start;
    return start + (size < capacity ? size : capacity);
}

/* Makes the window of bytes hold `place`, if it does not; `left` elements are wanted from there. */
static int need_bytes(struct reader *reader, const struct place *place, size_t left) {
    const struct bpk_dequant *dequant = reader->dequant;
    if (place->byte >= reader->bytes_start && place->byte < reader->bytes_end)
        return 0;
    uint64_t most = left < VALUE_WINDOW ? (uint64_t)left * dequant->element_size : VALUE_WINDOW;
    uint64_t end = window_end(place->byte, dequant->value_bytes, VALUE_WINDOW,
                              dequant->side_by_side, reader->last.byte, most);
    int r = reader->source->read(reader->source->context, place->byte, reader->bytes,
                                 (size_t)(end - place->byte));
    if (r < 0)
        return r;
    reader->bytes_start = place->byte;
    reader->bytes_end = end;
    return 0;
}

static int need_scales(struct reader *reader, const struct place *place, size_t left) {
    const struct bpk_dequant *dequant = reader->dequant;
    if (place->scale >= reader->scales_start && place->scale < reader->scales_end)
        return 0;
    uint8_t raw[SCALE_WINDOW * MAX_SCALE_SIZE];
    uint64_t end = window_end(place->scale, dequant->scales, SCALE_WINDOW, dequant->rank == 1,
                              reader->last.scale, left);
    size_t count = (size_t)(end - place->scale);
    int r = reader->source->read(reader->source->context,
                                 dequant->value_bytes + place->scale * dequant->scale_size, raw,
                                 count * dequant->scale_size);
    if (r < 0)
        return r;
    dequant->convert_scale(raw, count, reader->scales);
    if (dequant->has_global)
        bpk_convert_scale(reader->scales, count, 0, count, &reader->global);
    reader->scales_start = place->scale;
    reader->scales_end = end;
    return 0;
}

/* How many elements from `place` on, of `count` along the innermost axis, the windows hold. */
static size_t held(const struct reader *reader, const struct place *place, uint64_t count) {
    const struct bpk_dequant *dequant = reader->dequant;
    uint64_t bytes = reader->bytes_end - place->byte;
    uint64_t values = dequant->side_by_side ? bytes * 8 / dequant->value_bits - place->lane
                                            : bytes / dequant->element_size;
    if (count > values)
        count = values;
    uint64_t block = dequant->axes[0].block;
    uint64_t done = place->along % block;
    uint64_t scales = reader->scales_end - place->scale;
    if ((done + count - 1) / block >= scales)
        count = scales * block - done;
    return (size_t)count;
}

int bpk_dequant_read(const struct bpk_dequant *dequant, const struct bpk_source *source,
                     uint64_t first, size_t count, float *ret_values) {
    struct reader reader;
    reader.dequant = dequant;
    reader.source = source;
    reader.last = locate(dequant, first + count - 1);
    reader.bytes_start = reader.bytes_end = 0;
    reader.scales_start = reader.scales_end = 0;
    int r = dequant->has_global ? read_global(&reader) : 0;
    while (r == 0 && count > 0) {
        struct place place = locate(dequant, first);
        r = need_bytes(&reader, &place, count);
        if (r == 0)
            r = need_scales(&reader, &place, count);
        if (r < 0)
            break;
        uint64_t row = dequant->axes[0].dim - place.along;
        size_t n = held(&reader, &place, row < count ? row : count);
        const uint8_t *bytes = reader.bytes + (place.byte - reader.bytes_start);
        if (dequant->convert)
            dequant->convert(bytes, n, ret_values);
        else
            dequant->unpack(bytes, place.lane, n, ret_values);
        uint64_t block = dequant->axes[0].block;
        bpk_convert_scale(ret_values, n, place.along % block, block,
                          reader.scales + (place.scale - reader.scales_start));
        ret_values += n;
        first += n;
        count -= n;
    }
    return r;
}
