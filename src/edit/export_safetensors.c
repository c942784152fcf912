#include "edit/export_safetensors.h"

#include "pack/util.h"
#include "view/safetensors.h"

#include <errno.h>
#include <string.h>

/* A tensor, and where it is in the plan. */
struct candidate {
    struct bpk_safetensors_tensor tensor; /* first: what candidates are sorted by */
    size_t index;
};

struct builder {
    const struct bpk_plan *plan;
    const struct bpk_commit *commit;
    struct bpk_safetensors_layout *layout;
    struct candidate *candidates;
    uint64_t *dims; /* of all of them */
    bool failed;
};

/* ---- what is left out ------------------------------------------------------------------------ */

static int leave_out(struct bpk_safetensors_layout *layout, struct bpk_str name,
                     const char *reason) {
    int r = bpk_grow((void **)&layout->left_out, &layout->left_out_capacity, layout->left_out_count,
                     sizeof(layout->left_out[0]));
    char *copy = r == 0 ? strndup(name.bytes, name.len) : NULL;
    if (!copy)
        return -ENOMEM;
    layout->left_out[layout->left_out_count++] = (struct bpk_left_out){copy, reason};
    return 0;
}

static int leave_out_tensor(struct builder *builder, struct bpk_str name, const char *reason) {
    char file[BPK_FILE_NAME_BUF];
    size_t len = bpk_name_encode(name, file);
    if (len > 0)
        name = (struct bpk_str){file, len};
    return leave_out(builder->layout, name, reason);
}

static void leave_out_key(void *context, struct bpk_str key) {
    struct builder *builder = context;
    builder->failed |= leave_out(builder->layout, key,
                                 "metadata has this key, so what it would say is not in the "
                                 "file") < 0;
}

/* Whether an edit of the tensor is not valid: neither it nor what was there before is exported. */
static bool is_invalid(const struct bpk_commit *commit, struct bpk_str name) {
    char file[BPK_FILE_NAME_BUF];
    const struct bpk_committed *committed = commit ? &commit->committed : NULL;
    if (!committed || committed->left_out_count == 0 || bpk_name_encode(name, file) == 0)
        return false;
    for (size_t i = 0; i < committed->left_out_count; i++)
        if (strcmp(committed->left_out[i], file) == 0)
            return true;
    return false;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static struct bpk_shape shape_of(const struct bpk_plan_tensor *t) {
    return t->from ? bpk_pack_tensor_shape(t->from, t->index) : t->shape;
}

static struct bpk_array array_of(const struct builder *builder, size_t index, uint64_t *dims) {
    const struct bpk_plan_tensor *t = &builder->plan->tensors[index];
    struct bpk_shape shape = shape_of(t);
    struct bpk_array array = {.rank = shape.left, .dims = dims, .size = t->size};
    if (t->from)
        bpk_pack_tensor_dtype(t->from, t->index, &array.dtype);
    else
        array.dtype = builder->commit->items[index].desc->means.dtype;
    for (uint32_t i = 0; bpk_shape_next(&shape, &dims[i]); i++)
        ;
    return array;
}

static int gather(struct builder *builder, size_t *ret_count) {
    const struct bpk_plan *plan = builder->plan;
    size_t ranks = 0;
    size_t count = 0;
    int r = 0;
    for (size_t i = 0; i < plan->tensor_count; i++)
        ranks += shape_of(&plan->tensors[i]).left;
    builder->dims = calloc(ranks + 1, sizeof(*builder->dims));
    builder->candidates = calloc(plan->tensor_count + 1, sizeof(*builder->candidates));
    if (!builder->dims || !builder->candidates)
        return -ENOMEM;
    uint64_t *dims = builder->dims;
    for (size_t i = 0; i < plan->tensor_count && r == 0; i++) {
        const char *reason = "has an edit that is not valid";
        struct bpk_str name = plan->tensors[i].name;
        struct bpk_array array = array_of(builder, i, dims);
        dims += array.rank;
        if (is_invalid(builder->commit, name) || !bpk_safetensors_takes(name, &array, &reason))
            r = leave_out_tensor(builder, name, reason);
        else
            builder->candidates[count++] = (struct candidate){{name, array}, i};
    }
    if (count > 0)
        qsort(builder->candidates, count, sizeof(builder->candidates[0]), bpk_safetensors_compare);
    *ret_count = count;
    return r;
}

static int write_head(struct builder *builder, size_t count) {
    struct bpk_safetensors_layout *layout = builder->layout;
    uint64_t data_size;
    _cleanup_free_ struct bpk_safetensors_tensor *tensors = calloc(count + 1, sizeof(*tensors));
    layout->order = calloc(count + 1, sizeof(*layout->order));
    if (!tensors || !layout->order)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        tensors[i] = builder->candidates[i].tensor;
        layout->order[i] = builder->candidates[i].index;
    }
    layout->count = count;
    const struct bpk_safetensors file = {
        .tensors = tensors,
        .tensor_count = count,
        .metadata = builder->plan->metadata,
        .metadata_count = builder->plan->metadata_count,
        .scalars = builder->plan->scalars,
        .scalar_count = builder->plan->scalar_count,
        .left_out = leave_out_key,
        .context = builder,
    };
    int r = bpk_safetensors_head(&file, &layout->head, &data_size);
    return r == 0 && builder->failed ? -ENOMEM : r;
}

int bpk_safetensors_lay_out(struct bpk_plan *plan, const struct bpk_commit *commit,
                            struct bpk_safetensors_layout *ret_layout) {
    struct bpk_safetensors_layout layout = {0};
    struct builder builder = {.plan = plan, .commit = commit, .layout = &layout};
    size_t count;
    bpk_plan_sort_maps(plan);
    int r = gather(&builder, &count);
    if (r == 0)
        r = write_head(&builder, count);
    free(builder.candidates);
    free(builder.dims);
    if (r < 0)
        bpk_safetensors_layout_clear(&layout);
    else
        *ret_layout = layout;
    return r;
}

void bpk_safetensors_layout_clear(struct bpk_safetensors_layout *layout) {
    for (size_t i = 0; i < layout->left_out_count; i++)
        free(layout->left_out[i].name);
    free(layout->left_out);
    free(layout->order);
    bpk_outbuf_clear(&layout->head);
    *layout = (struct bpk_safetensors_layout){0};
}
