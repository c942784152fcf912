/* What the edits come to: which tensors are whole, which are not and why. All locked. */
#include "edit/state.h"

#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- lengths --------------------------------------------------------------------------------- */

/* Whether the base's own tensor of that name has this length already. */
static bool base_has_length(const struct bpk_edits *edits, const char *stem, uint64_t size) {
    uint32_t index;
    struct bpk_tensor tensor;
    if (!bpk_state_find_base(edits, stem, &index))
        return false;
    bpk_pack_tensor(edits->base, index, &tensor);
    return tensor.end - tensor.start == size;
}

bool bpk_judge_length(struct bpk_edits *edits, const char *stem, const struct bpk_desc *desc,
                      uint64_t size, char *out, size_t out_size) {
    uint64_t needed;
    char shape[200];
    bool known = bpk_desc_length(desc, &needed);
    if (known && needed == size)
        return false;
    if (desc->means.dtype.kind == BPK_QFLOAT && base_has_length(edits, stem, size))
        return false;
    bpk_shape_show(bpk_desc_shape(desc), shape, sizeof(shape));
    if (known)
        (void)snprintf(out, out_size,
                       "has %llu bytes, but shape %s of %s needs %llu: %s or correct the shape",
                       (unsigned long long)size, shape, bpk_kind_name(desc->means.dtype.kind),
                       (unsigned long long)needed,
                       size < needed ? "write the missing part" : "cut off the rest");
    else
        (void)snprintf(out, out_size, "shape %s and dtype do not go together: correct the sidecar",
                       shape);
    return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

bool bpk_judge_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name, char *out,
                    size_t size) {
    const struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    const struct bpk_file *file = entry ? entry->file : NULL;
    if (!file || !file->content)
        return false;
    if (file->content->suspect)
        (void)snprintf(out, size, "the power was lost before it was on the disk: write it again");
    else if (file->verdict == BPK_TEXT_GOOD && !file->unparsed)
        return false;
    else if (file->unparsed && !file->reason && file->content->size > 0 && file->write_opens == 0)
        return false; /* cut by its name, which nobody closes: a commit looks at it */
    else
        (void)snprintf(out, size, "%s",
                       file->reason && file->reason[0] ? file->reason
                       : file->content->size > 0       ? "is still being written"
                                                       : "is empty: write it or remove it");
    return true;
}

bool bpk_judge_is_unparsed(struct bpk_edits *edits, const struct bpk_file *file) {
    return file->name && file->unparsed && file->content &&
           (bpk_state_is_text(edits, file->folder, file->name) ||
            bpk_state_is_array(edits, file->folder, file->name));
}

bool bpk_judge_has_unparsed(struct bpk_edits *edits) {
    struct bpk_file *file;
    struct bpk_file *next;
    HASH_ITER(by_number, edits->files, file, next) {
        if (bpk_judge_is_unparsed(edits, file))
            return true;
    }
    return false;
}

