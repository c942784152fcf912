/* npy: headers as NumPy 1.24 and 2 write them (lengths and texts are NumPy's own), and read again.
 */
#include "view/npy.h"

#include "suite.h"

#include <errno.h>
#include <stdio.h>
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

/* ---- reading --------------------------------------------------------------------------------- */

/* A .npy header of `major`.0 around a text. */
static size_t compose(char *file, char major, const char *text) {
    size_t len = strlen(text);
    size_t start = major == 1 ? 10 : 12;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = major;
    file[7] = 0;
    for (size_t i = 8; i < start; i++)
        file[i] = (char)(len >> 8 * (i - 8));
    memcpy(file + start, text, len);
    return start + len;
}

START_TEST(what_is_written_is_read) {
    _cleanup_outbuf_ struct bpk_outbuf out = {0};
    struct bpk_npy npy;
    bool too_large = rows[_i].dims[0] > BPK_MAX_TENSOR;
    bpk_npy_header(&out, rows[_i].descr, rows[_i].dims, rows[_i].rank);
    int r = bpk_npy_parse(out.text, out.len, &npy, NULL);
    ck_assert_int_eq(r, too_large ? -EFBIG : 0);
    if (too_large)
        return;
    ck_assert_uint_eq(npy.header_size, out.len);
    ck_assert_str_eq(npy.descr, rows[_i].descr);
    ck_assert_uint_eq(npy.rank, rows[_i].rank);
    for (uint32_t i = 0; i < npy.rank; i++)
        ck_assert_uint_eq(npy.dims[i], rows[_i].dims[i]);
    ck_assert(!npy.is_fortran && !npy.is_big_endian);
}

#define TEXT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

static const struct {
    const char *text;
    char major;
    struct bpk_npy npy;
} good[] = {
    {TEXT("'<f8'", "False", "(3,)"), 1, {.kind = BPK_F64, .item_size = 8, .size = 24}},
    {TEXT("'>f8'", "False", "()"),
     1,
     {.kind = BPK_F64, .item_size = 8, .is_big_endian = true, .size = 8}},
    {TEXT("'=f4'", "True", "(2, 3)"),
     2,
     {.kind = BPK_F32, .item_size = 4, .is_fortran = true, .size = 24}},
    {TEXT("'f2'", "False", "(2,3,)"), 3, {.kind = BPK_F16, .item_size = 2, .size = 12}},
    {TEXT("'|V2'", "False", "( 2 , 3 )"), 1, {.kind = BPK_BF16, .item_size = 2, .size = 12}},
    {TEXT("'<V2'", "False", "()"), 1, {.kind = BPK_BF16, .item_size = 2, .size = 2}},
    {TEXT("\"<i8\"", "False", "(3L, 4L)"), 1, {.kind = BPK_I64, .item_size = 8, .size = 96}},
    {TEXT("'<i4'", "False", "(0,)"), 2, {.kind = BPK_I32, .item_size = 4, .size = 0}},
    {TEXT("'>i2'", "False", "(0,)"),
     1,
     {.kind = BPK_I16, .item_size = 2, .is_big_endian = true, .size = 0}},
    {TEXT("'>i1'", "False", "(1,)"), 1, {.kind = BPK_I8, .item_size = 1, .size = 1}},
    {TEXT("'<u8'", "False", "(1,)"), 1, {.kind = BPK_U64, .item_size = 8, .size = 8}},
    {TEXT("'<u4'", "False", "(1,)"), 1, {.kind = BPK_U32, .item_size = 4, .size = 4}},
    {TEXT("'<u2'", "False", "(1,)"), 1, {.kind = BPK_U16, .item_size = 2, .size = 2}},
    {TEXT("'|u1'", "False", "(1,)"), 1, {.kind = BPK_U8, .item_size = 1, .size = 1}},
    {TEXT("'|b1'", "False", "(1,)"), 1, {.kind = BPK_BOOL, .item_size = 1, .size = 1}},
    {"\n {\"shape\":(\n7,),\"descr\"\t:'<f4','fortran_order':False}  \n \n",
     3,
     {.kind = BPK_F32, .item_size = 4, .size = 28}},
    {"{'shape': (7,), 'descr': '<f4', 'fortran_order': False} ",
     1,
     {.kind = BPK_F32, .item_size = 4, .size = 28}},
    {TEXT("'|u1'", "False", "(10737418240,)"),
     1,
     {.kind = BPK_U8, .item_size = 1, .size = BPK_MAX_TENSOR}},
    {TEXT("'<f8'", "False", "(0, 18446744073709551615, 3)"),
     1,
     {.kind = BPK_F64, .item_size = 8, .size = 0}},
};

