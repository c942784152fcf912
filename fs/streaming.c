#include "streaming.h"

enum {
    WINDOW = 16 << 20,
    SLACK = 4 << 20, /* the kernel's read-ahead comes in any order, from several threads */
};

void bpk_stream_init(struct bpk_stream *stream) {
    (void)pthread_mutex_init(&stream->lock, NULL);
}

void bpk_stream_clear(struct bpk_stream *stream) {
    (void)pthread_mutex_destroy(&stream->lock);
}

/* The window that can go, if a whole one lies behind the reader. */
static bool pass(struct bpk_stream *stream, uint64_t offset, size_t size, uint64_t *ret_window) {
    bool is_sequential = offset + SLACK >= stream->next && offset <= stream->next + SLACK;
    if (!is_sequential) {
        stream->next = offset;
        stream->dropped = offset;
    }
    if (offset + size > stream->next)
        stream->next = offset + size;
    if (stream->next < stream->dropped + WINDOW + SLACK)
        return false;
    *ret_window = stream->dropped;
    stream->dropped += WINDOW;
    return true;
}

bool bpk_stream_read(struct bpk_stream *stream, const struct bpk_node *node, uint64_t offset,
                     size_t size, uint64_t *ret_window) {
    if (node->kind != BPK_NODE_TENSOR)
        return false;
    pthread_mutex_lock(&stream->lock);
    bool goes = pass(stream, offset, size, ret_window);
    pthread_mutex_unlock(&stream->lock);
    return goes;
}

void bpk_stream_drop(struct bpk_mount *mount, const struct bpk_node *node, uint64_t window) {
    if (mount->edits) {
        char name[BPK_FILE_NAME_BUF + 8];
        struct bpk_place place = bpk_node_place(mount, node, name);
        bpk_edits_drop_cache(mount->edits, &place, window, WINDOW);
    } else {
        bpk_pack_drop_cache(mount->pack, node->index, window, WINDOW);
    }
}
