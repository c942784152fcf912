/* writer: runs of files and zeros become a pack, neighbours in one go, and what was written wrong
 * is found. */
#include "pack/writer.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A file to write to. */
static int open_target(char path[TEMP_PATH]) {
    temp_write("", 0, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void write_all(struct bpk_plan *plan, int fd, struct bpk_written *ret_written) {
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_plan_place(plan, false, &diag), 0);
    int r = bpk_writer_write(plan, fd, false, NULL, ret_written, &diag);
    ck_assert_msg(r == 0, "not written: %s", diag.sentence);
}

static int verify(const struct bpk_plan *plan, const char *path, struct bpk_diag *diag) {
    *diag = (struct bpk_diag){0};
    return bpk_writer_verify(plan, path, diag);
}

/* ---- unedited -------------------------------------------------------------------------------- */

START_TEST(an_unedited_pack_is_written_as_it_was) {
    struct packspec spec;
    struct bytes file;
    char path[TEMP_PATH];
    struct bpk_written written;
    struct bpk_diag diag;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 70000);
    spec_u8(&spec, "b", 0);
    spec_u8(&spec, "c", 1);
    spec_metadata(&spec, "producer", "burn");
    spec_file(&spec, &file);
    struct bpk_pack *base = spec_open(&spec);
    struct bpk_plan plan;
    ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
    int fd = open_target(path);
    write_all(&plan, fd, &written);
    char *got = malloc(file.len + 1);
    ck_assert_int_eq(pread(fd, got, file.len + 1, 0), (ssize_t)file.len);
    ck_assert_int_eq(memcmp(got, file.data, file.len), 0);
    ck_assert_uint_eq(written.copied + written.cloned, file.len);
    ck_assert_int_eq(verify(&plan, path, &diag), 0);
    free(got);
    close(fd);
    unlink(path);
    bpk_plan_clear(&plan);
    bpk_pack_unref(base);
    bytes_clear(&file);
    spec_clear(&spec);
}

/* Where data that starts off a multiple of 256 is kept and moves by whole blocks only, the header
 * ends on a multiple of 256, as in one of 256 packs of the old layout. */
START_TEST(kept_data_is_not_taken_for_the_old_layout) {
    struct packspec spec;
    static char value[BPK_CLONE_BLOCK + 2 * BPK_ALIGNMENT];
    memset(value, 'v', sizeof(value));
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    bytes_fill(&spec.data, 1, 100);
    spec_tensor_at(&spec, str("a"), "625538", &(uint64_t){50}, 1, 50, 100, NULL);
    struct bpk_pack *base = spec_open(&spec);
    unsigned padded = 0;
    for (size_t len = 0; len < sizeof(value); len += 37) {
        char path[TEMP_PATH];
        struct bpk_plan plan;
        struct bpk_diag diag = {0};
        ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
        plan.metadata[plan.metadata_count++] = (struct bpk_plan_entry){str("k"), {value, len}};
        int fd = open_target(path);
        ck_assert_int_eq(bpk_plan_place(&plan, true, &diag), 0);
        HOLDS(plan.keeps_data);
        ck_assert_int_eq(bpk_writer_write(&plan, fd, true, NULL, NULL, &diag), 0);
        struct bpk_pack *written;
        ck_assert_int_eq(bpk_pack_open(path, NULL, &written, &diag), 0);
        if (plan.cbor_size < written->header.metadata_size)
            padded++;
        if (plan.cbor_size < written->header.metadata_size ||
            (BPK_HEADER_SIZE + plan.cbor_size) % BPK_ALIGNMENT != 0)
            ck_assert_int_eq(written->layout, BPK_LAYOUT_ALIGNED);
        bpk_pack_unref(written);
        close(fd);
        unlink(path);
        bpk_plan_clear(&plan);
    }
    HOLDS(padded > 0);
    bpk_pack_unref(base);
    spec_clear(&spec);
}

