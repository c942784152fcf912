/* layout: every rule and tie-breaker by which a legacy pack is told from an aligned one
 * (format.md 1.5). */
#include "pack/layout.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <string.h>

START_TEST(starts) {
    static const struct {
        uint64_t offset, aligned;
    } rows[] = {{0, 0}, {1, 256}, {255, 256}, {256, 256}, {257, 512}, {104857610, 104857856}};
    for (int i = 0; i < ROWS(rows); i++) {
        ck_assert_uint_eq(bpk_layout_align(rows[i].offset), rows[i].aligned);
        ck_assert_uint_eq(bpk_layout_data_start(BPK_LAYOUT_ALIGNED, rows[i].offset),
                          rows[i].aligned);
        ck_assert_uint_eq(bpk_layout_data_start(BPK_LAYOUT_LEGACY, rows[i].offset), rows[i].offset);
    }
}

enum { A = BPK_LAYOUT_ALIGNED, L = BPK_LAYOUT_LEGACY, TRUNCATED = 10, EITHER };

/* U = 200, so P = 56; X = 1000: legacy ends at 1200, aligned at 1256. */
enum { U = 200, X = 1000, ODD = 1, JUNK = 2, META = 4, MODERN = 8, TAIL = 16 };

static const struct {
    uint64_t start, data, file;
    int flags; /* ODD: a start off 256; JUNK: padding not zero; TAIL: zeros inside metadata_size */
    const char *version;
    const char *producer;
    int expected;
} rows[] = {
    /* rule 1: nothing to misplace */
    {U, 0, 199, 0, NULL, NULL, TRUNCATED},
    {U, 0, 200, 0, NULL, NULL, L},
    {U, 0, 201, 0, NULL, NULL, A},
    {U, 0, 255, 0, NULL, NULL, A},
    {U, 0, 256, 0, NULL, NULL, A},
    {U, 0, 9999, JUNK, NULL, NULL, A},
    {256, 0, 256, 0, NULL, NULL, A},
    /* rule 2: too short for either, whatever the evidence */
    {U, X, 1199, META, "0.19.0", NULL, TRUNCATED},
    {U, X, 1199, ODD | JUNK, NULL, NULL, TRUNCATED},
    {U, X, 200, 0, NULL, NULL, TRUNCATED},
    {U, X, 0, MODERN, NULL, NULL, TRUNCATED},
    {256, X, 1255, META, NULL, NULL, TRUNCATED},
    /* rule 3: P == 0, the same bytes */
    {256, X, 1256, META, NULL, NULL, A},
    {256, X, 1256, META, "0.19.0", NULL, A},
    {256, X, 1300, 0, NULL, NULL, A},
    {256, X, 1256, ODD | META, NULL, NULL, L},
    {256, X, 1256, ODD | META, "0.21.0", NULL, L},
    {256, X, 1256, ODD | META | TAIL, NULL, NULL, A}, /* no legacy writer leaves room there */
    {256, X, 1300, ODD | TAIL, "0.19.0", NULL, A},
    {256, X, 1256, META | TAIL, NULL, NULL, A},
    {256, X, 1255, ODD | TAIL, NULL, NULL, TRUNCATED},
    /* rule 4 with its tie-breakers, in their order */
    {U, X, 1200, META | JUNK, "0.21.0", "burn-onnx", L},
    {U, X, 1200, META | ODD | MODERN, "0.22.0", NULL, L},
    {U, X, 1200, JUNK, NULL, NULL, L},
    {U, X, 1200, ODD, NULL, NULL, L},
    {U, X, 1200, META | MODERN, "0.19.0", "burn-import", L},
    {U, X, 1200, META, "0.19.1", NULL, L},
    {U, X, 1200, META, "0.19.0-pre.2", NULL, L},
    {U, X, 1200, META, "0.20.0-pre.1", NULL, L},
    {U, X, 1200, META, "0.20.0-pre.3", NULL, L},
    {U, X, 1200, META, "0.20.0-pre.4", NULL, L},
    {U, X, 1200, META, "0.20.0-pre.5", NULL, TRUNCATED},
    {U, X, 1200, META, "0.20.0-pre.6", NULL, TRUNCATED},
    {U, X, 1200, META, "0.20.0-pre.10", NULL, TRUNCATED},
    {U, X, 1200, META, "0.20.0", NULL, TRUNCATED},
    {U, X, 1200, META, "0.20.1", NULL, TRUNCATED},
    {U, X, 1200, META, "0.21.0-pre.1", NULL, TRUNCATED},
    {U, X, 1200, META, "0.22.0-pre.2", NULL, TRUNCATED},
    {U, X, 1200, META, "1.0.0", NULL, TRUNCATED},
    {U, X, 1200, META, "1.19.0", NULL, TRUNCATED},
    {U, X, 1200, 0, NULL, NULL, TRUNCATED}, /* no metadata map: only newer writers */
    {U, X, 1200, META | MODERN, NULL, NULL, TRUNCATED},
    {U, X, 1200, META | TAIL, NULL, NULL, EITHER},
    {U, X, 1200, META, NULL, "burn-import", TRUNCATED},
    {U, X, 1200, META, NULL, "burn-onnx", TRUNCATED},
    {U, X, 1200, META, NULL, "burn", EITHER},
    {U, X, 1200, META, NULL, "burn-onnx2", EITHER},
    {U, X, 1200, META, NULL, NULL, EITHER},
    {U, X, 1200, META, "", NULL, EITHER},
    {U, X, 1200, META, "0.18.0", NULL, EITHER},
    {U, X, 1200, META, "0.20", NULL, EITHER},
    {U, X, 1200, META, "v0.19.0", NULL, EITHER},
    {U, X, 1200, META, "best of all", NULL, EITHER},
    {U, X, 1200, META, "0.19.0-a-very-long-version-of-more-than-32-bytes", NULL, EITHER},
    {U, X, 1200, META | MODERN, "nonsense", NULL, TRUNCATED},
    /* rule 5: between the two ends */
    {U, X, 1201, META, "0.21.0", NULL, EITHER},
    {U, X, 1255, META, "0.19.0", NULL, EITHER},
    {U, X, 1230, JUNK | ODD, NULL, NULL, EITHER},
    /* rule 6: the end of an aligned pack */
    {U, X, 1256, META, "0.19.0", NULL, A}, /* the length comes before the evidence */
    {U, X, 1256, 0, NULL, NULL, A},
    {U, X, 1256, ODD, NULL, NULL, A}, /* third-party writers; Burn reads these as aligned */
    {U, X, 1256, JUNK, NULL, NULL, A},
    {U, X, 1256, JUNK | ODD, NULL, NULL, L},
    /* rule 7: past it */
    {U, X, 1257, 0, NULL, NULL, A},
    {U, X, 999999, META, "0.19.0", NULL, A},
    {U, X, 999999, ODD, NULL, NULL, A},
    {U, X, 999999, JUNK, NULL, NULL, A},
    {U, X, 999999, ODD | JUNK, NULL, NULL, L},
    /* one byte of padding, and all but one */
    {255, X, 1255, META, NULL, NULL, EITHER},
    {255, X, 1256, META, NULL, NULL, A},
    {257, X, 1257, META, "0.19.0", NULL, L},
    {257, X, 1511, META, NULL, NULL, EITHER},
    {257, X, 1512, META, NULL, NULL, A},
};

