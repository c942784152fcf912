/* What a commit takes in: every touched name is judged, and the plan of the new pack made. All
 * locked. */
#include "edit/commit.h"

#include "pack/diag.h"
#include "pack/pack_internal.h"
#include "pack/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool takes_all(const struct bpk_commit *commit) {
    return commit->mode == BPK_COMMIT_ALL || commit->mode == BPK_COMMIT_ALL_AT_UNMOUNT;
}

/* By name: what was removed is meant to go, however much it is. */
static bool was_asked_for(const struct bpk_commit *commit) {
    return commit->mode == BPK_COMMIT_ALL || commit->mode == BPK_COMMIT_VALID;
}

/* ---- what goes in ---------------------------------------------------------------------------- */

static int compare_name(const void *name, const void *touched) {
    return strcmp(name, *(char *const *)touched);
}

static bool is_touched(char *const *touched, size_t count, const char *name) {
    return count > 0 && bsearch(name, touched, count, sizeof(*touched), compare_name);
}

static int add_item(struct bpk_commit *commit, const struct bpk_commit_item *item) {
    int r = bpk_grow((void **)&commit->items, &commit->capacity, commit->count,
                     sizeof(commit->items[0]));
    if (r == 0)
        commit->items[commit->count++] = *item;
    return r;
}

static int add_base_tensor(struct bpk_commit *commit, uint32_t index) {
    struct bpk_tensor tensor;
    bpk_pack_tensor(commit->base, index, &tensor);
    struct bpk_commit_item item = {
        .name = tensor.name,
        .index = index,
        .rank = index,
        .size = tensor.end - tensor.start,
    };
    return add_item(commit, &item);
}

/* A content that is a tensor of the base and nothing else, as after a rename. */
static bool is_plain(const struct bpk_commit *commit, const struct bpk_content *content) {
    return content->pack == commit->base && bpk_same_bytes(content, commit->base, content->index);
}

static int add_edited(struct bpk_commit *commit, const char *stem,
                      const struct bpk_judged *judged) {
    char buffer[BPK_FILE_NAME_BUF];
    struct bpk_commit_item item = {.index = judged->index, .rank = UINT32_MAX};
    if (!bpk_state_tensor_name(commit->edits, stem, buffer, &item.name))
        return -EINVAL;
    if (judged->index != BPK_NO_TENSOR) {
        item.rank = judged->index;
    } else {
        item.owned = malloc(item.name.len + 1);
        if (!item.owned)
            return -ENOMEM;
        memcpy(item.owned, item.name.bytes, item.name.len);
        item.name.bytes = item.owned;
    }
    item.desc = bpk_desc_ref(judged->desc);
    struct bpk_content *content = judged->file ? judged->file->content : NULL;
    if (content) {
        item.content = bpk_content_ref(content);
        item.size = content->size;
        if (is_plain(commit, content))
            item.rank = content->index;
        content->frozen |= !commit->only_looks;
    } else {
        struct bpk_tensor tensor;
        bpk_pack_tensor(commit->base, judged->index, &tensor);
        item.size = tensor.end - tensor.start;
    }
    int r = add_item(commit, &item);
    if (r < 0) {
        free(item.owned);
        bpk_desc_unref(item.desc);
        if (content && !commit->only_looks)
            content->frozen = false;
        bpk_content_unref(item.content, false);
    }
    return r;
}

/* ---- what is left out ------------------------------------------------------------------------ */

static int leave_out(struct bpk_commit *commit, const char *stem) {
    struct bpk_committed *committed = &commit->committed;
    char **grown = realloc(committed->left_out, (committed->left_out_count + 1) * sizeof(char *));
    char *copy = strdup(stem);
    if (grown)
        committed->left_out = grown;
    if (!grown || !copy) {
        free(copy);
        return -ENOMEM;
    }
    committed->left_out[committed->left_out_count++] = copy;
    return 0;
}

static bool is_left_out(const struct bpk_commit *commit, const char *stem) {
    for (size_t i = 0; i < commit->committed.left_out_count; i++)
        if (strcmp(commit->committed.left_out[i], stem) == 0)
            return true;
    return false;
}

const struct bpk_content *bpk_commit_bottom(const struct bpk_content *content) {
    while (content && content->below)
        content = content->below;
    return content;
}

/* The name in the base of the tensor whose bytes an edit borrows, or would if it were as long as
 * when the edit was made; false if there is none. */
