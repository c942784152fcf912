/* Changes to a pack that are not in it yet, and how they get there.
 *
 * This is the FUSE-free core of a writable mount: names, bytes and texts as ordinary tools change
 * them, kept in the edits folder before any call returns, judged and written into the pack by a
 * commit. Every function takes the lock itself; any thread may call.
 */
#ifndef BPK_EDIT_EDITS_H
#define BPK_EDIT_EDITS_H

#include "bpk.h"
#include "edit/rules.h"
#include "pack/outbuf.h"
#include "pack/remarks.h"

#include <time.h>

struct bpk_edits;
struct bpk_descriptor;

/* A file: its inode number and, for one that was never touched, its name in the base. */
struct bpk_place {
    enum bpk_folder folder;
    const char *name;
    uint64_t number;
};

/* Numbers from here on are given to files that the base did not have. */
#define BPK_FIRST_NEW_NUMBER (UINT64_C(0x40) << 40)

/* The number of a file in views/npy/ that an array comes into is this plus the number of the
 * tensor's file, so that the view that it becomes can have the same (see view_numbers.c). */
#define BPK_ARRAY_NUMBERS (UINT64_C(1) << 56)

/* ---- life ------------------------------------------------------------------------------------ */

/* The number of a file that was never touched, by its name; 0 if it has none. It must be the same
 * for the whole life of the mount. */
typedef uint64_t bpk_number_fn(enum bpk_folder folder, const char *name, const void *context);

struct bpk_edits_options {
    bool discard;               /* drop what an earlier mount left */
    bool refuse;                /* -EEXIST if it left anything */
    bool force;                 /* take edits of another version of the pack */
    bool only_looks;            /* leave the journal as it is until the first edit or commit */
    bool ignore_owner;          /* the new pack may belong to somebody else than the old one */
    bool (*is_cancelled)(void); /* asked while a commit copies: true ends it. May be NULL */
    uint64_t folder_numbers[BPK_FOLDERS];
    bpk_number_fn *number_of;
    const void *number_context;
};

/* Takes the pack's lock, reads back what an earlier mount left, and is then ready for edits.
 * `path` leads to `pack`. *ret_recovered: how many edits and other files it left. -EBUSY: somebody
 * else has the pack; -EAGAIN: it was replaced since it was opened; -ESTALE: there are edits of
 * another version of it; -EEXIST, see `refuse`; `diag` says so. */
int bpk_edits_open(const char *path, struct bpk_pack *pack, const struct bpk_edits_options *options,
                   struct bpk_edits **ret_edits, size_t *ret_recovered, struct bpk_diag *diag);

/* Whether the journal that was read back is damaged in its middle: the edits behind that place are
 * lost, those before it are there. */
bool bpk_edits_are_damaged(const struct bpk_edits *edits);

void bpk_edits_close(struct bpk_edits *edits);

/* The pack as last opened or committed; a new reference. */
struct bpk_pack *bpk_edits_base(struct bpk_edits *edits);

/* ---- names ----------------------------------------------------------------------------------- */

enum bpk_found {
    BPK_FOUND_NOTHING, /* the name is gone, or never was */
    BPK_FOUND_BASE,    /* untouched: as the base has it, if it has it */
    BPK_FOUND_FILE,    /* *ret_number */
};
enum bpk_found bpk_edits_lookup(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                                uint64_t *ret_number);

/* Whether the file in tensors/ is as `pack` has it, which is the base: nothing of it or of what it
 * tells was edited. Quicker than to look it up. */
bool bpk_edits_is_as_in(struct bpk_edits *edits, const struct bpk_pack *pack, const char *name);

/* Every name in the folders (1 << bpk_folder) that was touched, all of one moment. The callback
 * must not call back. */
typedef void bpk_name_fn(void *context, enum bpk_folder folder, const char *name, bool is_there);
void bpk_edits_each_name(struct bpk_edits *edits, unsigned folders, bpk_name_fn *take,
                         void *context);

struct bpk_file_stat {
    bool is_link;
    mode_t mode;  /* 0: the mount's */
    bool has_uid; /* else the mount's */
    bool has_gid;
    uid_t uid;
    gid_t gid;
    struct timespec mtime; /* 0: the pack's */
    uint64_t size;
};
/* -ESTALE for a number that has no name and no open handle. */
int bpk_edits_stat(struct bpk_edits *edits, const struct bpk_place *place,
                   struct bpk_file_stat *ret_stat);

