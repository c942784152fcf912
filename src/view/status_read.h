/* Reading .bpkfs/status.json, for bpk's verbs on live mounts. */
#ifndef BPK_VIEW_STATUS_READ_H
#define BPK_VIEW_STATUS_READ_H

#include "bpk.h"

#include <sys/types.h>

/* All strings are owned, terminated, and not yet made safe for a terminal. */
struct bpk_status {
    char *pack;
    bool read_only;
    char *layout;
    uint64_t tensors;
    struct bpk_status_edit {
        char *path;
        char *change; /* "new", "removed", ...; NULL: the daemon does not say */
        char *from;   /* where it was renamed from; NULL: it was not */
    } * edits;
    size_t edit_count;
    char **scratch; /* NULL-terminated */
    struct bpk_status_problem {
        char *file;
        char *reason;
    } * problems;
    size_t problem_count;
    char *last_commit; /* NULL: none in this mount */
    pid_t pid;
    uint64_t done; /* bytes of a commit under way, of `total` */
    uint64_t total;
};

/* 0, -EBADMSG if the text is not a status, -ENOMEM. */
int bpk_status_parse(struct bpk_str text, struct bpk_status *ret_status);
void bpk_status_clear(struct bpk_status *status);

#endif
