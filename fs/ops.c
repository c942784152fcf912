/* FUSE requests on names, attributes and folders, and the table of all.
 *
 * Each request is decoded, handed to inode.c, nodes.c or the edits, and answered exactly once. A
 * read-only mount is known to the kernel as such (MS_RDONLY): whatever would change something is
 * answered EROFS without reaching us.
 *
 * Kernel caches: entries and attributes never time out in the root and in tensors/, where listings
 * are large; elsewhere they are asked for again. Names that do not exist are never cached. What
 * changes beside the request's own name is told to the kernel before the reply (requests.c).
 */
#include "ops.h"

#include "file_ops.h"
#include "handles.h"
#include "name_ops.h"
#include "nodes.h"
#include "pack/util.h"
#include "requests.h"
#include "tree_nodes.h"
#include "views.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* Out of memory, HASH_ADD adds nothing and leaves the element without a table (hh.tbl is NULL). */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

static void op_init(void *userdata, struct fuse_conn_info *conn) {
    const struct bpk_mount *mount = userdata;
    /* The kernel takes the least of this and what readahead.c has set. */
    if (mount->readahead > 0)
        conn->max_readahead = mount->readahead << 10;
    /* A copy through our buffer is faster here than a splice (half the time, measured). */
    conn->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    struct bpk_node folder;
    struct bpk_node node;
    struct fuse_entry_param entry;
    if (!bpk_find_node(req, parent, &folder))
        return;
    int r = bpk_node_lookup(bpk_mount_of(req), &folder, name, &node);
    if (r == 0)
        r = bpk_fill_entry(bpk_mount_of(req), &folder, &node, &entry);
    if (r < 0)
        bpk_reply_error(req, r);
    else
        (void)fuse_reply_entry(req, &entry);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count) {
    (void)ino;
    (void)count;
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets) {
    (void)count;
    (void)forgets;
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct bpk_node node;
    struct stat attr;
    uint64_t size;
    if (!bpk_find_node(req, ino, &node))
        return;
    int r = bpk_node_stat(bpk_mount_of(req), &node, &attr);
    if (r == -ESTALE && fi && bpk_view_is_file(&node) && bpk_is_open_view(fi, &size)) {
        bpk_node_stat_gone(bpk_mount_of(req), &node, size, &attr);
        r = 0;
    }
    if (r < 0)
        bpk_reply_error(req, r);
    else
        (void)fuse_reply_attr(req, &attr, bpk_timeout_of(bpk_mount_of(req), &node));
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino) {
    struct bpk_node node;
    if (!bpk_find_node(req, ino, &node))
        return;
    _cleanup_outbuf_ struct bpk_outbuf target = {0};
    int r = -EINVAL;
    if (bpk_node_is_link(&node))
        r = bpk_tree_node_target(bpk_mount_of(req), &node, &target);
    else if (bpk_mount_of(req)->edits)
        r = bpk_edits_readlink(bpk_mount_of(req)->edits, bpk_node_number(&node), &target);
    bpk_out(&target, "", 1);
    if (r < 0 || target.failed)
        bpk_reply_error(req, r < 0 ? r : -ENOMEM);
    else
        (void)fuse_reply_readlink(req, target.text);
}

/* ---- folders --------------------------------------------------------------------------------- */

/* A name that edits had touched when the listing began. */
struct edited_name {
    UT_hash_handle hh;
    bool is_there;
    char name[];
};

/* An open folder. What is touched while it is listed changes nothing of where it is listed: so
 * every name that is there all the time comes once. */
struct folder_handle {
    struct bpk_handle handle; /* first */
    struct bpk_node folder;
    struct edited_name **names;
    size_t count;
    size_t capacity;
    struct edited_name *by_name;
};

static struct folder_handle *folder_of(const struct fuse_file_info *fi) {
    return (struct folder_handle *)(uintptr_t)fi->fh;
}

static void clear_names(struct folder_handle *handle) {
    HASH_CLEAR(hh, handle->by_name);
    for (size_t i = 0; i < handle->count; i++)
        free(handle->names[i]);
    free(handle->names);
    handle->names = NULL;
    handle->count = 0;
    handle->capacity = 0;
}

static void clear_folder(struct bpk_handle *handle) {
    clear_names((struct folder_handle *)handle);
}

static struct edited_name *find_name(const struct folder_handle *handle, const char *name) {
    struct edited_name *found;
    HASH_FIND(hh, handle->by_name, name, strlen(name), found);
    return found;
}

