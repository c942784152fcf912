/* index: index.tsv, one line a tensor (semantics.md 1). */
#include "view/index.h"

#include "packbuild.h"
#include "suite.h"

#include <string.h>

START_TEST(one_line_a_tensor) {
    struct packspec spec;
    struct bpk_names *names;
    struct bpk_outbuf out = {0};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_tensor(&spec, "w", "63463332", (const uint64_t[]){64, 1, 3}, 3, 768, NULL);
    spec_tensor(&spec, "a\tb/c", "a164426f6f6c63553332", NULL, 0, 4, NULL);
    spec_tensor(&spec, "q",
                "a16651466c6f6174a56576616c7565635138466573746f7265a1695061636b656455333200646d6f"
                "64656953796d6d65747269636674656e736f72f665626c6f636bf6",
                (const uint64_t[]){UINT64_MAX}, 1, 4, NULL);
    spec_u8(&spec, "", 0);
    struct bpk_pack *pack = spec_open(&spec);
    ck_assert_int_eq(bpk_names_new(pack, BPK_NAMES_TENSORS, &names), 0);
    bpk_index_file(&out, pack, names);
    bpk_out(&out, "", 1);
    ck_assert_str_eq(out.text, "name\tdtype\tshape\tbytes\toffset\n"
                               "%\t\"U8\"\t0\t0\t1792\n"
                               "a%09b%2Fc\t{\"Bool\":\"U32\"}\t\t4\t1280\n"
                               "q\t{\"QFloat\":{\"value\":\"Q8F\",\"store\":{\"PackedU32\":0},"
                               "\"mode\":\"Symmetric\",\"tensor\":null,\"block\":null}}"
                               "\t18446744073709551615\t4\t1536\n"
                               "w\t\"F32\"\t64x1x3\t768\t512\n");
    struct bpk_outbuf counted = {.counting = true};
    bpk_index_file(&counted, pack, names);
    ck_assert_uint_eq(counted.len, out.len - 1);
    bpk_outbuf_clear(&out);
    bpk_names_free(names);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

START_TEST(header_line_alone) {
    struct packspec spec;
    struct bpk_names *names;
    struct bpk_outbuf out = {0};
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    struct bpk_pack *pack = spec_open(&spec);
    ck_assert_int_eq(bpk_names_new(pack, BPK_NAMES_TENSORS, &names), 0);
    bpk_index_file(&out, pack, names);
    bpk_out(&out, "", 1);
    ck_assert_str_eq(out.text, "name\tdtype\tshape\tbytes\toffset\n");
    bpk_outbuf_clear(&out);
    bpk_names_free(names);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

int main(void) {
    Suite *suite = suite_create("index");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, one_line_a_tensor);
    tcase_add_test(tc, header_line_alone);
    return suite_run(suite);
}
