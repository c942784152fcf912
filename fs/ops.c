/* FUSE requests: each is decoded, handed to inode.c or nodes.c, and answered exactly once.
 *
 * The mount is read-only, and the kernel knows it (MS_RDONLY): whatever would change something is
 * answered EROFS without reaching us. Kernel caches: entries and attributes never time out in the
 * root and in tensors/, where listings are large; elsewhere they are asked for again. Names that
 * do not exist are never cached.
 */
#include "ops.h"

#include "nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

/* The kernel cuts it to what it can hold. */
static const double forever = 1e9;

static struct bpk_mount *mount_of(fuse_req_t req) {
    return fuse_req_userdata(req);
}

static void reply_error(fuse_req_t req, int r) {
    (void)fuse_reply_err(req, -r);
}

/* Finds the node of an inode number; on failure the request is answered. */
static bool find_node(fuse_req_t req, fuse_ino_t ino, struct bpk_node *ret_node) {
    int r = bpk_node_from_number(mount_of(req), ino, ret_node);
    if (r < 0)
        reply_error(req, r);
    return r == 0;
}

static double timeout_in(const struct bpk_node *folder) {
    return folder->kind == BPK_NODE_ROOT || folder->kind == BPK_NODE_TENSORS ? forever : 0;
}

/* How long a node's own attributes hold, wherever they are asked for. */
static double timeout_of(const struct bpk_node *node) {
    switch (node->kind) {
    case BPK_NODE_ROOT:
    case BPK_NODE_TENSORS:
    case BPK_NODE_TENSOR:
    case BPK_NODE_SIDECAR:
    case BPK_NODE_METADATA_JSON:
    case BPK_NODE_SCALARS_JSON:
    case BPK_NODE_INDEX_TSV:
        return forever;
    default:
        return 0;
    }
}

