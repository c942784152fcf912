/* check: faults of tensors, of the pack, and notes that are none (semantics.md 5). */
#include "bpk.h"

#include "pack/pack_internal.h"
#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What was reported, one line each: "INDEX: sentence" or "-: sentence". */
struct findings {
    char text[4000];
    int count;
};

static void note(void *context, uint32_t tensor, const char *sentence) {
    struct findings *found = context;
    size_t used = strlen(found->text);
    if (tensor == BPK_NO_TENSOR)
        snprintf(found->text + used, sizeof(found->text) - used, "-: %s\n", sentence);
    else
        snprintf(found->text + used, sizeof(found->text) - used, "%u: %s\n", tensor, sentence);
    found->count++;
}

/* Exactly these findings; `says` has a part of each, NULL at the end. */
static void expect(const struct findings *found, const char *const *says) {
    int count = 0;
    for (; *says; says++, count++)
        ck_assert_msg(strstr(found->text, *says), "no \"%s\" in:\n%s", *says, found->text);
    ck_assert_msg(found->count == count, "%d findings:\n%s", found->count, found->text);
}

#define EXPECT(found, ...) expect(found, (const char *const[]){__VA_ARGS__, NULL})
#define EXPECT_NONE(found) expect(found, (const char *const[]){NULL})

static void run_check(const struct packspec *spec, struct findings *found, bool notes) {
    struct bpk_pack *pack = spec_open(spec);
    *found = (struct findings){0};
    if (notes)
        bpk_pack_notes(pack, note, found);
    else
        ck_assert_int_eq(bpk_pack_check(pack, note, found), 0);
    bpk_pack_unref(pack);
}

static void spec_good(struct packspec *spec, enum bpk_layout layout) {
    spec_init(spec, layout);
    spec_u8(spec, "a", 300);
    spec_tensor(spec, "b", "63463332", (const uint64_t[]){2, 3}, 2, 24, NULL);
    spec_u8(spec, "c", 0);
    spec_metadata(spec, "version", layout == BPK_LAYOUT_LEGACY ? "0.19.0" : "0.21.0");
}

START_TEST(good_packs_have_no_faults) {
    struct packspec spec;
    struct findings found;
    spec_good(&spec, BPK_LAYOUT_ALIGNED);
    run_check(&spec, &found, false);
    EXPECT_NONE(&found);
    run_check(&spec, &found, true);
    EXPECT_NONE(&found);
    bytes_fill(&spec.tail, 0, 20); /* zero bytes inside metadata_size are a note */
    run_check(&spec, &found, false);
    EXPECT_NONE(&found);
    run_check(&spec, &found, true);
    EXPECT(&found, "-: 20 zero bytes");
    spec_clear(&spec);
    spec_good(&spec, BPK_LAYOUT_LEGACY); /* and so is the layout of Burn 0.19 */
    run_check(&spec, &found, false);
    EXPECT_NONE(&found);
    run_check(&spec, &found, true);
    EXPECT(&found, "Burn 0.19");
    spec_clear(&spec);
    spec_init(&spec, BPK_LAYOUT_ALIGNED); /* no tensors */
    run_check(&spec, &found, false);
    EXPECT_NONE(&found);
    spec_clear(&spec);
}

static const struct {
    const char *dtype;
    unsigned rank;
    uint64_t dims[8];
    uint64_t size;
    const char *says; /* NULL: no fault */
} lengths[] = {
    {"63463332", 1, {6}, 24, NULL},
    {"63463332", 0, {0}, 4, NULL},
    {"63463332", 2, {6, 0}, 0, NULL},
    {"64426f6f6c", 1, {5}, 5, NULL},
    {"a164426f6f6c63553332", 1, {5}, 20, NULL},
    {"a164426f6f6c63553332", 1, {5}, 5, "0: has 5 bytes, but shape [5] of Bool (U32) needs 20\n"},
    {"63463332", 2, {2, 3}, 16, "0: has 16 bytes, but shape [2, 3] of F32 needs 24\n"},
    {"63463332", 2, {2, 3}, 32, "0: has 32 bytes, but shape [2, 3] of F32 needs 24\n"},
    {"63463332", 0, {0}, 0, "0: has 0 bytes, but shape [] of F32 needs 4\n"},
    {"6442463136", 1, {2}, 2, "of BF16 needs 4"},
    {"625538", 2, {UINT64_MAX, 2}, 0, "[18446744073709551615, 2] overflows"},
    {"63463634", 1, {UINT64_MAX / 4}, 0, "overflows"},
    {"625538", 3, {UINT64_MAX, 2, 0}, 0, "overflows"},
    {"625538",
     8,
     {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, 7, 8},
     0,
     ", …] overflows"},
};

