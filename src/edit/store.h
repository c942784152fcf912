/* The edits folder: where edits live until they are committed.
 *
 * It lies beside the pack (.NAME.bpk.edits/, mode 0700) and exists only while there are edits. In
 * it are the journal, which says what was changed, and one data file for each edited content. A
 * record of the journal is one frame with a checksum, appended by one write, so that a process
 * killed at any time leaves whole records only. What a record says is up to its writer; records
 * state what is, not what was done, so that the last one counts and replaying is simple.
 *
 * Promise: what was appended survives the death of the process at once, and the loss of power once
 * bpk_store_sync returned 0. The journal remembers the boot it was written in, so that its reader
 * can tell the two apart.
 */
#ifndef BPK_EDIT_STORE_H
#define BPK_EDIT_STORE_H

#include "pack/atomic_file.h"
#include "pack/outbuf.h"

#include <pthread.h>

/* The pack that edits are based on. */
struct bpk_base_id {
    uint64_t ino;
    uint64_t size;
    int64_t mtime_sec;
    int64_t mtime_nsec;
    uint64_t hash; /* XXH3-64 of header and CBOR */
};

bool bpk_base_id_equal(const struct bpk_base_id *a, const struct bpk_base_id *b);

enum { BPK_BOOT_ID_SIZE = 36 };

struct bpk_store {
    pthread_mutex_t *lock; /* guards the contents that lie in it */
    int parent;            /* folder of the pack */
    char *name;            /* of the edits folder */
    /* of the machine's last start; read once: later the process may not be allowed to */
    char boot_id[BPK_BOOT_ID_SIZE];
    int folder;          /* -1 while there is none */
    int journal;         /* -1 while there is none */
    uint64_t end;        /* length of the journal: whole frames only */
    uint64_t reserved;   /* room on the disk up to here */
    bool has_tail;       /* what replay did not take lies behind `end` */
    bool damaged;        /* replay found whole records behind one that is not: they are lost */
    bool folder_dirty;   /* a file was made since the folder was last synced */
    bool parent_dirty;   /* so was the folder */
    bool journal_unsure; /* it could not be synced: what it holds must be written again */
    /* data files that nothing needs once the journal says so */
    struct bpk_doomed {
        uint64_t id;
        bool was_synced; /* the journal on the disk may need it: it goes after a sync */
    } * doomed;
    size_t doomed_count;
    size_t doomed_capacity;
};

/* Prepares for the pack `pack_name` in `parent` (borrowed until close). Makes nothing. */
int bpk_store_init(struct bpk_store *store, int parent, const char *pack_name);

/* Whether there is an edits folder beside the pack at `path` (absolute, links followed). */
bool bpk_store_is_there(const char *path);

/* Opens an edits folder that is there: -ENOENT if none is, -EPERM with `diag` if it is not ours to
 * trust (other owner, writable by others, a link). */
int bpk_store_open(struct bpk_store *store, struct bpk_diag *diag);

/* Makes folder and journal if they are not there; the journal's head names `base`. */
int bpk_store_create(struct bpk_store *store, const struct bpk_base_id *base);

void bpk_store_close(struct bpk_store *store);

/* Removes the folder with all that is in it; for good if `lasts`, else a power cut may bring it
 * back. On failure it can be called again, or the folder used again. */
int bpk_store_remove(struct bpk_store *store, bool lasts);

/* Makes sure of room for `size` more bytes of records, as far as the filesystem can promise it. */
int bpk_store_reserve(struct bpk_store *store, size_t size);

/* Appends one record. On failure nothing of it stays. */
int bpk_store_append(struct bpk_store *store, const struct bpk_outbuf *record);

/* Makes all records so far, and the names of all files, last. */
int bpk_store_sync(struct bpk_store *store);

/* Opens the data file of a content; `create`: makes an empty one, whatever a crash left under its
 * name. Returns an fd or -errno. */
int bpk_store_open_data(struct bpk_store *store, uint64_t id, bool create);

/* Removes a data file, but not before the journal can do without it: after the next record, or, if
 * `was_synced`, after the next record that is on the disk. */
void bpk_store_remove_data(struct bpk_store *store, uint64_t id, bool was_synced);

/* A new data file that is to take the place of the content's; bpk_store_put_data does it. */
int bpk_store_renew_data(struct bpk_store *store, uint64_t id);
int bpk_store_put_data(struct bpk_store *store, uint64_t id);

/* The data file of one content takes the place of another's. */
int bpk_store_move_data(struct bpk_store *store, uint64_t from, uint64_t to);

/* Removes the data files that are none of these contents': a crash left them. `ids` is sorted. */
void bpk_store_sweep(struct bpk_store *store, const uint64_t *ids, size_t count);

/* The journal as it stands: base, whether it was written since the machine last started, and each
 * whole record in turn. A torn frame at the end is cut off. */
typedef int bpk_record_fn(void *context, const uint8_t *record, size_t size);
int bpk_store_replay(struct bpk_store *store, struct bpk_base_id *ret_base, bool *ret_same_boot,
                     bpk_record_fn *take, void *context);

/* Writes a new journal with `records` (whole frames made by bpk_store_frame) in place of the old
 * one, in one step, and syncs it. */
int bpk_store_rewrite(struct bpk_store *store, const struct bpk_base_id *base,
                      const struct bpk_outbuf *frames);
void bpk_store_frame(struct bpk_outbuf *frames, const struct bpk_outbuf *record);

#endif
