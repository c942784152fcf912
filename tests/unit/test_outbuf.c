/* outbuf: growing, counting, numbers, and that a failure stays. */
#include "pack/outbuf.h"

#include "suite.h"

#include <string.h>

START_TEST(pieces_follow_each_other) {
    _cleanup_outbuf_ struct bpk_outbuf out = {0};
    bpk_out(&out, "a\0b", 3);
    bpk_out_str(&out, "");
    bpk_out_str(&out, "cd");
    bpk_out(&out, NULL, 0);
    ck_assert_uint_eq(out.len, 5);
    ck_assert_mem_eq(out.text, "a\0bcd", 5);
    ck_assert(!out.failed);
}

START_TEST(numbers) {
    static const struct {
        uint64_t number;
        const char *text;
    } rows[] = {{0, "0"},
                {9, "9"},
                {10, "10"},
                {1234567890, "1234567890"},
                {UINT64_MAX, "18446744073709551615"}};
    for (int i = 0; i < ROWS(rows); i++) {
        _cleanup_outbuf_ struct bpk_outbuf out = {0};
        bpk_out_u64(&out, rows[i].number);
        ck_assert_uint_eq(out.len, strlen(rows[i].text));
        ck_assert_mem_eq(out.text, rows[i].text, out.len);
    }
}

START_TEST(counting_takes_no_memory) {
    struct bpk_outbuf out = {.counting = true};
    for (int i = 0; i < 1000; i++)
        bpk_out_u64(&out, 12345);
    ck_assert_uint_eq(out.len, 5000);
    ck_assert_ptr_null(out.text);
}

START_TEST(growing_keeps_what_is_there) {
    _cleanup_outbuf_ struct bpk_outbuf out = {0};
    static char big[100000];
    memset(big, 'x', sizeof(big));
    for (unsigned i = 0; i < 50000; i++)
        bpk_out(&out, (const char *)&i, sizeof(i));
    bpk_out(&out, big, sizeof(big));
    HOLDS(out.len == 50000 * sizeof(unsigned) + sizeof(big));
    for (unsigned i = 0; i < 50000; i++) {
        unsigned found;
        memcpy(&found, out.text + i * sizeof(i), sizeof(i));
        HOLDS(found == i);
    }
    HOLDS(out.text[out.len - 1] == 'x');
}

START_TEST(a_failure_stays) {
    struct bpk_outbuf out = {.failed = true};
    bpk_out_str(&out, "x");
    ck_assert_uint_eq(out.len, 0);
    ck_assert_ptr_null(out.text);
    ck_assert(out.failed);
    bpk_outbuf_clear(&out);
    ck_assert(!out.failed);
}

int main(void) {
    Suite *suite = suite_create("outbuf");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, pieces_follow_each_other);
    tcase_add_test(tc, numbers);
    tcase_add_test(tc, counting_takes_no_memory);
    tcase_add_test(tc, growing_keeps_what_is_there);
    tcase_add_test(tc, a_failure_stays);
    return suite_run(suite);
}
