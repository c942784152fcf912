#include "tree_nodes.h"

#include "pack/pack_internal.h"
#include "view/tree.h"

#include <errno.h>
#include <stdlib.h>

enum { GENERATION_MASK = 0x7fff };

/* The pack that tree/ shows, and its file names. */
struct bpk_tree_view {
    unsigned references; /* guarded by the mount's tree_lock, as all of it until it is taken */
    unsigned generation;
    struct bpk_pack *pack;
    struct bpk_names *names;
};

static void drop_locked(struct bpk_tree_view *view) {
    if (!view || --view->references > 0)
        return;
    bpk_names_free(view->names);
    bpk_pack_unref_table(view->pack);
    free(view);
}

static void drop(struct bpk_mount *mount, struct bpk_tree_view *view) {
    pthread_mutex_lock(&mount->tree_lock);
    drop_locked(view);
    pthread_mutex_unlock(&mount->tree_lock);
}

static struct bpk_tree_view *make(struct bpk_pack *pack, unsigned generation) {
    struct bpk_tree_view *view = calloc(1, sizeof(*view));
    if (!view || bpk_names_new(pack, BPK_NAMES_TENSORS, &view->names) < 0) {
        free(view);
        return NULL;
    }
    view->references = 1;
    view->generation = generation & GENERATION_MASK;
    view->pack = bpk_pack_ref_table(pack);
    return view;
}

/* The view of today, a reference; NULL: out of memory. */
static struct bpk_tree_view *take(struct bpk_mount *mount) {
    struct bpk_pack *pack = mount->edits ? bpk_edits_base(mount->edits) : bpk_pack_ref(mount->pack);
    pthread_mutex_lock(&mount->tree_lock);
    struct bpk_tree_view *view = mount->tree;
    if (!view || view->pack != pack) {
        struct bpk_tree_view *fresh = make(pack, view ? view->generation + 1 : 0);
        if (fresh) {
            drop_locked(view);
            mount->tree = fresh;
        }
        view = fresh;
    }
    if (view)
        view->references++;
    pthread_mutex_unlock(&mount->tree_lock);
    bpk_pack_unref(pack);
    return view;
}

void bpk_tree_nodes_close(struct bpk_mount *mount) {
    drop_locked(mount->tree);
    mount->tree = NULL;
}

/* The view that a node is of; NULL if that is gone. The root of tree/ is of any. */
static struct bpk_tree_view *take_for(struct bpk_mount *mount, const struct bpk_node *node) {
    struct bpk_tree_view *view = take(mount);
    bool is_root = node->kind == BPK_NODE_TREE && node->segments == 0;
    if (!view || is_root || view->generation == node->generation)
        return view;
    drop(mount, view);
    return NULL;
}

bool bpk_tree_node_is_current(struct bpk_mount *mount, const struct bpk_node *node) {
    struct bpk_pack_info info;
    struct bpk_tree_view *view = take_for(mount, node);
    if (!view)
        return false;
    bpk_pack_get_info(view->pack, &info);
    bool is_root = node->kind == BPK_NODE_TREE && node->segments == 0;
    drop(mount, view);
    return is_root || node->index < info.tensors;
}

static struct bpk_node from_tree(const struct bpk_tree_view *view,
                                 const struct bpk_tree_node *place) {
    static const enum bpk_node_kind kinds[] = {
        [BPK_TREE_FOLDER] = BPK_NODE_TREE,
        [BPK_TREE_TENSOR] = BPK_NODE_LINK,
        [BPK_TREE_SIDECAR] = BPK_NODE_SIDECAR_LINK,
    };
    return (struct bpk_node){
        .kind = kinds[place->kind],
        .segments = place->segments,
        .index = place->tensor,
        .generation = view->generation,
    };
}

static struct bpk_tree_node to_tree(const struct bpk_node *folder) {
    return (struct bpk_tree_node){BPK_TREE_FOLDER, folder->index, folder->segments};
}

int bpk_tree_node_lookup(struct bpk_mount *mount, const struct bpk_node *folder,
                         struct bpk_str name, struct bpk_node *ret_node) {
    struct bpk_tree_node inner;
    struct bpk_tree_node place = to_tree(folder);
    struct bpk_tree_view *view = take_for(mount, folder);
    if (!view)
        return -ESTALE;
    int r = bpk_tree_find(view->pack, &place, name, &inner);
    if (r == 0)
        *ret_node = from_tree(view, &inner);
    drop(mount, view);
    return r;
}

bool bpk_tree_node_next(struct bpk_mount *mount, const struct bpk_node *folder, uint64_t *cursor,
                        char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node) {
    struct bpk_tree_node inner;
    struct bpk_tree_node place = to_tree(folder);
    struct bpk_tree_view *view = take_for(mount, folder);
    if (!view)
        return false;
    bool found = bpk_tree_next(view->pack, &place, cursor, ret_name, &inner);
    if (found)
        *ret_node = from_tree(view, &inner);
    drop(mount, view);
    return found;
}

struct bpk_node bpk_tree_node_parent(struct bpk_mount *mount, const struct bpk_node *folder) {
    struct bpk_node parent = {.kind = BPK_NODE_ROOT};
    struct bpk_tree_node place = to_tree(folder);
    struct bpk_tree_view *view = folder->segments > 0 ? take_for(mount, folder) : NULL;
    if (!view)
        return parent;
    struct bpk_tree_node above = bpk_tree_parent(view->pack, &place);
    parent = from_tree(view, &above);
    drop(mount, view);
    return parent;
}

int bpk_tree_node_target(struct bpk_mount *mount, const struct bpk_node *node,
                         struct bpk_outbuf *ret_target) {
    char file[BPK_FILE_NAME_BUF];
    struct bpk_tree_view *view = take_for(mount, node);
    if (!view)
        return -ESTALE;
    size_t len = bpk_names_file(view->names, node->index, file);
    drop(mount, view);
    for (unsigned i = 0; i < node->segments + 1; i++)
        bpk_out_str(ret_target, "../");
    bpk_out_str(ret_target, "tensors/");
    bpk_out(ret_target, file, len);
    if (node->kind == BPK_NODE_SIDECAR_LINK)
        bpk_out_str(ret_target, ".json");
    return ret_target->failed ? -ENOMEM : 0;
}
