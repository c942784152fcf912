#include "edit/export.h"

#include "edit/export_safetensors.h"
#include "pack/copy.h"
#include "pack/diag.h"
#include "pack/io.h"
#include "pack/pack_internal.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Bytes of the file behind the head. Between two parts are zeros. */
struct part {
    uint64_t start; /* in the export */
    uint64_t size;
    const struct bpk_plan_tensor *tensor; /* whose bytes; NULL: the base's file from `offset` on */
    uint64_t offset;
};

struct bpk_export {
    atomic_uint references;
    struct bpk_edits *edits; /* NULL: of a pack without */
    uint64_t generation;
    struct bpk_commit commit; /* what was gathered: it holds what the plan points to */
    struct bpk_plan plan;
    struct bpk_outbuf head;
    struct part *parts; /* by start */
    size_t count;
    size_t capacity;
    uint64_t size;
    bool is_whole;
    struct bpk_safetensors_layout safetensors; /* of such an export: what is left out */
};

/* ---- life ------------------------------------------------------------------------------------ */

struct bpk_export *bpk_export_ref(struct bpk_export *export) {
    export->references++;
    return export;
}

void bpk_export_unref(struct bpk_export *export) {
    if (!export || --export->references > 0)
        return;
    bpk_plan_clear(&export->plan);
    if (export->edits)
        bpk_commit_release(&export->commit);
    bpk_outbuf_clear(&export->head);
    bpk_safetensors_layout_clear(&export->safetensors);
    free(export->parts);
    free(export);
}

uint64_t bpk_export_size(const struct bpk_export *export) {
    return export->size;
}

uint64_t bpk_export_generation(const struct bpk_export *export) {
    return export->generation;
}

bool bpk_export_is_whole(const struct bpk_export *export) {
    return export->is_whole;
}

void bpk_export_each_left_out(const struct bpk_export *export, bpk_left_out_fn *report,
                              void *context) {
    const struct bpk_safetensors_layout *layout = &export->safetensors;
    for (size_t i = 0; i < layout->left_out_count; i++)
        report(context, layout->left_out[i].name, layout->left_out[i].reason);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int add_part(struct bpk_export *export, const struct part *part) {
    if (part->size == 0)
        return 0;
    int r = bpk_grow((void **)&export->parts, &export->capacity, export->count, sizeof(*part));
    if (r == 0)
        export->parts[export->count++] = *part;
    return r;
}

/* The pack's file as it is. */
static int lay_out_base(struct bpk_export *export) {
    uint64_t size = (uint64_t) export->plan.base->stat.st_size;
    export->size = size;
    return add_part(export, &(struct part){.size = size});
}

static int lay_out_pack(struct bpk_export *export, bool can_clone, struct bpk_diag *diag) {
    struct bpk_plan *plan = &export->plan;
    int r = bpk_plan_place(plan, can_clone, diag);
    if (r < 0)
        return r;
    export->head = plan->head;
    plan->head = (struct bpk_outbuf){0};
    export->size = bpk_plan_file_size(plan);
    if (plan->keeps_data)
        return add_part(export, &(struct part){.start = plan->data_start,
                                               .size = plan->data_size,
                                               .offset = plan->base->data_start});
    for (size_t i = 0; i < plan->tensor_count && r == 0; i++) {
        const struct bpk_plan_tensor *t = &plan->tensors[i];
        r = add_part(export, &(struct part){plan->data_start + t->start, t->size, t, 0});
    }
    return r;
}

static int lay_out_safetensors(struct bpk_export *export, const struct bpk_commit *commit,
                               struct bpk_diag *diag) {
    struct bpk_safetensors_layout *layout = &export->safetensors;
    int r = bpk_safetensors_lay_out(&export->plan, commit, layout);
    if (r == -EFBIG)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET,
                            "the header would be larger than readers of safetensors take");
    if (r < 0)
        return r;
    export->head = layout->head;
    layout->head = (struct bpk_outbuf){0};
    export->size = export->head.len;
    for (size_t i = 0; i < layout->count && r == 0; i++) {
        const struct bpk_plan_tensor *t = &export->plan.tensors[layout->order[i]];
        r = add_part(export, &(struct part){export->size, t->size, t, 0});
        export->size += t->size;
    }
    return r;
}

/* ---- making ---------------------------------------------------------------------------------- */

static struct bpk_export *new_export(void) {
    struct bpk_export *export = calloc(1, sizeof(*export));
    if (export) {
        export->references = 1;
        export->is_whole = true;
    }
    return export;
}

