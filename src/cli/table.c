#include "cli/table.h"

#include "pack/util.h"
#include "view/index.h"

#include <fnmatch.h>

/* ---- which tensors --------------------------------------------------------------------------- */

/* `exact`: of each pattern, the tensor of which it is the name. */
static bool matches(const struct bpk_cli_pack *pack, uint32_t index, int count, char **patterns,
                    const uint32_t *exact) {
    char file[BPK_FILE_NAME_BUF];
    bpk_names_file(pack->names, index, file);
    for (int i = 0; i < count; i++)
        if (fnmatch(patterns[i], file, 0) == 0 || exact[i] == index)
            return true;
    return count == 0;
}

bool bpk_cli_select(const struct bpk_cli_pack *pack, int count, char **patterns,
                    struct bpk_cli_selection *ret_selection) {
    *ret_selection = (struct bpk_cli_selection){0};
    _cleanup_free_ uint32_t *exact = calloc((size_t)count + 1, sizeof(*exact));
    _cleanup_free_ uint32_t *tensors = calloc((size_t)pack->info.tensors + 1, sizeof(*tensors));
    if (!exact || !tensors) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    for (int i = 0; i < count; i++)
        if (bpk_cli_find(pack, patterns[i], &exact[i]) < 0)
            exact[i] = BPK_NO_TENSOR;
    uint32_t found = 0;
    for (uint32_t i = 0; i < pack->info.tensors; i++)
        if (matches(pack, i, count, patterns, exact))
            tensors[found++] = i;
    if (count > 0 && found == 0) {
        bpk_cli_error(pack->path, "no tensor matches");
        return false;
    }
    *ret_selection = (struct bpk_cli_selection){bpk_steal_ptr(tensors), found};
    return true;
}

void bpk_cli_selection_clear(struct bpk_cli_selection *selection) {
    free(selection->tensors);
    *selection = (struct bpk_cli_selection){0};
}

void bpk_cli_tensor_error(const struct bpk_cli_pack *pack, uint32_t index, const char *sentence) {
    _cleanup_outbuf_ struct bpk_outbuf name = {0};
    bpk_cli_show_name(pack, index, &name);
    bpk_out(&name, "", 1);
    bpk_cli_error(pack->path, "tensor '%s': %s", name.failed ? "?" : name.text, sentence);
}

/* ---- columns --------------------------------------------------------------------------------- */

void bpk_cli_pad(struct bpk_outbuf *out, size_t from, size_t width) {
    size_t columns = 0;
    for (size_t i = from; i < out->len && out->text; i++)
        if (((unsigned char)out->text[i] & 0xc0) != 0x80)
            columns++;
    for (; columns < width; columns++)
        bpk_out(out, " ", 1);
}

static void out_dtype(struct bpk_outbuf *out, const struct bpk_dtype *dtype) {
    if (dtype->kind == BPK_QFLOAT) {
        bpk_out_str(out, "QFloat ");
        bpk_out_str(out, bpk_quant_value_name(dtype->scheme.value));
    } else if (dtype->kind == BPK_BOOL && dtype->bool_store == BPK_BOOL_U32) {
        bpk_out_str(out, "Bool U32");
    } else {
        bpk_out_str(out, bpk_kind_name(dtype->kind));
    }
}

void bpk_cli_dtype_and_shape(const struct bpk_cli_pack *pack, uint32_t index,
                             struct bpk_outbuf *out) {
    struct bpk_tensor tensor;
    struct bpk_dtype dtype;
    bpk_pack_tensor(pack->pack, index, &tensor);
    bpk_pack_tensor_dtype(pack->pack, index, &dtype);
    size_t column = out->len;
    out_dtype(out, &dtype);
    bpk_cli_pad(out, column, 10);
    column = out->len;
    if (tensor.rank == 0)
        bpk_out_str(out, "scalar");
    else
        bpk_index_shape(out, bpk_pack_tensor_shape(pack->pack, index));
    bpk_out_str(out, " ");
    bpk_cli_pad(out, column, 16);
}
