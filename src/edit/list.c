/* What there is to commit, edit by edit, with what is wrong with it. */
#include "edit/state.h"

#include <stdio.h>
#include <string.h>

/* ---- what kind of change it is --------------------------------------------------------------- */

const char *bpk_change_name(enum bpk_change change) {
    static const char *const names[] = {
        [BPK_CHANGED] = "changed",
        [BPK_NEW] = "new",
        [BPK_REMOVED] = "removed",
        [BPK_RENAMED] = "renamed",
    };
    return names[change];
}

/* The file name of the tensor whose bytes show through; false if none does. */
static bool find_source(const struct bpk_edits *edits, const struct bpk_content *content,
                        char out[BPK_FILE_NAME_BUF]) {
    while (content && content->below)
        content = content->below;
    if (content && content->lost)
        return bpk_name_encode((struct bpk_str){content->lost->name, content->lost->name_len},
                               out) > 0;
    if (!content || content->pack != edits->base)
        return false;
    bpk_names_file(edits->tensor_names, content->index, out);
    return true;
}

/* `from`: room for a path, which `edit` leads to where the tensor was renamed. */
static void tell_tensor_change(struct bpk_edits *edits, const char *stem,
                               const struct bpk_judged *judged,
                               char from[sizeof("tensors/") + BPK_FILE_NAME_BUF],
                               struct bpk_edit *edit) {
    const struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_TENSORS, stem);
    bool in_base = judged->index != BPK_NO_TENSOR;
    char *source = stpcpy(from, "tensors/");
    edit->change = in_base ? BPK_CHANGED : BPK_NEW;
    if (judged->file && find_source(edits, judged->file->content, source)) {
        bool is_own = strcmp(source, stem) == 0;
        edit->change = is_own ? BPK_CHANGED : BPK_RENAMED;
        edit->from = is_own ? NULL : from;
    } else if (!judged->file && (entry || judged->judgement == BPK_JUDGED_NOTHING)) {
        edit->change = BPK_REMOVED;
    }
}

static enum bpk_change change_of_text(struct bpk_edits *edits, enum bpk_folder folder,
                                      const struct bpk_entry *entry) {
    if (!entry->file)
        return BPK_REMOVED;
    return bpk_state_base_has(edits, folder, entry->key + 1) ? BPK_CHANGED : BPK_NEW;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const char put_back_sentence[] = "was moved aside and not written again: it is put back";

static const char removed_sentence[] =
    "was removed: 'bpk commit' empties it, any other commit puts it back";

/* What was written and not looked at yet may be anything. */
static bool is_unparsed(struct bpk_edits *edits, const struct bpk_entry *entry) {
    return entry && entry->file && bpk_judge_is_unparsed(edits, entry->file);
}

/* A key that a whole map was written without is removed all the same. */
static bool is_aside(struct bpk_edits *edits, const struct bpk_entry *entry) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    const char *name = entry->key + 1;
    return !entry->file && bpk_judge_aside(edits, folder, name) &&
           (folder != BPK_IN_METADATA || bpk_state_has_value(edits, name));
}

/* A new key that was moved aside: nothing else tells of it. */
static void list_new_key(struct bpk_edits *edits, const struct bpk_aside *aside,
                         bpk_edit_fn *report, void *context) {
    char path[300];
    if (aside->folder != BPK_IN_METADATA || bpk_state_entry(edits, aside->folder, aside->name) ||
        bpk_state_base_has(edits, aside->folder, aside->name) ||
        !bpk_judge_aside(edits, aside->folder, aside->name) ||
        !bpk_state_has_value(edits, aside->name))
        return;
    (void)snprintf(path, sizeof(path), "metadata/%s", aside->name);
    report(context, &(struct bpk_edit){BPK_EDIT, path, put_back_sentence, BPK_NEW, NULL});
}

