#include "cli/progress.h"

#include "cli/interrupt.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_MS = 1000, EVERY_MS = 250 };

/* Whether the work ended within that time. Locked. */
static bool ends_within(struct bpk_cli_progress *progress, long ms) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    int r = 0;
    while (!progress->ends && r == 0)
        r = pthread_cond_timedwait(&progress->wake, &progress->lock, &until);
    return progress->ends;
}

static void *run(void *context) {
    struct bpk_cli_progress *progress = context;
    bool shown = false;
    pthread_mutex_lock(&progress->lock);
    for (long ms = FIRST_MS; !ends_within(progress, ms); ms = EVERY_MS) {
        uint64_t done;
        uint64_t total;
        pthread_mutex_unlock(&progress->lock);
        if (progress->ask(progress->context, &done, &total) && total > 0 && done <= total) {
            (void)fprintf(stderr, "\rbpk: %s: %3.0f %%", progress->what,
                          100.0 * (double)done / (double)total);
            (void)fflush(stderr);
            shown = true;
        }
        pthread_mutex_lock(&progress->lock);
    }
    pthread_mutex_unlock(&progress->lock);
    if (shown)
        (void)fputs("\r\033[K", stderr);
    return NULL;
}

void bpk_cli_progress_begin(struct bpk_cli_progress *progress) {
    progress->runs = false;
    progress->ends = false;
    if (!isatty(STDERR_FILENO))
        return;
    (void)pthread_mutex_init(&progress->lock, NULL);
    (void)pthread_cond_init(&progress->wake, NULL);
    progress->runs = pthread_create(&progress->thread, NULL, run, progress) == 0;
}

void bpk_cli_progress_end(struct bpk_cli_progress *progress) {
    if (!progress->runs)
        return;
    pthread_mutex_lock(&progress->lock);
    progress->ends = true;
    (void)pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    (void)pthread_join(progress->thread, NULL);
}

int bpk_cli_count(void *counter, uint64_t done, uint64_t total) {
    struct bpk_cli_counter *to = counter;
    to->total = total;
    to->done = done;
    return bpk_cli_interrupted() ? -EINTR : 0;
}

bool bpk_cli_ask_counter(void *counter, uint64_t *ret_done, uint64_t *ret_total) {
    struct bpk_cli_counter *from = counter;
    *ret_total = from->total;
    *ret_done = from->done;
    return *ret_total > 0;
}
