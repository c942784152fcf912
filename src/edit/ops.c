/* What tools do to names: create, unlink, rename, and the descriptor's way through them. */
#include "edit/state.h"

#include "pack/util.h"

#include <errno.h>
#include <string.h>

/* ---- what a name is -------------------------------------------------------------------------- */

/* A name that can become part of the pack: not an editor's, not a backup's; what the base has is
 * always the base's. In tensors/ a descriptor goes along even to a name that no tensor can have. */
static bool is_real(const struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    if (folder == BPK_IN_ROOT || folder == BPK_IN_METADATA)
        return bpk_state_is_text(edits, folder, name);
    if (bpk_state_base_has(edits, folder, name))
        return true;
    return !bpk_rules_is_scratch(name) && !bpk_rules_is_backup(name);
}

static bool is_bytes(const struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    return folder == BPK_IN_TENSORS && !bpk_state_is_text(edits, folder, name);
}

/* "NAME.json" */
static void sidecar_of(const char *name, char out[BPK_FILE_NAME_BUF + 8]) {
    size_t len = strnlen(name, BPK_FILE_NAME_BUF);
    memcpy(out, name, len);
    strcpy(out + len, ".json");
}

static bool stem_of(const char *sidecar, char out[BPK_FILE_NAME_BUF]) {
    struct bpk_str stem;
    if (!bpk_rules_sidecar_stem(sidecar, &stem) || stem.len >= BPK_FILE_NAME_BUF)
        return false;
    memcpy(out, stem.bytes, stem.len);
    out[stem.len] = '\0';
    return true;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

int bpk_state_reveal_sidecar(struct bpk_edits *edits, const char *name) {
    char sidecar[BPK_FILE_NAME_BUF + 8];
    if (strlen(name) > BPK_FILE_NAME_MAX) /* no tensor's, and no room for the end of a sidecar's */
        return 0;
    sidecar_of(name, sidecar);
    if (bpk_state_exists(edits, BPK_IN_TENSORS, sidecar)) {
        bpk_state_reset_text(edits, BPK_IN_TENSORS, sidecar);
        return 0;
    }
    struct bpk_file *file =
        bpk_state_add_file(edits, edits->next_number++, BPK_IN_TENSORS, sidecar);
    if (!file)
        return -ENOMEM;
    bpk_record_file(edits, file);
    bpk_state_stale(edits, edits->folder_numbers[BPK_IN_TENSORS]);
    return bpk_state_set_entry(edits, BPK_IN_TENSORS, sidecar, file);
}

static bool take_from_file(struct bpk_edits *edits, struct bpk_file *file, uint64_t param_id) {
    if (!file || !file->has_param_id || file->param_id != param_id)
        return false;
    file->has_param_id = false;
    bpk_record_file(edits, file);
    return true;
}

/* A tensor was moved aside: its param_id waits at its bytes and in the memory of its name. Where
 * new bytes came to the name, those aside have it no more; mostly they are its own. */
static void take_from_bytes(struct bpk_edits *edits, const char *name, uint64_t param_id) {
    const struct bpk_aside *aside;
    const struct bpk_aside *next;
    if (take_from_file(edits, bpk_state_find_aside(edits, BPK_IN_TENSORS, name), param_id))
        return;
    HASH_ITER(hh, edits->asides, aside, next)
    (void)take_from_file(edits, aside->file, param_id);
}

static bool take_from_stem(struct bpk_edits *edits, struct bpk_stem *stem, uint64_t param_id) {
    if (!stem || !stem->remembered || !stem->remembers_param_id ||
        !stem->remembered->means.has_param_id || stem->remembered->means.param_id != param_id)
        return false;
    stem->remembers_param_id = false;
    bpk_record_stem(edits, stem);
    return true;
}

/* The other way: the bytes became another tensor, and the name remembers it no more. */
static void take_from_names(struct bpk_edits *edits, const struct bpk_file *file,
                            uint64_t param_id) {
    struct bpk_stem *stem;
    struct bpk_stem *next;
    if (file->aside && take_from_stem(edits, bpk_state_stem(edits, file->aside->name), param_id))
        return;
    HASH_ITER(hh, edits->stems, stem, next)
    (void)take_from_stem(edits, stem, param_id);
}

/* Bytes without a descriptor are put at a name: they take what the name has, or remembers. A
 * param_id that they had themselves follows them. */
static int adopt_descriptor(struct bpk_edits *edits, struct bpk_file *file, const char *name) {
    struct bpk_stem *stem = bpk_state_stem(edits, name);
    if (stem ? stem->now != NULL : bpk_state_base_has(edits, BPK_IN_TENSORS, name))
        file->has_param_id = false;
    if (!stem || stem->now || !stem->remembered)
        return 0;
    int r = bpk_state_make_stem(edits, name, &stem);
    if (r < 0)
        return r;
    const struct bpk_descriptor *means = &stem->remembered->means;
    bool by_name = stem->remembers_param_id && means->has_param_id && !file->has_param_id;
    struct bpk_desc *desc = bpk_desc_with_param_id(stem->remembered, by_name || file->has_param_id,
                                                   by_name ? means->param_id : file->param_id);
    if (!desc)
        return -ENOMEM;
    if (by_name)
        take_from_bytes(edits, name, desc->means.param_id);
    else if (file->has_param_id)
        take_from_names(edits, file, desc->means.param_id);
    file->has_param_id = false;
    stem->now = desc;
    bpk_record_stem(edits, stem);
    return bpk_state_reveal_sidecar(edits, name);
}

/* The bytes of a name are gone or moved: it remembers its descriptor. */
static int forget_bytes(struct bpk_edits *edits, const char *name, bool keep_param_id) {
    struct bpk_stem *stem;
    char sidecar[BPK_FILE_NAME_BUF + 8];
    int r = bpk_state_make_stem(edits, name, &stem);
    if (r < 0)
        return r;
    if (stem->now) {
        bpk_desc_unref(stem->remembered);
        stem->remembered = stem->now;
        stem->remembers_param_id = keep_param_id;
        stem->now = NULL;
    }
    bpk_record_stem(edits, stem);
    sidecar_of(name, sidecar);
    bpk_state_reset_text(edits, BPK_IN_TENSORS, sidecar);
    return 0;
}

/* The descriptor of `from` goes over to `to`. */
static int move_descriptor(struct bpk_edits *edits, const char *from, const char *to) {
    struct bpk_stem *source;
    struct bpk_stem *target;
    int r = bpk_state_make_stem(edits, from, &source);
    if (r == 0)
        r = bpk_state_make_stem(edits, to, &target);
    if (r < 0)
        return r;
    bpk_desc_unref(target->now);
    bpk_desc_unref(target->remembered);
    target->now = bpk_desc_ref(source->now);
    target->remembered = NULL;
    bpk_record_stem(edits, target);
    r = forget_bytes(edits, from, false);
    return r < 0 ? r : bpk_state_reveal_sidecar(edits, to);
}

/* ---- create ---------------------------------------------------------------------------------- */

static int check_name(const char *name) {
    return strlen(name) > 255 ? -ENAMETOOLONG : 0;
}

static int create(struct bpk_edits *edits, enum bpk_folder folder, const char *name, mode_t mode,
                  const char *target, struct bpk_file **ret_file) {
    if (bpk_state_exists(edits, folder, name))
        return -EEXIST;
    uint64_t number = !target && bpk_state_is_array(edits, folder, name)
                          ? bpk_state_array_number(edits, name)
                          : edits->next_number++;
    struct bpk_file *file = bpk_state_add_file(edits, number, folder, name);
    if (!file)
        return -ENOMEM;
    file->mode = mode & 07777;
    clock_gettime(CLOCK_REALTIME, &file->mtime);
    if (target)
        file->target = strdup(target);
    else
        file->content = bpk_content_new(&edits->store, edits->next_content++);
    if (!file->target && !file->content) {
        bpk_state_drop_file(edits, file);
        return -ENOMEM;
    }
    if (file->content)
        bpk_record_content(edits, file->content);
    if (bpk_state_is_text(edits, folder, name)) {
        file->unparsed = true;
        file->verdict = BPK_TEXT_EARLY_END;
    }
    bpk_record_file(edits, file);
    int r = bpk_state_set_entry(edits, folder, name, file);
    if (r == 0 && !target && is_bytes(edits, folder, name) && is_real(edits, folder, name))
        r = adopt_descriptor(edits, file, name);
    *ret_file = file;
    return r;
}

static int locked_create(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                         mode_t mode, const char *target, uint64_t *ret_number) {
    struct bpk_file *file;
    int r = check_name(name);
    if (r < 0)
        return r;
    pthread_mutex_lock(&edits->lock);
    r = bpk_record_begin(edits, bpk_state_stem_room(edits, name));
    if (r == 0)
        r = create(edits, folder, name, mode, target, &file);
    if (r == 0)
        *ret_number = file->number;
    r = bpk_record_finish(edits, r);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

int bpk_edits_create(struct bpk_edits *edits, enum bpk_folder folder, const char *name, mode_t mode,
                     uint64_t *ret_number) {
    return locked_create(edits, folder, name, mode, NULL, ret_number);
}

/* Symbolic links are editors' locks, nothing else. */
int bpk_edits_symlink(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                      const char *target, uint64_t *ret_number) {
    if (!bpk_rules_is_scratch(name))
        return -EPERM;
    return locked_create(edits, folder, name, 0777, target, ret_number);
}

/* Of the descriptor that goes with the file. */
static size_t place_room(struct bpk_edits *edits, const struct bpk_place *place) {
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    const char *name = file ? file->name : place->name;
    return name ? bpk_state_stem_room(edits, name) : 0;
}

/* ---- unlink ---------------------------------------------------------------------------------- */

/* What was moved aside from the name before is no way back to it any more. */
static void forget_aside(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    struct bpk_file *file = bpk_state_find_aside(edits, folder, name);
    if (!file)
        return;
    (void)bpk_state_set_aside(edits, file, folder, NULL);
    file->changed = edits->clock;
    bpk_record_file(edits, file);
}

int bpk_state_keep_for_handles(struct bpk_edits *edits, struct bpk_file *file) {
    if (file->opens == 0 || file->target)
        return 0;
    if (file->content) /* the edits folder, with its data file, may go before it does */
        return bpk_content_hold(file->content);
    return bpk_state_is_text(edits, file->folder, file->name)
               ? bpk_state_own_text(edits, file, false)
               : bpk_state_own_bytes(edits, file);
}

/* The file has no name any more; it lives on while it is open. */
static int orphan(struct bpk_edits *edits, struct bpk_file *file) {
    int r = bpk_state_part_view(edits, file);
    free(file->name);
    file->name = NULL;
    if (file->opens == 0)
        bpk_state_drop_file(edits, file);
    return r;
}

static int remove_key(struct bpk_edits *edits, const char *name) {
    char key[BPK_FILE_NAME_BUF];
    size_t len;
    uint32_t index;
    struct bpk_str text = {key, 0};
    struct bpk_str value;
    if (bpk_names_find(edits->key_names, (struct bpk_str){name, strlen(name)}, &index) == 0)
        bpk_pack_metadata(edits->base, index, &text, &value);
    else if (bpk_rules_is_spelled_right(name, key, &len))
        text.len = len;
    else
        return 0;
    int r = bpk_state_override(edits, text, NULL);
    bpk_state_reset_text(edits, BPK_IN_ROOT, "metadata.json");
    return r;
}

/* What the pack loses with a name that is really gone. */
static int lose(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    char stem[BPK_FILE_NAME_BUF];
    if (folder == BPK_IN_METADATA && bpk_state_is_text(edits, folder, name))
        return remove_key(edits, name);
    if (folder == BPK_IN_ROOT && strcmp(name, "metadata.json") == 0)
        bpk_state_age_overrides(edits);
    if (folder != BPK_IN_TENSORS)
        return 0;
    if (is_bytes(edits, folder, name)) {
        struct bpk_desc *desc;
        int r = bpk_state_desc(edits, name, &desc);
        if (r == 0 && desc)
            r = forget_bytes(edits, name, true);
        bpk_desc_unref(desc);
        return r;
    }
    /* A sidecar that waited for its bytes takes its descriptor along. */
    if (stem_of(name, stem) && !bpk_state_exists(edits, BPK_IN_TENSORS, stem) &&
        bpk_state_stem(edits, stem)) {
        struct bpk_stem *record = bpk_state_stem(edits, stem);
        bpk_desc_unref(record->now);
        record->now = NULL;
        bpk_record_stem(edits, record);
    }
    return 0;
}

static int unlink_file(struct bpk_edits *edits, const struct bpk_place *place) {
    struct bpk_file *file;
    int r = bpk_state_touch(edits, place, &file);
    if (r < 0)
        return r;
    if (!file->name)
        return -ENOENT;
    enum bpk_folder folder = file->folder;
    _cleanup_free_ char *name = strdup(file->name);
    r = name ? bpk_state_keep_for_handles(edits, file) : -ENOMEM;
    if (r == 0)
        r = bpk_state_set_entry(edits, folder, name, NULL);
    if (r == 0)
        forget_aside(edits, folder, name); /* it was removed for itself */
    if (r == 0)
        r = lose(edits, folder, name);
    /* What was moved aside goes for good with the copy that was kept of it. */
    if (r == 0 && file->aside && !bpk_state_exists(edits, file->aside->folder, file->aside->name))
        r = lose(edits, file->aside->folder, file->aside->name);
    return r == 0 ? orphan(edits, file) : r;
}

int bpk_edits_unlink(struct bpk_edits *edits, const struct bpk_place *place) {
    pthread_mutex_lock(&edits->lock);
    int r = bpk_record_begin(edits, place_room(edits, place));
    if (r == 0)
        r = unlink_file(edits, place);
    r = bpk_record_finish(edits, r);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

/* ---- rename ---------------------------------------------------------------------------------- */

/* Where the descriptor of a tensor's bytes goes when they are renamed. */
static int carry_descriptor(struct bpk_edits *edits, struct bpk_file *file, const char *from,
                            enum bpk_folder folder, const char *name) {
    struct bpk_desc *desc = NULL;
    bool to_real = is_bytes(edits, folder, name) && is_real(edits, folder, name);
    int r = 0;
    if (is_bytes(edits, file->folder, from) && is_real(edits, file->folder, from))
        r = bpk_state_desc(edits, from, &desc);
    if (r < 0)
        return r;
    if (desc && to_real)
        r = move_descriptor(edits, from, name);
    else if (desc)
        r = forget_bytes(edits, from, true);
    else if (to_real)
        r = adopt_descriptor(edits, file, name);
    if (r == 0 && desc) {
        file->has_param_id = !to_real && desc->means.has_param_id;
        file->param_id = desc->means.param_id;
    }
    bpk_desc_unref(desc);
    return r;
}

/* A file that was part of the pack as `from` remembers that name: when it is no part any more,
 * until it is again; a renamed tensor, so that the base's stays if the new one is left out of a
 * commit. */
static int note_aside(struct bpk_edits *edits, struct bpk_file *file, const char *from,
                      bool was_part, enum bpk_folder folder, const char *name) {
    bool is_part = bpk_state_is_part_of_pack(edits, folder, name);
    bool back =
        file->aside && file->aside->folder == folder && strcmp(file->aside->name, name) == 0;
    /* Only what left the name last is put back: an older file is a backup like any other. */
    if (was_part)
        forget_aside(edits, file->folder, from);
    if (is_part && (!is_bytes(edits, folder, name) || back))
        return bpk_state_set_aside(edits, file, folder, NULL);
    if (!was_part || (is_part && (file->aside || !bpk_state_base_has(edits, file->folder, from))))
        return 0;
    return bpk_state_set_aside(edits, file, file->folder, from);
}

/* The same bytes for another file. Who has the one open goes on with a layer of his own: nobody
 * writes what both show, whatever a commit under way does with it. */
static struct bpk_content *share_content(struct bpk_edits *edits, struct bpk_file *file) {
    if (file->opens == 0)
        return bpk_content_ref(file->content);
    struct bpk_content *ours =
        bpk_content_over_content(&edits->store, edits->next_content++, file->content);
    struct bpk_content *theirs =
        bpk_content_over_content(&edits->store, edits->next_content++, file->content);
    if (!ours || !theirs) {
        bpk_content_unref(ours, false);
        bpk_content_unref(theirs, false);
        return NULL;
    }
    file->content->frozen = true;
    bpk_content_unref(file->content, false);
    file->content = theirs;
    bpk_record_content(edits, ours);
    return ours;
}

/* Whether a text that is put back would say anything: a key that the map still has, the sidecar of
 * a tensor. */
static bool says_something(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    char stem[BPK_FILE_NAME_BUF];
    if (folder == BPK_IN_METADATA)
        return bpk_state_has_value(edits, name);
    return folder != BPK_IN_TENSORS || is_bytes(edits, folder, name) ||
           (stem_of(name, stem) && bpk_state_exists(edits, folder, stem));
}

/* What was moved aside to a name that is to be another file's is put back: only an unlink of it
 * takes it out of the pack. */
static int put_aside_back(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                          const struct bpk_file *moving) {
    const struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    struct bpk_file *old = entry ? entry->file : NULL;
    if (!old || old == moving || !old->aside || !old->content ||
        bpk_state_exists(edits, old->aside->folder, old->aside->name) ||
        bpk_state_is_part_of_pack(edits, folder, name))
        return 0;
    enum bpk_folder to = old->aside->folder;
    _cleanup_free_ char *source = strdup(old->aside->name);
    if (!source)
        return -ENOMEM;
    if (!says_something(edits, to, source))
        return 0;
    int r = bpk_record_room(edits,
                            bpk_state_stem_room(edits, source) + bpk_state_stem_room(edits, name));
    if (r < 0)
        return r;
    struct bpk_file *file = bpk_state_add_file(edits, edits->next_number++, to, source);
    if (!file)
        return -ENOMEM;
    if (is_bytes(edits, to, source)) { /* a text is what its map or descriptor says */
        file->content = share_content(edits, old);
        r = file->content ? 0 : -ENOMEM;
    }
    file->has_param_id = old->has_param_id;
    file->param_id = old->param_id;
    old->has_param_id = false;
    (void)bpk_state_set_aside(edits, old, folder, NULL);
    bpk_record_file(edits, file);
    if (r == 0)
        r = bpk_state_set_entry(edits, to, source, file);
    const struct bpk_stem *stem =
        is_bytes(edits, folder, name) ? bpk_state_stem(edits, name) : NULL;
    if (r == 0 && file->content)
        r = stem && stem->now ? move_descriptor(edits, name, source)
                              : adopt_descriptor(edits, file, source);
    bpk_state_stale(edits, edits->folder_numbers[to]);
    return r;
}

static int replace_target(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    struct bpk_place place = {folder, name, bpk_state_number_of(edits, folder, name)};
    struct bpk_file *old;
    if (!bpk_state_exists(edits, folder, name))
        return 0;
    int r = bpk_state_touch(edits, &place, &old);
    if (r == 0)
        r = bpk_state_keep_for_handles(edits, old);
    return r == 0 ? orphan(edits, old) : r;
}

/* The target's text is kept for its handles before the new one is in force. */
static int keep_target_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    struct bpk_place place = {folder, name, bpk_state_number_of(edits, folder, name)};
    struct bpk_file *old;
    if (!bpk_state_exists(edits, folder, name) || !bpk_state_is_open(edits, place.number))
        return 0;
    int r = bpk_state_touch(edits, &place, &old);
    return r < 0 ? r : bpk_state_keep_for_handles(edits, old);
}

static int move(struct bpk_edits *edits, struct bpk_file *file, enum bpk_folder folder,
                const char *name) {
    _cleanup_free_ char *from = strdup(file->name);
    enum bpk_folder from_folder = file->folder;
    char *copy = strdup(name);
    bool was_part = bpk_state_is_part_of_pack(edits, from_folder, file->name);
    int r = from && copy ? put_aside_back(edits, folder, name, file) : -ENOMEM;
    if (r == 0)
        r = bpk_state_part_view(edits, file);
    if (r == 0)
        r = carry_descriptor(edits, file, from, folder, name);
    if (r == 0)
        r = note_aside(edits, file, from, was_part, folder, name);
    if (r == 0)
        r = replace_target(edits, folder, name);
    if (r == 0)
        r = bpk_state_set_entry(edits, from_folder, from, NULL);
    if (r < 0) {
        free(copy);
        return r;
    }
    free(file->name);
    file->name = copy;
    file->folder = folder;
    file->was_moved = true;
    bpk_record_file(edits, file);
    return bpk_state_set_entry(edits, folder, name, file);
}

/* Why the rename is refused; 1: there is nothing to do. Nothing is touched so far. */
static int check_rename(struct bpk_edits *edits, const struct bpk_place *from,
                        enum bpk_folder folder, const char *name, bool no_replace) {
    enum bpk_folder from_folder;
    const char *from_name;
    int r = bpk_state_find_place(edits, from, &from_folder, &from_name);
    if (r < 0)
        return r;
    if (no_replace && bpk_state_exists(edits, folder, name))
        return -EEXIST;
    if (from_folder == folder && strcmp(from_name, name) == 0)
        return 1;
    if (folder != from_folder && bpk_state_is_part_of_pack(edits, from_folder, from_name))
        return -EXDEV;
    /* Its number is that of the view in whose place it comes. */
    if (from->number >= BPK_ARRAY_NUMBERS && !bpk_state_is_array(edits, folder, name))
        return -EXDEV;
    struct bpk_file *file = bpk_state_file(edits, from->number);
    if (bpk_state_is_array(edits, folder, name) && !(file && file->target))
        return file ? bpk_state_check_array(file) : -EINVAL;
    bool is_text = bpk_state_is_text(edits, folder, name) && !(file && file->target);
    return is_text ? bpk_state_check_text(edits, from, folder, name) : 0;
}

static int rename_file(struct bpk_edits *edits, const struct bpk_place *from,
                       enum bpk_folder folder, const char *name) {
    struct bpk_file *file;
    int r = bpk_state_touch(edits, from, &file);
    if (r < 0)
        return r;
    bool from_pack = bpk_state_is_part_of_pack(edits, file->folder, file->name);
    bool is_key = folder == BPK_IN_METADATA && is_real(edits, folder, name);
    bool key_moves = file->folder == BPK_IN_METADATA && from_pack && is_key;
    /* By way of a scratch name a key is renamed, too. */
    const struct bpk_aside *aside = file->aside;
    bool key_comes = is_key && aside && aside->folder == BPK_IN_METADATA &&
                     strcmp(aside->name, name) != 0 &&
                     !bpk_state_exists(edits, aside->folder, aside->name);
    /* Under the new name the base does not have its bytes, and nothing composes its text. */
    if (!file->target && !file->content)
        r = bpk_state_is_text(edits, file->folder, file->name)
                ? bpk_state_own_text(edits, file, false)
                : bpk_state_own_bytes(edits, file);
    /* A text that is moved to the name of a text must be good. */
    if (r == 0 && bpk_state_is_text(edits, folder, name) && !file->target) {
        r = keep_target_text(edits, folder, name);
        if (r == 0)
            r = bpk_state_parse(edits, file, folder, name, true);
    }
    bool is_array = bpk_state_is_array(edits, folder, name) && !file->target;
    if (r == 0 && (key_moves || key_comes))
        r = remove_key(edits, key_moves ? file->name : aside->name);
    if (r == 0)
        r = move(edits, file, folder, name);
    return r == 0 && is_array ? bpk_state_take_array(edits, file, true, NULL) : r;
}

int bpk_edits_rename(struct bpk_edits *edits, const struct bpk_place *from, enum bpk_folder folder,
                     const char *name, bool no_replace) {
    int r = check_name(name);
    if (r < 0)
        return r;
    pthread_mutex_lock(&edits->lock);
    r = check_rename(edits, from, folder, name, no_replace);
    if (r == 0) {
        r = bpk_record_begin(edits, place_room(edits, from) + bpk_state_stem_room(edits, name));
        if (r == 0)
            r = rename_file(edits, from, folder, name);
        r = bpk_record_finish(edits, r);
    }
    bpk_state_close_unused(edits, from->number);
    pthread_mutex_unlock(&edits->lock);
    return r > 0 ? 0 : r;
}
