/* Writes a placed plan into a file, and checks what was written. */
#ifndef BPK_PACK_WRITER_H
#define BPK_PACK_WRITER_H

#include "pack/copy.h"
#include "pack/plan.h"

struct bpk_written {
    uint64_t copied; /* bytes that went through memory */
    uint64_t cloned; /* bytes whose blocks are shared with the source */
    bool published;  /* of a replacement: the new file is where it belongs, even if it failed */
};

/* Writes the whole pack into the empty file `fd`. `progress` (may be NULL) is told of bytes of it.
 * `can_clone` as it was for bpk_plan_place. Nothing is synced. 0 or -errno with `diag`: -ESTALE if
 * a source was cut meanwhile. */
int bpk_writer_write(const struct bpk_plan *plan, int fd, bool can_clone,
                     const struct bpk_progress *progress, struct bpk_written *ret_written,
                     struct bpk_diag *diag);

/* Reads header and CBOR back through the reader and compares all with the plan: names, ranges,
 * counts, length; and the bytes of edited tensors with where they came from (unless by_length).
 * -EBADMSG with `diag` on any difference. */
int bpk_writer_verify(const struct bpk_plan *plan, const char *path, struct bpk_diag *diag);

#endif
