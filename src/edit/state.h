/* The state of the edits: what edit's own files share. Everything here is guarded by the lock of
 * struct bpk_edits; functions that do not take it say "locked".
 *
 * Names are in one table (entries): a name that was touched has an entry, which leads to a file or
 * says that the name is gone; a name without an entry is as the base has it. A file keeps its
 * number for life, over renames and commits. Descriptors belong to the stem of a name, not to a
 * file, because tools bring bytes and descriptor separately.
 */
#ifndef BPK_EDIT_STATE_H
#define BPK_EDIT_STATE_H

#include "edit/content.h"
#include "edit/edits.h"
#include "view/json_read.h"
#include "view/names.h"

#include <pthread.h>
#include <time.h>

/* Out of memory, HASH_ADD adds nothing and leaves the element without a table (hh.tbl is NULL). */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* A descriptor on its own: CBOR as it is to be written, and what it means. */
struct bpk_desc {
    unsigned references;
    struct bpk_descriptor means;
    struct bpk_outbuf dtype_cbor;
    struct bpk_outbuf unknown_cbor; /* keys that we do not know */
    uint64_t unknown_count;
};

struct bpk_file {
    uint64_t number;
    UT_hash_handle by_number;
    enum bpk_folder folder;
    char *name; /* where it is; NULL: nowhere any more */
    unsigned opens;
    unsigned write_opens;
    struct bpk_content *content; /* own bytes; NULL: as the base has it, or composed */
    char *target;                /* of a symbolic link */
    mode_t mode;                 /* permission bits; 0: the mount's */
    bool has_uid;                /* else the mount's; in this mount only */
    bool has_gid;
    uid_t uid;
    gid_t gid;
    struct timespec mtime;   /* 0: the pack's */
    struct bpk_aside *aside; /* it was moved aside from a name of the pack; NULL: it was not */
    /* of the tensor that it was when it was moved aside, until its bytes or the name that they had
     * are part of the pack again */
    bool has_param_id;
    uint64_t param_id;
    bool was_moved; /* to its name: even an empty one was meant to be there */
    /* of a text: what was written since it was last parsed, and how that went */
    bool unparsed;
    enum bpk_text_verdict verdict;
    char *reason;     /* why the verdict is not good; owned */
    uint64_t changed; /* the edits' clock when it was last changed */
};

/* A name of the pack, by which the file that was last moved aside from it is found. */
struct bpk_aside {
    UT_hash_handle hh;
    struct bpk_file *file;
    enum bpk_folder folder;
    const char *name; /* in `key` */
    size_t key_len;
    char key[]; /* key[0]: folder; then the name, terminated */
};

/* A file name that is too short for the tensor's own, which the base had earlier in this mount. */
struct bpk_cut {
    UT_hash_handle hh;
    char file[BPK_FILE_NAME_BUF];
    size_t name_len;
    char name[];
};

struct bpk_entry {
    UT_hash_handle hh;
    struct bpk_file *file; /* NULL: the name is gone */
    uint64_t changed;
    bool clean;     /* only keeps a number: the base has all else */
    size_t key_len; /* folder, name */
    char key[];     /* key[0]: folder; then the name, terminated */
};

/* What is known of a tensor's name beside its bytes. */
struct bpk_stem {
    UT_hash_handle hh;
    struct bpk_desc *now;        /* in force; NULL: none */
    struct bpk_desc *remembered; /* for bytes that may come; NULL: none */
    bool remembers_param_id;
    uint64_t changed;
    char name[]; /* file name of the tensor */
};

/* A metadata key whose value is not the base's. */
struct bpk_override {
    UT_hash_handle hh;
    char *value; /* NULL: removed */
    bool older;  /* than a removal of metadata.json, which takes it along */
    size_t value_len;
    size_t key_len;
    char key[];
};

/* Handles of a file that was never touched, or of a view that can be written to. */
struct bpk_open {
    UT_hash_handle hh;
    uint64_t number;
    unsigned count;
    unsigned writers;
    char *path; /* in the mount, once there was a writer: what messages call it; may be NULL */
};

