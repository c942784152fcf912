#include "view_refusals.h"

#include "pack/util.h"
#include "view/f32.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { AT_MOST = 1000 };

void bpk_view_note_refusal(struct bpk_mount *mount, const struct bpk_node *node) {
    uint64_t number = bpk_view_number(node);
    struct bpk_refusals *all = &mount->refusals;
    pthread_mutex_lock(&mount->refusals_lock);
    size_t i = 0;
    while (i < all->count && all->numbers[i] != number)
        i++;
    if (i == all->count && i < AT_MOST &&
        bpk_grow((void **)&all->numbers, &all->capacity, i, sizeof(number)) == 0)
        all->numbers[all->count++] = number;
    pthread_mutex_unlock(&mount->refusals_lock);
}

/* The tensor may be another by now. */
static bool is_refused(struct bpk_mount *mount, const struct bpk_node *node,
                       struct bpk_current *ret_current, struct bpk_diag *ret_diag) {
    struct bpk_f32 *f32 = NULL;
    if (bpk_view_current(mount, node, ret_current) < 0)
        return false;
    int r = bpk_f32_new(&ret_current->array, &f32, ret_diag);
    bpk_f32_free(f32);
    if (r != -ENOTSUP && r != -EINVAL)
        bpk_current_clear(ret_current);
    return r == -ENOTSUP || r == -EINVAL;
}

static void report_one(struct bpk_mount *mount, uint64_t number, bpk_view_refusal_fn *report,
                       void *context) {
    struct bpk_node node;
    struct bpk_current current;
    struct bpk_diag diag;
    char path[sizeof("views/stats/") + BPK_FILE_NAME_BUF + 8];
    if (bpk_view_from_number(mount, number, &node) < 0 ||
        !is_refused(mount, &node, &current, &diag))
        return;
    (void)snprintf(path, sizeof(path),
                   node.kind == BPK_NODE_STATS ? "views/stats/%s.json" : "views/f32/%s.npy",
                   current.name);
    report(context, path, diag.sentence);
    bpk_current_clear(&current);
}

void bpk_view_each_refusal(struct bpk_mount *mount, bpk_view_refusal_fn *report, void *context) {
    pthread_mutex_lock(&mount->refusals_lock);
    for (size_t i = 0; i < mount->refusals.count; i++)
        report_one(mount, mount->refusals.numbers[i], report, context);
    pthread_mutex_unlock(&mount->refusals_lock);
}

void bpk_view_refusals_close(struct bpk_mount *mount) {
    free(mount->refusals.numbers);
}
