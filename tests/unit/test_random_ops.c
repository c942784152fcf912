/* Random operations against a plain model, as fsx does it: names, bytes, sidecars, handles, fsync,
 * commits and what a kill leaves. After each reading, reopening and commit, mount and pack must be
 * what the model says. The same seed gives the same run; BPK_OPS=1000000 makes it long, BPK_SEED
 * runs one seed, BPK_TRACE prints every operation. */
#include "bpk.h"

#include "opsmodel.h"

enum { DEFAULT_OPS = 100000, SEEDS = 5 };

static unsigned long ops_wanted(void) {
    const char *text = getenv("BPK_OPS");
    return text ? strtoul(text, NULL, 10) : DEFAULT_OPS;
}

START_TEST(mount_and_pack_are_what_the_model_says) {
    static struct run run;
    const char *only = getenv("BPK_SEED");
    run.seed = only ? strtoull(only, NULL, 10) : (uint64_t)_i + 1;
    run.random = run.seed * 7919;
    run.trace = getenv("BPK_TRACE") != NULL;
    if (only && _i > 0)
        return;
    ops_begin(&run);
    unsigned long ops = only ? ops_wanted() : ops_wanted() / SEEDS;
    for (run.op = 0; run.op < ops; run.op++)
        ops_step(&run);
    ops_end(&run);
    ck_assert_uint_gt(run.commits, ops / 1000);
    ck_assert_uint_gt(run.reopens, ops / 2000);
}

int main(void) {
    Suite *suite = suite_create("random_ops");
    TCase *tc = suite_case(suite, "all");
    tcase_set_timeout(tc, 30 + (double)ops_wanted() / 200);
    tcase_add_loop_test(tc, mount_and_pack_are_what_the_model_says, 0, SEEDS);
    return suite_run(suite);
}
