/* json_read: what users write as sidecars, metadata.json and scalars.json: good, bad, cut short;
 * and that everything which view/json writes reads back equal (semantics.md 2, 3.3).
 *
 * Linked with --wrap=malloc,--wrap=calloc: memory may fail here. */
#include "view/json_read.h"

#include "packbuild.h"
#include "suite.h"
#include "view/json.h"
#include "view/maps.h"
#include "view/sidecar.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { GOOD = BPK_TEXT_GOOD, EARLY = BPK_TEXT_EARLY_END, BAD = BPK_TEXT_BAD };

/* ---- memory that fails ----------------------------------------------------------------------- */

static long allocations_left = -1; /* -1: memory never fails */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool fails_now(void) {
    if (allocations_left < 0)
        return false;
    return allocations_left-- == 0; /* this one alone */
}

void *__wrap_malloc(size_t size) {
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails_now() ? NULL : __real_calloc(count, size);
}

/* ---- parsers, alike -------------------------------------------------------------------------- */

union parsed {
    struct bpk_descriptor descriptor;
    struct bpk_string_map map;
    struct bpk_scalar_map scalars;
};

enum parser { SIDECAR, METADATA, SCALARS };

static enum bpk_text_verdict parse_raw(enum parser parser, struct bpk_str text,
                                       union parsed *parsed, struct bpk_diag *diag) {
    switch (parser) {
    case SIDECAR:
        return bpk_sidecar_parse(text, &parsed->descriptor, diag);
    case METADATA:
        return bpk_metadata_parse(text, &parsed->map, diag);
    default:
        return bpk_scalars_parse(text, &parsed->scalars, diag);
    }
}

static void parsed_clear(enum parser parser, union parsed *parsed) {
    if (parser == SIDECAR)
        bpk_descriptor_clear(&parsed->descriptor);
    else if (parser == METADATA)
        bpk_string_map_clear(&parsed->map);
    else
        bpk_scalar_map_clear(&parsed->scalars);
}

static void assert_printable(const char *sentence) {
    size_t len = strlen(sentence);
    ck_assert_uint_gt(len, 0);
    ck_assert_uint_lt(len, 399);
    ck_assert_int_ne(sentence[len - 1], '.');
    for (size_t i = 0; i < len; i++)
        ck_assert_msg((unsigned char)sentence[i] >= 0x20 && sentence[i] != 0x7f, "%s", sentence);
}

/* Parses an exact copy, so that a sanitizer sees a read past it; checks that failures leave the
 * output alone and say why. */
static enum bpk_text_verdict parse(enum parser parser, struct bpk_str text, union parsed *parsed,
                                   struct bpk_diag *diag) {
    char *copy = malloc(text.len + !text.len);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text.bytes, text.len);
    struct bpk_diag own;
    union parsed before;
    diag = diag ? diag : &own;
    *diag = (struct bpk_diag){0};
    memset(parsed, 0x5a, sizeof(*parsed));
    before = *parsed;
    enum bpk_text_verdict verdict =
        parse_raw(parser, (struct bpk_str){copy, text.len}, parsed, diag);
    free(copy);
    if (verdict != BPK_TEXT_GOOD) {
        ck_assert_mem_eq(parsed, &before, sizeof(before));
        ck_assert_int_eq(diag->code, verdict == BPK_TEXT_NO_MEMORY ? -ENOMEM : -EBADMSG);
        assert_printable(diag->sentence);
    }
    return verdict;
}

static enum bpk_text_verdict verdict_of(enum parser parser, struct bpk_str text) {
    union parsed parsed;
    enum bpk_text_verdict verdict = parse(parser, text, &parsed, NULL);
    if (verdict == BPK_TEXT_GOOD)
        parsed_clear(parser, &parsed);
    return verdict;
}

#include "jsonsentences.h"

START_TEST(verdicts_and_sentences) {
    union parsed parsed;
    struct bpk_diag diag;
    int verdict = (int)parse(cases[_i].parser, str(cases[_i].text), &parsed, &diag);
    ck_assert_msg(verdict == cases[_i].verdict, "verdict %d of %s: %s", verdict, cases[_i].text,
                  verdict == GOOD ? "" : diag.sentence);
    if (verdict == GOOD)
        parsed_clear(cases[_i].parser, &parsed);
    else
        ck_assert_msg(strstr(diag.sentence, cases[_i].sentence) != NULL, "%s: %s", cases[_i].text,
                      diag.sentence);
}

