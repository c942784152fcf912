/* stats: what the values of a tensor are like; against numpy it is tested in integration. */
#include "view/stats.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "failalloc.h"

/* ---- a tensor in memory ---------------------------------------------------------------------- */

struct memory {
    const uint8_t *bytes;
    uint64_t size;
    _Atomic unsigned reads;
    unsigned fails_at; /* this read, counted from 1; 0: none */
    unsigned cancels_at;
    _Atomic bool cancel;
    uint8_t flips; /* bits that are other ones from the second time on that the start is read */
    _Atomic unsigned starts;
};

static int read_memory(void *context, uint64_t offset, void *buffer, size_t size) {
    struct memory *memory = context;
    unsigned number = atomic_fetch_add(&memory->reads, 1) + 1;
    HOLDS(size > 0 && offset + size <= memory->size);
    if (number == memory->fails_at)
        return -EIO;
    if (number == memory->cancels_at)
        atomic_store(&memory->cancel, true);
    memcpy(buffer, memory->bytes + offset, size);
    if (offset == 0)
        atomic_fetch_add(&memory->starts, 1);
    if (atomic_load(&memory->starts) > 1)
        for (size_t i = 0; i < size; i++)
            ((uint8_t *)buffer)[i] ^= memory->flips;
    return 0;
}

static int compute_with(struct memory *memory, struct bpk_dtype dtype, uint64_t count,
                        unsigned threads, struct bpk_stats *ret_stats, struct bpk_diag *diag) {
    const struct bpk_array array = {dtype, 1, &count, memory->size};
    const struct bpk_source source = {read_memory, memory};
    return bpk_stats_compute(&array, &source, threads, true, &memory->cancel, ret_stats, diag);
}

/* The statistics of `size` bytes, which must succeed. */
static struct bpk_stats stats_of(struct bpk_dtype dtype, const void *bytes, size_t size,
                                 unsigned threads) {
    struct memory memory = {.bytes = bytes, .size = size};
    struct bpk_stats stats;
    ck_assert_int_eq(
        compute_with(&memory, dtype, size / bpk_dtype_size(&dtype), threads, &stats, NULL), 0);
    return stats;
}

#define STATS_OF(dtype_kind, type, ...)                                                            \
    ({                                                                                             \
        const type values_[] = {__VA_ARGS__};                                                      \
        stats_of((struct bpk_dtype){.kind = (dtype_kind)}, values_, sizeof(values_), 1);           \
    })

static char *json_of(struct bpk_dtype dtype, const struct bpk_stats *stats) {
    struct bpk_outbuf out = {0};
    const struct bpk_array array = {dtype, 1, &stats->count, 0};
    bpk_stats_object(&out, str("t"), &array, stats, 0);
    bpk_out(&out, "\n", 2);
    ck_assert(!out.failed);
    return out.text;
}

/* ---- values ---------------------------------------------------------------------------------- */

START_TEST(what_is_not_finite) {
    struct bpk_stats s =
        STATS_OF(BPK_F32, float, NAN, 3, -INFINITY, -0.0F, INFINITY, -1, NAN, 0, INFINITY, -NAN);
    ck_assert_uint_eq(s.count, 10);
    ck_assert_uint_eq(s.nan, 3);
    ck_assert_uint_eq(s.pos_inf, 2);
    ck_assert_uint_eq(s.neg_inf, 1);
    ck_assert_uint_eq(s.finite, 4);
    ck_assert_uint_eq(s.zeros, 2);
    ck_assert_double_eq(s.min, -1);
    ck_assert_double_eq(s.max, 3);
    ck_assert_double_eq(s.abs_max, 3);
    ck_assert_double_eq(s.mean, 0.5);
    ck_assert_double_eq(s.std, 1.5);
    ck_assert_double_eq(s.bins_min, -1);
    ck_assert_double_eq(s.bins_max, 3);
    ck_assert_uint_eq(s.histogram[0], 1);
    ck_assert_uint_eq(s.histogram[8], 2);
    ck_assert_uint_eq(s.histogram[31], 1);
}

