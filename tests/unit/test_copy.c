/* copy: ranges between files, holes left out, and a source that was cut. */
#include "pack/copy.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_temp(const void *data, size_t len) {
    char path[TEMP_PATH];
    temp_write(data, len, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unlink(path);
    ck_assert_int_ge(fd, 0);
    return fd;
}

enum { SIZE = 3 << 20 };

static uint8_t *pattern(void) {
    uint8_t *bytes = malloc(SIZE);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = pattern_byte(i);
    return bytes;
}

static const struct {
    uint64_t from, to, size;
} ranges[] = {
    {0, 0, 0},         {0, 0, 1},          {0, 0, SIZE},         {1, 0, SIZE - 1},
    {4095, 5, 2},      {4096, 4096, 4096}, {4097, 8193, 100000}, {100, 4196, 1 << 20},
    {SIZE - 1, 17, 1}, {SIZE, 0, 0},       {0, 123456, SIZE},    {5000, 5000, (2 << 20) + 1},
};

/* With and without being told that blocks can be shared: where they cannot, bytes are copied. */
START_TEST(ranges_arrive) {
    uint8_t *bytes = pattern();
    int from = open_temp(bytes, SIZE);
    for (int clone = 0; clone < 2; clone++) {
        int to = open_temp("", 0);
        struct bpk_copier copier = {.to = to, .clone = clone};
        uint64_t end = ranges[_i].to + ranges[_i].size;
        ck_assert_int_eq(ftruncate(to, (off_t)end + 10), 0);
        ck_assert_int_eq(
            bpk_copier_range(&copier, from, ranges[_i].from, ranges[_i].to, ranges[_i].size), 0);
        ck_assert_uint_eq(copier.copied + copier.cloned, ranges[_i].size);
        uint8_t *got = calloc(1, end + 20);
        ck_assert_int_eq(pread(to, got, end + 20, 0), (ssize_t)end + 10);
        for (uint64_t i = 0; i < ranges[_i].to; i++)
            HOLDS(got[i] == 0);
        HOLDS(memcmp(got + ranges[_i].to, bytes + ranges[_i].from, ranges[_i].size) == 0);
        for (uint64_t i = end; i < end + 10; i++)
            HOLDS(got[i] == 0);
        free(got);
        bpk_copier_clear(&copier);
        ck_assert_ptr_null(copier.buffer);
        close(to);
    }
    close(from);
    free(bytes);
}

/* A hole is neither read nor written, whatever its size. */
START_TEST(holes_are_left_out) {
    static const uint64_t hole = UINT64_C(1) << 36;
    int from = open_temp("begin", 5);
    int to = open_temp("", 0);
    struct bpk_copier copier = {.to = to};
    struct stat attr;
    char got[10] = "";
    if (ftruncate(from, (off_t)hole + 100) < 0 || ftruncate(to, (off_t)hole + 100) < 0)
        return; /* no such large files here */
    ck_assert_int_eq(pwrite(from, "middle", 6, (off_t)hole / 2), 6);
    ck_assert_int_eq(bpk_copier_range(&copier, from, 0, 0, hole + 100), 0);
    ck_assert_uint_lt(copier.copied, 64 << 20);
    ck_assert_int_eq(fstat(to, &attr), 0);
    ck_assert_int_eq(attr.st_size, (off_t)hole + 100);
    ck_assert_int_lt(attr.st_blocks, (64 << 20) / 512);
    ck_assert_int_eq(pread(to, got, 6, (off_t)hole / 2), 6);
    ck_assert_str_eq(got, "middle");
    bpk_copier_clear(&copier);
    close(from);
    close(to);
}

/* Little data between many holes: none of the holes is filled, in one range or in many, and ranges
 * that begin before, in and after data bring what is there. */
START_TEST(holes_between_data_stay) {
    enum { EVERY = 256 << 10, COUNT = 64, DATA = 5000 };
    static const uint64_t steps[] = {EVERY * COUNT, EVERY / 2, 99991};
    int from = open_temp("", 0);
    uint8_t *bytes = calloc(COUNT, EVERY);
    uint8_t *got = malloc(EVERY * COUNT);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq(ftruncate(from, EVERY * COUNT), 0);
    for (uint64_t at = 0; at < EVERY * COUNT; at += EVERY) {
        for (uint64_t i = 0; i < DATA; i++)
            bytes[at + i] = pattern_byte(at + i);
        ck_assert_int_eq(pwrite(from, bytes + at, DATA, (off_t)at), DATA);
    }
    struct stat source;
    ck_assert_int_eq(fstat(from, &source), 0);
    if (source.st_blocks * 512 >= EVERY * COUNT / 2)
        return; /* no holes here */
    for (int i = 0; i < ROWS(steps); i++) {
        int to = open_temp("", 0);
        struct bpk_copier copier = {.to = to};
        struct stat attr;
        ck_assert_int_eq(ftruncate(to, EVERY * COUNT), 0);
        for (uint64_t at = 0; at < EVERY * COUNT; at += steps[i]) {
            uint64_t size = EVERY * COUNT - at < steps[i] ? EVERY * COUNT - at : steps[i];
            ck_assert_int_eq(bpk_copier_range(&copier, from, at, at, size), 0);
        }
        ck_assert_uint_le(copier.copied, (uint64_t)source.st_blocks * 512);
        ck_assert_int_eq(fstat(to, &attr), 0);
        ck_assert_int_le(attr.st_blocks, source.st_blocks + 64);
        ck_assert_int_eq(pread(to, got, EVERY * COUNT, 0), EVERY * COUNT);
        HOLDS(memcmp(got, bytes, EVERY * COUNT) == 0);
        bpk_copier_clear(&copier);
        close(to);
    }
    free(bytes);
    free(got);
    close(from);
}

