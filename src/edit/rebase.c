/* After a commit: what it took in is the base's now, and what is left stands on the new base. All
 * locked. */
#include "edit/state.h"

#include "pack/util.h"

#include <errno.h>
#include <string.h>

void bpk_committed_clear(struct bpk_committed *committed) {
    for (size_t i = 0; i < committed->count && committed->contents; i++) {
        bpk_content_unref(committed->contents[i].content, true);
        free(committed->contents[i].owned);
    }
    for (size_t i = 0; i < committed->left_out_count && committed->left_out; i++)
        free(committed->left_out[i]);
    free(committed->contents);
    free(committed->left_out);
    *committed = (struct bpk_committed){0};
}

int bpk_state_set_base(struct bpk_edits *edits, struct bpk_pack *pack) {
    struct bpk_names *tensors;
    struct bpk_names *keys;
    int r = bpk_names_new(pack, BPK_NAMES_TENSORS, &tensors);
    if (r < 0)
        return r;
    r = bpk_names_new(pack, BPK_NAMES_METADATA, &keys);
    if (r < 0) {
        bpk_names_free(tensors);
        return r;
    }
    bpk_names_free(edits->tensor_names);
    bpk_names_free(edits->key_names);
    struct bpk_pack *old = edits->base;
    edits->tensor_names = tensors;
    edits->key_names = keys;
    edits->base = bpk_pack_ref(pack);
    bpk_pack_unref(old);
    return 0;
}

static bool is_left_out(const struct bpk_committed *committed, const char *stem) {
    return committed->left_out_count > 0 &&
           bsearch(&stem, committed->left_out, committed->left_out_count, sizeof(char *),
                   bpk_judge_compare_names) != NULL;
}

/* Whether what the entry says went into the commit. */
static bool was_taken(struct bpk_edits *edits, const struct bpk_committed *committed,
                      const struct bpk_entry *entry) {
    const char *name = entry->key + 1;
    char stem[BPK_FILE_NAME_BUF];
    struct bpk_str part = {name, strlen(name)};
    if (entry->changed > committed->frozen_at)
        return false;
    if (entry->file && entry->file->changed > committed->frozen_at)
        return false;
    if (entry->key[0] != BPK_IN_TENSORS)
        return !committed->leaves_maps_out;
    if (bpk_state_is_text(edits, BPK_IN_TENSORS, name))
        (void)bpk_rules_sidecar_stem(name, &part);
    if (part.len >= sizeof(stem))
        return false;
    memcpy(stem, part.bytes, part.len);
    stem[part.len] = '\0';
    return !is_left_out(committed, stem);
}

static void free_entry(struct bpk_edits *edits, struct bpk_entry *entry) {
    HASH_DEL(edits->entries, entry);
    free(entry);
}

/* A file whose name the pack lost with the commit. */
static void drop_named(struct bpk_edits *edits, struct bpk_entry *entry) {
    struct bpk_file *file = entry->file;
    bpk_state_stale(edits, file->number);
    free_entry(edits, entry);
    free(file->name);
    file->name = NULL;
    if (file->opens == 0)
        bpk_state_drop_file(edits, file);
}

/* The file says what the base says: only its number is its own. */
static void clean_file(struct bpk_edits *edits, struct bpk_entry *entry) {
    struct bpk_file *file = entry->file;
    bool is_text = bpk_state_is_text(edits, (enum bpk_folder)entry->key[0], entry->key + 1);
    if (is_text && (file->unparsed || file->verdict != BPK_TEXT_GOOD || file->write_opens > 0))
        return;
    bpk_content_unref(file->content, false);
    file->content = NULL;
    free(file->moved_from);
    file->moved_from = NULL;
    entry->clean = true;
    if (is_text)
        bpk_state_stale(edits, file->number);
}

static void settle_entry(struct bpk_edits *edits, const struct bpk_committed *committed,
                         struct bpk_entry *entry) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    const char *name = entry->key + 1;
    if (entry->clean || !was_taken(edits, committed, entry))
        return;
    bool in_base = bpk_state_base_has(edits, folder, name);
    if (!entry->file) {
        if (!in_base)
            free_entry(edits, entry);
        else if (bpk_state_is_text(edits, folder, name))
            free_entry(edits, entry); /* a sidecar that was hidden until now */
        return;
    }
    if (in_base) {
        clean_file(edits, entry);
        return;
    }
    /* Scratch, backups and pending files stay; a sidecar whose tensor is gone does not. */
    if (bpk_state_is_text(edits, folder, name) && entry->file->write_opens == 0 &&
        (!entry->file->content || entry->file->verdict == BPK_TEXT_GOOD))
        drop_named(edits, entry);
}

static void settle_stems(struct bpk_edits *edits, const struct bpk_committed *committed) {
    struct bpk_stem *stem;
    struct bpk_stem *next;
    HASH_ITER(hh, edits->stems, stem, next) {
        if (stem->changed <= committed->frozen_at && !is_left_out(committed, stem->name))
            bpk_state_free_stem(edits, stem);
    }
}

static void settle_maps(struct bpk_edits *edits, const struct bpk_committed *committed) {
    if (committed->leaves_maps_out || edits->maps_changed > committed->frozen_at)
        return;
    struct bpk_override *override;
    struct bpk_override *next;
    HASH_ITER(hh, edits->overrides, override, next) {
        HASH_DEL(edits->overrides, override);
        free(override->value);
        free(override);
    }
    edits->map_replaced = false;
    edits->has_scalars = false;
    bpk_scalar_map_clear(&edits->scalars);
}

int bpk_state_rebase(struct bpk_edits *edits, struct bpk_pack *pack,
                     const struct bpk_committed *committed) {
    uint32_t index;
    int r = bpk_state_set_base(edits, pack);
    if (r < 0)
        return r;
    edits->base_id = committed->base_id;
    for (size_t i = 0; i < committed->count; i++) {
        struct bpk_content *content = committed->contents[i].content;
        if (content && bpk_pack_find_tensor(pack, committed->contents[i].name, &index) == 0)
            bpk_content_become_tensor(content, pack, index);
    }
    settle_stems(edits, committed);
    struct bpk_entry *entry;
    struct bpk_entry *next;
    HASH_ITER(hh, edits->entries, entry, next)
    settle_entry(edits, committed, entry);
    settle_maps(edits, committed);
    return 0;
}