START_TEST(nul_bytes_are_bad) {
    union parsed parsed;
    struct bpk_diag diag;
    static const char *const texts[] = {"{\n \"a\": \0", "{\n     \0\"", "{}\n     \0",
                                        "{\n\"\xc3\xa9   \0"};
    for (int i = 0; i < ROWS(texts); i++) {
        struct bpk_str text = {texts[i], 9};
        ck_assert_int_eq(parse(METADATA, text, &parsed, &diag), BAD);
        ck_assert_ptr_nonnull(strstr(diag.sentence, "a NUL byte, at line 2, column"));
    }
    ck_assert_int_eq(bpk_metadata_parse(str("{"), &parsed.map, NULL), EARLY);
    ck_assert_int_eq(bpk_metadata_parse(str("x"), &parsed.map, NULL), BAD);
    ck_assert_int_eq(bpk_metadata_parse((struct bpk_str){NULL, 0}, &parsed.map, NULL), EARLY);
}

/* Whatever a good text is cut to, it is the start of good JSON. */
START_TEST(every_prefix_ends_early) {
    static const struct {
        enum parser parser;
        const char *text;
    } rows[] = {
        {METADATA, "{\"a\\u00e9\\ud83d\\ude00\": \"\xc3\xa9\xe0\xa4\x85\xe2\x82\xac\xed\x9f\xbf"
                   "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\\n\\\\\\\"\\/\\u0000tru\", \"\": \"\"}"},
        {SCALARS, "{\"a\": {\"Int\": -12}, \"b\": {\"Float\": -0.5e+10}, \"c\": {\"Bool\": true},\n"
                  "\t\"d\": {\"Bool\": false}, \"e\": {\"Float\": 9223372036854775808.0E-1}}"},
        {SIDECAR, "{\"dtype\": {\"QFloat\": {" VSM ", \"block\": {\"size\": " SIZE ", \"dtype\": "
                  "\"UE8M0\"}}}, \"problem\": [null, true, false, 1.5E-3, -99999999999999999999.5, "
                  "{}, []], \"shape\": [0, \"18446744073709551615\"], \"param_id\": null}"},
    };
    for (int i = 0; i < ROWS(rows); i++) {
        struct bpk_str text = str(rows[i].text);
        ck_assert_int_eq(verdict_of(rows[i].parser, text), GOOD);
        for (size_t len = 0; len < text.len; len++)
            ck_assert_msg((int)verdict_of(rows[i].parser, (struct bpk_str){text.bytes, len}) ==
                              EARLY,
                          "%.*s", (int)len, text.bytes);
    }
}

/* No text, however broken, does worse than a bad verdict. */
START_TEST(damaged_texts) {
    static const char text[] = "{\"a\": {\"Int\": \"-12\"}, \"\xc3\xa9\": {\"Float\": -0.5e+10}, "
                               "\"\\ud83d\\ude00\": {\"Bool\": true}}";
    char damaged[sizeof(text)];
    uint64_t state = 5;
    for (int i = 0; i < 20000; i++) {
        memcpy(damaged, text, sizeof(text));
        size_t len = suite_random(&state) % sizeof(text);
        for (uint64_t n = suite_random(&state) % 3; n > 0 && len > 0; n--)
            damaged[suite_random(&state) % len] = (char)suite_random(&state);
        verdict_of(SCALARS, (struct bpk_str){damaged, len});
    }
}

START_TEST(deep_texts) {
    static char text[1 << 20];
    memset(text, '[', sizeof(text));
    memcpy(text, "{\"a\":", 5);
    ck_assert_int_eq(verdict_of(METADATA, (struct bpk_str){text, sizeof(text)}), BAD);
}

/* ---- values ---------------------------------------------------------------------------------- */

