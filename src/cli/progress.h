/* A line on the terminal for work that takes more than a second: how much of it is done.
 *
 * A thread asks now and then; nothing is shown, and no thread made, where standard error is no
 * terminal. The line is gone when the work ends.
 */
#ifndef BPK_CLI_PROGRESS_H
#define BPK_CLI_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How far it is; false while that is not known. Called from the thread. */
typedef bool bpk_cli_ask_fn(void *context, uint64_t *ret_done, uint64_t *ret_total);

struct bpk_cli_progress {
    bpk_cli_ask_fn *ask;
    void *context;
    const char *what; /* "committing" */
    /* from here on its own */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool runs;
    bool ends; /* guarded by lock */
};

void bpk_cli_progress_begin(struct bpk_cli_progress *progress);
void bpk_cli_progress_end(struct bpk_cli_progress *progress);

/* How far work is that tells it by calls of bpk_cli_count, as that of bpk_replace_options does;
 * both functions take one as their context. bpk_cli_count answers -EINTR after a signal. */
struct bpk_cli_counter {
    _Atomic uint64_t done;
    _Atomic uint64_t total; /* 0: not known yet */
};

int bpk_cli_count(void *counter, uint64_t done, uint64_t total);
bool bpk_cli_ask_counter(void *counter, uint64_t *ret_done, uint64_t *ret_total);

#endif