START_TEST(good_headers) {
    char file[400];
    size_t len = compose(file, good[_i].major, good[_i].text);
    struct bpk_npy npy;
    struct bpk_diag diag = {.code = 0};
    file[len] = '\xff'; /* the data, which is none of its business */
    int r = bpk_npy_parse(file, len + 1, &npy, &diag);
    ck_assert_msg(r == 0, "%s: %s", good[_i].text, diag.sentence);
    ck_assert_uint_eq(npy.header_size, len);
    ck_assert_int_eq(npy.kind, good[_i].npy.kind);
    ck_assert_uint_eq(npy.item_size, good[_i].npy.item_size);
    ck_assert_int_eq(npy.is_big_endian, good[_i].npy.is_big_endian);
    ck_assert_int_eq(npy.is_fortran, good[_i].npy.is_fortran);
    ck_assert_uint_eq(npy.size, good[_i].npy.size);
}

/* Dimensions in both spellings, up to NumPy's 64. */
START_TEST(shapes) {
    char file[1000];
    struct bpk_npy npy;
    size_t len = compose(file, 1, TEXT("'<i8'", "False", "(1L, 22, 333)"));
    ck_assert_int_eq(bpk_npy_parse(file, len, &npy, NULL), 0);
    ck_assert_uint_eq(npy.rank, 3);
    ck_assert(npy.dims[0] == 1 && npy.dims[1] == 22 && npy.dims[2] == 333);
    for (uint32_t rank = 64; rank <= 65; rank++) {
        _cleanup_outbuf_ struct bpk_outbuf out = {0};
        uint64_t dims[65];
        struct bpk_diag diag;
        for (uint32_t i = 0; i < rank; i++)
            dims[i] = 1;
        bpk_npy_header(&out, "|i1", dims, rank);
        ck_assert_int_eq(bpk_npy_parse(out.text, out.len, &npy, &diag), rank == 64 ? 0 : -EINVAL);
        if (rank == 64)
            ck_assert_uint_eq(npy.rank, 64);
        else
            ck_assert_str_eq(diag.sentence, "the array has more than NumPy's 64 dimensions");
    }
}