START_TEST(nothing_finite) {
    struct bpk_stats s = STATS_OF(BPK_F64, double, NAN, INFINITY);
    ck_assert_uint_eq(s.nan, 1);
    ck_assert_uint_eq(s.pos_inf, 1);
    ck_assert_uint_eq(s.finite, 0);
    char *text = json_of((struct bpk_dtype){.kind = BPK_F64}, &s);
    ck_assert_str_eq(text, "{\n"
                           "  \"name\": \"t\",\n"
                           "  \"dtype\": \"F64\",\n"
                           "  \"shape\": [2],\n"
                           "  \"count\": 2,\n"
                           "  \"nan\": 1,\n"
                           "  \"inf\": 1,\n"
                           "  \"neg_inf\": 0,\n"
                           "  \"zeros\": 0,\n"
                           "  \"min\": null,\n"
                           "  \"max\": null,\n"
                           "  \"mean\": null,\n"
                           "  \"std\": null,\n"
                           "  \"abs_max\": null,\n"
                           "  \"histogram\": {\n"
                           "    \"min\": null,\n"
                           "    \"max\": null,\n"
                           "    \"counts\": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
                           "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n"
                           "  }\n"
                           "}\n");
    free(text);
}

/* A file in a mount has a size before anybody computed what is in it. */
START_TEST(a_file_is_as_long_whatever_the_values_are) {
    static const struct bpk_stats none;
    const uint64_t dims[] = {1000};
    const struct bpk_array array = {{.kind = BPK_F64}, 1, dims, 8000};
    struct bpk_stats all[] = {
        none,
        STATS_OF(BPK_F64, double, NAN, INFINITY),
        STATS_OF(BPK_F64, double, -DBL_MIN, -DBL_MAX / 3, 1.0 / 3),
        STATS_OF(BPK_I64, int64_t, INT64_MIN, INT64_MAX),
        STATS_OF(BPK_U64, uint64_t, UINT64_MAX, 1),
    };
    struct bpk_outbuf first = {.counting = true};
    all[0].count = BPK_MAX_TENSOR;
    all[0].zeros = BPK_MAX_TENSOR;
    all[0].histogram[3] = BPK_MAX_TENSOR;
    bpk_stats_json(&first, str("t"), &array, &all[0]);
    for (size_t i = 1; i < sizeof(all) / sizeof(all[0]); i++) {
        struct bpk_outbuf out = {.counting = true};
        bpk_stats_json(&out, str("t"), &array, &all[i]);
        ck_assert_uint_eq(out.len, first.len);
    }
}

START_TEST(no_element) {
    struct memory memory = {.bytes = NULL};
    struct bpk_stats s;
    for (int kind = BPK_F64; kind <= BPK_BOOL; kind++) {
        ck_assert_int_eq(
            compute_with(&memory, (struct bpk_dtype){.kind = (enum bpk_kind)kind}, 0, 0, &s, NULL),
            0);
        ck_assert(s.count == 0 && s.finite == 0 && s.max == 0);
    }
    ck_assert_uint_eq(atomic_load(&memory.reads), 0);
}

/* Beyond 2^53 as strings, and exact. */
START_TEST(integers_at_their_limits) {
    struct bpk_stats s = STATS_OF(BPK_I64, int64_t, INT64_MIN, 0, INT64_MAX - 1);
    char *text = json_of((struct bpk_dtype){.kind = BPK_I64}, &s);
    ck_assert_ptr_nonnull(strstr(text, "\n  \"min\": \"-9223372036854775808\",\n"
                                       "  \"max\": \"9223372036854775806\",\n"
                                       "  \"mean\": 0.0,\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n  \"abs_max\": \"9223372036854775808\",\n"));
    ck_assert_ptr_nonnull(strstr(text, "    \"min\": -9.223372036854776e+18,\n"
                                       "    \"max\": 9.223372036854776e+18,\n"
                                       "    \"counts\": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
                                       "0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]\n"
                                       "  }\n}\n"));
    free(text);
    s = STATS_OF(BPK_U64, uint64_t, UINT64_MAX, UINT64_MAX - 1);
    text = json_of((struct bpk_dtype){.kind = BPK_U64}, &s);
    ck_assert_ptr_nonnull(strstr(text, "\n  \"min\": \"18446744073709551614\",\n"
                                       "  \"max\": \"18446744073709551615\",\n"));
    free(text);
    s = STATS_OF(BPK_I32, int32_t, INT32_MIN, INT32_MAX);
    ck_assert(s.integer_min == INT32_MIN && s.integer_max == INT32_MAX);
    s = STATS_OF(BPK_U32, uint32_t, 7, UINT32_MAX);
    ck_assert(s.integer_min == 7 && s.integer_max == UINT32_MAX);
    s = STATS_OF(BPK_I16, int16_t, INT16_MIN, 5);
    ck_assert(s.is_integer && s.integer_min == INT16_MIN && s.integer_max == 5);
}

