/* After a commit: what it took in is the base's now, and what is left stands on the new base. All
 * locked. */
#include "edit/state.h"

#include "pack/util.h"

#include <errno.h>
#include <stdio.h>
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

/* A file name that was cut goes on standing for its tensor, though `pack` does not have it. */
static int keep_cut_names(struct bpk_edits *edits, const struct bpk_pack *pack) {
    enum { SHORT = BPK_FILE_NAME_MAX / 3 }; /* bytes that have room even where all are encoded */
    const struct bpk_pack *base = edits->base;
    char file[BPK_FILE_NAME_BUF];
    uint32_t index;
    for (uint32_t i = 0; base && i < (uint32_t)base->meta.tensor_count; i++) {
        struct bpk_str name = bpk_pack_tensor_name(base, i);
        struct bpk_cut *cut;
        if (name.len <= SHORT || bpk_name_encode(name, file) > 0 ||
            bpk_pack_find_tensor(pack, name, &index) == 0)
            continue;
        bpk_names_file(edits->tensor_names, i, file);
        HASH_FIND_STR(edits->cuts, file, cut);
        if (cut)
            continue;
        cut = calloc(1, sizeof(*cut) + name.len + 1);
        if (!cut)
            return -ENOMEM;
        strcpy(cut->file, file);
        memcpy(cut->name, name.bytes, name.len);
        cut->name_len = name.len;
        HASH_ADD_STR(edits->cuts, file, cut);
        if (!cut->hh.tbl) {
            free(cut);
            return -ENOMEM;
        }
    }
    return 0;
}

int bpk_state_prepare_base(struct bpk_edits *edits, struct bpk_pack *pack) {
    struct bpk_prepared made = {.pack = pack};
    int r = bpk_names_new(pack, BPK_NAMES_TENSORS, &made.tensor_names);
    if (r == 0)
        r = bpk_names_new(pack, BPK_NAMES_METADATA, &made.key_names);
    if (r == 0)
        r = keep_cut_names(edits, pack);
    if (r < 0) {
        bpk_names_free(made.tensor_names);
        bpk_names_free(made.key_names);
        return r;
    }
    bpk_names_free(edits->prepared.tensor_names);
    bpk_names_free(edits->prepared.key_names);
    edits->prepared = made;
    return 0;
}

int bpk_state_set_base(struct bpk_edits *edits, struct bpk_pack *pack) {
    int r = edits->prepared.pack == pack ? 0 : bpk_state_prepare_base(edits, pack);
    if (r < 0)
        return r;
    bpk_names_free(edits->tensor_names);
    bpk_names_free(edits->key_names);
    edits->generation++;
    struct bpk_pack *old = edits->base;
    edits->tensor_names = edits->prepared.tensor_names;
    edits->key_names = edits->prepared.key_names;
    edits->prepared = (struct bpk_prepared){0};
    edits->base = bpk_pack_ref(pack);
    bpk_pack_unref(old);
    return 0;
}

bool bpk_committed_left_out(const struct bpk_committed *committed, const char *name) {
    return committed->left_out_count > 0 &&
           bsearch(&name, committed->left_out, committed->left_out_count, sizeof(char *),
                   bpk_judge_compare_names) != NULL;
}

/* The map that a text belongs to; 0: none. */
static unsigned map_of(enum bpk_folder folder, const char *name) {
    if (folder == BPK_IN_METADATA || strcmp(name, "metadata.json") == 0)
        return BPK_MAP_METADATA;
    return strcmp(name, "scalars.json") == 0 ? BPK_MAP_SCALARS : 0;
}

