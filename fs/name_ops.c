#include "name_ops.h"

#include "forgetting.h"
#include "nodes.h"
#include "pack/util.h"
#include "requests.h"
#include "seen.h"
#include "view_writes.h"

#include <errno.h>
#include <linux/fs.h>
#include <time.h>

/* The folder of a request that makes or removes names; on failure the request is answered. */
static bool find_folder(fuse_req_t req, fuse_ino_t parent, struct bpk_node *ret_node,
                        enum bpk_folder *ret_folder) {
    if (!bpk_find_node(req, parent, ret_node))
        return false;
    int r = 0;
    if (!bpk_mount_of(req)->edits)
        r = -EROFS;
    else if (!bpk_node_edit_folder(ret_node, ret_folder))
        r = -EPERM;
    if (r < 0)
        bpk_reply_error(req, r);
    return r == 0;
}

/* What the edits have under the name: a view stands for its tensor. -EPERM for what they do not
 * know. */
static int find_place(struct bpk_mount *mount, const struct bpk_node *node, enum bpk_folder folder,
                      const char *name, char buffer[BPK_FILE_NAME_BUF + 8],
                      struct bpk_place *ret_place) {
    if (bpk_view_is_writable(mount, node))
        return bpk_view_place(mount, node, buffer, ret_place);
    if (!bpk_node_is_editable(node))
        return -EPERM;
    *ret_place = (struct bpk_place){folder, name, bpk_node_number(node)};
    return 0;
}

/* What is done to a view is done to its tensor, whose name the kernel may know: it is to forget it.
 * NULL for others. */
static int prepare_forgetting(struct bpk_mount *mount, const struct bpk_node *node,
                              struct bpk_forgetting **ret_forgetting) {
    struct bpk_current current;
    *ret_forgetting = NULL;
    if (!bpk_view_is_writable(mount, node))
        return 0;
    int r = bpk_view_current(mount, node, &current);
    if (r < 0)
        return r;
    *ret_forgetting = bpk_forgetting_new(mount);
    if (*ret_forgetting)
        bpk_forgetting_add(*ret_forgetting, BPK_NODE_TENSORS, current.name);
    bpk_current_clear(&current);
    return *ret_forgetting ? 0 : -ENOMEM;
}

static void reply_forgetting(fuse_req_t req, struct bpk_forgetting *forgetting, int r) {
    if (forgetting)
        bpk_forgetting_finish(forgetting, req, r);
    else
        bpk_reply_changed(req, r);
}

static void reply_new(fuse_req_t req, const struct bpk_node *folder, uint64_t number, int r) {
    struct bpk_node node;
    struct fuse_entry_param entry;
    if (r == 0)
        r = bpk_node_from_number(bpk_mount_of(req), number, &node);
    if (r == 0)
        r = bpk_fill_entry(bpk_mount_of(req), folder, &node, &entry);
    bpk_tell_changed(bpk_mount_of(req));
    if (r < 0)
        bpk_reply_error(req, r);
    else
        (void)fuse_reply_entry(req, &entry);
}

void bpk_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device) {
    (void)device;
    struct bpk_node folder;
    enum bpk_folder edit_folder;
    uint64_t number = 0;
    if (!find_folder(req, parent, &folder, &edit_folder))
        return;
    int r = -EPERM;
    if (S_ISREG(mode) || (mode & S_IFMT) == 0)
        r = bpk_edits_create(bpk_mount_of(req)->edits, edit_folder, name, mode, &number);
    reply_new(req, &folder, number, r);
}

void bpk_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name) {
    struct bpk_node folder;
    enum bpk_folder edit_folder;
    uint64_t number = 0;
    if (!find_folder(req, parent, &folder, &edit_folder))
        return;
    int r = bpk_edits_symlink(bpk_mount_of(req)->edits, edit_folder, name, target, &number);
    reply_new(req, &folder, number, r);
}