/* Sums and squares beyond float64, means and deviations that are not. */
START_TEST(floats_at_their_limits) {
    struct bpk_stats s = STATS_OF(BPK_F64, double, 0x1p1023, 0x1p1023 * 1.5);
    ck_assert_double_eq(s.mean, 0x1p1023 * 1.25);
    ck_assert_double_eq(s.std, 0x1p1021);
    s = STATS_OF(BPK_F64, double, -0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023, 0, 0);
    ck_assert_double_eq(s.mean, 0);
    ck_assert_double_eq_tol(s.std / 0x1p1023, sqrt(2), 1e-15);
    ck_assert_uint_eq(s.histogram[0], 1);
    ck_assert_uint_eq(s.histogram[16], 2);
    ck_assert_uint_eq(s.histogram[31], 1);
    s = STATS_OF(BPK_F64, double, 0, 0x1p-1074, 0x1p-1069);
    ck_assert_double_eq(s.max, 0x1p-1069);
    ck_assert_uint_eq(s.histogram[0], 1);
    ck_assert_uint_eq(s.histogram[1], 1);
    ck_assert_uint_eq(s.histogram[31], 1);
    s = STATS_OF(BPK_F32, float, -0x1.fffffep127F, 0x1.fffffep127F);
    ck_assert_double_eq(s.std, 0x1.fffffep127);
    s = STATS_OF(BPK_F32, float, 0x1p-149F, 0x1p-148F);
    ck_assert_double_eq(s.min, 0x1p-149);
    ck_assert_uint_eq(s.histogram[0] + s.histogram[31], 2);
}

START_TEST(a_single_value) {
    float values[5000];
    for (int i = 0; i < 5000; i++)
        values[i] = 0.1F;
    struct bpk_stats s = stats_of((struct bpk_dtype){.kind = BPK_F32}, values, sizeof(values), 1);
    ck_assert_double_eq(s.mean, 0.1F);
    ck_assert_double_eq(s.std, 0);
    ck_assert_double_eq(s.bins_min, 0.1F - 0.5);
    ck_assert_double_eq(s.bins_max, 0.1F + 0.5);
    ck_assert_uint_eq(s.histogram[16], 5000);
    s = STATS_OF(BPK_F32, float, -0.0F);
    char *text = json_of((struct bpk_dtype){.kind = BPK_F32}, &s);
    ck_assert_ptr_nonnull(strstr(text, "\"min\": 0.0,\n  \"max\": 0.0,\n  \"mean\": 0.0,\n"));
    free(text);
}

/* A mean far from zero must not eat the deviation. */
START_TEST(small_deviation_of_large_values) {
    static double values[100000];
    for (int i = 0; i < 100000; i++)
        values[i] = 1e9 + (i % 2);
    struct bpk_stats s = stats_of((struct bpk_dtype){.kind = BPK_F64}, values, sizeof(values), 2);
    ck_assert_double_eq_tol(s.mean, 1e9 + 0.5, 1e-6);
    ck_assert_double_eq_tol(s.std, 0.5, 1e-12);
    /* Nor where what comes before is near zero. */
    for (int i = 0; i < 100000; i++)
        values[i] = (i / 50000 == 0 ? 1 : 1e9) + (i % 2);
    s = stats_of((struct bpk_dtype){.kind = BPK_F64}, values, sizeof(values), 2);
    ck_assert_double_eq_tol(s.std, (1e9 - 1) / 2, 1e-6);
}

START_TEST(bools) {
    const uint8_t bytes[] = {0, 1, 2, 255, 0, 0};
    struct bpk_stats s = stats_of((struct bpk_dtype){.kind = BPK_BOOL}, bytes, sizeof(bytes), 1);
    ck_assert(s.is_integer && s.zeros == 3 && s.integer_max == 1 && s.mean == 0.5);
    const uint32_t words[] = {0, 1, 0x100, 0};
    s = stats_of((struct bpk_dtype){.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32}, words,
                 sizeof(words), 1);
    ck_assert(s.count == 4 && s.zeros == 2 && s.integer_min == 0 && s.mean == 0.5);
}