/* Every refusal says why, and where in the file. */
static const struct {
    const char *text;
    const char *sentence; /* a part of it */
    char major;
    int code;
    uint64_t offset;
} bad[] = {
    {TEXT("'<c16'", "False", "()"), "complex numbers ('<c16')", 1, -EINVAL, 20},
    {TEXT("'|O'", "False", "()"), "Python objects ('|O')", 1, -EINVAL, 20},
    {TEXT("'|S5'", "False", "()"), "byte strings ('|S5')", 1, -EINVAL, 20},
    {TEXT("'<U5'", "False", "()"), "text ('<U5')", 1, -EINVAL, 20},
    {TEXT("'<M8[ns]'", "False", "()"), "dates ('<M8[ns]')", 1, -EINVAL, 20},
    {TEXT("'<m8[s]'", "False", "()"), "time spans ('<m8[s]')", 1, -EINVAL, 20},
    {TEXT("'<f16'", "False", "()"), "long doubles ('<f16')", 1, -EINVAL, 20},
    {TEXT("'<f12'", "False", "()"), "long doubles ('<f12')", 1, -EINVAL, 20},
    {TEXT("'|V1'", "False", "()"), "raw items ('|V1')", 1, -EINVAL, 20},
    {TEXT("'>V2'", "False", "()"), "raw items ('>V2')", 1, -EINVAL, 20},
    {TEXT("'<f1'", "False", "()"), "floats of an unknown size ('<f1')", 1, -EINVAL, 20},
    {TEXT("'float32'", "False", "()"), "floats of an unknown size", 1, -EINVAL, 20},
    {TEXT("'2<f4'", "False", "()"), "items of an unknown dtype ('2<f4')", 1, -EINVAL, 20},
    {TEXT("''", "False", "()"), "items of an unknown dtype ('')", 1, -EINVAL, 20},
    {TEXT("'<'", "False", "()"), "items of an unknown dtype ('<')", 1, -EINVAL, 20},
    {TEXT("'<f44'", "False", "()"), "floats of an unknown size", 1, -EINVAL, 20},
    {TEXT("'<f4,<f4'", "False", "()"), "floats of an unknown size", 1, -EINVAL, 20},
    {TEXT("[('a', '<f4')]", "False", "()"), "is structured", 1, -EINVAL, 20},
    {TEXT("('<f4', (2,))", "False", "()"), "is structured", 1, -EINVAL, 20},
    {TEXT("None", "False", "()"), "a string is expected", 1, -EINVAL, 20},
    {TEXT("b'<f4'", "False", "()"), "a string is expected", 1, -EINVAL, 20},
    {TEXT("'\\x3cf4'", "False", "()"), "plain ASCII is expected", 1, -EINVAL, 21},
    {TEXT("'<f\xc3\xa9'", "False", "()"), "plain ASCII is expected", 3, -EINVAL, 25},
    {TEXT("'<f\n4'", "False", "()"), "plain ASCII is expected", 1, -EINVAL, 23},
    {TEXT("'<f4' 'x'", "False", "()"), "a comma or the end is expected", 1, -EINVAL, 26},
    {TEXT("'<f4'", "0", "()"), "True or False is expected", 1, -EINVAL, 44},
    {TEXT("'<f4'", "false", "()"), "True or False is expected", 1, -EINVAL, 44},
    {TEXT("'<f4'", "Falsely", "()"), "a comma or the end is expected", 1, -EINVAL, 49},
    {TEXT("'<f4'", "False", "3"), "a tuple is expected", 1, -EINVAL, 60},
    {TEXT("'<f4'", "False", "(3)"), "a tuple and no number", 1, -EINVAL, 63},
    {TEXT("'<f4'", "False", "[3]"), "a tuple is expected", 1, -EINVAL, 60},
    {TEXT("'<f4'", "False", "(-3,)"), "a plain number", 1, -EINVAL, 61},
    {TEXT("'<f4'", "False", "(03,)"), "a plain number", 1, -EINVAL, 63},
    {TEXT("'<f4'", "False", "(,)"), "a plain number", 1, -EINVAL, 61},
    {TEXT("'<f4'", "False", "(3,,)"), "a plain number", 1, -EINVAL, 63},
    {TEXT("'<f4'", "False", "(3 4)"), "a comma or the end of the tuple", 1, -EINVAL, 63},
    {TEXT("'<f4'", "False", "(3.0,)"), "a comma or the end of the tuple", 1, -EINVAL, 62},
    {TEXT("'<f4'", "False", "(3L,)"), "a comma or the end of the tuple", 3, -EINVAL, 64},
    {TEXT("'<f4'", "False", "(3LL,)"), "a comma or the end of the tuple", 1, -EINVAL, 63},
    {TEXT("'<f4'", "False", "(3, 4"), "a plain number", 1, -EINVAL, 67},
    {TEXT("'<f4'", "False", "(18446744073709551616,)"), "beyond 2^64", 1, -EFBIG, 61},
    {TEXT("'<f4'", "False", "(99999999999999999999999999,)"), "beyond 2^64", 1, -EFBIG, 61},
    {TEXT("'<f4'", "False", "(4294967296, 4294967296)"), "(10 GiB)", 1, -EFBIG, BPK_NO_OFFSET},
    {TEXT("'<f4'", "False", "(4611686018427387904,)"), "(10 GiB)", 1, -EFBIG, BPK_NO_OFFSET},
    {TEXT("'|u1'", "False", "(10737418241,)"), "(10 GiB)", 1, -EFBIG, BPK_NO_OFFSET},
    {"", "a dictionary is expected", 1, -EINVAL, 10},
    {"'x'\n", "a dictionary is expected", 1, -EINVAL, 10},
    {"{}\n", "has no 'descr'", 1, -EINVAL, 12},
    {"{,}\n", "a string is expected", 1, -EINVAL, 11},
    {"{'descr': '<f4', 'shape': ()}\n", "has no 'fortran_order'", 1, -EINVAL, 39},
    {"{'descr': '<f4', 'fortran_order': True}\n", "has no 'shape'", 1, -EINVAL, 49},
    {"{'descr': '<f4', 'descr': '<f4'}\n", "has a key twice", 1, -EINVAL, 27},
    {"{'descr': '<f4', 'extra': 1}\n", "has an unknown key", 1, -EINVAL, 27},
    {"{'descr' '<f4'}\n", "a colon is expected", 1, -EINVAL, 19},
    {"{'descr': '<f4' 'shape': ()}\n", "a comma or the end is expected", 1, -EINVAL, 26},
    {"{'descr", "the end of a string", 1, -EINVAL, 17},
    {TEXT("'<f4'", "False", "()") "x", "the end is expected", 1, -EINVAL, 66},
    {TEXT("'<f4'", "False", "()") " ", "the end is expected", 3, -EINVAL, 69},
};