static bool find_lender(const struct bpk_commit *commit, const struct bpk_judged *judged,
                        char ret_file[BPK_FILE_NAME_BUF]) {
    const struct bpk_content *content =
        judged->file ? bpk_commit_bottom(judged->file->content) : NULL;
    uint32_t index;
    if (content && content->lost) {
        struct bpk_str name = {content->lost->name, content->lost->name_len};
        if (bpk_pack_find_tensor(commit->base, name, &index) < 0)
            return false;
    } else if (content && content->pack == commit->base) {
        index = content->index;
    } else {
        return false;
    }
    bpk_names_file(commit->edits->tensor_names, index, ret_file);
    return true;
}

/* An edit that is left out keeps the base tensor whose bytes it borrows: that name's own edit is
 * left out with it. */
static int leave_out_lender(struct bpk_commit *commit, const struct bpk_judged *judged) {
    char file[BPK_FILE_NAME_BUF];
    if (!find_lender(commit, judged, file) || is_left_out(commit, file))
        return 0;
    return leave_out(commit, file);
}

/* And the base tensor that it was before it was renamed, whoever's its bytes are. */
static int leave_out_origin(struct bpk_commit *commit, const struct bpk_judged *judged) {
    const struct bpk_aside *origin = judged->file ? judged->file->aside : NULL;
    if (!origin || origin->folder != BPK_IN_TENSORS || is_left_out(commit, origin->name) ||
        !bpk_state_base_has(commit->edits, origin->folder, origin->name) ||
        bpk_state_exists(commit->edits, origin->folder, origin->name))
        return 0;
    return leave_out(commit, origin->name);
}

/* The other way: where a name is left out, its bytes have not gone to another one either, or the
 * base would lose what they went over. */
static int leave_out_borrowers(struct bpk_commit *commit, char *const *touched, size_t count) {
    char file[BPK_FILE_NAME_BUF];
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct bpk_judged judged;
        r = bpk_judge_stem(commit->edits, touched[i], &judged);
        if (r < 0)
            break;
        if (judged.judgement == BPK_JUDGED_TENSOR && find_lender(commit, &judged, file) &&
            is_left_out(commit, file) && !is_left_out(commit, touched[i]))
            r = leave_out(commit, touched[i]);
        bpk_desc_unref(judged.desc);
    }
    return r;
}

/* Names joined by renames stand or fall together. */
static int leave_out_joined(struct bpk_commit *commit, char *const *touched, size_t count) {
    struct bpk_committed *committed = &commit->committed;
    size_t done = 0;
    int r = 0;
    while (done < committed->left_out_count && r == 0) {
        for (; done < committed->left_out_count && r == 0; done++) {
            struct bpk_judged judged;
            r = bpk_judge_stem(commit->edits, committed->left_out[done], &judged);
            if (r < 0)
                break;
            r = leave_out_lender(commit, &judged);
            if (r == 0)
                r = leave_out_origin(commit, &judged);
            bpk_desc_unref(judged.desc);
        }
        if (r == 0)
            r = leave_out_borrowers(commit, touched, count);
    }
    return r;
}

/* Judges every touched name until no more has to be left out with another. */
static int find_invalid(struct bpk_commit *commit, char *const *touched, size_t count,
                        struct bpk_diag *diag) {
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct bpk_judged judged;
        r = bpk_judge_stem(commit->edits, touched[i], &judged);
        if (r < 0)
            break;
        bool bad = judged.judgement == BPK_JUDGED_INVALID;
        if (bad && takes_all(commit))
            r = bpk_diag_set(diag, -EBADMSG, BPK_NO_OFFSET, "tensors/%s: %s", touched[i],
                             judged.reason);
        else if (bad && !is_left_out(commit, touched[i]))
            r = leave_out(commit, touched[i]);
        commit->kept +=
            judged.judgement == BPK_JUDGED_PENDING || judged.judgement == BPK_JUDGED_BACKUP;
        bpk_desc_unref(judged.desc);
    }
    if (r == 0)
        r = leave_out_joined(commit, touched, count);
    return r;
}

