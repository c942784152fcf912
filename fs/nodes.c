#include "nodes.h"

#include "log.h"
#include "status.h"
#include "tree_nodes.h"
#include "view/index.h"
#include "view/json.h"
#include "view/json_read.h"
#include "view/maps.h"
#include "view/sidecar.h"
#include "view_files.h"

#include <errno.h>
#include <string.h>

/* ---- texts ----------------------------------------------------------------------------------- */

bool bpk_node_is_text(const struct bpk_node *node) {
    return !bpk_node_is_folder(node) && !bpk_node_is_link(node) && node->kind != BPK_NODE_TENSOR &&
           node->kind != BPK_NODE_EDITED && node->kind != BPK_NODE_COMMAND &&
           !bpk_view_is_file(node);
}

static int compose(struct bpk_mount *mount, const struct bpk_node *node, struct bpk_outbuf *out) {
    switch (node->kind) {
    case BPK_NODE_SIDECAR:
        bpk_sidecar_file(out, mount->pack, node->index);
        break;
    case BPK_NODE_KEY:
        bpk_metadata_value_file(out, mount->pack, node->index);
        break;
    case BPK_NODE_METADATA_JSON:
        bpk_metadata_file(out, mount->pack);
        break;
    case BPK_NODE_SCALARS_JSON:
        bpk_scalars_file(out, mount->pack);
        break;
    case BPK_NODE_INDEX_TSV:
        if (mount->edits)
            return bpk_edits_index(mount->edits, out);
        bpk_index_file(out, mount->pack, mount->tensor_names);
        break;
    case BPK_NODE_STATUS_JSON:
        return bpk_status_file(mount, out);
    default:
        return -EINVAL;
    }
    return out->failed ? -ENOMEM : 0;
}

int bpk_node_text(struct bpk_mount *mount, const struct bpk_node *node,
                  struct bpk_outbuf *ret_text) {
    struct bpk_outbuf out = {0};
    int r = compose(mount, node, &out);
    if (r < 0) {
        bpk_outbuf_clear(&out);
        return r;
    }
    *ret_text = out;
    return 0;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Where the size of a text is kept that takes long to compose, or NULL. */
static struct bpk_text_size *kept_size(struct bpk_mount *mount, const struct bpk_node *node) {
    switch (node->kind) {
    case BPK_NODE_METADATA_JSON:
        return &mount->sizes[0];
    case BPK_NODE_SCALARS_JSON:
        return &mount->sizes[1];
    case BPK_NODE_INDEX_TSV:
        return &mount->sizes[2];
    default:
        return NULL;
    }
}

static int text_size(struct bpk_mount *mount, const struct bpk_node *node, uint64_t *ret_size) {
    uint64_t generation = 1 + (mount->edits ? bpk_edits_generation(mount->edits) : 0);
    struct bpk_text_size *kept = kept_size(mount, node);
    struct bpk_outbuf counter = {.counting = true};
    if (!kept) {
        int r = compose(mount, node, &counter);
        *ret_size = counter.len;
        return r;
    }
    int r = 0;
    pthread_mutex_lock(&mount->sizes_lock);
    if (kept->generation != generation) {
        r = compose(mount, node, &counter);
        if (r == 0)
            *kept = (struct bpk_text_size){generation, counter.len};
    }
    *ret_size = kept->size;
    pthread_mutex_unlock(&mount->sizes_lock);
    return r;
}

static int node_size(struct bpk_mount *mount, const struct bpk_node *node, uint64_t *ret_size) {
    if (node->kind == BPK_NODE_TENSOR) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(mount->pack, node->index, &tensor);
        *ret_size = tensor.end - tensor.start;
        return 0;
    }
    if (bpk_node_is_link(node)) {
        struct bpk_outbuf target = {.counting = true};
        int r = bpk_tree_node_target(mount, node, &target);
        *ret_size = target.len;
        return r;
    }
    if (bpk_node_is_text(node))
        return text_size(mount, node, ret_size);
    *ret_size = 0;
    return 0;
}

