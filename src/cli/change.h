/* What the verbs that change a pack share: its edits, opened without a mount, and their commit. */
#ifndef BPK_CLI_CHANGE_H
#define BPK_CLI_CHANGE_H

#include "cli/cli.h"
#include "edit/edits.h"

/* A change in the making. Nothing of it stays beside the pack, whatever becomes of it. */
struct bpk_cli_change {
    struct bpk_cli_pack pack;
    struct bpk_names *keys;
    struct bpk_edits *edits;
    bool touched; /* there is something to commit */
};

/* Opens and locks the pack. False, with a message that names the ways out, if it is mounted for
 * writing, or if edits are waiting beside it. */
bool bpk_cli_change_begin(const char *path, const struct bpk_open_options *options,
                          struct bpk_cli_change *ret_change);

/* A file as a mount would have it: number 0 if there is none. */
struct bpk_place bpk_cli_change_place(struct bpk_cli_change *change, enum bpk_folder folder,
                                      const char *name);

/* Writes a whole text. False with a message. */
bool bpk_cli_change_text(struct bpk_cli_change *change, enum bpk_folder folder, const char *name,
                         const struct bpk_outbuf *text);

/* "cannot edit NAME: ...", and false, if r is negative; else notes that something was touched. */
bool bpk_cli_change_done(struct bpk_cli_change *change, const char *name, int r);

/* The file name of the tensor that an argument names. False, with a message, if there is none. */
bool bpk_cli_change_find(const struct bpk_cli_change *change, const char *argument,
                         char ret_file[BPK_FILE_NAME_BUF], uint32_t *ret_index);

/* The file name that a new tensor can have, of its name as people or a mount spell it. False, with
 * a message, if it can have none. */
bool bpk_cli_change_new_name(const struct bpk_cli_change *change, const char *argument,
                             char ret_file[BPK_FILE_NAME_BUF]);

/* Commits if `good` and something was touched, drops everything else, closes. The exit status. */
int bpk_cli_change_end(struct bpk_cli_change *change, bool good);

/* Commits, with its progress and with what it has to say. False with a message. */
bool bpk_cli_commit(struct bpk_edits *edits, const char *path, enum bpk_commit_mode mode,
                    struct bpk_commit_result *ret_result);

/* Prints what a reader of JSON says of a text that was made of an argument. Returns false. */
bool bpk_cli_argument_fault(const char *path, const char *argument, const char *sentence);

#endif