/* Out of memory it is left out. */
static void add_name(void *context, enum bpk_folder edit_folder, const char *name, bool is_there) {
    struct folder_handle *handle = context;
    char view[BPK_FILE_NAME_BUF];
    if (edit_folder == BPK_IN_TENSORS && bpk_view_is_of_tensors(&handle->folder)) {
        if (!bpk_view_name(&handle->folder, name, view))
            return;
        name = view;
    }
    struct edited_name *edited = find_name(handle, name);
    if (edited) { /* a view, and an array that comes into its place */
        edited->is_there |= is_there;
        return;
    }
    size_t len = strlen(name);
    if (bpk_grow((void **)&handle->names, &handle->capacity, handle->count,
                 sizeof(handle->names[0])) < 0 ||
        !(edited = calloc(1, sizeof(*edited) + len + 1)))
        return;
    edited->is_there = is_there;
    memcpy(edited->name, name, len + 1);
    HASH_ADD(hh, handle->by_name, name, len, edited);
    if (edited->hh.tbl)
        handle->names[handle->count++] = edited;
    else
        free(edited);
}

/* The names in a folder that edits touched, as they are now. */
static void gather_names(struct bpk_mount *mount, const struct bpk_node *folder,
                         struct folder_handle *handle) {
    enum bpk_folder edit_folder;
    unsigned folders = bpk_node_edit_folder(folder, &edit_folder) ? 1U << edit_folder : 0;
    if (bpk_view_is_of_tensors(folder))
        folders |= 1U << BPK_IN_TENSORS;
    clear_names(handle);
    handle->folder = *folder;
    if (mount->edits)
        bpk_edits_each_name(mount->edits, folders, add_name, handle);
}

/* The next name of the pack's own that edits had not touched when the listing began. */
static bool next_unedited(struct bpk_mount *mount, const struct bpk_node *folder,
                          const struct folder_handle *handle, uint64_t *cursor,
                          char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node) {
    while (bpk_node_next(mount, folder, cursor, ret_name, ret_node)) {
        if (!mount->edits ||
            (!find_name(handle, ret_name) && bpk_node_now(mount, folder, ret_name, ret_node)))
            return true;
    }
    return false;
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct bpk_node node;
    if (!bpk_find_node(req, ino, &node))
        return;
    if (!bpk_node_is_folder(&node)) {
        bpk_reply_error(req, -ENOTDIR);
        return;
    }
    struct folder_handle *handle = bpk_handle_new(bpk_mount_of(req), sizeof(*handle), clear_folder);
    if (!handle) {
        bpk_reply_error(req, -ENOMEM);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)handle;
    /* The kernel keeps the listing where it keeps the entries. */
    fi->cache_readdir = bpk_timeout_in(&node) > 0 && !bpk_mount_of(req)->edits;
    fi->keep_cache = fi->cache_readdir;
    struct bpk_mount *mount = bpk_mount_of(req);
    if (fuse_reply_open(req, fi) < 0)
        bpk_handle_free(mount, &handle->handle);
}

/* Adds one entry to a listing; returns the bytes it takes, more than `left` if it did not fit. */
static size_t add_entry(fuse_req_t req, const struct bpk_node *folder, const struct bpk_node *node,
                        const char *name, uint64_t cursor, bool plus, char *out, size_t left) {
    if (!plus) {
        struct stat attr = {
            .st_ino = bpk_node_number(node),
            .st_mode = bpk_node_is_folder(node) ? S_IFDIR
                       : bpk_node_is_link(node) ? S_IFLNK
                                                : S_IFREG,
        };
        return fuse_add_direntry(req, out, left, name, &attr, (off_t)cursor);
    }
    struct fuse_entry_param entry;
    if (bpk_fill_entry(bpk_mount_of(req), folder, node, &entry) < 0)
        entry.ino = 0; /* the name alone: the kernel looks it up if it wants more */
    if (name[0] == '.' && (name[1] == '\0' || strcmp(name, "..") == 0))
        entry.ino = 0;
    return fuse_add_direntry_plus(req, out, left, name, &entry, (off_t)cursor);
}

/* Cursors of the names that edits touched lie above all others. */
static const uint64_t first_edited = UINT64_C(1) << 40;

static size_t list_edited(fuse_req_t req, const struct bpk_node *folder,
                          const struct folder_handle *handle, uint64_t cursor, bool plus,
                          char *buffer, size_t size) {
    size_t used = 0;
    for (uint64_t i = cursor - first_edited; i < handle->count; i++) {
        struct bpk_node node;
        const char *name = handle->names[i]->name;
        if (!handle->names[i]->is_there ||
            bpk_node_lookup(bpk_mount_of(req), folder, name, &node) < 0)
            continue;
        size_t n = add_entry(req, folder, &node, name, first_edited + i + 1, plus, buffer + used,
                             size - used);
        if (n > size - used)
            break;
        used += n;
    }
    return used;
}

