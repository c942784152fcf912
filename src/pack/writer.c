#include "pack/writer.h"

#include "pack/diag.h"
#include "pack/io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- runs ------------------------------------------------------------------------------------ */

static int next_run(const struct bpk_plan_tensor *t, uint64_t offset, struct bpk_run *ret_run) {
    if (t->next_run)
        return t->next_run(t->context, offset, ret_run);
    const struct bpk_meta_tensor *from = &t->data_from->meta.tensors[t->data_index];
    *ret_run = (struct bpk_run){
        .fd = t->data_from->fd,
        .offset = t->data_from->data_start + from->start + offset,
        .size = t->size - offset,
    };
    return 0;
}

/* A run being put together: neighbours of one file that stay neighbours become one, the padding
 * between them included where it is known to be that, so that a large clone takes one call. */
struct pending {
    int fd;
    bool joins_padding;
    uint64_t from;
    uint64_t to;
    uint64_t size;
};

static int flush_run(struct bpk_copier *copier, struct pending *pending) {
    int r = 0;
    if (pending->size > 0)
        r = bpk_copier_range(copier, pending->fd, pending->from, pending->to, pending->size);
    pending->size = 0;
    return r;
}

/* Zeros need no writing: the file is new, and was made as long as it will be. They end what went
 * before, or a run after them could bring what lay there in its file. */
static int add_run(struct bpk_copier *copier, struct pending *pending, const struct bpk_run *run,
                   uint64_t to) {
    if (run->fd < 0)
        return flush_run(copier, pending);
    uint64_t pending_end = pending->to + pending->size;
    bool joins = pending->size > 0 && pending->fd == run->fd && to >= pending_end &&
                 to - pending_end < (pending->joins_padding ? BPK_ALIGNMENT : 1) &&
                 run->offset >= pending->from && run->offset - pending->from == to - pending->to;
    if (joins) {
        pending->size = to + run->size - pending->to;
        return 0;
    }
    int r = flush_run(copier, pending);
    *pending = (struct pending){run->fd, pending->joins_padding, run->offset, to, run->size};
    return r;
}

static int copy_tensors(const struct bpk_plan *plan, struct bpk_copier *copier) {
    struct pending pending = {.joins_padding = plan->joins_padding};
    int r = 0;
    for (size_t i = 0; i < plan->tensor_count && r == 0; i++) {
        const struct bpk_plan_tensor *t = &plan->tensors[i];
        uint64_t offset = 0;
        while (offset < t->size && r == 0) {
            struct bpk_run run;
            r = next_run(t, offset, &run);
            if (r < 0)
                break;
            if (run.size > t->size - offset)
                run.size = t->size - offset;
            r = add_run(copier, &pending, &run, plan->data_start + t->start + offset);
            offset += run.size;
        }
        /* What follows an edited tensor in its file need not be padding: it may be its old end. */
        if (r == 0 && t->next_run)
            r = flush_run(copier, &pending);
    }
    return r < 0 ? r : flush_run(copier, &pending);
}

/* The base's data section as it is, from the first byte to the end of the last tensor. */
static int copy_section(const struct bpk_plan *plan, struct bpk_copier *copier) {
    return bpk_copier_range(copier, plan->base->fd, plan->base->data_start, plan->data_start,
                            plan->data_size);
}

int bpk_writer_write(const struct bpk_plan *plan, int fd, bool can_clone,
                     const struct bpk_progress *progress, struct bpk_written *ret_written,
                     struct bpk_diag *diag) {
    struct bpk_copier copier = {.to = fd, .clone = can_clone, .total = bpk_plan_file_size(plan)};
    if (progress)
        copier.progress = *progress;
    /* Nothing of what was tried with it may stay between the tensors. */
    int r = ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)bpk_plan_file_size(plan)) < 0 ? -errno : 0;
    if (r == 0)
        r = plan->keeps_data ? copy_section(plan, &copier) : copy_tensors(plan, &copier);
    if (r == 0)
        r = bpk_copier_write(&copier, 0, plan->head.text, plan->head.len);
    bpk_copier_clear(&copier);
    if (r == -ESTALE)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "the file was cut while it was copied");
    if (r < 0)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot write: %s", strerror(-r));
    if (ret_written)
        *ret_written = (struct bpk_written){.copied = copier.copied, .cloned = copier.cloned};
    return 0;
}

