#include "signals.h"

#include "control.h"
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct {
    struct bpk_mount *mount;
    struct bpk_mountpoint *point;
    unsigned grace;
} context; /* set before the thread starts */

static sigset_t ending_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

void bpk_signals_block(void) {
    sigset_t set = ending_signals();
    sigaddset(&set, SIGPIPE);
    sigaddset(&set, SIGXFSZ); /* a write past the limit is EFBIG, not the end */
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Writes of shared maps come only when the kernel is asked for them: before the mount is detached,
 * while it still has a path. The requests are served by the other threads. */
static void bring_dirty_pages(void) {
    int r = bpk_helper_sync(&context.point->helper);
    if (r < 0 && r != -EPIPE) /* then it cannot be detached either, which is said */
        bpk_log("cannot bring in what is mapped: %s", strerror(-r));
}

/* Whether the mount ends with its last open file. */
static bool detach(void) {
    int r = bpk_helper_unmount(&context.point->helper);
    if (r < 0 && r != -EINVAL)
        bpk_log("cannot unmount %s: %s", context.point->path,
                r == -EPIPE ? "the helper process is gone" : strerror(-r));
    return r == 0 || r == -EINVAL;
}

static void wait_for_writers(void) {
    for (unsigned i = 0; i < context.grace && context.mount->edits; i++) {
        if (bpk_edits_each_writer(context.mount->edits, NULL, NULL) == 0)
            return;
        (void)sleep(1);
    }
}

static void tell_writer(void *unused, const char *path) {
    (void)unused;
    bpk_log("still open for writing: %s", path);
}

/* The main loop ends by itself once nothing is open any more; this thread then dies with the
 * process. */
static void *wait_for_signal(void *unused) {
    enum { EXIT_WRITERS_LEFT = 3 };
    (void)unused;
    sigset_t set = ending_signals();
    int signal_number;
    while (sigwait(&set, &signal_number) != 0)
        ;
    if (context.mount->edits)
        bring_dirty_pages();
    if (detach()) {
        (void)sleep(context.grace);
        bpk_log("files of the mount are still open after %u seconds; leaving", context.grace);
    } else {
        wait_for_writers();
    }
    size_t writers = 0;
    if (context.mount->edits)
        writers = bpk_edits_each_writer(context.mount->edits, tell_writer, NULL);
    int status = bpk_control_finish(context.mount);
    bpk_mountpoint_remove(context.point);
    _exit(status == 0 && writers > 0 ? EXIT_WRITERS_LEFT : status);
}

int bpk_signals_start(struct bpk_mount *mount, struct bpk_mountpoint *point, unsigned grace) {
    context.mount = mount;
    context.point = point;
    context.grace = grace;
    pthread_t thread;
    int r = pthread_create(&thread, NULL, wait_for_signal, NULL);
    if (r != 0)
        return -r;
    (void)pthread_detach(thread);
    return 0;
}
