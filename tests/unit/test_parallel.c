/* parallel: every step once, whatever the number of threads; the first error ends it. */
#include "pack/parallel.h"

#include "suite.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { STEPS = 1000 };

struct book {
    _Atomic unsigned done[STEPS];
    _Atomic bool busy[BPK_PARALLEL_MOST]; /* by worker */
    _Atomic bool clash;
    _Atomic uint64_t fails_at;
};

static int do_step(void *context, unsigned worker, uint64_t step) {
    struct book *book = context;
    if (atomic_exchange(&book->busy[worker], true))
        atomic_store(&book->clash, true);
    atomic_fetch_add(&book->done[step], 1);
    sched_yield();
    atomic_store(&book->busy[worker], false);
    return step == atomic_load(&book->fails_at) ? -EIO : 0;
}

static const unsigned worker_counts[] = {1, 2, 3, 8, BPK_PARALLEL_MOST, BPK_PARALLEL_MOST + 1};

START_TEST(every_step_once) {
    static struct book book;
    atomic_store(&book.fails_at, UINT64_MAX);
    ck_assert_int_eq(bpk_parallel_run(worker_counts[_i], STEPS, do_step, &book), 0);
    for (int i = 0; i < STEPS; i++)
        HOLDS(atomic_load(&book.done[i]) == 1);
    ck_assert(!atomic_load(&book.clash));
}

START_TEST(an_error_ends_it) {
    static struct book book;
    atomic_store(&book.fails_at, 100);
    ck_assert_int_eq(bpk_parallel_run(worker_counts[_i], STEPS, do_step, &book), -EIO);
    unsigned done = 0;
    for (int i = 0; i < STEPS; i++)
        done += atomic_load(&book.done[i]);
    ck_assert_uint_gt(done, 100);
    if (worker_counts[_i] == 1)
        ck_assert_uint_eq(done, 101);
}

START_TEST(no_steps) {
    ck_assert_int_eq(bpk_parallel_run(4, 0, do_step, NULL), 0);
}

START_TEST(number_of_workers) {
    ck_assert_uint_eq(bpk_parallel_workers(1, 100), 1);
    ck_assert_uint_eq(bpk_parallel_workers(5, 100), 5);
    ck_assert_uint_eq(bpk_parallel_workers(5, 3), 3);
    ck_assert_uint_eq(bpk_parallel_workers(5, 0), 1);
    ck_assert_uint_eq(bpk_parallel_workers(UINT32_MAX, UINT64_MAX), BPK_PARALLEL_MOST);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    unsigned all = bpk_parallel_workers(0, 100);
    ck_assert(all >= 1 && all <= BPK_PARALLEL_DEFAULT_MOST);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    ck_assert_uint_eq(bpk_parallel_workers(0, 100), 1);
}

int main(void) {
    Suite *suite = suite_create("parallel");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, every_step_once, 0, ROWS(worker_counts));
    tcase_add_loop_test(tc, an_error_ends_it, 0, ROWS(worker_counts));
    tcase_add_test(tc, no_steps);
    tcase_add_test(tc, number_of_workers);
    return suite_run(suite);
}