/* A pack has no folders but its own. */
void bpk_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode) {
    (void)parent;
    (void)name;
    (void)mode;
    bpk_reply_error(req, bpk_mount_of(req)->edits ? -EPERM : -EROFS);
}

void bpk_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name) {
    (void)parent;
    (void)name;
    bpk_reply_error(req, bpk_mount_of(req)->edits ? -EPERM : -EROFS);
}

void bpk_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name) {
    (void)ino;
    (void)new_parent;
    (void)new_name;
    bpk_reply_error(req, bpk_mount_of(req)->edits ? -EPERM : -EROFS);
}

void bpk_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name) {
    struct bpk_node folder;
    struct bpk_node node;
    struct bpk_mount *mount = bpk_mount_of(req);
    enum bpk_folder edit_folder;
    if (!find_folder(req, parent, &folder, &edit_folder))
        return;
    char buffer[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place;
    struct bpk_forgetting *forgetting = NULL;
    int r = bpk_node_lookup(mount, &folder, name, &node);
    if (r == 0)
        r = find_place(mount, &node, edit_folder, name, buffer, &place);
    if (r == 0)
        r = prepare_forgetting(mount, &node, &forgetting);
    if (r == 0)
        r = bpk_edits_unlink(mount->edits, &place);
    reply_forgetting(req, forgetting, r);
}

void bpk_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                   const char *new_name, unsigned flags) {
    struct bpk_node folder;
    struct bpk_node new_folder;
    struct bpk_node node;
    struct bpk_node other;
    struct bpk_mount *mount = bpk_mount_of(req);
    enum bpk_folder from;
    enum bpk_folder to;
    if (!find_folder(req, parent, &folder, &from) ||
        !find_folder(req, new_parent, &new_folder, &to))
        return;
    char buffer[BPK_FILE_NAME_BUF + 8];
    char tensor[BPK_FILE_NAME_BUF];
    struct bpk_place place;
    struct bpk_forgetting *forgetting = NULL;
    int r = flags & ~(unsigned)RENAME_NOREPLACE ? -EINVAL : 0;
    if (r == 0)
        r = bpk_node_lookup(mount, &folder, name, &node);
    if (r == 0)
        r = find_place(mount, &node, from, name, buffer, &place);
    bool exists = bpk_node_lookup(mount, &new_folder, new_name, &other) == 0;
    if (r == 0 && exists && !bpk_node_is_editable(&other) && !bpk_view_is_writable(mount, &other))
        r = bpk_node_is_folder(&other) ? -EISDIR : -EPERM;
    if (r == 0 && bpk_view_is_writable(mount, &node)) { /* the tensor gets the other name */
        to = BPK_IN_TENSORS;
        new_name = new_folder.kind == BPK_NODE_NPY_FOLDER
                       ? bpk_view_tensor_name(&new_folder, new_name, tensor)
                       : NULL;
        r = new_name ? 0 : -EXDEV;
    } else if (r == 0 && exists && (flags & RENAME_NOREPLACE)) {
        r = -EEXIST;
    }
    if (r == 0)
        r = prepare_forgetting(mount, &node, &forgetting);
    if (r == 0 && forgetting)
        bpk_forgetting_add(forgetting, BPK_NODE_TENSORS, new_name);
    bool was_text = r == 0 && bpk_edits_is_text(mount->edits, &place);
    if (r == 0)
        r = bpk_edits_rename(mount->edits, &place, to, new_name, flags & RENAME_NOREPLACE);
    /* The kernel's pages are of the last time that it was opened: what it says changed since. */
    if (r == 0 && was_text)
        bpk_seen_changed_elsewhere(mount, bpk_node_number(&node));
    reply_forgetting(req, forgetting, r);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* To oneself, or as it is; root may give a file to anybody. */
static int check_owner(fuse_req_t req, const struct bpk_node *node, const struct stat *attr,
                       int to_set) {
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    struct stat now;
    int r = bpk_node_stat(bpk_mount_of(req), node, &now);
    if (r < 0 || caller->uid == 0)
        return r;
    bool other_owner =
        (to_set & FUSE_SET_ATTR_UID) && attr->st_uid != now.st_uid && attr->st_uid != caller->uid;
    bool other_group =
        (to_set & FUSE_SET_ATTR_GID) && attr->st_gid != now.st_gid && attr->st_gid != caller->gid;
    return other_owner || other_group ? -EPERM : 0;
}

/* `set`: what of owner, mode and times is asked for that counts. */
static int set_attr(struct bpk_mount *mount, const struct bpk_place *place, const struct stat *attr,
                    int to_set, unsigned set) {
    static const struct {
        int asked;
        unsigned set;
    } all[] = {
        {FUSE_SET_ATTR_MODE, BPK_SET_MODE},
        {FUSE_SET_ATTR_UID, BPK_SET_UID},
        {FUSE_SET_ATTR_GID, BPK_SET_GID},
        {FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW, BPK_SET_MTIME},
    };
    struct stat wanted = *attr;
    unsigned asked = 0;
    for (size_t i = 0; i < BPK_ARRAY_LEN(all); i++)
        asked |= to_set & all[i].asked ? all[i].set & set : 0;
    if (to_set & FUSE_SET_ATTR_MTIME_NOW)
        (void)clock_gettime(CLOCK_REALTIME, &wanted.st_mtim);
    return asked ? bpk_edits_set_attr(mount->edits, place, &wanted, asked) : 0;
}

static int change(fuse_req_t req, const struct bpk_node *node, const struct stat *attr,
                  int to_set) {
    struct bpk_mount *mount = bpk_mount_of(req);
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, node, name);
    int r = 0;
    if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        r = check_owner(req, node, attr, to_set);
    if (r == 0 && (to_set & FUSE_SET_ATTR_SIZE))
        r = bpk_edits_truncate(mount->edits, &place, (uint64_t)attr->st_size);
    return r < 0 ? r
                 : set_attr(mount, &place, attr, to_set,
                            BPK_SET_MODE | BPK_SET_UID | BPK_SET_GID | BPK_SET_MTIME);
}