/* Large ranges may go past the page cache, by whole blocks; what is around them must not suffer. */
START_TEST(large_ranges_arrive) {
    enum { LARGE = (64 << 20) + 12345, STEP = 4099 };
    int from = open_temp("", 0);
    uint8_t *bytes = malloc(LARGE);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 12));
    ck_assert_int_eq(write(from, bytes, LARGE), LARGE);
    int to = open_temp("before", 6);
    struct bpk_copier copier = {.to = to};
    ck_assert_int_eq(ftruncate(to, LARGE + 100), 0);
    ck_assert_int_eq(bpk_copier_range(&copier, from, 1, 77, LARGE - 1), 0);
    ck_assert_int_eq(bpk_copier_write(&copier, LARGE + 80, "after", 5), 0);
    ck_assert_uint_eq(copier.copied, LARGE - 1 + 5);
    bpk_copier_clear(&copier);
    uint8_t got[STEP];
    for (size_t at = 1; at < LARGE; at += STEP) {
        size_t size = LARGE - at < STEP ? LARGE - at : STEP;
        HOLDS(pread(to, got, size, (off_t)at - 1 + 77) == (ssize_t)size);
        HOLDS(memcmp(got, bytes + at, size) == 0);
    }
    HOLDS(pread(to, got, 77, 0) == 77 && memcmp(got, "before\0", 7) == 0 && got[76] == 0);
    HOLDS(pread(to, got, 30, LARGE + 76) == 24 && memcmp(got, "\0\0\0\0after\0", 10) == 0);
    free(bytes);
    close(from);
    close(to);
}

START_TEST(a_source_that_was_cut_is_stale) {
    static const struct {
        uint64_t length, from, size;
    } rows[] = {{100, 0, 101},
                {100, 100, 1},
                {100, 500, 1},
                {0, 0, 1},
                {4096, 0, 8192},
                {5000, 4096, 4096},
                {2 << 20, 0, (2 << 20) + 1}};
    uint8_t *bytes = pattern();
    for (int i = 0; i < ROWS(rows); i++) {
        for (int sparse = 0; sparse < 2; sparse++) {
            int from = open_temp(bytes, sparse ? 0 : rows[i].length);
            ck_assert_int_eq(ftruncate(from, (off_t)rows[i].length), 0);
            int to = open_temp("", 0);
            for (int clone = 0; clone < 2; clone++) {
                struct bpk_copier copier = {.to = to, .clone = clone};
                ck_assert_int_eq(bpk_copier_range(&copier, from, rows[i].from, 0, rows[i].size),
                                 -ESTALE);
                bpk_copier_clear(&copier);
            }
            close(from);
            close(to);
        }
    }
    free(bytes);
}

START_TEST(errors_are_passed_on) {
    int from = open_temp("0123456789", 10);
    struct bpk_copier copier = {.to = -1};
    ck_assert_int_eq(bpk_copier_range(&copier, from, 0, 0, 5), -EBADF);
    ck_assert_int_eq(bpk_copier_write(&copier, 0, "x", 1), -EBADF);
    ck_assert_uint_eq(copier.copied, 0);
    bpk_copier_clear(&copier);
    int to = open_temp("", 0);
    copier = (struct bpk_copier){.to = to};
    ck_assert_int_eq(bpk_copier_range(&copier, -1, 0, 0, 5), -EBADF);
    bpk_copier_clear(&copier);
    close(from);
    close(to);
}

START_TEST(writes_from_memory_are_counted) {
    int to = open_temp("", 0);
    struct bpk_copier copier = {.to = to};
    char *bytes = calloc(1, 1 << 20);
    for (uint64_t i = 0; i < 20; i++)
        ck_assert_int_eq(bpk_copier_write(&copier, i << 20, bytes, 1 << 20), 0);
    ck_assert_uint_eq(copier.copied, 20 << 20);
    ck_assert_int_eq(lseek(to, 0, SEEK_END), 20 << 20);
    bpk_copier_clear(&copier);
    free(bytes);
    close(to);
}

/* Trying leaves the target empty, whatever the answer is. */
START_TEST(trying_to_clone_leaves_nothing) {
    uint8_t *bytes = pattern();
    int from = open_temp(bytes, 8192);
    int to = open_temp("", 0);
    (void)bpk_copy_can_clone(from, to);
    ck_assert_int_eq(lseek(to, 0, SEEK_END), 0);
    int pipe_ends[2];
    ck_assert_int_eq(pipe(pipe_ends), 0);
    ck_assert(!bpk_copy_can_clone(pipe_ends[0], to));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    close(from);
    close(to);
    free(bytes);
}

int main(void) {
    Suite *suite = suite_create("copy");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, ranges_arrive, 0, ROWS(ranges));
    tcase_add_test(tc, holes_are_left_out);
    tcase_add_test(tc, holes_between_data_stay);
    tcase_add_test(tc, large_ranges_arrive);
    tcase_add_test(tc, a_source_that_was_cut_is_stale);
    tcase_add_test(tc, errors_are_passed_on);
    tcase_add_test(tc, writes_from_memory_are_counted);
    tcase_add_test(tc, trying_to_clone_leaves_nothing);
    return suite_run(suite);
}