START_TEST(bad_headers) {
    char file[400];
    size_t len = compose(file, bad[_i].major, bad[_i].text);
    struct bpk_npy npy = {.rank = 12345};
    struct bpk_diag diag = {.code = 0};
    ck_assert_int_eq(bpk_npy_parse(file, len, &npy, &diag), bad[_i].code);
    ck_assert_int_eq(diag.code, bad[_i].code);
    ck_assert_msg(strstr(diag.sentence, bad[_i].sentence), "%s: %s", bad[_i].text, diag.sentence);
    ck_assert_uint_eq(diag.offset, bad[_i].offset);
    ck_assert_uint_eq(npy.rank, 12345);
    ck_assert_int_eq(bpk_npy_parse(file, len, &npy, NULL), bad[_i].code);
}

START_TEST(what_is_shown_is_printable) {
    char file[400];
    struct bpk_npy npy;
    struct bpk_diag diag;
    size_t len =
        compose(file, 1, TEXT("'|S1234567890123456789012345678901234567890'", "False", "()"));
    ck_assert_int_eq(bpk_npy_parse(file, len, &npy, &diag), -EINVAL);
    ck_assert_str_eq(diag.sentence,
                     "the array holds byte strings ('|S12345678901234567890123456…'), "
                     "which no Burn tensor can");
}