/* ---- many values ----------------------------------------------------------------------------- */

static const struct bpk_dtype dtypes[] = {
    {.kind = BPK_F64}, {.kind = BPK_F32},  {.kind = BPK_FLEX32},
    {.kind = BPK_F16}, {.kind = BPK_BF16}, {.kind = BPK_I64},
    {.kind = BPK_I32}, {.kind = BPK_I16},  {.kind = BPK_I8},
    {.kind = BPK_U64}, {.kind = BPK_U32},  {.kind = BPK_U16},
    {.kind = BPK_U8},  {.kind = BPK_BOOL}, {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32},
};

enum { MANY = (5 << 20) + 8 };

static uint8_t *random_bytes(void) {
    uint8_t *bytes = malloc(MANY);
    uint64_t state = 1;
    for (size_t i = 0; i < MANY; i += 8) {
        uint64_t number = suite_random(&state);
        memcpy(bytes + i, &number, 8);
    }
    return bytes;
}

/* To the last bit, chunks being what they are. */
START_TEST(any_number_of_threads) {
    static const unsigned numbers[] = {2, 3, 8, 0};
    uint8_t *bytes = random_bytes();
    struct bpk_stats one = stats_of(dtypes[_i], bytes, MANY, 1);
    char *expected = json_of(dtypes[_i], &one);
    uint64_t sum = 0;
    for (int i = 0; i < BPK_STATS_BINS; i++)
        sum += one.histogram[i];
    ck_assert_uint_eq(one.count, MANY / bpk_dtype_size(&dtypes[_i]));
    ck_assert_uint_eq(one.finite + one.nan + one.pos_inf + one.neg_inf, one.count);
    ck_assert_uint_eq(sum, one.finite);
    for (int i = 0; i < ROWS(numbers); i++) {
        struct bpk_stats more = stats_of(dtypes[_i], bytes, MANY, numbers[i]);
        char *text = json_of(dtypes[_i], &more);
        ck_assert_str_eq(text, expected);
        free(text);
    }
    free(expected);
    free(bytes);
}

/* What is not finite is rare, as in a checkpoint that goes wrong: it takes nothing else with it. */
START_TEST(a_few_that_are_not_finite) {
    static float values[1 << 20];
    const uint64_t count = ROWS(values);
    const struct bpk_dtype f32 = {.kind = BPK_F32};
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(i % 1000) - 499.5F;
    struct bpk_stats before = stats_of(f32, values, sizeof(values), 2);
    float *places[] = {&values[0], &values[count / 2 + 1], &values[count - 1]};
    const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < ROWS(places); i++)
        for (int k = 0; k < ROWS(odd); k++) {
            float kept = *places[i];
            *places[i] = odd[k];
            struct bpk_stats s = stats_of(f32, values, sizeof(values), 2);
            *places[i] = kept;
            ck_assert_uint_eq(s.finite, count - 1);
            ck_assert_uint_eq(s.nan, k == 0);
            ck_assert_uint_eq(s.pos_inf, k == 1);
            ck_assert_uint_eq(s.neg_inf, k == 2);
            ck_assert_double_eq(s.min, before.min);
            ck_assert_double_eq(s.max, before.max);
            double n = (double)count;
            ck_assert_double_eq_tol(s.mean * (n - 1), before.mean * n - kept, 1e-6);
            ck_assert_double_eq_tol(s.std, before.std, 1e-3);
        }
}

