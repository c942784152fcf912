/* maps: metadata.json, metadata/KEY and scalars.json (semantics.md 2). */
#include "view/maps.h"

#include "packbuild.h"
#include "suite.h"
#include "view/json_read.h"

static void expect(struct bpk_outbuf *out, const char *text) {
    bpk_out(out, "", 1);
    ck_assert(!out->failed);
    ck_assert_str_eq(out->text, text);
    bpk_outbuf_clear(out);
}

START_TEST(empty_maps) {
    struct packspec spec;
    struct bpk_outbuf out = {0};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    struct bpk_pack *pack = spec_open(&spec);
    bpk_metadata_file(&out, pack);
    expect(&out, "{}\n");
    bpk_scalars_file(&out, pack);
    expect(&out, "{}\n");
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* In byte order; a key with a NUL is in metadata/ only, also where it is the first or the only. */
START_TEST(metadata) {
    struct packspec spec;
    struct bpk_outbuf out = {0};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_metadata_n(&spec, (struct bpk_str){"\0", 1}, str("nul"));
    struct bpk_pack *pack = spec_open(&spec);
    bpk_metadata_file(&out, pack);
    expect(&out, "{}\n");
    bpk_metadata_value_file(&out, pack, 0);
    expect(&out, "nul\n");
    bpk_pack_unref(pack);
    spec_metadata(&spec, "z", "a\nb\"");
    spec_metadata(&spec, "", "");
    spec_metadata(&spec, "é\xe2\x80\xae", "x");
    pack = spec_open(&spec);
    bpk_metadata_file(&out, pack);
    expect(&out, "{\n"
                 "  \"\": \"\",\n"
                 "  \"z\": \"a\\nb\\\"\",\n"
                 "  \"é\\u202e\": \"x\"\n"
                 "}\n");
    bpk_metadata_object(&out, pack, 4);
    expect(&out, "{\n"
                 "      \"\": \"\",\n"
                 "      \"z\": \"a\\nb\\\"\",\n"
                 "      \"é\\u202e\": \"x\"\n"
                 "    }");
    bpk_metadata_value_file(&out, pack, 0);
    expect(&out, "\n"); /* the empty value */
    bpk_metadata_value_file(&out, pack, 2);
    expect(&out, "a\nb\"\n"); /* as it is */
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

START_TEST(scalars) {
    struct packspec spec;
    struct bpk_outbuf out = {0};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_scalar(&spec, "b", "a1 64426f6f6c f4");
    spec_scalar(&spec, "a", "a1 64426f6f6c f5");
    spec_scalar(&spec, "big", "a1 6455496e74 1bffffffffffffffff");
    spec_scalar(&spec, "epoch", "a1 6455496e74 03");
    spec_scalar(&spec, "least", "a1 63496e74 3b7fffffffffffffff");
    spec_scalar(&spec, "lr", "a1 65466c6f6174 fb3f50624dd2f1a9fc");
    spec_scalar(&spec, "nan", "a1 65466c6f6174 f97e00");
    spec_scalar(&spec, "one", "a1 65466c6f6174 f93c00");
    struct bpk_pack *pack = spec_open(&spec);
    bpk_scalars_file(&out, pack);
    expect(&out, "{\n"
                 "  \"a\": {\"Bool\": true},\n"
                 "  \"b\": {\"Bool\": false},\n"
                 "  \"big\": {\"UInt\": \"18446744073709551615\"},\n"
                 "  \"epoch\": {\"UInt\": 3},\n"
                 "  \"least\": {\"Int\": \"-9223372036854775808\"},\n"
                 "  \"lr\": {\"Float\": 0.001},\n"
                 "  \"nan\": {\"Float\": \"NaN\"},\n"
                 "  \"one\": {\"Float\": 1.0}\n"
                 "}\n");
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* jq writes a float that is -0.0 as -0, which jansson reads as the integer 0. */
START_TEST(the_sign_of_zero_stays) {
    static const char text[] =
        "{\"-\": {\"Float\": 0}, \"a,-{\": {\"Float\": -0}, \"b\": {\"Int\": -0},\n"
        "\"c\\\"-\": {\"Float\": 0 }, \"d\": {\"Float\":-0}, \"e\": {\"Float\": -0.0},"
        "\"f\": {\"Int\": -7}, \"g\": {\"Float\": 0}, \"h\": {\"Float\": -0 }}";
    static const bool minus[] = {false, true, false, false, true, true, false, false, true};
    struct bpk_scalar_map map;
    ck_assert_int_eq(bpk_scalars_parse(str(text), &map, NULL), BPK_TEXT_GOOD);
    ck_assert_uint_eq(map.count, ROWS(minus));
    for (size_t i = 0; i < map.count; i++)
        if (map.scalars[i].kind == BPK_SCALAR_FLOAT)
            ck_assert_uint_eq(map.scalars[i].bits, minus[i] ? UINT64_C(1) << 63 : 0);
    bpk_scalar_map_clear(&map);
}

int main(void) {
    Suite *suite = suite_create("maps");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, empty_maps);
    tcase_add_test(tc, metadata);
    tcase_add_test(tc, scalars);
    tcase_add_test(tc, the_sign_of_zero_stays);
    return suite_run(suite);
}
