#include "pack/plan.h"

#include "pack/cbor_writer.h"
#include "pack/copy.h"
#include "pack/diag.h"
#include "pack/layout.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <string.h>

/* ---- from a pack ----------------------------------------------------------------------------- */

static void take_tensors(const struct bpk_pack *base, struct bpk_plan *plan) {
    for (size_t k = 0; k < base->meta.tensor_count; k++) {
        uint32_t index = base->data_order[k];
        const struct bpk_meta_tensor *t = &base->meta.tensors[index];
        plan->tensors[plan->tensor_count++] = (struct bpk_plan_tensor){
            .name = bpk_meta_text(&base->meta, t->name),
            .from = base,
            .index = index,
            .has_param_id = t->flags & BPK_TENSOR_HAS_PARAM_ID,
            .param_id = t->param_id,
            .size = t->end - t->start,
            .data_from = base,
            .data_index = index,
        };
    }
}

static void take_maps(const struct bpk_pack *base, struct bpk_plan *plan) {
    for (size_t i = 0; i < base->meta.entry_count; i++) {
        struct bpk_plan_entry *entry = &plan->metadata[plan->metadata_count++];
        bpk_pack_metadata(base, (uint32_t)i, &entry->key, &entry->value);
    }
    for (size_t i = 0; i < base->meta.scalar_count; i++)
        bpk_pack_scalar(base, (uint32_t)i, &plan->scalars[plan->scalar_count++]);
}

int bpk_plan_from_pack(struct bpk_pack *base, struct bpk_plan *ret_plan) {
    struct bpk_plan plan = {
        .base = bpk_pack_ref(base),
        .tensors = calloc(base->meta.tensor_count + 1, sizeof(*plan.tensors)),
        .metadata = calloc(base->meta.entry_count + 1, sizeof(*plan.metadata)),
        .scalars = calloc(base->meta.scalar_count + 1, sizeof(*plan.scalars)),
    };
    if (!plan.tensors || !plan.metadata || !plan.scalars) {
        bpk_plan_clear(&plan);
        return -ENOMEM;
    }
    take_tensors(base, &plan);
    take_maps(base, &plan);
    *ret_plan = plan;
    return 0;
}

int bpk_plan_own_scalars(struct bpk_plan *plan) {
    size_t size = 1;
    for (size_t i = 0; i < plan->scalar_count; i++)
        size += plan->scalars[i].name.len;
    char *at = malloc(size);
    if (!at)
        return -ENOMEM;
    plan->scalar_names = at;
    for (size_t i = 0; i < plan->scalar_count; i++) {
        struct bpk_str *name = &plan->scalars[i].name;
        memcpy(at, name->bytes, name->len);
        name->bytes = at;
        at += name->len;
    }
    return 0;
}