START_TEST(told_apart) {
    struct bpk_layout_facts facts = {
        .unaligned_start = rows[_i].start,
        .data_size = rows[_i].data,
        .file_size = rows[_i].file,
        .starts_aligned = !(rows[_i].flags & ODD),
        .padding_is_zero = !(rows[_i].flags & JUNK),
        .has_metadata = rows[_i].flags & META,
        .is_modern = rows[_i].flags & MODERN,
        .has_zero_tail = rows[_i].flags & TAIL,
    };
    if (rows[_i].version)
        facts.version = str(rows[_i].version);
    if (rows[_i].producer)
        facts.producer = str(rows[_i].producer);
    enum bpk_layout layout = (enum bpk_layout)77;
    struct bpk_diag diag = {0};
    int r = bpk_layout_detect(&facts, &layout, &diag);
    if (rows[_i].expected < TRUNCATED) {
        ck_assert_msg(r == 0, "%s", diag.sentence);
        ck_assert_int_eq(layout, rows[_i].expected);
        return;
    }
    ck_assert_int_eq(r, -EBADMSG);
    ck_assert_int_eq(layout, 77);
    ck_assert_int_eq(diag.code, -EBADMSG);
    ck_assert_uint_eq(diag.offset, rows[_i].file);
    /* where it could be either, the option that overrules is named; where it is neither, not */
    bool names_option = strstr(diag.sentence, "-o layout=legacy") != NULL;
    if (rows[_i].expected == EITHER)
        ck_assert_msg(names_option, "%s", diag.sentence);
    else if (rows[_i].file < rows[_i].start + rows[_i].data)
        ck_assert_msg(!names_option, "%s", diag.sentence);
    ck_assert(strstr(diag.sentence, "truncated"));
    ck_assert_int_eq(bpk_layout_detect(&facts, &layout, NULL), -EBADMSG);
}

/* A version that ends where the string does, not at a NUL. */
START_TEST(a_version_is_no_c_string) {
    struct bpk_layout_facts facts = {.unaligned_start = U,
                                     .data_size = X,
                                     .file_size = U + X,
                                     .starts_aligned = true,
                                     .padding_is_zero = true,
                                     .has_metadata = true,
                                     .version = {"0.20.0-pre.45", 12}};
    enum bpk_layout layout;
    ck_assert_int_eq(bpk_layout_detect(&facts, &layout, NULL), 0);
    ck_assert_int_eq(layout, BPK_LAYOUT_LEGACY);
    facts.version.len = 13;
    ck_assert_int_eq(bpk_layout_detect(&facts, &layout, NULL), -EBADMSG);
}

START_TEST(refusal_of_rule_4_names_the_option) {
    struct bpk_layout_facts facts = {.unaligned_start = 200,
                                     .data_size = 1000,
                                     .file_size = 1200,
                                     .starts_aligned = true,
                                     .padding_is_zero = true,
                                     .has_metadata = true,
                                     .version = {"0.21.0", 6}};
    enum bpk_layout layout;
    struct bpk_diag diag;
    ck_assert_int_eq(bpk_layout_detect(&facts, &layout, &diag), -EBADMSG);
    ck_assert_msg(strstr(diag.sentence, "-o layout="), "%s", diag.sentence);
}

int main(void) {
    Suite *suite = suite_create("layout");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, starts);
    tcase_add_loop_test(tc, told_apart, 0, ROWS(rows));
    tcase_add_test(tc, a_version_is_no_c_string);
    tcase_add_test(tc, refusal_of_rule_4_names_the_option);
    return suite_run(suite);
}