struct bpk_edits {
    pthread_mutex_t lock;
    char *path; /* of the pack, absolute, links followed */
    int parent; /* its folder */
    struct bpk_pack *base;
    struct bpk_pack *replaced;      /* by the last commit; NULL: none, or it was taken */
    struct bpk_names *tensor_names; /* of the base */
    struct bpk_names *key_names;
    struct bpk_prepared { /* names of the pack that is to be the base next */
        const struct bpk_pack *pack;
        struct bpk_names *tensor_names;
        struct bpk_names *key_names;
    } prepared;
    uint64_t folder_numbers[BPK_FOLDERS];
    struct timespec folder_mtimes[BPK_FOLDERS]; /* 0: the pack's */
    bpk_number_fn *number_of;                   /* numbers of what was never touched */
    const void *number_context;
    struct bpk_base_id base_id;
    struct bpk_store store;
    bool read_only;
    int lock_fd; /* holds the lock on the pack */
    bool ignore_owner;
    bool (*is_cancelled)(void);
    bool broken; /* the journal is behind: it is to be written anew before anything else */

    struct bpk_file *files; /* by number */
    struct bpk_entry *entries;
    struct bpk_aside *asides;
    struct bpk_cut *cuts;
    struct bpk_stem *stems;
    struct bpk_open *opens;
    uint64_t frames; /* records in the journal */
    uint64_t clock;  /* the frame that the operation under way will be */
    uint64_t next_number;
    uint64_t next_content;
    struct bpk_outbuf record; /* of the operation under way */

    struct bpk_override *overrides; /* of metadata */
    bool map_replaced;              /* the base's metadata does not count */
    bool has_scalars;               /* `scalars` counts, not the base's */
    struct bpk_scalar_map scalars;
    uint64_t maps_changed;      /* the clock when a key was last changed */
    struct timespec maps_mtime; /* and the time; 0: never in this mount */

    /* numbers whose attributes the kernel is to forget, collected by the operation under way */
    uint64_t *stale;
    size_t stale_count;
    size_t stale_capacity;

    /* sizes of metadata.json and scalars.json as composed, while nothing changes */
    struct bpk_kept_size {
        uint64_t generation;
        uint64_t size;
    } kept_sizes[2];
    uint64_t generation;               /* counts changes, commits and discards; from 1 */
    struct bpk_version *versions;      /* of tensors, by file name; see current.c */
    uint64_t all_versions;             /* no tensor's version is less */
    struct bpk_number *view_numbers;   /* of tensors' files, where not the usual */
    struct bpk_number *viewed_numbers; /* the other way; see view_numbers.c */
    time_t last_commit;
    time_t last_change; /* CLOCK_MONOTONIC */
    bool committing;
    pthread_cond_t committed; /* no commit is under way any more */
    /* bytes of the new pack, while one is written; else 0 */
    _Atomic uint64_t written;
    _Atomic uint64_t to_write;
};

/* What a commit took in: written down before the new pack takes the old one's place. */
struct bpk_committed {
    bool happened;                  /* by the journal: the pack at hand is what it made */
    struct bpk_base_id replaced_id; /* of the journal's base */
    struct bpk_base_id base_id;     /* of the new pack */
    uint64_t frozen_at;             /* the clock when it was frozen: later changes are not in it */
    unsigned leaves_maps_out;       /* BPK_MAP_*, as a whole */
    bool is_last;                   /* the mount is gone: handles do not count */
    size_t count;
    struct bpk_committed_content {
        uint64_t id;
        struct bpk_content *content; /* a reference */
        struct bpk_str name;         /* the tensor that it became */
        char *owned;                 /* `name`, if it is ours to free */
    } * contents;
    size_t left_out_count;
    /* what was not valid: file names of tensors, and "metadata/KEY"; sorted */
    char **left_out;
};
void bpk_committed_clear(struct bpk_committed *committed);
bool bpk_committed_left_out(const struct bpk_committed *committed, const char *name);