START_TEST(sidecar_values) {
    union parsed parsed;
    ck_assert_int_eq(
        parse(SIDECAR,
              str("{\"param_id\": \"18446744073709551615\", \"shape\": [0, 9223372036854775807, "
                  "\"18446744073709551615\", \"007\", -0], \"dtype\": {\"Bool\": \"U32\"}}"),
              &parsed, NULL),
        GOOD);
    const struct bpk_descriptor *d = &parsed.descriptor;
    ck_assert_int_eq(d->dtype.kind, BPK_BOOL);
    ck_assert_int_eq(d->dtype.bool_store, BPK_BOOL_U32);
    ck_assert_uint_eq(d->rank, 5);
    static const uint64_t dims[] = {0, INT64_MAX, UINT64_MAX, 7, 0};
    ck_assert_mem_eq(d->dims, dims, sizeof(dims));
    ck_assert(d->has_param_id);
    ck_assert_uint_eq(d->param_id, UINT64_MAX);
    bpk_descriptor_clear(&parsed.descriptor);
    ck_assert_ptr_null(d->dims);

    static const char *const without[] = {
        "{\"param_id\": null, \"shape\": [], \"dtype\": \"Bool\"}",
        "{\"shape\": [], \"dtype\": \"Bool\"}"};
    for (int i = 0; i < ROWS(without); i++) {
        ck_assert_int_eq(parse(SIDECAR, str(without[i]), &parsed, NULL), GOOD);
        ck_assert(!d->has_param_id);
        ck_assert_uint_eq(d->rank, 0);
        ck_assert_ptr_null(d->dims);
        ck_assert_int_eq(d->dtype.kind, BPK_BOOL);
        ck_assert_int_eq(d->dtype.bool_store, BPK_BOOL_TEXT);
        bpk_descriptor_clear(&parsed.descriptor);
    }
}

static void assert_str(struct bpk_str got, const char *bytes, size_t len) {
    ck_assert_uint_eq(got.len, len);
    ck_assert(len == 0 || memcmp(got.bytes, bytes, len) == 0);
}

START_TEST(metadata_values) {
    union parsed parsed;
    ck_assert_int_eq(
        parse(METADATA, str("{\"\": \"\", \"b\": \"x\\u0000y\", \"\\u00e9\": \"\\ud83d\\ude00\"}"),
              &parsed, NULL),
        GOOD);
    ck_assert_uint_eq(parsed.map.count, 3);
    for (size_t i = 0; i < 3; i++) {
        struct bpk_string_pair pair = parsed.map.pairs[i];
        if (pair.key.len == 0)
            assert_str(pair.value, "", 0);
        else if (pair.key.len == 1)
            assert_str(pair.value, "x\0y", 3);
        else
            assert_str(pair.value, "\xf0\x9f\x98\x80", 4);
    }
    bpk_string_map_clear(&parsed.map);
    ck_assert_uint_eq(parsed.map.count, 0);
    ck_assert_ptr_null(parsed.map.pairs);
    ck_assert_int_eq(parse(METADATA, str("{}"), &parsed, NULL), GOOD);
    ck_assert_uint_eq(parsed.map.count, 0);
    bpk_string_map_clear(&parsed.map);
}

static const struct {
    const char *json;
    enum bpk_scalar_kind kind;
    uint64_t bits;
} scalar_rows[] = {
    {"{\"Int\": -1}", BPK_SCALAR_INT, UINT64_MAX},
    {"{\"Int\": 9223372036854775807}", BPK_SCALAR_INT, INT64_MAX},
    {"{\"Int\": -9223372036854775808}", BPK_SCALAR_INT, UINT64_C(1) << 63},
    {"{\"Int\": \"-9223372036854775808\"}", BPK_SCALAR_INT, UINT64_C(1) << 63},
    {"{\"Int\": \"-0\"}", BPK_SCALAR_INT, 0},
    {"{\"UInt\": 3}", BPK_SCALAR_UINT, 3},
    {"{\"UInt\": \"18446744073709551615\"}", BPK_SCALAR_UINT, UINT64_MAX},
    {"{\"UInt\": \"0000000000000000000000000012\"}", BPK_SCALAR_UINT, 12},
    {"{\"Float\": 1}", BPK_SCALAR_FLOAT, UINT64_C(0x3ff0) << 48},
    {"{\"Float\": 1.0}", BPK_SCALAR_FLOAT, UINT64_C(0x3ff0) << 48},
    {"{\"Float\": 0.001}", BPK_SCALAR_FLOAT, UINT64_C(0x3f50624dd2f1a9fc)},
    {"{\"Float\": -0.0}", BPK_SCALAR_FLOAT, UINT64_C(1) << 63},
    {"{\"Float\": 4.9406564584124654e-324}", BPK_SCALAR_FLOAT, 1},
    {"{\"Float\": 1e-999}", BPK_SCALAR_FLOAT, 0},
    {"{\"Float\": 9223372036854775807}", BPK_SCALAR_FLOAT, UINT64_C(0x43e0) << 48},
    {"{\"Float\": \"NaN\"}", BPK_SCALAR_FLOAT, UINT64_C(0x7ff8) << 48},
    {"{\"Float\": \"Infinity\"}", BPK_SCALAR_FLOAT, UINT64_C(0x7ff0) << 48},
    {"{\"Float\": \"-Infinity\"}", BPK_SCALAR_FLOAT, UINT64_C(0xfff0) << 48},
    {"{\"Float\": \"0x7ff8000000000000\"}", BPK_SCALAR_FLOAT, UINT64_C(0x7ff8) << 48},
    {"{\"Float\": \"0xFFF00000000000aB\"}", BPK_SCALAR_FLOAT, UINT64_C(0xfff00000000000ab)},
    {"{\"Bool\": true}", BPK_SCALAR_BOOL, 1},
    {"{\"Bool\": false}", BPK_SCALAR_BOOL, 0},
};

