/* dtype_cbor: every spelling of every Burn version, and what Burn's reader refuses (format.md 2.2,
 * 2.3, 2.4, 2.6). */
#include "pack/dtype_cbor.h"

#include "cborinput.h"

#include <errno.h>

/* Pieces of schemes, in hex. */
#define VALUE_Q8F  "6576616c7565 63513846"
#define VALUE_Q8S  "6576616c7565 63513853"
#define MODE       "646d6f6465 6953796d6d6574726963"
#define PARAM_F32  "65706172616d 63463332"
#define STORE      "6573746f7265"
#define NATIVE     STORE " 664e6174697665"
#define LEVEL      "656c6576656c"
#define LEVEL_TENS LEVEL " 6654656e736f72"
#define TENSOR     "6674656e736f72"
#define BLOCK      "65626c6f636b"
#define PACKED_U32 "695061636b6564553332"
#define QFLOAT     "a1 6651466c6f6174"
#define STORAGE    "6773746f72616765"
#define LEN        "636c656e"
#define SIZE       "6473697a65"
#define DTYPE_F16  "656474797065 63463136"
#define FIVE       "85 0201010101"
#define BLOCK_32   BLOCK " a2 " SIZE " a2 " STORAGE " 85 182001010101 " LEN " 01 " DTYPE_F16

static int parse(const char *hex, struct bpk_dtype *ret_dtype, uint32_t *ret_head) {
    struct input in;
    input_hex(&in, hex);
    int r = bpk_dtype_parse(&in.cbor, 100, ret_dtype, ret_head);
    if (r == 0)
        ck_assert_uint_eq(in.cbor.pos, in.cbor.size);
    else
        ck_assert_int_eq(in.diag.code, r);
    input_finish(&in);
    return r;
}

/* ---- plain dtypes ---------------------------------------------------------------------------- */

static const struct {
    const char *hex;
    enum bpk_kind kind;
    enum bpk_bool_store store;
    bool is_modern;
    uint32_t head;
} plain[] = {
    {"63463634", BPK_F64, 0, false, 0},
    {"63463332", BPK_F32, 0, false, 0},
    {"66466c65783332", BPK_FLEX32, 0, false, 0},
    {"63463136", BPK_F16, 0, false, 0},
    {"6442463136", BPK_BF16, 0, false, 0},
    {"63493634", BPK_I64, 0, false, 0},
    {"63493332", BPK_I32, 0, false, 0},
    {"63493136", BPK_I16, 0, false, 0},
    {"624938", BPK_I8, 0, false, 0},
    {"63553634", BPK_U64, 0, false, 0},
    {"63553332", BPK_U32, 0, false, 0},
    {"63553136", BPK_U16, 0, false, 0},
    {"625538", BPK_U8, 0, false, 0},
    {"64426f6f6c", BPK_BOOL, BPK_BOOL_TEXT, false, 0},
    {"a1 64426f6f6c 664e6174697665", BPK_BOOL, BPK_BOOL_NATIVE, true, 0},
    {"a1 64426f6f6c 625538", BPK_BOOL, BPK_BOOL_U8, true, 0},
    {"a1 64426f6f6c 63553332", BPK_BOOL, BPK_BOOL_U32, true, 0},
    {"d9d9f7 63463332", BPK_F32, 0, false, 3},                /* a tag before it */
    {"a1 44426f6f6c 625538", BPK_BOOL, BPK_BOOL_U8, true, 0}, /* the variant in bytes */
    {"780346 3332", BPK_F32, 0, false, 0},
};

START_TEST(plain_dtypes) {
    struct bpk_dtype dtype;
    uint32_t head;
    ck_assert_int_eq(parse(plain[_i].hex, &dtype, &head), 0);
    ck_assert_int_eq(dtype.kind, plain[_i].kind);
    ck_assert_int_eq(dtype.bool_store, plain[_i].store);
    ck_assert_uint_eq(head, plain[_i].head);
    ck_assert_int_eq(bpk_dtype_is_modern(&dtype), plain[_i].is_modern);
}

/* ---- schemes --------------------------------------------------------------------------------- */

enum { NO_SCALE = -1 };