/* Whether what the entry says went into the commit. */
static bool was_taken(struct bpk_edits *edits, const struct bpk_committed *committed,
                      const struct bpk_entry *entry) {
    const char *name = entry->key + 1;
    char stem[BPK_FILE_NAME_BUF];
    char path[sizeof("metadata/") + BPK_FILE_NAME_BUF];
    struct bpk_str part = {name, strlen(name)};
    if (entry->changed > committed->frozen_at)
        return false;
    if (entry->file && entry->file->changed > committed->frozen_at)
        return false;
    if (entry->key[0] != BPK_IN_TENSORS &&
        (committed->leaves_maps_out & map_of((enum bpk_folder)entry->key[0], name)))
        return false;
    if (entry->key[0] == BPK_IN_METADATA) {
        (void)snprintf(path, sizeof(path), "metadata/%s", name);
        return !bpk_committed_left_out(committed, path);
    }
    if (entry->key[0] == BPK_IN_ROOT)
        return true;
    if (bpk_state_is_text(edits, BPK_IN_TENSORS, name))
        (void)bpk_rules_sidecar_stem(name, &part);
    if (part.len >= sizeof(stem))
        return false;
    memcpy(stem, part.bytes, part.len);
    stem[part.len] = '\0';
    return !bpk_committed_left_out(committed, stem);
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

/* Whether somebody may go on writing at the text as it is. */
static bool is_held(const struct bpk_committed *committed, const struct bpk_file *file) {
    return file->write_opens > 0 && !committed->is_last;
}

/* The file says what the base says: only its number is its own. */
static void clean_file(struct bpk_edits *edits, const struct bpk_committed *committed,
                       struct bpk_entry *entry) {
    struct bpk_file *file = entry->file;
    bool is_text = bpk_state_is_text(edits, (enum bpk_folder)entry->key[0], entry->key + 1);
    if (is_text && (file->unparsed || file->verdict != BPK_TEXT_GOOD || is_held(committed, file)))
        return;
    bpk_content_unref(file->content, false);
    file->content = NULL;
    (void)bpk_state_set_aside(edits, file, file->folder, NULL);
    entry->clean = true;
    if (is_text)
        bpk_state_stale(edits, file->number);
}

/* Whether no tensor can have that name: what is there can only be pending, and its sidecar stays
 * with it. */
static bool is_misspelled(struct bpk_edits *edits, const char *stem) {
    char buffer[BPK_FILE_NAME_BUF];
    struct bpk_str name;
    return !bpk_state_tensor_name(edits, stem, buffer, &name);
}

static bool is_of_pending(struct bpk_edits *edits, enum bpk_folder folder, const char *sidecar) {
    char stem[BPK_FILE_NAME_BUF];
    struct bpk_str part;
    if (folder != BPK_IN_TENSORS || !bpk_rules_sidecar_stem(sidecar, &part) ||
        part.len >= sizeof(stem))
        return false;
    memcpy(stem, part.bytes, part.len);
    stem[part.len] = '\0';
    return is_misspelled(edits, stem) && bpk_state_exists(edits, folder, stem);
}

/* What was moved aside from the name is a backup like any other then. */
static int put_back(struct bpk_edits *edits, struct bpk_entry *entry) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    struct bpk_file *aside = bpk_state_find_aside(edits, folder, entry->key + 1);
    if (aside)
        (void)bpk_state_set_aside(edits, aside, folder, NULL);
    return bpk_state_put_back(edits, entry);
}

static int settle_entry(struct bpk_edits *edits, const struct bpk_committed *committed,
                        struct bpk_entry *entry) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    const char *name = entry->key + 1;
    bool in_base = bpk_state_base_has(edits, folder, name);
    if (entry->clean && !in_base) { /* a sidecar whose tensor went */
        drop_named(edits, entry);
        return 0;
    }
    if (entry->clean || !was_taken(edits, committed, entry))
        return 0;
    if (!entry->file) {
        if (in_base) /* hidden until now, or moved aside */
            return put_back(edits, entry);
        free_entry(edits, entry);
        return 0;
    }
    if (in_base) {
        clean_file(edits, committed, entry);
        return 0;
    }
    /* Scratch, backups and pending files stay; a sidecar whose tensor is gone does not. */
    if (bpk_state_is_text(edits, folder, name) && !is_of_pending(edits, folder, name) &&
        !is_held(committed, entry->file) &&
        (!entry->file->content || entry->file->verdict == BPK_TEXT_GOOD))
        drop_named(edits, entry);
    else if (!entry->file->aside || !bpk_committed_left_out(committed, entry->file->aside->name))
        entry->file->has_param_id = false; /* as the name that it was moved from forgets it */
    return 0;
}

/* An untouched sidecar goes with its tensor: the kernel may still know it. */
static void stale_lost_sidecar(struct bpk_edits *edits, const char *stem) {
    char sidecar[BPK_FILE_NAME_BUF + 8];
    (void)snprintf(sidecar, sizeof(sidecar), "%.255s.json", stem);
    if (!bpk_state_exists(edits, BPK_IN_TENSORS, sidecar))
        bpk_state_stale(edits, edits->number_of(BPK_IN_TENSORS, sidecar, edits->number_context));
}

static void settle_stems(struct bpk_edits *edits, const struct bpk_committed *committed) {
    struct bpk_stem *stem;
    struct bpk_stem *next;
    HASH_ITER(hh, edits->stems, stem, next) {
        bool stays = bpk_committed_left_out(committed, stem->name) ||
                     (is_misspelled(edits, stem->name) &&
                      bpk_state_exists(edits, BPK_IN_TENSORS, stem->name));
        if (stem->changed > committed->frozen_at || stays)
            continue;
        stale_lost_sidecar(edits, stem->name);
        bpk_state_free_stem(edits, stem);
    }
}

static void settle_maps(struct bpk_edits *edits, const struct bpk_committed *committed) {
    if (edits->maps_changed > committed->frozen_at)
        return;
    if (!(committed->leaves_maps_out & BPK_MAP_METADATA)) {
        struct bpk_override *override;
        struct bpk_override *next;
        HASH_ITER(hh, edits->overrides, override, next) {
            struct bpk_str key = {override->key, override->key_len};
            if (bpk_state_key_left_out(edits, committed, key))
                continue;
            HASH_DEL(edits->overrides, override);
            free(override->value);
            free(override);
        }
        edits->map_replaced = false;
    }
    if (!(committed->leaves_maps_out & BPK_MAP_SCALARS)) {
        edits->has_scalars = false;
        bpk_scalar_map_clear(&edits->scalars);
    }
}

