/* status_read: what bpk takes from a mount's status.json, and what is no status. */
#include "view/status_read.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>

START_TEST(a_whole_status_is_read) {
    struct bpk_status status;
    const char *text = "{\"pack\": \"/p.bpk\", \"mode\": \"rw\", \"layout\": \"aligned\", "
                       "\"tensors\": 3, \"edits\": [\"tensors/a\", 7, \"tensors/b\"], "
                       "\"changes\": {\"tensors/a\": \"renamed\"}, "
                       "\"renamed_from\": {\"tensors/a\": \"tensors/c\"}, "
                       "\"scratch\": [\".x.swp\"], "
                       "\"problems\": [{\"file\": \"f\", \"reason\": \"r\"}, {\"file\": \"g\"}], "
                       "\"last_commit\": \"now\", \"pid\": 42, "
                       "\"committing\": {\"done\": 5, \"total\": 9}}";
    ck_assert_int_eq(bpk_status_parse(str(text), &status), 0);
    ck_assert_str_eq(status.pack, "/p.bpk");
    ck_assert_str_eq(status.layout, "aligned");
    ck_assert(!status.read_only);
    ck_assert_uint_eq(status.tensors, 3);
    ck_assert_uint_eq(status.edit_count, 2);
    ck_assert_str_eq(status.edits[0].path, "tensors/a");
    ck_assert_str_eq(status.edits[0].change, "renamed");
    ck_assert_str_eq(status.edits[0].from, "tensors/c");
    ck_assert_str_eq(status.edits[1].path, "tensors/b");
    ck_assert_ptr_null(status.edits[1].change);
    ck_assert_str_eq(status.scratch[0], ".x.swp");
    ck_assert_ptr_null(status.scratch[1]);
    ck_assert_uint_eq(status.problem_count, 1);
    ck_assert_str_eq(status.problems[0].reason, "r");
    ck_assert_str_eq(status.last_commit, "now");
    ck_assert_int_eq(status.pid, 42);
    ck_assert_uint_eq(status.done, 5);
    ck_assert_uint_eq(status.total, 9);
    bpk_status_clear(&status);
    ck_assert_ptr_null(status.pack);
}

START_TEST(the_least_status_is_read) {
    struct bpk_status status;
    ck_assert_int_eq(bpk_status_parse(str("{\"pack\": \"p\", \"layout\": \"legacy\"}"), &status),
                     0);
    ck_assert(status.read_only);
    ck_assert_uint_eq(status.edit_count + status.problem_count, 0);
    ck_assert_ptr_null(status.scratch[0]);
    ck_assert_ptr_null(status.last_commit);
    bpk_status_clear(&status);
}

/* Not for want of memory, which would send people looking for the wrong thing. */
static const char *const no_status[] = {
    "",
    "{",
    "[]",
    "{}",
    "{\"layout\": \"aligned\"}",
    "{\"pack\": \"/p.bpk\"}",
    "{\"pack\": 7, \"layout\": \"aligned\"}",
    "{\"pack\": \"/p.bpk\", \"layout\": null}",
};

START_TEST(what_is_no_status_is_refused) {
    struct bpk_status status;
    ck_assert_int_eq(bpk_status_parse(str(no_status[_i]), &status), -EBADMSG);
}

int main(void) {
    Suite *suite = suite_create("status_read");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, a_whole_status_is_read);
    tcase_add_test(tc, the_least_status_is_read);
    tcase_add_loop_test(tc, what_is_no_status_is_refused, 0, ROWS(no_status));
    return suite_run(suite);
}
