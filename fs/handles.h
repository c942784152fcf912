/* Open handles of files and folders. A mount knows all of its own: when it ends while something is
 * being closed, the kernel does not send every release. */
#ifndef BPKFS_HANDLES_H
#define BPKFS_HANDLES_H

#include "mount.h"

/* The first member of every handle. */
struct bpk_handle {
    struct bpk_handle *prev;
    struct bpk_handle *next;
    void (*clear)(struct bpk_handle *handle); /* frees what it holds, not itself; may be NULL */
};

/* A zeroed handle of `size` bytes. NULL: out of memory. */
void *bpk_handle_new(struct bpk_mount *mount, size_t size,
                     void (*clear)(struct bpk_handle *handle));
void bpk_handle_free(struct bpk_mount *mount, struct bpk_handle *handle); /* NULL is fine */

/* Frees those that are left, when no request comes any more. */
void bpk_handles_close(struct bpk_mount *mount);

#endif
