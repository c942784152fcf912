/* What the verbs of bpk share. A verb is one function in one small file; the table is in main.c. */
#ifndef BPK_CLI_CLI_H
#define BPK_CLI_CLI_H

#include "bpk.h"
#include "pack/outbuf.h"
#include "view/names.h"

enum bpk_exit {
    BPK_EXIT_OK = 0,
    BPK_EXIT_FAILED = 1,     /* refused or failed; a message was printed */
    BPK_EXIT_USAGE = 2,      /* wrong arguments */
    BPK_EXIT_UNREADABLE = 2, /* verify only: the file could not be opened */
    BPK_EXIT_EDITS_LEFT = 3, /* edits that are not in the pack are kept beside it */
};

struct bpk_verb {
    const char *name;
    const char *arguments; /* for the usage line */
    const char *summary;
    const char *options;               /* a line for each, for --help; NULL: there are none */
    int (*run)(int argc, char **argv); /* argv[0] is the verb; returns an exit status */
    bool writes; /* files, of which a signal is to leave nothing half done (cli/interrupt.h) */
};

extern const struct bpk_verb bpk_verb_info;
extern const struct bpk_verb bpk_verb_ls;
extern const struct bpk_verb bpk_verb_cat;
extern const struct bpk_verb bpk_verb_export;
extern const struct bpk_verb bpk_verb_verify;
extern const struct bpk_verb bpk_verb_stats;
extern const struct bpk_verb bpk_verb_status;
extern const struct bpk_verb bpk_verb_commit;
extern const struct bpk_verb bpk_verb_discard;
extern const struct bpk_verb bpk_verb_umount;
extern const struct bpk_verb bpk_verb_recover;
extern const struct bpk_verb bpk_verb_unpack;
extern const struct bpk_verb bpk_verb_pack;
extern const struct bpk_verb bpk_verb_set;
extern const struct bpk_verb bpk_verb_unset;
extern const struct bpk_verb bpk_verb_mv;
extern const struct bpk_verb bpk_verb_rm;
extern const struct bpk_verb bpk_verb_put;
extern const struct bpk_verb bpk_verb_diff;
extern const struct bpk_verb bpk_verb_import;
extern const struct bpk_verb bpk_verb_salvage;

/* "bpk: FILE: MESSAGE" on stderr; `file` may be NULL. */
void bpk_cli_error(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for each line of a text, made safe for a terminal. Returns how many those were. */
size_t bpk_cli_lines(const char *file, const struct bpk_outbuf *text);

/* Writes to standard output; false, with a message, if that fails. */
bool bpk_cli_out(const void *bytes, size_t size);

/* The usage line of a verb on stderr; returns BPK_EXIT_USAGE. */
int bpk_cli_usage(const struct bpk_verb *verb);

/* An open pack and its tensors' file names. */
struct bpk_cli_pack {
    const char *path; /* as given */
    struct bpk_pack *pack;
    struct bpk_pack_info info;
    struct bpk_names *names;
};

/* "-o layout=aligned" or "-o layout=legacy", which every verb that reads a pack takes: how to open
 * it. False, with a message, for any other text. */
bool bpk_cli_layout(const char *text, struct bpk_open_options *options);

/* Opens `path`; on failure a message is printed. 0 or a negative errno. */
int bpk_cli_open(const char *path, const struct bpk_open_options *options,
                 struct bpk_cli_pack *ret_pack);
void bpk_cli_close(struct bpk_cli_pack *pack);

/* Says that bytes of the pack could not be read; `r` is why. */
void bpk_cli_unread(const struct bpk_cli_pack *pack, int r);

/* The tensor of which `name` is the file name, or another spelling of it with %XX. -ENOENT. */
int bpk_cli_find(const struct bpk_cli_pack *pack, const char *name, uint32_t *ret_index);

/* The tensor's file name as it is shown: what must not reach a terminal is percent-encoded too. */
void bpk_cli_show_name(const struct bpk_cli_pack *pack, uint32_t index, struct bpk_outbuf *out);

/* Prints all and clears the buffer; false if that failed, which bpk_cli_finish tells of. */
bool bpk_cli_print(struct bpk_outbuf *out);

/* The end of every verb: what was printed must have got out. Returns the exit status. */
int bpk_cli_finish(int status);

#endif