/* What a tensor's file means as things are: its sidecar's dtype, shape and param_id, edited or not.
 * To be cleared (view/json_read.h). -ENODATA: nothing says it; -ENOTSUP: it is no tensor's file. */
int bpk_edits_descriptor(struct bpk_edits *edits, const struct bpk_place *place,
                         struct bpk_descriptor *ret_descriptor);

/* When a folder was last changed; 0: the pack's time. */
struct timespec bpk_edits_folder_mtime(struct bpk_edits *edits, enum bpk_folder folder);

/* ---- operations: 0 or -errno ----------------------------------------------------------------- */

int bpk_edits_create(struct bpk_edits *edits, enum bpk_folder folder, const char *name, mode_t mode,
                     uint64_t *ret_number);
int bpk_edits_symlink(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                      const char *target, uint64_t *ret_number);
/* A view in views/npy/ is to be written anew: until an array has come whole, `name` there leads to
 * an empty file of that number. What the tensor is stays in force so long. Where that file is there
 * already, it is cut to nothing. */
int bpk_edits_begin_array(struct bpk_edits *edits, const char *name, uint64_t number);
/* Whether there is a file of that number. */
bool bpk_edits_has_file(struct bpk_edits *edits, uint64_t number);
/* The number of the view in views/npy/ of the tensor whose file has that number, and the other way,
 * for any number that an array came to; 0: it is of none. */
uint64_t bpk_edits_view_number(struct bpk_edits *edits, uint64_t tensor);
uint64_t bpk_edits_viewed(struct bpk_edits *edits, uint64_t number);

int bpk_edits_readlink(struct bpk_edits *edits, uint64_t number, struct bpk_outbuf *ret_target);
int bpk_edits_unlink(struct bpk_edits *edits, const struct bpk_place *place);
int bpk_edits_rename(struct bpk_edits *edits, const struct bpk_place *from, enum bpk_folder folder,
                     const char *name, bool no_replace);

void bpk_edits_opened(struct bpk_edits *edits, const struct bpk_place *place, bool for_writing);
void bpk_edits_released(struct bpk_edits *edits, uint64_t number, bool for_writing);
/* Somebody has read the file who did not say that it was opened. */
void bpk_edits_unused(struct bpk_edits *edits, uint64_t number);

/* Every file that is open for writing, by its path in the mount; returns how many. `take` may be
 * NULL. */
typedef void bpk_writer_fn(void *context, const char *path);
size_t bpk_edits_each_writer(struct bpk_edits *edits, bpk_writer_fn *take, void *context);

/* Reads bytes of a tensor or of a file of its own. -ENODATA: a text that nobody wrote; what it says
 * is composed by bpk_edits_text. */
int bpk_edits_read(struct bpk_edits *edits, const struct bpk_place *place, uint64_t offset,
                   void *buffer, size_t size, size_t *ret_read);
/* Lets the kernel forget the pages of the pack that a range of an unedited tensor lies in. */
void bpk_edits_drop_cache(struct bpk_edits *edits, const struct bpk_place *place, uint64_t offset,
                          uint64_t size);
/* What a text says that has no bytes of its own; nothing if it has. */
int bpk_edits_text(struct bpk_edits *edits, const struct bpk_place *place,
                   struct bpk_outbuf *ret_text);
bool bpk_edits_is_text(struct bpk_edits *edits, const struct bpk_place *place);

int bpk_edits_write(struct bpk_edits *edits, const struct bpk_place *place, uint64_t offset,
                    const void *buffer, size_t size);
int bpk_edits_truncate(struct bpk_edits *edits, const struct bpk_place *place, uint64_t size);
enum { BPK_SET_MODE = 1, BPK_SET_UID = 2, BPK_SET_GID = 4, BPK_SET_MTIME = 8 };
/* Takes what `set` names of st_mode, st_uid, st_gid and st_mtim. It is no edit of the pack. */
int bpk_edits_set_attr(struct bpk_edits *edits, const struct bpk_place *place,
                       const struct stat *attr, unsigned set);

/* A handle that wrote is closed (some dup of it): bad text is -EBADMSG. */
int bpk_edits_flush(struct bpk_edits *edits, const struct bpk_place *place);
/* Bad or unfinished text is -EBADMSG, but durable all the same. */
int bpk_edits_fsync(struct bpk_edits *edits, const struct bpk_place *place);
int bpk_edits_fsync_folder(struct bpk_edits *edits);

/* Numbers whose attributes changed beside those of the operation's own file; the caller frees. */
size_t bpk_edits_take_stale(struct bpk_edits *edits, uint64_t **ret_numbers);

/* ---- commit ---------------------------------------------------------------------------------- */

