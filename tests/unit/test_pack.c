/* pack: opening and refusing, both layouts, lazy reads at any offset, a file that changes or is
 * cut under us, salvage, forced layout, looking up (semantics.md 5, format.md 6). */
#include "bpk.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t find(const struct bpk_pack *pack, const char *name) {
    uint32_t index = UINT32_MAX;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str(name), &index), 0);
    return index;
}

/* Whether tensor `name` reads as the pattern of `size` bytes from `start` of the data section. */
static void check_data(const struct bpk_pack *pack, const char *name, uint64_t start, size_t size) {
    uint8_t buffer[2000];
    size_t n;
    HOLDS(bpk_pack_read(pack, find(pack, name), 0, buffer, sizeof(buffer), &n) == 0);
    HOLDS(n == size);
    for (size_t i = 0; i < n; i++)
        HOLDS(buffer[i] == pattern_byte(start + i));
}

/* Three tensors: "w" of 300 bytes, "b" of 5, "z" of 0. */
static void spec_three(struct packspec *spec, enum bpk_layout layout) {
    spec_init(spec, layout);
    spec_u8(spec, "w", 300);
    spec_u8(spec, "b", 5);
    spec_u8(spec, "z", 0);
    spec_metadata(spec, "version", layout == BPK_LAYOUT_LEGACY ? "0.19.0" : "0.21.0");
}

START_TEST(both_layouts) {
    for (int layout = BPK_LAYOUT_ALIGNED; layout <= BPK_LAYOUT_LEGACY; layout++) {
        struct packspec spec;
        struct bpk_pack_info info;
        struct bytes block;
        spec_three(&spec, (enum bpk_layout)layout);
        spec_block(&spec, &block);
        struct bpk_pack *pack = spec_open(&spec);
        bpk_pack_get_info(pack, &info);
        bool aligned = layout == BPK_LAYOUT_ALIGNED;
        ck_assert_int_eq(info.layout, layout);
        ck_assert_int_eq(info.version, 1);
        ck_assert_uint_eq(info.metadata_size, block.len);
        ck_assert_uint_eq(info.cbor_size, block.len);
        ck_assert_uint_eq(info.data_start,
                          aligned ? (10 + block.len + 255) / 256 * 256 : 10 + block.len);
        ck_assert_uint_eq(info.data_end, info.data_start + (aligned ? 768 : 305));
        ck_assert_uint_eq(info.tensors, 3);
        ck_assert_uint_eq(info.metadata_entries, 1);
        ck_assert_uint_eq(info.scalars, 0);
        check_data(pack, "w", 0, 300);
        check_data(pack, "b", aligned ? 512 : 300, 5);
        check_data(pack, "z", 0, 0);
        struct bpk_tensor tensor;
        bpk_pack_tensor(pack, 1, &tensor);
        ck_assert_int_eq(tensor.kind, BPK_U8);
        ck_assert_uint_eq(tensor.start, info.data_start);
        ck_assert_uint_eq(tensor.end, info.data_start + 300);
        ck_assert_uint_eq(tensor.rank, 1);
        ck_assert(!tensor.has_param_id);
        bpk_pack_unref(bpk_pack_ref(pack));
        bpk_pack_unref(pack);
        bpk_pack_unref(NULL);
        bytes_clear(&block);
        spec_clear(&spec);
    }
}