static const struct {
    const char *hex;
    enum bpk_scheme_form form;
    enum bpk_quant_value value;
    enum bpk_quant_store store;
    enum bpk_quant_mode mode;
    enum bpk_quant_level level;
    uint64_t packed_dim;
    int tensor; /* scale dtype, or NO_SCALE */
    int block;
    uint8_t block_len;
    uint8_t block_dims[5];
    bool is_modern;
} schemes[] = {
    /* the hex of format.md 2.3: A default, A block 32, B, C two-level, D default, D two-level,
     * D lookup */
    {"a16651466c6f6174a56576616c75656351384665706172616d634633326573746f7265635533"
     "32656c6576656c6654656e736f72646d6f64656953796d6d6574726963",
     BPK_SCHEME_LEVELLED,
     BPK_Q8F,
     BPK_STORE_U32,
     BPK_MODE_SYMMETRIC,
     BPK_LEVEL_TENSOR,
     0,
     BPK_SCALE_F32,
     NO_SCALE,
     0,
     {0},
     false},
    {"a16651466c6f6174a56576616c75656351385365706172616d634633326573746f7265664e61"
     "74697665656c6576656ca165426c6f636ba26773746f7261676585182001010101636c656e01"
     "646d6f64656953796d6d6574726963",
     BPK_SCHEME_LEVELLED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     BPK_LEVEL_BLOCK,
     0,
     NO_SCALE,
     BPK_SCALE_F32,
     1,
     {32, 1, 1, 1, 1},
     false},
    {"a16651466c6f6174a56576616c75656351384665706172616d634633326573746f7265a16950"
     "61636b656455333200656c6576656c6654656e736f72646d6f64656953796d6d6574726963",
     BPK_SCHEME_LEVELLED,
     BPK_Q8F,
     BPK_STORE_PACKED_U32,
     BPK_MODE_SYMMETRIC,
     BPK_LEVEL_TENSOR,
     0,
     BPK_SCALE_F32,
     NO_SCALE,
     0,
     {0},
     true},
    {"a16651466c6f6174a56576616c75656351385365706172616d655545344d336573746f726566"
     "4e6174697665656c6576656ca16b426c6f636b54656e736f72a265626c6f636ba26773746f72"
     "616765851001010101636c656e0166676c6f62616c63463332646d6f64656953796d6d657472"
     "6963",
     BPK_SCHEME_LEVELLED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     BPK_LEVEL_BLOCK_TENSOR,
     0,
     BPK_SCALE_F32,
     BPK_SCALE_UE4M3,
     1,
     {16, 1, 1, 1, 1},
     false},
    {"a16651466c6f6174a56576616c7565635138466573746f7265a1695061636b65645533320064"
     "6d6f64656953796d6d65747269636674656e736f72f665626c6f636bf6",
     BPK_SCHEME_SCALED,
     BPK_Q8F,
     BPK_STORE_PACKED_U32,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     NO_SCALE,
     NO_SCALE,
     0,
     {0},
     true},
    {"a16651466c6f6174a56576616c7565635138536573746f7265664e6174697665646d6f646569"
     "53796d6d65747269636674656e736f726346333265626c6f636ba26473697a65a26773746f72"
     "616765851001010101636c656e01656474797065655545344d33",
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     BPK_SCALE_F32,
     BPK_SCALE_UE4M3,
     1,
     {16, 1, 1, 1, 1},
     true},
    {"a16651466c6f6174a56576616c7565635134466573746f7265a1695061636b65645533320164"
     "6d6f6465664c6f6f6b75706674656e736f72f665626c6f636ba26473697a65a26773746f7261"
     "676585182001010101636c656e01656474797065 63463136",
     BPK_SCHEME_SCALED,
     BPK_Q4F,
     BPK_STORE_PACKED_U32,
     BPK_MODE_LOOKUP,
     0,
     1,
     NO_SCALE,
     BPK_SCALE_F16,
     1,
     {32, 1, 1, 1, 1},
     true},
    /* D without tensor and block */
    {QFLOAT " a3" VALUE_Q8S NATIVE MODE,
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     NO_SCALE,
     NO_SCALE,
     0,
     {0},
     true},
    /* other order, unknown keys, indefinite maps, wide integers, tags, names in bytes */
    {QFLOAT " bf" MODE "63787878 9f01ff" BLOCK "bf" DTYPE_F16 SIZE " bf " LEN
            " 1900026179f6 " STORAGE " 85 1a0000000301010101 ff ff" NATIVE " c1" VALUE_Q8F TENSOR
            "f7 ff",
     BPK_SCHEME_SCALED,
     BPK_Q8F,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     NO_SCALE,
     BPK_SCALE_F16,
     2,
     {3, 1, 1, 1, 1},
     true},
    /* block dimensions in bytes; more than five are not looked at; in chunks */
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE BLOCK "a2" SIZE "a2" STORAGE "45 0807060504" LEN
            "05" DTYPE_F16,
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     NO_SCALE,
     BPK_SCALE_F16,
     5,
     {8, 7, 6, 5, 4},
     true},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE BLOCK "a2" SIZE "a2" STORAGE
            "5f 40 42 0807 44 060504ff ff" LEN "05" DTYPE_F16,
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     NO_SCALE,
     BPK_SCALE_F16,
     5,
     {8, 7, 6, 5, 4},
     true},
    /* odd but fine: block of 0, len over 5, a packed dimension beyond any rank */
    {QFLOAT " a4" VALUE_Q8S STORE "a1" PACKED_U32 "1863" MODE BLOCK "a2" SIZE "a2" STORAGE
            "85 0001010101" LEN "09" DTYPE_F16,
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_PACKED_U32,
     BPK_MODE_SYMMETRIC,
     0,
     99,
     NO_SCALE,
     BPK_SCALE_F16,
     9,
     {0, 1, 1, 1, 1},
     true},
    /* the newest reader ignores param and level where the newer keys stand too, or where they do
     * not parse */
    {QFLOAT " a6" VALUE_Q8S PARAM_F32 NATIVE LEVEL_TENS MODE TENSOR "63463136",
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     BPK_SCALE_F16,
     NO_SCALE,
     0,
     {0},
     true},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE LEVEL "83 01 02 a1 0304",
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     NO_SCALE,
     NO_SCALE,
     0,
     {0},
     true},
    {QFLOAT " a5" VALUE_Q8S NATIVE MODE "65706172616d 18ff" LEVEL_TENS,
     BPK_SCHEME_SCALED,
     BPK_Q8S,
     BPK_STORE_NATIVE,
     BPK_MODE_SYMMETRIC,
     0,
     0,
     NO_SCALE,
     NO_SCALE,
     0,
     {0},
     true},
};

