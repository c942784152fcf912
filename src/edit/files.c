/* Names and files: the tables, and what holds for any name. All locked. */
#include "edit/state.h"

#include "pack/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- entries --------------------------------------------------------------------------------- */

/* Room for a name of 255 bytes with ".json" behind it: where that was cut it would be the name. */
enum { KEY_MAX = 1 + BPK_FILE_NAME_BUF + 8 };

static size_t make_key(enum bpk_folder folder, const char *name, char key[KEY_MAX]) {
    size_t len = strnlen(name, KEY_MAX - 2);
    key[0] = (char)folder;
    memcpy(key + 1, name, len);
    key[1 + len] = '\0';
    return 1 + len;
}

struct bpk_entry *bpk_state_entry(struct bpk_edits *edits, enum bpk_folder folder,
                                  const char *name) {
    char key[KEY_MAX];
    size_t len = make_key(folder, name, key);
    struct bpk_entry *entry;
    HASH_FIND(hh, edits->entries, key, len, entry);
    return entry;
}

/* Names came or went, or what they show is another: the folder's time says so. */
static void note_folder(struct bpk_edits *edits, enum bpk_folder folder) {
    clock_gettime(CLOCK_REALTIME, &edits->folder_mtimes[folder]);
}

/* Says that the name leads to `file`, or that it is gone (NULL); journals it. */
int bpk_state_set_entry(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                        struct bpk_file *file) {
    char key[KEY_MAX];
    size_t len = make_key(folder, name, key);
    struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    bool was_there = bpk_state_exists(edits, folder, name);
    if (was_there != (file != NULL) || (entry && entry->file != file))
        note_folder(edits, folder);
    if (!entry) {
        entry = calloc(1, sizeof(*entry) + len + 1);
        if (!entry)
            return -ENOMEM;
        memcpy(entry->key, key, len + 1);
        entry->key_len = len;
        HASH_ADD(hh, edits->entries, key, len, entry);
        if (!entry->hh.tbl) {
            free(entry);
            return -ENOMEM;
        }
    }
    entry->file = file;
    entry->clean = false;
    entry->changed = edits->clock;
    bpk_record_entry(edits, entry);
    if (folder == BPK_IN_TENSORS)
        bpk_state_note_version(edits, name);
    /* That a name is gone is worth remembering only where the base has it. */
    if (!file && !bpk_state_base_has(edits, folder, name)) {
        HASH_DEL(edits->entries, entry);
        free(entry);
    }
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

struct bpk_file *bpk_state_file(struct bpk_edits *edits, uint64_t number) {
    struct bpk_file *file;
    HASH_FIND(by_number, edits->files, &number, sizeof(number), file);
    return file;
}

static void free_file(struct bpk_file *file) {
    bpk_content_unref(file->content, true);
    free(file->name);
    free(file->target);
    free(file->reason);
    free(file);
}

/* `key`: room for one. */
static size_t aside_key(enum bpk_folder folder, const char *name, char *key) {
    key[0] = (char)folder;
    return (size_t)(stpcpy(key + 1, name) - key);
}

struct bpk_file *bpk_state_find_aside(struct bpk_edits *edits, enum bpk_folder folder,
                                      const char *name) {
    char key[BPK_FILE_NAME_BUF + 8];
    struct bpk_aside *aside;
    if (strlen(name) >= BPK_FILE_NAME_BUF)
        return NULL;
    size_t len = aside_key(folder, name, key);
    HASH_FIND(hh, edits->asides, key, len, aside);
    return aside ? aside->file : NULL;
}

static void drop_aside(struct bpk_edits *edits, struct bpk_file *file) {
    if (!file->aside)
        return;
    HASH_DEL(edits->asides, file->aside);
    free(file->aside);
    file->aside = NULL;
}

int bpk_state_set_aside(struct bpk_edits *edits, struct bpk_file *file, enum bpk_folder folder,
                        const char *name) {
    drop_aside(edits, file);
    if (!name)
        return 0;
    struct bpk_file *other = bpk_state_find_aside(edits, folder, name);
    if (other)
        drop_aside(edits, other);
    struct bpk_aside *aside = calloc(1, sizeof(*aside) + strlen(name) + 2);
    if (!aside)
        return -ENOMEM;
    aside->file = file;
    aside->folder = folder;
    aside->name = aside->key + 1;
    aside->key_len = aside_key(folder, name, aside->key);
    HASH_ADD(hh, edits->asides, key, aside->key_len, aside);
    if (!aside->hh.tbl) {
        free(aside);
        return -ENOMEM;
    }
    file->aside = aside;
    return 0;
}

struct bpk_file *bpk_state_add_file(struct bpk_edits *edits, uint64_t number,
                                    enum bpk_folder folder, const char *name) {
    struct bpk_file *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    file->number = number;
    file->folder = folder;
    file->name = strdup(name);
    if (!file->name) {
        free(file);
        return NULL;
    }
    file->changed = edits->clock;
    HASH_ADD(by_number, edits->files, number, sizeof(file->number), file);
    if (!file->by_number.tbl) {
        free_file(file);
        return NULL;
    }
    return file;
}

int bpk_state_renumber(struct bpk_edits *edits, struct bpk_file *file, uint64_t number) {
    HASH_DELETE(by_number, edits->files, file);
    file->number = number;
    HASH_ADD(by_number, edits->files, number, sizeof(file->number), file);
    if (file->by_number.tbl)
        return 0;
    drop_aside(edits, file);
    free_file(file); /* it is in no table: nothing else can be done with it */
    return -ENOMEM;
}

void bpk_state_drop_file(struct bpk_edits *edits, struct bpk_file *file) {
    HASH_DELETE(by_number, edits->files, file);
    bpk_content_unref(file->content, false);
    file->content = NULL;
    drop_aside(edits, file);
    free_file(file);
}

/* ---- the base -------------------------------------------------------------------------------- */

bool bpk_state_find_base(const struct bpk_edits *edits, const char *name, uint32_t *ret_index) {
    char decoded[BPK_FILE_NAME_BUF];
    char again[BPK_FILE_NAME_BUF];
    struct bpk_str file = {name, strlen(name)};
    if (file.len == 0 || file.len > BPK_FILE_NAME_MAX)
        return false;
    int len = bpk_name_decode(file, decoded);
    if (len >= 0 &&
        bpk_pack_find_tensor(edits->base, (struct bpk_str){decoded, (size_t)len}, ret_index) == 0)
        return bpk_name_encode((struct bpk_str){decoded, (size_t)len}, again) == file.len &&
               memcmp(again, name, file.len) == 0;
    return bpk_names_find(edits->tensor_names, file, ret_index) == 0;
}

static bool base_has_key(const struct bpk_edits *edits, const char *name) {
    uint32_t index;
    return bpk_names_find(edits->key_names, (struct bpk_str){name, strlen(name)}, &index) == 0;
}

bool bpk_state_base_has(const struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    char stem[BPK_FILE_NAME_BUF];
    struct bpk_str part;
    uint32_t index;
    switch (folder) {
    case BPK_IN_ROOT:
        return strcmp(name, "metadata.json") == 0 || strcmp(name, "scalars.json") == 0 ||
               strcmp(name, "index.tsv") == 0;
    case BPK_IN_TENSORS:
        if (!bpk_rules_sidecar_stem(name, &part))
            return bpk_state_find_base(edits, name, &index);
        if (part.len >= sizeof(stem))
            return false;
        memcpy(stem, part.bytes, part.len);
        stem[part.len] = '\0';
        return bpk_state_find_base(edits, stem, &index);
    case BPK_IN_METADATA:
        return base_has_key(edits, name);
    case BPK_IN_NPY: /* the views there are of what there is now */
        return false;
    }
    return false;
}

bool bpk_state_exists(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    const struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    return entry ? entry->file != NULL : bpk_state_base_has(edits, folder, name);
}

bool bpk_state_tensor_name(const struct bpk_edits *edits, const char *file,
                           char buffer[BPK_FILE_NAME_BUF], struct bpk_str *ret_name) {
    const struct bpk_cut *cut;
    uint32_t index;
    if (bpk_state_find_base(edits, file, &index)) {
        *ret_name = bpk_pack_tensor_name(edits->base, index);
        return true;
    }
    *ret_name = (struct bpk_str){buffer, 0};
    if (bpk_rules_is_spelled_right(file, buffer, &ret_name->len))
        return true;
    HASH_FIND_STR(edits->cuts, file, cut);
    if (cut)
        *ret_name = (struct bpk_str){cut->name, cut->name_len};
    return cut != NULL;
}

bool bpk_state_is_part_of_pack(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    char buffer[BPK_FILE_NAME_BUF];
    struct bpk_str tensor;
    if (bpk_state_base_has(edits, folder, name) || bpk_state_is_text(edits, folder, name))
        return true;
    const struct bpk_stem *stem = folder == BPK_IN_TENSORS ? bpk_state_stem(edits, name) : NULL;
    return stem && stem->now && bpk_state_tensor_name(edits, name, buffer, &tensor);
}

bool bpk_edits_is_as_in(struct bpk_edits *edits, const struct bpk_pack *pack, const char *name) {
    char stem[BPK_FILE_NAME_BUF];
    struct bpk_str part = {name, strlen(name)};
    pthread_mutex_lock(&edits->lock);
    bool same = edits->base == pack;
    if (same && (edits->entries || edits->stems)) {
        bool is_sidecar = bpk_rules_sidecar_stem(name, &part);
        same = part.len < sizeof(stem) && !bpk_state_entry(edits, BPK_IN_TENSORS, name);
        if (same) {
            memcpy(stem, part.bytes, part.len);
            stem[part.len] = '\0';
            same = !bpk_state_stem(edits, stem) &&
                   !(is_sidecar && bpk_state_entry(edits, BPK_IN_TENSORS, stem));
        }
    }
    pthread_mutex_unlock(&edits->lock);
    return same;
}

uint64_t bpk_state_number_of(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    const struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    if (entry)
        return entry->file ? entry->file->number : 0;
    return edits->number_of(folder, name, edits->number_context);
}

int bpk_state_find_place(struct bpk_edits *edits, const struct bpk_place *place,
                         enum bpk_folder *ret_folder, const char **ret_name) {
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    if (file && !file->name)
        return -ENOENT;
    if (!file && (!place->name || bpk_state_entry(edits, place->folder, place->name)))
        return -ESTALE;
    if (!file && !bpk_state_base_has(edits, place->folder, place->name))
        return -ENOENT;
    *ret_folder = file ? file->folder : place->folder;
    *ret_name = file ? file->name : place->name;
    return 0;
}

/* The file of a place, with an entry of its own from now on. -ESTALE if its name leads elsewhere
 * by now, -ENOENT if it is in no table and not in the base. */
int bpk_state_touch(struct bpk_edits *edits, const struct bpk_place *place,
                    struct bpk_file **ret_file) {
    struct bpk_file *file = bpk_state_file(edits, place->number);
    if (!file) {
        enum bpk_folder folder;
        const char *name;
        int r = bpk_state_find_place(edits, place, &folder, &name);
        if (r < 0)
            return r;
        file = bpk_state_add_file(edits, place->number, folder, name);
        if (!file)
            return -ENOMEM;
        bpk_state_take_opens(edits, file);
        bpk_record_file(edits, file);
        r = bpk_state_set_entry(edits, place->folder, place->name, file);
        if (r < 0)
            return r;
    }
    if (bpk_state_is_clean(edits, file)) {
        /* A commit has taken it in: the journal does not know it any more. */
        bpk_record_file(edits, file);
        int r = bpk_state_set_entry(edits, file->folder, file->name, file);
        if (r < 0)
            return r;
    }
    file->changed = edits->clock;
    *ret_file = file;
    return 0;
}

bool bpk_state_is_clean(struct bpk_edits *edits, const struct bpk_file *file) {
    const struct bpk_entry *entry =
        file->name ? bpk_state_entry(edits, file->folder, file->name) : NULL;
    return entry && entry->clean && entry->file == file;
}

/* Whether the name is otherwise than the base has it. One that came and went is not. */
bool bpk_state_is_touched(struct bpk_edits *edits, const struct bpk_entry *entry) {
    return !entry->clean &&
           (entry->file ||
            bpk_state_base_has(edits, (enum bpk_folder)entry->key[0], entry->key + 1));
}

bool bpk_state_has_edits(struct bpk_edits *edits) {
    struct bpk_entry *entry;
    struct bpk_entry *next;
    HASH_ITER(hh, edits->entries, entry, next) {
        if (bpk_state_is_touched(edits, entry))
            return true;
    }
    return edits->stems || edits->overrides || edits->map_replaced || edits->has_scalars;
}

int bpk_state_put_back(struct bpk_edits *edits, struct bpk_entry *entry) {
    enum bpk_folder folder = (enum bpk_folder)entry->key[0];
    struct bpk_file *file = bpk_state_add_file(edits, edits->next_number++, folder, entry->key + 1);
    if (!file)
        return -ENOMEM;
    entry->file = file;
    entry->clean = true;
    note_folder(edits, folder);
    bpk_state_stale(edits, edits->folder_numbers[folder]);
    return 0;
}

/* ---- what the kernel is to forget ------------------------------------------------------------ */

void bpk_state_stale(struct bpk_edits *edits, uint64_t number) {
    if (number == 0 || bpk_grow((void **)&edits->stale, &edits->stale_capacity, edits->stale_count,
                                sizeof(edits->stale[0])) < 0)
        return;
    edits->stale[edits->stale_count++] = number;
}

void bpk_state_stale_name(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    if (!bpk_state_exists(edits, folder, name))
        return;
    bpk_state_stale(edits, bpk_state_number_of(edits, folder, name));
    note_folder(edits, folder);
}

/* ---- open handles ---------------------------------------------------------------------------- */

/* The handles that a file had before it was touched: they are in no other table. */
void bpk_state_take_opens(struct bpk_edits *edits, struct bpk_file *file) {
    struct bpk_open *open;
    HASH_FIND(hh, edits->opens, &file->number, sizeof(file->number), open);
    if (!open)
        return;
    file->opens = open->count;
    file->write_opens = open->writers;
    bpk_state_free_open(edits, open);
}

void bpk_state_free_open(struct bpk_edits *edits, struct bpk_open *open) {
    HASH_DEL(edits->opens, open);
    free(open->path);
    free(open);
}

/* NULL: out of memory, so that it is not counted. */
static struct bpk_open *add_open(struct bpk_edits *edits, uint64_t number) {
    struct bpk_open *open = calloc(1, sizeof(*open));
    if (!open)
        return NULL;
    open->number = number;
    HASH_ADD(hh, edits->opens, number, sizeof(open->number), open);
    if (open->hh.tbl)
        return open;
    free(open);
    return NULL;
}

static void add_handles(struct bpk_open *open, enum bpk_folder folder, const char *name,
                        unsigned count, unsigned writers) {
    open->count += count;
    open->writers += writers;
    if (writers > 0 && !open->path && name &&
        asprintf(&open->path, "%s%s", bpk_rules_folder_path(folder), name) < 0)
        open->path = NULL;
}

void bpk_state_give_opens(struct bpk_edits *edits, const struct bpk_file *file) {
    struct bpk_open *open = file->opens > 0 ? add_open(edits, file->number) : NULL;
    if (open)
        add_handles(open, file->folder, file->name, file->opens, file->write_opens);
}

bool bpk_state_is_open(struct bpk_edits *edits, uint64_t number) {
    const struct bpk_file *file = bpk_state_file(edits, number);
    struct bpk_open *open;
    HASH_FIND(hh, edits->opens, &number, sizeof(number), open);
    return open || (file && file->opens > 0);
}

void bpk_edits_opened(struct bpk_edits *edits, const struct bpk_place *place, bool for_writing) {
    pthread_mutex_lock(&edits->lock);
    struct bpk_file *file = bpk_state_file(edits, place->number);
    if (file) {
        file->opens++;
        file->write_opens += for_writing;
    } else {
        struct bpk_open *open;
        HASH_FIND(hh, edits->opens, &place->number, sizeof(place->number), open);
        if (!open)
            open = add_open(edits, place->number);
        if (open)
            add_handles(open, place->folder, place->name, 1, for_writing);
    }
    pthread_mutex_unlock(&edits->lock);
}

void bpk_state_close_unused(struct bpk_edits *edits, uint64_t number) {
    struct bpk_file *file = bpk_state_file(edits, number);
    if (!file)
        file = bpk_state_file(edits, bpk_state_viewed(edits, number));
    if (file && file->opens == 0 && file->content)
        bpk_content_close(file->content);
}

void bpk_edits_released(struct bpk_edits *edits, uint64_t number, bool for_writing) {
    pthread_mutex_lock(&edits->lock);
    struct bpk_file *file = bpk_state_file(edits, number);
    struct bpk_open *open;
    if (file) {
        file->opens -= file->opens > 0;
        file->write_opens -= for_writing && file->write_opens > 0;
        bpk_state_close_unused(edits, number);
        if (file->opens == 0 && !file->name)
            bpk_state_drop_file(edits, file);
    } else {
        HASH_FIND(hh, edits->opens, &number, sizeof(number), open);
        if (open)
            open->writers -= for_writing && open->writers > 0;
        if (open && --open->count == 0) {
            bpk_state_free_open(edits, open);
            open = NULL;
        }
        if (!open)
            bpk_state_close_unused(edits, number);
    }
    pthread_mutex_unlock(&edits->lock);
}

void bpk_edits_unused(struct bpk_edits *edits, uint64_t number) {
    pthread_mutex_lock(&edits->lock);
    bpk_state_close_unused(edits, number);
    pthread_mutex_unlock(&edits->lock);
}

size_t bpk_edits_each_writer(struct bpk_edits *edits, bpk_writer_fn *take, void *context) {
    size_t count = 0;
    struct bpk_file *file;
    struct bpk_file *next;
    pthread_mutex_lock(&edits->lock);
    HASH_ITER(by_number, edits->files, file, next) {
        char path[300];
        if (file->write_opens == 0 || !file->name)
            continue;
        count++;
        if (!take)
            continue;
        (void)snprintf(path, sizeof(path), "%s%s", bpk_rules_folder_path(file->folder), file->name);
        take(context, path);
    }
    struct bpk_open *open;
    struct bpk_open *next_open;
    HASH_ITER(hh, edits->opens, open, next_open) {
        count += open->writers > 0;
        if (open->writers > 0 && take && open->path)
            take(context, open->path);
    }
    pthread_mutex_unlock(&edits->lock);
    return count;
}
