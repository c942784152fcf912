#include "view/sidecar.h"

#include "view/json.h"

void bpk_sidecar_object(struct bpk_outbuf *out, const struct bpk_sidecar *sidecar,
                        unsigned indent) {
    bpk_out_str(out, "{");
    bpk_json_field(out, indent, true, "name");
    bpk_json_string(out, sidecar->name);
    bpk_json_field(out, indent, false, "dtype");
    bpk_json_dtype(out, &sidecar->dtype);
    bpk_json_field(out, indent, false, "shape");
    bpk_json_shape(out, sidecar->shape);
    bpk_json_field(out, indent, false, "param_id");
    if (sidecar->has_param_id)
        bpk_json_u64(out, sidecar->param_id);
    else
        bpk_out_str(out, "null");
    bpk_json_field(out, indent, false, "nbytes");
    bpk_json_u64(out, sidecar->size);
    bpk_json_field(out, indent, false, "data_offsets");
    if (sidecar->has_offsets) {
        bpk_out_str(out, "[");
        bpk_json_u64(out, sidecar->start);
        bpk_out_str(out, ", ");
        bpk_json_u64(out, sidecar->end);
        bpk_out_str(out, "]");
    } else {
        bpk_out_str(out, "null");
    }
    bpk_json_field(out, indent, false, "numpy");
    bpk_json_cstring(out, bpk_dtype_numpy(&sidecar->dtype));
    if (sidecar->xxh3) {
        bpk_json_field(out, indent, false, "xxh3");
        bpk_json_cstring(out, sidecar->xxh3);
    }
    if (sidecar->problem) {
        bpk_json_field(out, indent, false, "problem");
        bpk_json_cstring(out, sidecar->problem);
    }
    bpk_json_end_object(out, indent);
}

void bpk_sidecar_of_tensor(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index,
                           const char *xxh3, unsigned indent) {
    struct bpk_pack_info info;
    struct bpk_tensor tensor;
    char problem[400];
    bpk_pack_get_info(pack, &info);
    bpk_pack_tensor(pack, index, &tensor);
    struct bpk_sidecar sidecar = {
        .name = tensor.name,
        .shape = bpk_pack_tensor_shape(pack, index),
        .has_param_id = tensor.has_param_id,
        .param_id = tensor.param_id,
        .size = tensor.end - tensor.start,
        .has_offsets = true,
        .start = tensor.start - info.data_start,
        .end = tensor.end - info.data_start,
        .xxh3 = xxh3,
    };
    bpk_pack_tensor_dtype(pack, index, &sidecar.dtype);
    if (bpk_pack_tensor_problem(pack, index, problem, sizeof(problem)))
        sidecar.problem = problem;
    bpk_sidecar_object(out, &sidecar, indent);
}

void bpk_sidecar_file(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index) {
    bpk_sidecar_of_tensor(out, pack, index, NULL, 0);
    bpk_out_str(out, "\n");
}
