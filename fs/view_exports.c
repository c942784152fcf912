#include "view_exports.h"

#include <errno.h>

static uint64_t generation_now(struct bpk_mount *mount) {
    return mount->edits ? bpk_edits_generation(mount->edits) : 0;
}

static int make(struct bpk_mount *mount, enum bpk_export_format format,
                struct bpk_export **ret_export) {
    return mount->edits ? bpk_export_of_edits(mount->edits, format, ret_export, NULL)
                        : bpk_export_of_pack(mount->pack, format, ret_export, NULL);
}

static int take_locked(struct bpk_mount *mount, enum bpk_export_format format,
                       struct bpk_export **ret_export) {
    struct bpk_export **place = &mount->exports[format];
    if (!*place || bpk_export_generation(*place) != generation_now(mount)) {
        struct bpk_export *fresh;
        int r = make(mount, format, &fresh);
        if (r < 0)
            return r;
        bpk_export_unref(*place);
        *place = fresh;
    }
    *ret_export = bpk_export_ref(*place);
    return 0;
}

static int take(struct bpk_mount *mount, enum bpk_node_kind kind, struct bpk_export **ret_export) {
    enum bpk_export_format format =
        kind == BPK_NODE_EXPORT_PACK ? BPK_EXPORT_PACK : BPK_EXPORT_SAFETENSORS;
    pthread_mutex_lock(&mount->exports_lock);
    int r = take_locked(mount, format, ret_export);
    pthread_mutex_unlock(&mount->exports_lock);
    return r;
}

int bpk_view_export_generation(struct bpk_mount *mount, enum bpk_node_kind kind,
                               uint64_t *ret_generation) {
    struct bpk_export *export;
    int r = take(mount, kind, &export);
    if (r < 0)
        return r;
    *ret_generation = bpk_export_generation(export);
    bpk_export_unref(export);
    return 0;
}

int bpk_view_export(struct bpk_mount *mount, const struct bpk_node *node,
                    struct bpk_export **ret_export) {
    struct bpk_export *export;
    int r = take(mount, node->kind, &export);
    if (r == 0 && bpk_export_generation(export) != node->number) {
        bpk_export_unref(export);
        r = -ESTALE;
    }
    if (r == 0)
        *ret_export = export;
    return r;
}

void bpk_view_export_left_out(struct bpk_mount *mount, bpk_left_out_fn *report, void *context) {
    pthread_mutex_lock(&mount->exports_lock);
    const struct bpk_export *export = mount->exports[BPK_EXPORT_SAFETENSORS];
    if (export && bpk_export_generation(export) == generation_now(mount))
        bpk_export_each_left_out(export, report, context);
    pthread_mutex_unlock(&mount->exports_lock);
}

void bpk_view_exports_forget(struct bpk_mount *mount) {
    pthread_mutex_lock(&mount->exports_lock);
    for (size_t i = 0; i < BPK_EXPORTS; i++) {
        struct bpk_export *export = mount->exports[i];
        if (!export || bpk_export_generation(export) == generation_now(mount))
            continue;
        mount->exports[i] = NULL;
        bpk_export_unref(export);
    }
    pthread_mutex_unlock(&mount->exports_lock);
}

void bpk_view_exports_close(struct bpk_mount *mount) {
    for (size_t i = 0; i < BPK_EXPORTS; i++)
        bpk_export_unref(mount->exports[i]);
}
