/* The command line of bpkfs. */
#ifndef BPKFS_OPTIONS_H
#define BPKFS_OPTIONS_H

#define FUSE_USE_VERSION 35

#include "bpk.h"

#include <fuse_lowlevel.h>
#include <sys/types.h>

struct bpk_options {
    char *pack;       /* as given */
    char *mountpoint; /* as given; NULL if none was */
    struct bpk_open_options open;
    char *layout; /* -o layout=…, edits=…, chown=…, views=…, as given */
    char *edits;
    char *chown;
    char *views;
    int foreground;
    int debug;
    int single_thread;
    int show_help;
    int show_version;
    int xattr;
    int allow_other;
    int default_permissions;
    int read_only;
    int salvage;
    int no_sandbox;
    int has_uid; /* set by options.c, as has_gid */
    int has_gid;
    char *uid;
    char *gid;
    char *umask;
    uid_t owner; /* what uid=, gid= and umask= mean */
    gid_t group;
    mode_t mask;           /* counts only with umask= */
    unsigned commit_after; /* seconds without a change; 0: never */
    unsigned readahead;    /* KiB; 0: not given */
    unsigned grace;        /* seconds that a signal waits for open files */
    char **argv;           /* of the process */
};

/* Fills `options` and leaves in `args` what is libfuse's. Returns 0, or an exit status after a
 * message was printed. */
int bpk_options_parse(struct fuse_args *args, struct bpk_options *options);

void bpk_options_clear(struct bpk_options *options);
void bpk_options_help(void);

#endif
