/* cbor_writer: shortest heads, floats as short as keeps every bit, dtypes byte for byte as Burn's
 * writers spell them (format.md 2.1, 2.3, 2.5). */
#include "pack/cbor_writer.h"

#include "cborinput.h"
#include "pack/dtype_cbor.h"
#include "suite.h"

#include <math.h>
#include <string.h>

/* Whether the buffer holds these bytes; clears it. */
static bool out_is(struct bpk_outbuf *out, const char *hex) {
    struct bytes expected = bytes_from_hex(hex);
    bool same = !out->failed && out->len == expected.len &&
                memcmp(out->text, expected.data, expected.len) == 0;
    bytes_clear(&expected);
    bpk_outbuf_clear(out);
    return same;
}

/* ---- heads ----------------------------------------------------------------------------------- */

static const struct {
    uint64_t value;
    const char *argument; /* of major type 0; others differ in the top three bits */
} heads[] = {
    {0, "00"},
    {1, "01"},
    {23, "17"},
    {24, "1818"},
    {255, "18ff"},
    {256, "190100"},
    {65535, "19ffff"},
    {65536, "1a00010000"},
    {UINT32_MAX, "1affffffff"},
    {UINT64_C(1) << 32, "1b0000000100000000"},
    {INT64_MAX, "1b7fffffffffffffff"},
    {UINT64_MAX, "1bffffffffffffffff"},
};

/* The bytes of the row under another major type. */
static void check_head(struct bpk_outbuf *out, int row, uint8_t major) {
    struct bytes expected = bytes_from_hex(heads[row].argument);
    expected.data[0] |= major;
    ck_assert_uint_eq(out->len, expected.len);
    ck_assert_int_eq(memcmp(out->text, expected.data, expected.len), 0);
    bytes_clear(&expected);
    bpk_outbuf_clear(out);
}

START_TEST(heads_are_shortest) {
    struct bpk_outbuf out = {0};
    uint64_t value = heads[_i].value;
    bpk_cbor_out_uint(&out, value);
    check_head(&out, _i, 0x00);
    bpk_cbor_out_array(&out, value);
    check_head(&out, _i, 0x80);
    bpk_cbor_out_map(&out, value);
    check_head(&out, _i, 0xa0);
    if (value > INT64_MAX)
        return;
    bpk_cbor_out_int(&out, (int64_t)value);
    check_head(&out, _i, 0x00);
    bpk_cbor_out_int(&out, -1 - (int64_t)value);
    check_head(&out, _i, 0x20);
}

START_TEST(texts_have_shortest_lengths) {
    static const size_t lengths[] = {0, 1, 23, 24, 255, 256, 65535, 65536};
    char *text = malloc(65536);
    memset(text, 'x', 65536);
    for (int i = 0; i < ROWS(lengths); i++) {
        struct bpk_outbuf out = {0};
        struct bytes expected = {0};
        cbor_text_n(&expected, text, lengths[i]);
        bpk_cbor_out_text(&out, (struct bpk_str){text, lengths[i]});
        ck_assert_uint_eq(out.len, expected.len);
        ck_assert_int_eq(memcmp(out.text, expected.data, expected.len), 0);
        bytes_clear(&expected);
        bpk_outbuf_clear(&out);
    }
    free(text);
}

START_TEST(simple_values) {
    struct bpk_outbuf out = {0};
    bpk_cbor_out_cstring(&out, "tensors");
    ck_assert(out_is(&out, "67 74656e736f7273"));
    bpk_cbor_out_text(&out, (struct bpk_str){"a\0b", 3});
    ck_assert(out_is(&out, "63 610062"));
    bpk_cbor_out_text(&out, (struct bpk_str){NULL, 0});
    ck_assert(out_is(&out, "60"));
    bpk_cbor_out_bool(&out, true);
    bpk_cbor_out_bool(&out, false);
    bpk_cbor_out_null(&out);
    ck_assert(out_is(&out, "f5f4f6"));
    bpk_cbor_out_int(&out, -3);
    ck_assert(out_is(&out, "22"));
    bpk_cbor_out_int(&out, INT64_MIN);
    ck_assert(out_is(&out, "3b7fffffffffffffff"));
}

