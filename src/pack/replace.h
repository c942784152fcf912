/* Putting a planned pack in the place of an old one, in one step: temporary file, write, seal,
 * verify, publish. Nothing has changed unless it returns 0. */
#ifndef BPK_PACK_REPLACE_H
#define BPK_PACK_REPLACE_H

#include "pack/atomic_file.h"
#include "pack/remarks.h"
#include "pack/writer.h"

struct bpk_replace_options {
    /* If not 0: `path` is a bare name in this open folder. */
    int folder;
    bool new_file;     /* `path` is another file, which must not be there yet */
    int old_fd;        /* of a plan without base: if over 0, open on the file that it replaces */
    bool ignore_owner; /* an owner that cannot be given is left out */
    struct bpk_progress progress;
    struct bpk_remarks remarks; /* told when the new file is where it belongs */
    /* Called when the new file is whole and on the disk, before it takes the old one's place;
     * `fd` is open on it, and locked. A negative return stops everything and becomes the result.
     * May be NULL. */
    int (*before_publish)(void *context, int fd, struct bpk_diag *diag);
    void *context;
};

/* Writes `plan` (not placed yet) to `path` in the place of plan->base, whose file must be what is
 * there; a plan without base makes a new file, and refuses if there is one that is not to be
 * replaced. -ESTALE: somebody else changed the file. -ENOSPC, -EFBIG and others: `diag` says what.
 * `ret_written` is filled in either way. */
int bpk_replace(struct bpk_plan *plan, const char *path, const struct bpk_replace_options *options,
                struct bpk_written *ret_written, struct bpk_diag *diag);

#endif
