/* The bytes of an edited file: blocks of its own over what shows through from below.
 *
 * Copy on write by blocks of 4 KiB: a write takes over the blocks that it touches, and no others.
 * Below lies nothing (zeros), a tensor of a pack, or another content that a commit has frozen. The
 * own blocks lie at their own offsets in a sparse data file of the store (behind a header, if the
 * file came with one); which ones they are is kept in a map, not asked of the filesystem. Bytes
 * past the end of what lies below, and past any length that the file was ever cut to, are zeros. A
 * tensor that the pack at hand does not have any more is lost: where it would show through, nothing
 * can be read.
 *
 * A content is not thread-safe: its owner locks.
 */
#ifndef BPK_EDIT_CONTENT_H
#define BPK_EDIT_CONTENT_H

#include "edit/block_map.h"
#include "edit/store.h"
#include "pack/plan.h"

#define BPK_BLOCK 4096

/* A tensor as the pack had it that edits were made on. */
struct bpk_lost {
    uint64_t size;
    size_t name_len;
    char name[];
};

struct bpk_content {
    uint64_t id; /* names its data file */
    unsigned references;
    struct bpk_store *store;

    /* what shows through; at most one of the three */
    struct bpk_pack *pack;
    uint32_t index; /* tensor of `pack` */
    struct bpk_content *below;
    struct bpk_lost *lost;
    uint64_t below_limit; /* bytes of it that show */

    uint64_t size;
    struct bpk_block_map own;
    uint64_t shift; /* where in the data file its bytes begin */
    int fd;         /* data file, -1 while closed or not there */
    bool has_data_file;
    bool frozen;      /* a commit reads it: writes need a content above */
    bool in_commit;   /* the commit under way takes it in */
    bool unsynced;    /* written since it was last made durable */
    uint64_t changes; /* how often it was written or cut, and 1 */
    uint64_t durable; /* so many of them are on the disk, whatever the journal says */
    bool was_synced;  /* made durable at least once */
    bool sync_failed; /* the kernel has forgotten what it could not write: write all again */
    bool suspect;     /* power was lost before it was made durable */
    bool has_tail;    /* the data file could not be cut: bytes past the end may not be zeros */
    uint64_t tail_from;
};

/* A content of no bytes. NULL: out of memory. */
struct bpk_content *bpk_content_new(struct bpk_store *store, uint64_t id);

/* A content that shows tensor `index` of `pack` (takes a reference). */
struct bpk_content *bpk_content_over_tensor(struct bpk_store *store, uint64_t id,
                                            struct bpk_pack *pack, uint32_t index);

/* A content that shows `below` (takes a reference), which must not change any more. */
struct bpk_content *bpk_content_over_content(struct bpk_store *store, uint64_t id,
                                             struct bpk_content *below);

struct bpk_content *bpk_content_ref(struct bpk_content *content);

/* Drops a reference; with the last one the data file is removed too, if `keep_file` is false. */
void bpk_content_unref(struct bpk_content *content, bool keep_file);

/* Closes the data file until it is needed again, but not while a commit copies from it. */
void bpk_content_close(struct bpk_content *content);

/* Opens the data files of the content and of what lies below it, so that they can be read even when
 * their names are gone. 0 or -errno. */
int bpk_content_hold(struct bpk_content *content);

/* The commit has copied from the content, and what lies below it: their data files are closed. */
void bpk_content_end_copy(struct bpk_content *content);

int bpk_content_read(struct bpk_content *content, uint64_t offset, void *buffer, size_t size,
                     size_t *ret_read);

/* Writes to the data file, then takes over the blocks. Sets *ret_mapped if blocks or the size
 * changed, so that the change must be journaled before the write is acknowledged. */
int bpk_content_write(struct bpk_content *content, uint64_t offset, const void *buffer, size_t size,
                      bool *ret_mapped);

/* In two steps, because the record of it comes first: the journal, then the data file. */
void bpk_content_set_size(struct bpk_content *content, uint64_t size);
int bpk_content_apply_size(struct bpk_content *content);

/* Before a content grows: what a failed write or cut left past its end goes. */
int bpk_content_trim(struct bpk_content *content);

/* After a crash: the data file is there and as long as the size says. A missing one is made, and
 * what it held is not to be trusted. */
int bpk_content_settle(struct bpk_content *content);

/* Becomes the `size` bytes of it from `offset` on, which lie where they are. Only of a content that
 * shows nothing from below. -EBUSY if its data file is not as it should be. */
int bpk_content_cut_out(struct bpk_content *content, uint64_t offset, uint64_t size);

/* Tensor `name` of `size` bytes, which the pack at hand does not have, would show through. 0 or
 * -ENOMEM. */
int bpk_content_lose(struct bpk_content *content, struct bpk_str name, uint64_t size);

/* The lost tensor that some of the bytes are of; NULL: all of them can be read. */
const struct bpk_lost *bpk_content_missing(const struct bpk_content *content);

/* Nothing shows through any more. */
void bpk_content_bare(struct bpk_content *content);

/* The same tensor in another pack shows through from now on. */
void bpk_content_rebase(struct bpk_content *content, struct bpk_pack *pack, uint32_t index);

/* Marks the blocks of [offset, offset + size) as own, as a record says. 0 or -ENOMEM. */
int bpk_content_map(struct bpk_content *content, uint64_t offset, uint64_t size);

/* Takes over every block, on the disk, so that nothing below is needed any more. */
int bpk_content_own_all(struct bpk_content *content);

/* The same with data file `id`, on the disk, to which all that it shows was copied. Takes ownership
 * of `fd`, which is open on that, on success. */
int bpk_content_take_copy(struct bpk_content *content, uint64_t id, int fd);

/* Becomes tensor `index` of `pack`, which holds the same bytes. */
void bpk_content_become_tensor(struct bpk_content *content, struct bpk_pack *pack, uint32_t index);

/* Of a plan's tensor: the run at `offset`. `context` is the content. */
int bpk_content_next_run(void *context, uint64_t offset, struct bpk_run *ret_run);

/* Whether all that was written to it lasts. */
bool bpk_content_is_synced(const struct bpk_content *content);
/* Makes the data file last. */
int bpk_content_sync(struct bpk_content *content);

/* Calls `take` for each run of own blocks, in bytes. */
typedef int bpk_range_fn(void *context, uint64_t offset, uint64_t size);
int bpk_content_each_own(const struct bpk_content *content, bpk_range_fn *take, void *context);

#endif