/* ---- floats ---------------------------------------------------------------------------------- */

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static const struct {
    uint64_t bits;
    const char *hex;
} floats[] = {
    {0x3fe0000000000000, "f93800"},             /* 0.5 */
    {0x3fb99999a0000000, "fa3dcccccd"},         /* 0.1f32 */
    {0x3f50624dd2f1a9fc, "fb3f50624dd2f1a9fc"}, /* 0.001 */
    {0x40effc0000000000, "f97bff"},             /* 65504 */
    {0x40effc2000000000, "fa477fe100"},         /* 65505 */
    {0x0000000000000000, "f90000"},             /* 0 */
    {0x8000000000000000, "f98000"},             /* -0 */
    {0x7ff0000000000000, "f97c00"},             /* inf */
    {0xfff0000000000000, "f9fc00"},             /* -inf */
    {0x7ff8000000000000, "f97e00"},             /* NaN */
    {0xfff8000000000000, "f9fe00"},             /* -NaN */
    {0x7ff8000000000001, "fb7ff8000000000001"}, /* a NaN with a payload that no shorter one has */
    {0x7ff0000000000001, "fb7ff0000000000001"}, /* a signalling one */
    {0x3e70000000000000, "f90001"},             /* 2^-24, the least half */
    {0x3e60000000000000, "fa33000000"},         /* 2^-25 */
    {0x3f0ff80000000000, "f903ff"},             /* the largest subnormal half */
    {0x3f10000000000000, "f90400"},             /* the least normal half */
    {0x36a0000000000000, "fa00000001"},         /* 2^-149, the least single */
    {0x3690000000000000, "fb3690000000000000"}, /* 2^-150 */
    {0x380fffffc0000000, "fa007fffff"},         /* the largest subnormal single */
    {0x47efffffe0000000, "fa7f7fffff"},         /* the largest single */
    {0x47efffffe0000001, "fb47efffffe0000001"},
    {0x47f0000000000000, "fb47f0000000000000"}, /* 2^128 */
    {0x0000000000000001, "fb0000000000000001"}, /* 5e-324 */
    {0x7fefffffffffffff, "fb7fefffffffffffff"},
};

START_TEST(floats_of_format_md) {
    struct bpk_outbuf out = {0};
    bpk_cbor_out_float(&out, floats[_i].bits);
    ck_assert(out_is(&out, floats[_i].hex));
}

/* What is read back from the bytes. */
static bool reads_back(const struct bpk_outbuf *out, uint64_t bits) {
    struct bpk_diag diag;
    struct bpk_cbor cbor = {.data = (uint8_t *)out->text, .size = out->len, .diag = &diag};
    uint64_t got;
    return bpk_cbor_float(&cbor, &got) == 0 && got == bits && cbor.pos == out->len;
}

/* Whether another width could hold it: by converting, as the machine does. Quiet NaNs are left to
 * the table. */
static size_t shortest(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    if ((double)(float)value != value)
        return 9;
    double scaled = fabs(value);
    if (isinf(value) || value == 0)
        return 3;
    int exponent;
    (void)frexp(scaled, &exponent); /* value = m * 2^exponent, 0.5 <= m < 1 */
    int unit = exponent - 11 > -24 ? exponent - 11 : -24;
    double units = ldexp(scaled, -unit);
    return exponent <= 16 && units == floor(units) ? 3 : 5;
}

START_TEST(random_floats_come_back_and_are_shortest) {
    uint64_t state = 5;
    struct bpk_outbuf out = {0};
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = suite_random(&state);
        /* Mostly with few bits of fraction, and exponents near where formats end. */
        unsigned zeros = (unsigned)(suite_random(&state) % 53);
        bits = bits >> zeros << zeros;
        if (i % 3 != 0) {
            uint64_t exponent = 1023 - 160 + suite_random(&state) % 320;
            bits = (bits & UINT64_C(0x800fffffffffffff)) | exponent << 52;
        }
        out.len = 0;
        bpk_cbor_out_float(&out, bits);
        HOLDS(reads_back(&out, bits));
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (!isnan(value))
            HOLDS(out.len == shortest(bits));
    }
    bpk_outbuf_clear(&out);
}