/* ---- files.c (locked) ---- */
bool bpk_state_is_clean(struct bpk_edits *edits, const struct bpk_file *file);
bool bpk_state_is_touched(struct bpk_edits *edits, const struct bpk_entry *entry);
bool bpk_state_has_edits(struct bpk_edits *edits);
/* Gives a name that was gone, or whose file is to go, back what the base has: as another file. */
int bpk_state_put_back(struct bpk_edits *edits, struct bpk_entry *entry);
struct bpk_entry *bpk_state_entry(struct bpk_edits *edits, enum bpk_folder folder,
                                  const char *name);
struct bpk_file *bpk_state_file(struct bpk_edits *edits, uint64_t number);
int bpk_state_set_entry(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                        struct bpk_file *file);
struct bpk_file *bpk_state_add_file(struct bpk_edits *edits, uint64_t number,
                                    enum bpk_folder folder, const char *name);
void bpk_state_drop_file(struct bpk_edits *edits, struct bpk_file *file);
/* Says from where a file was moved aside, instead of whichever was before; NULL: it was not. */
int bpk_state_set_aside(struct bpk_edits *edits, struct bpk_file *file, enum bpk_folder folder,
                        const char *name);
/* The file that was last moved aside from a name; NULL: none. */
struct bpk_file *bpk_state_find_aside(struct bpk_edits *edits, enum bpk_folder folder,
                                      const char *name);
/* Gives the file another number. -ENOMEM: the file is gone, and the edits cannot be used. */
int bpk_state_renumber(struct bpk_edits *edits, struct bpk_file *file, uint64_t number);
/* Where a place is: 0, or the errors of bpk_state_touch, or -ENOENT if it has no name any more. */
int bpk_state_find_place(struct bpk_edits *edits, const struct bpk_place *place,
                         enum bpk_folder *ret_folder, const char **ret_name);
int bpk_state_touch(struct bpk_edits *edits, const struct bpk_place *place,
                    struct bpk_file **ret_file);
bool bpk_state_base_has(const struct bpk_edits *edits, enum bpk_folder folder, const char *name);
bool bpk_state_exists(struct bpk_edits *edits, enum bpk_folder folder, const char *name);
/* Which tensor's file has that name: the base's, one that the base had in this mount, or one that
 * may come. False if no tensor's can. `buffer` is the name's, where it is nobody else's. */
bool bpk_state_tensor_name(const struct bpk_edits *edits, const char *file,
                           char buffer[BPK_FILE_NAME_BUF], struct bpk_str *ret_name);
/* Whether what is at that name, if it is good, goes into the pack: a text, or a tensor's bytes. */
bool bpk_state_is_part_of_pack(struct bpk_edits *edits, enum bpk_folder folder, const char *name);
void bpk_state_stale(struct bpk_edits *edits, uint64_t number);
void bpk_state_stale_name(struct bpk_edits *edits, enum bpk_folder folder, const char *name);
bool bpk_state_find_base(const struct bpk_edits *edits, const char *name, uint32_t *ret_index);
bool bpk_state_is_open(struct bpk_edits *edits, uint64_t number);
/* Closes the data file of a file that nobody has open, or of what that number is a view of. */
void bpk_state_close_unused(struct bpk_edits *edits, uint64_t number);
void bpk_state_take_opens(struct bpk_edits *edits, struct bpk_file *file);
/* The other way: the file is to go, and its number is another file's. */
void bpk_state_give_opens(struct bpk_edits *edits, const struct bpk_file *file);
void bpk_state_free_open(struct bpk_edits *edits, struct bpk_open *open);
uint64_t bpk_state_number_of(struct bpk_edits *edits, enum bpk_folder folder, const char *name);

/* ---- data.c (locked) ---- */
/* A content for a file that shows the base's tensor, or a new one above a frozen content. */
int bpk_state_own_bytes(struct bpk_edits *edits, struct bpk_file *file);

/* ---- ops.c (locked) ---- */
/* A file that is open keeps what it says now, before its name or its text is another's. */
int bpk_state_keep_for_handles(struct bpk_edits *edits, struct bpk_file *file);

/* ---- descs.c (locked) ---- */
struct bpk_desc *bpk_desc_from(struct bpk_descriptor *means, const struct bpk_desc *before);
struct bpk_desc *bpk_desc_ref(struct bpk_desc *desc);
void bpk_desc_unref(struct bpk_desc *desc);
struct bpk_desc *bpk_desc_with_param_id(const struct bpk_desc *desc, bool has_param_id,
                                        uint64_t param_id);