START_TEST(scalar_values) {
    char text[200];
    union parsed parsed;
    snprintf(text, sizeof(text), "{\"first\": {\"Int\": 1}, \"x y\": %s}", scalar_rows[_i].json);
    ck_assert_int_eq(parse(SCALARS, str(text), &parsed, NULL), GOOD);
    ck_assert_uint_eq(parsed.scalars.count, 2);
    struct bpk_scalar scalar = parsed.scalars.scalars[parsed.scalars.scalars[0].name.len == 5];
    assert_str(scalar.name, "x y", 3);
    ck_assert_int_eq(scalar.kind, scalar_rows[_i].kind);
    ck_assert_uint_eq(scalar.bits, scalar_rows[_i].bits);
    bpk_scalar_map_clear(&parsed.scalars);
    ck_assert_uint_eq(parsed.scalars.count, 0);
}

/* ---- what we write reads back ---------------------------------------------------------------- */

START_TEST(numbers_read_back) {
    uint64_t state = 7;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = suite_random(&state);
        if (i % 4 == 0) /* infinities and NaNs */
            bits |= UINT64_C(0x7ff0) << 48;
        if (i % 8 == 0)
            bits &= UINT64_C(0xfff8) << 48 | 1;
        uint64_t small = bits >> suite_random(&state) % 64;
        struct bpk_outbuf out = {0};
        bpk_out_str(&out, "{\"f\": {\"Float\": ");
        bpk_json_double(&out, bits);
        bpk_out_str(&out, "}, \"i\": {\"Int\": ");
        bpk_json_i64(&out, (int64_t)(i % 2 ? small : -small));
        bpk_out_str(&out, "}, \"u\": {\"UInt\": ");
        bpk_json_u64(&out, small);
        bpk_out_str(&out, "}}");
        struct bpk_scalar_map map;
        ck_assert_int_eq(bpk_scalars_parse((struct bpk_str){out.text, out.len}, &map, NULL), GOOD);
        for (size_t k = 0; k < 3; k++) {
            char name = map.scalars[k].name.bytes[0];
            uint64_t expected = name == 'f' ? bits : name == 'u' || i % 2 ? small : -small;
            ck_assert_uint_eq(map.scalars[k].bits, expected);
        }
        bpk_scalar_map_clear(&map);
        bpk_outbuf_clear(&out);
    }
}

