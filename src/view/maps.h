/* User metadata and scalars as JSON files. */
#ifndef BPK_VIEW_MAPS_H
#define BPK_VIEW_MAPS_H

#include "bpk.h"
#include "pack/outbuf.h"

/* The objects alone, one line an entry, `indent` spaces before each line but the first. Metadata
 * keys with a NUL are left out: JSON libraries cannot hold them. */
void bpk_metadata_object(struct bpk_outbuf *out, const struct bpk_pack *pack, unsigned indent);

/* {"epoch": {"UInt": 3}, …} */
void bpk_scalars_object(struct bpk_outbuf *out, const struct bpk_pack *pack, unsigned indent);

/* The files metadata.json and scalars.json: the object and a newline. */
void bpk_metadata_file(struct bpk_outbuf *out, const struct bpk_pack *pack);
void bpk_scalars_file(struct bpk_outbuf *out, const struct bpk_pack *pack);

/* The file metadata/KEY: the value and a newline. */
void bpk_metadata_value_file(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index);

#endif
