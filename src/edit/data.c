/* Reading and writing files of the mount, their sizes and times, and making them last. */
#include "edit/state.h"

#include "pack/util.h"
#include "view/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { TEXT_LIMIT = 256 << 20 };

/* ---- content --------------------------------------------------------------------------------- */

/* A content of its own for a file that is to be written to. `empty`: it is about to be cut to
 * nothing, so that what it holds need not be brought. */
static int own_content(struct bpk_edits *edits, struct bpk_file *file, bool empty) {
    if (file->target)
        return -EINVAL;
    if (!file->content && file->name && bpk_state_is_text(edits, file->folder, file->name))
        return bpk_state_own_text(edits, file, empty);
    return bpk_state_own_bytes(edits, file);
}

int bpk_state_own_bytes(struct bpk_edits *edits, struct bpk_file *file) {
    struct bpk_content *above;
    uint32_t index;
    if (file->content && !file->content->frozen)
        return 0;
    if (file->content) {
        above = bpk_content_over_content(&edits->store, edits->next_content++, file->content);
    } else {
        if (!file->name || !bpk_state_find_base(edits, file->name, &index))
            return -ESTALE;
        above = bpk_content_over_tensor(&edits->store, edits->next_content++, edits->base, index);
    }
    if (!above)
        return -ENOMEM;
    bpk_content_unref(file->content, false);
    file->content = above;
    if (file->name) { /* else it goes with its last handle: the journal need not know */
        bpk_record_content(edits, above);
        bpk_record_file(edits, file);
    }
    return 0;
}

static bool is_text_file(const struct bpk_edits *edits, const struct bpk_file *file) {
    return file->name && bpk_state_is_text(edits, file->folder, file->name);
}

static bool is_array_file(const struct bpk_edits *edits, const struct bpk_file *file) {
    return file->name && bpk_state_is_array(edits, file->folder, file->name);
}

static void note_change(struct bpk_edits *edits, struct bpk_file *file, bool size_changed) {
    char sidecar[BPK_FILE_NAME_BUF + 8];
    clock_gettime(CLOCK_REALTIME, &file->mtime);
    if (is_text_file(edits, file) || is_array_file(edits, file)) {
        file->unparsed = true;
        return;
    }
    if (!file->name || file->folder != BPK_IN_TENSORS)
        return;
    bpk_state_note_version(edits, file->name);
    /* The sidecar shows size and problem. */
    const struct bpk_stem *stem = bpk_state_stem(edits, file->name);
    uint32_t index;
    if (size_changed && (stem || bpk_state_find_base(edits, file->name, &index))) {
        size_t len = strlen(file->name);
        if (len < BPK_FILE_NAME_BUF) {
            memcpy(sidecar, file->name, len);
            strcpy(sidecar + len, ".json");
            bpk_state_reset_text(edits, BPK_IN_TENSORS, sidecar);
        }
    }
}

/* Of a place that may not be touched yet. */
static uint64_t size_limit(struct bpk_edits *edits, const struct bpk_place *place) {
    enum bpk_folder folder;
    const char *name;
    if (bpk_state_find_place(edits, place, &folder, &name) < 0)
        return BPK_MAX_TENSOR;
    if (bpk_state_is_array(edits, folder, name))
        return BPK_MAX_TENSOR + BPK_NPY_MAX_HEADER;
    return bpk_state_is_text(edits, folder, name) ? TEXT_LIMIT : BPK_MAX_TENSOR;
}

static int write_file(struct bpk_edits *edits, const struct bpk_place *place, uint64_t offset,
                      const void *buffer, size_t size) {
    struct bpk_file *file;
    bool mapped;
    uint64_t limit = size_limit(edits, place);
    if (offset > limit || size > limit - offset)
        return -EFBIG;
    int r = bpk_state_touch(edits, place, &file);
    if (r == 0)
        r = own_content(edits, file, false);
    if (r < 0)
        return r;
    uint64_t before = file->content->size;
    r = bpk_content_write(file->content, offset, buffer, size, &mapped);
    if (r < 0)
        return r;
    if (mapped && file->name)
        bpk_record_blocks(edits, file->content, offset, size);
    bool was_parsed = !file->unparsed;
    note_change(edits, file, file->content->size != before);
    if (was_parsed && file->unparsed)
        bpk_record_file(edits, file);
    return is_array_file(edits, file) ? bpk_state_note_array(edits, file, offset) : 0;
}

