/* A pack in a folder of its own with its edits open, for the tests of src/edit: operations by name,
 * as a mount would call them, and what a killed mount leaves. Failures abort the test. */
#ifndef TESTS_UNIT_EDITKIT_H
#define TESTS_UNIT_EDITKIT_H

#include "edit/edits.h"
#include "packbuild.h"

struct kit {
    char folder[TEMP_PATH]; /* made by kit_begin, removed by kit_end */
    char path[TEMP_PATH + 16];
    struct bpk_edits *edits;  /* NULL: closed */
    struct bpk_pack *mounted; /* the pack as it was when they were opened */
    size_t recovered;         /* names that the last opening found changed */
    struct bpk_diag diag;     /* of the last commit or opening */
};

/* A folder for files of the tests: in memory where there is room. */
void kit_folder(char out[TEMP_PATH]);
void kit_remove_folder(const char *folder);

void kit_begin(struct kit *kit, const struct packspec *spec);
void kit_end(struct kit *kit);

/* Another file in the pack's place, as somebody else's rename puts it there. */
void kit_replace_pack(const struct kit *kit, const struct packspec *spec);

/* 0 or what bpk_edits_open says. */
int kit_try_open(struct kit *kit, const struct bpk_edits_options *options);
void kit_open(struct kit *kit);
void kit_close(struct kit *kit);
void kit_reopen(struct kit *kit);

/* The edits folder as it is now, kept in `copy`; putting it back makes it what a kill at that
 * moment would have left. The session must be closed for that. */
void kit_keep_edits(const struct kit *kit, char copy[TEMP_PATH]);
void kit_put_back_edits(const struct kit *kit, const char *copy); /* `copy` is gone then */
void kit_edits_path(const struct kit *kit, char out[TEMP_PATH + 32]);
bool kit_has_edits_folder(const struct kit *kit);

/* Where a name is; number 0 if it is nowhere. */
struct bpk_place kit_place(struct kit *kit, enum bpk_folder folder, const char *name);
bool kit_exists(struct kit *kit, enum bpk_folder folder, const char *name);
bool kit_base_has(const struct bpk_pack *pack, enum bpk_folder folder, const char *name);

/* Creates the file if it is not there, writes, flushes: 0 or the first error. */
int kit_try_put(struct kit *kit, enum bpk_folder folder, const char *name, const void *data,
                size_t size);
void kit_put(struct kit *kit, enum bpk_folder folder, const char *name, const char *text);
void kit_put_bytes(struct kit *kit, enum bpk_folder folder, const char *name, const void *data,
                   size_t size);
void kit_write(struct kit *kit, const char *tensor, uint64_t offset, const char *text);
int kit_truncate(struct kit *kit, enum bpk_folder folder, const char *name, uint64_t size);
int kit_chmod(struct kit *kit, const struct bpk_place *place, mode_t mode);
int kit_touch(struct kit *kit, const struct bpk_place *place, struct timespec mtime);
int kit_unlink(struct kit *kit, enum bpk_folder folder, const char *name);
int kit_rename(struct kit *kit, enum bpk_folder folder, const char *from, const char *to);
int kit_flush(struct kit *kit, enum bpk_folder folder, const char *name);
int kit_fsync(struct kit *kit, enum bpk_folder folder, const char *name);
/* {"dtype": "U8", "shape": [size]} */
void kit_sidecar(struct kit *kit, const char *tensor, uint64_t size);

/* All of a file, text or not; the caller clears. */
void kit_read(struct kit *kit, enum bpk_folder folder, const char *name, struct bytes *ret_data);
/* Whether the file's content is this. */
bool kit_says(struct kit *kit, enum bpk_folder folder, const char *name, const char *text);
bool kit_contains(struct kit *kit, enum bpk_folder folder, const char *name, const char *part);

int kit_commit(struct kit *kit, enum bpk_commit_mode mode, struct bpk_commit_result *ret_result);
/* Commits all, which must succeed. */
void kit_commit_all(struct kit *kit);

/* The pack as it is on the disk, opened afresh. */
struct bpk_pack *kit_pack(const struct kit *kit);
/* Whether the pack on the disk has this tensor with these bytes. */
bool kit_pack_holds(const struct kit *kit, const char *tensor, const void *data, size_t size);
bool kit_pack_has(const struct kit *kit, const char *tensor);
/* The value of a metadata key in the pack on the disk; the caller frees; NULL: none. */
char *kit_pack_value(const struct kit *kit, const char *key);

/* The problem that the list of edits gives for `path`, "" if it is there without one; NULL if it is
 * not there. Static storage. */
const char *kit_problem(struct kit *kit, const char *path, enum bpk_edit_kind *ret_kind);

/* What kind of change the list says of `path`: "changed", "new", "removed" or "renamed from PATH";
 * NULL if it is not there. Static storage. */
const char *kit_change(struct kit *kit, const char *path);

/* How many files there are in a folder, hidden ones included. */
int kit_count_files(const char *folder);

#endif