/* Times go to the tensor's file; the mode of a view is nobody's. */
static int change_view(fuse_req_t req, const struct bpk_node *node, const struct stat *attr,
                       int to_set) {
    struct bpk_mount *mount = bpk_mount_of(req);
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place;
    int r = 0;
    if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        r = check_owner(req, node, attr, to_set);
    if (r == 0 && (to_set & FUSE_SET_ATTR_SIZE))
        return bpk_view_truncate(mount, node, (uint64_t)attr->st_size);
    if (r == 0 && (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)))
        r = bpk_view_place(mount, node, name, &place);
    else
        return r;
    return r < 0 ? r : set_attr(mount, &place, attr, to_set, BPK_SET_MTIME);
}

void bpk_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                    struct fuse_file_info *fi) {
    struct bpk_node node;
    struct stat now;
    struct bpk_mount *mount = bpk_mount_of(req);
    (void)fi;
    if (!bpk_find_node(req, ino, &node))
        return;
    int r = 0;
    if (!mount->edits)
        r = -EROFS;
    else if (bpk_node_is_editable(&node))
        r = change(req, &node, attr, to_set);
    else if (bpk_view_is_writable(mount, &node))
        r = change_view(req, &node, attr, to_set);
    else if (node.kind != BPK_NODE_COMMAND && (to_set & FUSE_SET_ATTR_SIZE))
        r = -EPERM;
    /* Times and modes of folders, and of what is computed, are nobody's. */
    if (r == 0) /* a view may be another node by now */
        r = bpk_node_from_number(mount, ino, &node);
    if (r == 0)
        r = bpk_node_stat(mount, &node, &now);
    bpk_tell_changed(mount);
    if (r < 0)
        bpk_reply_error(req, r);
    else
        (void)fuse_reply_attr(req, &now, bpk_timeout_of(mount, &node));
}
