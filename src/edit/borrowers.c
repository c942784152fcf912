/* What stays outside the new pack must not need bytes that only the old one has: backups, pending
 * files, scratch and edits that are left out get them as their own before the old pack goes. */
#include "edit/commit.h"

#include "pack/copy.h"
#include "pack/util.h"

#include <errno.h>
#include <unistd.h>

/* By index of the base: whether the tensor of that name has the same bytes in the new pack. */
static bool *find_unchanged(const struct bpk_commit *commit) {
    bool *unchanged = calloc(commit->base->meta.tensor_count + 1, sizeof(bool));
    for (size_t i = 0; unchanged && i < commit->count; i++) {
        const struct bpk_commit_item *item = &commit->items[i];
        if (item->index != BPK_NO_TENSOR && !item->content && !item->owned)
            unchanged[item->index] = true;
    }
    return unchanged;
}

static bool borrows(const struct bpk_commit *commit, const struct bpk_content *content,
                    const bool *unchanged) {
    for (const struct bpk_content *c = content; c; c = c->below)
        if (c->in_commit)
            return false;
    const struct bpk_content *last = bpk_commit_bottom(content);
    return last && last->pack == commit->base && !unchanged[last->index];
}

static void record_own(struct bpk_edits *edits, const struct bpk_content *content) {
    bpk_record_content(edits, content);
    bpk_record_blocks(edits, content, 0, content->size);
    bpk_record_synced(edits, content);
}

/* ---- with the lock held ---------------------------------------------------------------------- */

static int free_one(struct bpk_edits *edits, struct bpk_content *content) {
    int r = bpk_content_own_all(content);
    if (r == 0)
        r = bpk_content_sync(content);
    if (r == 0)
        record_own(edits, content);
    return r;
}

int bpk_commit_free_rest(struct bpk_commit *commit) {
    struct bpk_file *file;
    struct bpk_file *next;
    _cleanup_free_ bool *unchanged = find_unchanged(commit);
    int r = unchanged ? 0 : -ENOMEM;
    HASH_ITER(by_number, commit->edits->files, file, next) {
        if (r == 0 && file->name && file->content && borrows(commit, file->content, unchanged))
            r = free_one(commit->edits, file->content);
        bpk_state_close_unused(commit->edits, file->number);
    }
    return r;
}

/* ---- without it ------------------------------------------------------------------------------ */

/* A content while it is copied: whoever writes to its file writes above it. */
struct borrower {
    struct bpk_content *content; /* a reference */
    uint64_t copy;               /* names the data file that it is copied to */
    int fd;                      /* of that */
};

struct borrowers {
    struct borrower *all;
    size_t count;
    size_t capacity;
};

static void set_frozen(struct bpk_content *content, bool frozen) {
    for (; content; content = content->below)
        content->frozen = frozen;
}

static int find_borrowers(struct bpk_commit *commit, struct borrowers *found) {
    struct bpk_edits *edits = commit->edits;
    struct bpk_file *file;
    struct bpk_file *next;
    _cleanup_free_ bool *unchanged = find_unchanged(commit);
    int r = unchanged ? 0 : -ENOMEM;
    HASH_ITER(by_number, edits->files, file, next) {
        struct bpk_content *content = file->content;
        if (r < 0 || !file->name || !content || !borrows(commit, content, unchanged))
            continue;
        r = bpk_grow((void **)&found->all, &found->capacity, found->count, sizeof(found->all[0]));
        if (r < 0)
            continue;
        found->all[found->count++] =
            (struct borrower){bpk_content_ref(content), edits->next_content++, -1};
        set_frozen(content, true);
    }
    return r;
}

/* All of it as it shows now, on the disk. */
static int copy_out(struct bpk_commit *commit, struct borrower *borrower) {
    struct bpk_content *content = borrower->content;
    pthread_mutex_lock(&commit->edits->lock);
    borrower->fd = bpk_store_open_data(&commit->edits->store, borrower->copy, true);
    pthread_mutex_unlock(&commit->edits->lock);
    if (borrower->fd < 0)
        return borrower->fd;
    struct bpk_copier copier = {.to = borrower->fd, .clone = true};
    int r = ftruncate(borrower->fd, (off_t)content->size) < 0 ? -errno : 0;
    for (uint64_t at = 0; at < content->size && r == 0;) {
        struct bpk_run run;
        pthread_mutex_lock(&commit->edits->lock);
        r = bpk_content_next_run(content, at, &run);
        pthread_mutex_unlock(&commit->edits->lock);
        if (r == 0 && run.fd >= 0)
            r = bpk_copier_range(&copier, run.fd, run.offset, at, run.size);
        at += r == 0 ? run.size : 0;
    }
    bpk_copier_clear(&copier);
    if (r == 0 && bpk_pack_is_changed(commit->base))
        r = -EIO;
    if (r == 0 && fdatasync(borrower->fd) < 0)
        r = -errno;
    return r == -ESTALE ? -EIO : r;
}

/* The copy becomes its data file, unless it is gone by now or what was copied may not have been
 * what it holds. */
static int take_copy(struct bpk_edits *edits, struct borrower *borrower) {
    struct bpk_content *content = borrower->content;
    if (content->references == 1 || content->sync_failed)
        return 0;
    int r = bpk_content_take_copy(content, borrower->copy, borrower->fd);
    if (r < 0)
        return r;
    borrower->fd = -1;
    record_own(edits, content);
    return 0;
}

static void drop_borrower(struct bpk_edits *edits, struct borrower *borrower) {
    if (borrower->fd >= 0) {
        close(borrower->fd);
        bpk_store_remove_data(&edits->store, borrower->copy, false);
    }
    set_frozen(borrower->content, false);
    bpk_content_close(borrower->content);
    bpk_content_unref(borrower->content, false);
}

int bpk_commit_free_early(struct bpk_commit *commit) {
    struct bpk_edits *edits = commit->edits;
    struct borrowers found = {0};
    pthread_mutex_lock(&edits->lock);
    int r = find_borrowers(commit, &found);
    pthread_mutex_unlock(&edits->lock);
    for (size_t i = 0; i < found.count && r == 0; i++)
        r = copy_out(commit, &found.all[i]);
    pthread_mutex_lock(&edits->lock);
    if (r == 0 && found.count > 0) {
        r = bpk_record_begin(edits, 0);
        for (size_t i = 0; i < found.count && r == 0; i++)
            r = take_copy(edits, &found.all[i]);
        r = bpk_record_finish(edits, r);
    }
    for (size_t i = 0; i < found.count; i++)
        drop_borrower(edits, &found.all[i]);
    pthread_mutex_unlock(&edits->lock);
    free(found.all);
    return r;
}