static struct bpk_dtype random_dtype(uint64_t *state) {
    struct bpk_dtype d = {.kind = (enum bpk_kind)(suite_random(state) % (BPK_QFLOAT + 1))};
    if (suite_random(state) % 2)
        d.kind = BPK_QFLOAT;
    if (d.kind == BPK_BOOL)
        d.bool_store = (enum bpk_bool_store)(suite_random(state) % 4);
    if (d.kind != BPK_QFLOAT)
        return d;
    struct bpk_scheme *s = &d.scheme;
    s->form = (enum bpk_scheme_form)(suite_random(state) % 2);
    s->value = (enum bpk_quant_value)(suite_random(state) % (BPK_Q2S + 1));
    s->store = (enum bpk_quant_store)(suite_random(state) % (s->form ? 4 : 3));
    s->mode = (enum bpk_quant_mode)(suite_random(state) % 2);
    if (s->store == BPK_STORE_PACKED_NATIVE || s->store == BPK_STORE_PACKED_U32)
        s->packed_dim = suite_random(state) >> suite_random(state) % 64;
    s->has_tensor = suite_random(state) % 2;
    s->has_block = suite_random(state) % 2;
    if (s->form == BPK_SCHEME_LEVELLED) {
        s->level = (enum bpk_quant_level)(suite_random(state) % 3);
        s->has_tensor = s->level != BPK_LEVEL_BLOCK;
        s->has_block = s->level != BPK_LEVEL_TENSOR;
    }
    if (s->has_tensor)
        s->tensor_scale = (enum bpk_scale)(suite_random(state) % 5);
    if (s->has_block) {
        s->block_scale = (enum bpk_scale)(suite_random(state) % 5);
        s->block_len = (uint8_t)suite_random(state);
        for (int i = 0; i < 5; i++)
            s->block_dims[i] = (uint8_t)suite_random(state);
    }
    return d;
}

START_TEST(dtypes_read_back) {
    uint64_t state = 11;
    struct bpk_dtype last = {0};
    for (int i = 0; i < 5000; i++) {
        struct bpk_dtype dtype = random_dtype(&state);
        struct bpk_outbuf out = {0};
        struct bpk_outbuf again = {0};
        struct bpk_descriptor d;
        struct bpk_diag diag = {0};
        bpk_out_str(&out, "{\"dtype\": ");
        bpk_json_dtype(&out, &dtype);
        bpk_out_str(&out, ", \"shape\": []}");
        ck_assert_msg(bpk_sidecar_parse((struct bpk_str){out.text, out.len}, &d, &diag) == 0,
                      "%.*s: %s", (int)out.len, out.text, diag.sentence);
        ck_assert(bpk_dtype_equal(&dtype, &d.dtype));
        bpk_out_str(&again, "{\"dtype\": ");
        bpk_json_dtype(&again, &d.dtype);
        ck_assert(memcmp(again.text, out.text, again.len) == 0);
        /* Equal are those, and only those, that are written alike. */
        struct bpk_outbuf other = {0};
        bpk_out_str(&other, "{\"dtype\": ");
        bpk_json_dtype(&other, &last);
        bool alike = other.len == again.len && memcmp(other.text, again.text, other.len) == 0;
        ck_assert_int_eq(bpk_dtype_equal(&dtype, &last), alike);
        last = dtype;
        bpk_outbuf_clear(&other);
        bpk_outbuf_clear(&again);
        bpk_outbuf_clear(&out);
        bpk_descriptor_clear(&d);
    }
}

