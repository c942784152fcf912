/* sidecar: the JSON beside a tensor, as a file and as a part of a list (semantics.md 2). */
#include "view/sidecar.h"

#include "packbuild.h"
#include "suite.h"

static void expect(struct bpk_outbuf *out, const char *text) {
    bpk_out(out, "", 1);
    ck_assert(!out->failed);
    ck_assert_str_eq(out->text, text);
    bpk_outbuf_clear(out);
}

static uint32_t find(const struct bpk_pack *pack, const char *name) {
    uint32_t index = UINT32_MAX;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str(name), &index), 0);
    return index;
}

static const struct {
    const char *name;
    const char *json;
} rows[] = {
    {"conv.weight", "{\n"
                    "  \"name\": \"conv.weight\",\n"
                    "  \"dtype\": \"F32\",\n"
                    "  \"shape\": [2, 3],\n"
                    "  \"param_id\": \"9505838338724798577\",\n"
                    "  \"nbytes\": 24,\n"
                    "  \"data_offsets\": [0, 24],\n"
                    "  \"numpy\": \"<f4\"\n"
                    "}\n"},
    {"conv.weight.lora.a", "{\n"
                           "  \"name\": \"conv.weight.lora.a\",\n"
                           "  \"dtype\": \"BF16\",\n"
                           "  \"shape\": [4],\n"
                           "  \"param_id\": null,\n"
                           "  \"nbytes\": 8,\n"
                           "  \"data_offsets\": [256, 264],\n"
                           "  \"numpy\": \"<V2\"\n"
                           "}\n"},
    {"flag", "{\n"
             "  \"name\": \"flag\",\n"
             "  \"dtype\": {\"Bool\": \"Native\"},\n"
             "  \"shape\": [],\n"
             "  \"param_id\": null,\n"
             "  \"nbytes\": 1,\n"
             "  \"data_offsets\": [512, 513],\n"
             "  \"numpy\": \"|b1\"\n"
             "}\n"},
    {"q", "{\n"
          "  \"name\": \"q\",\n"
          "  \"dtype\": {\"QFloat\": {\"value\": \"Q8F\", \"store\": {\"PackedU32\": 0}, "
          "\"mode\": \"Symmetric\", \"tensor\": null, \"block\": null}},\n"
          "  \"shape\": [4, 4],\n"
          "  \"param_id\": null,\n"
          "  \"nbytes\": 20,\n"
          "  \"data_offsets\": [768, 788],\n"
          "  \"numpy\": \"|u1\"\n"
          "}\n"},
    {"wrong", "{\n"
              "  \"name\": \"wrong\",\n"
              "  \"dtype\": \"F32\",\n"
              "  \"shape\": [3],\n"
              "  \"param_id\": null,\n"
              "  \"nbytes\": 8,\n"
              "  \"data_offsets\": [1024, 1032],\n"
              "  \"numpy\": \"<f4\",\n"
              "  \"problem\": \"has 8 bytes, but shape [3] of F32 needs 12\"\n"
              "}\n"},
};

START_TEST(files) {
    struct packspec spec;
    struct bpk_outbuf out = {0};
    spec_rich(&spec);
    struct bpk_pack *pack = spec_open(&spec);
    bpk_sidecar_file(&out, pack, find(pack, rows[_i].name));
    struct bpk_outbuf counted = {.counting = true};
    bpk_sidecar_file(&counted, pack, find(pack, rows[_i].name));
    ck_assert_uint_eq(counted.len, out.len);
    expect(&out, rows[_i].json);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

START_TEST(indented_in_a_list) {
    struct packspec spec;
    struct bpk_outbuf out = {0};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a\"\x1b", 3);
    struct bpk_pack *pack = spec_open(&spec);
    bpk_sidecar_of_tensor(&out, pack, 0, "0123456789abcdef", 2);
    expect(&out, "{\n"
                 "    \"name\": \"a\\\"\\u001b\",\n"
                 "    \"dtype\": \"U8\",\n"
                 "    \"shape\": [3],\n"
                 "    \"param_id\": null,\n"
                 "    \"nbytes\": 3,\n"
                 "    \"data_offsets\": [0, 3],\n"
                 "    \"numpy\": \"|u1\",\n"
                 "    \"xxh3\": \"0123456789abcdef\"\n"
                 "  }");
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* What is new has no offsets yet. */
START_TEST(without_offsets) {
    struct bpk_outbuf out = {0};
    const struct bpk_sidecar sidecar = {
        .name = str(""),
        .dtype = {.kind = BPK_F64},
        .has_param_id = true,
        .param_id = 5,
        .size = UINT64_C(1) << 54,
        .problem = "is \"odd\"",
    };
    bpk_sidecar_object(&out, &sidecar, 0);
    expect(&out, "{\n"
                 "  \"name\": \"\",\n"
                 "  \"dtype\": \"F64\",\n"
                 "  \"shape\": [],\n"
                 "  \"param_id\": 5,\n"
                 "  \"nbytes\": \"18014398509481984\",\n"
                 "  \"data_offsets\": null,\n"
                 "  \"numpy\": \"<f8\",\n"
                 "  \"problem\": \"is \\\"odd\\\"\"\n"
                 "}");
}

int main(void) {
    Suite *suite = suite_create("sidecar");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, files, 0, ROWS(rows));
    tcase_add_test(tc, indented_in_a_list);
    tcase_add_test(tc, without_offsets);
    return suite_run(suite);
}
