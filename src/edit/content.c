#include "edit/content.h"

#include "pack/copy.h"
#include "pack/io.h"
#include "pack/util.h"

#include <errno.h>
#include <string.h>

/* ---- making ---------------------------------------------------------------------------------- */

struct bpk_content *bpk_content_new(struct bpk_store *store, uint64_t id) {
    struct bpk_content *content = calloc(1, sizeof(*content));
    if (!content)
        return NULL;
    content->id = id;
    content->references = 1;
    content->changes = 1;
    content->store = store;
    content->fd = -1;
    return content;
}

struct bpk_content *bpk_content_over_tensor(struct bpk_store *store, uint64_t id,
                                            struct bpk_pack *pack, uint32_t index) {
    struct bpk_content *content = bpk_content_new(store, id);
    if (!content)
        return NULL;
    struct bpk_tensor tensor;
    bpk_pack_tensor(pack, index, &tensor);
    content->pack = bpk_pack_ref(pack);
    content->index = index;
    content->size = tensor.end - tensor.start;
    content->below_limit = content->size;
    return content;
}

struct bpk_content *bpk_content_over_content(struct bpk_store *store, uint64_t id,
                                             struct bpk_content *below) {
    struct bpk_content *content = bpk_content_new(store, id);
    if (!content)
        return NULL;
    content->below = bpk_content_ref(below);
    content->size = below->size;
    content->below_limit = below->size;
    return content;
}

struct bpk_content *bpk_content_ref(struct bpk_content *content) {
    content->references++;
    return content;
}

static void drop_below(struct bpk_content *content, bool keep_file) {
    bpk_pack_unref(content->pack);
    if (content->below)
        bpk_content_unref(content->below, keep_file);
    free(content->lost);
    content->pack = NULL;
    content->below = NULL;
    content->lost = NULL;
    content->below_limit = 0;
}

static void close_data(struct bpk_content *content) {
    if (content->fd >= 0)
        close(content->fd);
    content->fd = -1;
}

/* A commit copies from the file of a frozen one without the lock. */
void bpk_content_close(struct bpk_content *content) {
    if (!content->frozen)
        close_data(content);
}

void bpk_content_end_copy(struct bpk_content *content) {
    for (; content; content = content->below)
        close_data(content);
}

void bpk_content_unref(struct bpk_content *content, bool keep_file) {
    if (!content || --content->references > 0)
        return;
    close_data(content);
    if (content->has_data_file && !keep_file)
        bpk_store_remove_data(content->store, content->id, content->was_synced);
    drop_below(content, keep_file);
    bpk_block_map_clear(&content->own);
    free(content);
}

/* ---- own blocks ------------------------------------------------------------------------------ */

static uint64_t blocks_of(uint64_t size) {
    return size / BPK_BLOCK + (size % BPK_BLOCK != 0);
}

int bpk_content_map(struct bpk_content *content, uint64_t offset, uint64_t size) {
    if (size == 0)
        return 0;
    for (uint64_t block = offset / BPK_BLOCK; block <= (offset + size - 1) / BPK_BLOCK; block++) {
        int r = bpk_block_map_add(&content->own, block);
        if (r < 0)
            return r;
    }
    content->has_data_file = true;
    return 0;
}

int bpk_content_each_own(const struct bpk_content *content, bpk_range_fn *take, void *context) {
    uint64_t end = blocks_of(content->size);
    uint64_t block = 0;
    while (block < end) {
        uint64_t next = bpk_block_map_end_of_run(&content->own, block, end);
        if (bpk_block_map_has(&content->own, block)) {
            int r = take(context, block * BPK_BLOCK, (next - block) * BPK_BLOCK);
            if (r < 0)
                return r;
        }
        block = next;
    }
    return 0;
}

/* ---- what is lost ---------------------------------------------------------------------------- */

int bpk_content_lose(struct bpk_content *content, struct bpk_str name, uint64_t size) {
    struct bpk_lost *lost = calloc(1, sizeof(*lost) + name.len + 1);
    if (!lost)
        return -ENOMEM;
    lost->size = size;
    lost->name_len = name.len;
    memcpy(lost->name, name.bytes, name.len);
    bpk_pack_unref(content->pack);
    content->pack = NULL;
    free(content->lost);
    content->lost = lost;
    return 0;
}