START_TEST(any_range_of_a_tensor) {
    static const struct {
        uint64_t offset;
        size_t size, read;
    } rows[] = {{0, 0, 0},
                {0, 1, 1},
                {0, 300, 300},
                {0, 301, 300},
                {299, 1, 1},
                {299, 9, 1},
                {300, 1, 0},
                {301, 1, 0},
                {17, 100, 100},
                {UINT64_MAX, 1, 0},
                {UINT64_MAX - 5, SIZE_MAX, 0},
                {5, 0, 0}};
    struct packspec spec;
    spec_three(&spec, BPK_LAYOUT_ALIGNED);
    struct bpk_pack *pack = spec_open(&spec);
    for (int i = 0; i < ROWS(rows); i++) {
        uint8_t buffer[400];
        size_t n = 77;
        memset(buffer, 0, sizeof(buffer));
        ck_assert_int_eq(
            bpk_pack_read(pack, find(pack, "w"), rows[i].offset, buffer, rows[i].size, &n), 0);
        ck_assert_uint_eq(n, rows[i].read);
        for (size_t k = 0; k < n; k++)
            ck_assert_int_eq(buffer[k], pattern_byte(rows[i].offset + k));
        ck_assert_int_eq(buffer[n], 0);
    }
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

START_TEST(looking_up) {
    struct packspec spec;
    spec_rich(&spec);
    struct bpk_pack *pack = spec_open(&spec);
    struct bpk_pack_info info;
    uint32_t index = 77;
    bpk_pack_get_info(pack, &info);
    ck_assert_uint_eq(info.tensors, 11);
    for (uint32_t i = 0; i < info.tensors; i++) {
        struct bpk_str name = bpk_pack_tensor_name(pack, i);
        ck_assert_int_eq(bpk_pack_find_tensor(pack, name, &index), 0);
        ck_assert_uint_eq(index, i);
        ck_assert_uint_eq(bpk_pack_lower_bound(pack, name), i);
    }
    index = 77;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("conv"), &index), -ENOENT);
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("zzz"), &index), -ENOENT);
    ck_assert_uint_eq(index, 77);
    ck_assert_uint_eq(bpk_pack_lower_bound(pack, str("conv")), find(pack, "conv.weight"));
    ck_assert_uint_eq(bpk_pack_lower_bound(pack, str("zzz")), info.tensors);
    for (uint32_t i = 0; i < info.metadata_entries; i++) {
        struct bpk_str key;
        struct bpk_str value;
        bpk_pack_metadata(pack, i, &key, &value);
        ck_assert_int_eq(bpk_pack_find_metadata(pack, key, &index), 0);
        ck_assert_uint_eq(index, i);
    }
    ck_assert_int_eq(bpk_pack_find_metadata(pack, str("nothing"), &index), -ENOENT);
    static const char *const names[] = {"delta", "done", "epoch", "lr"};
    for (uint32_t i = 0; i < info.scalars; i++) {
        struct bpk_scalar scalar;
        bpk_pack_scalar(pack, i, &scalar);
        ck_assert_uint_eq(scalar.name.len, strlen(names[i]));
        ck_assert_mem_eq(scalar.name.bytes, names[i], scalar.name.len);
    }
    ck_assert_str_eq(bpk_scalar_kind_name(BPK_SCALAR_UINT), "UInt");
    struct bpk_tensor tensor;
    bpk_pack_tensor(pack, find(pack, "conv.weight"), &tensor);
    ck_assert(tensor.has_param_id);
    ck_assert_uint_eq(tensor.param_id, UINT64_C(9505838338724798577));
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* ---- the file changes under us --------------------------------------------------------------- */

static void expect_eio(const struct bpk_pack *pack) {
    uint8_t buffer[10];
    size_t n = 77;
    ck_assert(bpk_pack_is_changed(pack));
    ck_assert_int_eq(bpk_pack_read(pack, find(pack, "w"), 0, buffer, 10, &n), -EIO);
    ck_assert_uint_eq(n, 77);
}

START_TEST(changed_in_place) {
    enum { WRITE, CUT, GROW, TOUCH, WAYS };
    for (int way = WRITE; way < WAYS; way++) {
        struct packspec spec;
        char path[TEMP_PATH];
        struct bpk_pack *pack;
        spec_three(&spec, BPK_LAYOUT_ALIGNED);
        temp_spec(&spec, path);
        /* an old mtime, so that a write is seen whatever the clock's grain */
        const struct timespec old[] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
        ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
        ck_assert_int_eq(bpk_pack_open(path, NULL, &pack, NULL), 0);
        ck_assert(!bpk_pack_is_changed(pack));
        check_data(pack, "w", 0, 300);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        off_t size = bpk_pack_stat(pack)->st_size;
        const struct timespec later[] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 1000000}};
        switch (way) {
        case WRITE:
            ck_assert_int_eq(pwrite(fd, "x", 1, size - 1), 1);
            break;
        case CUT:
            ck_assert_int_eq(ftruncate(fd, 300), 0);
            ck_assert_int_eq(futimens(fd, old), 0); /* the size alone */
            break;
        case GROW:
            ck_assert_int_eq(ftruncate(fd, size + 1), 0);
            ck_assert_int_eq(futimens(fd, old), 0);
            break;
        default:
            ck_assert_int_eq(futimens(fd, later), 0);
            break;
        }
        close(fd);
        expect_eio(pack);
        bpk_pack_unref(pack);
        unlink(path);
        spec_clear(&spec);
    }
}

