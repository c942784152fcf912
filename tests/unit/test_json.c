/* json: strings, integers beyond 2^53, doubles that come back bit by bit, dtypes, shapes
 * (semantics.md 2). */
#include "view/json.h"

#include "cborinput.h"
#include "pack/dtype_cbor.h"
#include "pack/text.h"

#include <stdio.h>

static void expect(struct bpk_outbuf *out, const char *text) {
    bpk_out(out, "", 1);
    if (out->failed || strcmp(out->text, text) != 0)
        ck_abort_msg("%s instead of %s", out->failed ? "nothing" : out->text, text);
    bpk_outbuf_clear(out);
}

/* ---- strings --------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    size_t len;
    const char *json;
} strings[] = {
    {"", 0, "\"\""},
    {"plain /text", 11, "\"plain /text\""},
    {"\"\\", 2, "\"\\\"\\\\\""},
    {"\n\t\r\b\f", 5, "\"\\n\\t\\r\\b\\f\""},
    {"\0", 1, "\"\\u0000\""},
    {"a\x1b[31mb", 7, "\"a\\u001b[31mb\""},
    {"\x7f", 1, "\"\\u007f\""},
    {"\xc2\x9b\xc2\xa0", 4, "\"\\u009b\xc2\xa0\""},
    {"\xe2\x80\xae\xe2\x81\xa9", 6, "\"\\u202e\\u2069\""},
    {"é€😀", 9, "\"é€😀\""},
};

START_TEST(strings_are_quoted) {
    struct bpk_outbuf out = {0};
    bpk_json_string(&out, (struct bpk_str){strings[_i].text, strings[_i].len});
    expect(&out, strings[_i].json);
}

/* Every code point that must not reach a terminal is an escape, every other one itself. */
START_TEST(every_code_point) {
    for (uint32_t c = 0x20; c < 0x3000; c++) {
        if (c == '"' || c == '\\')
            continue;
        char text[8];
        size_t n = 0;
        if (c < 0x80) {
            text[n++] = (char)c;
        } else if (c < 0x800) {
            text[n++] = (char)(0xc0 | c >> 6);
            text[n++] = (char)(0x80 | (c & 63));
        } else {
            text[n++] = (char)(0xe0 | c >> 12);
            text[n++] = (char)(0x80 | (c >> 6 & 63));
            text[n++] = (char)(0x80 | (c & 63));
        }
        char expected[16];
        if (bpk_text_is_unsafe(c))
            snprintf(expected, sizeof(expected), "\"\\u%04x\"", (unsigned)c);
        else
            snprintf(expected, sizeof(expected), "\"%.*s\"", (int)n, text);
        struct bpk_outbuf out = {0};
        bpk_json_string(&out, (struct bpk_str){text, n});
        expect(&out, expected);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

#define SAFE (UINT64_C(1) << 53)

START_TEST(integers) {
    static const struct {
        uint64_t number;
        const char *json;
    } rows[] = {{0, "0"},
                {SAFE - 1, "9007199254740991"},
                {SAFE, "9007199254740992"},
                {SAFE + 1, "\"9007199254740993\""},
                {UINT64_C(9505838338724798577), "\"9505838338724798577\""},
                {UINT64_MAX, "\"18446744073709551615\""}};
    static const struct {
        int64_t number;
        const char *json;
    } signed_rows[] = {{0, "0"},
                       {-1, "-1"},
                       {(int64_t)SAFE, "9007199254740992"},
                       {(int64_t)SAFE + 1, "\"9007199254740993\""},
                       {-(int64_t)SAFE, "-9007199254740992"},
                       {-(int64_t)SAFE - 1, "\"-9007199254740993\""},
                       {INT64_MIN, "\"-9223372036854775808\""},
                       {INT64_MAX, "\"9223372036854775807\""}};
    struct bpk_outbuf out = {0};
    for (int i = 0; i < ROWS(rows); i++) {
        bpk_json_u64(&out, rows[i].number);
        expect(&out, rows[i].json);
    }
    for (int i = 0; i < ROWS(signed_rows); i++) {
        bpk_json_i64(&out, signed_rows[i].number);
        expect(&out, signed_rows[i].json);
    }
}

static const struct {
    uint64_t bits;
    const char *json;
} doubles[] = {
    {0, "0.0"},
    {UINT64_C(1) << 63, "-0.0"},
    {UINT64_C(0x3ff0000000000000), "1.0"},
    {UINT64_C(0x3fe0000000000000), "0.5"},
    {UINT64_C(0x3f50624dd2f1a9fc), "0.001"},
    {UINT64_C(0x3fb999999999999a), "0.1"},
    {UINT64_C(0x3fb99999a0000000), "0.10000000149011612"},
    {UINT64_C(0x405edd2f1a9fbe77), "123.456"},
    {1, "5e-324"},
    {UINT64_C(0x7fefffffffffffff), "1.7976931348623157e+308"},
    {UINT64_C(0x7ff0000000000000), "\"Infinity\""},
    {UINT64_C(0xfff0000000000000), "\"-Infinity\""},
    {UINT64_C(0x7ff8000000000000), "\"NaN\""},
    {UINT64_C(0xfff8000000000000), "\"0xfff8000000000000\""},
    {UINT64_C(0x7ff8000000000001), "\"0x7ff8000000000001\""},
    {UINT64_C(0x7ff0000000000001), "\"0x7ff0000000000001\""},
    {UINT64_MAX, "\"0xffffffffffffffff\""},
};

START_TEST(doubles_of_note) {
    struct bpk_outbuf out = {0};
    bpk_json_double(&out, doubles[_i].bits);
    expect(&out, doubles[_i].json);
}

/* What was written, read as JSON would. */
static uint64_t read_back(const char *json) {
    double value;
    uint64_t bits;
    if (strncmp(json, "\"0x", 3) == 0)
        return strtoull(json + 3, NULL, 16);
    if (json[0] == '"') {
        HOLDS(strcmp(json, "\"NaN\"") == 0);
        return UINT64_C(0x7ff8000000000000);
    }
    HOLDS(strpbrk(json, ".e")); /* a float stays one */
    char *end;
    value = strtod(json, &end);
    HOLDS(strcmp(end, "") == 0);
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

START_TEST(random_doubles_come_back) {
    uint64_t state = 11;
    for (int i = 0; i < 60000; i++) {
        uint64_t bits = suite_random(&state);
        if (i % 4 == 1) /* short decimals */
            bits = (union {
                       double d;
                       uint64_t u;
                   }){.d = (double)(bits % 100000) / 1000}
                       .u;
        else if (i % 4 == 2) /* subnormals */
            bits &= UINT64_C(0x800fffffffffffff) >> bits % 50;
        else if (i % 4 == 3) /* around powers of two and ten */
            bits = (union {
                       double d;
                       uint64_t u;
                   }){.d = (double)(1ULL << bits % 64)}
                       .u +
                   bits % 3;
        struct bpk_outbuf out = {0};
        bpk_json_double(&out, bits);
        bpk_out(&out, "", 1);
        if (read_back(out.text) != bits)
            ck_abort_msg("%016lx is %s", (unsigned long)bits, out.text);
        bpk_outbuf_clear(&out);
    }
}

/* Shortest: with one digit less it is another number. */
START_TEST(doubles_are_short) {
    uint64_t state = 12;
    for (int i = 0; i < 5000; i++) {
        double value = (double)(suite_random(&state) % 1000000) / 1000;
        uint64_t bits;
        char expected[400];
        memcpy(&bits, &value, sizeof(bits));
        int precision = 1;
        do
            snprintf(expected, sizeof(expected), "%.*g", precision++, value);
        while (strtod(expected, NULL) != value);
        if (!strpbrk(expected, ".e"))
            strcat(expected, ".0");
        struct bpk_outbuf out = {0};
        bpk_json_double(&out, bits);
        expect(&out, expected);
    }
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static const struct {
    const char *cbor;
    const char *json;
} dtypes[] = {
    {"63463332", "\"F32\""},
    {"64426f6f6c", "\"Bool\""},
    {"a164426f6f6c664e6174697665", "{\"Bool\": \"Native\"}"},
    {"a164426f6f6c63553332", "{\"Bool\": \"U32\"}"},
    {"a16651466c6f6174a56576616c75656351384665706172616d634633326573746f7265635533"
     "32656c6576656c6654656e736f72646d6f64656953796d6d6574726963",
     "{\"QFloat\": {\"value\": \"Q8F\", \"param\": \"F32\", \"store\": \"U32\", "
     "\"level\": \"Tensor\", \"mode\": \"Symmetric\"}}"},
    {"a16651466c6f6174a56576616c75656351385365706172616d634633326573746f7265664e61"
     "74697665656c6576656ca165426c6f636ba26773746f7261676585182001010101636c656e01"
     "646d6f64656953796d6d6574726963",
     "{\"QFloat\": {\"value\": \"Q8S\", \"param\": \"F32\", \"store\": \"Native\", \"level\": "
     "{\"Block\": {\"storage\": [32, 1, 1, 1, 1], \"len\": 1}}, \"mode\": \"Symmetric\"}}"},
    {"a16651466c6f6174a56576616c75656351385365706172616d655545344d336573746f726566"
     "4e6174697665656c6576656ca16b426c6f636b54656e736f72a265626c6f636ba26773746f72"
     "616765851001010101636c656e0166676c6f62616c63463332646d6f64656953796d6d657472"
     "6963",
     "{\"QFloat\": {\"value\": \"Q8S\", \"param\": \"UE4M3\", \"store\": \"Native\", \"level\": "
     "{\"BlockTensor\": {\"block\": {\"storage\": [16, 1, 1, 1, 1], \"len\": 1}, \"global\": "
     "\"F32\"}}, \"mode\": \"Symmetric\"}}"},
    {"a16651466c6f6174a56576616c7565635138466573746f7265a1695061636b65645533320064"
     "6d6f64656953796d6d65747269636674656e736f72f665626c6f636bf6",
     "{\"QFloat\": {\"value\": \"Q8F\", \"store\": {\"PackedU32\": 0}, \"mode\": \"Symmetric\", "
     "\"tensor\": null, \"block\": null}}"},
    {"a16651466c6f6174a56576616c75656445324d316573746f7265a16c5061636b65644e6174"
     "6976651bffffffffffffffff646d6f64656953796d6d65747269636674656e736f726346333265626c6f636ba2"
     "6473697a65a26773746f72616765851001010101636c656e01656474797065655545344d33",
     "{\"QFloat\": {\"value\": \"E2M1\", \"store\": {\"PackedNative\": "
     "\"18446744073709551615\"}, \"mode\": \"Symmetric\", \"tensor\": \"F32\", \"block\": "
     "{\"size\": {\"storage\": [16, 1, 1, 1, 1], \"len\": 1}, \"dtype\": \"UE4M3\"}}}"},
};

START_TEST(dtypes_as_in_the_pack) {
    struct input in;
    struct bpk_dtype dtype;
    struct bpk_outbuf out = {0};
    uint32_t head;
    input_hex(&in, dtypes[_i].cbor);
    ck_assert_int_eq(bpk_dtype_parse(&in.cbor, 100, &dtype, &head), 0);
    bpk_json_dtype(&out, &dtype);
    expect(&out, dtypes[_i].json);
    input_finish(&in);
}

START_TEST(shapes) {
    static const struct {
        unsigned rank;
        uint64_t dims[4];
        const char *json;
    } rows[] = {{0, {0}, "[]"},
                {1, {7}, "[7]"},
                {4, {64, 1, 3, 0}, "[64, 1, 3, 0]"},
                {1, {UINT64_MAX}, "[\"18446744073709551615\"]"}};
    for (int i = 0; i < ROWS(rows); i++) {
        struct packspec spec;
        struct bpk_outbuf out = {0};
        spec_init(&spec, BPK_LAYOUT_ALIGNED);
        spec_tensor(&spec, "w", "625538", rows[i].dims, rows[i].rank, 1, NULL);
        struct bpk_pack *pack = spec_open(&spec);
        bpk_json_shape(&out, bpk_pack_tensor_shape(pack, 0));
        expect(&out, rows[i].json);
        bpk_pack_unref(pack);
        spec_clear(&spec);
    }
}

int main(void) {
    Suite *suite = suite_create("json");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, strings_are_quoted, 0, ROWS(strings));
    tcase_add_test(tc, every_code_point);
    tcase_add_test(tc, integers);
    tcase_add_loop_test(tc, doubles_of_note, 0, ROWS(doubles));
    tcase_add_test(tc, random_doubles_come_back);
    tcase_add_test(tc, doubles_are_short);
    tcase_add_loop_test(tc, dtypes_as_in_the_pack, 0, ROWS(dtypes));
    tcase_add_test(tc, shapes);
    return suite_run(suite);
}