struct bpk_shape bpk_desc_shape(const struct bpk_desc *desc);
bool bpk_desc_length(const struct bpk_desc *desc, uint64_t *ret_bytes);
struct bpk_stem *bpk_state_stem(struct bpk_edits *edits, const char *name);
int bpk_state_make_stem(struct bpk_edits *edits, const char *name, struct bpk_stem **ret_stem);
int bpk_state_desc(struct bpk_edits *edits, const char *stem, struct bpk_desc **ret_desc);
/* What the descriptors that the name has and remembers come to in records of one operation. */
size_t bpk_state_stem_room(struct bpk_edits *edits, const char *name);
void bpk_state_free_stem(struct bpk_edits *edits, struct bpk_stem *stem);

/* ---- current.c (locked) ---- */
/* Says that bytes or descriptor of the tensor of that file name are others now. */
void bpk_state_note_version(struct bpk_edits *edits, const char *name);
void bpk_state_free_versions(struct bpk_edits *edits);

/* ---- texts.c (locked) ---- */
bool bpk_state_is_text(const struct bpk_edits *edits, enum bpk_folder folder, const char *name);
int bpk_state_compose(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                      struct bpk_outbuf *out);
int bpk_state_own_text(struct bpk_edits *edits, struct bpk_file *file, bool empty);
int bpk_state_parse(struct bpk_edits *edits, struct bpk_file *file, enum bpk_folder folder,
                    const char *name, bool ends_here);
/* Whether what is at `place` would be a good text of `name` in `folder`: 0, -EBADMSG or an error.
 * Changes nothing. */
int bpk_state_check_text(struct bpk_edits *edits, const struct bpk_place *place,
                         enum bpk_folder folder, const char *name);
void bpk_state_reset_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name);
int bpk_state_override(struct bpk_edits *edits, struct bpk_str key, const struct bpk_str *value);
/* metadata.json is removed: what was written before goes with it. */
void bpk_state_age_overrides(struct bpk_edits *edits);
/* Whether a key was written after that. */
bool bpk_state_is_younger(const struct bpk_edits *edits, struct bpk_str key);
/* What `committed` (may be NULL) left out is as the base has it. */
int bpk_state_effective_metadata(struct bpk_edits *edits, const struct bpk_committed *committed,
                                 struct bpk_plan_entry **ret_entries, size_t *ret_count);

/* ---- keys.c (locked) ---- */
int bpk_state_show_keys(struct bpk_edits *edits, const struct bpk_plan_entry *before, size_t count);
bool bpk_state_key_left_out(struct bpk_edits *edits, const struct bpk_committed *committed,
                            struct bpk_str key);
/* Whether the key with that file name has a value in the map, whatever became of the file. */
bool bpk_state_has_value(struct bpk_edits *edits, const char *name);
/* Keys of the base that are not in the map have no file. */
int bpk_state_hide_keys(struct bpk_edits *edits);

/* ---- force.c (locked) ---- */
/* After edits of another pack were read back. */
int bpk_state_fit_base(struct bpk_edits *edits);

/* ---- commit.c (locked) ---- */
struct bpk_base_id bpk_state_base_id(const struct bpk_pack *pack);
/* Writes a journal of what the state is, or removes the edits folder if there are no edits; for
 * good if `lasts` (see bpk_store_remove). */
int bpk_state_compact(struct bpk_edits *edits, bool lasts);

/* ---- rebase.c (locked) ---- */
/* Makes `pack`, which `committed` is of, the base of what is left of the edits. */
int bpk_state_rebase(struct bpk_edits *edits, struct bpk_pack *pack,
                     const struct bpk_committed *committed);
/* What rebasing to `pack` needs memory for, so that it does not fail when there is no way back. */
int bpk_state_prepare_base(struct bpk_edits *edits, struct bpk_pack *pack);
/* Makes `pack` the base without more ado: when edits are opened. */
int bpk_state_set_base(struct bpk_edits *edits, struct bpk_pack *pack);

