#include "file_ops.h"

#include "control.h"
#include "handles.h"
#include "nodes.h"
#include "requests.h"
#include "seen.h"
#include "snapshots.h"
#include "streaming.h"
#include "view_writes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* An open file. */
struct open_file {
    struct bpk_handle handle; /* first */
    bool is_text;
    bool for_writing;
    bool is_counted;   /* among the edits' open files, by the number of the request */
    atomic_bool wrote; /* since the last flush */
    struct bpk_mount *mount;
    struct bpk_snapshot *snapshot;   /* of a text: what it said at the open; NULL for others */
    _Atomic(struct bpk_view *) view; /* of a file in views/ */
    struct bpk_stream stream;
};

static struct open_file *handle_of(const struct fuse_file_info *fi) {
    return (struct open_file *)(uintptr_t)fi->fh;
}

static void clear_file(struct bpk_handle *handle) {
    struct open_file *file = (struct open_file *)handle;
    bpk_snapshot_drop(file->mount, file->snapshot);
    bpk_view_close(file->view);
    bpk_stream_clear(&file->stream);
}

static struct open_file *new_handle(struct bpk_mount *mount) {
    struct open_file *handle = bpk_handle_new(mount, sizeof(struct open_file), clear_file);
    if (handle) {
        handle->mount = mount;
        bpk_stream_init(&handle->stream);
    }
    return handle;
}

static void free_handle(struct bpk_mount *mount, struct open_file *handle) {
    bpk_handle_free(mount, handle ? &handle->handle : NULL);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int open_edited(struct bpk_mount *mount, const struct bpk_node *node, int flags,
                       struct open_file *handle) {
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, node, name);
    struct bpk_file_stat attr;
    int r = bpk_edits_stat(mount->edits, &place, &attr);
    if (r == 0 && (flags & O_TRUNC) && handle->for_writing) {
        r = bpk_edits_truncate(mount->edits, &place, 0);
        handle->wrote = true;
    }
    handle->is_text = bpk_edits_is_text(mount->edits, &place);
    if (r == 0 && handle->is_text)
        r = bpk_snapshot_take(mount, node, &handle->snapshot);
    if (r == 0) {
        bpk_edits_opened(mount->edits, &place, handle->for_writing);
        handle->is_counted = true;
    }
    return r;
}

/* A view that is cut to nothing becomes the file that an array comes into. */
static int open_writable_view(struct bpk_mount *mount, const struct bpk_node *node, int flags,
                              struct open_file *handle) {
    char name[BPK_FILE_NAME_BUF];
    struct bpk_place place = {BPK_IN_NPY, name, bpk_node_number(node)};
    int r = bpk_view_npy_name(mount, node, name);
    if (r < 0)
        return r;
    bpk_edits_opened(mount->edits, &place, true);
    handle->is_counted = true;
    struct bpk_view *view = NULL;
    r = flags & O_TRUNC ? bpk_view_truncate(mount, node, 0) : bpk_view_open(mount, node, &view);
    handle->view = view;
    if (r < 0) {
        bpk_edits_released(mount->edits, place.number, true);
        handle->is_counted = false;
    }
    return r;
}

/* The view that a handle is of now: it may have been opened as an array that became one. */
static int view_of(struct open_file *handle, const struct bpk_node *node,
                   struct bpk_view **ret_view) {
    struct bpk_view *none = NULL;
    struct bpk_view *view = handle->view;
    int r = view ? 0 : bpk_view_open(handle->mount, node, &view);
    if (r < 0)
        return r;
    if (view != handle->view && !atomic_compare_exchange_strong(&handle->view, &none, view)) {
        bpk_view_close(view);
        view = none;
    }
    *ret_view = view;
    return 0;
}

bool bpk_is_open_view(const struct fuse_file_info *fi, uint64_t *ret_size) {
    struct open_file *handle = handle_of(fi);
    const struct bpk_view *view = handle ? handle->view : NULL;
    if (view)
        *ret_size = bpk_view_size(view);
    return view != NULL;
}

/* A view in views/npy/ and the array that comes into its place have one number, and the node may be
 * the other by the time that it is used: whether it is such a number, and what it leads to now. */
enum { AGAIN = 5 };

static bool is_of_views(struct bpk_mount *mount, struct bpk_node *node) {
    uint64_t number = bpk_node_number(node);
    return bpk_view_is_number(number) && bpk_node_from_number(mount, number, node) == 0;
}

