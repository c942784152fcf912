#include "view/npy.h"

enum {
    ALIGNMENT = 64,
    GROWTH_DIGITS = 21, /* GROWTH_AXIS_MAX_DIGITS of NumPy */
};

#define MAGIC_LEN (sizeof(BPK_NPY_MAGIC) - 1)

static void out_spaces(struct bpk_outbuf *out, size_t count) {
    for (size_t i = 0; i < count; i++)
        bpk_out(out, " ", 1);
}

static size_t digits(uint64_t number) {
    struct bpk_outbuf out = {.counting = true};
    bpk_out_u64(&out, number);
    return out.len;
}

/* The dictionary and the room to grow, without the padding. */
static void out_dictionary(struct bpk_outbuf *out, const char *descr, const uint64_t *dims,
                           uint32_t rank) {
    bpk_out_str(out, "{'descr': '");
    bpk_out_str(out, descr);
    bpk_out_str(out, "', 'fortran_order': False, 'shape': (");
    for (uint32_t i = 0; i < rank; i++) {
        bpk_out_str(out, i == 0 ? "" : ", ");
        bpk_out_u64(out, dims[i]);
    }
    bpk_out_str(out, rank == 1 ? ",), }" : "), }");
    if (rank > 0)
        out_spaces(out, GROWTH_DIGITS - digits(dims[0]));
}

/* Bytes of padding behind `len` bytes: never none, as NumPy has it. */
static size_t padding_after(size_t len) {
    return ALIGNMENT - len % ALIGNMENT;
}

void bpk_npy_header(struct bpk_outbuf *out, const char *descr, const uint64_t *dims,
                    uint32_t rank) {
    struct bpk_outbuf counted = {.counting = true};
    out_dictionary(&counted, descr, dims, rank);
    size_t text = counted.len + 1; /* with its newline */
    size_t length_size = 2;
    if (text + padding_after(MAGIC_LEN + 2 + length_size + text) > UINT16_MAX)
        length_size = 4;
    size_t padding = padding_after(MAGIC_LEN + 2 + length_size + text);

    bpk_out(out, BPK_NPY_MAGIC, MAGIC_LEN);
    bpk_out(out, length_size == 2 ? "\1\0" : "\2\0", 2);
    for (size_t i = 0; i < length_size; i++) {
        char byte = (char)((text + padding) >> 8 * i);
        bpk_out(out, &byte, 1);
    }
    out_dictionary(out, descr, dims, rank);
    out_spaces(out, padding);
    bpk_out(out, "\n", 1);
}

void bpk_npy_array_header(struct bpk_outbuf *out, const struct bpk_array *array) {
    const char *descr = bpk_dtype_numpy(&array->dtype);
    if (array->dtype.kind == BPK_QFLOAT)
        bpk_npy_header(out, descr, &array->size, 1);
    else
        bpk_npy_header(out, descr, array->dims, array->rank);
}
