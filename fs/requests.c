#include "requests.h"

#include "nodes.h"

#include <stdlib.h>
#include <sys/mman.h>

/* The kernel cuts it to what it can hold. */
static const double forever = 1e9;

struct bpk_mount *bpk_mount_of(fuse_req_t req) {
    return fuse_req_userdata(req);
}

void bpk_reply_error(fuse_req_t req, int r) {
    (void)fuse_reply_err(req, -r);
}

/* Attributes only, and with no lock held: anything more can deadlock inside a request. */
void bpk_tell_changed(struct bpk_mount *mount) {
    uint64_t *numbers;
    if (!mount->edits)
        return;
    size_t count = bpk_edits_take_stale(mount->edits, &numbers);
    for (size_t i = 0; i < count; i++)
        (void)fuse_lowlevel_notify_inval_inode(mount->session, numbers[i], -1, 0);
    free(numbers);
}

void bpk_reply_changed(fuse_req_t req, int r) {
    bpk_tell_changed(bpk_mount_of(req));
    bpk_reply_error(req, r);
}

bool bpk_find_node(fuse_req_t req, fuse_ino_t ino, struct bpk_node *ret_node) {
    int r = bpk_node_from_number(bpk_mount_of(req), ino, ret_node);
    if (r < 0)
        bpk_reply_error(req, r);
    return r == 0;
}

double bpk_timeout_in(const struct bpk_node *folder) {
    return folder->kind == BPK_NODE_ROOT || folder->kind == BPK_NODE_TENSORS ? forever : 0;
}

double bpk_timeout_of(const struct bpk_mount *mount, const struct bpk_node *node) {
    switch (node->kind) {
    case BPK_NODE_TENSOR:
    case BPK_NODE_SIDECAR:
        return forever;
    case BPK_NODE_ROOT:
    case BPK_NODE_TENSORS:
    case BPK_NODE_METADATA_JSON:
    case BPK_NODE_SCALARS_JSON:
    case BPK_NODE_INDEX_TSV:
        /* Any edit may change these: cheaper to ask than to tell. */
        return mount->edits ? 0 : forever;
    default:
        return 0;
    }
}

int bpk_fill_entry(struct bpk_mount *mount, const struct bpk_node *folder,
                   const struct bpk_node *node, struct fuse_entry_param *ret_entry) {
    *ret_entry = (struct fuse_entry_param){
        .ino = bpk_node_number(node),
        .attr_timeout = bpk_timeout_of(mount, node),
        .entry_timeout = bpk_timeout_in(folder),
    };
    return bpk_node_stat(mount, node, &ret_entry->attr);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

static void make_buffer_key(void) {
    (void)pthread_key_create(&buffer_key, free);
}

void *bpk_thread_buffer(size_t size) {
    enum { BUFFER_SIZE = 2 << 20 };
    if (size > BUFFER_SIZE)
        return NULL;
    (void)pthread_once(&buffer_once, make_buffer_key);
    void *buffer = pthread_getspecific(buffer_key);
    if (!buffer) {
        buffer = aligned_alloc(BUFFER_SIZE, BUFFER_SIZE);
        if (buffer && pthread_setspecific(buffer_key, buffer) != 0) {
            free(buffer);
            buffer = NULL;
        }
        if (buffer)
            (void)madvise(buffer, BUFFER_SIZE, MADV_HUGEPAGE);
    }
    return buffer;
}
