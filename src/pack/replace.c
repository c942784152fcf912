#include "pack/replace.h"

#include "pack/copy.h"
#include "pack/diag.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

/* A look before the work, so that a full disk is known at once and not after minutes. Shared
 * blocks take no room. */
static int check_room(const struct bpk_plan *plan, int fd, bool can_clone, struct bpk_diag *diag) {
    struct statvfs figures;
    if (can_clone || fstatvfs(fd, &figures) < 0)
        return 0;
    uint64_t room = (uint64_t)figures.f_bavail * figures.f_frsize;
    uint64_t needed = plan->data_start;
    for (size_t i = 0; i < plan->tensor_count; i++)
        needed += plan->tensors[i].size;
    /* A sparse base may need less than its length. */
    if (plan->base) {
        uint64_t held = (uint64_t)plan->base->stat.st_blocks * 512;
        if (held < (uint64_t)plan->base->stat.st_size)
            return 0;
    }
    if (needed <= room)
        return 0;
    return bpk_diag_set(diag, -ENOSPC, BPK_NO_OFFSET,
                        "no room for the new pack: it needs %llu bytes, the filesystem has %llu",
                        (unsigned long long)needed, (unsigned long long)room);
}

/* Bytes that no tensor has must not stay in the new pack. Where the data is copied, all of the
 * padding is looked at before. Where its blocks are shared, a read for each tensor would take
 * longer than all the rest: there only gaps too large for padding are looked at, and all of them if
 * tensors whose names were there twice may have left bytes behind. */
static int find_strays(struct bpk_plan *plan, bool can_clone, struct bpk_diag *diag) {
    const struct bpk_pack *base = plan->base;
    if (!base)
        return 0;
    bool all = !can_clone || base->layout == BPK_LAYOUT_LEGACY || base->meta.tensor_duplicates > 0;
    int r = bpk_pack_find_stray(base, base->data_start, all, &plan->stray);
    plan->drops_strays = r > 0;
    return r < 0 ? bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot read: %s", strerror(-r)) : 0;
}

/* Whose owner, mode and attributes the new file has; -1: nobody's. */
static int old_file(const struct bpk_plan *plan, const struct bpk_replace_options *options) {
    if (plan->base)
        return plan->base->fd;
    return options->old_fd > 0 ? options->old_fd : -1;
}

static int fill(struct bpk_plan *plan, struct bpk_atomic_file *file,
                const struct bpk_replace_options *options, struct bpk_written *written,
                struct bpk_diag *diag) {
    char path[64];
    bool can_clone = plan->base && bpk_copy_can_clone(plan->base->fd, file->fd);
    int r = find_strays(plan, can_clone, diag);
    if (r == 0)
        r = bpk_plan_place(plan, can_clone, diag);
    if (r == 0)
        r = check_room(plan, file->fd, can_clone, diag);
    if (r == 0)
        r = bpk_writer_write(plan, file->fd, can_clone, &options->progress, written, diag);
    if (r == 0 && plan->base && bpk_pack_is_changed(plan->base))
        r = bpk_diag_set(diag, -ESTALE, BPK_NO_OFFSET,
                         "the pack was changed in place by somebody else; nothing was written");
    if (r == 0)
        r = bpk_atomic_seal(file, old_file(plan, options), options->ignore_owner, diag);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
    r = bpk_writer_verify(plan, path, diag);
    if (r == 0 && options->before_publish)
        r = options->before_publish(options->context, file->fd, diag);
    return r;
}

int bpk_replace(struct bpk_plan *plan, const char *path, const struct bpk_replace_options *options,
                struct bpk_written *ret_written, struct bpk_diag *diag) {
    static const struct bpk_replace_options defaults = {0};
    struct bpk_atomic_file file;
    struct bpk_written written = {0};
    if (!options)
        options = &defaults;
    const struct stat *old = plan->base && !options->new_file ? &plan->base->stat : NULL;
    struct stat replaced;
    if (!plan->base && options->old_fd > 0) {
        if (fstat(options->old_fd, &replaced) < 0)
            return bpk_diag_set(diag, -errno, BPK_NO_OFFSET, "cannot look at the old file: %s",
                                strerror(errno));
        old = &replaced;
    }
    int r = options->folder > 0 ? bpk_atomic_begin_at(options->folder, path, old, &file, diag)
                                : bpk_atomic_begin(path, old, &file, diag);
    if (r < 0)
        return r;
    r = fill(plan, &file, options, &written, diag);
    if (r == 0)
        r = bpk_atomic_publish(&file, diag);
    written.published = file.published;
    if (file.published)
        bpk_remarks_tell(plan, &options->remarks);
    bpk_atomic_end(&file);
    if (ret_written)
        *ret_written = written;
    return r;
}
