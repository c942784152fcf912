/* Filling in a struct bpk_diag: what went wrong, where, in one sentence.
 * The sentence is printable: names go through bpk_text_escape before they get here. */
#ifndef BPK_PACK_DIAG_H
#define BPK_PACK_DIAG_H

#include "bpk.h"

/* Returns `code`, a negative errno, so that a caller can `return bpk_diag_set(…)`.
 * `diag` may be NULL; `offset` is a byte of the file or BPK_NO_OFFSET. */
int bpk_diag_set(struct bpk_diag *diag, int code, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
