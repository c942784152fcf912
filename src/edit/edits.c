/* Opening and closing the edits of a pack, looking names up, listing. */
#include "edit/state.h"

#include "pack/diag.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

/* ---- opening --------------------------------------------------------------------------------- */

static int lock_pack(struct bpk_edits *edits, struct bpk_diag *diag) {
    struct stat now;
    int fd = fcntl(bpk_pack_fd(edits->base), F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return bpk_diag_set(diag, -errno, BPK_NO_OFFSET, "cannot lock: %s", strerror(errno));
    edits->lock_fd = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return bpk_diag_set(diag, -EBUSY, BPK_NO_OFFSET,
                            "it is mounted for writing, or being written: 'bpk status' shows the "
                            "edits of a mount");
    /* Between the opening and the lock a commit may have put another file there. */
    if (stat(edits->path, &now) < 0 || !bpk_same_file(&now, bpk_pack_stat(edits->base)))
        return bpk_diag_set(diag, -EAGAIN, BPK_NO_OFFSET, "it was replaced just now");
    return 0;
}

/* A journal keeps the numbers of the mount that wrote it. Those of the pack's own files may lead to
 * others by now, and a file that was moved may meet an untouched one under its number. */
static int renumber(struct bpk_edits *edits) {
    struct bpk_file *file;
    struct bpk_file *next;
    int r = 0;
    HASH_ITER(by_number, edits->files, file, next) {
        if (r < 0 || file->number >= BPK_FIRST_NEW_NUMBER ||
            file->number == edits->number_of(file->folder, file->name, edits->number_context))
            continue;
        r = bpk_state_renumber(edits, file, edits->next_number++);
    }
    HASH_ITER(by_number, edits->files, file, next) {
        if (r == 0 && file->number >= BPK_ARRAY_NUMBERS)
            r = bpk_state_renumber_array(edits, file);
    }
    return r;
}

static int compare_ids(const void *a, const void *b) {
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

/* Removes data files that no file of the mount has any more. */
static void sweep_data(struct bpk_edits *edits) {
    _cleanup_free_ uint64_t *ids = NULL;
    size_t capacity = 0;
    size_t count = 0;
    struct bpk_file *file;
    struct bpk_file *next;
    HASH_ITER(by_number, edits->files, file, next) {
        for (const struct bpk_content *c = file->content; c; c = c->below) {
            if (bpk_grow((void **)&ids, &capacity, count, sizeof(*ids)) < 0)
                return;
            ids[count++] = c->id;
        }
    }
    if (count > 0)
        qsort(ids, count, sizeof(*ids), compare_ids);
    bpk_store_sweep(&edits->store, ids, count);
}

static void count_edit(void *count, const struct bpk_edit *edit) {
    (void)edit;
    ++*(size_t *)count;
}

static int read_back(struct bpk_edits *edits, const struct bpk_edits_options *options,
                     size_t *ret_recovered, struct bpk_diag *diag) {
    const char *pack_name = strrchr(edits->path, '/') + 1;
    struct bpk_committed committed = {0};
    int r = bpk_store_open(&edits->store, diag);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0 && options->discard)
        r = bpk_store_remove(&edits->store, true);
    if (edits->store.journal < 0) {
        int cleared = bpk_leftover_clear(edits, pack_name, &committed, diag);
        return r == 0 || r == -ENOENT ? cleared : r;
    }
    r = bpk_record_replay(edits, options->force, &committed, diag);
    if (r == 0)
        r = bpk_leftover_clear(edits, pack_name, &committed, diag);
    if (r == 0 && committed.contents)
        r = bpk_state_rebase(edits, edits->base, &committed);
    bpk_committed_clear(&committed);
    if (r == 0)
        r = renumber(edits);
    if (r == 0 && !options->only_looks)
        r = bpk_state_compact(edits, true);
    if (r == 0 && !options->only_looks)
        sweep_data(edits);
    /* On a full disk the journal stays as it is: it says the same, and is enough to look at. */
    edits->broken = options->only_looks || r == -ENOSPC || r == -EDQUOT;
    if (r == -ENOSPC || r == -EDQUOT)
        r = 0;
    if (r < 0)
        return diag && diag->code == r
                   ? r
                   : bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot take up the edits in '%s': %s",
                                  edits->store.name, strerror(-r));
    bpk_edits_list(edits, count_edit, ret_recovered);
    return 0;
}