/* ---- leftover.c ---- */
/* Removes the temporary files of commits that died. A file of somebody else's that such a commit
 * took from its place is put back, and -ESTALE says so. */
int bpk_leftover_clear(struct bpk_edits *edits, const char *pack_name,
                       const struct bpk_committed *committed, struct bpk_diag *diag);

/* ---- arrays.c (locked) ---- */
/* Whether a file of that name is an array that is to become a tensor. */
bool bpk_state_is_array(const struct bpk_edits *edits, enum bpk_folder folder, const char *name);
/* The number of a new one. */
uint64_t bpk_state_array_number(struct bpk_edits *edits, const char *name);
/* After a journal was read back, which may be of a mount with other numbers. */
int bpk_state_renumber_array(struct bpk_edits *edits, struct bpk_file *file);
/* It was written to at `offset`: -EINVAL as soon as its header says that no tensor can be made. */
int bpk_state_note_array(struct bpk_edits *edits, struct bpk_file *file, uint64_t offset);
/* Makes the tensor of an array that has come whole; the file is gone then. Otherwise the file says
 * why not: -EINVAL if it never will be one, and if it `ends_here` -EBADMSG for one that is not
 * whole. */
int bpk_state_take_array(struct bpk_edits *edits, struct bpk_file *file, bool ends_here,
                         struct bpk_content **sorted);
/* Puts the data of a large array in C order, with the lock let go meanwhile, so that nobody waits:
 * what bpk_state_take_array then takes as `sorted` (and sets NULL). NULL: not needed, or it has to
 * be done there. The file may be another, or gone, afterwards. `lasts`: what comes of it is made
 * durable. */
struct bpk_content *bpk_state_sort_ahead(struct bpk_edits *edits, uint64_t number, bool lasts);
/* The same, without making anything. */
int bpk_state_check_array(struct bpk_file *file);

/* ---- view_numbers.c (locked) ---- */
/* The number for an array that comes into the place of that tensor's view; 0: of none. */
uint64_t bpk_state_new_array_number(struct bpk_edits *edits, uint64_t tensor);
/* The number of the tensor's file that a view of that number is of; 0: of none. */
uint64_t bpk_state_viewed(const struct bpk_edits *edits, uint64_t number);
/* The file is to lose its name: if it is an array in the place of a tensor's view, or that tensor,
 * they have nothing to do with each other from now on. */
int bpk_state_part_view(struct bpk_edits *edits, const struct bpk_file *file);
/* An array is about to become a tensor, whose file has the number *tensor; 0: a new one is chosen.
 * Whoever has it open goes on with the tensor's view. */
int bpk_state_join_view(struct bpk_edits *edits, uint64_t number, uint64_t *tensor);
void bpk_state_free_view_numbers(struct bpk_edits *edits);

/* ---- ops.c (locked) ---- */
/* A tensor that was not there before has a sidecar from now on; one that there was says what is in
 * force now. */
int bpk_state_reveal_sidecar(struct bpk_edits *edits, const char *name);

/* ---- judge.c (locked) ---- */
enum bpk_judgement {
    BPK_JUDGED_NOTHING, /* there is no such tensor, and none is meant */
    BPK_JUDGED_TENSOR,
    BPK_JUDGED_INVALID,
    BPK_JUDGED_PENDING,
    BPK_JUDGED_BACKUP,
    BPK_JUDGED_SCRATCH,
};
struct bpk_judged {
    enum bpk_judgement judgement;
    struct bpk_desc *desc; /* a reference; NULL: the base's */
    struct bpk_file *file; /* whose bytes they are; NULL: the base's */
    uint32_t index;        /* of the base's tensor of that name; BPK_NO_TENSOR: none */
    bool put_back;         /* the file was moved aside, and nothing took its place */
    char reason[400];      /* INVALID, or a BACKUP that is not whole */
};
/* The file that was moved aside from this name while nothing took its place; NULL: none. */
struct bpk_file *bpk_judge_aside(struct bpk_edits *edits, enum bpk_folder folder, const char *name);
/* Whether a file that is no part of the pack is an editor's, or holds nothing yet. */
bool bpk_judge_is_scratch(const struct bpk_file *file);
/* Judges the tensor of that file name. `ret->desc` is to be dropped. */
int bpk_judge_stem(struct bpk_edits *edits, const char *stem, struct bpk_judged *ret_judged);
/* Why a text that was edited is not good; false if it is. `path` is where it is in the mount. */
bool bpk_judge_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name, char *out,
                    size_t size);
