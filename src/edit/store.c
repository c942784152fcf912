#include "edit/store.h"

#include "pack/diag.h"
#include "pack/io.h"
#include "pack/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static const char journal_name[] = "journal";
static const char new_journal_name[] = "journal.new";

enum { MANY_DOOMED = 32 };

/* The journal's first bytes. */
struct head {
    char magic[8];
    struct bpk_base_id base;
    char boot_id[BPK_BOOT_ID_SIZE];
    uint32_t reserved;
};

struct frame {
    uint64_t size; /* of the record that follows */
    uint64_t hash; /* XXH3-64 of it */
};

static const char magic[8] = {'b', 'p', 'k', 'e', 'd', 'i', 't', '2'};

bool bpk_base_id_equal(const struct bpk_base_id *a, const struct bpk_base_id *b) {
    return a->ino == b->ino && a->size == b->size && a->mtime_sec == b->mtime_sec &&
           a->mtime_nsec == b->mtime_nsec && a->hash == b->hash;
}

/* Zeros where the kernel does not say. */
static void read_boot_id(char out[BPK_BOOT_ID_SIZE]) {
    memset(out, 0, BPK_BOOT_ID_SIZE);
    _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    size_t n;
    if (fd >= 0)
        (void)bpk_io_pread(fd, 0, out, BPK_BOOT_ID_SIZE, &n);
}