static void list_folder(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                        struct folder_handle *handle, bool plus) {
    struct bpk_node folder;
    struct bpk_mount *mount = bpk_mount_of(req);
    if (!bpk_find_node(req, ino, &folder))
        return;
    char *buffer = bpk_thread_buffer(size);
    if (!buffer) {
        bpk_reply_error(req, -ENOMEM);
        return;
    }
    if (offset == 0)
        gather_names(mount, &folder, handle);
    uint64_t cursor = (uint64_t)offset;
    size_t used = 0;
    char name[BPK_FILE_NAME_BUF];
    struct bpk_node node;
    bool full = false;
    while (cursor < first_edited && !full &&
           next_unedited(mount, &folder, handle, &cursor, name, &node)) {
        size_t n = add_entry(req, &folder, &node, name, cursor, plus, buffer + used, size - used);
        full = n > size - used;
        used += full ? 0 : n;
    }
    if (!full)
        used += list_edited(req, &folder, handle, cursor < first_edited ? first_edited : cursor,
                            plus, buffer + used, size - used);
    (void)fuse_reply_buf(req, buffer, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi) {
    list_folder(req, ino, size, offset, folder_of(fi), false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                           struct fuse_file_info *fi) {
    list_folder(req, ino, size, offset, folder_of(fi), true);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    bpk_handle_free(bpk_mount_of(req), &folder_of(fi)->handle);
    bpk_reply_error(req, 0);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi) {
    (void)ino;
    (void)datasync;
    (void)fi;
    struct bpk_edits *edits = bpk_mount_of(req)->edits;
    bpk_reply_error(req, edits ? bpk_edits_fsync_folder(edits) : 0);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* The figures of the filesystem that the pack lies on. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino) {
    (void)ino;
    struct statvfs figures;
    const struct bpk_mount *mount = bpk_mount_of(req);
    struct bpk_pack *base = mount->edits ? bpk_edits_base(mount->edits) : bpk_pack_ref(mount->pack);
    int r = fstatvfs(bpk_pack_fd(base), &figures) < 0 ? -errno : 0;
    bpk_pack_unref(base);
    if (r < 0) {
        bpk_reply_error(req, r);
        return;
    }
    figures.f_namemax = 255;
    (void)fuse_reply_statfs(req, &figures);
}

/* Without -o xattr the answer is ENOSYS, so that the kernel never asks again: it would before
 * every write. */
static void reply_xattr(fuse_req_t req, int r, const struct bpk_outbuf *value, size_t size) {
    if (r < 0)
        bpk_reply_error(req, r);
    else if (size == 0)
        (void)fuse_reply_xattr(req, value->len);
    else if (size < value->len)
        bpk_reply_error(req, -ERANGE);
    else
        (void)fuse_reply_buf(req, value->text, value->len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
    struct bpk_node node;
    if (!bpk_find_node(req, ino, &node))
        return;
    _cleanup_outbuf_ struct bpk_outbuf value = {0};
    int r =
        bpk_mount_of(req)->xattr ? bpk_node_xattr(bpk_mount_of(req), &node, name, &value) : -ENOSYS;
    reply_xattr(req, r, &value, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
    struct bpk_node node;
    if (!bpk_find_node(req, ino, &node))
        return;
    _cleanup_outbuf_ struct bpk_outbuf names = {0};
    /* An empty list costs nothing, and keeps tar from complaining about every file. */
    int r = bpk_mount_of(req)->xattr ? bpk_node_xattr_names(bpk_mount_of(req), &node, &names) : 0;
    reply_xattr(req, r, &names, size);
}

const struct fuse_lowlevel_ops bpk_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = bpk_op_setattr,
    .readlink = op_readlink,
    .mknod = bpk_op_mknod,
    .mkdir = bpk_op_mkdir,
    .unlink = bpk_op_unlink,
    .rmdir = bpk_op_rmdir,
    .symlink = bpk_op_symlink,
    .rename = bpk_op_rename,
    .link = bpk_op_link,
    .open = bpk_op_open,
    .create = bpk_op_create,
    .read = bpk_op_read,
    .write = bpk_op_write,
    .release = bpk_op_release,
    .flush = bpk_op_flush,
    .fsync = bpk_op_fsync,
    .fallocate = bpk_op_fallocate,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
};
