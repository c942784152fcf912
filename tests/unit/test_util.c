/* util: checked sums and products, stealing, clean-up attributes, growing arrays. */
#include "pack/util.h"

#include "suite.h"

#include <errno.h>
#include <fcntl.h>

static const struct {
    uint64_t a, b;
    bool add_fits, mul_fits;
} pairs[] = {
    {0, 0, true, true},
    {UINT64_MAX, 0, true, true},
    {UINT64_MAX, 1, false, true},
    {UINT64_MAX - 1, 1, true, true},
    {UINT64_MAX, UINT64_MAX, false, false},
    {UINT64_C(1) << 32, UINT64_C(1) << 32, true, false},
    {UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, true, true},
};

START_TEST(checked_arithmetic) {
    uint64_t sum = 42;
    uint64_t product = 42;
    uint64_t a = pairs[_i].a;
    uint64_t b = pairs[_i].b;
    ck_assert_int_eq(bpk_add_u64(a, b, &sum), pairs[_i].add_fits);
    ck_assert_uint_eq(sum, pairs[_i].add_fits ? a + b : 42);
    ck_assert_int_eq(bpk_mul_u64(a, b, &product), pairs[_i].mul_fits);
    ck_assert_uint_eq(product, pairs[_i].mul_fits ? a * b : 42);
}

START_TEST(grows_by_at_most_a_half) {
    _cleanup_free_ uint32_t *items = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        size_t before = capacity;
        HOLDS(bpk_grow((void **)&items, &capacity, i, sizeof(items[0])) == 0);
        HOLDS(capacity > i);
        if (capacity != before)
            HOLDS(capacity <= before + before / 2 + 16);
        items[i] = i;
    }
    for (uint32_t i = 0; i < 10000; i++)
        HOLDS(items[i] == i);
}

START_TEST(growing_past_memory_changes_nothing) {
    void *items = NULL;
    size_t capacity = 0;
    ck_assert_int_eq(bpk_grow(&items, &capacity, 0, SIZE_MAX / 8), -ENOMEM);
    ck_assert_ptr_null(items);
    ck_assert_uint_eq(capacity, 0);
}

START_TEST(stealing_leaves_nothing) {
    int value = 1;
    int *p = &value;
    int *stolen = bpk_steal_ptr(p);
    ck_assert_ptr_eq(stolen, &value);
    ck_assert_ptr_null(p);
    int fd = 7;
    ck_assert_int_eq(bpk_steal_fd(&fd), 7);
    ck_assert_int_eq(fd, -1);
}

START_TEST(descriptors_close_at_the_end_of_scope) {
    int number;
    {
        _cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int none = -1;
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(none, -1);
        number = fd;
    }
    ck_assert_int_eq(fcntl(number, F_GETFD), -1);
    ck_assert_int_eq(errno, EBADF);
}

int main(void) {
    Suite *suite = suite_create("util");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, checked_arithmetic, 0, ROWS(pairs));
    tcase_add_test(tc, grows_by_at_most_a_half);
    tcase_add_test(tc, growing_past_memory_changes_nothing);
    tcase_add_test(tc, stealing_leaves_nothing);
    tcase_add_test(tc, descriptors_close_at_the_end_of_scope);
    return suite_run(suite);
}