START_TEST(lengths_of_tensors) {
    struct packspec spec;
    struct findings found;
    char buffer[400] = "untouched";
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_tensor(&spec, "w", lengths[_i].dtype, lengths[_i].dims, lengths[_i].rank, lengths[_i].size,
                NULL);
    run_check(&spec, &found, false);
    struct bpk_pack *pack = spec_open(&spec);
    bool problem = bpk_pack_tensor_problem(pack, 0, buffer, sizeof(buffer));
    bpk_pack_unref(pack);
    if (lengths[_i].says) {
        EXPECT(&found, lengths[_i].says);
        ck_assert(problem);
        ck_assert_ptr_nonnull(strstr(found.text, buffer));
    } else {
        EXPECT_NONE(&found);
        ck_assert(!problem);
        ck_assert_str_eq(buffer, "untouched");
    }
    spec_clear(&spec);
}

/* In a buffer of any size the sentence is cut, not overrun. */
START_TEST(a_problem_in_a_small_buffer) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 300);
    spec_tensor_at(&spec, str("b"), "63463332", NULL, 0, 7, 9, NULL);
    struct bpk_pack *pack = spec_open(&spec);
    char whole[400];
    ck_assert(bpk_pack_tensor_problem(pack, 1, whole, sizeof(whole)));
    ck_assert_str_eq(whole, "has 2 bytes, but shape [] of F32 needs 4; its bytes overlap those of "
                            "'a'; starts at 7, which is no multiple of 256");
    for (size_t size = 10; size < sizeof(whole); size++) {
        char out[401];
        memset(out, 0x55, sizeof(out));
        ck_assert(bpk_pack_tensor_problem(pack, 1, out, size));
        ck_assert_uint_lt(strnlen(out, size), size);
        ck_assert_int_eq(out[size], 0x55);
    }
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* Ranges in units of 256 bytes; which overlap, and with which other. */
static const struct {
    uint8_t ranges[4][2];
    int partner[4]; /* -1: none */
} overlaps[] = {
    {{{0, 1}, {1, 2}, {2, 3}, {3, 4}}, {-1, -1, -1, -1}},
    {{{0, 2}, {1, 3}, {3, 4}, {4, 5}}, {1, 0, -1, -1}},
    {{{0, 4}, {1, 2}, {2, 3}, {5, 6}}, {1, 0, 0, -1}}, /* both lie in the first */
    {{{2, 3}, {0, 1}, {0, 1}, {4, 5}}, {-1, 2, 1, -1}},
    {{{0, 2}, {1, 1}, {2, 2}, {2, 3}}, {-1, -1, -1, -1}}, /* empty ones overlap nothing */
    {{{0, 9}, {1, 2}, {8, 9}, {9, 10}}, {1, 0, 0, -1}},
    {{{0, 2}, {1, 5}, {3, 4}, {6, 7}}, {1, 0, 1, -1}},
    {{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, {1, 0, 0, 0}},
};

START_TEST(overlaps_are_found) {
    struct packspec spec;
    static const char *const names[] = {"t0", "t1", "t2", "t3"};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    bytes_fill(&spec.data, 1, 2560);
    for (int i = 0; i < 4; i++) {
        uint64_t start = overlaps[_i].ranges[i][0] * UINT64_C(256);
        uint64_t end = overlaps[_i].ranges[i][1] * UINT64_C(256);
        spec_tensor_at(&spec, str(names[i]), "625538", &(uint64_t){end - start}, 1, start, end,
                       NULL);
    }
    struct bpk_pack *pack = spec_open(&spec);
    for (int i = 0; i < 4; i++) {
        char sentence[400] = "";
        char expected[60] = "";
        bool problem = bpk_pack_tensor_problem(pack, (uint32_t)i, sentence, sizeof(sentence));
        ck_assert_int_eq(problem, overlaps[_i].partner[i] >= 0);
        if (problem)
            snprintf(expected, sizeof(expected), "its bytes overlap those of 't%d'",
                     overlaps[_i].partner[i]);
        ck_assert_str_eq(sentence, expected);
    }
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

START_TEST(starts_off_256_count_in_the_aligned_layout_only) {
    struct packspec spec;
    struct findings found;
    spec_good(&spec, BPK_LAYOUT_ALIGNED);
    bytes_fill(&spec.data, 1, 5);
    spec_tensor_at(&spec, str("odd"), "625538", (const uint64_t[]){4}, 1, 769, 773, NULL);
    spec.data.data[768] = 0;
    run_check(&spec, &found, false);
    EXPECT(&found, "3: starts at 769, which is no multiple of 256");
    spec_clear(&spec);
}

/* ---- the pack as a whole --------------------------------------------------------------------- */

START_TEST(faults_of_the_pack) {
    struct packspec spec;
    struct findings found;
    spec_good(&spec, BPK_LAYOUT_ALIGNED);
    spec_metadata(&spec, "k", "1");
    spec_metadata(&spec, "k", "2");
    spec_scalar(&spec, "s", "a1 63496e74 01");
    spec_scalar(&spec, "s", "a1 63496e74 01");
    spec_scalar(&spec, "s", "a1 63496e74 01");
    spec_tensor_at(&spec, str("a"), "625538", (const uint64_t[]){300}, 1, 0, 300, NULL);
    spec.version = 0;
    bytes_hex(&spec.tail, "0001");
    bytes_fill(&spec.data, 0, 7);
    spec.padding = 9;
    run_check(&spec, &found, false);
    EXPECT(&found, "-: the header says version 0", "-: duplicate tensor names: 1",
           "-: duplicate metadata keys: 1", "-: duplicate scalar names: 2",
           "-: bytes that are not zero follow the metadata", "-: 7 bytes follow the last tensor",
           "-: the padding is not zero");
    spec_clear(&spec);
}

/* Each byte of padding counts, and no other. */
START_TEST(padding_between_tensors) {
    struct packspec spec;
    struct findings found;
    spec_good(&spec, BPK_LAYOUT_ALIGNED);
    static const struct {
        size_t at;
        bool fault;
    } rows[] = {{0, false},   {299, false}, {300, true}, {511, true},
                {512, false}, {535, false}, {536, true}, {767, true}};
    for (int i = 0; i < ROWS(rows); i++) {
        uint8_t before = spec.data.data[rows[i].at];
        spec.data.data[rows[i].at] = 0xee;
        run_check(&spec, &found, false);
        if (rows[i].fault)
            EXPECT(&found, "-: the padding is not zero at byte");
        else
            EXPECT_NONE(&found);
        spec.data.data[rows[i].at] = before;
    }
    spec_clear(&spec);
}

/* Between a tensor that ends at 255 and one that starts later: the first byte of the gap. */
START_TEST(strays_are_found_in_all_gaps_or_in_large_ones) {
    static const struct {
        uint64_t start;
        bool all;
        bool large;
    } rows[] = {{255, false, false}, {256, true, false}, {257, true, true}, {512, true, true}};
    for (int i = 0; i < ROWS(rows); i++) {
        struct packspec spec;
        spec_init(&spec, BPK_LAYOUT_ALIGNED);
        bytes_fill(&spec.data, 1, 513);
        spec_tensor_at(&spec, str("a"), "625538", (const uint64_t[]){255}, 1, 0, 255, NULL);
        spec_tensor_at(&spec, str("b"), "625538", (const uint64_t[]){1}, 1, rows[i].start, 513,
                       NULL);
        struct bpk_pack *pack = spec_open(&spec);
        for (int all = 0; all < 2; all++) {
            bool found = all ? rows[i].all : rows[i].large;
            uint64_t at = 0;
            ck_assert_int_eq(bpk_pack_find_stray(pack, pack->data_start, all, &at), found);
            ck_assert_uint_eq(at, found ? pack->data_start + 255 : 0);
        }
        bpk_pack_unref(pack);
        spec_clear(&spec);
    }
}

/* Bytes of a tensor that holds another are no padding behind the inner one. */
START_TEST(no_padding_inside_a_tensor) {
    struct packspec spec;
    struct findings found;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "outer", 700);
    spec_u8(&spec, "behind", 5);
    spec_tensor_at(&spec, str("inner"), "625538", (const uint64_t[]){10}, 1, 256, 266, NULL);
    run_check(&spec, &found, false);
    EXPECT(&found, "overlap those of 'outer'", "overlap those of 'inner'");
    spec_clear(&spec);
}

START_TEST(what_salvage_left_out) {
    struct packspec spec;
    struct bytes file;
    struct bpk_pack *pack;
    struct findings found = {0};
    const struct bpk_open_options options = {.salvage = true};
    spec_good(&spec, BPK_LAYOUT_ALIGNED);
    spec_file(&spec, &file);
    file.len -= 1; /* "c", of no bytes, lies past the end now */
    ck_assert_int_eq(bytes_open(&file, &options, &pack, NULL), 0);
    ck_assert_int_eq(bpk_pack_check(pack, note, &found), 0);
    ck_assert_msg(strstr(found.text, "-: tensor 'c' is left out"), "%s", found.text);
    bpk_pack_unref(pack);
    bytes_clear(&file);
    spec_clear(&spec);
}

START_TEST(a_file_that_cannot_be_read) {
    struct packspec spec;
    struct findings found = {0};
    spec_good(&spec, BPK_LAYOUT_ALIGNED);
    struct bpk_pack *pack = spec_open(&spec);
    int folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(folder, 0);
    ck_assert_int_eq(dup2(folder, bpk_pack_fd(pack)), bpk_pack_fd(pack)); /* reads fail now */
    ck_assert_int_eq(bpk_pack_check(pack, note, &found), -EIO);
    close(folder);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* ---- quantised ------------------------------------------------------------------------------- */

#define SCALED                                                                                     \
    "a16651466c6f6174a36576616c7565635138536573746f7265664e6174697665646d6f6465"                   \
    "6953796d6d6574726963"
#define PACKED_99                                                                                  \
    "a16651466c6f6174a36576616c7565635134536573746f7265a1695061636b656455333218"                   \
    "63646d6f64656953796d6d6574726963"
#define LEVELLED                                                                                   \
    "a16651466c6f6174a56576616c75656351385365706172616d634633326573746f7265664e"                   \
    "6174697665656c6576656c6654656e736f72646d6f64656953796d6d6574726963"

static const struct {
    const char *dtype;
    size_t size;
    const char *note; /* for shape [3, 4]; NULL: none */
} quantised[] = {
    {SCALED, 16, NULL},
    {SCALED, 20, "0: has 20 bytes, its shape and quantization scheme would give 16"},
    {SCALED, 12, "0: has 12 bytes"},
    {PACKED_99, 16, "does not fit its shape"},
    {LEVELLED, 99, NULL}, /* older writers had other formulas */
};

START_TEST(quantised_lengths_are_notes) {
    struct packspec spec;
    struct findings found;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_tensor(&spec, "q", quantised[_i].dtype, (const uint64_t[]){3, 4}, 2, quantised[_i].size,
                NULL);
    run_check(&spec, &found, false);
    EXPECT_NONE(&found);
    run_check(&spec, &found, true);
    if (quantised[_i].note)
        EXPECT(&found, quantised[_i].note);
    else
        EXPECT_NONE(&found);
    spec_clear(&spec);
}

int main(void) {
    Suite *suite = suite_create("check");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, good_packs_have_no_faults);
    tcase_add_loop_test(tc, lengths_of_tensors, 0, ROWS(lengths));
    tcase_add_test(tc, a_problem_in_a_small_buffer);
    tcase_add_loop_test(tc, overlaps_are_found, 0, ROWS(overlaps));
    tcase_add_test(tc, starts_off_256_count_in_the_aligned_layout_only);
    tcase_add_test(tc, faults_of_the_pack);
    tcase_add_test(tc, padding_between_tensors);
    tcase_add_test(tc, strays_are_found_in_all_gaps_or_in_large_ones);
    tcase_add_test(tc, no_padding_inside_a_tensor);
    tcase_add_test(tc, what_salvage_left_out);
    tcase_add_test(tc, a_file_that_cannot_be_read);
    tcase_add_loop_test(tc, quantised_lengths_are_notes, 0, ROWS(quantised));
    return suite_run(suite);
}