/* Removing the whole file empties its map, but not by the way: only a commit by name takes it. */
static void judge_removed_map(struct bpk_commit *commit, const char *name) {
    bool is_metadata = strcmp(name, "metadata.json") == 0;
    if (bpk_judge_aside(commit->edits, BPK_IN_ROOT, name))
        return;
    if (!was_asked_for(commit))
        commit->maps_put_back |= is_metadata ? BPK_MAP_METADATA : BPK_MAP_SCALARS;
    else if (is_metadata)
        commit->empties_metadata = true;
    else
        commit->empties_scalars = true;
}

/* A text that is not good: of a whole map, or of one key. */
static int leave_out_text(struct bpk_commit *commit, enum bpk_folder folder, const char *name) {
    char path[sizeof("metadata/") + BPK_FILE_NAME_BUF];
    if (folder == BPK_IN_METADATA) {
        (void)snprintf(path, sizeof(path), "metadata/%s", name);
        return leave_out(commit, path);
    }
    commit->committed.leaves_maps_out |=
        strcmp(name, "scalars.json") == 0 ? BPK_MAP_SCALARS : BPK_MAP_METADATA;
    return 0;
}

static int invalid_edit(struct bpk_diag *diag, enum bpk_folder folder, const char *name,
                        const char *reason) {
    return bpk_diag_set(diag, -EBADMSG, BPK_NO_OFFSET, "%s%s: %s", bpk_rules_folder_path(folder),
                        name, reason);
}