static void op_init(void *userdata, struct fuse_conn_info *conn) {
    (void)userdata;
    /* A copy through our buffer is faster here than a splice (half the time, measured). */
    conn->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static int fill_entry(struct bpk_mount *mount, const struct bpk_node *folder,
                      const struct bpk_node *node, struct fuse_entry_param *ret_entry) {
    *ret_entry = (struct fuse_entry_param){
        .ino = bpk_node_number(node),
        .attr_timeout = timeout_of(node),
        .entry_timeout = timeout_in(folder),
    };
    return bpk_node_stat(mount, node, &ret_entry->attr);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    struct bpk_node folder;
    struct bpk_node node;
    struct fuse_entry_param entry;
    if (!find_node(req, parent, &folder))
        return;
    int r = bpk_node_lookup(mount_of(req), &folder, name, &node);
    if (r == 0)
        r = fill_entry(mount_of(req), &folder, &node, &entry);
    if (r < 0)
        reply_error(req, r);
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
    (void)fi;
    struct bpk_node node;
    struct stat attr;
    if (!find_node(req, ino, &node))
        return;
    int r = bpk_node_stat(mount_of(req), &node, &attr);
    if (r < 0)
        reply_error(req, r);
    else
        (void)fuse_reply_attr(req, &attr, timeout_of(&node));
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino) {
    struct bpk_node node;
    if (!find_node(req, ino, &node))
        return;
    _cleanup_outbuf_ struct bpk_outbuf target = {0};
    int r = bpk_node_is_link(&node) ? bpk_node_target(mount_of(req), &node, &target) : -EINVAL;
    bpk_out(&target, "", 1);
    if (r < 0 || target.failed)
        reply_error(req, r < 0 ? r : -ENOMEM);
    else
        (void)fuse_reply_readlink(req, target.text);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The handle of an open text is its text, as it was at the open. A tensor has none. */
static struct bpk_outbuf *handle_of(const struct fuse_file_info *fi) {
    return (struct bpk_outbuf *)(uintptr_t)fi->fh;
}

static int open_text(struct bpk_mount *mount, const struct bpk_node *node,
                     struct fuse_file_info *fi) {
    struct bpk_outbuf *text = malloc(sizeof(*text));
    int r = text ? bpk_node_text(mount, node, text) : -ENOMEM;
    if (r < 0) {
        free(text);
        return r;
    }
    fi->fh = (uint64_t)(uintptr_t)text;
    return 0;
}

static void close_text(struct fuse_file_info *fi) {
    struct bpk_outbuf *text = handle_of(fi);
    if (!text)
        return;
    bpk_outbuf_clear(text);
    free(text);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct bpk_node node;
    int r = 0;
    if (!find_node(req, ino, &node))
        return;
    if ((fi->flags & O_ACCMODE) != O_RDONLY)
        r = -EROFS;
    else if (bpk_node_is_text(&node))
        r = open_text(mount_of(req), &node, fi);
    else
        fi->keep_cache = 1;
    if (r < 0)
        reply_error(req, r);
    else if (fuse_reply_open(req, fi) < 0)
        close_text(fi); /* the open was interrupted: no release will come */
}

/* A buffer of this thread's own that holds the largest read the kernel asks for, on huge pages
 * where there are some. It lives as long as the thread. */
static void *thread_buffer(size_t size) {
    enum { BUFFER_SIZE = 2 << 20 };
    static _Thread_local void *buffer;
    if (size > BUFFER_SIZE)
        return NULL;
    if (!buffer) {
        void *fresh = aligned_alloc(BUFFER_SIZE, BUFFER_SIZE);
        if (fresh)
            (void)madvise(fresh, BUFFER_SIZE, MADV_HUGEPAGE);
        buffer = fresh;
    }
    return buffer;
}

static void read_tensor(fuse_req_t req, const struct bpk_node *node, size_t size, off_t offset) {
    void *buffer = thread_buffer(size);
    size_t n = 0;
    int r =
        buffer ? bpk_node_read(mount_of(req), node, (uint64_t)offset, buffer, size, &n) : -ENOMEM;
    if (r < 0)
        reply_error(req, r);
    else
        (void)fuse_reply_buf(req, buffer, n);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi) {
    struct bpk_node node;
    if (!find_node(req, ino, &node))
        return;
    const struct bpk_outbuf *text = handle_of(fi);
    if (!text) {
        read_tensor(req, &node, size, offset);
        return;
    }
    size_t start = (uint64_t)offset < text->len ? (size_t)offset : text->len;
    size_t left = text->len - start;
    (void)fuse_reply_buf(req, text->text + start, left < size ? left : size);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    close_text(fi);
    reply_error(req, 0);
}

/* Answered, never ENOSYS: the kernel would take that for success for ever. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    (void)fi;
    reply_error(req, 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi) {
    (void)ino;
    (void)datasync;
    (void)fi;
    reply_error(req, 0);
}

/* ---- folders --------------------------------------------------------------------------------- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct bpk_node node;
    if (!find_node(req, ino, &node))
        return;
    if (!bpk_node_is_folder(&node)) {
        reply_error(req, -ENOTDIR);
        return;
    }
    /* The kernel keeps the listing where it keeps the entries. */
    fi->cache_readdir = timeout_in(&node) > 0;
    fi->keep_cache = fi->cache_readdir;
    (void)fuse_reply_open(req, fi);
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
    if (fill_entry(mount_of(req), folder, node, &entry) < 0)
        entry.ino = 0; /* the name alone: the kernel looks it up if it wants more */
    if (name[0] == '.' && (name[1] == '\0' || strcmp(name, "..") == 0))
        entry.ino = 0;
    return fuse_add_direntry_plus(req, out, left, name, &entry, (off_t)cursor);
}

static void list_folder(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus) {
    struct bpk_node folder;
    if (!find_node(req, ino, &folder))
        return;
    char *buffer = thread_buffer(size);
    if (!buffer) {
        reply_error(req, -ENOMEM);
        return;
    }
    uint64_t cursor = (uint64_t)offset;
    size_t used = 0;
    char name[BPK_FILE_NAME_BUF];
    struct bpk_node node;
    while (bpk_node_next(mount_of(req), &folder, &cursor, name, &node)) {
        size_t n = add_entry(req, &folder, &node, name, cursor, plus, buffer + used, size - used);
        if (n > size - used)
            break;
        used += n;
    }
    (void)fuse_reply_buf(req, buffer, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi) {
    (void)fi;
    list_folder(req, ino, size, offset, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                           struct fuse_file_info *fi) {
    (void)fi;
    list_folder(req, ino, size, offset, true);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    (void)fi;
    reply_error(req, 0);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* The figures of the filesystem that the pack lies on. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino) {
    (void)ino;
    struct statvfs figures;
    if (fstatvfs(bpk_pack_fd(mount_of(req)->pack), &figures) < 0) {
        reply_error(req, -errno);
        return;
    }
    figures.f_namemax = 255;
    (void)fuse_reply_statfs(req, &figures);
}

/* Without -o xattr the answer is ENOSYS, so that the kernel never asks again: it would before
 * every write. */
static void reply_xattr(fuse_req_t req, int r, const struct bpk_outbuf *value, size_t size) {
    if (r < 0)
        reply_error(req, r);
    else if (size == 0)
        (void)fuse_reply_xattr(req, value->len);
    else if (size < value->len)
        reply_error(req, -ERANGE);
    else
        (void)fuse_reply_buf(req, value->text, value->len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
    struct bpk_node node;
    if (!find_node(req, ino, &node))
        return;
    _cleanup_outbuf_ struct bpk_outbuf value = {0};
    int r = mount_of(req)->xattr ? bpk_node_xattr(mount_of(req), &node, name, &value) : -ENOSYS;
    reply_xattr(req, r, &value, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
    struct bpk_node node;
    if (!find_node(req, ino, &node))
        return;
    _cleanup_outbuf_ struct bpk_outbuf names = {0};
    int r = mount_of(req)->xattr ? bpk_node_xattr_names(mount_of(req), &node, &names) : -ENOSYS;
    reply_xattr(req, r, &names, size);
}

const struct fuse_lowlevel_ops bpk_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .readlink = op_readlink,
    .open = op_open,
    .read = op_read,
    .release = op_release,
    .flush = op_flush,
    .fsync = op_fsync,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsync,
    .statfs = op_statfs,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
};