START_TEST(replaced_by_rename) {
    struct packspec spec;
    char path[TEMP_PATH];
    char other[TEMP_PATH];
    struct bpk_pack *pack;
    spec_three(&spec, BPK_LAYOUT_ALIGNED);
    temp_spec(&spec, path);
    temp_write("something else", 14, other);
    ck_assert_int_eq(bpk_pack_open(path, NULL, &pack, NULL), 0);
    ck_assert_int_eq(rename(other, path), 0);
    ck_assert(!bpk_pack_is_changed(pack)); /* the old file is still there for us */
    check_data(pack, "w", 0, 300);
    ck_assert_int_ge(bpk_pack_fd(pack), 0);
    bpk_pack_unref(pack);
    unlink(path);
    spec_clear(&spec);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuse_path(const char *path, int expected) {
    struct bpk_pack *pack = NULL;
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_pack_open(path, NULL, &pack, &diag), expected);
    ck_assert_int_eq(diag.code, expected);
    ck_assert_int_ne(diag.sentence[0], '\0');
    ck_assert_ptr_null(pack);
    ck_assert_int_eq(bpk_pack_open(path, NULL, &pack, NULL), expected);
}

START_TEST(what_is_no_file) {
    char path[TEMP_PATH];
    refuse_path("/", -EISDIR);
    refuse_path("/dev/null", -EINVAL);
    temp_write("", 0, path);
    refuse_path(path, -EBADMSG); /* an empty file */
    unlink(path);
    refuse_path(path, -ENOENT);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refuse_path(path, -EINVAL); /* at once, though nobody writes into it */
    unlink(path);
    ck_assert_int_eq(symlink(path, path), 0);
    refuse_path(path, -ELOOP);
    unlink(path);
}

START_TEST(exactly_the_path_is_opened) {
    struct packspec spec;
    char path[TEMP_PATH];
    char with_extension[TEMP_PATH + 8];
    struct bpk_pack *pack = NULL;
    spec_three(&spec, BPK_LAYOUT_ALIGNED);
    temp_spec(&spec, path);
    snprintf(with_extension, sizeof(with_extension), "%s.bpk", path);
    ck_assert_int_eq(rename(path, with_extension), 0);
    ck_assert_int_eq(bpk_pack_open(path, NULL, &pack, NULL), -ENOENT);
    ck_assert_int_eq(bpk_pack_open(with_extension, NULL, &pack, NULL), 0);
    bpk_pack_unref(pack);
    unlink(with_extension);
    spec_clear(&spec);
}

START_TEST(files_past_the_limit) {
    struct packspec spec;
    struct bpk_pack *pack = NULL;
    char path[TEMP_PATH];
    spec_three(&spec, BPK_LAYOUT_ALIGNED);
    temp_spec(&spec, path);
    if (truncate(path, (off_t)BPK_MAX_FILE) == 0) {
        ck_assert_int_eq(bpk_pack_open(path, NULL, &pack, NULL), 0);
        bpk_pack_unref(pack);
        ck_assert_int_eq(truncate(path, (off_t)BPK_MAX_FILE + 1), 0);
        refuse_path(path, -EBADMSG);
    }
    unlink(path);
    spec_clear(&spec);
}

/* Cut at every length. The last byte of data that counts is the end of "z". */
START_TEST(cut_at_every_length) {
    struct packspec spec;
    struct bytes file;
    spec_three(&spec, BPK_LAYOUT_ALIGNED);
    spec_file(&spec, &file);
    for (size_t len = 0; len < file.len; len++) {
        struct bytes part = {.data = file.data, .len = len};
        struct bpk_pack *pack;
        struct bpk_diag diag = {0};
        ck_assert_int_eq(bytes_open(&part, NULL, &pack, &diag), -EBADMSG);
        ck_assert_int_ne(diag.sentence[0], '\0');
    }
    bytes_clear(&file);
    spec_clear(&spec);
}