START_TEST(other_files) {
    static const struct {
        const char *bytes;
        size_t len;
        int code;
        const char *sentence;
    } files[] = {
        {"", 0, -EAGAIN, ""},
        {"\x93", 1, -EAGAIN, ""},
        {"PK\3\4", 4, -EINVAL, "is no .npy file: it does not begin with \\x93NUMPY"},
        {"\x93NUMPZ", 6, -EINVAL, "is no .npy file: it does not begin with \\x93NUMPY"},
        {"\x93NUMPY\4\0", 8, -EINVAL, "version 4.0 of the .npy format is not known"},
        {"\x93NUMPY\0\0", 8, -EINVAL, "version 0.0 of the .npy format is not known"},
        {"\x93NUMPY\1\1", 8, -EINVAL, "version 1.1 of the .npy format is not known"},
        {"\x93NUMPY\1\0\x10\x27", 10, -EAGAIN, ""},
        {"\x93NUMPY\1\0\x11\x27", 10, -EINVAL,
         "the header of the .npy file is of 10001 bytes; NumPy reads at most 10000"},
        {"\x93NUMPY\2\0\xff\xff\xff\xff", 12, -EINVAL,
         "the header of the .npy file is of 4294967295 bytes; NumPy reads at most 10000"},
        {"\x93NUMPY\2\0\xff\xff", 10, -EAGAIN, ""},
    };
    for (int i = 0; i < ROWS(files); i++) {
        struct bpk_npy npy;
        struct bpk_diag diag = {.sentence = ""};
        ck_assert_int_eq(bpk_npy_parse(files[i].bytes, files[i].len, &npy, &diag), files[i].code);
        ck_assert_str_eq(diag.sentence, files[i].sentence);
    }
}

/* In a block of its own size, so that a sanitizer sees a read beyond it. */
static int parse_copy(const char *file, size_t len, struct bpk_npy *npy) {
    char *copy = malloc(len + !len);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, file, len);
    struct bpk_diag diag;
    int r = bpk_npy_parse(copy, len, npy, &diag);
    free(copy);
    return r;
}

START_TEST(every_prefix_wants_more) {
    char file[400];
    size_t len = compose(file, good[_i].major, good[_i].text);
    struct bpk_npy npy;
    for (size_t i = 0; i < len; i++)
        HOLDS(parse_copy(file, i, &npy) == -EAGAIN);
    HOLDS(parse_copy(file, len, &npy) == 0);
}

/* A text that ends anywhere, though the length says that it is whole: the dictionary is not. */
START_TEST(every_cut_text_is_refused) {
    char file[400];
    struct bpk_npy npy;
    size_t len = compose(file, 1, good[0].text);
    for (size_t i = 10; i < len - 1; i++) {
        file[8] = (char)(i - 10);
        HOLDS(parse_copy(file, i, &npy) == -EINVAL);
    }
}

/* One byte and two bytes changed at random: an answer or a refusal, and an answer within limits. */
START_TEST(changed_bytes) {
    uint64_t state = (uint64_t)_i;
    char file[400];
    size_t len = compose(file, good[_i].major, good[_i].text);
    for (int turn = 0; turn < 20000; turn++) {
        char changed[400];
        struct bpk_npy npy;
        memcpy(changed, file, len);
        for (uint64_t k = suite_random(&state) % 2 + 1; k > 0; k--) {
            static const char likely[] = "'\"(),:{}0123456789L \n\\";
            uint64_t random = suite_random(&state);
            changed[suite_random(&state) % len] =
                random & 256 ? (char)random : likely[random % (sizeof(likely) - 1)];
        }
        if (parse_copy(changed, len, &npy) == 0) {
            HOLDS(npy.rank <= BPK_NPY_MAX_RANK && npy.size <= BPK_MAX_TENSOR);
            HOLDS(npy.header_size <= len && npy.descr[0] != '\0');
        }
    }
}

/* ---- the dtype of a tensor ------------------------------------------------------------------- */

