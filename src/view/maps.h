/* User metadata and scalars as JSON files. */
#ifndef BPK_VIEW_MAPS_H
#define BPK_VIEW_MAPS_H

#include "bpk.h"
#include "pack/outbuf.h"

/* The objects alone, one line an entry, `indent` spaces before each line but the first. Keys
 * and names with a NUL are left out: JSON libraries cannot hold them. */
void bpk_metadata_object(struct bpk_outbuf *out, const struct bpk_pack *pack, unsigned indent);

/* {"epoch": {"UInt": 3}, …} */
void bpk_scalars_object(struct bpk_outbuf *out, const struct bpk_pack *pack, unsigned indent);

/* One object, an entry a line, for callers that have the entries themselves. */
struct bpk_map_writer {
    struct bpk_outbuf *out;
    unsigned indent;
    bool empty;
};
struct bpk_map_writer bpk_map_begin(struct bpk_outbuf *out, unsigned indent);
void bpk_map_key(struct bpk_map_writer *writer, struct bpk_str key); /* the value follows */
void bpk_map_end(struct bpk_map_writer *writer);

/* {"UInt": 3} */
void bpk_scalar_value(struct bpk_outbuf *out, const struct bpk_scalar *scalar);

/* The files metadata.json and scalars.json: the object and a newline. */
void bpk_metadata_file(struct bpk_outbuf *out, const struct bpk_pack *pack);
void bpk_scalars_file(struct bpk_outbuf *out, const struct bpk_pack *pack);

/* The file metadata/KEY: the value and a newline. */
void bpk_metadata_value_file(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index);

#endif
