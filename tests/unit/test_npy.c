/* npy: headers as NumPy 1.24 and 2 write them. Lengths and texts are NumPy's own. */
#include "view/npy.h"

#include "suite.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

#define RANK 40

static const struct {
    const char *descr;
    uint32_t rank;
    uint64_t dims[RANK];
    const char *text;
    size_t size; /* of the whole header */
} rows[] = {
    {"<f4", 0, {0}, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 128},
    {"|b1", 1, {0}, "{'descr': '|b1', 'fortran_order': False, 'shape': (0,), }", 128},
    {"<V2",
     4,
     {64, 1, 3, 3},
     "{'descr': '<V2', 'fortran_order': False, 'shape': (64, 1, 3, 3), }",
     128},
    {"<i8",
     1,
     {UINT64_MAX},
     "{'descr': '<i8', 'fortran_order': False, 'shape': (18446744073709551615,), }",
     128},
    /* 2 bytes of padding, then none are left: NumPy adds 64 */
    {"<f4",
     14,
     {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
     "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, "
     "2), "
     "}",
     128},
    {"<f4",
     14,
     {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 200},
     "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, "
     "200), }",
     192},
    /* the room to grow counts: with the digits of the first dimension taken from it */
    {"<f4",
     14,
     {200, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
     "{'descr': '<f4', 'fortran_order': False, 'shape': (200, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, "
     "2), }",
     128},
};

START_TEST(headers_are_numpys) {
    _cleanup_outbuf_ struct bpk_outbuf out = {0};
    bpk_npy_header(&out, rows[_i].descr, rows[_i].dims, rows[_i].rank);
    ck_assert(!out.failed);
    ck_assert_uint_eq(out.len, rows[_i].size);
    ck_assert_mem_eq(out.text, "\x93NUMPY\1\0", 8);
    ck_assert_int_eq((unsigned char)out.text[8], (int)rows[_i].size - 10);
    ck_assert_int_eq(out.text[9], 0);
    size_t len = strlen(rows[_i].text);
    ck_assert_mem_eq(out.text + 10, rows[_i].text, len);
    for (size_t i = 10 + len; i < out.len - 1; i++)
        ck_assert_int_eq(out.text[i], ' ');
    ck_assert_int_eq(out.text[out.len - 1], '\n');
}

START_TEST(counting_gives_the_size) {
    struct bpk_outbuf out = {.counting = true};
    bpk_npy_header(&out, rows[_i].descr, rows[_i].dims, rows[_i].rank);
    ck_assert_uint_eq(out.len, rows[_i].size);
}

/* 65,535 bytes of text are the last that format 1.0 takes; padding makes that 65,526. */
START_TEST(long_headers_are_of_format_2) {
    static const struct {
        uint32_t rank;
        const char *start;
        size_t start_size;
        size_t size;
    } sizes[] = {{21800, "\x93NUMPY\1\0\xf6\xff", 10, 65536},
                 {21844, "\x93NUMPY\2\0\x74\0\1\0", 12, 65664}};
    uint64_t *dims = malloc(sizes[_i].rank * sizeof(*dims));
    ck_assert_ptr_nonnull(dims);
    for (uint32_t i = 0; i < sizes[_i].rank; i++)
        dims[i] = 2;
    _cleanup_outbuf_ struct bpk_outbuf out = {0};
    bpk_npy_header(&out, "<f4", dims, sizes[_i].rank);
    free(dims);
    ck_assert_uint_eq(out.len, sizes[_i].size);
    ck_assert_mem_eq(out.text, sizes[_i].start, sizes[_i].start_size);
    ck_assert_int_eq(out.text[sizes[_i].start_size], '{');
    ck_assert_mem_eq(out.text + out.len - 2, " \n", 2);
}

START_TEST(tensors_have_the_header_of_their_dtype) {
    static const uint64_t dims[] = {3, 4};
    static const struct {
        struct bpk_dtype dtype;
        const char *text;
    } arrays[] = {
        {{.kind = BPK_BF16}, "{'descr': '<V2', 'fortran_order': False, 'shape': (3, 4), }"},
        {{.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32},
         "{'descr': '<u4', 'fortran_order': False, 'shape': (3, 4), }"},
        {{.kind = BPK_QFLOAT}, "{'descr': '|u1', 'fortran_order': False, 'shape': (1234,), }"},
    };
    for (int i = 0; i < ROWS(arrays); i++) {
        _cleanup_outbuf_ struct bpk_outbuf out = {0};
        struct bpk_array array = {.dtype = arrays[i].dtype, .rank = 2, .dims = dims, .size = 1234};
        bpk_npy_array_header(&out, &array);
        ck_assert_uint_eq(out.len, 128);
        ck_assert_mem_eq(out.text + 10, arrays[i].text, strlen(arrays[i].text));
    }
}

int main(void) {
    Suite *suite = suite_create("npy");
    TCase *tc = suite_case(suite, "writing");
    tcase_add_loop_test(tc, headers_are_numpys, 0, ROWS(rows));
    tcase_add_loop_test(tc, counting_gives_the_size, 0, ROWS(rows));
    tcase_add_loop_test(tc, long_headers_are_of_format_2, 0, 2);
    tcase_add_test(tc, tensors_have_the_header_of_their_dtype);
    return suite_run(suite);
}