START_TEST(dtypes) {
    static const struct bpk_dtype flex = {.kind = BPK_FLEX32};
    static const struct bpk_dtype half = {.kind = BPK_F16};
    static const struct bpk_dtype brain = {.kind = BPK_BF16};
    static const struct bpk_dtype bytes = {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U8};
    static const struct bpk_dtype words = {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32};
    static const struct bpk_dtype quantised = {.kind = BPK_QFLOAT,
                                               .scheme = {.value = BPK_Q4S, .packed_dim = 7}};
    static const struct {
        const char *descr;
        const char *shape;
        const struct bpk_dtype *old;
        enum bpk_kind kind;
        enum bpk_bool_store bool_store;
        bool keeps_shape;
    } cases[] = {
        {"'<f4'", "(4,)", NULL, BPK_F32, 0, false},
        {"'<f4'", "(4,)", &flex, BPK_FLEX32, 0, false},
        {"'>f4'", "(4,)", &flex, BPK_FLEX32, 0, false},
        {"'<f8'", "(4,)", &flex, BPK_F64, 0, false},
        {"'|V2'", "(4,)", NULL, BPK_BF16, 0, false},
        {"'|V2'", "(4,)", &brain, BPK_BF16, 0, false},
        {"'<f2'", "(4,)", &brain, BPK_F16, 0, false},
        {"'<V2'", "(4,)", &half, BPK_BF16, 0, false},
        {"'|b1'", "(4,)", NULL, BPK_BOOL, BPK_BOOL_NATIVE, false},
        {"'|b1'", "(4,)", &bytes, BPK_BOOL, BPK_BOOL_U8, false},
        {"'|b1'", "(4,)", &words, BPK_BOOL, BPK_BOOL_NATIVE, false},
        {"'<u4'", "(4,)", &words, BPK_BOOL, BPK_BOOL_U32, false},
        {"'<u4'", "(4,)", NULL, BPK_U32, 0, false},
        {"'|u1'", "(4,)", &bytes, BPK_U8, 0, false},
        {"'|u1'", "(4,)", &quantised, BPK_QFLOAT, 0, true},
        {"'|u1'", "(4, 1)", &quantised, BPK_U8, 0, false},
        {"'|u1'", "()", &quantised, BPK_U8, 0, false},
        {"'|i1'", "(4,)", &quantised, BPK_I8, 0, false},
    };
    for (int i = 0; i < ROWS(cases); i++) {
        char file[400];
        char text[200];
        struct bpk_npy npy;
        struct bpk_dtype dtype;
        (void)snprintf(text, sizeof(text), TEXT("%s", "False", "%s"), cases[i].descr,
                       cases[i].shape);
        size_t len = compose(file, 1, text);
        ck_assert_int_eq(bpk_npy_parse(file, len, &npy, NULL), 0);
        ck_assert_int_eq(bpk_npy_dtype(&npy, cases[i].old, &dtype), cases[i].keeps_shape);
        ck_assert_int_eq(dtype.kind, cases[i].kind);
        if (dtype.kind == BPK_BOOL)
            ck_assert_int_eq(dtype.bool_store, cases[i].bool_store);
        if (dtype.kind == BPK_QFLOAT)
            ck_assert_uint_eq(dtype.scheme.packed_dim, 7);
    }
}

int main(void) {
    Suite *suite = suite_create("npy");
    TCase *tc = suite_case(suite, "writing");
    tcase_add_loop_test(tc, headers_are_numpys, 0, ROWS(rows));
    tcase_add_loop_test(tc, counting_gives_the_size, 0, ROWS(rows));
    tcase_add_loop_test(tc, long_headers_are_of_format_2, 0, 2);
    tcase_add_test(tc, tensors_have_the_header_of_their_dtype);
    tc = suite_case(suite, "reading");
    tcase_add_loop_test(tc, what_is_written_is_read, 0, ROWS(rows));
    tcase_add_loop_test(tc, good_headers, 0, ROWS(good));
    tcase_add_test(tc, shapes);
    tcase_add_loop_test(tc, bad_headers, 0, ROWS(bad));
    tcase_add_test(tc, what_is_shown_is_printable);
    tcase_add_test(tc, other_files);
    tcase_add_loop_test(tc, every_prefix_wants_more, 0, ROWS(good));
    tcase_add_test(tc, every_cut_text_is_refused);
    tcase_add_loop_test(tc, changed_bytes, 0, ROWS(good));
    tcase_add_test(tc, dtypes);
    return suite_run(suite);
}
