#include "pack/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct work {
    bpk_step_fn *do_step;
    void *context;
    uint64_t steps;
    _Atomic uint64_t next;
    _Atomic int error; /* of the first step that failed */
};

struct worker {
    struct work *work;
    unsigned number;
    pthread_t thread;
};

unsigned bpk_parallel_workers(unsigned threads, uint64_t steps) {
    if (threads == 0) {
        cpu_set_t processors;
        int count =
            sched_getaffinity(0, sizeof(processors), &processors) == 0 ? CPU_COUNT(&processors) : 1;
        threads = count < BPK_PARALLEL_DEFAULT_MOST ? (unsigned)count : BPK_PARALLEL_DEFAULT_MOST;
    }
    if (threads > BPK_PARALLEL_MOST)
        threads = BPK_PARALLEL_MOST;
    if (threads > steps)
        threads = (unsigned)steps;
    return threads > 0 ? threads : 1;
}

static void *run(void *context) {
    const struct worker *worker = context;
    struct work *work = worker->work;
    while (atomic_load(&work->error) == 0) {
        uint64_t step = atomic_fetch_add(&work->next, 1);
        if (step >= work->steps)
            break;
        int r = work->do_step(work->context, worker->number, step);
        int none = 0;
        if (r < 0)
            atomic_compare_exchange_strong(&work->error, &none, r);
    }
    return NULL;
}

int bpk_parallel_run(unsigned workers, uint64_t steps, bpk_step_fn *do_step, void *context) {
    struct work work = {.do_step = do_step, .context = context, .steps = steps};
    struct worker all[BPK_PARALLEL_MOST];
    unsigned running = 0; /* besides the caller */
    for (unsigned i = 0; i < workers && i < BPK_PARALLEL_MOST; i++)
        all[i] = (struct worker){.work = &work, .number = i};
    while (running + 1 < workers && running + 1 < BPK_PARALLEL_MOST &&
           pthread_create(&all[running + 1].thread, NULL, run, &all[running + 1]) == 0)
        running++;
    (void)run(&all[0]);
    for (unsigned i = 1; i <= running; i++)
        (void)pthread_join(all[i].thread, NULL);
    return atomic_load(&work.error);
}