/* What shows through from the old base shows through from the new one: a tensor that the commit
 * changed lends no bytes (commit.c sees to that). */
static void rebase_contents(struct bpk_edits *edits, const struct bpk_pack *old,
                            struct bpk_pack *pack) {
    struct bpk_file *file;
    struct bpk_file *next;
    uint32_t index;
    HASH_ITER(by_number, edits->files, file, next) {
        struct bpk_content *bottom = file->content;
        if (!file->name) /* it keeps the pack that it was of */
            continue;
        while (bottom && bottom->below)
            bottom = bottom->below;
        if (bottom && bottom->pack == old &&
            bpk_pack_find_tensor(pack, bpk_pack_tensor_name(old, bottom->index), &index) == 0)
            bpk_content_rebase(bottom, pack, index);
    }
}

/* A name that the base has and the old one did not have, and that is in no table: it has no number
 * of its own yet, or it was removed since (`is_gone`). */
static int show_name(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                     bool is_gone) {
    if (bpk_state_entry(edits, folder, name))
        return 0;
    int r = bpk_state_set_entry(edits, folder, name, NULL);
    struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    return r < 0 || !entry || is_gone ? r : put_back(edits, entry);
}

/* Whether what had a name left it after the commit was frozen. */
static bool left_since(struct bpk_edits *edits, const struct bpk_committed *committed,
                       enum bpk_folder folder, const char *name) {
    const struct bpk_file *aside = bpk_state_find_aside(edits, folder, name);
    return !aside || aside->changed > committed->frozen_at;
}

static int show_tensor(struct bpk_edits *edits, const struct bpk_committed *committed,
                       uint32_t index) {
    char name[BPK_FILE_NAME_BUF + 8];
    size_t len = bpk_names_file(edits->tensor_names, index, name);
    bool is_gone = !bpk_state_entry(edits, BPK_IN_TENSORS, name) &&
                   left_since(edits, committed, BPK_IN_TENSORS, name);
    int r = show_name(edits, BPK_IN_TENSORS, name, is_gone);
    strcpy(name + len, ".json");
    return r < 0 ? r : show_name(edits, BPK_IN_TENSORS, name, is_gone);
}

/* Tensors and keys that were moved aside before the base had them, and sidecars that were removed
 * before that, are there again. */
static int show_names(struct bpk_edits *edits, const struct bpk_pack *old,
                      const struct bpk_committed *committed) {
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_file *file;
    struct bpk_file *next;
    struct bpk_str key;
    struct bpk_str value;
    uint32_t index;
    int r = 0;
    for (size_t i = 0; i < committed->count && r == 0; i++) {
        if (bpk_pack_find_tensor(old, committed->contents[i].name, &index) < 0 &&
            bpk_pack_find_tensor(edits->base, committed->contents[i].name, &index) == 0)
            r = show_tensor(edits, committed, index);
    }
    HASH_ITER(by_number, edits->files, file, next) {
        if (r < 0 || !file->name || !file->aside || file->aside->folder != BPK_IN_METADATA ||
            strlen(file->aside->name) >= sizeof(name))
            continue;
        strcpy(name, file->aside->name); /* the file is aside no more once it is shown */
        if (bpk_names_find(edits->key_names, (struct bpk_str){name, strlen(name)}, &index) < 0)
            continue;
        bpk_pack_metadata(edits->base, index, &key, &value);
        if (bpk_pack_find_metadata(old, key, &index) < 0)
            r = show_name(edits, BPK_IN_METADATA, name,
                          left_since(edits, committed, BPK_IN_METADATA, name));
    }
    return r;
}

int bpk_state_rebase(struct bpk_edits *edits, struct bpk_pack *pack,
                     const struct bpk_committed *committed) {
    uint32_t index;
    struct bpk_pack *old = bpk_pack_ref(edits->base);
    int r = bpk_state_set_base(edits, pack);
    if (r < 0) {
        bpk_pack_unref(old);
        return r;
    }
    edits->base_id = committed->base_id;
    for (size_t i = 0; i < committed->count; i++) {
        struct bpk_content *content = committed->contents[i].content;
        if (content && bpk_pack_find_tensor(pack, committed->contents[i].name, &index) == 0)
            bpk_content_become_tensor(content, pack, index);
    }
    if (old != pack)
        rebase_contents(edits, old, pack);
    settle_stems(edits, committed);
    struct bpk_entry *entry;
    struct bpk_entry *next;
    HASH_ITER(hh, edits->entries, entry, next) {
        if (r == 0)
            r = settle_entry(edits, committed, entry);
    }
    settle_maps(edits, committed);
    if (r == 0)
        r = show_names(edits, old, committed);
    /* Keys that were removed since. */
    if (r == 0 && edits->maps_changed > committed->frozen_at)
        r = bpk_state_hide_keys(edits);
    bpk_pack_unref(old);
    return r;
}
