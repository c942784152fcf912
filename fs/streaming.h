/* Tensors that are read from begin to end: the kernel keeps their bytes as pages of the mount, so
 * that it need not keep them as pages of the pack too. Behind a sequential reader those are dropped
 * in windows; a random reader's stay, for it will find them faster there than on the disk. */
#ifndef BPKFS_STREAMING_H
#define BPKFS_STREAMING_H

#include "inode.h"

/* Where a handle's reading has come to. */
struct bpk_stream {
    pthread_mutex_t lock;
    uint64_t next;    /* where a sequential reader goes on */
    uint64_t dropped; /* up to here nothing is to be dropped any more */
};

void bpk_stream_init(struct bpk_stream *stream);
void bpk_stream_clear(struct bpk_stream *stream);

/* Bytes of a file were read: whether a window lies behind its reader that can go, and where. */
bool bpk_stream_read(struct bpk_stream *stream, const struct bpk_node *node, uint64_t offset,
                     size_t size, uint64_t *ret_window);

/* Drops it. That takes as long as dozens of reads: it is for after the reply. */
void bpk_stream_drop(struct bpk_mount *mount, const struct bpk_node *node, uint64_t window);

#endif