/* Counts what is reported; of the third number on it ends the work with the second. */
static int count(void *context, uint64_t done, uint64_t total) {
    uint64_t *last = context;
    ck_assert_uint_ge(done, last[0]);
    ck_assert_uint_le(done, total);
    last[0] = done;
    last[1]++;
    return last[1] == last[2] ? -EINTR : 0;
}

START_TEST(progress_is_told) {
    struct packspec spec;
    char path[TEMP_PATH];
    struct bpk_diag diag = {0};
    uint64_t last[3] = {0};
    const struct bpk_progress progress = {count, last};
    spec_init(&spec, BPK_LAYOUT_LEGACY);
    spec_u8(&spec, "a", 3000);
    spec_u8(&spec, "b", 9 << 20);
    struct bpk_pack *base = spec_open(&spec);
    struct bpk_plan plan;
    ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
    ck_assert_int_eq(bpk_plan_place(&plan, false, &diag), 0);
    int fd = open_target(path);
    ck_assert_int_eq(bpk_writer_write(&plan, fd, false, &progress, NULL, &diag), 0);
    ck_assert_uint_eq(last[0], bpk_plan_file_size(&plan));
    ck_assert_uint_ge(last[1], 3);
    ck_assert_int_eq(verify(&plan, path, &diag), 0);
    memcpy(last, (const uint64_t[]){0, 0, 2}, sizeof(last));
    ck_assert_int_eq(bpk_writer_write(&plan, fd, false, &progress, NULL, &diag), -EINTR);
    ck_assert_uint_eq(last[1], 2);
    close(fd);
    unlink(path);
    bpk_plan_clear(&plan);
    bpk_pack_unref(base);
    spec_clear(&spec);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A tensor made of runs, each where the one before ends. */
struct runs {
    const struct bpk_run *runs;
    size_t count;
    int error; /* after the last run */
};

static int next_run(void *context, uint64_t offset, struct bpk_run *ret_run) {
    const struct runs *runs = context;
    uint64_t at = 0;
    for (size_t i = 0; i < runs->count; i++) {
        struct bpk_run run = runs->runs[i];
        if (offset < at + run.size) {
            run.offset += offset - at;
            run.size -= offset - at;
            *ret_run = run;
            return 0;
        }
        at += run.size;
    }
    return runs->error ? runs->error : -EIO;
}

static struct bpk_plan_tensor of_runs(const char *name, struct runs *runs, uint64_t size) {
    return (struct bpk_plan_tensor){
        .name = str(name),
        .dtype_cbor = {"\x62U8", 3},
        .size = size,
        .next_run = next_run,
        .context = runs,
    };
}

enum { SOURCE = 20000 };

/* A source whose every byte is known. */
static int open_source(void) {
    char path[TEMP_PATH];
    uint8_t bytes[SOURCE];
    for (size_t i = 0; i < SOURCE; i++)
        bytes[i] = pattern_byte(i);
    temp_write(bytes, SOURCE, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unlink(path);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Writes a plan of these tensors and reads the data section back. */
static void write_tensors(struct bpk_plan_tensor *tensors, size_t count, struct bytes *ret_data) {
    struct bpk_plan plan = {.tensors = tensors, .tensor_count = count};
    struct bpk_diag diag;
    char path[TEMP_PATH];
    int fd = open_target(path);
    write_all(&plan, fd, NULL);
    ck_assert_int_eq(verify(&plan, path, &diag), 0);
    struct bytes data = {0};
    bytes_fill(&data, 0xaa, plan.data_size + 1);
    ck_assert_int_eq(pread(fd, data.data, data.len, (off_t)plan.data_start),
                     (ssize_t)plan.data_size);
    data.len--;
    *ret_data = data;
    close(fd);
    unlink(path);
    bpk_outbuf_clear(&plan.head);
}

/* The data is the source's bytes from `from`, or zeros where that is -1. */
static void check_piece(const struct bytes *data, size_t at, long from, size_t size) {
    for (size_t i = 0; i < size; i++) {
        uint8_t expected = from < 0 ? 0 : pattern_byte((size_t)from + i);
        if (data->data[at + i] != expected)
            ck_abort_msg("byte %zu is %02x, not %02x", at + i, data->data[at + i], expected);
    }
}

START_TEST(runs_and_zeros_become_a_tensor) {
    int fd = open_source();
    const struct bpk_run pieces[] = {
        {fd, 100, 50}, {-1, 0, 4096}, {fd, 9000, 3000}, {fd, 0, 1}, {-1, 0, 7}};
    struct runs runs = {pieces, ROWS(pieces), 0};
    struct bpk_plan_tensor tensor = of_runs("t", &runs, 50 + 4096 + 3000 + 1 + 7);
    struct bytes data;
    write_tensors(&tensor, 1, &data);
    check_piece(&data, 0, 100, 50);
    check_piece(&data, 50, -1, 4096);
    check_piece(&data, 4146, 9000, 3000);
    check_piece(&data, 7146, 0, 1);
    check_piece(&data, 7147, -1, 7);
    bytes_clear(&data);
    close(fd);
}

/* A run may go on past the tensor's end: only what belongs to it is taken. */
START_TEST(a_run_that_is_too_long_is_cut) {
    int fd = open_source();
    const struct bpk_run pieces[] = {{fd, 100, 5000}};
    struct runs runs = {pieces, 1, 0};
    struct bpk_plan_tensor tensors[] = {of_runs("a", &runs, 10), of_runs("b", &runs, 20)};
    struct bytes data;
    write_tensors(tensors, 2, &data);
    check_piece(&data, 0, 100, 10);
    check_piece(&data, 10, -1, 246);
    check_piece(&data, 256, 100, 20);
    bytes_clear(&data);
    close(fd);
}

/* What lay in the source between two pieces is not brought by joining them: a tensor that was cut
 * and made longer again reads as zeros there, and padding is zeros. */
START_TEST(a_short_hole_stays_a_hole) {
    int fd = open_source();
    const struct bpk_run cut[] = {{fd, 0, 5000}, {-1, 0, 100}};
    const struct bpk_run next[] = {{fd, 5120, 300}};
    struct runs a = {cut, 2, 0};
    struct runs b = {next, 1, 0};
    struct bpk_plan_tensor tensors[] = {of_runs("a", &a, 5100), of_runs("b", &b, 300)};
    struct bytes data;
    write_tensors(tensors, 2, &data);
    check_piece(&data, 0, 0, 5000);
    check_piece(&data, 5000, -1, 120);
    check_piece(&data, 5120, 5120, 300);
    bytes_clear(&data);
    close(fd);
}

START_TEST(the_old_end_of_a_cut_tensor_is_not_padding) {
    int fd = open_source();
    const struct bpk_run cut[] = {{fd, 0, 5000}};
    const struct bpk_run next[] = {{fd, 5120, 300}};
    struct runs a = {cut, 1, 0};
    struct runs b = {next, 1, 0};
    struct bpk_plan_tensor tensors[] = {of_runs("a", &a, 5000), of_runs("b", &b, 300)};
    struct bytes data;
    write_tensors(tensors, 2, &data);
    check_piece(&data, 0, 0, 5000);
    check_piece(&data, 5000, -1, 120);
    check_piece(&data, 5120, 5120, 300);
    bytes_clear(&data);
    close(fd);
}

/* Whatever order and place the pieces have, each byte comes from where it should. */
START_TEST(random_runs) {
    int fds[2] = {open_source(), open_source()};
    uint64_t state = (uint64_t)_i + 1;
    struct bpk_run pieces[40];
    struct runs runs[8];
    struct bpk_plan_tensor tensors[8];
    static const char *const names[8] = {"h", "g", "f", "e", "d", "c", "b", "a"};
    for (int t = 0; t < 8; t++) {
        uint64_t size = 0;
        runs[t] = (struct runs){&pieces[5 * t], suite_random(&state) % 6, 0};
        for (size_t k = 0; k < runs[t].count; k++) {
            struct bpk_run *run = &pieces[5 * t + k];
            run->size = 1 + suite_random(&state) % (suite_random(&state) % 3 ? 300 : 6000);
            run->fd = suite_random(&state) % 4 ? fds[suite_random(&state) % 8 == 0] : -1;
            run->offset = suite_random(&state) % (SOURCE - run->size);
            /* often just where the last one stopped, give or take a padding */
            if (k > 0 && run[-1].fd >= 0 && suite_random(&state) % 2) {
                run->offset = run[-1].offset + run[-1].size + suite_random(&state) % 3 * 100;
                if (run->offset + run->size > SOURCE)
                    run->offset = 0;
            }
            size += run->size;
        }
        tensors[t] = of_runs(names[t], &runs[t], size);
    }
    struct bytes data;
    write_tensors(tensors, 8, &data);
    uint64_t at = 0;
    for (int t = 0; t < 8; t++) {
        check_piece(&data, at, -1, tensors[t].start - at);
        at = tensors[t].start;
        for (size_t k = 0; k < runs[t].count; k++) {
            const struct bpk_run *run = &runs[t].runs[k];
            check_piece(&data, at, run->fd < 0 ? -1 : (long)run->offset, run->size);
            at += run->size;
        }
    }
    bytes_clear(&data);
    close(fds[0]);
    close(fds[1]);
}

/* Joined or not, neighbours cost no more than their bytes and their padding. */
START_TEST(neighbours_of_a_pack_are_one_copy) {
    struct packspec spec;
    struct bpk_written written;
    char path[TEMP_PATH];
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 300);
    spec_u8(&spec, "b", 300);
    spec_u8(&spec, "c", 300);
    spec_u8(&spec, "d", 0);
    struct bpk_pack *base = spec_open(&spec);
    struct bpk_plan plan;
    ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
    plan.tensor_count = 3;
    int fd = open_target(path);
    write_all(&plan, fd, &written);
    ck_assert(!plan.keeps_data);
    ck_assert_uint_eq(written.copied, plan.head.len + 512 + 512 + 300);
    close(fd);
    unlink(path);
    bpk_plan_clear(&plan);
    bpk_pack_unref(base);
    spec_clear(&spec);
}

/* ---- failures -------------------------------------------------------------------------------- */

START_TEST(failures_say_what_they_are) {
    int fd = open_source();
    char path[TEMP_PATH];
    struct bpk_diag diag = {0};
    const struct bpk_run beyond[] = {{fd, SOURCE - 10, 20}};
    struct runs runs = {beyond, 1, 0};
    struct bpk_plan_tensor tensor = of_runs("a", &runs, 20);
    struct bpk_plan plan = {.tensors = &tensor, .tensor_count = 1};
    ck_assert_int_eq(bpk_plan_place(&plan, false, &diag), 0);
    int target = open_target(path);
    ck_assert_int_eq(bpk_writer_write(&plan, target, false, NULL, NULL, &diag), -ESTALE);
    ck_assert_ptr_nonnull(strstr(diag.sentence, "cut"));
    runs = (struct runs){NULL, 0, -EPIPE};
    ck_assert_int_eq(bpk_writer_write(&plan, target, false, NULL, NULL, &diag), -EPIPE);
    ck_assert_int_eq(diag.code, -EPIPE);
    int readonly = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_lt(bpk_writer_write(&plan, readonly, false, NULL, NULL, &diag), 0);
    close(readonly);
    close(target);
    unlink(path);
    bpk_outbuf_clear(&plan.head);
    close(fd);
}

/* Each of these bytes is changed in the finished file. */
START_TEST(a_tampered_file_is_found) {
    int fd = open_source();
    char path[TEMP_PATH];
    struct bpk_diag diag = {0};
    const struct bpk_run pieces[] = {{fd, 0, 300}};
    struct runs runs = {pieces, 1, 0};
    struct bpk_plan_tensor tensors[] = {of_runs("first", &runs, 300), of_runs("second", &runs, 40)};
    struct bpk_plan plan = {.tensors = tensors, .tensor_count = 2};
    int target = open_target(path);
    write_all(&plan, target, NULL);
    ck_assert_int_eq(verify(&plan, path, &diag), 0);
    for (size_t at = 0; at < 10 + plan.cbor_size; at++) {
        char good = plan.head.text[at];
        char bad = (char)(good ^ 1);
        ck_assert_int_eq(pwrite(target, &bad, 1, (off_t)at), 1);
        int r = verify(&plan, path, &diag);
        /* What a descriptor means beside its range is not looked at; what is, must be as planned.
         */
        if (r == 0) {
            struct bpk_pack *pack;
            ck_assert_int_eq(bpk_pack_open(path, NULL, &pack, &diag), 0);
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t index;
                ck_assert_int_eq(bpk_pack_find_tensor(pack, tensors[i].name, &index), 0);
                ck_assert_uint_eq(pack->meta.tensors[index].start, tensors[i].start);
            }
            bpk_pack_unref(pack);
        }
        ck_assert(r == 0 || r == -EBADMSG);
        ck_assert_int_eq(pwrite(target, &good, 1, (off_t)at), 1);
    }
    ck_assert_int_eq(verify(&plan, path, &diag), 0);
    ck_assert_int_eq(ftruncate(target, (off_t)bpk_plan_file_size(&plan) - 1), 0);
    ck_assert_int_eq(verify(&plan, path, &diag), -EBADMSG);
    ck_assert_int_eq(ftruncate(target, (off_t)bpk_plan_file_size(&plan) + 1), 0);
    ck_assert_int_eq(verify(&plan, path, &diag), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(diag.sentence, "length"));
    close(target);
    unlink(path);
    ck_assert_int_eq(verify(&plan, path, &diag), -ENOENT);
    bpk_outbuf_clear(&plan.head);
    close(fd);
}

/* Bytes that were written from memory are read back and compared. */
START_TEST(tampered_data_is_found) {
    int fd = open_source();
    char path[TEMP_PATH];
    struct bpk_diag diag = {0};
    const struct bpk_run pieces[] = {{fd, 0, SOURCE}};
    struct runs runs = {pieces, 1, 0};
    struct bpk_plan_tensor tensors[] = {of_runs("only", &runs, SOURCE)};
    struct bpk_plan plan = {.tensors = tensors, .tensor_count = 1};
    int target = open_target(path);
    write_all(&plan, target, NULL);
    static const uint64_t places[] = {0, 1, SOURCE / 2, SOURCE - 1};
    for (int i = 0; i < ROWS(places); i++) {
        off_t at = (off_t)(plan.data_start + places[i]);
        char good;
        ck_assert_int_eq(pread(target, &good, 1, at), 1);
        char bad = (char)(good ^ 1);
        ck_assert_int_eq(pwrite(target, &bad, 1, at), 1);
        ck_assert_int_eq(verify(&plan, path, &diag), -EBADMSG);
        ck_assert_int_eq(pwrite(target, &good, 1, at), 1);
        ck_assert_int_eq(verify(&plan, path, &diag), 0);
    }
    close(target);
    close(fd);
    bpk_outbuf_clear(&plan.head);
}

int main(void) {
    Suite *suite = suite_create("writer");
    TCase *tc = suite_case(suite, "unedited");
    tcase_add_test(tc, an_unedited_pack_is_written_as_it_was);
    tcase_add_test(tc, kept_data_is_not_taken_for_the_old_layout);
    tcase_add_test(tc, progress_is_told);
    tc = suite_case(suite, "runs");
    tcase_add_test(tc, runs_and_zeros_become_a_tensor);
    tcase_add_test(tc, a_run_that_is_too_long_is_cut);
    tcase_add_test(tc, a_short_hole_stays_a_hole);
    tcase_add_test(tc, the_old_end_of_a_cut_tensor_is_not_padding);
    tcase_add_loop_test(tc, random_runs, 0, 50);
    tcase_add_test(tc, neighbours_of_a_pack_are_one_copy);
    tc = suite_case(suite, "failures");
    tcase_add_test(tc, failures_say_what_they_are);
    tcase_add_test(tc, a_tampered_file_is_found);
    tcase_add_test(tc, tampered_data_is_found);
    return suite_run(suite);
}