/* Whether a commit could share blocks with the base: tried on a file that has no name. */
static bool can_clone(const struct bpk_edits *edits) {
    _cleanup_close_ int fd = openat(edits->parent, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 && bpk_copy_can_clone(edits->base->fd, fd);
}

/* Texts that were written count as they would at a commit. */
static int parse_texts(struct bpk_edits *edits) {
    if (!bpk_judge_has_unparsed(edits))
        return 0;
    int r = bpk_record_begin(edits, 0);
    if (r == 0)
        r = bpk_judge_parse_all(edits);
    return bpk_record_finish(edits, r);
}

static int gather(struct bpk_export *export, bool *ret_something, struct bpk_diag *diag) {
    struct bpk_edits *edits = export->edits;
    *ret_something = false;
    if (!bpk_state_has_edits(edits))
        return bpk_plan_from_pack(edits->base, &export->plan);
    int r = edits->read_only ? 0 : parse_texts(edits);
    if (r == 0)
        r = bpk_commit_gather(&export->commit, &export->plan, ret_something, diag);
    export->is_whole = export->commit.committed.left_out_count == 0 &&
                       export->commit.committed.leaves_maps_out == 0 &&
                       export->commit.arrays_left_out == 0;
    return r;
}

int bpk_export_of_edits(struct bpk_edits *edits, enum bpk_export_format format,
                        struct bpk_export **ret_export, struct bpk_diag *diag) {
    struct bpk_export *export = new_export();
    bool something;
    if (!export)
        return -ENOMEM;
    export->edits = edits;
    export->commit = (struct bpk_commit){
        .edits = edits, .mode = BPK_COMMIT_VALID, .only_looks = true, .lock_fd = -1};
    pthread_mutex_lock(&edits->lock);
    int r = gather(export, &something, diag);
    export->generation = edits->generation;
    bool clones = r == 0 && something && format == BPK_EXPORT_PACK && can_clone(edits);
    pthread_mutex_unlock(&edits->lock);
    if (r == 0 && format == BPK_EXPORT_SAFETENSORS)
        r = lay_out_safetensors(export, export->commit.items ? &export->commit : NULL, diag);
    else if (r == 0)
        r = something ? lay_out_pack(export, clones, diag) : lay_out_base(export);
    if (r < 0) {
        bpk_export_unref(export);
        return r;
    }
    *ret_export = export;
    return 0;
}

int bpk_export_of_pack(struct bpk_pack *pack, enum bpk_export_format format,
                       struct bpk_export **ret_export, struct bpk_diag *diag) {
    struct bpk_export *export = new_export();
    int r = export ? bpk_plan_from_pack(pack, &export->plan) : -ENOMEM;
    if (r == 0 && format == BPK_EXPORT_SAFETENSORS) {
        r = lay_out_safetensors(export, NULL, diag);
    } else if (r == 0 && pack->lost_count > 0) { /* of a salvaged pack, what is whole */
        export->plan.drops_strays = true;
        r = lay_out_pack(export, false, diag);
    } else if (r == 0) {
        r = lay_out_base(export);
    }
    if (r < 0) {
        bpk_export_unref(export);
        return r;
    }
    *ret_export = export;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The first part that ends after `offset`. */
static size_t find_part(const struct bpk_export *export, uint64_t offset) {
    size_t low = 0;
    size_t high = export->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (export->parts[middle].start + export->parts[middle].size <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes of an edited tensor: only while nothing else was edited, or they may be others by now. */
static int read_content(struct bpk_export *export, struct bpk_content *content, uint64_t offset,
                        void *buffer, size_t size, size_t *ret_read) {
    struct bpk_edits *edits = export->edits;
    pthread_mutex_lock(&edits->lock);
    int r = edits->generation == export->generation ? 0 : -ESTALE;
    if (r == 0)
        r = bpk_content_read(content, offset, buffer, size, ret_read);
    for (; content; content = content->below)
        bpk_content_close(content);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

static int read_base(const struct bpk_pack *base, uint64_t offset, void *buffer, size_t size,
                     size_t *ret_read) {
    int r =
        bpk_pack_is_changed(base) ? -EIO : bpk_io_pread(base->fd, offset, buffer, size, ret_read);
    return r == 0 && bpk_pack_is_changed(base) ? -EIO : r;
}

static int read_part(struct bpk_export *export, const struct part *part, uint64_t at, void *buffer,
                     size_t size) {
    const struct bpk_plan_tensor *t = part->tensor;
    size_t n;
    int r;
    if (!t) {
        r = read_base(export->plan.base, part->offset + at, buffer, size, &n);
    } else if (t->next_run) {
        const struct bpk_commit_item *item = t->context;
        r = read_content(export, item->content, at, buffer, size, &n);
    } else {
        r = bpk_pack_read(t->data_from, t->data_index, at, buffer, size, &n);
    }
    return r == 0 && n < size ? -EIO : r;
}

static bool is_stale(struct bpk_export *export) {
    return export->edits && bpk_edits_generation(export->edits) != export->generation;
}

int bpk_export_read(struct bpk_export *export, uint64_t offset, void *buffer, size_t size,
                    size_t *ret_read) {
    size_t done = 0;
    int r = 0;
    if (offset >= export->size)
        size = 0;
    else if (size > export->size - offset)
        size = (size_t)(export->size - offset);
    size_t k = find_part(export, offset);
    while (done < size && r == 0) {
        uint64_t at = offset + done;
        const struct part *part = k < export->count ? &export->parts[k] : NULL;
        uint64_t end = part ? part->start : export->size;
        char *out = (char *)buffer + done;
        size_t n = size - done;
        if (at < export->head.len) {
            n = n < export->head.len - at ? n : export->head.len - (size_t)at;
            memcpy(out, export->head.text + at, n);
        } else if (at < end) {
            n = n < end - at ? n : (size_t)(end - at);
            memset(out, 0, n);
        } else {
            uint64_t left = part->start + part->size - at;
            n = n < left ? n : (size_t)left;
            r = read_part(export, part, at - part->start, out, n);
            k += n == left;
        }
        done += n;
    }
    if (r == 0 && is_stale(export))
        r = -ESTALE;
    if (r == 0)
        *ret_read = done;
    return r;
}