/* All else is the same, from one pass. */
START_TEST(without_histogram) {
    uint8_t *bytes = random_bytes();
    for (size_t i = 3; i < MANY; i += 4)
        bytes[i] = 0x3f;
    struct bpk_stats all = stats_of(dtypes[_i], bytes, MANY, 2);
    struct bpk_stats rest;
    struct memory memory = {.bytes = bytes, .size = MANY};
    const uint64_t count = MANY / bpk_dtype_size(&dtypes[_i]);
    const struct bpk_array array = {dtypes[_i], 1, &count, MANY};
    const struct bpk_source source = {read_memory, &memory};
    ck_assert_int_eq(bpk_stats_compute(&array, &source, 2, false, NULL, &rest, NULL), 0);
    ck_assert_uint_eq(memory.starts, 1);
    memset(all.histogram, 0, sizeof(all.histogram));
    memset(rest.histogram, 0, sizeof(rest.histogram));
    char *expected = json_of(dtypes[_i], &all);
    char *text = json_of(dtypes[_i], &rest);
    ck_assert_str_eq(text, expected);
    free(text);
    free(expected);
    free(bytes);
}

/* Counted by pattern, in pairs or one by one: the counts are the same, sums differ by their
 * rounding. */
START_TEST(few_and_many) {
    uint8_t *bytes = random_bytes();
    size_t size = bpk_dtype_size(&dtypes[_i]);
    struct bpk_stats few[2];
    size_t half = (size > 2 ? 4200 : 1 << 19) * size;
    struct bpk_stats many = stats_of(dtypes[_i], bytes, 2 * half, 1);
    few[0] = stats_of(dtypes[_i], bytes, half, 1);
    few[1] = stats_of(dtypes[_i], bytes + half, half, 1);
    ck_assert_uint_eq(many.nan, few[0].nan + few[1].nan);
    ck_assert_uint_eq(many.pos_inf, few[0].pos_inf + few[1].pos_inf);
    ck_assert_uint_eq(many.neg_inf, few[0].neg_inf + few[1].neg_inf);
    ck_assert_uint_eq(many.zeros, few[0].zeros + few[1].zeros);
    ck_assert_double_eq(many.min, fmin(few[0].min, few[1].min));
    ck_assert_double_eq(many.max, fmax(few[0].max, few[1].max));
    double mean = (few[0].mean * (double)few[0].finite + few[1].mean * (double)few[1].finite) /
                  (double)many.finite;
    if (dtypes[_i].kind != BPK_F64) /* some of them are beyond all bounds */
        ck_assert_double_eq_tol(many.mean / many.abs_max, mean / many.abs_max, 1e-14);
    free(bytes);
}