START_TEST(schemes_of_every_form) {
    struct bpk_dtype dtype;
    uint32_t head;
    ck_assert_int_eq(parse(schemes[_i].hex, &dtype, &head), 0);
    ck_assert_int_eq(dtype.kind, BPK_QFLOAT);
    const struct bpk_scheme *s = &dtype.scheme;
    ck_assert_int_eq(s->form, schemes[_i].form);
    ck_assert_int_eq(s->value, schemes[_i].value);
    ck_assert_int_eq(s->store, schemes[_i].store);
    ck_assert_int_eq(s->mode, schemes[_i].mode);
    if (s->form == BPK_SCHEME_LEVELLED)
        ck_assert_int_eq(s->level, schemes[_i].level);
    ck_assert_uint_eq(s->packed_dim, schemes[_i].packed_dim);
    ck_assert_int_eq(s->has_tensor, schemes[_i].tensor != NO_SCALE);
    if (s->has_tensor)
        ck_assert_int_eq(s->tensor_scale, schemes[_i].tensor);
    ck_assert_int_eq(s->has_block, schemes[_i].block != NO_SCALE);
    if (s->has_block) {
        ck_assert_int_eq(s->block_scale, schemes[_i].block);
        ck_assert_uint_eq(s->block_len, schemes[_i].block_len);
        ck_assert_mem_eq(s->block_dims, schemes[_i].block_dims, 5);
    }
    ck_assert_int_eq(bpk_dtype_is_modern(&dtype), schemes[_i].is_modern);
}