static const struct {
    uint64_t start, end;
    const char *says; /* NULL: opens */
} ranges[] = {
    {0, 10, NULL},
    {10, 10, NULL},
    {0, 0, NULL},
    {11, 10, "before they start"},
    {UINT64_MAX, 0, "before they start"},
    {0, 11, "truncated"},
    {0, UINT64_MAX, "beyond the end"},
    {UINT64_MAX - 10, UINT64_MAX, "beyond the end"},
    {UINT64_C(1) << 62, (UINT64_C(1) << 62) + 1, "beyond the end"},
    {0, BPK_MAX_TENSOR + 1, "limit of 10 GiB"},
    {0, BPK_MAX_TENSOR, "truncated"},
};

START_TEST(ranges_of_tensors) {
    struct packspec spec;
    struct bytes file;
    struct bpk_pack *pack;
    struct bpk_diag diag = {0};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    bytes_fill(&spec.data, 1, 10);
    spec_tensor_at(&spec, str("evil\n"), "625538", NULL, 0, ranges[_i].start, ranges[_i].end, NULL);
    spec_file(&spec, &file);
    int r = bytes_open(&file, NULL, &pack, &diag);
    if (ranges[_i].says) {
        ck_assert_int_eq(r, -EBADMSG);
        ck_assert_msg(strstr(diag.sentence, ranges[_i].says), "%s", diag.sentence);
        ck_assert_ptr_null(strchr(diag.sentence, '\n'));
    } else {
        ck_assert_int_eq(r, 0);
        bpk_pack_unref(pack);
    }
    bytes_clear(&file);
    spec_clear(&spec);
}

/* ---- salvage and forced layouts -------------------------------------------------------------- */

START_TEST(salvage_keeps_what_is_whole) {
    /* "w" [0, 300), "b" [512, 517), "z" [768, 768) */
    static const struct {
        size_t cut; /* bytes off the end */
        uint32_t tensors;
    } rows[] = {{0, 3}, {1, 2}, {251, 2}, {252, 1}, {256, 1}, {468, 1}, {469, 0}, {700, 0}};
    const struct bpk_open_options options = {.salvage = true};
    for (int i = 0; i < ROWS(rows); i++) {
        struct packspec spec;
        struct bytes file;
        struct bpk_pack *pack;
        struct bpk_pack_info info;
        spec_three(&spec, BPK_LAYOUT_ALIGNED);
        spec_file(&spec, &file);
        file.len -= rows[i].cut;
        ck_assert_int_eq(bytes_open(&file, &options, &pack, NULL), 0);
        bpk_pack_get_info(pack, &info);
        ck_assert_uint_eq(info.tensors, rows[i].tensors);
        ck_assert_int_eq(info.layout, BPK_LAYOUT_ALIGNED);
        if (info.tensors > 0)
            check_data(pack, "w", 0, 300);
        if (info.tensors > 1)
            check_data(pack, "b", 512, 5);
        bpk_pack_unref(pack);
        bytes_clear(&file);
        spec_clear(&spec);
    }
}