static int open_node(struct bpk_mount *mount, const struct bpk_node *node, int flags,
                     struct open_file *handle) {
    handle->for_writing = (flags & O_ACCMODE) != O_RDONLY;
    if (bpk_node_is_folder(node))
        return -EISDIR;
    if (mount->edits && bpk_node_is_editable(node))
        return open_edited(mount, node, flags, handle);
    if (handle->for_writing && !mount->edits)
        return -EROFS;
    if (node->kind == BPK_NODE_COMMAND)
        return bpk_snapshot_take(mount, node, &handle->snapshot);
    if (handle->for_writing && bpk_view_is_writable(mount, node))
        return open_writable_view(mount, node, flags, handle);
    if (handle->for_writing)
        return -EACCES;
    if (bpk_view_is_file(node)) {
        struct bpk_view *view;
        return view_of(handle, node, &view);
    }
    if (!bpk_node_is_text(node))
        return 0;
    handle->is_text = true;
    return bpk_snapshot_take(mount, node, &handle->snapshot);
}

/* Whether the pages that the kernel has of the file are still what it holds. */
static bool keeps_cache(const struct open_file *handle, const struct bpk_node *node) {
    if (handle->view)
        return bpk_view_keeps_cache(handle->view);
    return !handle->is_text && node->kind != BPK_NODE_COMMAND &&
           !bpk_seen_take_change(handle->mount, bpk_node_number(node));
}

/* The kernel would cut what a handle reads to the size that the file has by now: of what was
 * composed when it was opened, and may be longer or shorter the next time. The control file has no
 * size at all. */
static bool is_direct(const struct bpk_mount *mount, const struct bpk_node *node) {
    switch (node->kind) {
    case BPK_NODE_COMMAND:
    case BPK_NODE_STATUS_JSON:
        return true;
    case BPK_NODE_INDEX_TSV:
    case BPK_NODE_STATS:
        return mount->edits != NULL;
    default:
        return false;
    }
}

void bpk_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    if (!bpk_find_node(req, ino, &node))
        return;
    struct open_file *handle = new_handle(mount);
    int r = handle ? open_node(mount, &node, fi->flags, handle) : -ENOMEM;
    for (int i = 0; i < AGAIN && r == -ESTALE && is_of_views(mount, &node); i++)
        r = open_node(mount, &node, fi->flags, handle);
    if (r < 0) {
        free_handle(mount, handle);
        bpk_reply_error(req, r);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)handle;
    fi->keep_cache = keeps_cache(handle, &node);
    fi->direct_io = is_direct(mount, &node);
    bpk_tell_changed(mount);
    if (fuse_reply_open(req, fi) < 0) { /* interrupted: no release will come */
        if (handle->is_counted)
            bpk_edits_released(mount->edits, ino, handle->for_writing);
        free_handle(mount, handle);
    }
}

static int create_and_open(struct bpk_mount *mount, const struct bpk_node *folder,
                           enum bpk_folder edit_folder, const char *name, mode_t mode, int flags,
                           struct open_file *handle, struct bpk_node *ret_node) {
    uint64_t number;
    bool is_view =
        folder->kind == BPK_NODE_NPY_FOLDER && bpk_node_lookup(mount, folder, name, ret_node) == 0;
    int r = is_view ? -EEXIST : bpk_edits_create(mount->edits, edit_folder, name, mode, &number);
    /* The name came back after the kernel had found it missing: a commit puts back what was moved
     * aside. */
    if (r == -EEXIST && !(flags & O_EXCL)) {
        r = bpk_node_lookup(mount, folder, name, ret_node);
        return r < 0 ? r : open_node(mount, ret_node, flags, handle);
    }
    if (r == 0)
        r = bpk_node_from_number(mount, number, ret_node);
    if (r == 0)
        r = open_edited(mount, ret_node, 0, handle);
    if (r < 0)
        return r;
    bpk_edits_released(mount->edits, number, false);
    handle->for_writing = (flags & O_ACCMODE) != O_RDONLY;
    struct bpk_place place = {.number = number};
    bpk_edits_opened(mount->edits, &place, handle->for_writing);
    return 0;
}

