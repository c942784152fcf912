#include "signals.h"

#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct {
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
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* The main loop ends by itself once nothing is open any more; this thread then dies with the
 * process. */
static void *wait_for_signal(void *unused) {
    (void)unused;
    sigset_t set = ending_signals();
    int signal_number;
    while (sigwait(&set, &signal_number) != 0)
        ;
    int r = bpk_mountpoint_detach(context.point->path);
    if (r < 0 && r != -EINVAL)
        bpk_log("cannot unmount %s: %s", context.point->path, strerror(-r));
    (void)sleep(context.grace);
    bpk_log("files of the mount are still open after %u seconds; leaving", context.grace);
    bpk_mountpoint_finish(context.point);
    _exit(0);
}

int bpk_signals_start(struct bpk_mountpoint *point, unsigned grace) {
    context.point = point;
    context.grace = grace;
    pthread_t thread;
    int r = pthread_create(&thread, NULL, wait_for_signal, NULL);
    if (r != 0)
        return -r;
    (void)pthread_detach(thread);
    return 0;
}