static struct timespec tensor_mtime(struct bpk_mount *mount, const struct bpk_node *tensor) {
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, tensor, name);
    struct bpk_file_stat attr = {0};
    (void)bpk_edits_stat(mount->edits, &place, &attr);
    return attr.mtime;
}

/* Whether the edits know nothing of a file that they might know. */
static bool is_unedited(struct bpk_mount *mount, const struct bpk_node *node) {
    char name[BPK_FILE_NAME_BUF + 8];
    if (!mount->edits || !bpk_node_is_editable(node))
        return true;
    if (node->kind != BPK_NODE_TENSOR && node->kind != BPK_NODE_SIDECAR)
        return false;
    struct bpk_place place = bpk_node_place(mount, node, name);
    return bpk_edits_is_as_in(mount->edits, mount->pack, place.name);
}

static void fill(const struct bpk_mount *mount, const struct bpk_node *node, uint64_t size,
                 const struct bpk_file_stat *edited, struct stat *ret_stat) {
    const struct stat *pack = bpk_pack_stat(mount->pack);
    mode_t mode = S_IFREG | mount->file_mode;
    if (bpk_node_is_folder(node))
        mode = S_IFDIR | mount->folder_mode;
    else if (bpk_node_is_link(node) || edited->is_link)
        mode = S_IFLNK | 0777;
    else if (edited->mode != 0 && !mount->has_mask)
        mode = S_IFREG | edited->mode;
    else if (node->kind == BPK_NODE_F32 || node->kind == BPK_NODE_STATS)
        mode = S_IFREG | (mount->file_mode & 0444);
    else if (node->kind == BPK_NODE_COMMAND)
        mode = S_IFREG | (mount->file_mode & 0600);
    struct timespec mtime = edited->mtime.tv_sec != 0 ? edited->mtime : pack->st_mtim;
    *ret_stat = (struct stat){
        .st_ino = bpk_node_number(node),
        .st_mode = mode,
        .st_nlink = 1,
        .st_uid = edited->has_uid ? edited->uid : mount->uid,
        .st_gid = edited->has_gid ? edited->gid : mount->gid,
        .st_size = (off_t)size,
        .st_blocks = (blkcnt_t)((size + 511) / 512),
        .st_atim = mtime,
        .st_mtim = mtime,
        .st_ctim = mtime,
    };
}

int bpk_node_stat(struct bpk_mount *mount, const struct bpk_node *node, struct stat *ret_stat) {
    uint64_t size;
    struct bpk_file_stat edited = {0};
    struct bpk_node tensor;
    int r;
    if (bpk_view_is_file(node)) {
        r = bpk_view_stat(mount, node, &size, &tensor);
        if (r == 0 && mount->edits && tensor.kind != 0)
            edited.mtime = tensor_mtime(mount, &tensor);
    } else if (is_unedited(mount, node)) {
        r = node_size(mount, node, &size);
    } else {
        char name[BPK_FILE_NAME_BUF + 8];
        struct bpk_place place = bpk_node_place(mount, node, name);
        r = bpk_edits_stat(mount->edits, &place, &edited);
        size = edited.size;
    }
    if (r < 0)
        return r;
    enum bpk_folder folder;
    if (mount->edits && bpk_node_edit_folder(node, &folder))
        edited.mtime = bpk_edits_folder_mtime(mount->edits, folder);
    fill(mount, node, size, &edited, ret_stat);
    return 0;
}

void bpk_node_stat_gone(const struct bpk_mount *mount, const struct bpk_node *node, uint64_t size,
                        struct stat *ret_stat) {
    const struct bpk_file_stat edited = {0};
    fill(mount, node, size, &edited, ret_stat);
}

/* ---- reading --------------------------------------------------------------------------------- */

int bpk_node_read(struct bpk_mount *mount, const struct bpk_node *node, uint64_t offset,
                  void *buffer, size_t size, size_t *ret_read) {
    int r = bpk_pack_read(mount->pack, node->index, offset, buffer, size, ret_read);
    bpk_node_note_change(mount, r);
    return r;
}

void bpk_node_note_change(struct bpk_mount *mount, int r) {
    if (r == -EIO && !atomic_exchange(&mount->told_of_change, true))
        bpk_log("tensors can no longer be read: the pack was changed while it is mounted, or its "
                "disk fails");
}

