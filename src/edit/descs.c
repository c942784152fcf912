/* Descriptors of tensors, and what a name remembers of them. */
#include "edit/state.h"

#include "pack/cbor_writer.h"
#include "pack/dtype.h"
#include "pack/pack_internal.h"
#include "pack/util.h"

#include <errno.h>
#include <string.h>

/* ---- descriptors ----------------------------------------------------------------------------- */

static struct bpk_desc *new_desc(void) {
    struct bpk_desc *desc = calloc(1, sizeof(*desc));
    if (desc)
        desc->references = 1;
    return desc;
}

struct bpk_desc *bpk_desc_ref(struct bpk_desc *desc) {
    if (desc)
        desc->references++;
    return desc;
}

void bpk_desc_unref(struct bpk_desc *desc) {
    if (!desc || --desc->references > 0)
        return;
    bpk_descriptor_clear(&desc->means);
    bpk_outbuf_clear(&desc->dtype_cbor);
    bpk_outbuf_clear(&desc->unknown_cbor);
    free(desc);
}

static bool copy_dims(struct bpk_shape shape, struct bpk_descriptor *means) {
    means->rank = shape.left;
    if (shape.left == 0)
        return true;
    means->dims = calloc(shape.left, sizeof(*means->dims));
    if (!means->dims)
        return false;
    for (uint32_t i = 0; bpk_shape_next(&shape, &means->dims[i]); i++)
        ;
    return true;
}

static struct bpk_desc *desc_of_base(const struct bpk_pack *pack, uint32_t index) {
    const struct bpk_meta_tensor *t = &pack->meta.tensors[index];
    struct bpk_desc *desc = new_desc();
    if (!desc)
        return NULL;
    struct bpk_str dtype = bpk_meta_dtype_cbor(&pack->meta, t);
    bpk_pack_tensor_dtype(pack, index, &desc->means.dtype);
    bpk_out(&desc->dtype_cbor, dtype.bytes, dtype.len);
    desc->unknown_count = bpk_meta_unknown(&pack->meta, t, &desc->unknown_cbor);
    desc->means.has_param_id = t->flags & BPK_TENSOR_HAS_PARAM_ID;
    desc->means.param_id = t->param_id;
    if (!copy_dims(bpk_pack_tensor_shape(pack, index), &desc->means) || desc->dtype_cbor.failed ||
        desc->unknown_cbor.failed) {
        bpk_desc_unref(desc);
        return NULL;
    }
    return desc;
}

/* A descriptor as a sidecar gives it (takes `means` over). What the name had before lends its
 * unknown keys and, where the dtype means the same, the dtype's own bytes. */
struct bpk_desc *bpk_desc_from(struct bpk_descriptor *means, const struct bpk_desc *before) {
    struct bpk_desc *desc = new_desc();
    if (!desc)
        return NULL;
    if (before && bpk_dtype_equal(&before->means.dtype, &means->dtype))
        bpk_out(&desc->dtype_cbor, before->dtype_cbor.text, before->dtype_cbor.len);
    else
        bpk_cbor_out_dtype(&desc->dtype_cbor, &means->dtype);
    if (before) {
        bpk_out(&desc->unknown_cbor, before->unknown_cbor.text, before->unknown_cbor.len);
        desc->unknown_count = before->unknown_count;
    }
    if (desc->dtype_cbor.failed || desc->unknown_cbor.failed) {
        bpk_desc_unref(desc);
        return NULL;
    }
    desc->means = *means;
    *means = (struct bpk_descriptor){0};
    return desc;
}

struct bpk_desc *bpk_desc_with_param_id(const struct bpk_desc *desc, bool has_param_id,
                                        uint64_t param_id) {
    struct bpk_descriptor means = desc->means;
    means.dims = NULL;
    if (!copy_dims(bpk_desc_shape(desc), &means))
        return NULL;
    means.has_param_id = has_param_id;
    means.param_id = has_param_id ? param_id : 0;
    struct bpk_desc *copy = bpk_desc_from(&means, desc);
    bpk_descriptor_clear(&means);
    return copy;
}

struct bpk_shape bpk_desc_shape(const struct bpk_desc *desc) {
    static const uint64_t none[1] = {0};
    return (struct bpk_shape){
        .dims = desc->means.dims ? desc->means.dims : none,
        .left = desc->means.rank,
    };
}

bool bpk_desc_length(const struct bpk_desc *desc, uint64_t *ret_bytes) {
    const struct bpk_descriptor *means = &desc->means;
    return bpk_dtype_shape_length(&means->dtype, means->dims, means->rank, ret_bytes);
}

