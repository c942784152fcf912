#include "view/maps.h"

#include "view/json.h"

#include <string.h>

static void out_line(struct bpk_outbuf *out, const char *before, unsigned indent) {
    bpk_out_str(out, before);
    for (unsigned i = 0; i < indent; i++)
        bpk_out(out, " ", 1);
}

struct bpk_map_writer bpk_map_begin(struct bpk_outbuf *out, unsigned indent) {
    bpk_out_str(out, "{");
    return (struct bpk_map_writer){out, indent, true};
}

void bpk_map_key(struct bpk_map_writer *writer, struct bpk_str key) {
    out_line(writer->out, writer->empty ? "\n" : ",\n", writer->indent + 2);
    writer->empty = false;
    bpk_json_string(writer->out, key);
    bpk_out_str(writer->out, ": ");
}

void bpk_map_end(struct bpk_map_writer *writer) {
    if (!writer->empty)
        out_line(writer->out, "\n", writer->indent);
    bpk_out_str(writer->out, "}");
}

void bpk_metadata_object(struct bpk_outbuf *out, const struct bpk_pack *pack, unsigned indent) {
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    struct bpk_map_writer writer = bpk_map_begin(out, indent);
    for (uint32_t i = 0; i < info.metadata_entries; i++) {
        struct bpk_str key;
        struct bpk_str value;
        bpk_pack_metadata(pack, i, &key, &value);
        if (memchr(key.bytes, '\0', key.len))
            continue;
        bpk_map_key(&writer, key);
        bpk_json_string(out, value);
    }
    bpk_map_end(&writer);
}

void bpk_scalar_value(struct bpk_outbuf *out, const struct bpk_scalar *scalar) {
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
    struct bpk_map_writer writer = bpk_map_begin(out, indent);
    for (uint32_t i = 0; i < info.scalars; i++) {
        struct bpk_scalar scalar;
        bpk_pack_scalar(pack, i, &scalar);
        if (memchr(scalar.name.bytes, '\0', scalar.name.len))
            continue;
        bpk_map_key(&writer, scalar.name);
        bpk_scalar_value(out, &scalar);
    }
    bpk_map_end(&writer);
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