/* Every half and every 1000th single, widened. */
START_TEST(all_halves_take_three_bytes) {
    struct bpk_outbuf out = {0};
    for (uint32_t half = 0; half < 65536; half++) {
        struct bpk_diag diag;
        uint8_t bytes[3] = {0xf9, (uint8_t)(half >> 8), (uint8_t)half};
        struct bpk_cbor cbor = {.data = bytes, .size = 3, .diag = &diag};
        uint64_t bits;
        HOLDS(bpk_cbor_float(&cbor, &bits) == 0);
        bool signalling = (half & 0x7c00) == 0x7c00 && (half & 0x3ff) && !(half & 0x200);
        if (signalling)
            continue;
        out.len = 0;
        bpk_cbor_out_float(&out, bits);
        HOLDS(out.len == 3 && memcmp(out.text, bytes, 3) == 0);
    }
    for (uint64_t single = 0; single <= UINT32_MAX; single += 9973) {
        float value;
        uint32_t narrow = (uint32_t)single;
        memcpy(&value, &narrow, sizeof(value));
        if (isnan(value))
            continue;
        out.len = 0;
        bpk_cbor_out_float(&out, bits_of((double)value));
        HOLDS(out.len <= 5 && reads_back(&out, bits_of((double)value)));
    }
    bpk_outbuf_clear(&out);
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static const char *const dtypes[] = {
    "63463634",
    "63463332",
    "66466c65783332",
    "63463136",
    "6442463136",
    "63493634",
    "63493332",
    "63493136",
    "624938",
    "63553634",
    "63553332",
    "63553136",
    "625538",
    "64426f6f6c",
    "a164426f6f6c664e6174697665",
    "a164426f6f6c625538",
    "a164426f6f6c63553332",
    /* A default, A block 32, B default, C two-level, D default, D two-level, D lookup */
    "a16651466c6f6174a56576616c75656351384665706172616d634633326573746f726563553332656c6576656c6654"
    "656e736f72646d6f64656953796d6d6574726963",
    "a16651466c6f6174a56576616c75656351385365706172616d634633326573746f7265664e6174697665656c657665"
    "6ca165426c6f636ba26773746f7261676585182001010101636c656e01646d6f64656953796d6d6574726963",
    "a16651466c6f6174a56576616c75656351384665706172616d634633326573746f7265a1695061636b656455333200"
    "656c6576656c6654656e736f72646d6f64656953796d6d6574726963",
    "a16651466c6f6174a56576616c75656351385365706172616d655545344d336573746f7265664e6174697665656c65"
    "76656ca16b426c6f636b54656e736f72a265626c6f636ba26773746f72616765851001010101636c656e0166676c6f"
    "62616c63463332646d6f64656953796d6d6574726963",
    "a16651466c6f6174a56576616c7565635138466573746f7265a1695061636b656455333200646d6f64656953796d6d"
    "65747269636674656e736f72f665626c6f636bf6",
    "a16651466c6f6174a56576616c7565635138536573746f7265664e6174697665646d6f64656953796d6d6574726963"
    "6674656e736f726346333265626c6f636ba26473697a65a26773746f72616765851001010101636c656e0165647479"
    "7065655545344d33",
    "a16651466c6f6174a56576616c7565635134466573746f7265a1695061636b656455333201646d6f6465664c6f6f6b"
    "75706674656e736f72f665626c6f636ba26473697a65a26773746f7261676585182001010101636c656e0165647479"
    "706563463136",
};

START_TEST(dtypes_come_out_as_they_went_in) {
    struct input in;
    struct bpk_dtype dtype;
    uint32_t head;
    struct bpk_outbuf out = {0};
    input_hex(&in, dtypes[_i]);
    ck_assert_int_eq(bpk_dtype_parse(&in.cbor, 100, &dtype, &head), 0);
    bpk_cbor_out_dtype(&out, &dtype);
    ck_assert(out_is(&out, dtypes[_i]));
    input_finish(&in);
}

/* Every scheme of the newest form that can be written is read as what it was. */
START_TEST(random_schemes_come_back) {
    uint64_t state = 11;
    for (int i = 0; i < 20000; i++) {
        struct bpk_scheme scheme = {.form = BPK_SCHEME_SCALED};
        scheme.value = suite_random(&state) % (BPK_Q2S + 1);
        scheme.store = suite_random(&state) % (BPK_STORE_PACKED_U32 + 1);
        scheme.mode = suite_random(&state) % 2;
        if (scheme.store != BPK_STORE_NATIVE)
            scheme.packed_dim = suite_random(&state) >> suite_random(&state) % 64;
        scheme.has_tensor = suite_random(&state) % 2;
        if (scheme.has_tensor)
            scheme.tensor_scale = suite_random(&state) % (BPK_SCALE_UE4M3 + 1);
        scheme.has_block = suite_random(&state) % 2;
        if (scheme.has_block) {
            scheme.block_scale = suite_random(&state) % (BPK_SCALE_UE4M3 + 1);
            scheme.block_len = (uint8_t)suite_random(&state);
            for (int k = 0; k < 5; k++)
                scheme.block_dims[k] = (uint8_t)suite_random(&state);
        }
        struct bpk_dtype dtype = {.kind = BPK_QFLOAT, .scheme = scheme};
        struct bpk_dtype got;
        struct bpk_outbuf out = {0};
        struct bpk_outbuf again = {0};
        struct bpk_diag diag;
        uint32_t head;
        bpk_cbor_out_dtype(&out, &dtype);
        struct bpk_cbor cbor = {.data = (uint8_t *)out.text, .size = out.len, .diag = &diag};
        HOLDS(bpk_dtype_parse(&cbor, 100, &got, &head) == 0 && cbor.pos == out.len);
        bpk_cbor_out_dtype(&again, &got);
        HOLDS(again.len == out.len && memcmp(again.text, out.text, out.len) == 0);
        bpk_outbuf_clear(&out);
        bpk_outbuf_clear(&again);
    }
}

int main(void) {
    Suite *suite = suite_create("cbor_writer");
    TCase *tc = suite_case(suite, "heads");
    tcase_add_loop_test(tc, heads_are_shortest, 0, ROWS(heads));
    tcase_add_test(tc, texts_have_shortest_lengths);
    tcase_add_test(tc, simple_values);
    tc = suite_case(suite, "floats");
    tcase_add_loop_test(tc, floats_of_format_md, 0, ROWS(floats));
    tcase_add_test(tc, random_floats_come_back_and_are_shortest);
    tcase_add_test(tc, all_halves_take_three_bytes);
    tc = suite_case(suite, "dtypes");
    tcase_add_loop_test(tc, dtypes_come_out_as_they_went_in, 0, ROWS(dtypes));
    tcase_add_test(tc, random_schemes_come_back);
    return suite_run(suite);
}
