#include "view/maps.h"

#include "view/json.h"

#include <string.h>

static void out_line(struct bpk_outbuf *out, const char *before, unsigned indent) {
    bpk_out_str(out, before);
    for (unsigned i = 0; i < indent; i++)
        bpk_out(out, " ", 1);
}

/* The next entry's line, up to and with "KEY": . */
static void out_key(struct bpk_outbuf *out, bool *first, unsigned indent, struct bpk_str key) {
    out_line(out, *first ? "\n" : ",\n", indent + 2);
    *first = false;
    bpk_json_string(out, key);
    bpk_out_str(out, ": ");
}

static void out_end(struct bpk_outbuf *out, bool empty, unsigned indent) {
    if (!empty)
        out_line(out, "\n", indent);
    bpk_out_str(out, "}");
}

void bpk_metadata_object(struct bpk_outbuf *out, const struct bpk_pack *pack, unsigned indent) {
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    bool first = true;
    bpk_out_str(out, "{");
    for (uint32_t i = 0; i < info.metadata_entries; i++) {
        struct bpk_str key;
        struct bpk_str value;
        bpk_pack_metadata(pack, i, &key, &value);
        if (memchr(key.bytes, '\0', key.len))
            continue;
        out_key(out, &first, indent, key);
        bpk_json_string(out, value);
    }
    out_end(out, first, indent);
}

static void out_scalar(struct bpk_outbuf *out, const struct bpk_scalar *scalar) {
    bpk_out_str(out, "{");
    bpk_json_cstring(out, bpk_scalar_kind_name(scalar->kind));
    bpk_out_str(out, ": ");
    switch (scalar->kind) {
    case BPK_SCALAR_INT:
        bpk_json_i64(out, (int64_t)scalar->bits);
        break;
    case BPK_SCALAR_UINT:
        bpk_json_u64(out, scalar->bits);
        break;
    case BPK_SCALAR_FLOAT:
        bpk_json_double(out, scalar->bits);
        break;
    case BPK_SCALAR_BOOL:
        bpk_out_str(out, scalar->bits ? "true" : "false");
        break;
    }
    bpk_out_str(out, "}");
}

void bpk_scalars_object(struct bpk_outbuf *out, const struct bpk_pack *pack, unsigned indent) {
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    bool first = true;
    bpk_out_str(out, "{");
    for (uint32_t i = 0; i < info.scalars; i++) {
        struct bpk_scalar scalar;
        bpk_pack_scalar(pack, i, &scalar);
        out_key(out, &first, indent, scalar.name);
        out_scalar(out, &scalar);
    }
    out_end(out, first, indent);
}

void bpk_metadata_file(struct bpk_outbuf *out, const struct bpk_pack *pack) {
    bpk_metadata_object(out, pack, 0);
    bpk_out_str(out, "\n");
}

void bpk_scalars_file(struct bpk_outbuf *out, const struct bpk_pack *pack) {
    bpk_scalars_object(out, pack, 0);
    bpk_out_str(out, "\n");
}

void bpk_metadata_value_file(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index) {
    struct bpk_str key;
    struct bpk_str value;
    bpk_pack_metadata(pack, index, &key, &value);
    bpk_out(out, value.bytes, value.len);
    bpk_out_str(out, "\n");
}
