/* Packs that are cut or odd, opened all the same: what is kept, and what is said of the rest. */
#include "bpk.h"
#include "packbuild.h"
#include "suite.h"

START_TEST(salvage_of_a_cut_legacy_pack) {
    const struct bpk_open_options options = {.salvage = true};
    struct packspec spec;
    struct bytes file;
    struct bpk_pack *pack;
    spec_init(&spec, BPK_LAYOUT_LEGACY);
    spec_u8(&spec, "a", 300);
    spec_u8(&spec, "b", 3000);
    spec_metadata(&spec, "version", "0.19.0");
    spec_file(&spec, &file);
    file.len -= 1000;
    ck_assert_int_eq(bytes_open(&file, &options, &pack, NULL), 0);
    uint8_t first;
    size_t n;
    ck_assert_int_eq(bpk_pack_read(pack, 0, 0, &first, 1, &n), 0);
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    ck_assert_int_eq(info.layout, BPK_LAYOUT_LEGACY);
    ck_assert_int_eq(first, pattern_byte(0));
    bpk_pack_unref(pack);
    bytes_clear(&file);
    spec_clear(&spec);
}

static void count(void *context, uint32_t tensor, const char *sentence) {
    (void)tensor;
    (void)sentence;
    ++*(int *)context;
}

START_TEST(padding_without_tensors) {
    struct packspec spec;
    int found = 0;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec.padding = 9;
    struct bpk_pack *pack = spec_open(&spec);
    ck_assert_int_eq(bpk_pack_check(pack, count, &found), 0);
    ck_assert_int_eq(found, 1);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

START_TEST(salvage_reports_no_padding_of_dropped_tensors) {
    const struct bpk_open_options options = {.salvage = true};
    struct packspec spec;
    struct bytes file;
    struct bpk_pack *pack;
    int found = 0;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 256);
    spec_u8(&spec, "b", 3000);
    spec_file(&spec, &file);
    file.len -= 1;
    ck_assert_int_eq(bytes_open(&file, &options, &pack, NULL), 0);
    ck_assert_int_eq(bpk_pack_check(pack, count, &found), 0);
    ck_assert_int_eq(found, 1);
    bpk_pack_unref(pack);
    bytes_clear(&file);
    spec_clear(&spec);
}

int main(void) {
    Suite *suite = suite_create("salvage");
    TCase *all = suite_case(suite, "all");
    tcase_add_test(all, salvage_of_a_cut_legacy_pack);
    tcase_add_test(all, padding_without_tensors);
    tcase_add_test(all, salvage_reports_no_padding_of_dropped_tensors);
    return suite_run(suite);
}