int bpk_edits_write(struct bpk_edits *edits, const struct bpk_place *place, uint64_t offset,
                    const void *buffer, size_t size) {
    pthread_mutex_lock(&edits->lock);
    int r = bpk_record_begin(edits, 0);
    if (r == 0)
        r = write_file(edits, place, offset, buffer, size);
    r = bpk_record_finish(edits, r);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

static int truncate_file(struct bpk_edits *edits, const struct bpk_place *place, uint64_t size,
                         struct bpk_content **ret_content) {
    struct bpk_file *file;
    *ret_content = NULL;
    if (size > size_limit(edits, place))
        return -EFBIG;
    int r = bpk_state_touch(edits, place, &file);
    if (r == 0)
        r = own_content(edits, file, size == 0);
    if (r < 0)
        return r;
    bool changes = file->content->size != size;
    r = changes ? bpk_content_trim(file->content) : 0;
    if (r < 0)
        return r;
    if (changes) {
        bpk_content_set_size(file->content, size);
        if (file->name)
            bpk_record_content(edits, file->content);
        *ret_content = file->content;
    }
    note_change(edits, file, changes);
    bpk_record_file(edits, file);
    return 0;
}

/* The journal says the new length before the data file has it: what a crash leaves in the file
 * beyond it is cut off at the next mount. */
int bpk_edits_truncate(struct bpk_edits *edits, const struct bpk_place *place, uint64_t size) {
    struct bpk_content *content;
    pthread_mutex_lock(&edits->lock);
    int r = bpk_record_begin(edits, 0);
    if (r == 0)
        r = truncate_file(edits, place, size, &content);
    else
        content = NULL;
    r = bpk_record_finish(edits, r);
    if (r == 0 && content)
        r = bpk_content_apply_size(content);
    bpk_state_close_unused(edits, place->number);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Whether the file is, by its name, a tensor of the base; a key can have a tensor's name. */
static bool is_of_base(const struct bpk_edits *edits, const struct bpk_file *file,
                       const struct bpk_place *place, uint32_t *ret_index) {
    const char *name = file ? file->name : place->name;
    enum bpk_folder folder = file ? file->folder : place->folder;
    return name && folder == BPK_IN_TENSORS && bpk_state_find_base(edits, name, ret_index);
}

int bpk_edits_read(struct bpk_edits *edits, const struct bpk_place *place, uint64_t offset,
                   void *buffer, size_t size, size_t *ret_read) {
    pthread_mutex_lock(&edits->lock);
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    uint32_t index;
    int r = -ENODATA;
    if (file && file->content) {
        r = bpk_content_read(file->content, offset, buffer, size, ret_read);
    } else if (is_of_base(edits, file, place, &index)) {
        /* The base does not change: it is read without the lock. */
        struct bpk_pack *base = bpk_pack_ref(edits->base);
        pthread_mutex_unlock(&edits->lock);
        r = bpk_pack_read(base, index, offset, buffer, size, ret_read);
        bpk_pack_unref(base);
        return r;
    }
    pthread_mutex_unlock(&edits->lock);
    return r;
}

void bpk_edits_drop_cache(struct bpk_edits *edits, const struct bpk_place *place, uint64_t offset,
                          uint64_t size) {
    pthread_mutex_lock(&edits->lock);
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    uint32_t index;
    struct bpk_pack *base = NULL;
    if (!(file && file->content) && is_of_base(edits, file, place, &index))
        base = bpk_pack_ref(edits->base);
    pthread_mutex_unlock(&edits->lock);
    if (base)
        bpk_pack_drop_cache(base, index, offset, size);
    bpk_pack_unref(base);
}

int bpk_edits_text(struct bpk_edits *edits, const struct bpk_place *place,
                   struct bpk_outbuf *ret_text) {
    pthread_mutex_lock(&edits->lock);
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    const char *name = file ? file->name : place->name;
    enum bpk_folder folder = file ? file->folder : place->folder;
    struct bpk_outbuf text = {0};
    int r = 0;
    if (!name)
        r = -ESTALE;
    else if (!file || !file->content) /* else it is read where it is */
        r = bpk_state_compose(edits, folder, name, &text);
    pthread_mutex_unlock(&edits->lock);
    if (r < 0)
        bpk_outbuf_clear(&text);
    else
        *ret_text = text;
    return r;
}

bool bpk_edits_is_text(struct bpk_edits *edits, const struct bpk_place *place) {
    pthread_mutex_lock(&edits->lock);
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    bool is_text = file ? is_text_file(edits, file)
                        : place->name && bpk_state_is_text(edits, place->folder, place->name);
    pthread_mutex_unlock(&edits->lock);
    return is_text;
}

int bpk_edits_readlink(struct bpk_edits *edits, uint64_t number, struct bpk_outbuf *ret_target) {
    pthread_mutex_lock(&edits->lock);
    const struct bpk_file *file = bpk_state_file(edits, number);
    int r = file && file->target ? 0 : -EINVAL;
    if (r == 0)
        bpk_out_str(ret_target, file->target);
    pthread_mutex_unlock(&edits->lock);
    return r == 0 && ret_target->failed ? -ENOMEM : r;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Where the size of a text is kept that takes long to compose; NULL for others. */
static struct bpk_kept_size *kept_size(struct bpk_edits *edits, enum bpk_folder folder,
                                       const char *name) {
    if (folder != BPK_IN_ROOT)
        return NULL;
    return &edits->kept_sizes[strcmp(name, "scalars.json") == 0];
}

static int stat_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                     uint64_t *ret_size) {
    struct bpk_kept_size *kept = kept_size(edits, folder, name);
    if (kept && kept->generation == edits->generation) {
        *ret_size = kept->size;
        return 0;
    }
    struct bpk_outbuf counter = {.counting = true};
    int r = bpk_state_compose(edits, folder, name, &counter);
    if (r == 0 && kept)
        *kept = (struct bpk_kept_size){edits->generation, counter.len};
    *ret_size = counter.len;
    return r;
}

static int stat_file(struct bpk_edits *edits, const struct bpk_place *place,
                     struct bpk_file_stat *ret_stat) {
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    struct bpk_file_stat attr = {0};
    const char *name = file ? file->name : place->name;
    enum bpk_folder folder = file ? file->folder : place->folder;
    uint32_t index;
    int r = 0;
    if (!file &&
        (!name || bpk_state_entry(edits, folder, name) || !bpk_state_base_has(edits, folder, name)))
        return -ESTALE;
    if (file && !name && file->opens == 0)
        return -ESTALE;
    if (file) {
        attr.mode = file->mode;
        attr.has_uid = file->has_uid;
        attr.has_gid = file->has_gid;
        attr.uid = file->uid;
        attr.gid = file->gid;
        attr.mtime = file->mtime;
        attr.is_link = file->target != NULL;
    }
    /* The text of metadata.json changes with each key. */
    if (folder == BPK_IN_ROOT && name && strcmp(name, "metadata.json") == 0 &&
        edits->maps_mtime.tv_sec != 0 && (!file || file->changed <= edits->maps_changed))
        attr.mtime = edits->maps_mtime;
    if (file && file->target) {
        attr.size = strlen(file->target);
    } else if (file && file->content) {
        attr.size = file->content->size;
    } else if (name && bpk_state_is_text(edits, folder, name)) {
        r = stat_text(edits, folder, name, &attr.size);
    } else if (is_of_base(edits, file, place, &index)) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(edits->base, index, &tensor);
        attr.size = tensor.end - tensor.start;
    }
    if (r == 0)
        *ret_stat = attr;
    return r == -ENOENT ? -ESTALE : r;
}

int bpk_edits_stat(struct bpk_edits *edits, const struct bpk_place *place,
                   struct bpk_file_stat *ret_stat) {
    pthread_mutex_lock(&edits->lock);
    int r = stat_file(edits, place, ret_stat);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

struct timespec bpk_edits_folder_mtime(struct bpk_edits *edits, enum bpk_folder folder) {
    pthread_mutex_lock(&edits->lock);
    struct timespec mtime = edits->folder_mtimes[folder];
    pthread_mutex_unlock(&edits->lock);
    return mtime;
}

int bpk_edits_set_attr(struct bpk_edits *edits, const struct bpk_place *place,
                       const struct stat *attr, unsigned set) {
    struct bpk_file *file;
    pthread_mutex_lock(&edits->lock);
    int r = bpk_record_begin(edits, 0);
    if (r == 0)
        r = bpk_state_touch(edits, place, &file);
    if (r == 0) {
        file->mode = set & BPK_SET_MODE ? attr->st_mode & 07777 : file->mode;
        file->mtime = set & BPK_SET_MTIME ? attr->st_mtim : file->mtime;
        file->uid = set & BPK_SET_UID ? attr->st_uid : file->uid;
        file->gid = set & BPK_SET_GID ? attr->st_gid : file->gid;
        file->has_uid |= (set & BPK_SET_UID) != 0;
        file->has_gid |= (set & BPK_SET_GID) != 0;
    }
    r = bpk_record_finish(edits, r);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

/* ---- flush and fsync ------------------------------------------------------------------------- */

static int parse_if_needed(struct bpk_edits *edits, struct bpk_file *file, bool ends_here,
                           struct bpk_content **sorted) {
    if (file && file->unparsed && is_array_file(edits, file))
        return bpk_state_take_array(edits, file, false, sorted);
    if (!file || !file->name || !file->content || !is_text_file(edits, file))
        return 0;
    if (file->unparsed)
        return bpk_state_parse(edits, file, file->folder, file->name, ends_here);
    bool bad = file->verdict == BPK_TEXT_BAD || (ends_here && file->verdict == BPK_TEXT_EARLY_END);
    return bad ? -EBADMSG : 0;
}

int bpk_edits_flush(struct bpk_edits *edits, const struct bpk_place *place) {
    pthread_mutex_lock(&edits->lock);
    struct bpk_content *sorted = bpk_state_sort_ahead(edits, place->number, false);
    struct bpk_file *file = bpk_state_file(edits, place->number);
    int r = 0;
    if (file && file->unparsed) {
        r = bpk_record_begin(edits, 0);
        if (r == 0)
            r = parse_if_needed(edits, file, false, &sorted);
        r = bpk_record_finish(edits, r);
    }
    bpk_content_unref(sorted, false);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

/* The disk takes most of what was written with the lock let go, so that others do not wait long for
 * the rest. */
static void sync_ahead(struct bpk_edits *edits, uint64_t number) {
    const struct bpk_file *file = bpk_state_file(edits, number);
    struct bpk_content *content = file ? file->content : NULL;
    if (!content || !content->unsynced || !content->has_data_file || bpk_content_hold(content) < 0)
        return;
    int fd = fcntl(content->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return;
    (void)bpk_content_ref(content);
    uint64_t changes = content->changes;
    pthread_mutex_unlock(&edits->lock);
    bool failed = fdatasync(fd) < 0;
    close(fd);
    pthread_mutex_lock(&edits->lock);
    content->sync_failed |= failed; /* the kernel tells of it once only */
    if (!failed)
        content->durable = changes;
    bpk_content_unref(content, false);
}

int bpk_edits_fsync(struct bpk_edits *edits, const struct bpk_place *place) {
    pthread_mutex_lock(&edits->lock);
    sync_ahead(edits, place->number);
    struct bpk_content *sorted = bpk_state_sort_ahead(edits, place->number, true);
    struct bpk_file *file = bpk_state_file(edits, place->number);
    int verdict = 0;
    int r = 0;
    if (file) {
        r = bpk_record_begin(edits, 0);
        if (r == 0 && file->content)
            r = bpk_content_sync(file->content);
        for (struct bpk_content *c = file->content; c && r == 0; c = c->below) {
            if (c->unsynced)
                bpk_record_synced(edits, c);
            c->unsynced = false;
        }
        /* An array that is whole is a tensor then: what lasts of it lasts of that. */
        if (r == 0)
            verdict = parse_if_needed(edits, file, true, &sorted);
        r = bpk_record_finish(edits, r);
        if (r == 0)
            r = bpk_store_sync(&edits->store);
    }
    bpk_content_unref(sorted, false);
    pthread_mutex_unlock(&edits->lock);
    return r < 0 ? r : verdict;
}

int bpk_edits_fsync_folder(struct bpk_edits *edits) {
    pthread_mutex_lock(&edits->lock);
    int r = bpk_store_sync(&edits->store);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

size_t bpk_edits_take_stale(struct bpk_edits *edits, uint64_t **ret_numbers) {
    pthread_mutex_lock(&edits->lock);
    size_t count = edits->stale_count;
    *ret_numbers = edits->stale;
    edits->stale = NULL;
    edits->stale_count = 0;
    edits->stale_capacity = 0;
    pthread_mutex_unlock(&edits->lock);
    return count;
}