/* Everything but tensors: maps, arrays that are none yet, files that are kept. */
static int judge_rest(struct bpk_commit *commit, struct bpk_diag *diag) {
    struct bpk_edits *edits = commit->edits;
    char reason[400];
    int r = 0;
    struct bpk_entry *entry;
    struct bpk_entry *next;
    HASH_ITER(hh, edits->entries, entry, next) {
        enum bpk_folder folder = (enum bpk_folder)entry->key[0];
        const char *name = entry->key + 1;
        if (r < 0 || folder == BPK_IN_TENSORS || entry->clean)
            continue;
        if (bpk_judge_array(edits, entry, reason, sizeof(reason))) {
            if (takes_all(commit))
                return invalid_edit(diag, folder, name, reason);
            commit->arrays_left_out++;
            continue;
        }
        if (!bpk_state_is_text(edits, folder, name)) {
            commit->kept += entry->file && !bpk_judge_is_scratch(entry->file);
            continue;
        }
        if (folder == BPK_IN_ROOT && !entry->file)
            judge_removed_map(commit, name);
        if (!bpk_judge_text(edits, folder, name, reason, sizeof(reason)))
            continue;
        if (takes_all(commit))
            return invalid_edit(diag, folder, name, reason);
        r = leave_out_text(commit, folder, name);
    }
    if (commit->committed.left_out_count > 0)
        qsort(commit->committed.left_out, commit->committed.left_out_count, sizeof(char *),
              bpk_judge_compare_names);
    return r;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static int gather_tensors(struct bpk_commit *commit, char *const *touched, size_t count) {
    struct bpk_edits *edits = commit->edits;
    char file[BPK_FILE_NAME_BUF];
    uint32_t index;
    int r = 0;
    for (uint32_t i = 0; i < (uint32_t)commit->base->meta.tensor_count && r == 0; i++) {
        bpk_names_file(edits->tensor_names, i, file);
        if (!is_touched(touched, count, file))
            r = add_base_tensor(commit, i);
    }
    for (size_t i = 0; i < count && r == 0; i++) {
        struct bpk_judged judged;
        if (is_left_out(commit, touched[i])) {
            if (bpk_state_find_base(edits, touched[i], &index))
                r = add_base_tensor(commit, index);
            continue;
        }
        r = bpk_judge_stem(edits, touched[i], &judged);
        if (r < 0)
            break;
        if (bpk_same_tensor(&judged, commit->base))
            r = add_base_tensor(commit, judged.index);
        else if (judged.judgement == BPK_JUDGED_TENSOR)
            r = add_edited(commit, touched[i], &judged);
        bpk_desc_unref(judged.desc);
    }
    /* A lender that was not touched itself stays in by the first loop. */
    return r;
}

/* metadata.json does not show keys with a NUL, so that it cannot remove them either. Nor does it
 * remove what is left out. */
static void keep_hidden_keys(struct bpk_commit *commit) {
    size_t kept = 0;
    for (size_t i = 0; i < commit->metadata_count; i++) {
        struct bpk_str key = commit->metadata[i].key;
        if (memchr(key.bytes, '\0', key.len) || bpk_state_is_younger(commit->edits, key) ||
            bpk_state_key_left_out(commit->edits, &commit->committed, key))
            commit->metadata[kept++] = commit->metadata[i];
    }
    commit->metadata_count = kept;
}

/* The strings of the overrides may change while the pack is written: they are copied. */
static int gather_metadata(struct bpk_commit *commit) {
    int r = bpk_state_effective_metadata(commit->edits, &commit->committed, &commit->metadata,
                                         &commit->metadata_count);
    if (r < 0)
        return r;
    if (commit->empties_metadata)
        keep_hidden_keys(commit);
    struct bpk_outbuf *text = &commit->metadata_text;
    for (size_t i = 0; i < commit->metadata_count; i++) {
        bpk_out(text, commit->metadata[i].key.bytes, commit->metadata[i].key.len);
        bpk_out(text, commit->metadata[i].value.bytes, commit->metadata[i].value.len);
    }
    if (text->failed)
        return -ENOMEM;
    const char *at = text->text;
    for (size_t i = 0; i < commit->metadata_count; i++) {
        commit->metadata[i].key.bytes = at;
        at += commit->metadata[i].key.len;
        commit->metadata[i].value.bytes = at;
        at += commit->metadata[i].value.len;
    }
    return 0;
}

static uint32_t *data_ranks(const struct bpk_pack *base) {
    uint32_t *ranks = calloc(base->meta.tensor_count + 1, sizeof(*ranks));
    for (size_t k = 0; ranks && k < base->meta.tensor_count; k++)
        ranks[base->data_order[k]] = (uint32_t)k;
    return ranks;
}

static int compare_items(const void *a, const void *b) {
    const struct bpk_commit_item *x = a;
    const struct bpk_commit_item *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return bpk_str_compare(x->name, y->name);
}

/* Reading a frozen content opens its data file: not while another thread does. The writer is done
 * with one tensor before it asks for the next, so that one file is open at a time. */
static int next_run_locked(void *context, uint64_t offset, struct bpk_run *ret_run) {
    const struct bpk_commit_item *item = context;
    struct bpk_commit *commit = item->commit;
    pthread_mutex_lock(&commit->edits->lock);
    if (commit->reading && commit->reading != item->content)
        bpk_content_end_copy(commit->reading);
    commit->reading = item->content;
    int r = bpk_content_next_run(item->content, offset, ret_run);
    pthread_mutex_unlock(&commit->edits->lock);
    return r;
}

static void fill_tensor(struct bpk_commit *commit, struct bpk_commit_item *item,
                        struct bpk_plan_tensor *t) {
    *t = (struct bpk_plan_tensor){.name = item->name, .size = item->size};
    if (item->desc) {
        const struct bpk_desc *desc = item->desc;
        t->dtype_cbor = (struct bpk_str){desc->dtype_cbor.text, desc->dtype_cbor.len};
        t->unknown_cbor = (struct bpk_str){desc->unknown_cbor.text, desc->unknown_cbor.len};
        t->unknown_count = desc->unknown_count;
        t->shape = bpk_desc_shape(desc);
        t->has_param_id = desc->means.has_param_id;
        t->param_id = desc->means.param_id;
    } else {
        const struct bpk_meta_tensor *from = &commit->base->meta.tensors[item->index];
        t->from = commit->base;
        t->index = item->index;
        t->has_param_id = from->flags & BPK_TENSOR_HAS_PARAM_ID;
        t->param_id = from->param_id;
    }
    if (item->content && is_plain(commit, item->content)) {
        t->data_from = commit->base;
        t->data_index = item->content->index;
    } else if (item->content) {
        t->next_run = next_run_locked;
        item->commit = commit;
        t->context = item;
    } else {
        t->data_from = commit->base;
        t->data_index = item->index;
    }
}

static int gather_scalars(const struct bpk_commit *commit, struct bpk_plan *plan) {
    const struct bpk_scalar_map *scalars = &commit->edits->scalars;
    if (commit->empties_scalars)
        plan->scalar_count = 0;
    if (commit->empties_scalars || !commit->edits->has_scalars)
        return 0;
    struct bpk_scalar *all = calloc(scalars->count + plan->scalar_count + 1, sizeof(*all));
    if (!all)
        return -ENOMEM;
    size_t count = scalars->count;
    if (count > 0)
        memcpy(all, scalars->scalars, count * sizeof(*all));
    for (size_t i = 0; i < plan->scalar_count; i++) /* scalars.json cannot show these */
        if (memchr(plan->scalars[i].name.bytes, '\0', plan->scalars[i].name.len))
            all[count++] = plan->scalars[i];
    free(plan->scalars);
    plan->scalars = all;
    plan->scalar_count = count;
    return bpk_plan_own_scalars(plan);
}

static int make_plan(struct bpk_commit *commit, struct bpk_plan *ret_plan) {
    struct bpk_plan plan;
    uint32_t *ranks = data_ranks(commit->base);
    int r = ranks ? bpk_plan_from_pack(commit->base, &plan) : -ENOMEM;
    if (r < 0) {
        free(ranks);
        return r;
    }
    for (size_t i = 0; i < commit->count; i++)
        if (commit->items[i].rank != UINT32_MAX)
            commit->items[i].rank = ranks[commit->items[i].rank];
    free(ranks);
    if (commit->count > 0)
        qsort(commit->items, commit->count, sizeof(commit->items[0]), compare_items);
    free(plan.tensors);
    plan.tensors = calloc(commit->count + 1, sizeof(*plan.tensors));
    plan.tensor_count = commit->count;
    for (size_t i = 0; i < commit->count && plan.tensors; i++)
        fill_tensor(commit, &commit->items[i], &plan.tensors[i]);
    r = plan.tensors ? 0 : -ENOMEM;
    if (r == 0 && !(commit->committed.leaves_maps_out & BPK_MAP_METADATA)) {
        r = gather_metadata(commit);
        free(plan.metadata);
        plan.metadata = commit->metadata;
        plan.metadata_count = commit->metadata_count;
        commit->metadata = NULL;
    }
    if (r == 0 && !(commit->committed.leaves_maps_out & BPK_MAP_SCALARS))
        r = gather_scalars(commit, &plan);
    if (r < 0) {
        bpk_plan_clear(&plan);
        return r;
    }
    *ret_plan = plan;
    return 0;
}

/* Whether the new pack would be another than the base: scratch, backups and pending files alone are
 * no reason to write, nor is what was undone. */
static bool changes_pack(const struct bpk_commit *commit, const struct bpk_plan *plan) {
    unsigned left_out = commit->committed.leaves_maps_out;
    const struct bpk_meta *base = &commit->base->meta;
    if (!bpk_same_metadata(commit->base, plan->metadata, plan->metadata_count) ||
        (commit->empties_scalars && plan->scalar_count != base->scalar_count) ||
        (!(left_out & BPK_MAP_SCALARS) && !bpk_same_scalars(commit->edits)) ||
        commit->count != base->tensor_count)
        return true;
    for (size_t i = 0; i < commit->count; i++)
        if (commit->items[i].desc || commit->items[i].content || commit->items[i].owned)
            return true;
    return false;
}

/* ---- all ---------------------------------------------------------------------------------- */

int bpk_commit_gather(struct bpk_commit *commit, struct bpk_plan *ret_plan, bool *ret_something,
                      struct bpk_diag *diag) {
    struct bpk_edits *edits = commit->edits;
    char **touched = NULL;
    size_t count = 0;
    size_t total = 0;
    int r = commit->only_looks ? 0 : bpk_judge_parse_all(edits);
    commit->committed.is_last = commit->mode == BPK_COMMIT_LAST;
    commit->base = bpk_pack_ref(edits->base);
    if (r == 0)
        r = bpk_judge_touched(edits, &touched, &count);
    if (r == 0)
        r = find_invalid(commit, touched, count, diag);
    if (r == 0)
        r = judge_rest(commit, diag);
    if (r == 0)
        r = gather_tensors(commit, touched, count);
    for (size_t i = 0; i < count; i++)
        free(touched[i]);
    free(touched);
    total = commit->base->meta.tensor_count;
    if (r == 0 && !was_asked_for(commit) && commit->count < total - total / 2 &&
        commit->count < total)
        r = bpk_diag_set(diag, -EPERM, BPK_NO_OFFSET,
                         "the pack would be left with %zu of its %zu tensors: that takes a "
                         "'bpk commit'; the edits are kept",
                         commit->count, total);
    if (r == 0)
        r = make_plan(commit, ret_plan);
    *ret_something = r == 0 && changes_pack(commit, ret_plan);
    if (commit->only_looks)
        return r;
    bpk_record_tick(edits);
    commit->committed.frozen_at = edits->clock;
    return r;
}
