/* Whether what was touched comes to what the base has. All locked. */
#include "edit/state.h"

#include "pack/pack_internal.h"

#include <string.h>

/* ---- tensors --------------------------------------------------------------------------------- */

bool bpk_same_bytes(const struct bpk_content *content, const struct bpk_pack *base,
                    uint32_t index) {
    if (content->pack != base || content->index != index || content->own.count > 0)
        return false;
    struct bpk_tensor tensor;
    bpk_pack_tensor(base, index, &tensor);
    return content->size == tensor.end - tensor.start && content->below_limit == content->size;
}

static bool is_text(const struct bpk_outbuf *out, struct bpk_str text) {
    return out->len == text.len && (text.len == 0 || memcmp(out->text, text.bytes, text.len) == 0);
}

/* Unknown keys of a descriptor cannot be edited. */
static bool same_desc(const struct bpk_desc *desc, const struct bpk_pack *base, uint32_t index) {
    const struct bpk_meta_tensor *t = &base->meta.tensors[index];
    struct bpk_shape ours = bpk_desc_shape(desc);
    struct bpk_shape theirs = bpk_pack_tensor_shape(base, index);
    bool has_param_id = t->flags & BPK_TENSOR_HAS_PARAM_ID;
    bool same = is_text(&desc->dtype_cbor, bpk_meta_dtype_cbor(&base->meta, t)) &&
                desc->means.has_param_id == has_param_id &&
                (!has_param_id || desc->means.param_id == t->param_id) && ours.left == theirs.left;
    uint64_t a;
    uint64_t b;
    while (same && bpk_shape_next(&ours, &a))
        same = bpk_shape_next(&theirs, &b) && a == b;
    return same;
}

bool bpk_same_tensor(const struct bpk_judged *judged, const struct bpk_pack *base) {
    return judged->judgement == BPK_JUDGED_TENSOR && judged->index != BPK_NO_TENSOR &&
           (!judged->desc || same_desc(judged->desc, base, judged->index)) &&
           (!judged->file || !judged->file->content ||
            bpk_same_bytes(judged->file->content, base, judged->index));
}

/* ---- maps ------------------------------------------------------------------------------------ */

bool bpk_same_metadata(const struct bpk_pack *base, const struct bpk_plan_entry *entries,
                       size_t count) {
    bool same = count == base->meta.entry_count;
    for (size_t i = 0; i < count && same; i++) {
        struct bpk_plan_entry there;
        bpk_pack_metadata(base, (uint32_t)i, &there.key, &there.value);
        same = bpk_str_compare(there.key, entries[i].key) == 0 &&
               bpk_str_compare(there.value, entries[i].value) == 0;
    }
    return same;
}

static bool same_map(struct bpk_edits *edits) {
    struct bpk_plan_entry *entries;
    size_t count;
    if (bpk_state_effective_metadata(edits, NULL, &entries, &count) < 0)
        return false;
    bool same = bpk_same_metadata(edits->base, entries, count);
    free(entries);
    return same;
}

static bool same_key(struct bpk_edits *edits, const char *name) {
    char decoded[BPK_FILE_NAME_BUF];
    struct bpk_override *override;
    struct bpk_str key = {decoded, 0};
    struct bpk_str value;
    uint32_t index;
    bool in_base =
        bpk_names_find(edits->key_names, (struct bpk_str){name, strlen(name)}, &index) == 0;
    if (in_base)
        bpk_pack_metadata(edits->base, index, &key, &value);
    else if (!bpk_rules_is_spelled_right(name, decoded, &key.len))
        return false;
    HASH_FIND(hh, edits->overrides, key.bytes, key.len, override);
    if (!override)
        return !edits->map_replaced;
    return in_base && override->value &&
           bpk_str_compare((struct bpk_str){override->value, override->value_len}, value) == 0;
}

static int compare_scalars(const void *a, const void *b) {
    return bpk_str_compare(((const struct bpk_scalar *)a)->name,
                           ((const struct bpk_scalar *)b)->name);
}

/* scalars.json cannot show, nor change, a name with a NUL. */
bool bpk_same_scalars(const struct bpk_edits *edits) {
    size_t count = edits->scalars.count;
    size_t at = 0;
    if (!edits->has_scalars)
        return true;
    struct bpk_scalar *sorted = calloc(count + 1, sizeof(*sorted));
    bool same = sorted != NULL;
    if (same && count > 0) {
        memcpy(sorted, edits->scalars.scalars, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_scalars);
    }
    for (uint32_t i = 0; i < edits->base->meta.scalar_count && same; i++) {
        struct bpk_scalar there;
        bpk_pack_scalar(edits->base, i, &there);
        if (memchr(there.name.bytes, '\0', there.name.len))
            continue;
        same = at < count && compare_scalars(&sorted[at], &there) == 0 &&
               sorted[at].kind == there.kind && sorted[at].bits == there.bits;
        at++;
    }
    free(sorted);
    return same && at == count;
}

bool bpk_same_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    if (folder == BPK_IN_METADATA)
        return same_key(edits, name);
    return strcmp(name, "metadata.json") == 0 ? same_map(edits) : bpk_same_scalars(edits);
}
