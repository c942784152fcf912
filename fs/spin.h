/* How a request thread waits for its next request. */
#ifndef BPKFS_SPIN_H
#define BPKFS_SPIN_H

#include "options.h" /* the version of libfuse's interface */

#include <fuse_lowlevel.h>

/* Of a mounted session, before its loop: from now on a thread that has just served a small request
 * looks for the next one for a moment before it sleeps. One thread at most does so at a time, none
 * when nothing comes, or when looking was in vain of late. Nothing happens where libfuse lacks the
 * means (before 3.14), or on a machine with one processor. 0 or a negative errno. */
int bpk_spin_start(struct fuse_session *session);

#endif