void bpk_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                   struct fuse_file_info *fi) {
    struct bpk_node folder;
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    struct fuse_entry_param entry;
    enum bpk_folder edit_folder;
    if (!bpk_find_node(req, parent, &folder))
        return;
    struct open_file *handle = new_handle(mount);
    int r = handle ? 0 : -ENOMEM;
    if (r == 0 && !mount->edits)
        r = -EROFS;
    if (r == 0 && !bpk_node_edit_folder(&folder, &edit_folder))
        r = -EPERM;
    if (r == 0)
        r = create_and_open(mount, &folder, edit_folder, name, mode, fi->flags, handle, &node);
    if (r == 0)
        r = bpk_fill_entry(mount, &folder, &node, &entry);
    if (r < 0) {
        free_handle(mount, handle);
        bpk_reply_error(req, r);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)handle;
    fi->keep_cache = !handle->is_text;
    bpk_tell_changed(mount);
    if (fuse_reply_create(req, &entry, fi) < 0) {
        bpk_edits_released(mount->edits, bpk_node_number(&node), handle->for_writing);
        free_handle(mount, handle);
    }
}

/* ---- read and write -------------------------------------------------------------------------- */

static void read_snapshot(fuse_req_t req, const struct bpk_outbuf *text, size_t size,
                          off_t offset) {
    size_t start = (uint64_t)offset < text->len ? (size_t)offset : text->len;
    size_t left = text->len - start;
    /* From a buffer of our own: once the reply is out, a release may free the snapshot. */
    char *buffer = bpk_thread_buffer(size);
    if (!buffer) {
        bpk_reply_error(req, -ENOMEM);
        return;
    }
    if (left > size)
        left = size;
    if (left > 0)
        memcpy(buffer, text->text + start, left);
    (void)fuse_reply_buf(req, buffer, left);
}

/* A text without bytes of its own. If it had some when it was opened, what it says is composed only
 * now. */
static void read_composed(fuse_req_t req, const struct bpk_node *node,
                          const struct open_file *handle, size_t size, off_t offset) {
    struct bpk_mount *mount = handle->mount; /* the handle may be gone once the reply is out */
    struct bpk_snapshot *fresh;
    if (handle->snapshot && handle->snapshot->text.len > 0) {
        read_snapshot(req, &handle->snapshot->text, size, offset);
        return;
    }
    int r = bpk_snapshot_take(mount, node, &fresh);
    if (r < 0) {
        bpk_reply_error(req, r);
        return;
    }
    read_snapshot(req, &fresh->text, size, offset);
    bpk_snapshot_drop(mount, fresh);
}

/* -ENODATA: a text that has no bytes of its own, or a file that is gone. */
static int read_node(struct bpk_mount *mount, const struct bpk_node *node, struct open_file *handle,
                     void *buffer, size_t size, off_t offset, size_t *ret_read) {
    int r = 0;
    if (bpk_view_is_file(node)) {
        struct bpk_view *view;
        r = view_of(handle, node, &view);
        if (r == 0)
            r = bpk_view_read(view, (uint64_t)offset, buffer, size, ret_read);
        bpk_node_note_change(mount, r);
    } else if (mount->edits && bpk_node_is_editable(node)) {
        char name[BPK_FILE_NAME_BUF + 8];
        struct bpk_place place = bpk_node_place(mount, node, name);
        r = bpk_edits_read(mount->edits, &place, (uint64_t)offset, buffer, size, ret_read);
        bpk_node_note_change(mount, r);
    } else if (node->kind == BPK_NODE_TENSOR) {
        r = bpk_node_read(mount, node, (uint64_t)offset, buffer, size, ret_read);
    }
    return r;
}

void bpk_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                 struct fuse_file_info *fi) {
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    struct open_file *handle = handle_of(fi);
    if (!bpk_find_node(req, ino, &node))
        return;
    if (handle->snapshot && !(mount->edits && bpk_node_is_editable(&node))) {
        read_snapshot(req, &handle->snapshot->text, size, offset);
        return;
    }
    void *buffer = bpk_thread_buffer(size);
    size_t n = 0;
    int r = buffer ? read_node(mount, &node, handle, buffer, size, offset, &n) : -ENOMEM;
    for (int i = 0; i < AGAIN && r == -ENODATA && is_of_views(mount, &node); i++)
        r = read_node(mount, &node, handle, buffer, size, offset, &n);
    if (r == -ENODATA) {
        read_composed(req, &node, handle, size, offset);
        return;
    }
    if (r < 0) {
        bpk_reply_error(req, r);
        return;
    }
    uint64_t window;
    bool goes = bpk_stream_read(&handle->stream, &node, (uint64_t)offset, n, &window);
    (void)fuse_reply_buf(req, buffer, n); /* the handle may be gone from now on */
    if (goes)
        bpk_stream_drop(mount, &node, window);
}