/* Why an array that came into views/npy/ is no tensor; false if the entry is of none. */
bool bpk_judge_array(struct bpk_edits *edits, const struct bpk_entry *entry, char *out,
                     size_t size);
/* Every stem that was touched: an array of names, each and all to be freed. */
int bpk_judge_touched(struct bpk_edits *edits, char ***ret_names, size_t *ret_count);
int bpk_judge_compare_names(const void *a, const void *b); /* of char ** */
/* Whether a text or an array was written and not yet looked at; looks at all those. */
bool bpk_judge_is_unparsed(struct bpk_edits *edits, const struct bpk_file *file);
bool bpk_judge_has_unparsed(struct bpk_edits *edits);
int bpk_judge_parse_all(struct bpk_edits *edits);
bool bpk_judge_length(struct bpk_edits *edits, const char *stem, const struct bpk_desc *desc,
                      uint64_t size, char *out, size_t out_size);

/* ---- records.c, replay.c (locked) ---- */
void bpk_record_entry(struct bpk_edits *edits, const struct bpk_entry *entry);
void bpk_record_file(struct bpk_edits *edits, const struct bpk_file *file);
void bpk_record_content(struct bpk_edits *edits, const struct bpk_content *content);
void bpk_record_shift(struct bpk_edits *edits, const struct bpk_content *content);
void bpk_record_blocks(struct bpk_edits *edits, const struct bpk_content *content, uint64_t offset,
                       uint64_t size);
void bpk_record_stem(struct bpk_edits *edits, const struct bpk_stem *stem);
void bpk_record_override(struct bpk_edits *edits, const struct bpk_override *override);
void bpk_record_maps(struct bpk_edits *edits);
void bpk_record_synced(struct bpk_edits *edits, const struct bpk_content *content);
/* A frame for its own sake: whatever comes after it is later than what came before. */
void bpk_record_tick(struct bpk_edits *edits);
/* Reserves room in the journal for one operation, so that it fails before it has changed
 * anything. */
int bpk_record_begin(struct bpk_edits *edits, size_t room);
/* The same in an operation under way, before a change whose records may be long. */
int bpk_record_room(struct bpk_edits *edits, size_t room);
/* Appends what the operation recorded, whatever `result` it had; returns `result`, or why the
 * journal could not be written, nor written anew. */
int bpk_record_finish(struct bpk_edits *edits, int result);
/* The same for what is no part of the state, so that a journal written anew would not have it. */
int bpk_record_finish_once(struct bpk_edits *edits, int result);
/* Reads the journal back. If the pack is not the journal's base but what a commit made of it, that
 * commit's record comes back too: the state is then to be rebased. -ESTALE for any other pack. */
int bpk_record_replay(struct bpk_edits *edits, bool force, struct bpk_committed *ret_committed,
                      struct bpk_diag *diag);
void bpk_record_committed(struct bpk_edits *edits, const struct bpk_committed *committed);
int bpk_record_all(struct bpk_edits *edits);

/* ---- same.c (locked) ---- */
/* Whether a content shows that tensor of the base, and has nothing of its own. */
bool bpk_same_bytes(const struct bpk_content *content, const struct bpk_pack *base, uint32_t index);
/* Whether what was touched comes to what the base has: a tensor; the whole map, its entries in
 * order; the scalars; a text of the root or of metadata/ that is good. */
bool bpk_same_tensor(const struct bpk_judged *judged, const struct bpk_pack *base);
bool bpk_same_metadata(const struct bpk_pack *base, const struct bpk_plan_entry *entries,
                       size_t count);
bool bpk_same_scalars(const struct bpk_edits *edits);
bool bpk_same_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name);

#endif