/* Cut anywhere, each is refused. */
START_TEST(schemes_cut_short) {
    struct bytes whole = bytes_from_hex(schemes[_i].hex);
    for (size_t len = 0; len < whole.len; len++) {
        struct input in = {0};
        struct bpk_dtype dtype;
        uint32_t head;
        bytes_add(&in.bytes, whole.data, len);
        input_start(&in);
        ck_assert_int_eq(bpk_dtype_parse(&in.cbor, 100, &dtype, &head), -EBADMSG);
        input_finish(&in);
    }
    bytes_clear(&whole);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#define SCALED_BLOCK(size) QFLOAT " a4" VALUE_Q8S NATIVE MODE BLOCK "a2" SIZE size DTYPE_F16

static const struct {
    const char *hex;
    const char *says;
} refused[] = {
    {"63663332", "unknown dtype \"f32\""},
    {"63463333", "unknown dtype \"F33\""},
    {"60", "unknown dtype \"\""},
    {"641b5b306d", "unknown dtype \"\\x1b[0m\""},
    {"a1 42 ffff 00", "unknown dtype \"?\""},
    {"a1 63463332 f6", "takes no value"},
    {"a1 64426f6f6c f6", "variant"},
    {"a1 64426f6f6c 64426f6f6c", "unknown store of a Bool"},
    {"a1 64426f6f6c 63553136", "unknown store of a Bool"},
    {"a1 64426f6f6c a1 625538 f6", "takes no value"},
    {"6651466c6f6174", "takes a value"},
    {"43463332", "a byte string"},             /* a unit variant in bytes */
    {"7f 63463332 ff", "a text in chunks"},    /* a variant in chunks */
    {"bf 64426f6f6c 625538 ff", "indefinite"}, /* an indefinite map around an enum */
    {"a0", "found a map"},
    {"a2 64426f6f6c 625538 64426f6f6c 625538", "found a map"},
    {"00", "an integer"},
    {"f6", "null"},
    {"80", "an array"},
    {QFLOAT " f6", "expected a map"},
    {QFLOAT " 80", "expected a map"},
    {QFLOAT " a2" NATIVE MODE, "without the field \"value\""},
    {QFLOAT " a2" VALUE_Q8S MODE, "without the field \"store\""},
    {QFLOAT " a2" VALUE_Q8S NATIVE, "without the field \"mode\""},
    {QFLOAT " a4" VALUE_Q8S VALUE_Q8S NATIVE MODE, "two fields \"value\""},
    {QFLOAT " a4" VALUE_Q8S NATIVE NATIVE MODE, "two fields \"store\""},
    {QFLOAT " a5" VALUE_Q8S NATIVE MODE TENSOR "f6" TENSOR "f6", "two fields \"tensor\""},
    {QFLOAT " a5" VALUE_Q8S NATIVE MODE BLOCK "f6" BLOCK "f6", "two fields \"block\""},
    {QFLOAT " a3 6576616c7565 63713873" NATIVE MODE, "unknown quantization value"},
    {QFLOAT " a3 6576616c7565 a1 63513853 f6" NATIVE MODE, "takes no value"},
    {QFLOAT " a3" VALUE_Q8S STORE "664e61746976 78" MODE, "unknown quantization store"},
    {QFLOAT " a3" VALUE_Q8S STORE PACKED_U32 MODE, "takes a value"},
    {QFLOAT " a3" VALUE_Q8S STORE "a1 664e6174697665 00" MODE, "takes no value"},
    {QFLOAT " a3" VALUE_Q8S STORE "a1" PACKED_U32 "20" MODE, "unsigned"},
    {QFLOAT " a3" VALUE_Q8S STORE "a1" PACKED_U32 "f6" MODE, "integer"},
    {QFLOAT " a3" VALUE_Q8S STORE "63553332" MODE, "\"param\""}, /* U32 is of form A alone */
    {QFLOAT " a4" VALUE_Q8S STORE "63553332" MODE PARAM_F32, "\"level\""},
    {QFLOAT " a3" VALUE_Q8S NATIVE "646d6f6465 6953796d6d6574726973", "unknown quantization mode"},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE TENSOR "63463634", "unknown scale dtype"},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE TENSOR "c1f6", "null"},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE BLOCK "01", "expected a map"},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE BLOCK "a1" DTYPE_F16, "without the field \"size\""},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE BLOCK "a1" SIZE "a2" STORAGE FIVE LEN "01",
     "without the field \"dtype\""},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE BLOCK "a2" DTYPE_F16 DTYPE_F16, "two fields \"dtype\""},
    {SCALED_BLOCK("a1" STORAGE FIVE), "without the field \"len\""},
    {SCALED_BLOCK("a1" LEN "01"), "without the field \"storage\""},
    {SCALED_BLOCK("a3" STORAGE FIVE STORAGE FIVE LEN "01"), "two fields \"storage\""},
    {SCALED_BLOCK("a3" LEN "01" LEN "01" STORAGE FIVE), "two fields \"len\""},
    {SCALED_BLOCK("a2" STORAGE "84 01010101" LEN "01"), "five"},
    {SCALED_BLOCK("a2" STORAGE "86 010101010101" LEN "01"), "five"},
    {SCALED_BLOCK("a2" STORAGE "9f 0101010101 ff" LEN "01"), "five"},
    {SCALED_BLOCK("a2" STORAGE "44 01010101" LEN "01"), "five"},
    {SCALED_BLOCK("a2" STORAGE "5f 44 01010101 ff" LEN "01"), "five"},
    {SCALED_BLOCK("a2" STORAGE "5f 6101 ff" LEN "01"), "chunk"},
    {SCALED_BLOCK("a2" STORAGE "85 190100 01010101" LEN "01"), "more than 255"},
    {SCALED_BLOCK("a2" STORAGE FIVE LEN "190100"), "more than 255"},
    {SCALED_BLOCK("a2" STORAGE FIVE LEN "20"), "unsigned"},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE "7f 6161 ff 00", "a text in chunks"}, /* a key in chunks */
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE "00 00", "expected a name"},
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE "6178 f0", "malformed"},  /* under an unknown key */
    {QFLOAT " a4" VALUE_Q8S NATIVE MODE LEVEL "f0", "malformed"}, /* where anything passes */
};