static const struct bpk_lost *find_lost(const struct bpk_content *content, uint64_t at,
                                        uint64_t end) {
    const struct bpk_lost *lost = NULL;
    if (!content->lost && !content->below)
        return NULL;
    if (end > content->below_limit)
        end = content->below_limit;
    while (at < end && !lost) {
        uint64_t next =
            bpk_block_map_end_of_run(&content->own, at / BPK_BLOCK, blocks_of(end)) * BPK_BLOCK;
        if (next > end)
            next = end;
        if (!bpk_block_map_has(&content->own, at / BPK_BLOCK))
            lost = content->lost ? content->lost : find_lost(content->below, at, next);
        at = next;
    }
    return lost;
}

const struct bpk_lost *bpk_content_missing(const struct bpk_content *content) {
    return find_lost(content, 0, content->size);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int open_data(struct bpk_content *content, bool create) {
    if (content->fd >= 0)
        return 0;
    int fd = bpk_store_open_data(content->store, content->id, create && !content->has_data_file);
    if (fd < 0)
        return fd;
    content->fd = fd;
    content->has_data_file = true;
    return 0;
}

int bpk_content_hold(struct bpk_content *content) {
    int r = 0;
    for (; content && r == 0; content = content->below)
        if (content->has_data_file)
            r = open_data(content, false);
    return r;
}

/* The run at `offset`, looked for in `size` bytes, and the pack it is of, so that its reader can
 * see whether that changed. */
static int resolve(struct bpk_content *content, uint64_t offset, uint64_t size,
                   struct bpk_run *ret_run, const struct bpk_pack **ret_pack) {
    uint64_t block = offset / BPK_BLOCK;
    uint64_t end = size < content->size - offset ? offset + size : content->size;
    uint64_t run_end = bpk_block_map_end_of_run(&content->own, block, blocks_of(end)) * BPK_BLOCK;
    if (end > run_end)
        end = run_end;
    *ret_pack = NULL;
    if (bpk_block_map_has(&content->own, block)) {
        int r = open_data(content, false);
        if (r < 0)
            return r;
        *ret_run = (struct bpk_run){content->fd, offset + content->shift, end - offset};
        return 0;
    }
    if (offset >= content->below_limit || (!content->pack && !content->below && !content->lost)) {
        *ret_run = (struct bpk_run){-1, 0, end - offset};
        return 0;
    }
    if (end > content->below_limit)
        end = content->below_limit;
    if (content->lost)
        return -EIO;
    if (content->pack) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(content->pack, content->index, &tensor);
        *ret_pack = content->pack;
        *ret_run =
            (struct bpk_run){bpk_pack_fd(content->pack), tensor.start + offset, end - offset};
        return 0;
    }
    int r = resolve(content->below, offset, end - offset, ret_run, ret_pack);
    if (r == 0 && ret_run->size > end - offset)
        ret_run->size = end - offset;
    return r;
}

int bpk_content_next_run(void *context, uint64_t offset, struct bpk_run *ret_run) {
    const struct bpk_pack *pack;
    return resolve(context, offset, UINT64_MAX, ret_run, &pack);
}

static int read_run(const struct bpk_run *run, const struct bpk_pack *pack, void *buffer,
                    size_t size) {
    if (run->fd < 0) {
        memset(buffer, 0, size);
        return 0;
    }
    if (pack && bpk_pack_is_changed(pack))
        return -EIO;
    size_t n;
    int r = bpk_io_pread(run->fd, run->offset, buffer, size, &n);
    if (r < 0)
        return r;
    if (n < size || (pack && bpk_pack_is_changed(pack)))
        return -EIO;
    return 0;
}