int bpk_edits_open(const char *path, struct bpk_pack *pack, const struct bpk_edits_options *options,
                   struct bpk_edits **ret_edits, size_t *ret_recovered, struct bpk_diag *diag) {
    struct bpk_edits *edits = calloc(1, sizeof(*edits));
    if (!edits)
        return -ENOMEM;
    *ret_recovered = 0;
    edits->parent = -1;
    edits->lock_fd = -1;
    edits->store.folder = -1;
    edits->store.journal = -1;
    edits->next_number = BPK_FIRST_NEW_NUMBER + 1;
    edits->next_content = 1;
    edits->number_of = options->number_of;
    edits->number_context = options->number_context;
    edits->ignore_owner = options->ignore_owner;
    edits->is_cancelled = options->is_cancelled;
    memcpy(edits->folder_numbers, options->folder_numbers, sizeof(edits->folder_numbers));
    pthread_mutex_init(&edits->lock, NULL);
    pthread_cond_init(&edits->committed, NULL);
    _cleanup_free_ char *name = NULL;
    int r = bpk_state_set_base(edits, pack);
    edits->path = realpath(path, NULL);
    if (r == 0 && !edits->path)
        r = -errno;
    if (r == 0)
        r = bpk_open_folder(edits->path, &edits->parent, &name);
    if (r == 0)
        r = bpk_store_init(&edits->store, edits->parent, name);
    edits->store.lock = &edits->lock;
    edits->base_id = bpk_state_base_id(pack);
    if (r < 0)
        bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot prepare for edits: %s", strerror(-r));
    if (r == 0)
        r = lock_pack(edits, diag);
    if (r == 0 && options->refuse && bpk_store_is_there(edits->path))
        r = bpk_diag_set(diag, -EEXIST, BPK_NO_OFFSET, "edits are waiting beside it");
    if (r == 0)
        r = read_back(edits, options, ret_recovered, diag);
    if (r < 0) {
        bpk_edits_close(edits);
        return r;
    }
    *ret_edits = edits;
    return 0;
}

bool bpk_edits_are_damaged(const struct bpk_edits *edits) {
    return edits->store.damaged;
}

static void free_stems_and_maps(struct bpk_edits *edits) {
    struct bpk_stem *stem;
    struct bpk_stem *next_stem;
    HASH_ITER(hh, edits->stems, stem, next_stem)
    bpk_state_free_stem(edits, stem);
    struct bpk_override *override;
    struct bpk_override *next_override;
    HASH_ITER(hh, edits->overrides, override, next_override) {
        HASH_DEL(edits->overrides, override);
        free(override->value);
        free(override);
    }
    bpk_scalar_map_clear(&edits->scalars);
    edits->map_replaced = false;
    edits->has_scalars = false;
}

static void free_tables(struct bpk_edits *edits) {
    struct bpk_file *file;
    struct bpk_file *next_file;
    HASH_ITER(by_number, edits->files, file, next_file) {
        bpk_content_unref(file->content, file->name != NULL);
        file->content = NULL;
        bpk_state_drop_file(edits, file);
    }
    struct bpk_entry *entry;
    struct bpk_entry *next_entry;
    HASH_ITER(hh, edits->entries, entry, next_entry) {
        HASH_DEL(edits->entries, entry);
        free(entry);
    }
    free_stems_and_maps(edits);
    struct bpk_cut *cut;
    struct bpk_cut *next_cut;
    HASH_ITER(hh, edits->cuts, cut, next_cut) {
        HASH_DEL(edits->cuts, cut);
        free(cut);
    }
    struct bpk_open *open;
    struct bpk_open *next_open;
    HASH_ITER(hh, edits->opens, open, next_open)
    bpk_state_free_open(edits, open);
}

