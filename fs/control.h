/* Committing and discarding: by .bpkfs/control and at the end of the mount. */
#ifndef BPKFS_CONTROL_H
#define BPKFS_CONTROL_H

#include "requests.h"

/* Runs what was written to .bpkfs/control, and answers the write: "commit" and "commit --valid",
 * each with "--unmount" before the end of the mount, "discard", or "save [--valid] PATH", which
 * writes what a commit would write to a new file. After PATH, one newline at most is taken off. */
void bpk_control_write(fuse_req_t req, const char *text, size_t size);

/* Why the last of them failed, or what it mended and dropped in the pack beside the edits, one line
 * each; mostly nothing. What .bpkfs/control reads as. */
void bpk_control_outcome(struct bpk_mount *mount, struct bpk_outbuf *out);

/* The files of these maps (BPK_MAP_*), and why they are there though the user removed them. */
typedef void bpk_put_back_fn(void *context, const char *file, const char *sentence);
void bpk_control_each_put_back(unsigned maps, bpk_put_back_fn *take, void *context);

/* Keeps how a command ended: `sentence` says why if `r` is not 0. Takes `remarks`. */
void bpk_control_note(struct bpk_mount *mount, int r, const char *sentence,
                      struct bpk_outbuf *remarks);

/* Commits what is valid, if nothing is open for writing, as the timer does. */
void bpk_control_commit_idle(struct bpk_mount *mount);

/* The last commit, when nothing is mounted any more. Returns the daemon's exit status. */
int bpk_control_finish(struct bpk_mount *mount);

#endif