int bpk_judge_parse_all(struct bpk_edits *edits) {
    struct bpk_file *file;
    struct bpk_file *next;
    HASH_ITER(by_number, edits->files, file, next) {
        if (!bpk_judge_is_unparsed(edits, file))
            continue;
        int r = file->folder == BPK_IN_NPY
                    ? bpk_state_take_array(edits, file, true, NULL)
                    : bpk_state_parse(edits, file, file->folder, file->name, true);
        if (r < 0 && r != -EBADMSG && r != -EINVAL)
            return r;
    }
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The file that was moved aside from this name while nothing took its place; it may have become
 * another part of the pack since: a pending file that was given a sidecar. */
struct bpk_file *bpk_judge_aside(struct bpk_edits *edits, enum bpk_folder folder,
                                 const char *name) {
    struct bpk_file *file = bpk_state_find_aside(edits, folder, name);
    bool waits = file && file->name && !bpk_state_is_part_of_pack(edits, file->folder, file->name);
    return waits ? file : NULL;
}

static void invalid(struct bpk_judged *judged, const char *path, const char *reason) {
    judged->judgement = BPK_JUDGED_INVALID;
    (void)snprintf(judged->reason, sizeof(judged->reason), "%s%s", path, reason);
}

/* Says that an edit was made on a tensor that this pack does not have, or not as it was. */
static void tell_lost(const struct bpk_edits *edits, const struct bpk_lost *lost,
                      const char *remedy, struct bpk_judged *judged) {
    char shown[150];
    struct bpk_str name = {lost->name, lost->name_len};
    struct bpk_tensor tensor = {0};
    uint32_t index;
    bool in_pack = bpk_pack_find_tensor(edits->base, name, &index) == 0;
    bpk_text_escape(name.bytes, name.len, shown, sizeof(shown));
    if (in_pack)
        bpk_pack_tensor(edits->base, index, &tensor);
    if (in_pack && tensor.end - tensor.start != lost->size)
        (void)snprintf(judged->reason, sizeof(judged->reason),
                       "its base tensor \"%s\" had %llu bytes, and has %llu in this pack: %s",
                       shown, (unsigned long long)lost->size,
                       (unsigned long long)(tensor.end - tensor.start), remedy);
    else
        (void)snprintf(judged->reason, sizeof(judged->reason),
                       "its base tensor \"%s\" is not in this pack: %s", shown, remedy);
}

/* Whether bytes are missing, because they were the base's. */
static bool judge_missing(const struct bpk_edits *edits, const struct bpk_content *content,
                          struct bpk_judged *judged) {
    const struct bpk_lost *lost = content ? bpk_content_missing(content) : NULL;
    if (lost)
        tell_lost(edits, lost, "write all of it, or remove it", judged);
    return lost != NULL;
}

/* A pending file that was a tensor: without it there is no descriptor, even if no byte is missing.
 */
static void judge_lost_tensor(const struct bpk_edits *edits, const struct bpk_content *content,
                              struct bpk_judged *judged) {
    while (content && content->below)
        content = content->below;
    if (!content || !content->lost)
        return;
    judged->judgement = BPK_JUDGED_INVALID;
    if (!judge_missing(edits, judged->file->content, judged))
        tell_lost(edits, content->lost, "give it a sidecar, or remove it", judged);
}

/* A name without bytes. */
static void judge_without_bytes(struct bpk_edits *edits, const char *sidecar, bool has_desc,
                                struct bpk_judged *judged) {
    const struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_TENSORS, sidecar);
    bool written = entry && entry->file && entry->file->content;
    judged->judgement = BPK_JUDGED_NOTHING;
    if (written && has_desc)
        invalid(judged, "", "has a sidecar but no bytes: write them, or remove the sidecar");
}

bool bpk_judge_is_scratch(const struct bpk_file *file) {
    if (file->target || bpk_rules_is_scratch(file->name))
        return true;
    return file->folder != BPK_IN_METADATA && !bpk_rules_is_backup(file->name) && file->content &&
           file->content->size == 0 && !file->was_moved;
}

static enum bpk_judgement judge_plain_file(const struct bpk_file *file) {
    if (bpk_judge_is_scratch(file))
        return BPK_JUDGED_SCRATCH;
    return bpk_rules_is_backup(file->name) ? BPK_JUDGED_BACKUP : BPK_JUDGED_PENDING;
}

/* A name with bytes and a descriptor. `text_reason`: what is wrong with its sidecar, or NULL. */
static int judge_bytes(struct bpk_edits *edits, const char *stem, const char *text_reason,
                       struct bpk_judged *judged) {
    const struct bpk_content *content = judged->file ? judged->file->content : NULL;
    uint64_t size = content ? content->size : 0;
    struct bpk_desc *desc = bpk_desc_ref(judged->desc);
    char reason[380];
    bool untouched = !content && !judged->desc;
    int r = untouched || desc ? 0 : bpk_state_desc(edits, stem, &desc);
    if (r < 0)
        return r;
    if (!content && judged->index != BPK_NO_TENSOR) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(edits->base, judged->index, &tensor);
        size = tensor.end - tensor.start;
    }
    judged->judgement = BPK_JUDGED_TENSOR;
    if (text_reason)
        invalid(judged, "its sidecar: ", text_reason);
    else if (content && content->suspect)
        invalid(judged, "", "the power was lost before it was on the disk: write it again");
    else if (judge_missing(edits, content, judged))
        judged->judgement = BPK_JUDGED_INVALID;
    else if (!untouched && bpk_judge_length(edits, stem, desc, size, reason, sizeof(reason)))
        invalid(judged, "", reason);
    bpk_desc_unref(desc);
    return 0;
}