static void list_text(struct bpk_edits *edits, const struct bpk_entry *entry, bpk_edit_fn *report,
                      void *context) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    const char *name = entry->key + 1;
    char path[300];
    char reason[400];
    struct bpk_edit edit = {.kind = BPK_EDIT, .path = path};
    (void)snprintf(path, sizeof(path), "%s%s", bpk_rules_folder_path(folder), name);
    if (bpk_judge_array(edits, entry, reason, sizeof(reason))) {
        edit.change = BPK_NEW;
        edit.problem = reason;
    } else if (bpk_state_is_text(edits, folder, name)) {
        edit.change = change_of_text(edits, folder, entry);
        if (bpk_judge_text(edits, folder, name, reason, sizeof(reason)))
            edit.problem = reason;
        else if (is_aside(edits, entry))
            edit.problem = put_back_sentence;
        else if (folder == BPK_IN_ROOT && !entry->file)
            edit.problem = removed_sentence;
        else if (!is_unparsed(edits, entry) && bpk_same_text(edits, folder, name))
            return;
    } else if (!entry->file) {
        return;
    } else if (bpk_judge_is_scratch(entry->file)) {
        edit.kind = BPK_EDIT_SCRATCH;
    } else {
        edit.kind = bpk_rules_is_backup(name) ? BPK_EDIT_BACKUP : BPK_EDIT_PENDING;
    }
    report(context, &edit);
}

static void list_texts(struct bpk_edits *edits, bpk_edit_fn *report, void *context) {
    const struct bpk_entry *entry;
    const struct bpk_entry *next;
    HASH_ITER(hh, edits->entries, entry, next) {
        if (entry->key[0] != BPK_IN_TENSORS && bpk_state_is_touched(edits, entry))
            list_text(edits, entry, report, context);
    }
    const struct bpk_aside *aside;
    const struct bpk_aside *next_aside;
    HASH_ITER(hh, edits->asides, aside, next_aside) {
        list_new_key(edits, aside, report, context);
    }
}

static void list_tensor(struct bpk_edits *edits, const char *stem, bpk_edit_fn *report,
                        void *context) {
    static const enum bpk_edit_kind kinds[] = {
        [BPK_JUDGED_NOTHING] = BPK_EDIT,       [BPK_JUDGED_TENSOR] = BPK_EDIT,
        [BPK_JUDGED_INVALID] = BPK_EDIT,       [BPK_JUDGED_PENDING] = BPK_EDIT_PENDING,
        [BPK_JUDGED_BACKUP] = BPK_EDIT_BACKUP, [BPK_JUDGED_SCRATCH] = BPK_EDIT_SCRATCH,
    };
    char path[300];
    char sidecar_path[300];
    char from[sizeof("tensors/") + BPK_FILE_NAME_BUF];
    struct bpk_judged judged;
    if (bpk_judge_stem(edits, stem, &judged) < 0)
        return;
    struct bpk_edit edit = {.kind = kinds[judged.judgement], .path = path};
    (void)snprintf(path, sizeof(path), "tensors/%s", stem);
    if (judged.reason[0])
        edit.problem = judged.reason;
    else if (judged.put_back)
        edit.problem = put_back_sentence;
    tell_tensor_change(edits, stem, &judged, from, &edit);
    bool came_and_went = judged.judgement == BPK_JUDGED_NOTHING && judged.index == BPK_NO_TENSOR;
    (void)snprintf(sidecar_path, sizeof(sidecar_path), "tensors/%s.json", stem);
    const struct bpk_entry *sidecar =
        bpk_state_entry(edits, BPK_IN_TENSORS, sidecar_path + strlen("tensors/"));
    bool is_same =
        bpk_same_tensor(&judged, edits->base) && !judged.put_back && !is_unparsed(edits, sidecar);
    if ((!came_and_went || is_unparsed(edits, sidecar)) && !is_same)
        report(context, &edit);
    bpk_desc_unref(judged.desc);
    if (judged.judgement == BPK_JUDGED_TENSOR && sidecar && is_aside(edits, sidecar))
        report(context,
               &(struct bpk_edit){BPK_EDIT, sidecar_path, put_back_sentence, BPK_CHANGED, NULL});
}

void bpk_edits_list(struct bpk_edits *edits, bpk_edit_fn *report, void *context) {
    char **touched = NULL;
    size_t count = 0;
    pthread_mutex_lock(&edits->lock);
    (void)bpk_judge_touched(edits, &touched, &count);
    for (size_t i = 0; i < count; i++) {
        list_tensor(edits, touched[i], report, context);
        free(touched[i]);
    }
    free(touched);
    list_texts(edits, report, context);
    pthread_mutex_unlock(&edits->lock);
}