static struct head make_head(const struct bpk_store *store, const struct bpk_base_id *base) {
    struct head head = {.base = *base};
    memcpy(head.magic, magic, sizeof(magic));
    memcpy(head.boot_id, store->boot_id, sizeof(head.boot_id));
    return head;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* The edits folder's name, cut with a hash where it would be too long. NULL: out of memory. */
static char *folder_name(const char *pack_name) {
    size_t len = strlen(pack_name);
    char *name = NULL;
    int n;
    if (len + sizeof("..edits") <= NAME_MAX)
        n = asprintf(&name, ".%s.edits", pack_name);
    else
        n = asprintf(&name, ".%.200s.%016llx.edits", pack_name,
                     (unsigned long long)XXH3_64bits(pack_name, len));
    return n < 0 ? NULL : name;
}

int bpk_store_init(struct bpk_store *store, int parent, const char *pack_name) {
    *store = (struct bpk_store){.parent = parent, .folder = -1, .journal = -1};
    store->name = folder_name(pack_name);
    read_boot_id(store->boot_id);
    return store->name ? 0 : -ENOMEM;
}

bool bpk_store_is_there(const char *path) {
    struct stat attr;
    const char *slash = strrchr(path, '/');
    _cleanup_free_ char *name = slash ? folder_name(slash + 1) : NULL;
    _cleanup_free_ char *whole = NULL;
    if (!name || asprintf(&whole, "%.*s/%s", (int)(slash - path), path, name) < 0)
        return false;
    return stat(whole, &attr) == 0;
}

static bool is_ours(const struct stat *attr) {
    return attr->st_uid == geteuid() && !(attr->st_mode & 022);
}

int bpk_store_open(struct bpk_store *store, struct bpk_diag *diag) {
    struct stat attr;
    _cleanup_close_ int folder =
        openat(store->parent, store->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 && errno == ENOENT)
        return -ENOENT;
    if (folder < 0)
        return bpk_diag_set(diag, -errno, BPK_NO_OFFSET, "cannot open the edits folder '%s': %s",
                            store->name, strerror(errno));
    if (fstat(folder, &attr) < 0)
        return -errno;
    if (!is_ours(&attr))
        return bpk_diag_set(diag, -EPERM, BPK_NO_OFFSET,
                            "the edits folder '%s' belongs to somebody else, or others may write "
                            "into it",
                            store->name);
    int journal = openat(folder, journal_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (journal < 0) {
        int r = -errno;
        if (r == -ENOENT) { /* it was being made, or unmade: there is nothing in it */
            store->folder = bpk_steal_fd(&folder);
            (void)bpk_store_remove(store, false);
            return -ENOENT;
        }
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot open the journal in '%s': %s",
                            store->name, strerror(-r));
    }
    store->folder = bpk_steal_fd(&folder);
    store->journal = journal;
    store->end = (uint64_t)lseek(journal, 0, SEEK_END);
    store->folder_dirty = true; /* whoever made it may not have come to sync it */
    store->parent_dirty = true;
    return 0;
}

static int make_folder(struct bpk_store *store) {
    struct stat attr;
    if (mkdirat(store->parent, store->name, 0700) < 0 && errno != EEXIST)
        return -errno;
    int folder =
        openat(store->parent, store->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) {
        int r = -errno;
        (void)unlinkat(store->parent, store->name, AT_REMOVEDIR);
        return r;
    }
    /* It may have been there: put there since the pack was opened, to see what we write into it. */
    if (fstat(folder, &attr) < 0 || !is_ours(&attr)) {
        close(folder);
        return -EPERM;
    }
    store->folder = folder;
    store->parent_dirty = true;
    return 0;
}

int bpk_store_create(struct bpk_store *store, const struct bpk_base_id *base) {
    if (store->journal >= 0)
        return 0;
    struct bpk_outbuf none = {0};
    int r = store->folder >= 0 ? 0 : make_folder(store);
    if (r == 0)
        r = bpk_store_rewrite(store, base, &none);
    if (r < 0 && store->folder >= 0)
        (void)bpk_store_remove(store, false);
    return r;
}

void bpk_store_close(struct bpk_store *store) {
    if (store->journal >= 0)
        close(store->journal);
    if (store->folder >= 0)
        close(store->folder);
    free(store->doomed);
    free(store->name);
    *store = (struct bpk_store){.parent = -1, .folder = -1, .journal = -1};
}

/* Calls `take` for every name in the folder. */
typedef int name_fn(struct bpk_store *store, const char *name, const void *context);
static int each_name(struct bpk_store *store, name_fn *take, const void *context) {
    int listed = openat(store->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (listed < 0)
        return -errno;
    DIR *folder = fdopendir(listed);
    if (!folder) {
        close(listed);
        return -ENOMEM;
    }
    int r = 0;
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = take(store, entry->d_name, context);
    closedir(folder);
    return r;
}

static int remove_name(struct bpk_store *store, const char *name, const void *context) {
    (void)context;
    return unlinkat(store->folder, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int bpk_store_remove(struct bpk_store *store, bool lasts) {
    if (store->folder < 0)
        return 0;
    /* The journal goes first: without it the rest means nothing. */
    if (unlinkat(store->folder, journal_name, 0) < 0 && errno != ENOENT)
        return -errno;
    if (store->journal >= 0)
        close(store->journal);
    store->journal = -1;
    store->end = 0;
    store->reserved = 0;
    store->doomed_count = 0;
    store->journal_unsure = false;
    int r = each_name(store, remove_name, NULL);
    if (r < 0)
        return r;
    if (unlinkat(store->parent, store->name, AT_REMOVEDIR) < 0)
        return -errno;
    close(store->folder);
    store->folder = -1;
    store->parent_dirty = false;
    return lasts && fsync(store->parent) < 0 ? -errno : 0;
}

/* ---- data files that go ---------------------------------------------------------------------- */

static void data_name(uint64_t id, char out[24]) {
    (void)snprintf(out, 24, "c%llu", (unsigned long long)id);
}

/* What the journal, as far as it is written or (`synced`) on the disk, does not need any more. */
static void remove_doomed(struct bpk_store *store, bool synced) {
    char name[24];
    size_t kept = 0;
    for (size_t i = 0; i < store->doomed_count; i++) {
        if (store->doomed[i].was_synced && !synced) {
            store->doomed[kept++] = store->doomed[i];
            continue;
        }
        data_name(store->doomed[i].id, name);
        (void)unlinkat(store->folder, name, 0);
    }
    store->doomed_count = kept;
}

/* ---- the journal ----------------------------------------------------------------------------- */

void bpk_store_frame(struct bpk_outbuf *frames, const struct bpk_outbuf *record) {
    struct frame frame = {record->len, XXH3_64bits(record->text, record->len)};
    bpk_out(frames, (const char *)&frame, sizeof(frame));
    bpk_out(frames, record->text, record->len);
    frames->failed |= record->failed;
}

static int allocate(struct bpk_store *store, uint64_t room) {
    if (fallocate(store->journal, FALLOC_FL_KEEP_SIZE, (off_t)store->end, (off_t)room) < 0)
        return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
    store->reserved = store->end + room;
    return 0;
}

/* Some more than is asked for, so that it need not be asked for every time: about as much as there
 * is, for a small disk has better use for it. */
int bpk_store_reserve(struct bpk_store *store, size_t size) {
    enum { STEP_MIN = 16 << 10, STEP_MAX = 256 << 10 };
    uint64_t step = store->end < STEP_MIN ? STEP_MIN : store->end;
    if (store->end + size <= store->reserved)
        return 0;
    int r = allocate(store, size + (step < STEP_MAX ? step : STEP_MAX));
    return r == -ENOSPC || r == -EDQUOT ? allocate(store, size) : r;
}

/* A new journal in place of the old one. */
static int put_journal(struct bpk_store *store, const char *bytes, size_t size) {
    _cleanup_close_ int journal = openat(store->folder, new_journal_name,
                                         O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (journal < 0)
        return -errno;
    int r = bpk_io_pwrite(journal, 0, bytes, size);
    if (r == 0 && fsync(journal) < 0)
        r = -errno;
    if (r == 0 && renameat(store->folder, new_journal_name, store->folder, journal_name) < 0)
        r = -errno;
    if (r < 0) {
        (void)unlinkat(store->folder, new_journal_name, 0);
        return r;
    }
    /* From here on it is the journal, even if the next step fails. */
    if (store->journal >= 0)
        close(store->journal);
    store->journal = bpk_steal_fd(&journal);
    store->end = size;
    store->reserved = size;
    store->journal_unsure = false;
    store->folder_dirty = true;
    if (fsync(store->folder) < 0)
        return -errno;
    store->folder_dirty = false;
    return 0;
}

/* Once a sync has failed, the kernel counts the pages as clean: only writing all of it again makes
 * sure of it. */
static int sync_journal(struct bpk_store *store) {
    if (!store->journal_unsure) {
        if (fdatasync(store->journal) == 0)
            return 0;
        store->journal_unsure = true;
        return -errno;
    }
    _cleanup_free_ char *bytes = malloc(store->end);
    size_t n;
    int r = bytes ? bpk_io_pread(store->journal, 0, bytes, store->end, &n) : -ENOMEM;
    if (r == 0 && n < store->end)
        r = -EIO;
    return r < 0 ? r : put_journal(store, bytes, store->end);
}

int bpk_store_sync(struct bpk_store *store) {
    if (store->journal < 0)
        return 0;
    if (store->parent_dirty && fsync(store->parent) < 0)
        return -errno;
    store->parent_dirty = false;
    if (store->folder_dirty && fsync(store->folder) < 0)
        return -errno;
    store->folder_dirty = false;
    int r = sync_journal(store);
    if (r == 0)
        remove_doomed(store, true);
    return r;
}

int bpk_store_append(struct bpk_store *store, const struct bpk_outbuf *record) {
    _cleanup_outbuf_ struct bpk_outbuf frames = {0};
    bpk_store_frame(&frames, record);
    if (frames.failed)
        return -ENOMEM;
    /* It must not come to life behind a record that is as long as the broken one. */
    if (store->has_tail && ftruncate(store->journal, (off_t)store->end) < 0)
        return -errno;
    store->has_tail = false;
    int r = bpk_io_pwrite(store->journal, store->end, frames.text, frames.len);
    if (r < 0) {
        /* A part of a frame would be cut off at replay; without it nothing can follow it. */
        (void)!ftruncate(store->journal, (off_t)store->end);
        return r;
    }
    store->end += frames.len;
    remove_doomed(store, false);
    /* They take room: not more of them than this wait for somebody's fsync. */
    if (store->doomed_count >= MANY_DOOMED)
        (void)bpk_store_sync(store);
    return 0;
}

enum frame_state { FRAME_NONE, FRAME_BROKEN, FRAME_WHOLE };

/* The frame at the start of `bytes`; NONE if there is no room for what it says to be. */
static enum frame_state look_at_frame(const uint8_t *bytes, size_t size, struct frame *ret_frame) {
    if (size < sizeof(*ret_frame))
        return FRAME_NONE;
    memcpy(ret_frame, bytes, sizeof(*ret_frame));
    if (ret_frame->size > size - sizeof(*ret_frame))
        return FRAME_NONE;
    return XXH3_64bits(bytes + sizeof(*ret_frame), ret_frame->size) == ret_frame->hash
               ? FRAME_WHOLE
               : FRAME_BROKEN;
}

/* `ret_damaged`: what ends the whole frames is not the torn end of the journal. */
static int take_frames(const uint8_t *bytes, size_t size, bpk_record_fn *take, void *context,
                       size_t *ret_whole, bool *ret_damaged) {
    size_t at = 0;
    struct frame frame;
    enum frame_state state;
    while ((state = look_at_frame(bytes + at, size - at, &frame)) == FRAME_WHOLE) {
        int r = take(context, bytes + at + sizeof(frame), frame.size);
        if (r < 0)
            return r;
        at += sizeof(frame) + frame.size;
    }
    size_t next = at + sizeof(frame) + (size_t)frame.size;
    *ret_damaged =
        state == FRAME_BROKEN && look_at_frame(bytes + next, size - next, &frame) == FRAME_WHOLE;
    *ret_whole = at;
    return 0;
}

int bpk_store_replay(struct bpk_store *store, struct bpk_base_id *ret_base, bool *ret_same_boot,
                     bpk_record_fn *take, void *context) {
    struct head head;
    size_t n;
    _cleanup_free_ uint8_t *bytes = malloc(store->end > 0 ? store->end : 1);
    if (!bytes)
        return -ENOMEM;
    int r = bpk_io_pread(store->journal, 0, bytes, store->end, &n);
    if (r < 0)
        return r;
    if (n < sizeof(head) || memcmp(bytes, magic, sizeof(magic)) != 0)
        return -EBADMSG;
    memcpy(&head, bytes, sizeof(head));
    size_t whole = 0;
    bool damaged = false;
    if (take)
        r = take_frames(bytes + sizeof(head), n - sizeof(head), take, context, &whole, &damaged);
    if (r < 0)
        return r;
    if (take)
        store->end = sizeof(head) + whole;
    store->has_tail |= store->end < n;
    store->damaged |= damaged; /* the next replay stops at `end` */
    *ret_base = head.base;
    *ret_same_boot = memcmp(store->boot_id, head.boot_id, sizeof(head.boot_id)) == 0;
    return 0;
}

int bpk_store_rewrite(struct bpk_store *store, const struct bpk_base_id *base,
                      const struct bpk_outbuf *frames) {
    struct head head = make_head(store, base);
    _cleanup_outbuf_ struct bpk_outbuf all = {0};
    bpk_out(&all, (const char *)&head, sizeof(head));
    bpk_out(&all, frames->text, frames->len);
    int r = all.failed ? -ENOMEM : put_journal(store, all.text, all.len);
    if (r == 0)
        remove_doomed(store, true);
    return r;
}

/* ---- data files ------------------------------------------------------------------------------ */

int bpk_store_open_data(struct bpk_store *store, uint64_t id, bool create) {
    char name[24];
    data_name(id, name);
    int fd = openat(store->folder, name,
                    O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT | O_TRUNC : 0), 0600);
    if (fd < 0)
        return -errno;
    if (create)
        store->folder_dirty = true;
    return fd;
}

void bpk_store_remove_data(struct bpk_store *store, uint64_t id, bool was_synced) {
    /* Without memory it stays until a mount sweeps, or the folder goes. */
    if (store->folder >= 0 && bpk_grow((void **)&store->doomed, &store->doomed_capacity,
                                       store->doomed_count, sizeof(store->doomed[0])) == 0)
        store->doomed[store->doomed_count++] = (struct bpk_doomed){id, was_synced};
}

int bpk_store_renew_data(struct bpk_store *store, uint64_t id) {
    char name[32];
    (void)snprintf(name, sizeof(name), "c%llu.new", (unsigned long long)id);
    int fd = openat(store->folder, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

int bpk_store_put_data(struct bpk_store *store, uint64_t id) {
    char name[24];
    char new_name[32];
    data_name(id, name);
    (void)snprintf(new_name, sizeof(new_name), "%s.new", name);
    if (renameat(store->folder, new_name, store->folder, name) < 0)
        return -errno;
    store->folder_dirty = true;
    return 0;
}

int bpk_store_move_data(struct bpk_store *store, uint64_t from, uint64_t to) {
    char name[24];
    char new_name[24];
    data_name(from, name);
    data_name(to, new_name);
    if (renameat(store->folder, name, store->folder, new_name) < 0)
        return -errno;
    store->folder_dirty = true;
    return 0;
}

/* ---- what a crash left ----------------------------------------------------------------------- */

struct known_ids {
    const uint64_t *ids;
    size_t count;
};

static int compare_ids(const void *a, const void *b) {
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

static int sweep_name(struct bpk_store *store, const char *name, const void *context) {
    const struct known_ids *known = context;
    char *end;
    uint64_t id = name[0] == 'c' ? strtoull(name + 1, &end, 10) : 0;
    if (id == 0)
        return 0;
    if (*end != '\0' || known->count == 0 ||
        !bsearch(&id, known->ids, known->count, sizeof(id), compare_ids))
        (void)unlinkat(store->folder, name, 0);
    return 0;
}

void bpk_store_sweep(struct bpk_store *store, const uint64_t *ids, size_t count) {
    const struct known_ids known = {ids, count};
    if (store->folder >= 0)
        (void)each_name(store, sweep_name, &known);
}
