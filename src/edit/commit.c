/* A commit: freeze, judge, plan, write, publish, rebase.
 *
 * The lock is held while the edits are frozen and while the new pack takes the old one's place, not
 * while tensors are copied. What is written meanwhile goes into contents above the frozen ones. The
 * record that a crash is recovered by is in the journal, on the disk, before the new pack is.
 */
#include "edit/commit.h"

#include "pack/diag.h"
#include "pack/io.h"
#include "pack/pack_internal.h"
#include "pack/replace.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- publish --------------------------------------------------------------------------------- */

struct bpk_base_id bpk_state_base_id(const struct bpk_pack *pack) {
    return (struct bpk_base_id){
        .ino = pack->stat.st_ino,
        .size = (uint64_t)pack->stat.st_size,
        .mtime_sec = pack->stat.st_mtim.tv_sec,
        .mtime_nsec = pack->stat.st_mtim.tv_nsec,
        .hash = pack->table_hash,
    };
}

static int list_contents(struct bpk_commit *commit) {
    struct bpk_committed *committed = &commit->committed;
    committed->contents = calloc(commit->count + 1, sizeof(*committed->contents));
    if (!committed->contents)
        return -ENOMEM;
    for (size_t i = 0; i < commit->count; i++) {
        struct bpk_commit_item *item = &commit->items[i];
        if (!item->content)
            continue;
        item->content->in_commit = true;
        committed->contents[committed->count++] = (struct bpk_committed_content){
            .id = item->content->id,
            .content = bpk_content_ref(item->content),
            .name = item->name,
        };
    }
    return 0;
}

/* The new pack is whole, on the disk and locked, and nobody sees it yet. */
static int before_publish(void *context, int fd, struct bpk_diag *diag) {
    struct bpk_commit *commit = context;
    struct bpk_edits *edits = commit->edits;
    static const struct bpk_open_options aligned = {true, BPK_LAYOUT_ALIGNED, false};
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int r = bpk_pack_open(path, &aligned, &commit->made, diag);
    if (r < 0)
        return r;
    commit->lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (commit->lock_fd < 0)
        return bpk_diag_set(diag, -errno, BPK_NO_OFFSET, "cannot keep the lock");
    pthread_mutex_lock(&edits->lock);
    r = list_contents(commit);
    pthread_mutex_unlock(&edits->lock);
    if (r == 0)
        r = bpk_commit_free_early(commit);
    pthread_mutex_lock(&edits->lock);
    if (r == 0)
        r = bpk_record_begin(edits, 0);
    commit->committed.base_id = bpk_state_base_id(commit->made);
    if (r == 0)
        r = bpk_state_prepare_base(edits, commit->made);
    if (r == 0)
        r = bpk_commit_free_rest(commit);
    r = bpk_record_finish(edits, r);
    /* In a frame of its own, where the next mount looks for it. */
    if (r == 0)
        r = bpk_record_begin(edits, 64 * (commit->count + 1));
    if (r == 0) {
        bpk_record_committed(edits, &commit->committed);
        r = bpk_record_finish_once(edits, r);
    }
    if (r == 0)
        r = bpk_store_sync(&edits->store);
    pthread_mutex_unlock(&edits->lock);
    if (r < 0)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot write to the edits folder: %s",
                            strerror(-r));
    return 0;
}

/* Writes down what is left, or removes the folder if nothing is. */
int bpk_state_compact(struct bpk_edits *edits, bool lasts) {
    _cleanup_outbuf_ struct bpk_outbuf frames = {0};
    if (edits->store.folder < 0)
        return 0;
    if (!bpk_state_has_edits(edits)) {
        edits->frames = 0;
        return bpk_store_remove(&edits->store, lasts);
    }
    int r = bpk_record_all(edits);
    if (r < 0)
        return r;
    bpk_store_frame(&frames, &edits->record);
    bpk_outbuf_clear(&edits->record);
    if (frames.failed)
        return -ENOMEM;
    r = bpk_store_rewrite(&edits->store, &edits->base_id, &frames);
    return r;
}

/* The kernel forgets the sizes of sidecars whose data_offsets changed. */
static void note_moved(struct bpk_commit *commit, bool kept_data) {
    char file[BPK_FILE_NAME_BUF + 8];
    if (kept_data)
        return;
    for (uint32_t i = 0; i < (uint32_t)commit->made->meta.tensor_count; i++) {
        size_t len = bpk_names_file(commit->edits->tensor_names, i, file);
        strcpy(file + len, ".json");
        bpk_state_stale_name(commit->edits, BPK_IN_TENSORS, file);
    }
}

