/* A process of its own for what the daemon cannot do any more once it is sandboxed: to bring in
 * the dirty pages of the mount, to unmount it, and to remove a mount point that was made.
 *
 * It can do these three things to the one mount point that it was started for, and no other. It
 * has none of the daemon's files open, is in a session of its own, so that a signal to the
 * daemon's group does not reach it, prints nothing, and ends when the daemon is gone: whatever is
 * mounted then stays as it is. */
#ifndef BPKFS_HELPER_H
#define BPKFS_HELPER_H

#include <pthread.h>
#include <sys/types.h>

struct bpk_helper {
    pthread_mutex_t lock; /* one request at a time */
    int fd;               /* -1: not started, or stopped; guarded by `lock` */
    pid_t pid;
};

#define BPK_HELPER_NONE                                                                            \
    { PTHREAD_MUTEX_INITIALIZER, -1, 0 }

/* Starts it, as a child that leaves no zombie. Call before any thread is started. `argv` is the
 * process's own, which ps shows: overwritten in the helper. 0 or a negative errno. */
int bpk_helper_start(struct bpk_helper *helper, const char *mountpoint, char **argv);

/* Each 0 or a negative errno; -EPIPE: there is no helper (any more). */
int bpk_helper_sync(struct bpk_helper *helper);    /* writes of shared maps reach the daemon */
int bpk_helper_unmount(struct bpk_helper *helper); /* lazily: for good at the last close */
int bpk_helper_remove(struct bpk_helper *helper);  /* the empty mount point */

/* Ends it and waits for its end. */
void bpk_helper_stop(struct bpk_helper *helper);

#endif