/* An odd number of bytes has no partner at its end. */
START_TEST(odd_number_of_bytes) {
    uint8_t *bytes = random_bytes();
    for (size_t i = 0; i < MANY; i++)
        bytes[i] &= 0x7f;
    bytes[(1 << 20) + 2] = 200;
    struct bpk_stats s = stats_of((struct bpk_dtype){.kind = BPK_U8}, bytes, (1 << 20) + 3, 3);
    ck_assert(s.integer_max == 200 && s.histogram[31] == 1);
    uint64_t zeros = 0;
    for (size_t i = 0; i < (1 << 20) + 3; i++)
        zeros += bytes[i] == 0;
    ck_assert_uint_eq(s.zeros, zeros);
    free(bytes);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static const struct {
    struct bpk_dtype dtype;
    uint64_t count;
    uint64_t size;
    int error;
    const char *sentence;
} misfits[] = {
    {{.kind = BPK_F32}, 3, 8, -EINVAL, "has 8 bytes, but shape [3] of F32 needs 12"},
    {{.kind = BPK_F64}, UINT64_MAX, 8, -EINVAL, "has 8 bytes, but the size of shape"},
    {{.kind = BPK_QFLOAT,
      .scheme = {.value = BPK_Q8F,
                 .store = BPK_STORE_NATIVE,
                 .has_block = true,
                 .block_scale = BPK_SCALE_F32,
                 .block_len = 1,
                 .block_dims = {0}}},
     4,
     8,
     -EINVAL,
     ""},
};

START_TEST(shape_and_length_disagree) {
    struct memory memory = {.bytes = NULL, .size = misfits[_i].size};
    struct bpk_stats stats = {.count = 77};
    struct bpk_diag diag = {0};
    int r = compute_with(&memory, misfits[_i].dtype, misfits[_i].count, 1, &stats, &diag);
    ck_assert_int_eq(r, misfits[_i].error);
    ck_assert_ptr_nonnull(strstr(diag.sentence, misfits[_i].sentence));
    ck_assert(diag.sentence[0] && stats.count == 77 && memory.reads == 0);
}

START_TEST(source_fails) {
    uint8_t *bytes = random_bytes();
    struct bpk_stats stats = {.count = 77};
    unsigned at = 1;
    for (;; at++) {
        struct memory memory = {.bytes = bytes, .size = MANY, .fails_at = at};
        int r =
            compute_with(&memory, dtypes[_i], MANY / bpk_dtype_size(&dtypes[_i]), 2, &stats, NULL);
        if (r == 0)
            break;
        ck_assert_int_eq(r, -EIO);
        ck_assert_uint_eq(stats.count, 77);
    }
    ck_assert_uint_gt(at, 10);
    free(bytes);
}

START_TEST(cancelled) {
    uint8_t *bytes = random_bytes();
    struct bpk_stats stats;
    for (unsigned at = 1; at < 9; at++) {
        struct memory memory = {.bytes = bytes, .size = MANY, .cancels_at = at};
        ck_assert_int_eq(
            compute_with(&memory, dtypes[_i], MANY / bpk_dtype_size(&dtypes[_i]), 1, &stats, NULL),
            -EINTR);
        ck_assert_uint_le(atomic_load(&memory.reads), at + 8); /* hardly any after that */
    }
    free(bytes);
}

/* Somebody writes between the two passes: whatever comes out, nothing is touched that is not ours.
 */
START_TEST(other_bytes_in_the_second_pass) {
    uint8_t *bytes = random_bytes();
    struct bpk_stats stats;
    for (size_t i = 0; i < MANY; i++)
        bytes[i] = i % 4 == 3 ? 0x3f : bytes[i];
    struct memory memory = {.bytes = bytes, .size = MANY, .flips = 0xff};
    ck_assert_int_eq(
        compute_with(&memory, dtypes[_i], MANY / bpk_dtype_size(&dtypes[_i]), 1, &stats, NULL), 0);
    free(bytes);
}

START_TEST(no_memory) {
    uint8_t *bytes = random_bytes();
    struct bpk_stats stats = {.count = 77};
    struct bpk_diag diag;
    long at = 0;
    for (;; at++) {
        struct memory memory = {.bytes = bytes, .size = MANY};
        diag.sentence[0] = '\0';
        countdown = at;
        failed = false;
        int r =
            compute_with(&memory, dtypes[_i], MANY / bpk_dtype_size(&dtypes[_i]), 1, &stats, &diag);
        countdown = -1;
        if (r == 0 && !failed)
            break;
        ck_assert_int_eq(r, -ENOMEM);
        ck_assert_str_eq(diag.sentence, "out of memory");
        ck_assert_uint_eq(stats.count, 77);
    }
    ck_assert_int_gt(at, 3);
    free(bytes);
}

int main(void) {
    Suite *suite = suite_create("stats");
    TCase *tc = suite_case(suite, "values");
    tcase_add_test(tc, what_is_not_finite);
    tcase_add_test(tc, nothing_finite);
    tcase_add_test(tc, a_file_is_as_long_whatever_the_values_are);
    tcase_add_test(tc, no_element);
    tcase_add_test(tc, integers_at_their_limits);
    tcase_add_test(tc, floats_at_their_limits);
    tcase_add_test(tc, a_single_value);
    tcase_add_test(tc, small_deviation_of_large_values);
    tcase_add_test(tc, bools);
    tc = suite_case(suite, "many values");
    tcase_add_loop_test(tc, any_number_of_threads, 0, ROWS(dtypes));
    tcase_add_test(tc, a_few_that_are_not_finite);
    tcase_add_loop_test(tc, without_histogram, 0, ROWS(dtypes));
    tcase_add_loop_test(tc, few_and_many, 0, ROWS(dtypes));
    tcase_add_test(tc, odd_number_of_bytes);
    tc = suite_case(suite, "errors");
    tcase_add_loop_test(tc, shape_and_length_disagree, 0, ROWS(misfits));
    tcase_add_loop_test(tc, source_fails, 0, ROWS(dtypes));
    tcase_add_loop_test(tc, cancelled, 0, ROWS(dtypes));
    tcase_add_loop_test(tc, other_bytes_in_the_second_pass, 0, ROWS(dtypes));
    tcase_add_loop_test(tc, no_memory, 0, ROWS(dtypes));
    return suite_run(suite);
}
