/* Has the kernel forget what a discard dropped, or what became of a tensor through its view: names,
 * which lead to other files now or to none, and the pages and attributes of files.
 *
 * The request is answered when that is done, so that whoever waited for it sees the pack as it is
 * and writes to files that count. It is done in a thread of its own: the kernel may want
 * an answer to another request first, and this may be the only thread that serves them (-s).
 */
#ifndef BPKFS_FORGETTING_H
#define BPKFS_FORGETTING_H

#include "requests.h"

struct bpk_forgetting;

/* NULL: out of memory. */
struct bpk_forgetting *bpk_forgetting_new(struct bpk_mount *mount);

/* A name to forget; a bpk_dropped_fn. */
void bpk_forgetting_add(void *forgetting, uint64_t folder_number, const char *name);

/* Forgets, then answers with `r`; takes `forgetting`, which may be NULL. */
void bpk_forgetting_finish(struct bpk_forgetting *forgetting, fuse_req_t req, int r);

/* The same; 0 answers a write of `size` bytes. */
void bpk_forgetting_finish_write(struct bpk_forgetting *forgetting, fuse_req_t req, size_t size,
                                 int r);

#endif
