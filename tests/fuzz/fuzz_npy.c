/* Any bytes as a .npy file: the header is judged the same however much follows; what we write for
 * what was read reads the same; and the data comes into order, each byte once. */
#include "fuzz.h"

#include "view/npy_order.h"

#include <errno.h>
#include <string.h>

static int parse(const uint8_t *data, size_t size, struct bpk_npy *ret_npy) {
    struct bpk_diag diag = {0};
    int r = bpk_npy_parse(data, size, ret_npy, &diag);
    HOLDS(r == 0 || r == -EAGAIN || r == -EINVAL || r == -EFBIG);
    if (r == -EINVAL || r == -EFBIG)
        fuzz_check_sentence(diag.sentence);
    return r;
}

/* ---- what we write --------------------------------------------------------------------------- */

static void check_header(const struct bpk_npy *npy) {
    struct bpk_outbuf out = {0};
    struct bpk_npy again;
    bpk_npy_header(&out, npy->descr, npy->dims, npy->rank);
    HOLDS(!out.failed && out.len % 64 == 0);
    HOLDS(parse((const uint8_t *)out.text, out.len, &again) == 0);
    HOLDS(again.header_size == out.len && !again.is_fortran);
    HOLDS(again.kind == npy->kind && again.item_size == npy->item_size);
    HOLDS(again.is_big_endian == npy->is_big_endian && again.size == npy->size);
    HOLDS(again.rank == npy->rank);
    HOLDS(memcmp(again.dims, npy->dims, npy->rank * sizeof(npy->dims[0])) == 0);
    bpk_outbuf_clear(&out);
}

/* ---- order ----------------------------------------------------------------------------------- */

enum { MAX_DATA = 1 << 16 };

static int read_data(void *context, uint64_t offset, void *buffer, size_t size) {
    const struct bpk_npy *npy = context;
    uint8_t *bytes = buffer;
    HOLDS(size > 0 && offset <= npy->size && size <= npy->size - offset);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)((offset + i) * 7 + ((offset + i) >> 8));
    return 0;
}

struct target {
    const struct bpk_npy *npy;
    uint8_t data[MAX_DATA];
    uint8_t written[MAX_DATA];
};

static int write_data(void *context, uint64_t offset, const void *bytes, size_t size) {
    struct target *target = context;
    HOLDS(offset <= target->npy->size && size <= target->npy->size - offset);
    memcpy(target->data + offset, bytes, size);
    for (size_t i = 0; i < size; i++)
        HOLDS(target->written[offset + i]++ == 0);
    return 0;
}

/* Where byte `place` of the tensor is in the file. */
static uint64_t place_in_file(const struct bpk_npy *npy, uint64_t place) {
    uint64_t item = place / npy->item_size;
    uint64_t byte = place % npy->item_size;
    uint64_t at = 0;
    if (npy->is_big_endian)
        byte = npy->item_size - 1 - byte;
    if (!npy->is_fortran)
        return item * npy->item_size + byte;
    uint64_t stride = npy->size / npy->item_size;
    for (uint32_t i = npy->rank; i > 0; i--) {
        stride /= npy->dims[i - 1];
        at += item % npy->dims[i - 1] * stride;
        item /= npy->dims[i - 1];
    }
    return at * npy->item_size + byte;
}

static void check_order(struct bpk_npy *npy) {
    static struct target target;
    const struct bpk_source source = {read_data, npy};
    if (npy->size > MAX_DATA)
        return;
    target.npy = npy;
    memset(target.written, 0, sizeof(target.written));
    HOLDS(bpk_npy_reorder(npy, &source, write_data, &target) == 0);
    for (uint64_t i = 0; i < npy->size; i++) {
        uint8_t expected;
        (void)read_data(npy, place_in_file(npy, i), &expected, 1);
        HOLDS(target.written[i] == 1 && target.data[i] == expected);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bpk_npy npy;
    struct bpk_npy less;
    struct bpk_dtype dtype;
    int r = parse(data, size, &npy);
    HOLDS(r != -EAGAIN || size < BPK_NPY_MAX_HEADER);
    for (size_t len = 0; len < size && len < 16; len++) {
        int earlier = parse(data, len, &less);
        HOLDS(earlier == -EAGAIN || earlier == r);
    }
    if (r < 0)
        return 0;
    HOLDS(npy.header_size <= size && npy.header_size <= BPK_NPY_MAX_HEADER);
    HOLDS(parse(data, npy.header_size, &less) == 0);
    HOLDS(parse(data, npy.header_size - 1, &less) == -EAGAIN);
    (void)bpk_npy_dtype(&npy, NULL, &dtype);
    HOLDS(dtype.kind == npy.kind && bpk_dtype_size(&dtype) == npy.item_size);
    check_header(&npy);
    check_order(&npy);
    return 0;
}
