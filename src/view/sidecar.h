/* A tensor's sidecar: its descriptor and what is useful beside it, as JSON. */
#ifndef BPK_VIEW_SIDECAR_H
#define BPK_VIEW_SIDECAR_H

#include "bpk.h"
#include "pack/outbuf.h"

/* One object, two-space indent, `indent` spaces before each line but the first, no newline at the
 * end: {"name", "dtype", "shape", "param_id", "nbytes", "data_offsets", "numpy"}, and "problem"
 * where the tensor has one. data_offsets are relative to the data section, as in the pack. */
void bpk_sidecar_object(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index,
                        unsigned indent);

/* The sidecar's file: the object and a newline. */
void bpk_sidecar_file(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index);

#endif