int bpk_judge_stem(struct bpk_edits *edits, const char *stem, struct bpk_judged *ret_judged) {
    struct bpk_judged judged = {.index = BPK_NO_TENSOR};
    char sidecar[BPK_FILE_NAME_BUF + 8];
    char reason[380];
    char buffer[BPK_FILE_NAME_BUF];
    struct bpk_str name;
    const struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_TENSORS, stem);
    const struct bpk_stem *record = bpk_state_stem(edits, stem);
    (void)snprintf(sidecar, sizeof(sidecar), "%.255s.json", stem);
    bool in_base = bpk_state_find_base(edits, stem, &judged.index);
    bool text_bad = bpk_judge_text(edits, BPK_IN_TENSORS, sidecar, reason, sizeof(reason));
    judged.file = entry ? entry->file : NULL;
    judged.desc = record ? bpk_desc_ref(record->now) : NULL;
    if (entry ? !entry->file : !in_base) { /* gone; of a new tensor no entry tells */
        judged.file = bpk_judge_aside(edits, BPK_IN_TENSORS, stem);
        judged.put_back = judged.file != NULL;
        if (judged.put_back && !judged.desc && record)
            judged.desc = bpk_desc_ref(record->remembered);
    }
    bool has_desc = judged.desc || (!record && in_base);
    if (!judged.file && (entry || !in_base)) {
        judge_without_bytes(edits, sidecar, has_desc, &judged);
    } else if (!has_desc) {
        judged.judgement = judged.file ? judge_plain_file(judged.file) : BPK_JUDGED_NOTHING;
    } else if (!bpk_state_tensor_name(edits, stem, buffer, &name)) {
        judged.judgement = BPK_JUDGED_PENDING;
        (void)snprintf(judged.reason, sizeof(judged.reason),
                       "no tensor's file can have this name: rename it, or remove it");
    } else {
        int r = judge_bytes(edits, stem, text_bad ? reason : NULL, &judged);
        if (r == 0)
            *ret_judged = judged;
        return r;
    }
    if (judged.judgement == BPK_JUDGED_BACKUP)
        (void)judge_missing(edits, judged.file->content, &judged);
    else if (judged.judgement == BPK_JUDGED_PENDING)
        judge_lost_tensor(edits, judged.file->content, &judged);
    if (text_bad && judged.judgement != BPK_JUDGED_INVALID && has_desc)
        invalid(&judged, "its sidecar: ", reason);
    else if (text_bad && !has_desc && judged.judgement == BPK_JUDGED_NOTHING)
        invalid(&judged, "its sidecar: ", reason);
    *ret_judged = judged;
    return 0;
}

/* ---- what was touched ------------------------------------------------------------------------ */

int bpk_judge_compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(char ***names, size_t *count, size_t *capacity, const char *name, size_t len) {
    int r = bpk_grow((void **)names, capacity, *count, sizeof(char *));
    char *copy = r == 0 ? strndup(name, len) : NULL;
    if (!copy)
        return -ENOMEM;
    (*names)[(*count)++] = copy;
    return 0;
}

int bpk_judge_touched(struct bpk_edits *edits, char ***ret_names, size_t *ret_count) {
    char **names = NULL;
    size_t count = 0;
    size_t capacity = 0;
    int r = 0;
    struct bpk_entry *entry;
    struct bpk_entry *next_entry;
    HASH_ITER(hh, edits->entries, entry, next_entry) {
        const char *name = entry->key + 1;
        struct bpk_str part = {name, strlen(name)};
        if (r < 0 || entry->key[0] != BPK_IN_TENSORS || !bpk_state_is_touched(edits, entry))
            continue;
        if (bpk_state_is_text(edits, BPK_IN_TENSORS, name))
            (void)bpk_rules_sidecar_stem(name, &part);
        r = add_name(&names, &count, &capacity, part.bytes, part.len);
    }
    struct bpk_stem *stem;
    struct bpk_stem *next_stem;
    HASH_ITER(hh, edits->stems, stem, next_stem) {
        if (r == 0)
            r = add_name(&names, &count, &capacity, stem->name, strlen(stem->name));
    }
    if (count > 0)
        qsort(names, count, sizeof(*names), bpk_judge_compare_names);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && strcmp(names[kept - 1], names[i]) == 0)
            free(names[i]);
        else
            names[kept++] = names[i];
    }
    *ret_names = names;
    *ret_count = kept;
    return r;
}