/* ---- extended attributes --------------------------------------------------------------------- */

/* What a tensor's attributes show: as the pack has it, or as the edits make it. */
struct shown {
    struct bpk_dtype dtype;
    struct bpk_shape shape;
    bool has_param_id;
    uint64_t param_id;
    struct bpk_descriptor edited; /* what `shape` may be of */
};

static int show_edited(const struct bpk_mount *mount, const struct bpk_node *node,
                       struct shown *ret_shown) {
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, node, name);
    struct bpk_descriptor edited;
    static const uint64_t none[1] = {0};
    int r = bpk_edits_descriptor(mount->edits, &place, &edited);
    if (r < 0)
        return r;
    *ret_shown = (struct shown){
        .dtype = edited.dtype,
        .shape = {.dims = edited.dims ? edited.dims : none, .left = edited.rank},
        .has_param_id = edited.has_param_id,
        .param_id = edited.param_id,
        .edited = edited,
    };
    return 0;
}

static int show(const struct bpk_mount *mount, const struct bpk_node *node,
                struct shown *ret_shown) {
    struct bpk_tensor tensor;
    if (node->kind != BPK_NODE_TENSOR && node->kind != BPK_NODE_EDITED)
        return -ENOTSUP;
    if (mount->edits)
        return show_edited(mount, node, ret_shown);
    bpk_pack_tensor(mount->pack, node->index, &tensor);
    *ret_shown = (struct shown){
        .shape = bpk_pack_tensor_shape(mount->pack, node->index),
        .has_param_id = tensor.has_param_id,
        .param_id = tensor.param_id,
    };
    bpk_pack_tensor_dtype(mount->pack, node->index, &ret_shown->dtype);
    return 0;
}

static void xattr_dtype(const struct shown *shown, struct bpk_outbuf *out) {
    bpk_json_dtype(out, &shown->dtype);
}

static void xattr_shape(const struct shown *shown, struct bpk_outbuf *out) {
    bpk_json_shape(out, shown->shape);
}

static void xattr_param_id(const struct shown *shown, struct bpk_outbuf *out) {
    if (shown->has_param_id)
        bpk_out_u64(out, shown->param_id);
}

static const struct {
    const char *name;
    /* Writes the value; nothing where the tensor has none. */
    void (*write)(const struct shown *shown, struct bpk_outbuf *out);
} xattrs[] = {
    {"user.bpk.dtype", xattr_dtype},
    {"user.bpk.shape", xattr_shape},
    {"user.bpk.param_id", xattr_param_id},
};
enum { XATTRS = sizeof(xattrs) / sizeof(xattrs[0]) };

int bpk_node_xattr(const struct bpk_mount *mount, const struct bpk_node *node, const char *name,
                   struct bpk_outbuf *ret_value) {
    size_t i = 0;
    while (i < XATTRS && strcmp(name, xattrs[i].name) != 0)
        i++;
    struct shown shown;
    int r = i < XATTRS ? show(mount, node, &shown) : -ENOTSUP;
    if (r < 0)
        return r;
    xattrs[i].write(&shown, ret_value);
    bpk_descriptor_clear(&shown.edited);
    if (ret_value->failed)
        return -ENOMEM;
    return ret_value->len > 0 ? 0 : -ENODATA;
}

int bpk_node_xattr_names(const struct bpk_mount *mount, const struct bpk_node *node,
                         struct bpk_outbuf *ret_names) {
    struct shown shown;
    int r = show(mount, node, &shown);
    if (r < 0)
        return r == -ENOTSUP || r == -ENODATA ? 0 : r;
    for (size_t i = 0; i < XATTRS; i++) {
        struct bpk_outbuf value = {.counting = true};
        xattrs[i].write(&shown, &value);
        if (value.len > 0)
            bpk_out(ret_names, xattrs[i].name, strlen(xattrs[i].name) + 1);
    }
    bpk_descriptor_clear(&shown.edited);
    return ret_names->failed ? -ENOMEM : 0;
}