START_TEST(refusals) {
    struct input in;
    struct bpk_dtype dtype = {.kind = BPK_I8};
    uint32_t head = 77;
    input_hex(&in, refused[_i].hex);
    ck_assert_int_eq(bpk_dtype_parse(&in.cbor, 100, &dtype, &head), -EBADMSG);
    ck_assert_msg(strstr(in.diag.sentence, refused[_i].says), "%s", in.diag.sentence);
    ck_assert_uint_ge(in.diag.offset, 10);
    ck_assert_int_eq(dtype.kind, BPK_I8);
    ck_assert_uint_eq(head, 77);
    input_finish(&in);
}

/* The block 32 of form D, and an unknown key in it that nests as deep as it may. */
START_TEST(nesting_in_a_scheme_is_limited) {
    for (unsigned extra = 0; extra < 2; extra++) {
        struct input in = {0};
        struct bpk_dtype dtype;
        uint32_t head;
        bytes_hex(&in.bytes, QFLOAT " a5" VALUE_Q8S NATIVE MODE BLOCK_32 "6178");
        bytes_fill(&in.bytes, 0x81, 18 + extra);
        bytes_fill(&in.bytes, 0, 1);
        input_start(&in);
        /* the enum's map and the scheme's are two of the 20 levels */
        ck_assert_int_eq(bpk_dtype_parse(&in.cbor, 20, &dtype, &head), extra ? -EBADMSG : 0);
        input_finish(&in);
    }
}

int main(void) {
    Suite *suite = suite_create("dtype_cbor");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, plain_dtypes, 0, ROWS(plain));
    tcase_add_loop_test(tc, schemes_of_every_form, 0, ROWS(schemes));
    tcase_add_loop_test(tc, schemes_cut_short, 0, ROWS(schemes));
    tcase_add_loop_test(tc, refusals, 0, ROWS(refused));
    tcase_add_test(tc, nesting_in_a_scheme_is_limited);
    return suite_run(suite);
}
