/* A tensor's sidecar: its descriptor and what is useful beside it, as JSON. */
#ifndef BPK_VIEW_SIDECAR_H
#define BPK_VIEW_SIDECAR_H

#include "bpk.h"
#include "pack/outbuf.h"

/* What a sidecar shows. */
struct bpk_sidecar {
    struct bpk_str name;
    struct bpk_dtype dtype;
    struct bpk_shape shape;
    bool has_param_id;
    uint64_t param_id;
    uint64_t size;    /* of the tensor, bytes */
    bool has_offsets; /* false: what is new has none */
    uint64_t start;   /* relative to the data section, as in the pack */
    uint64_t end;
    const char *xxh3;    /* of the bytes, 16 hex digits; NULL: left out */
    const char *problem; /* NULL: none */
};

/* One object, two-space indent, `indent` spaces before each line but the first, no newline at the
 * end: {"name", "dtype", "shape", "param_id", "nbytes", "data_offsets", "numpy"}, and "xxh3"
 * and "problem" where there is one. */
void bpk_sidecar_object(struct bpk_outbuf *out, const struct bpk_sidecar *sidecar, unsigned indent);

/* The same of a tensor in a pack. `xxh3` may be NULL. */
void bpk_sidecar_of_tensor(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index,
                           const char *xxh3, unsigned indent);

/* A tensor's sidecar file: the object and a newline. */
void bpk_sidecar_file(struct bpk_outbuf *out, const struct bpk_pack *pack, uint32_t index);

#endif