/* Nothing to write: what was undone, or came to nothing, is forgotten all the same. */
static int forget_undone(struct bpk_commit *commit) {
    struct bpk_edits *edits = commit->edits;
    pthread_mutex_lock(&edits->lock);
    commit->committed.base_id = edits->base_id;
    int r = bpk_state_rebase(edits, edits->base, &commit->committed);
    if (r == 0)
        r = bpk_state_compact(edits, true);
    if (r < 0)
        edits->broken = true;
    pthread_mutex_unlock(&edits->lock);
    return r;
}

static int take_over(struct bpk_commit *commit, bool kept_data) {
    struct bpk_edits *edits = commit->edits;
    pthread_mutex_lock(&edits->lock);
    struct bpk_pack *before = bpk_steal_ptr(edits->replaced);
    edits->replaced = bpk_pack_ref(edits->base);
    int r = bpk_state_rebase(edits, commit->made, &commit->committed);
    if (r == 0) {
        if (edits->lock_fd >= 0)
            close(edits->lock_fd);
        edits->lock_fd = bpk_steal_fd(&commit->lock_fd);
        edits->last_commit = time(NULL);
        note_moved(commit, kept_data);
        /* The journal as it is says what happened too: should a power cut bring the folder back,
         * the next mount sees that. Written anew it is before the next edit. */
        edits->broken = bpk_state_compact(edits, false) < 0;
    }
    pthread_mutex_unlock(&edits->lock);
    bpk_pack_unref(before);
    return r;
}

static void thaw(struct bpk_commit *commit) {
    pthread_mutex_lock(&commit->edits->lock);
    for (size_t i = 0; i < commit->count; i++) {
        if (!commit->items[i].content)
            continue;
        commit->items[i].content->in_commit = false;
        commit->items[i].content->frozen = false; /* a layer over it stays where there is one */
    }
    commit->edits->committing = false;
    pthread_cond_broadcast(&commit->edits->committed);
    pthread_mutex_unlock(&commit->edits->lock);
    bpk_commit_release(commit);
}

void bpk_commit_release(struct bpk_commit *commit) {
    pthread_mutex_lock(&commit->edits->lock);
    for (size_t i = 0; i < commit->count; i++) {
        free(commit->items[i].owned);
        bpk_desc_unref(commit->items[i].desc);
        bpk_content_unref(commit->items[i].content, false);
    }
    bpk_committed_clear(&commit->committed);
    pthread_mutex_unlock(&commit->edits->lock);
    free(commit->items);
    bpk_outbuf_clear(&commit->metadata_text);
    bpk_pack_unref(commit->made);
    bpk_pack_unref(commit->base);
    if (commit->lock_fd >= 0)
        close(commit->lock_fd);
}

/* Takes the turn to commit and freezes. On failure all is as it was. */
static int begin_commit(struct bpk_commit *commit, struct bpk_plan *ret_plan, bool *ret_something,
                        struct bpk_diag *diag) {
    struct bpk_edits *edits = commit->edits;
    pthread_mutex_lock(&edits->lock);
    while (edits->committing && commit->mode == BPK_COMMIT_LAST)
        pthread_cond_wait(&edits->committed, &edits->lock);
    if (edits->committing || edits->read_only) {
        int busy = edits->read_only ? -EROFS : -EBUSY;
        pthread_mutex_unlock(&edits->lock);
        return bpk_diag_set(diag, busy, BPK_NO_OFFSET,
                            busy == -EROFS ? "the mount is read-only"
                                           : "another commit is under way");
    }
    edits->committing = true;
    bool has_edits = bpk_state_has_edits(edits);
    /* Without any, what came and went may have left the folder. */
    int r = has_edits ? bpk_record_begin(edits, 0) : bpk_state_compact(edits, true);
    if (r == 0 && has_edits) {
        r = bpk_commit_gather(commit, ret_plan, ret_something, diag);
        r = bpk_record_finish(edits, r);
    }
    pthread_mutex_unlock(&edits->lock);
    if (r < 0 && diag && diag->code != r)
        bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot prepare the commit: %s", strerror(-r));
    if (r < 0)
        thaw(commit);
    return r;
}

