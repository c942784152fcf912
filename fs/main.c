/* bpkfs: mounts a pack. The order matters: the pack is known to be good before anything is
 * mounted, and mounted before the daemon goes to the background. */
#include "control.h"
#include "log.h"
#include "mount_helper.h"
#include "mountpoint.h"
#include "ops.h"
#include "pack/util.h"
#include "readahead.h"
#include "sandbox.h"
#include "saver.h"
#include "signals.h"
#include "spin.h"
#include "writable.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_log.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2 };

/* A daemon started without some of its standard streams must not have a file of its own there. */
static void keep_standard_fds(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* "-o NAME=VALUE" with the commas and backslashes of VALUE escaped. */
static int add_option(struct fuse_args *args, const char *name, const char *value) {
    char *text = NULL;
    char *escaped = NULL;
    int r = -1;
    if (asprintf(&text, "%s=%s", name, value) < 0)
        return -1;
    if (fuse_opt_add_opt_escaped(&escaped, text) == 0 && fuse_opt_add_arg(args, "-o") == 0)
        r = fuse_opt_add_arg(args, escaped);
    free(text);
    free(escaped);
    return r;
}

static int add_options(struct fuse_args *args, const struct bpk_options *options,
                       const char *pack_path, bool read_only) {
    int r = add_option(args, "fsname", pack_path);
    if (r == 0)
        r = fuse_opt_add_arg(args, read_only ? "-osubtype=bpkfs,nosuid,nodev,ro"
                                             : "-osubtype=bpkfs,nosuid,nodev,rw");
    if (r == 0 && options->allow_other)
        r = fuse_opt_add_arg(args, "-oallow_other");
    if (r == 0 && (options->allow_other || options->default_permissions))
        r = fuse_opt_add_arg(args, "-odefault_permissions");
    if (r == 0 && options->debug)
        r = fuse_opt_add_arg(args, "-d");
    return r;
}

/* What the kernel lacks of it is done without. */
static void tell_lack(const struct bpk_options *options, const char *what, int r) {
    if (r < 0 && options->debug)
        bpk_log("no sandbox for %s: %s", what, strerror(-r));
}

/* The saver comes between, for it is to reach all files. */
static int enter_sandbox(const struct bpk_options *options, struct bpk_mount *mount,
                         struct bpk_mountpoint *point, int rules) {
    int r = options->no_sandbox ? 0 : bpk_sandbox_begin();
    if (r == 0 && !options->no_sandbox)
        tell_lack(options, "system calls", bpk_sandbox_forbid_calls());
    if (r == 0)
        r = bpk_saver_start(mount, point->path);
    if (r == 0 && !options->no_sandbox)
        tell_lack(options, "files", rules < 0 ? rules : bpk_sandbox_confine(rules));
    return r;
}

/* `rules` of the sandbox, which are taken, or a negative errno. */
static int serve(struct fuse_session *session, const struct bpk_options *options,
                 struct bpk_mount *mount, struct bpk_mountpoint *point, int rules) {
    bool foreground = options->foreground || options->debug;
    if (fuse_daemonize(foreground) < 0) {
        bpk_log("cannot go to the background: %s", strerror(errno));
        return EXIT_REFUSED;
    }
    if (!foreground)
        bpk_log_to_syslog();
    int r = bpk_helper_start(&point->helper, point->path, options->argv);
    if (r < 0) {
        bpk_log("cannot start the helper process: %s", strerror(-r));
        return EXIT_REFUSED;
    }
    r = enter_sandbox(options, mount, point, rules);
    if (rules >= 0)
        close(rules);
    if (r == 0)
        r = bpk_signals_start(mount, point, options->grace);
    if (r == 0)
        r = bpk_writable_start_timer(mount, options->commit_after);
    if (r < 0) {
        bpk_log("cannot start a thread: %s", strerror(-r));
        return EXIT_REFUSED;
    }
    r = bpk_spin_start(session);
    if (r < 0)
        bpk_log("requests are waited for asleep: %s", strerror(-r));
    if (options->single_thread) {
        r = fuse_session_loop(session);
    } else {
        struct fuse_loop_config config = {.clone_fd = 0, .max_idle_threads = 10};
        r = fuse_session_loop_mt(session, &config);
    }
    /* So a detached mount may end, too, if its last file is closed while a request is read. */
    if (r == -ECONNABORTED)
        r = 0;
    if (r < 0)
        bpk_log("the connection to the kernel failed: %s", strerror(-r));
    return r < 0 ? EXIT_REFUSED : 0;
}

/* An unmount by somebody else has ended the connection. Otherwise libfuse unmounts, which the
 * sandbox may not let it do; the helper comes after it, when nothing is served any more. */
static void unmount(struct fuse_session *session, struct bpk_mountpoint *point) {
    struct pollfd fd = {.fd = fuse_session_fd(session)};
    bool is_mounted = poll(&fd, 1, 0) == 0 || !(fd.revents & POLLERR);
    fuse_session_unmount(session);
    if (is_mounted)
        (void)bpk_helper_unmount(&point->helper);
}

static void set_readahead(struct bpk_mount *mount, const char *path) {
    bool is_asked_for = mount->readahead > 0;
    if (!is_asked_for)
        mount->readahead = BPK_READAHEAD_DEFAULT;
    int r = bpk_readahead_set(path, mount->readahead);
    if (r == 0)
        return;
    mount->readahead = 0;
    if (is_asked_for)
        bpk_log("cannot set how far the kernel reads ahead: %s", strerror(-r));
}

static int mount_and_serve(struct fuse_args *args, const struct bpk_options *options,
                           struct bpk_mount *mount) {
    struct bpk_mountpoint point;
    if (add_options(args, options, mount->real_path, !mount->edits) < 0) {
        bpk_log("out of memory");
        return EXIT_REFUSED;
    }
    bpk_signals_block();
    struct fuse_session *session = fuse_session_new(args, &bpk_ops, sizeof(bpk_ops), mount);
    if (!session)
        return EXIT_USAGE; /* an option that nobody knows; libfuse has said which */
    mount->session = session;
    int status = EXIT_REFUSED;
    _cleanup_close_ int rules = options->no_sandbox ? -1 : bpk_sandbox_make_rules(mount->real_path);
    if (bpk_mountpoint_prepare(options->mountpoint, options->pack, &point) == 0) {
        if (fuse_session_mount(session, point.path) == 0) {
            bpk_writable_tell(mount);
            set_readahead(mount, point.path);
            status = serve(session, options, mount, &point, bpk_steal_fd(&rules));
            unmount(session, &point);
            bpk_saver_stop();
            bpk_writable_stop_timer();
            int edits_status = bpk_control_finish(mount);
            status = edits_status != 0 ? edits_status : status;
        }
        bpk_mountpoint_finish(&point);
    }
    fuse_session_destroy(session);
    return status;
}

/* libfuse's own messages, under our name. It prints a line in pieces. */
static __attribute__((format(printf, 2, 0))) void log_fuse(enum fuse_log_level level,
                                                           const char *format, va_list args) {
    static char line[512];
    static size_t used;
    if (level >= FUSE_LOG_INFO) { /* -d */
        (void)vfprintf(stderr, format, args);
        return;
    }
    int n = vsnprintf(line + used, sizeof(line) - used, format, args);
    used = n < 0 || (size_t)n >= sizeof(line) - used ? sizeof(line) - 1 : used + (size_t)n;
    if (used == 0 || (line[used - 1] != '\n' && used < sizeof(line) - 1))
        return;
    if (line[used - 1] == '\n')
        line[used - 1] = '\0';
    bpk_log("%s", strncmp(line, "fuse: ", 6) == 0 ? line + 6 : line);
    used = 0;
}

int main(int argc, char **argv) {
    struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
    struct bpk_options options = {0};
    struct bpk_mount mount;
    keep_standard_fds();
    fuse_set_log_func(log_fuse);
    bool is_helper = argc > 0 && bpk_mount_helper_is(argv[0]);
    bool fake = false;
    int status = is_helper ? bpk_mount_helper_translate(&args, &fake) : 0;
    if (status == 0)
        status = bpk_options_parse(&args, &options);
    if (status == 0 && options.show_help) {
        bpk_options_help();
    } else if (status == 0 && options.show_version) {
        printf("bpkfs %s (libfuse %s)\n", BPK_VERSION_TEXT, fuse_pkgversion());
    } else if (status == 0 && !fake) {
        status = EXIT_REFUSED;
        options.argv = argv;
        if (bpk_mount_open(&options, &mount) == 0) {
            status = mount_and_serve(&args, &options, &mount);
            bpk_mount_close(&mount);
        }
    }
    bpk_options_clear(&options);
    fuse_opt_free_args(&args);
    if ((options.show_help || options.show_version) && (fflush(stdout) != 0 || ferror(stdout))) {
        bpk_log("cannot write: %s", strerror(errno));
        status = EXIT_REFUSED;
    }
    return is_helper ? bpk_mount_helper_status(status) : status;
}