void bpk_plan_clear(struct bpk_plan *plan) {
    bpk_pack_unref(plan->base);
    free(plan->tensors);
    free(plan->metadata);
    free(plan->scalars);
    free(plan->scalar_names);
    bpk_outbuf_clear(&plan->head);
    *plan = (struct bpk_plan){0};
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Whether every tensor of the base, and no other, is there with the base's own bytes. Names and
 * descriptors may differ. */
static bool can_keep_data(const struct bpk_plan *plan) {
    const struct bpk_pack *base = plan->base;
    if (!base || base->layout != BPK_LAYOUT_ALIGNED || plan->tensor_count == 0 ||
        plan->tensor_count != base->meta.tensor_count || plan->drops_strays)
        return false;
    /* In the base's order each index can be there only once. */
    for (size_t k = 0; k < plan->tensor_count; k++) {
        const struct bpk_plan_tensor *t = &plan->tensors[k];
        if (t->next_run || t->data_from != base || t->data_index != base->data_order[k])
            return false;
    }
    return true;
}

/* With every tensor on its multiple of 256 and none over another, no bytes of a tensor that is not
 * in the plan any more, or not with these bytes, can lie in the padding of those that are. */
static bool can_join_padding(const struct bpk_plan *plan) {
    const struct bpk_pack *base = plan->base;
    if (!base || base->layout != BPK_LAYOUT_ALIGNED || plan->drops_strays)
        return false;
    for (size_t i = 0; i < base->meta.tensor_count; i++)
        if (bpk_pack_is_misplaced(base, (uint32_t)i))
            return false;
    return true;
}

static int too_big(struct bpk_diag *diag, const char *what, uint64_t has, uint64_t limit) {
    return bpk_diag_set(diag, -EFBIG, BPK_NO_OFFSET,
                        "%s would be %llu, more than the limit of %llu", what,
                        (unsigned long long)has, (unsigned long long)limit);
}

static int place_data(struct bpk_plan *plan, struct bpk_diag *diag) {
    uint64_t end = 0;
    plan->keeps_data = can_keep_data(plan);
    plan->joins_padding = can_join_padding(plan);
    for (size_t k = 0; k < plan->tensor_count; k++) {
        struct bpk_plan_tensor *t = &plan->tensors[k];
        if (t->size > BPK_MAX_TENSOR) {
            char shown[100];
            bpk_text_escape(t->name.bytes, t->name.len, shown, sizeof(shown));
            return bpk_diag_set(diag, -EFBIG, BPK_NO_OFFSET,
                                "tensor '%s' has %llu bytes, more than the limit of 10 GiB", shown,
                                (unsigned long long)t->size);
        }
        t->start = bpk_layout_align(end);
        if (plan->keeps_data)
            t->start = plan->base->meta.tensors[t->data_index].start;
        if (t->start + t->size > end)
            end = t->start + t->size;
        if (end > BPK_MAX_FILE)
            return too_big(diag, "the file's size", end, BPK_MAX_FILE);
    }
    plan->data_size = end;
    return 0;
}

/* ---- CBOR ------------------------------------------------------------------------------------ */

static int compare_tensors(const void *a, const void *b) {
    const struct bpk_plan_tensor *const *x = a;
    const struct bpk_plan_tensor *const *y = b;
    return bpk_str_compare((*x)->name, (*y)->name);
}

static int compare_entries(const void *a, const void *b) {
    return bpk_str_compare(((const struct bpk_plan_entry *)a)->key,
                           ((const struct bpk_plan_entry *)b)->key);
}

static int compare_scalars(const void *a, const void *b) {
    return bpk_str_compare(((const struct bpk_scalar *)a)->name,
                           ((const struct bpk_scalar *)b)->name);
}

static void out_shape(struct bpk_outbuf *out, struct bpk_shape shape) {
    uint64_t dim;
    bpk_cbor_out_cstring(out, "shape");
    bpk_cbor_out_array(out, shape.left);
    while (bpk_shape_next(&shape, &dim))
        bpk_cbor_out_uint(out, dim);
}

static void out_descriptor(struct bpk_outbuf *out, const struct bpk_plan_tensor *t) {
    _cleanup_outbuf_ struct bpk_outbuf kept = {0};
    struct bpk_str dtype = t->dtype_cbor;
    struct bpk_str unknown = t->unknown_cbor;
    size_t unknown_count = t->unknown_count;
    struct bpk_shape shape = t->shape;
    if (t->from) {
        const struct bpk_meta_tensor *from = &t->from->meta.tensors[t->index];
        dtype = bpk_meta_dtype_cbor(&t->from->meta, from);
        unknown_count = bpk_meta_unknown(&t->from->meta, from, &kept);
        unknown = (struct bpk_str){kept.text, kept.len};
        shape = bpk_pack_tensor_shape(t->from, t->index);
        out->failed |= kept.failed;
    }
    bpk_cbor_out_map(out, 3 + (t->has_param_id ? 1 : 0) + unknown_count);
    bpk_cbor_out_cstring(out, "dtype");
    bpk_out(out, dtype.bytes, dtype.len);
    out_shape(out, shape);
    bpk_cbor_out_cstring(out, "data_offsets");
    bpk_cbor_out_array(out, 2);
    bpk_cbor_out_uint(out, t->start);
    bpk_cbor_out_uint(out, t->start + t->size);
    if (t->has_param_id) {
        bpk_cbor_out_cstring(out, "param_id");
        bpk_cbor_out_uint(out, t->param_id);
    }
    bpk_out(out, unknown.bytes, unknown.len);
}

void bpk_plan_sort_maps(struct bpk_plan *plan) {
    if (plan->metadata_count > 0)
        qsort(plan->metadata, plan->metadata_count, sizeof(*plan->metadata), compare_entries);
    if (plan->scalar_count > 0)
        qsort(plan->scalars, plan->scalar_count, sizeof(*plan->scalars), compare_scalars);
}

static int duplicate_name(struct bpk_diag *diag, const char *what, struct bpk_str name) {
    char shown[100];
    bpk_text_escape(name.bytes, name.len, shown, sizeof(shown));
    return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET, "two %s are named '%s'", what, shown);
}

