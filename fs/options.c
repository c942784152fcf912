#include "options.h"

#include "log.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2, MAX_SECONDS = 365 * 24 * 3600, MAX_READAHEAD = 65536 };

#define OPTION(text, member)                                                                       \
    { text, offsetof(struct bpk_options, member), 1 }

static const struct fuse_opt specs[] = {
    OPTION("-h", show_help),
    OPTION("--help", show_help),
    OPTION("-V", show_version),
    OPTION("--version", show_version),
    OPTION("-f", foreground),
    OPTION("-s", single_thread),
    OPTION("-d", debug),
    OPTION("debug", debug),
    OPTION("ro", read_only),
    OPTION("-r", read_only),
    OPTION("salvage", salvage),
    OPTION("xattr", xattr),
    OPTION("allow_other", allow_other),
    OPTION("default_permissions", default_permissions),
    OPTION("uid=%s", uid),
    OPTION("gid=%s", gid),
    OPTION("umask=%s", umask),
    OPTION("layout=%s", layout),
    OPTION("edits=%s", edits),
    OPTION("chown=%s", chown),
    OPTION("views=%s", views),
    OPTION("commit=%u", commit_after),
    OPTION("grace=%u", grace),
    OPTION("readahead=%u", readahead),
    OPTION("nosandbox", no_sandbox),
    FUSE_OPT_END,
};

static int take_argument(void *data, const char *arg, int key, struct fuse_args *rest) {
    struct bpk_options *options = data;
    (void)rest;
    if (key != FUSE_OPT_KEY_NONOPT)
        return 1; /* libfuse's */
    char **place = !options->pack         ? &options->pack
                   : !options->mountpoint ? &options->mountpoint
                                          : NULL;
    if (!place) {
        bpk_log("too many arguments: '%s'", arg);
        return -1;
    }
    *place = strdup(arg);
    return *place ? 0 : -1;
}

/* A decimal number or, if `find` knows it, a name. */
static bool parse_id(const char *text, bool (*find)(const char *, unsigned *), unsigned *ret_id) {
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && number < UINT32_MAX && text[0] != '-') {
        *ret_id = (unsigned)number;
        return true;
    }
    return find(text, ret_id);
}

static bool find_user(const char *name, unsigned *ret_id) {
    const struct passwd *entry = getpwnam(name);
    if (entry)
        *ret_id = entry->pw_uid;
    return entry != NULL;
}

static bool find_group(const char *name, unsigned *ret_id) {
    const struct group *entry = getgrnam(name);
    if (entry)
        *ret_id = entry->gr_gid;
    return entry != NULL;
}

static bool parse_mask(const char *text, mode_t *ret_mask) {
    char *end;
    unsigned long mask = strtoul(text, &end, 8);
    if (end == text || *end != '\0' || mask > 0777 || text[0] == '-')
        return false;
    *ret_mask = (mode_t)mask;
    return true;
}

/* Turns the options that are text into what they mean; names the first that is wrong. */
static const char *interpret(struct bpk_options *options) {
    options->has_uid = options->uid != NULL;
    options->has_gid = options->gid != NULL;
    if (options->uid && !parse_id(options->uid, find_user, &options->owner))
        return "uid= wants a number or a user's name";
    if (options->gid && !parse_id(options->gid, find_group, &options->group))
        return "gid= wants a number or a group's name";
    if (options->umask && !parse_mask(options->umask, &options->mask))
        return "umask= wants an octal number up to 777";
    if (options->edits && strcmp(options->edits, "discard") != 0)
        return "edits= wants 'discard'";
    if (options->chown && strcmp(options->chown, "ignore") != 0)
        return "chown= wants 'ignore'";
    if (options->views && strcmp(options->views, "listed") != 0)
        return "views= wants 'listed'";
    if (options->grace > MAX_SECONDS || options->commit_after > MAX_SECONDS)
        return "grace= and commit= want seconds, up to a year";
    if (options->readahead > MAX_READAHEAD)
        return "readahead= wants KiB, up to 65536";
    options->open.salvage = options->salvage;
    if (options->layout) {
        options->open.force_layout = true;
        if (strcmp(options->layout, "legacy") == 0)
            options->open.layout = BPK_LAYOUT_LEGACY;
        else if (strcmp(options->layout, "aligned") == 0)
            options->open.layout = BPK_LAYOUT_ALIGNED;
        else
            return "layout= wants 'aligned' or 'legacy'";
    }
    return NULL;
}

int bpk_options_parse(struct fuse_args *args, struct bpk_options *options) {
    *options = (struct bpk_options){.grace = 10};
    if (fuse_opt_parse(args, options, specs, take_argument) < 0)
        return EXIT_USAGE;
    if (options->show_help || options->show_version)
        return 0;
    const char *fault = interpret(options);
    if (!fault && !options->pack)
        fault = "no pack given";
    if (fault) {
        bpk_log("%s; see 'bpkfs --help'", fault);
        return EXIT_USAGE;
    }
    return 0;
}

void bpk_options_clear(struct bpk_options *options) {
    free(options->pack);
    free(options->mountpoint);
    free(options->layout);
    free(options->edits);
    free(options->chown);
    free(options->views);
    free(options->uid);
    free(options->gid);
    free(options->umask);
}

void bpk_options_help(void) {
    printf(
        "usage: bpkfs [options] PACK [MOUNTPOINT]\n"
        "\n"
        "Mounts a Burn checkpoint (.bpk) as a directory. Without MOUNTPOINT, ./NAME is made and\n"
        "removed again at the unmount. 'bpk umount' commits edits, unmounts and waits.\n"
        "\n"
        "    -f                  stay in the foreground\n"
        "    -d                  foreground, and print every request\n"
        "    -s                  one thread\n"
        "    -h, --help          this text\n"
        "    -V, --version       the version\n"
        "    -o ro               read-only\n"
        "    -o edits=discard    drop the edits that an earlier mount left\n"
        "    -o chown=ignore     commit even if the pack's owner cannot be kept\n"
        "    -o commit=SECONDS   commit after so long without a change\n"
        "    -o uid=U,gid=G      owner of the files (default: the pack's)\n"
        "    -o umask=MASK       permission bits that no file has, octal; the others all have\n"
        "    -o allow_other      let other users in\n"
        "    -o auto_unmount     unmount also if the daemon dies\n"
        "    -o views=listed     list views/ and .bpkfs/ in the root\n"
        "    -o xattr            dtype, shape, param_id as extended attributes\n"
        "    -o layout=L         'aligned' or 'legacy', where the pack leaves it open\n"
        "    -o salvage          mount what is whole in a truncated pack\n"
        "    -o readahead=KIB    how far the kernel reads ahead (root only)\n"
        "    -o grace=SECONDS    how long a signal waits for open files (10)\n"
        "    -o nosandbox        leave the daemon all its rights\n"
        "\n"
        "See bpkfs(1).\n");
}