START_TEST(packs_read_back) {
    struct packspec spec;
    spec_rich(&spec);
    spec_tensor(&spec, "none", "63463332", (const uint64_t[]){0, UINT64_C(1) << 60}, 2, 0, NULL);
    spec_metadata_n(&spec, str("nul"), (struct bpk_str){"a\0b\xc3\xa9\x7f\xe2\x80\xae", 9});
    spec_scalar(&spec, "nan", "a1 65466c6f6174 fb7ff8000000000001");
    struct bpk_pack *pack = spec_open(&spec);
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    for (uint32_t i = 0; i < info.tensors; i++) {
        struct bpk_outbuf out = {0};
        union parsed parsed;
        struct bpk_tensor tensor;
        struct bpk_dtype dtype;
        uint64_t dim;
        bpk_sidecar_file(&out, pack, i);
        ck_assert_int_eq(parse(SIDECAR, (struct bpk_str){out.text, out.len}, &parsed, NULL), GOOD);
        bpk_pack_tensor(pack, i, &tensor);
        bpk_pack_tensor_dtype(pack, i, &dtype);
        ck_assert(bpk_dtype_equal(&dtype, &parsed.descriptor.dtype));
        ck_assert_uint_eq(parsed.descriptor.rank, tensor.rank);
        ck_assert_int_eq(parsed.descriptor.has_param_id, tensor.has_param_id);
        ck_assert(!tensor.has_param_id || parsed.descriptor.param_id == tensor.param_id);
        struct bpk_shape shape = bpk_pack_tensor_shape(pack, i);
        for (uint32_t k = 0; bpk_shape_next(&shape, &dim); k++)
            ck_assert_uint_eq(parsed.descriptor.dims[k], dim);
        bpk_descriptor_clear(&parsed.descriptor);
        bpk_outbuf_clear(&out);
    }
    struct bpk_outbuf metadata = {0};
    struct bpk_outbuf scalars = {0};
    union parsed parsed;
    bpk_metadata_file(&metadata, pack);
    ck_assert_int_eq(parse(METADATA, (struct bpk_str){metadata.text, metadata.len}, &parsed, NULL),
                     GOOD);
    ck_assert_uint_eq(parsed.map.count, info.metadata_entries - 1); /* but the key with a NUL */
    for (size_t i = 0; i < parsed.map.count; i++) {
        uint32_t index;
        struct bpk_str key;
        struct bpk_str value;
        ck_assert_int_eq(bpk_pack_find_metadata(pack, parsed.map.pairs[i].key, &index), 0);
        bpk_pack_metadata(pack, index, &key, &value);
        assert_str(parsed.map.pairs[i].value, value.bytes, value.len);
    }
    bpk_string_map_clear(&parsed.map);
    bpk_scalars_file(&scalars, pack);
    ck_assert_int_eq(parse(SCALARS, (struct bpk_str){scalars.text, scalars.len}, &parsed, NULL),
                     GOOD);
    ck_assert_uint_eq(parsed.scalars.count, info.scalars);
    for (uint32_t i = 0; i < info.scalars; i++) {
        struct bpk_scalar scalar;
        bpk_pack_scalar(pack, i, &scalar);
        for (size_t k = 0; k < parsed.scalars.count; k++) {
            const struct bpk_scalar *read = &parsed.scalars.scalars[k];
            if (read->name.len != scalar.name.len ||
                memcmp(read->name.bytes, scalar.name.bytes, scalar.name.len) != 0)
                continue;
            ck_assert_int_eq(read->kind, scalar.kind);
            ck_assert_uint_eq(read->bits, scalar.bits);
        }
    }
    bpk_scalar_map_clear(&parsed.scalars);
    bpk_outbuf_clear(&scalars);
    bpk_outbuf_clear(&metadata);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* ---- equal dtypes ---------------------------------------------------------------------------- */

START_TEST(dtypes_equal_in_what_counts) {
    struct bpk_dtype a = {.kind = BPK_QFLOAT,
                          .scheme = {.store = BPK_STORE_PACKED_U32, .has_block = true}};
    struct bpk_dtype b = a;
#define DIFFERS(field, other)                                                                      \
    do {                                                                                           \
        b = a;                                                                                     \
        b.field = other;                                                                           \
        ck_assert(!bpk_dtype_equal(&a, &b));                                                       \
        ck_assert(!bpk_dtype_equal(&b, &a));                                                       \
    } while (0)
#define SAME(field, other)                                                                         \
    do {                                                                                           \
        b = a;                                                                                     \
        b.field = other;                                                                           \
        ck_assert(bpk_dtype_equal(&a, &b));                                                        \
    } while (0)
    ck_assert(bpk_dtype_equal(&a, &b));
    DIFFERS(kind, BPK_F32);
    DIFFERS(scheme.form, BPK_SCHEME_LEVELLED);
    DIFFERS(scheme.value, BPK_E2M1);
    DIFFERS(scheme.store, BPK_STORE_U32);
    DIFFERS(scheme.mode, BPK_MODE_LOOKUP);
    DIFFERS(scheme.packed_dim, 1);
    DIFFERS(scheme.has_tensor, true);
    DIFFERS(scheme.has_block, false);
    DIFFERS(scheme.block_scale, BPK_SCALE_F16);
    DIFFERS(scheme.block_len, 1);
    DIFFERS(scheme.block_dims[4], 1);
    SAME(bool_store, BPK_BOOL_U8);
    SAME(scheme.level, BPK_LEVEL_BLOCK);
    SAME(scheme.tensor_scale, BPK_SCALE_F16);
    a.scheme.has_block = false;
    a.scheme.has_tensor = true;
    a.scheme.store = BPK_STORE_NATIVE;
    DIFFERS(scheme.tensor_scale, BPK_SCALE_F16);
    SAME(scheme.packed_dim, 1);
    SAME(scheme.block_scale, BPK_SCALE_F16);
    SAME(scheme.block_len, 1);
    SAME(scheme.block_dims[0], 1);
    a.scheme.form = BPK_SCHEME_LEVELLED;
    DIFFERS(scheme.level, BPK_LEVEL_BLOCK);
    a.kind = BPK_BOOL;
    DIFFERS(bool_store, BPK_BOOL_U8);
    SAME(scheme.mode, BPK_MODE_LOOKUP);
    a.kind = BPK_F32;
    SAME(bool_store, BPK_BOOL_U8);
    DIFFERS(kind, BPK_FLEX32);
}

/* ---- size and memory ------------------------------------------------------------------------- */

START_TEST(large_texts) {
    const size_t count = 200000;
    const size_t value_len = 20 * 1000 * 1000;
    struct bpk_outbuf out = {0};
    bpk_out_str(&out, "{\"long\": \"");
    for (size_t i = 0; i < value_len / 10; i++)
        bpk_out_str(&out, "0123456789");
    bpk_out_str(&out, "\"");
    for (size_t i = 0; i < count; i++) {
        bpk_out_str(&out, ",\n\"");
        bpk_out_u64(&out, i);
        bpk_out_str(&out, "\": \"v\"");
    }
    bpk_out_str(&out, "}");
    struct bpk_string_map map;
    ck_assert_int_eq(bpk_metadata_parse((struct bpk_str){out.text, out.len}, &map, NULL), GOOD);
    ck_assert_uint_eq(map.count, count + 1);
    bpk_string_map_clear(&map);
    bpk_outbuf_clear(&out);
}

/* Each allocation fails in its turn, ours and jansson's. No token is of 16 bytes or more: jansson
 * does not look whether its buffer for longer ones could grow. */
START_TEST(memory_fails) {
    static const char *const texts[] = {
        [SIDECAR] = "{\"dtype\": {\"QFloat\": {" VSM "}}, \"shape\": [1, \"2\"], \"param_id\": 3}",
        [METADATA] = "{\"a\": \"b\", \"c\": \"d\", \"e\": \"f\", \"g\": \"h\"}",
        [SCALARS] = "{\"a\": {\"Int\": 1}, \"b\": {\"Float\": 0.5}, \"c\": {\"Bool\": true}}",
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    for (int parser = SIDECAR; parser <= SCALARS; parser++) {
        struct bpk_str text = str(texts[parser]);
        bool good = false;
        long n = 0;
        for (; !good; n++) {
            union parsed parsed;
            struct bpk_diag diag = {0};
            allocations_left = n;
            enum bpk_text_verdict verdict = parse_raw((enum parser)parser, text, &parsed, &diag);
            good = allocations_left >= 0; /* none failed */
            allocations_left = -1;
            ck_assert_msg(verdict == (good ? BPK_TEXT_GOOD : BPK_TEXT_NO_MEMORY),
                          "allocation %ld of %s: %d %s", n, texts[parser], (int)verdict,
                          diag.sentence);
            if (good)
                parsed_clear((enum parser)parser, &parsed);
        }
        ck_assert_int_gt(n, 10);
    }
    json_set_alloc_funcs(malloc, free);
}

int main(void) {
    Suite *suite = suite_create("json_read");
    TCase *tc = suite_case(suite, "verdicts");
    tcase_add_loop_test(tc, verdicts_and_sentences, 0, ROWS(cases));
    tcase_add_test(tc, nul_bytes_are_bad);
    tcase_add_test(tc, every_prefix_ends_early);
    tcase_add_test(tc, damaged_texts);
    tcase_add_test(tc, deep_texts);
    tc = suite_case(suite, "values");
    tcase_add_test(tc, sidecar_values);
    tcase_add_test(tc, metadata_values);
    tcase_add_loop_test(tc, scalar_values, 0, ROWS(scalar_rows));
    tc = suite_case(suite, "reads back");
    tcase_add_test(tc, numbers_read_back);
    tcase_add_test(tc, dtypes_read_back);
    tcase_add_test(tc, packs_read_back);
    tcase_add_test(tc, dtypes_equal_in_what_counts);
    tc = suite_case(suite, "size and memory");
    tcase_add_test(tc, large_texts);
    tcase_add_test(tc, memory_fails);
    return suite_run(suite);
}