void bpk_edits_close(struct bpk_edits *edits) {
    if (!edits)
        return;
    free_tables(edits);
    bpk_state_free_versions(edits);
    bpk_state_free_view_numbers(edits);
    bpk_store_close(&edits->store);
    bpk_names_free(edits->tensor_names);
    bpk_names_free(edits->key_names);
    bpk_names_free(edits->prepared.tensor_names);
    bpk_names_free(edits->prepared.key_names);
    bpk_pack_unref(edits->base);
    bpk_pack_unref(edits->replaced);
    if (edits->lock_fd >= 0)
        close(edits->lock_fd);
    if (edits->parent >= 0)
        close(edits->parent);
    bpk_outbuf_clear(&edits->record);
    free(edits->stale);
    free(edits->path);
    pthread_cond_destroy(&edits->committed);
    pthread_mutex_destroy(&edits->lock);
    free(edits);
}

struct bpk_pack *bpk_edits_base(struct bpk_edits *edits) {
    pthread_mutex_lock(&edits->lock);
    struct bpk_pack *base = bpk_pack_ref(edits->base);
    pthread_mutex_unlock(&edits->lock);
    return base;
}

struct bpk_pack *bpk_edits_take_replaced(struct bpk_edits *edits) {
    pthread_mutex_lock(&edits->lock);
    struct bpk_pack *replaced = bpk_steal_ptr(edits->replaced);
    pthread_mutex_unlock(&edits->lock);
    return replaced;
}

uint64_t bpk_edits_generation(struct bpk_edits *edits) {
    pthread_mutex_lock(&edits->lock);
    uint64_t generation = edits->generation;
    pthread_mutex_unlock(&edits->lock);
    return generation;
}

unsigned bpk_edits_idle_seconds(struct bpk_edits *edits) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&edits->lock);
    time_t since = now.tv_sec - edits->last_change;
    pthread_mutex_unlock(&edits->lock);
    return since < 0 ? 0 : (unsigned)since;
}

time_t bpk_edits_last_commit(struct bpk_edits *edits) {
    pthread_mutex_lock(&edits->lock);
    time_t when = edits->last_commit;
    pthread_mutex_unlock(&edits->lock);
    return when;
}

/* ---- names ----------------------------------------------------------------------------------- */

enum bpk_found bpk_edits_lookup(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                                uint64_t *ret_number) {
    enum bpk_found found = BPK_FOUND_NOTHING;
    pthread_mutex_lock(&edits->lock);
    const struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    if (entry && entry->file) {
        *ret_number = entry->file->number;
        found = BPK_FOUND_FILE;
    } else if (!entry && bpk_state_base_has(edits, folder, name)) {
        found = BPK_FOUND_BASE;
    }
    pthread_mutex_unlock(&edits->lock);
    return found;
}

void bpk_edits_each_name(struct bpk_edits *edits, unsigned folders, bpk_name_fn *take,
                         void *context) {
    struct bpk_entry *entry;
    struct bpk_entry *next;
    pthread_mutex_lock(&edits->lock);
    HASH_ITER(hh, edits->entries, entry, next) {
        if (folders & 1U << entry->key[0])
            take(context, (enum bpk_folder)entry->key[0], entry->key + 1, entry->file != NULL);
    }
    pthread_mutex_unlock(&edits->lock);
}

/* ---- dropping -------------------------------------------------------------------------------- */

static void stale_sidecar(struct bpk_edits *edits, const char *stem) {
    char sidecar[300];
    (void)snprintf(sidecar, sizeof(sidecar), "%s.json", stem);
    bpk_state_stale_name(edits, BPK_IN_TENSORS, sidecar);
}

/* The name is as the base has it, and leads to another file than before: no cache of the kernel can
 * show what was discarded, and who has that open goes on with it as after an unlink. */
static int discard_entry(struct bpk_edits *edits, struct bpk_entry *entry) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    struct bpk_file *file = entry->file;
    if (entry->clean)
        return 0;
    if (folder == BPK_IN_TENSORS && !bpk_state_is_text(edits, folder, entry->key + 1))
        stale_sidecar(edits, entry->key + 1);
    entry->file = NULL;
    if (file) {
        bpk_state_stale(edits, file->number);
        (void)bpk_state_keep_for_handles(edits, file);
        (void)bpk_state_part_view(edits, file);
        free(file->name);
        file->name = NULL;
        if (file->opens == 0)
            bpk_state_drop_file(edits, file);
    }
    if (bpk_state_base_has(edits, folder, entry->key + 1))
        return bpk_state_put_back(edits, entry);
    HASH_DEL(edits->entries, entry);
    free(entry);
    return 0;
}

