/* sidecar_origin: which tensor of which place a sidecar was written for. */
#include "packbuild.h"
#include "suite.h"
#include "view/json_read.h"

#include <string.h>

static const struct {
    const char *text;
    const char *name; /* NULL: not said */
    bool has_offsets;
    uint64_t start;
    uint64_t end;
    bool has_size;
    uint64_t size;
} rows[] = {
    {"{}", NULL, false, 0, 0, false, 0},
    {"{\"name\": \"a\", \"data_offsets\": [256, 260], \"nbytes\": 4}", "a", true, 256, 260, true,
     4},
    {"{\"name\": \"\", \"nbytes\": \"18446744073709551615\"}", "", false, 0, 0, true, UINT64_MAX},
    {"{\"name\": null, \"data_offsets\": null, \"nbytes\": null}", NULL, false, 0, 0, false, 0},
    {"{\"name\": 5, \"data_offsets\": [1], \"nbytes\": -1}", NULL, false, 0, 0, false, 0},
    {"{\"data_offsets\": [1, 2, 3]}", NULL, false, 0, 0, false, 0},
    {"{\"data_offsets\": [1, 2.5], \"nbytes\": []}", NULL, false, 0, 0, false, 0},
    {"{\"data_offsets\": {\"0\": 1}}", NULL, false, 0, 0, false, 0},
};

START_TEST(what_is_said) {
    struct bpk_sidecar_origin origin;
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_sidecar_origin_parse(str(rows[_i].text), &origin, &diag), BPK_TEXT_GOOD);
    ck_assert_int_eq(origin.name != NULL, rows[_i].name != NULL);
    if (rows[_i].name) {
        ck_assert_uint_eq(origin.name_len, strlen(rows[_i].name));
        ck_assert_mem_eq(origin.name, rows[_i].name, origin.name_len);
    }
    ck_assert_int_eq(origin.has_offsets, rows[_i].has_offsets);
    if (rows[_i].has_offsets) {
        ck_assert_uint_eq(origin.start, rows[_i].start);
        ck_assert_uint_eq(origin.end, rows[_i].end);
    }
    ck_assert_int_eq(origin.has_size, rows[_i].has_size);
    if (rows[_i].has_size)
        ck_assert_uint_eq(origin.size, rows[_i].size);
    bpk_sidecar_origin_clear(&origin);
}

START_TEST(what_is_no_sidecar) {
    struct bpk_sidecar_origin origin;
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_sidecar_origin_parse(str("[1]"), &origin, &diag), BPK_TEXT_BAD);
    ck_assert_int_eq(bpk_sidecar_origin_parse(str("{\"a\""), &origin, &diag), BPK_TEXT_EARLY_END);
    ck_assert_str_ne(diag.sentence, "");
}

int main(void) {
    Suite *suite = suite_create("sidecar_origin");
    TCase *tc = suite_case(suite, "parsing");
    tcase_add_loop_test(tc, what_is_said, 0, ROWS(rows));
    tcase_add_test(tc, what_is_no_sidecar);
    return suite_run(suite);
}