static int out_tensors(struct bpk_outbuf *out, const struct bpk_plan *plan, struct bpk_diag *diag) {
    size_t count = plan->tensor_count;
    _cleanup_free_ const struct bpk_plan_tensor **sorted = calloc(count + 1, sizeof(*sorted));
    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &plan->tensors[i];
    qsort(sorted, count, sizeof(*sorted), compare_tensors);
    bpk_cbor_out_cstring(out, "tensors");
    bpk_cbor_out_map(out, count);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && bpk_str_compare(sorted[i - 1]->name, sorted[i]->name) == 0)
            return duplicate_name(diag, "tensors", sorted[i]->name);
        bpk_cbor_out_text(out, sorted[i]->name);
        out_descriptor(out, sorted[i]);
    }
    return 0;
}

static int out_metadata(struct bpk_outbuf *out, const struct bpk_plan *plan,
                        struct bpk_diag *diag) {
    bpk_cbor_out_cstring(out, "metadata");
    bpk_cbor_out_map(out, plan->metadata_count);
    for (size_t i = 0; i < plan->metadata_count; i++) {
        const struct bpk_plan_entry *entry = &plan->metadata[i];
        if (i > 0 && bpk_str_compare(entry[-1].key, entry->key) == 0)
            return duplicate_name(diag, "metadata keys", entry->key);
        bpk_cbor_out_text(out, entry->key);
        bpk_cbor_out_text(out, entry->value);
    }
    return 0;
}

static void out_scalar(struct bpk_outbuf *out, const struct bpk_scalar *scalar) {
    bpk_cbor_out_text(out, scalar->name);
    bpk_cbor_out_map(out, 1);
    bpk_cbor_out_cstring(out, bpk_scalar_kind_name(scalar->kind));
    switch (scalar->kind) {
    case BPK_SCALAR_INT:
        bpk_cbor_out_int(out, (int64_t)scalar->bits);
        break;
    case BPK_SCALAR_UINT:
        bpk_cbor_out_uint(out, scalar->bits);
        break;
    case BPK_SCALAR_FLOAT:
        bpk_cbor_out_float(out, scalar->bits);
        break;
    case BPK_SCALAR_BOOL:
        bpk_cbor_out_bool(out, scalar->bits);
        break;
    }
}

static int out_scalars(struct bpk_outbuf *out, const struct bpk_plan *plan, struct bpk_diag *diag) {
    bpk_cbor_out_cstring(out, "scalars");
    bpk_cbor_out_map(out, plan->scalar_count);
    for (size_t i = 0; i < plan->scalar_count; i++) {
        const struct bpk_scalar *scalar = &plan->scalars[i];
        if (i > 0 && bpk_str_compare(scalar[-1].name, scalar->name) == 0)
            return duplicate_name(diag, "scalars", scalar->name);
        out_scalar(out, scalar);
    }
    return 0;
}