static int write_node(struct bpk_mount *mount, const struct bpk_node *node,
                      struct open_file *handle, const char *bytes, size_t size, off_t offset) {
    if (bpk_view_is_file(node)) {
        struct bpk_view *view;
        int r = view_of(handle, node, &view);
        return r < 0 ? r : bpk_view_write(view, (uint64_t)offset, bytes, size);
    }
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, node, name);
    return bpk_edits_write(mount->edits, &place, (uint64_t)offset, bytes, size);
}

void bpk_op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset,
                  struct fuse_file_info *fi) {
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    struct open_file *handle = handle_of(fi);
    if (!bpk_find_node(req, ino, &node))
        return;
    if (node.kind == BPK_NODE_COMMAND) {
        bpk_control_write(req, bytes, size);
        return;
    }
    int r = write_node(mount, &node, handle, bytes, size, offset);
    for (int i = 0; i < AGAIN && r == -ESTALE && is_of_views(mount, &node); i++)
        r = write_node(mount, &node, handle, bytes, size, offset);
    if (handle)
        handle->wrote = true;
    bpk_tell_changed(mount);
    if (r < 0)
        bpk_reply_error(req, r);
    else
        (void)fuse_reply_write(req, size);
}

/* ---- the end of writing ---------------------------------------------------------------------- */

void bpk_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    struct open_file *handle = handle_of(fi);
    if (handle) {
        const struct bpk_view *view = handle->view;
        uint64_t tensor = view ? bpk_view_node(view)->number : 0;
        /* A shared map writes after the last flush; nobody hears of a fault now. */
        if (mount->edits && handle->for_writing && bpk_node_from_number(mount, ino, &node) == 0 &&
            bpk_node_is_editable(&node)) {
            char name[BPK_FILE_NAME_BUF + 8];
            struct bpk_place place = bpk_node_place(mount, &node, name);
            (void)bpk_edits_flush(mount->edits, &place);
        }
        if (handle->is_counted)
            bpk_edits_released(mount->edits, ino, handle->for_writing);
        free_handle(mount, handle);
        if (mount->edits && tensor)
            bpk_edits_unused(mount->edits, tensor);
    }
    bpk_reply_changed(req, 0);
}

/* Never ENOSYS: the kernel would take that for success for ever. */
void bpk_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    struct open_file *handle = handle_of(fi);
    int r = 0;
    if (!bpk_find_node(req, ino, &node))
        return;
    if (mount->edits && handle && atomic_exchange(&handle->wrote, false) &&
        bpk_node_is_editable(&node)) {
        char name[BPK_FILE_NAME_BUF + 8];
        struct bpk_place place = bpk_node_place(mount, &node, name);
        r = bpk_edits_flush(mount->edits, &place);
    }
    bpk_reply_changed(req, r);
}

void bpk_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi) {
    (void)datasync;
    (void)fi;
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    int r = 0;
    if (!bpk_find_node(req, ino, &node))
        return;
    if (mount->edits && bpk_node_is_editable(&node)) {
        char name[BPK_FILE_NAME_BUF + 8];
        struct bpk_place place = bpk_node_place(mount, &node, name);
        r = bpk_edits_fsync(mount->edits, &place);
    } else if (bpk_view_is_writable(mount, &node)) {
        r = bpk_view_fsync(mount, &node);
    }
    bpk_reply_changed(req, r);
}

/* Only what makes a file longer: space is not set aside here. */
void bpk_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                      struct fuse_file_info *fi) {
    (void)fi;
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    if (!bpk_find_node(req, ino, &node))
        return;
    if (mode != 0 || !mount->edits || !bpk_node_is_editable(&node)) {
        bpk_reply_error(req, -EOPNOTSUPP);
        return;
    }
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, &node, name);
    struct bpk_file_stat attr;
    int r = bpk_edits_stat(mount->edits, &place, &attr);
    uint64_t end = (uint64_t)offset + (uint64_t)length;
    if (r == 0 && end > attr.size)
        r = bpk_edits_truncate(mount->edits, &place, end);
    bpk_reply_changed(req, r);
}