enum bpk_commit_mode {
    BPK_COMMIT_ALL,   /* by name: all edits, or -EBADMSG naming the first that is not valid */
    BPK_COMMIT_VALID, /* by name: what is valid */
    /* The same two when not the commit was asked for but the unmount, by name, signal or timer: not
     * if half of the tensors would go, and a removed metadata.json or scalars.json is put back. */
    BPK_COMMIT_ALL_AT_UNMOUNT,
    BPK_COMMIT_VALID_AT_UNMOUNT,
    /* That again, when the mount is gone: no handle can write any more. Waits for a commit that is
     * under way, where the others are -EBUSY. */
    BPK_COMMIT_LAST,
};

/* The maps of a pack. Where the file of the whole map is not valid, all of it is left out of a
 * commit, and where that of one key is not, that key. */
enum bpk_map { BPK_MAP_METADATA = 1, BPK_MAP_SCALARS = 2 };

struct bpk_commit_result {
    bool wrote;             /* there was something to write */
    size_t left_out;        /* edits that were not valid and stay */
    size_t kept;            /* pending and backup files that stay */
    unsigned maps_put_back; /* whose file was removed, and not by a commit by name */
};
/* `remarks` (may be NULL) is told what was mended and dropped beside the edits, with no lock held.
 */
int bpk_edits_commit(struct bpk_edits *edits, enum bpk_commit_mode mode,
                     const struct bpk_remarks *remarks, struct bpk_commit_result *ret_result,
                     struct bpk_diag *diag);
/* The pack that the last commit replaced, a reference; NULL: none. To let go of it may take the
 * filesystem long, as all of its pages are freed, so that who waits for the commit need not wait
 * for that; otherwise the next commit or the end lets go. */
struct bpk_pack *bpk_edits_take_replaced(struct bpk_edits *edits);
/* Writes what a commit would write to `name` in an open folder, a file that is not there yet
 * (-EEXIST), and leaves pack and edits as they are. -EINVAL: the folder is that of the edits.
 * `mode`: BPK_COMMIT_ALL, -EBADMSG as there, or BPK_COMMIT_VALID. */
int bpk_edits_save(struct bpk_edits *edits, enum bpk_commit_mode mode, int folder, const char *name,
                   const struct bpk_remarks *remarks, struct bpk_diag *diag);

/* Drops all edits. Each name that was touched is reported with the number of its folder (`dropped`
 * may be NULL; it must not call back): it leads to another file now, or to none. -EBUSY while a
 * commit runs. */
typedef void bpk_dropped_fn(void *context, uint64_t folder_number, const char *name);
int bpk_edits_discard(struct bpk_edits *edits, bpk_dropped_fn *dropped, void *context);

/* Scratch dies with an orderly end of the mount: nobody has it open any more. */
int bpk_edits_drop_scratch(struct bpk_edits *edits);

enum bpk_edit_kind { BPK_EDIT, BPK_EDIT_PENDING, BPK_EDIT_BACKUP, BPK_EDIT_SCRATCH };
/* A tensor is renamed if it has bytes of another one of the base. */
enum bpk_change { BPK_CHANGED, BPK_NEW, BPK_REMOVED, BPK_RENAMED };
const char *bpk_change_name(enum bpk_change change); /* "changed", "new", "removed", "renamed" */
struct bpk_edit {
    enum bpk_edit_kind kind;
    const char *path;    /* in the mount */
    const char *problem; /* why it is not valid, or what will become of it; NULL: nothing to say */
    enum bpk_change change; /* of an edit: what it does to the pack */
    const char *from;       /* RENAMED: the path before */
};
/* Calls `report` for each edit, and each pending, backup or scratch file. */
typedef void bpk_edit_fn(void *context, const struct bpk_edit *edit);
void bpk_edits_list(struct bpk_edits *edits, bpk_edit_fn *report, void *context);

/* index.tsv as the edits make it. */
int bpk_edits_index(struct bpk_edits *edits, struct bpk_outbuf *out);

/* How far a commit under way has come, in bytes of the new pack; false if none writes. Takes no
 * lock. */
bool bpk_edits_progress(struct bpk_edits *edits, uint64_t *ret_done, uint64_t *ret_total);

/* A number that is another one after every change, commit and discard. */
uint64_t bpk_edits_generation(struct bpk_edits *edits);

/* Seconds since the last change. */
unsigned bpk_edits_idle_seconds(struct bpk_edits *edits);

time_t bpk_edits_last_commit(struct bpk_edits *edits);

#endif
