#include "snapshots.h"

#include "control.h"
#include "nodes.h"

#include <errno.h>
#include <stdlib.h>

/* Where a shared snapshot of the node is found, without a reference of its own; NULL for others. */
static struct bpk_snapshot **place_of(struct bpk_mount *mount, const struct bpk_node *node) {
    switch (node->kind) {
    case BPK_NODE_METADATA_JSON:
        return &mount->snapshots[0];
    case BPK_NODE_SCALARS_JSON:
        return &mount->snapshots[1];
    case BPK_NODE_INDEX_TSV:
        return &mount->snapshots[2];
    default:
        return NULL;
    }
}

static int compose(struct bpk_mount *mount, const struct bpk_node *node, struct bpk_outbuf *out) {
    if (node->kind == BPK_NODE_COMMAND) {
        bpk_control_outcome(mount, out);
        return out->failed ? -ENOMEM : 0;
    }
    if (!mount->edits || !bpk_node_is_editable(node))
        return bpk_node_text(mount, node, out);
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, node, name);
    return bpk_edits_text(mount->edits, &place, out);
}

static int take_locked(struct bpk_mount *mount, const struct bpk_node *node,
                       struct bpk_snapshot **ret_snapshot) {
    struct bpk_snapshot **place = place_of(mount, node);
    uint64_t generation = mount->edits ? bpk_edits_generation(mount->edits) : 0;
    if (place && *place && (*place)->generation == generation) {
        (*place)->references++;
        *ret_snapshot = *place;
        return 0;
    }
    struct bpk_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    int r = snapshot ? compose(mount, node, &snapshot->text) : -ENOMEM;
    if (r < 0) {
        if (snapshot)
            bpk_outbuf_clear(&snapshot->text);
        free(snapshot);
        return r;
    }
    snapshot->references = 1;
    snapshot->generation = generation;
    if (place)
        *place = snapshot;
    *ret_snapshot = snapshot;
    return 0;
}

/* Composing under the lock: who opens the same text meanwhile waits for it and shares it. */
int bpk_snapshot_take(struct bpk_mount *mount, const struct bpk_node *node,
                      struct bpk_snapshot **ret_snapshot) {
    pthread_mutex_lock(&mount->snapshots_lock);
    int r = take_locked(mount, node, ret_snapshot);
    pthread_mutex_unlock(&mount->snapshots_lock);
    return r;
}

void bpk_snapshot_drop(struct bpk_mount *mount, struct bpk_snapshot *snapshot) {
    if (!snapshot)
        return;
    pthread_mutex_lock(&mount->snapshots_lock);
    bool last = --snapshot->references == 0;
    for (size_t i = 0; i < BPK_SNAPSHOTS && last; i++)
        if (mount->snapshots[i] == snapshot)
            mount->snapshots[i] = NULL;
    pthread_mutex_unlock(&mount->snapshots_lock);
    if (!last)
        return;
    bpk_outbuf_clear(&snapshot->text);
    free(snapshot);
}
