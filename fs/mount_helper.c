#include "mount_helper.h"

#include "log.h"

#include <limits.h>
#include <string.h>

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2 };
enum { MOUNT_USAGE = 1, MOUNT_FAILED = 32 };

struct helper {
    int fake;
    int remount;
};

/* FUSE_OPT_KEY, but for its -1U, of which clang warns. */
#define DROP(text)                                                                                 \
    { text, UINT_MAX, FUSE_OPT_KEY_DISCARD }
#define NOTE(text, member)                                                                         \
    { text, offsetof(struct helper, member), 1 }

/* What is not here reaches bpkfs, which knows it, or libfuse, which refuses what it does not
 * know. suid and dev are dropped because no mount of bpkfs has them. */
static const struct fuse_opt specs[] = {
    NOTE("-f", fake),    NOTE("remount", remount),
    DROP("-s"),          DROP("-n"),
    DROP("-v"),          DROP("-N "),
    DROP("-t "),         DROP("defaults"),
    DROP("auto"),        DROP("noauto"),
    DROP("user"),        DROP("user="),
    DROP("nouser"),      DROP("users"),
    DROP("nousers"),     DROP("owner"),
    DROP("noowner"),     DROP("group"),
    DROP("nogroup"),     DROP("_netdev"),
    DROP("nofail"),      DROP("comment="),
    DROP("helper="),     DROP("uhelper="),
    DROP("suid"),        DROP("dev"),
    DROP("relatime"),    DROP("norelatime"),
    DROP("strictatime"), DROP("nostrictatime"),
    DROP("lazytime"),    DROP("nolazytime"),
    DROP("diratime"),    DROP("nodiratime"),
    DROP("iversion"),    DROP("noiversion"),
    DROP("mand"),        DROP("nomand"),
    DROP("silent"),      DROP("loud"),
    DROP("symfollow"),   FUSE_OPT_END,
};

bool bpk_mount_helper_is(const char *program) {
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    return strcmp(name, "mount.bpkfs") == 0 || strcmp(name, "mount.fuse.bpkfs") == 0;
}

/* mount(8) keeps these for itself; other programs may not. */
static int take_argument(void *data, const char *arg, int key, struct fuse_args *rest) {
    (void)data;
    (void)rest;
    bool is_for_programs = strncmp(arg, "x-", 2) == 0 || strncmp(arg, "X-", 2) == 0;
    return key == FUSE_OPT_KEY_OPT && is_for_programs ? 0 : 1;
}

int bpk_mount_helper_translate(struct fuse_args *args, bool *ret_fake) {
    struct helper helper = {0};
    if (fuse_opt_parse(args, &helper, specs, take_argument) < 0)
        return EXIT_USAGE;
    if (helper.remount) {
        bpk_log("a mounted pack cannot be remounted: unmount it, and mount it anew");
        return EXIT_REFUSED;
    }
    *ret_fake = helper.fake;
    return 0;
}

int bpk_mount_helper_status(int status) {
    return status == 0 ? 0 : status == EXIT_USAGE ? MOUNT_USAGE : MOUNT_FAILED;
}
