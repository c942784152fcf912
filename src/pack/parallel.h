/* Work in numbered steps, done by several threads at once. Knows nothing of what the work is. */
#ifndef BPK_PACK_PARALLEL_H
#define BPK_PACK_PARALLEL_H

#include <stdint.h>

enum { BPK_PARALLEL_MOST = 64, BPK_PARALLEL_DEFAULT_MOST = 8 };

/* Does one step. No two steps of one `worker` run at once. 0, or a negative errno, which ends the
 * work. */
typedef int bpk_step_fn(void *context, unsigned worker, uint64_t step);

/* How many workers to have for so many steps: `threads`, or, if that is 0, as many as there are
 * processors for this process, but no more than BPK_PARALLEL_DEFAULT_MOST. At least 1, never more
 * than there are steps. */
unsigned bpk_parallel_workers(unsigned threads, uint64_t steps);

/* Does all steps, each once, in about their order. The caller is worker 0; threads that cannot be
 * made are done without. Returns when no step runs any more: 0, or the error of a step. */
int bpk_parallel_run(unsigned workers, uint64_t steps, bpk_step_fn *do_step, void *context);

#endif