int bpk_edits_discard(struct bpk_edits *edits, bpk_dropped_fn *dropped, void *context) {
    pthread_mutex_lock(&edits->lock);
    edits->generation++;
    edits->all_versions = edits->generation;
    int r = edits->committing ? -EBUSY : 0;
    if (r == 0) {
        struct bpk_entry *entry;
        struct bpk_entry *next;
        HASH_ITER(hh, edits->entries, entry, next) {
            if (dropped && !entry->clean)
                dropped(context, edits->folder_numbers[(int)entry->key[0]], entry->key + 1);
            if (r == 0)
                r = discard_entry(edits, entry);
        }
        struct bpk_stem *stem;
        struct bpk_stem *next_stem;
        HASH_ITER(hh, edits->stems, stem, next_stem)
        stale_sidecar(edits, stem->name);
        free_stems_and_maps(edits);
        bpk_outbuf_clear(&edits->record); /* what was kept for handles is no edit */
        edits->frames = 0;
        edits->broken = r < 0;
        if (r == 0)
            r = bpk_store_remove(&edits->store, true);
    }
    pthread_mutex_unlock(&edits->lock);
    return r;
}

/* Nothing was written to the file, and no sidecar or descriptor waits for that. */
static bool is_empty_scratch(struct bpk_edits *edits, const struct bpk_file *file) {
    char sidecar[BPK_FILE_NAME_BUF + 8];
    const struct bpk_stem *stem = bpk_state_stem(edits, file->name);
    if (bpk_state_is_text(edits, file->folder, file->name) || !bpk_judge_is_scratch(file))
        return false;
    (void)snprintf(sidecar, sizeof(sidecar), "%.255s.json", file->name);
    return file->folder != BPK_IN_TENSORS ||
           ((!stem || !stem->now) && !bpk_state_exists(edits, BPK_IN_TENSORS, sidecar));
}

/* Scratch, but for what a real name was moved to while that name is missing or has a problem. */
static bool is_spent_scratch(struct bpk_edits *edits, const struct bpk_entry *entry) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    const char *name = entry->key + 1;
    const struct bpk_file *file = entry->file;
    struct bpk_judged judged;
    char reason[400];
    if (!file || entry->clean || bpk_state_base_has(edits, folder, name) ||
        bpk_judge_array(edits, entry, reason, sizeof(reason)))
        return false;
    if (!file->target && !bpk_rules_is_scratch(name))
        return is_empty_scratch(edits, file);
    if (!file->aside)
        return true;
    if (!bpk_state_exists(edits, file->aside->folder, file->aside->name) ||
        bpk_judge_text(edits, file->aside->folder, file->aside->name, reason, sizeof(reason)))
        return false;
    if (file->aside->folder != BPK_IN_TENSORS ||
        bpk_state_is_text(edits, BPK_IN_TENSORS, file->aside->name))
        return true;
    if (bpk_judge_stem(edits, file->aside->name, &judged) < 0)
        return false;
    bpk_desc_unref(judged.desc);
    return judged.judgement != BPK_JUDGED_INVALID;
}

int bpk_edits_drop_scratch(struct bpk_edits *edits) {
    struct bpk_entry *entry;
    struct bpk_entry *next;
    bool dropped = false;
    pthread_mutex_lock(&edits->lock);
    HASH_ITER(hh, edits->entries, entry, next) {
        if (!is_spent_scratch(edits, entry))
            continue;
        bpk_state_drop_file(edits, entry->file);
        HASH_DEL(edits->entries, entry);
        free(entry);
        dropped = true;
    }
    int r = dropped && !edits->broken ? bpk_state_compact(edits, true) : 0;
    pthread_mutex_unlock(&edits->lock);
    return r;
}
