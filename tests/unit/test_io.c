/* io: whole ranges, short ones at the end of the file, holes, the first byte that is not zero. */
#include "pack/io.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* An open file of `len` bytes, with no name left. */
static int open_temp(const void *data, size_t len) {
    char path[TEMP_PATH];
    temp_write(data, len, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unlink(path);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static const struct {
    uint64_t offset;
    size_t size, read;
} reads[] = {{0, 10, 10}, {0, 4, 4},  {4, 6, 6}, {4, 99, 6}, {9, 1, 1},
             {10, 5, 0},  {99, 5, 0}, {0, 0, 0}, {5, 0, 0}};

START_TEST(ranges_are_read) {
    int fd = open_temp("0123456789", 10);
    char buffer[100];
    size_t n = 77;
    memset(buffer, '-', sizeof(buffer));
    ck_assert_int_eq(bpk_io_pread(fd, reads[_i].offset, buffer, reads[_i].size, &n), 0);
    ck_assert_uint_eq(n, reads[_i].read);
    ck_assert_int_eq(memcmp(buffer, &"0123456789"[n ? reads[_i].offset : 0], n), 0);
    ck_assert_int_eq(buffer[n], '-');
    close(fd);
}

START_TEST(errors_are_passed_on) {
    char buffer[4];
    size_t n = 77;
    uint64_t at = 77;
    ck_assert_int_eq(bpk_io_pread(-1, 0, buffer, 4, &n), -EBADF);
    ck_assert_uint_eq(n, 77);
    ck_assert_int_eq(bpk_io_find_nonzero(-1, 0, 4, &at), -EBADF);
    ck_assert_uint_eq(at, 77);
}

enum { SIZE = 200000 };

START_TEST(first_byte_that_is_not_zero) {
    static const struct {
        uint64_t at, start, end;
        int expected;
    } rows[] = {
        {50, 0, SIZE, 1},
        {50, 50, SIZE, 1},
        {50, 51, SIZE, 0},
        {50, 0, 50, 0},
        {50, 0, 51, 1},
        {16383, 0, SIZE, 1},
        {16384, 0, SIZE, 1},
        {100000, 1, 100000, 0},
        {100000, 1, 100001, 1},
        {SIZE - 1, 0, SIZE, 1},
        {SIZE - 1, 0, 10 * SIZE, 1},
        {SIZE - 1, 0, SIZE - 1, 0},
        {0, 0, 1, 1},
        {0, 1, 10 * SIZE, 0},
        {7, 5, 5, 0},
        {7, SIZE, SIZE + 5, 0},
        {7, 5 * SIZE, 6 * SIZE, 0},
    };
    for (int i = 0; i < ROWS(rows); i++) {
        for (int sparse = 0; sparse < 2; sparse++) {
            char *zeros = calloc(SIZE, 1);
            ck_assert_ptr_nonnull(zeros);
            int fd = open_temp(zeros, sparse ? 0 : SIZE);
            free(zeros);
            ck_assert_int_eq(ftruncate(fd, SIZE), 0);
            ck_assert_int_eq(pwrite(fd, "x", 1, (off_t)rows[i].at), 1);
            uint64_t found = 77;
            ck_assert_int_eq(bpk_io_find_nonzero(fd, rows[i].start, rows[i].end, &found),
                             rows[i].expected);
            ck_assert_uint_eq(found, rows[i].expected ? rows[i].at : 77);
            close(fd);
        }
    }
}

/* A hole of a terabyte costs nothing. */
START_TEST(holes_are_not_read) {
    int fd = open_temp("", 0);
    uint64_t found;
    const uint64_t end = UINT64_C(1) << 40;
    if (ftruncate(fd, (off_t)end + 1) == 0) {
        ck_assert_int_eq(bpk_io_find_nonzero(fd, 0, end, &found), 0);
        ck_assert_int_eq(pwrite(fd, "x", 1, (off_t)end), 1);
        ck_assert_int_eq(bpk_io_find_nonzero(fd, 0, end, &found), 0);
        ck_assert_int_eq(bpk_io_find_nonzero(fd, 0, end + 1, &found), 1);
        ck_assert_uint_eq(found, end);
    }
    close(fd);
}

int main(void) {
    Suite *suite = suite_create("io");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, ranges_are_read, 0, ROWS(reads));
    tcase_add_test(tc, errors_are_passed_on);
    tcase_add_test(tc, first_byte_that_is_not_zero);
    tcase_add_test(tc, holes_are_not_read);
    return suite_run(suite);
}