/* ---- checking -------------------------------------------------------------------------------- */

static int differs(struct bpk_diag *diag, const char *what) {
    return bpk_diag_set(diag, -EBADMSG, BPK_NO_OFFSET, "the new pack was not written right: %s",
                        what);
}

static int compare(const struct bpk_plan *plan, const struct bpk_pack *pack,
                   struct bpk_diag *diag) {
    const struct bpk_meta *meta = &pack->meta;
    if (pack->data_start != plan->data_start)
        return differs(diag, "where the data starts");
    if ((uint64_t)pack->stat.st_size != bpk_plan_file_size(plan))
        return differs(diag, "its length");
    if (meta->tensor_count != plan->tensor_count || meta->entry_count != plan->metadata_count ||
        meta->scalar_count != plan->scalar_count || meta->block_size != plan->cbor_size)
        return differs(diag, "its metadata");
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const struct bpk_plan_tensor *t = &plan->tensors[i];
        uint32_t index;
        if (bpk_pack_find_tensor(pack, t->name, &index) < 0)
            return differs(diag, "a tensor is missing");
        if (meta->tensors[index].start != t->start ||
            meta->tensors[index].end != t->start + t->size)
            return differs(diag, "a tensor's place");
    }
    return 0;
}

/* Whether a run of another file than the base's is in the new pack as it is there. */
static int compare_run(const struct bpk_run *run, const struct bpk_pack *pack, uint64_t at,
                       struct bpk_diag *diag) {
    enum { STEP = 32 << 10 };
    char want[STEP];
    char got[STEP];
    for (uint64_t done = 0; done < run->size;) {
        size_t size = run->size - done < STEP ? (size_t)(run->size - done) : STEP;
        size_t n;
        size_t m;
        int r = bpk_io_pread(run->fd, run->offset + done, want, size, &n);
        if (r == 0)
            r = bpk_io_pread(pack->fd, at + done, got, size, &m);
        if (r < 0)
            return bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot read the new pack back: %s",
                                strerror(-r));
        if (n != size || m != size || memcmp(want, got, size) != 0)
            return differs(diag, "an edited tensor's bytes");
        done += size;
    }
    return 0;
}

/* Reads back what was written from memory. What came from the base is known by its length. */
static int compare_edited(const struct bpk_plan *plan, const struct bpk_pack *pack,
                          struct bpk_diag *diag) {
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const struct bpk_plan_tensor *t = &plan->tensors[i];
        uint64_t offset = 0;
        while (t->next_run && !t->by_length && offset < t->size) {
            struct bpk_run run;
            int r = t->next_run(t->context, offset, &run);
            if (r < 0)
                return bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot read an edited tensor: %s",
                                    strerror(-r));
            if (run.size > t->size - offset)
                run.size = t->size - offset;
            bool own = run.fd >= 0 && (!plan->base || run.fd != plan->base->fd);
            if (own)
                r = compare_run(&run, pack, plan->data_start + t->start + offset, diag);
            if (r < 0)
                return r;
            offset += run.size;
        }
    }
    return 0;
}

int bpk_writer_verify(const struct bpk_plan *plan, const char *path, struct bpk_diag *diag) {
    struct bpk_pack *pack;
    /* All that we write is aligned, and a pack without data may be too short to tell. */
    const struct bpk_open_options options = {.force_layout = true, .layout = BPK_LAYOUT_ALIGNED};
    int r = bpk_pack_open(path, &options, &pack, diag);
    if (r < 0)
        return r;
    r = compare(plan, pack, diag);
    if (r == 0)
        r = compare_edited(plan, pack, diag);
    bpk_pack_unref(pack);
    return r;
}