/* ---- stems ----------------------------------------------------------------------------------- */

struct bpk_stem *bpk_state_stem(struct bpk_edits *edits, const char *name) {
    struct bpk_stem *stem;
    HASH_FIND(hh, edits->stems, name, strlen(name), stem);
    return stem;
}

/* The stem's record, made as the base has it if there is none yet. */
int bpk_state_make_stem(struct bpk_edits *edits, const char *name, struct bpk_stem **ret_stem) {
    struct bpk_stem *stem = bpk_state_stem(edits, name);
    uint32_t index;
    if (!stem) {
        size_t len = strlen(name);
        stem = calloc(1, sizeof(*stem) + len + 1);
        if (!stem)
            return -ENOMEM;
        memcpy(stem->name, name, len + 1);
        if (bpk_state_find_base(edits, name, &index)) {
            stem->now = desc_of_base(edits->base, index);
            if (!stem->now) {
                free(stem);
                return -ENOMEM;
            }
        }
        HASH_ADD(hh, edits->stems, name, len, stem);
        if (!stem->hh.tbl) {
            bpk_desc_unref(stem->now);
            free(stem);
            return -ENOMEM;
        }
    }
    stem->changed = edits->clock;
    bpk_state_note_version(edits, name);
    *ret_stem = stem;
    return 0;
}

/* The descriptor in force: a new reference, or NULL with 0 if there is none. */
int bpk_state_desc(struct bpk_edits *edits, const char *name, struct bpk_desc **ret_desc) {
    const struct bpk_stem *stem = bpk_state_stem(edits, name);
    uint32_t index;
    *ret_desc = NULL;
    if (stem) {
        *ret_desc = bpk_desc_ref(stem->now);
        return 0;
    }
    if (!bpk_state_find_base(edits, name, &index))
        return 0;
    *ret_desc = desc_of_base(edits->base, index);
    return *ret_desc ? 0 : -ENOMEM;
}

static int copy_descriptor(struct bpk_edits *edits, const struct bpk_place *place,
                           struct bpk_descriptor *ret_descriptor) {
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    const char *name = file ? file->name : place->name;
    struct bpk_desc *desc;
    if (!name)
        return -ENODATA;
    if ((file ? file->folder : place->folder) != BPK_IN_TENSORS || (file && file->target) ||
        bpk_state_is_text(edits, BPK_IN_TENSORS, name))
        return -ENOTSUP;
    int r = bpk_state_desc(edits, name, &desc);
    if (r < 0 || !desc)
        return r < 0 ? r : -ENODATA;
    struct bpk_descriptor means = desc->means;
    means.dims = NULL;
    if (copy_dims(bpk_desc_shape(desc), &means))
        *ret_descriptor = means;
    else
        r = -ENOMEM;
    bpk_desc_unref(desc);
    return r;
}

int bpk_edits_descriptor(struct bpk_edits *edits, const struct bpk_place *place,
                         struct bpk_descriptor *ret_descriptor) {
    pthread_mutex_lock(&edits->lock);
    int r = copy_descriptor(edits, place, ret_descriptor);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

static size_t desc_room(const struct bpk_desc *desc) {
    return desc ? desc->dtype_cbor.len + desc->unknown_cbor.len + desc->means.rank * 8 : 0;
}

size_t bpk_state_stem_room(struct bpk_edits *edits, const char *name) {
    enum { TIMES = 4 }; /* at two names, in force or remembered */
    const struct bpk_stem *stem = bpk_state_stem(edits, name);
    struct bpk_outbuf unknown = {.counting = true};
    uint32_t index;
    if (stem)
        return TIMES * (desc_room(stem->now) + desc_room(stem->remembered));
    if (!bpk_state_find_base(edits, name, &index))
        return 0;
    const struct bpk_meta_tensor *t = &edits->base->meta.tensors[index];
    (void)bpk_meta_unknown(&edits->base->meta, t, &unknown);
    return TIMES * (bpk_meta_dtype_cbor(&edits->base->meta, t).len + unknown.len +
                    bpk_pack_tensor_shape(edits->base, index).left * (size_t)8);
}

void bpk_state_free_stem(struct bpk_edits *edits, struct bpk_stem *stem) {
    HASH_DEL(edits->stems, stem);
    bpk_desc_unref(stem->now);
    bpk_desc_unref(stem->remembered);
    free(stem);
}