int bpk_content_read(struct bpk_content *content, uint64_t offset, void *buffer, size_t size,
                     size_t *ret_read) {
    size_t done = 0;
    if (offset < content->size && size > content->size - offset)
        size = (size_t)(content->size - offset);
    if (offset >= content->size)
        size = 0;
    while (done < size) {
        struct bpk_run run;
        const struct bpk_pack *pack;
        int r = resolve(content, offset + done, size - done, &run, &pack);
        size_t wanted = size - done < run.size ? size - done : (size_t)run.size;
        if (r == 0)
            r = read_run(&run, pack, (char *)buffer + done, wanted);
        if (r < 0)
            return r;
        done += wanted;
    }
    *ret_read = done;
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Before a write into a part of a block that is not own yet: its other bytes come along. */
static int bring_block(struct bpk_content *content, uint64_t block) {
    char bytes[BPK_BLOCK];
    size_t n;
    if (bpk_block_map_has(&content->own, block) || block * BPK_BLOCK >= content->size)
        return 0;
    int r = bpk_content_read(content, block * BPK_BLOCK, bytes, sizeof(bytes), &n);
    return r < 0 ? r : bpk_io_pwrite(content->fd, block * BPK_BLOCK + content->shift, bytes, n);
}

/* A failed write may have got past the end, a failed cut leaves what was there. */
static void leave_tail(struct bpk_content *content) {
    if (!content->has_tail || content->size < content->tail_from)
        content->tail_from = content->size;
    content->has_tail = true;
    (void)bpk_content_trim(content);
}

int bpk_content_trim(struct bpk_content *content) {
    if (!content->has_tail)
        return 0;
    int r = open_data(content, false);
    if (r == 0 && ftruncate(content->fd, (off_t)(content->tail_from + content->shift)) < 0)
        r = -errno;
    if (r == 0)
        content->has_tail = false;
    return r;
}

int bpk_content_write(struct bpk_content *content, uint64_t offset, const void *buffer, size_t size,
                      bool *ret_mapped) {
    *ret_mapped = false;
    if (size == 0)
        return 0;
    uint64_t end = offset + size;
    uint64_t first = offset / BPK_BLOCK;
    uint64_t last = (end - 1) / BPK_BLOCK;
    int r = 0;
    for (uint64_t block = first; block <= last && r == 0; block++)
        r = bpk_block_map_make_room(&content->own, block);
    if (r == 0)
        r = open_data(content, true);
    if (r == 0)
        r = bpk_content_trim(content);
    if (r == 0 && offset % BPK_BLOCK != 0)
        r = bring_block(content, first);
    if (r == 0 && end % BPK_BLOCK != 0 && end < content->size &&
        (last != first || offset % BPK_BLOCK == 0))
        r = bring_block(content, last);
    if (r == 0)
        r = bpk_io_pwrite(content->fd, offset + content->shift, buffer, size);
    if (r < 0) {
        if (end > content->size)
            leave_tail(content);
        return r;
    }
    bool mapped = end > content->size;
    for (uint64_t block = first; block <= last; block++) {
        if (bpk_block_map_has(&content->own, block))
            continue;
        mapped = true;
        r = bpk_block_map_add(&content->own, block);
        if (r < 0)
            return r;
    }
    if (end > content->size)
        content->size = end;
    content->unsynced = true;
    content->changes++;
    *ret_mapped = mapped;
    return 0;
}

void bpk_content_set_size(struct bpk_content *content, uint64_t size) {
    if (size < content->below_limit)
        content->below_limit = size;
    if (size < content->size)
        bpk_block_map_drop_from(&content->own, blocks_of(size));
    if (size == 0)
        content->suspect = false; /* what is written from now on is new */
    content->size = size;
    content->unsynced = true;
    content->changes++;
}

int bpk_content_apply_size(struct bpk_content *content) {
    if (!content->has_data_file)
        return 0;
    int r = open_data(content, false);
    if (r == 0 && ftruncate(content->fd, (off_t)(content->size + content->shift)) < 0)
        r = -errno;
    if (r < 0)
        leave_tail(content);
    return r;
}

int bpk_content_settle(struct bpk_content *content) {
    if (!content->has_data_file)
        return 0;
    int r = open_data(content, false);
    if (r == -ENOENT) {
        content->suspect = true;
        content->has_data_file = false;
        r = open_data(content, true);
    }
    return r < 0 ? r : bpk_content_apply_size(content);
}

int bpk_content_cut_out(struct bpk_content *content, uint64_t offset, uint64_t size) {
    if (content->pack || content->below || content->lost || content->frozen || content->has_tail)
        return -EBUSY;
    bpk_block_map_clear(&content->own);
    content->shift += offset;
    content->size = size;
    return bpk_content_map(content, 0, size);
}

void bpk_content_bare(struct bpk_content *content) {
    drop_below(content, false);
}

void bpk_content_rebase(struct bpk_content *content, struct bpk_pack *pack, uint32_t index) {
    bpk_pack_ref(pack);
    bpk_pack_unref(content->pack);
    free(content->lost);
    content->pack = pack;
    content->index = index;
    content->lost = NULL;
}

void bpk_content_become_tensor(struct bpk_content *content, struct bpk_pack *pack, uint32_t index) {
    close_data(content);
    if (content->has_data_file)
        bpk_store_remove_data(content->store, content->id, content->was_synced);
    content->has_data_file = false;
    bpk_block_map_clear(&content->own);
    drop_below(content, false);
    content->pack = bpk_pack_ref(pack);
    content->index = index;
    content->below_limit = content->size;
    content->shift = 0;
    content->frozen = false;
    content->in_commit = false;
    content->unsynced = false;
    content->suspect = false;
    content->was_synced = false;
    content->sync_failed = false;
    content->has_tail = false;
}

/* ---- making it last -------------------------------------------------------------------------- */

/* Copies what is the content's own, or (`all`) what shows through too, to a file that is empty. */
static int copy_runs(struct bpk_content *content, struct bpk_copier *copier, bool all) {
    uint64_t at = 0;
    uint64_t shift = content->shift;
    int r = ftruncate(copier->to, (off_t)(content->size + shift)) < 0 ? -errno : 0;
    while (r == 0 && at < content->size) {
        struct bpk_run run;
        const struct bpk_pack *pack;
        uint64_t block = at / BPK_BLOCK;
        if (!all && !bpk_block_map_has(&content->own, block)) {
            at = bpk_block_map_end_of_run(&content->own, block, blocks_of(content->size)) *
                 BPK_BLOCK;
            continue;
        }
        r = resolve(content, at, UINT64_MAX, &run, &pack);
        if (r == 0 && pack && bpk_pack_is_changed(pack))
            r = -EIO;
        if (r == 0 && run.fd >= 0)
            r = bpk_copier_range(copier, run.fd, run.offset, at + shift, run.size);
        at += run.size;
    }
    return r == -ESTALE ? -EIO : r;
}

/* The data file is that of `fd` now, which is on the disk. */
static void use_data(struct bpk_content *content, int fd) {
    close_data(content);
    content->fd = fd;
    content->has_data_file = true;
    content->was_synced = true;
    content->sync_failed = false;
    content->has_tail = false;
}

/* A new data file, on the disk, in place of the old one. What the kernel may have lost of the old
 * one is still in its cache, if anywhere: nothing of it is shared then. */
static int renew_data(struct bpk_content *content, bool all) {
    _cleanup_close_ int fd = bpk_store_renew_data(content->store, content->id);
    struct bpk_copier copier = {.to = fd, .clone = !content->sync_failed};
    if (fd < 0)
        return fd;
    int r = copy_runs(content, &copier, all);
    bpk_copier_clear(&copier);
    if (r == 0 && fdatasync(fd) < 0)
        r = -errno;
    if (r == 0)
        r = bpk_store_put_data(content->store, content->id);
    if (r < 0)
        return r;
    use_data(content, bpk_steal_fd(&fd));
    return 0;
}

int bpk_content_own_all(struct bpk_content *content) {
    int r = content->own.count < blocks_of(content->size) ? renew_data(content, true) : 0;
    if (r == 0)
        r = bpk_content_map(content, 0, content->size);
    if (r == 0)
        drop_below(content, false);
    return r;
}

int bpk_content_take_copy(struct bpk_content *content, uint64_t id, int fd) {
    int r = bpk_store_move_data(content->store, id, content->id);
    if (r < 0)
        return r;
    use_data(content, fd);
    content->unsynced = false;
    if (bpk_content_map(content, 0, content->size) == 0) /* else it is as it was */
        drop_below(content, false);
    return 0;
}

static int sync_one(struct bpk_content *content) {
    if (!content->has_data_file)
        return 0;
    int r = open_data(content, false);
    if (r < 0)
        return r;
    if (content->sync_failed && content->frozen) /* a commit may be copying from that file */
        return -EBUSY;
    if (content->sync_failed)
        return renew_data(content, false);
    /* Once more would cost a flush of the disk's cache once more. */
    if (content->durable == content->changes || fdatasync(content->fd) == 0)
        return 0;
    content->sync_failed = true;
    return -errno;
}

bool bpk_content_is_synced(const struct bpk_content *content) {
    while (content && !content->unsynced)
        content = content->below;
    return !content;
}

int bpk_content_sync(struct bpk_content *content) {
    int r = content->unsynced || content->sync_failed ? sync_one(content) : 0;
    if (r < 0)
        return r;
    content->was_synced |= content->has_data_file;
    return content->below ? bpk_content_sync(content->below) : 0;
}
