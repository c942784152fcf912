/* diag: what is filled in, what is returned, what does not fit. */
#include "pack/diag.h"

#include "suite.h"

#include <errno.h>
#include <string.h>

START_TEST(fills_and_returns_the_code) {
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_diag_set(&diag, -EBADMSG, 17, "%s %d", "byte", 5), -EBADMSG);
    ck_assert_int_eq(diag.code, -EBADMSG);
    ck_assert_uint_eq(diag.offset, 17);
    ck_assert_str_eq(diag.sentence, "byte 5");
}

START_TEST(null_is_fine) {
    ck_assert_int_eq(bpk_diag_set(NULL, -EIO, BPK_NO_OFFSET, "%d", 1), -EIO);
}

START_TEST(a_long_sentence_is_cut_and_terminated) {
    struct bpk_diag diag;
    char text[2 * sizeof(diag.sentence)];
    memset(&diag, 0x55, sizeof(diag));
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    bpk_diag_set(&diag, -ENOMEM, BPK_NO_OFFSET, "%s", text);
    ck_assert_uint_eq(strlen(diag.sentence), sizeof(diag.sentence) - 1);
    ck_assert_uint_eq(diag.offset, BPK_NO_OFFSET);
}

int main(void) {
    Suite *suite = suite_create("diag");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, fills_and_returns_the_code);
    tcase_add_test(tc, null_is_fine);
    tcase_add_test(tc, a_long_sentence_is_cut_and_terminated);
    return suite_run(suite);
}