static int note_progress(void *context, uint64_t done, uint64_t total) {
    struct bpk_edits *edits = context;
    edits->written = done;
    edits->to_write = total;
    return edits->is_cancelled && edits->is_cancelled() ? -EINTR : 0;
}

static void end_progress(struct bpk_edits *edits) {
    edits->written = 0;
    edits->to_write = 0;
}

bool bpk_edits_progress(struct bpk_edits *edits, uint64_t *ret_done, uint64_t *ret_total) {
    *ret_done = edits->written;
    *ret_total = edits->to_write;
    return *ret_total > 0 && *ret_done <= *ret_total;
}

/* With the data taken from the wrong place, the new pack would lack its last bytes for ever. */
static int refuse_overruled(const struct bpk_commit *commit, struct bpk_diag *diag) {
    if (!commit->edits->base->overruled)
        return 0;
    return bpk_diag_set(diag, -EPERM, BPK_NO_OFFSET,
                        "its length and content speak against the layout that '-o layout' takes it "
                        "for, so it is not replaced: leave the option away, or write another file");
}

int bpk_edits_commit(struct bpk_edits *edits, enum bpk_commit_mode mode,
                     const struct bpk_remarks *remarks, struct bpk_commit_result *ret_result,
                     struct bpk_diag *diag) {
    struct bpk_commit commit = {.edits = edits, .mode = mode, .lock_fd = -1};
    struct bpk_plan plan = {0};
    bool something = false;
    *ret_result = (struct bpk_commit_result){0};
    int r = begin_commit(&commit, &plan, &something, diag);
    if (r < 0)
        return r;
    if (something)
        r = refuse_overruled(&commit, diag);
    if (r == 0 && something) {
        struct bpk_replace_options options = {
            .folder = edits->parent, /* its path may lead into the mount itself */
            .ignore_owner = edits->ignore_owner,
            .progress = {note_progress, edits},
            .remarks = remarks ? *remarks : (struct bpk_remarks){0},
            .before_publish = before_publish,
            .context = &commit,
        };
        struct bpk_written written = {0};
        r = bpk_replace(&plan, strrchr(edits->path, '/') + 1, &options, &written, diag);
        end_progress(edits);
        if (written.published) {
            int taken = take_over(&commit, plan.keeps_data);
            r = r < 0 ? r : taken;
        }
    } else if (r == 0 && commit.base) {
        r = forget_undone(&commit);
    }
    ret_result->wrote = r == 0 && something;
    ret_result->left_out = commit.committed.left_out_count +
                           (commit.committed.leaves_maps_out != 0) + commit.arrays_left_out;
    ret_result->kept = commit.kept;
    if (r == 0)
        ret_result->maps_put_back = commit.maps_put_back & ~commit.committed.leaves_maps_out;
    bpk_plan_clear(&plan);
    thaw(&commit);
    return r;
}

/* What lies there goes when the edits do. */
static bool is_edits_folder(struct bpk_edits *edits, int folder) {
    struct stat ours;
    struct stat attr;
    pthread_mutex_lock(&edits->lock);
    bool is_there = edits->store.folder >= 0 && fstat(edits->store.folder, &ours) == 0;
    pthread_mutex_unlock(&edits->lock);
    return is_there && fstat(folder, &attr) == 0 && attr.st_dev == ours.st_dev &&
           attr.st_ino == ours.st_ino;
}

int bpk_edits_save(struct bpk_edits *edits, enum bpk_commit_mode mode, int folder, const char *name,
                   const struct bpk_remarks *remarks, struct bpk_diag *diag) {
    struct bpk_commit commit = {.edits = edits, .mode = mode, .lock_fd = -1};
    const struct bpk_replace_options options = {
        .folder = folder,
        .new_file = true,
        .ignore_owner = true,
        .progress = {note_progress, edits},
        .remarks = remarks ? *remarks : (struct bpk_remarks){0},
    };
    struct bpk_plan plan = {0};
    bool something = false;
    if (is_edits_folder(edits, folder))
        return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET, "it would be in the edits folder");
    int r = begin_commit(&commit, &plan, &something, diag);
    if (r < 0)
        return r;
    if (!plan.base) /* no edits: the pack as it is */
        r = bpk_plan_from_pack(edits->base, &plan);
    if (r == 0)
        r = bpk_replace(&plan, name, &options, NULL, diag);
    end_progress(edits);
    bpk_plan_clear(&plan);
    thaw(&commit);
    return r;
}
