#include "view/index.h"

#include "view/json.h"

void bpk_index_shape(struct bpk_outbuf *out, struct bpk_shape shape) {
    uint64_t dim;
    bool first = true;
    while (bpk_shape_next(&shape, &dim)) {
        if (!first)
            bpk_out_str(out, "x");
        bpk_out_u64(out, dim);
        first = false;
    }
}

/* The dtype's JSON without its spaces; no string in it holds one. */
static void out_compact_dtype(struct bpk_outbuf *out, const struct bpk_dtype *dtype) {
    _cleanup_outbuf_ struct bpk_outbuf spaced = {0};
    bpk_json_dtype(&spaced, dtype);
    out->failed |= spaced.failed;
    for (size_t i = 0; i < spaced.len; i++)
        if (spaced.text[i] != ' ')
            bpk_out(out, &spaced.text[i], 1);
}

void bpk_index_header(struct bpk_outbuf *out) {
    bpk_out_str(out, "name\tdtype\tshape\tbytes\toffset\n");
}

void bpk_index_row(struct bpk_outbuf *out, const char *file, const struct bpk_dtype *dtype,
                   struct bpk_shape shape, uint64_t size, const uint64_t *offset) {
    bpk_out_str(out, file);
    bpk_out_str(out, "\t");
    out_compact_dtype(out, dtype);
    bpk_out_str(out, "\t");
    bpk_index_shape(out, shape);
    bpk_out_str(out, "\t");
    bpk_out_u64(out, size);
    bpk_out_str(out, "\t");
    if (offset)
        bpk_out_u64(out, *offset);
    else
        bpk_out_str(out, "-");
    bpk_out_str(out, "\n");
}

void bpk_index_file(struct bpk_outbuf *out, const struct bpk_pack *pack,
                    const struct bpk_names *names) {
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    bpk_index_header(out);
    for (uint32_t i = 0; i < info.tensors; i++) {
        char file[BPK_FILE_NAME_BUF];
        struct bpk_tensor tensor;
        struct bpk_dtype dtype;
        bpk_pack_tensor(pack, i, &tensor);
        bpk_pack_tensor_dtype(pack, i, &dtype);
        bpk_names_file(names, i, file);
        bpk_index_row(out, file, &dtype, bpk_pack_tensor_shape(pack, i), tensor.end - tensor.start,
                      &tensor.start);
    }
}