START_TEST(salvage_leaves_bad_ranges_out) {
    struct packspec spec;
    struct bpk_pack_info info;
    const struct bpk_open_options options = {.salvage = true};
    spec_three(&spec, BPK_LAYOUT_ALIGNED);
    for (int i = 0; i < ROWS(ranges); i++)
        if (ranges[i].says)
            spec_tensor_at(&spec, (struct bpk_str){&"abcdefghijklmno"[i], 1}, "625538", NULL, 0,
                           ranges[i].start, ranges[i].end + 2000 * (ranges[i].end == 11), NULL);
    struct bpk_pack *pack = spec_open_with(&spec, &options);
    bpk_pack_get_info(pack, &info);
    ck_assert_uint_eq(info.tensors, 3);
    check_data(pack, "w", 0, 300);
    check_data(pack, "b", 512, 5);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

START_TEST(salvage_needs_whole_metadata) {
    const struct bpk_open_options options = {.salvage = true};
    struct packspec spec;
    struct bytes file;
    struct bytes block;
    spec_three(&spec, BPK_LAYOUT_ALIGNED);
    spec_file(&spec, &file);
    spec_block(&spec, &block);
    for (size_t len = 0; len <= 10 + block.len; len++) {
        struct bytes part = {.data = file.data, .len = len};
        struct bpk_pack *pack;
        int r = bytes_open(&part, &options, &pack, NULL);
        ck_assert_int_eq(r, len < 10 + block.len ? -EBADMSG : 0);
        bpk_pack_unref(pack);
    }
    bytes_clear(&block);
    bytes_clear(&file);
    spec_clear(&spec);
}

/* A user may say what the layout is, right or wrong; the length must still fit. */
START_TEST(forced_layouts) {
    for (int made = BPK_LAYOUT_ALIGNED; made <= BPK_LAYOUT_LEGACY; made++) {
        for (int forced = BPK_LAYOUT_ALIGNED; forced <= BPK_LAYOUT_LEGACY; forced++) {
            const struct bpk_open_options options = {.force_layout = true,
                                                     .layout = (enum bpk_layout)forced};
            struct packspec spec;
            struct bytes file;
            struct bpk_pack *pack;
            struct bpk_pack_info info;
            spec_three(&spec, (enum bpk_layout)made);
            spec_file(&spec, &file);
            int r = bytes_open(&file, &options, &pack, NULL);
            if (forced == BPK_LAYOUT_ALIGNED && made == BPK_LAYOUT_LEGACY) {
                ck_assert_int_eq(r, -EBADMSG);
            } else {
                ck_assert_int_eq(r, 0);
                bpk_pack_get_info(pack, &info);
                ck_assert_int_eq(info.layout, forced);
                if (made == forced)
                    check_data(pack, "w", 0, 300);
                bpk_pack_unref(pack);
            }
            bytes_clear(&file);
            spec_clear(&spec);
        }
    }
}

/* The facts for layout.c come from the file: padding, starts, version, dtypes. */
START_TEST(undecided_layouts) {
    struct packspec spec;
    struct bytes file;
    struct bpk_pack *pack;
    struct bpk_diag diag = {0};
    struct bpk_pack_info info;
    spec_init(&spec, BPK_LAYOUT_LEGACY);
    bytes_fill(&spec.data, 0, 300);
    spec_tensor_at(&spec, str("w"), "625538", (const uint64_t[]){300}, 1, 0, 300, NULL);
    spec_metadata(&spec, "format", "burnpack");
    spec_file(&spec, &file);
    ck_assert_int_eq(bytes_open(&file, NULL, &pack, &diag), -EBADMSG);
    ck_assert_msg(strstr(diag.sentence, "-o layout=legacy"), "%s", diag.sentence);
    file.data[file.len - 300] = 1; /* the first byte of what would be padding */
    pack = NULL;
    ck_assert_int_eq(bytes_open(&file, NULL, &pack, NULL), 0);
    bpk_pack_get_info(pack, &info);
    ck_assert_int_eq(info.layout, BPK_LAYOUT_LEGACY);
    bpk_pack_unref(pack);
    file.data[file.len - 300] = 0;
    const struct bpk_open_options options = {.force_layout = true, .layout = BPK_LAYOUT_LEGACY};
    ck_assert_int_eq(bytes_open(&file, &options, &pack, NULL), 0);
    bpk_pack_unref(pack);
    bytes_clear(&file);
    spec_metadata(&spec, "version", "0.19.0");
    pack = spec_open(&spec);
    bpk_pack_get_info(pack, &info);
    ck_assert_int_eq(info.layout, BPK_LAYOUT_LEGACY);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

int main(void) {
    Suite *suite = suite_create("pack");
    TCase *tc = suite_case(suite, "open");
    tcase_add_test(tc, both_layouts);
    tcase_add_test(tc, any_range_of_a_tensor);
    tcase_add_test(tc, looking_up);
    tcase_add_test(tc, changed_in_place);
    tcase_add_test(tc, replaced_by_rename);
    tc = suite_case(suite, "refused");
    tcase_add_test(tc, what_is_no_file);
    tcase_add_test(tc, exactly_the_path_is_opened);
    tcase_add_test(tc, files_past_the_limit);
    tcase_add_test(tc, cut_at_every_length);
    tcase_add_loop_test(tc, ranges_of_tensors, 0, ROWS(ranges));
    tc = suite_case(suite, "overruled");
    tcase_add_test(tc, salvage_keeps_what_is_whole);
    tcase_add_test(tc, salvage_leaves_bad_ranges_out);
    tcase_add_test(tc, salvage_needs_whole_metadata);
    tcase_add_test(tc, forced_layouts);
    tcase_add_test(tc, undecided_layouts);
    return suite_run(suite);
}