/* Empty maps are left out, as Burn leaves them out. */
static int out_cbor(struct bpk_outbuf *out, const struct bpk_plan *plan, struct bpk_diag *diag) {
    const struct bpk_meta *unknown = plan->base ? &plan->base->meta : NULL;
    bpk_cbor_out_map(out, 1 + (plan->metadata_count > 0) + (plan->scalar_count > 0) +
                              (unknown ? unknown->unknown_entries : 0));
    int r = out_tensors(out, plan, diag);
    if (r == 0 && plan->metadata_count > 0)
        r = out_metadata(out, plan, diag);
    if (r == 0 && plan->scalar_count > 0)
        r = out_scalars(out, plan, diag);
    for (size_t i = 0; unknown && i < unknown->unknown_runs; i++)
        bpk_out(out, (const char *)unknown->block + unknown->unknown[i].start,
                unknown->unknown[i].end - unknown->unknown[i].start);
    return r == 0 && out->failed ? -ENOMEM : r;
}

/* ---- header and padding ---------------------------------------------------------------------- */

/* metadata_size for a CBOR of `size` bytes. So that blocks can be shared, the data section moves
 * by whole blocks only, and zero bytes after the CBOR (every reader since 0.19 takes them) fill
 * the gap. */
static uint64_t choose_metadata_size(const struct bpk_plan *plan, uint64_t size, bool can_clone) {
    if (!can_clone || !plan->base || plan->base->layout == BPK_LAYOUT_LEGACY)
        return size;
    uint64_t natural = bpk_layout_align(BPK_HEADER_SIZE + size);
    uint64_t congruent = natural;
    while (congruent % BPK_CLONE_BLOCK != plan->base->data_start % BPK_CLONE_BLOCK)
        congruent += BPK_ALIGNMENT;
    if (congruent == natural || congruent - BPK_HEADER_SIZE > BPK_MAX_METADATA)
        return size;
    return congruent - BPK_HEADER_SIZE;
}

static void out_header(struct bpk_outbuf *out, uint32_t metadata_size) {
    const uint8_t header[BPK_HEADER_SIZE] = {(uint8_t)BPK_MAGIC,
                                             (uint8_t)(BPK_MAGIC >> 8),
                                             (uint8_t)(BPK_MAGIC >> 16),
                                             (uint8_t)(BPK_MAGIC >> 24),
                                             BPK_VERSION,
                                             0,
                                             (uint8_t)metadata_size,
                                             (uint8_t)(metadata_size >> 8),
                                             (uint8_t)(metadata_size >> 16),
                                             (uint8_t)(metadata_size >> 24)};
    bpk_out(out, (const char *)header, sizeof(header));
}

int bpk_plan_place(struct bpk_plan *plan, bool can_clone, struct bpk_diag *diag) {
    if (plan->tensor_count > BPK_MAX_TENSORS)
        return too_big(diag, "the number of tensors", plan->tensor_count, BPK_MAX_TENSORS);
    bpk_plan_sort_maps(plan);
    int r = place_data(plan, diag);
    if (r < 0)
        return r;
    _cleanup_outbuf_ struct bpk_outbuf cbor = {0};
    r = out_cbor(&cbor, plan, diag);
    if (r == 0 && cbor.len > BPK_MAX_METADATA)
        return too_big(diag, "the metadata's size", cbor.len, BPK_MAX_METADATA);
    if (r < 0)
        return r == -ENOMEM ? bpk_diag_set(diag, r, BPK_NO_OFFSET, "out of memory") : r;
    uint64_t metadata_size = choose_metadata_size(plan, cbor.len, can_clone);
    plan->cbor_size = (uint32_t)cbor.len;
    plan->data_start = bpk_layout_align(BPK_HEADER_SIZE + metadata_size);
    if (bpk_plan_file_size(plan) > BPK_MAX_FILE)
        return too_big(diag, "the file's size", bpk_plan_file_size(plan), BPK_MAX_FILE);
    bpk_outbuf_clear(&plan->head);
    out_header(&plan->head, (uint32_t)metadata_size);
    bpk_out(&plan->head, cbor.text, cbor.len);
    while (plan->head.len < plan->data_start && !plan->head.failed)
        bpk_out(&plan->head, "", 1);
    return plan->head.failed ? bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory") : 0;
}

uint64_t bpk_plan_file_size(const struct bpk_plan *plan) {
    return plan->data_start + plan->data_size;
}
