/* plan: where everything lies, what is kept as it is, the limits, and that an unedited pack comes
 * out byte for byte. */
#include "pack/plan.h"

#include "pack/copy.h"
#include "pack/layout.h"
#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A plan of what the spec makes. */
static struct bpk_plan plan_of(const struct packspec *spec) {
    struct bpk_plan plan;
    struct bpk_pack *base = spec_open(spec);
    ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
    bpk_pack_unref(base); /* the plan has its own reference */
    return plan;
}

static void place(struct bpk_plan *plan, bool can_clone) {
    struct bpk_diag diag = {0};
    int r = bpk_plan_place(plan, can_clone, &diag);
    ck_assert_msg(r == 0, "not placed: %s", diag.sentence);
    ck_assert_uint_eq(plan->data_start % BPK_ALIGNMENT, 0);
    ck_assert_uint_eq(plan->head.len, plan->data_start);
}

static uint32_t metadata_size(const struct bpk_plan *plan) {
    const uint8_t *p = (const uint8_t *)plan->head.text + 6;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Whether the head of the placed plan is what the spec's file begins with. */
static bool head_is(const struct bpk_plan *plan, const struct packspec *spec) {
    struct bytes file;
    spec_file(spec, &file);
    bool same =
        file.len >= plan->head.len && memcmp(file.data, plan->head.text, plan->head.len) == 0;
    same = same && file.len == bpk_plan_file_size(plan);
    bytes_clear(&file);
    return same;
}

/* ---- unedited -------------------------------------------------------------------------------- */

static void spec_sorted(struct packspec *spec) {
    static const uint64_t id = UINT64_MAX;
    spec_init(spec, BPK_LAYOUT_ALIGNED);
    spec_tensor(spec, "a", "63463332", (const uint64_t[]){2, 3}, 2, 24, &id);
    spec_tensor(spec, "b", "a164426f6f6c625538", NULL, 0, 1, NULL);
    spec_u8(spec, "c", 0);
    spec_u8(spec, "d", 5000);
    spec_metadata(spec, "", "empty key");
    spec_metadata(spec, "k", "");
    spec_scalar(spec, "done", "a1 64426f6f6c f5");
    spec_scalar(spec, "epoch", "a1 6455496e74 03");
    spec_scalar(spec, "lr", "a1 65466c6f6174 fb3f50624dd2f1a9fc");
    spec_scalar(spec, "min", "a1 63496e74 3b7fffffffffffffff");
}

START_TEST(an_unedited_pack_comes_out_the_same) {
    struct packspec spec;
    spec_sorted(&spec);
    struct bpk_plan plan = plan_of(&spec);
    place(&plan, false);
    ck_assert(plan.keeps_data);
    ck_assert(head_is(&plan, &spec));
    bpk_plan_clear(&plan);
    spec_clear(&spec);
}

START_TEST(a_pack_without_tensors_comes_out_the_same) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    struct bpk_plan plan = plan_of(&spec);
    place(&plan, false);
    ck_assert(!plan.keeps_data);
    ck_assert(head_is(&plan, &spec));
    ck_assert_uint_eq(bpk_plan_file_size(&plan), 256);
    bpk_plan_clear(&plan);
    spec_clear(&spec);
}

/* Data order is the base's, not that of the names; both are kept. */
START_TEST(order_of_data_is_kept) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    struct bytes *b = &spec.data;
    bytes_fill(b, 1, 300);
    spec_tensor_at(&spec, str("a"), "625538", &(uint64_t){40}, 1, 256, 296, NULL);
    spec_tensor_at(&spec, str("b"), "625538", &(uint64_t){4}, 1, 0, 4, NULL);
    spec.data.len = 296;
    struct bpk_plan plan = plan_of(&spec);
    ck_assert(bpk_str_compare(plan.tensors[0].name, str("b")) == 0);
    place(&plan, false);
    ck_assert(head_is(&plan, &spec));
    bpk_plan_clear(&plan);
    spec_clear(&spec);
}

START_TEST(unknown_keys_come_after_the_known_ones_verbatim) {
    /* in between, in odd spellings; in the descriptor before and after what we know */
    struct bytes block = bytes_from_hex(
        "a3 656c61746572 83017f61616162ffa1f6c180"
        "67 74656e736f7273 a1 6161 a5 6178 f97c00 65 6474797065 625538 65 7368617065 81 01"
        "6c 646174615f6f666673657473 82 00 01 617a 1900ff"
        "6465787472 9f0102ff");
    struct bytes file = bytes_from_hex("4e525542 0100");
    struct bytes expected =
        bytes_from_hex("a3 67 74656e736f7273 a1 6161 a5 65 6474797065 625538 65 7368617065 81 01"
                       "6c 646174615f6f666673657473 82 00 01 6178 f97c00 617a 1900ff"
                       "656c61746572 83017f61616162ffa1f6c180 6465787472 9f0102ff");
    uint8_t size[4] = {(uint8_t)block.len, 0, 0, 0};
    bytes_add(&file, size, 4);
    bytes_add(&file, block.data, block.len);
    bytes_fill(&file, 0, 256 - file.len);
    bytes_fill(&file, 7, 1);
    struct bpk_pack *base;
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bytes_open(&file, NULL, &base, &diag), 0);
    struct bpk_plan plan;
    ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
    bpk_pack_unref(base);
    place(&plan, false);
    ck_assert_uint_eq(plan.cbor_size, expected.len);
    ck_assert_int_eq(memcmp(plan.head.text + 10, expected.data, expected.len), 0);
    bpk_plan_clear(&plan);
    bytes_clear(&block);
    bytes_clear(&file);
    bytes_clear(&expected);
}

/* A rich pack is not sorted as a writer sorts: once written, it is, and stays. */
START_TEST(writing_twice_is_writing_once) {
    struct packspec spec;
    spec_rich(&spec);
    struct bpk_plan plan = plan_of(&spec);
    place(&plan, false);
    char path[TEMP_PATH];
    temp_write(plan.head.text, plan.head.len, path);
    ck_assert_int_eq(truncate(path, (off_t)bpk_plan_file_size(&plan)), 0);
    struct bpk_pack *again;
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_pack_open(path, NULL, &again, &diag), 0);
    struct bpk_plan second;
    ck_assert_int_eq(bpk_plan_from_pack(again, &second), 0);
    bpk_pack_unref(again);
    place(&second, false);
    ck_assert_uint_eq(second.head.len, plan.head.len);
    ck_assert_int_eq(memcmp(second.head.text, plan.head.text, plan.head.len), 0);
    bpk_plan_clear(&second);
    bpk_plan_clear(&plan);
    unlink(path);
    spec_clear(&spec);
}

/* ---- placement ------------------------------------------------------------------------------- */

static int no_run(void *context, uint64_t offset, struct bpk_run *ret_run) {
    (void)context;
    (void)offset;
    (void)ret_run;
    return -EIO;
}

static struct bpk_plan_tensor sized(const char *name, uint64_t size) {
    return (struct bpk_plan_tensor){
        .name = str(name),
        .dtype_cbor = {"\x62U8", 3},
        .size = size,
        .next_run = no_run,
    };
}

/* A plan from nothing; the tensors are copied. */
static struct bpk_plan plan_from(const struct bpk_plan_tensor *tensors, size_t count) {
    struct bpk_plan plan = {.tensor_count = count};
    plan.tensors = calloc(count + 1, sizeof(*tensors));
    ck_assert_ptr_nonnull(plan.tensors);
    if (count > 0)
        memcpy(plan.tensors, tensors, count * sizeof(*tensors));
    return plan;
}

START_TEST(starts_are_aligned_and_ends_are_not) {
    const struct bpk_plan_tensor tensors[] = {sized("e", 1), sized("d", 0), sized("c", 256),
                                              sized("b", 257), sized("a", 0)};
    static const uint64_t starts[] = {0, 256, 256, 512, 1024};
    struct bpk_plan plan = plan_from(tensors, ROWS(tensors));
    place(&plan, true);
    for (int i = 0; i < ROWS(starts); i++)
        ck_assert_uint_eq(plan.tensors[i].start, starts[i]);
    ck_assert_uint_eq(plan.data_size, 1024);
    ck_assert_uint_eq(metadata_size(&plan), plan.cbor_size);
    ck_assert_uint_eq(plan.data_start, bpk_layout_align(10 + plan.cbor_size));
    bpk_plan_clear(&plan);
}

START_TEST(data_is_kept_only_if_it_is_all_there_in_order) {
    struct packspec spec;
    spec_sorted(&spec);
    /* renamed and with another descriptor: still the same data */
    struct bpk_plan plan = plan_of(&spec);
    plan.tensors[1].name = str("zz");
    plan.tensors[1].from = NULL;
    plan.tensors[1].dtype_cbor = (struct bpk_str){"\x62I8", 3};
    place(&plan, false);
    ck_assert(plan.keeps_data);
    bpk_plan_clear(&plan);
    /* two changed places */
    plan = plan_of(&spec);
    struct bpk_plan_tensor first = plan.tensors[0];
    plan.tensors[0] = plan.tensors[1];
    plan.tensors[1] = first;
    place(&plan, false);
    ck_assert(!plan.keeps_data);
    bpk_plan_clear(&plan);
    /* one is gone */
    plan = plan_of(&spec);
    plan.tensor_count--;
    place(&plan, false);
    ck_assert(!plan.keeps_data);
    bpk_plan_clear(&plan);
    /* one has other bytes */
    plan = plan_of(&spec);
    plan.tensors[0].next_run = no_run;
    place(&plan, false);
    ck_assert(!plan.keeps_data);
    ck_assert(plan.joins_padding);
    bpk_plan_clear(&plan);
    /* there is more in it than tensors */
    plan = plan_of(&spec);
    plan.drops_strays = true;
    place(&plan, false);
    ck_assert(!plan.keeps_data);
    ck_assert(!plan.joins_padding);
    bpk_plan_clear(&plan);
    spec_clear(&spec);
}

START_TEST(faults_of_place_are_kept_with_the_data_and_mended_without) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    bytes_fill(&spec.data, 1, 100);
    spec_tensor_at(&spec, str("a"), "625538", &(uint64_t){50}, 1, 0, 50, NULL);
    spec_tensor_at(&spec, str("b"), "625538", &(uint64_t){60}, 1, 40, 100, NULL); /* overlaps */
    struct bpk_plan plan = plan_of(&spec);
    place(&plan, false);
    ck_assert(plan.keeps_data);
    ck_assert_uint_eq(plan.tensors[1].start, 40);
    bpk_plan_clear(&plan);
    plan = plan_of(&spec);
    plan.tensors[0].next_run = no_run;
    place(&plan, false);
    ck_assert_uint_eq(plan.tensors[1].start, 256);
    ck_assert_uint_eq(plan.data_size, 316);
    bpk_plan_clear(&plan);
    spec_clear(&spec);
}

START_TEST(the_old_layout_is_written_aligned) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_LEGACY);
    spec_u8(&spec, "a", 3);
    spec_u8(&spec, "b", 5);
    spec_metadata(&spec, "version", "0.19.0");
    for (int can_clone = 0; can_clone < 2; can_clone++) {
        struct bpk_plan plan = plan_of(&spec);
        place(&plan, can_clone);
        ck_assert(!plan.keeps_data);
        ck_assert_uint_eq(plan.tensors[1].start, 256);
        ck_assert_uint_eq(metadata_size(&plan), plan.cbor_size);
        bpk_plan_clear(&plan);
    }
    spec_clear(&spec);
}

/* ---- metadata_size --------------------------------------------------------------------------- */

/* The rule of semantics.md 4 for every length of a value: M = C, or the gap is filled so that data
 * moves by whole blocks. */
START_TEST(blocks_stay_congruent_where_they_can_be_shared) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 10000);
    static char value[20000];
    memset(value, 'v', sizeof(value));
    struct bpk_pack *base = spec_open(&spec);
    uint64_t base_start = base->data_start;
    for (size_t len = 0; len < sizeof(value); len += 61) {
        struct bpk_plan plan;
        ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
        plan.metadata[0] = (struct bpk_plan_entry){str("k"), {value, len}};
        plan.metadata_count = 1;
        place(&plan, true);
        uint64_t natural = bpk_layout_align(10 + (uint64_t)plan.cbor_size);
        HOLDS(plan.data_start % BPK_CLONE_BLOCK == base_start % BPK_CLONE_BLOCK);
        HOLDS(plan.data_start >= natural && plan.data_start < natural + BPK_CLONE_BLOCK);
        HOLDS(metadata_size(&plan) ==
              (plan.data_start == natural ? plan.cbor_size : plan.data_start - 10));
        for (uint64_t at = 10 + plan.cbor_size; at < plan.data_start; at++)
            HOLDS(plan.head.text[at] == 0);
        bpk_plan_clear(&plan);
        ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
        plan.metadata[0] = (struct bpk_plan_entry){str("k"), {value, len}};
        plan.metadata_count = 1;
        place(&plan, false);
        HOLDS(plan.data_start == natural && metadata_size(&plan) == plan.cbor_size);
        bpk_plan_clear(&plan);
    }
    bpk_pack_unref(base);
    spec_clear(&spec);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static int place_fails(struct bpk_plan *plan, const char *part) {
    struct bpk_diag diag = {0};
    int r = bpk_plan_place(plan, false, &diag);
    ck_assert_int_eq(diag.code, r);
    ck_assert_msg(strstr(diag.sentence, part) != NULL, "%s", diag.sentence);
    bpk_plan_clear(plan);
    return r;
}

START_TEST(a_tensor_may_have_10_gib) {
    struct bpk_plan_tensor tensor = sized("big", BPK_MAX_TENSOR);
    struct bpk_plan plan = plan_from(&tensor, 1);
    place(&plan, false);
    ck_assert_uint_eq(plan.data_size, BPK_MAX_TENSOR);
    bpk_plan_clear(&plan);
    tensor.size++;
    plan = plan_from(&tensor, 1);
    ck_assert_int_eq(place_fails(&plan, "10 GiB"), -EFBIG);
}

START_TEST(a_file_may_have_100_gib) {
    struct bpk_plan_tensor tensors[11];
    static const char *const names[11] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"};
    for (int i = 0; i < 11; i++)
        tensors[i] = sized(names[i], i < 9 ? BPK_MAX_TENSOR : BPK_MAX_TENSOR - 4096);
    struct bpk_plan plan = plan_from(tensors, 10);
    place(&plan, false);
    bpk_plan_clear(&plan);
    plan = plan_from(tensors, 11);
    ck_assert_int_eq(place_fails(&plan, "limit"), -EFBIG);
    /* the data alone would fit, not with what is before it */
    tensors[9].size = BPK_MAX_TENSOR;
    plan = plan_from(tensors, 10);
    ck_assert_int_eq(place_fails(&plan, "limit"), -EFBIG);
}

START_TEST(there_may_be_100000_tensors) {
    enum { COUNT = 100001 };
    struct bpk_plan_tensor *tensors = calloc(COUNT, sizeof(*tensors));
    char(*names)[8] = calloc(COUNT, sizeof(*names));
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "%d", i);
        tensors[i] = sized(names[i], 0);
    }
    struct bpk_plan plan = plan_from(tensors, COUNT - 1);
    place(&plan, false);
    bpk_plan_clear(&plan);
    plan = plan_from(tensors, COUNT);
    ck_assert_int_eq(place_fails(&plan, "100000"), -EFBIG);
    free(tensors);
    free(names);
}

START_TEST(metadata_may_have_100_mib) {
    struct bpk_plan plan = plan_from(NULL, 0);
    size_t len = BPK_MAX_METADATA - 1 - 8 - 1 - 9 - 1 - 2 - 5;
    char *value = malloc(len + 1);
    memset(value, 'x', len + 1);
    plan.metadata = calloc(1, sizeof(*plan.metadata));
    plan.metadata_count = 1;
    plan.metadata[0] = (struct bpk_plan_entry){str("k"), {value, len}};
    place(&plan, false);
    ck_assert_uint_eq(plan.cbor_size, BPK_MAX_METADATA);
    plan.metadata[0].value.len++;
    ck_assert_int_eq(place_fails(&plan, "104857600"), -EFBIG);
    free(value);
}

START_TEST(duplicates_are_refused_by_name) {
    const struct bpk_plan_tensor tensors[] = {sized("a", 1), sized("b\x1b", 2), sized("b\x1b", 3)};
    struct bpk_plan plan = plan_from(tensors, 3);
    ck_assert_int_eq(place_fails(&plan, "two tensors are named 'b"), -EINVAL);
    plan = plan_from(tensors, 1);
    plan.metadata = calloc(2, sizeof(*plan.metadata));
    plan.metadata_count = 2;
    plan.metadata[0].key = plan.metadata[1].key = str("key");
    ck_assert_int_eq(place_fails(&plan, "'key'"), -EINVAL);
    plan = plan_from(tensors, 1);
    plan.scalars = calloc(2, sizeof(*plan.scalars));
    plan.scalar_count = 2;
    plan.scalars[0].name = plan.scalars[1].name = str("lr");
    ck_assert_int_eq(place_fails(&plan, "'lr'"), -EINVAL);
}

START_TEST(scalars_can_own_their_names) {
    char name[8] = "epoch";
    struct bpk_plan plan = plan_from(NULL, 0);
    plan.scalars = calloc(2, sizeof(*plan.scalars));
    plan.scalar_count = 2;
    plan.scalars[0] = (struct bpk_scalar){{name, 5}, BPK_SCALAR_UINT, 42};
    plan.scalars[1] = (struct bpk_scalar){{name, 0}, BPK_SCALAR_INT, (uint64_t)-3};
    ck_assert_int_eq(bpk_plan_own_scalars(&plan), 0);
    memset(name, 'x', sizeof(name));
    place(&plan, false);
    struct bytes expected = bytes_from_hex("a2 67 74656e736f7273 a0 67 7363616c617273 a2"
                                           "60 a1 63496e74 22 65 65706f6368 a1 6455496e74 182a");
    ck_assert_uint_eq(plan.cbor_size, expected.len);
    ck_assert_int_eq(memcmp(plan.head.text + 10, expected.data, expected.len), 0);
    bytes_clear(&expected);
    bpk_plan_clear(&plan);
}

int main(void) {
    Suite *suite = suite_create("plan");
    TCase *tc = suite_case(suite, "unedited");
    tcase_add_test(tc, an_unedited_pack_comes_out_the_same);
    tcase_add_test(tc, a_pack_without_tensors_comes_out_the_same);
    tcase_add_test(tc, order_of_data_is_kept);
    tcase_add_test(tc, unknown_keys_come_after_the_known_ones_verbatim);
    tcase_add_test(tc, writing_twice_is_writing_once);
    tc = suite_case(suite, "places");
    tcase_add_test(tc, starts_are_aligned_and_ends_are_not);
    tcase_add_test(tc, data_is_kept_only_if_it_is_all_there_in_order);
    tcase_add_test(tc, faults_of_place_are_kept_with_the_data_and_mended_without);
    tcase_add_test(tc, the_old_layout_is_written_aligned);
    tcase_add_test(tc, blocks_stay_congruent_where_they_can_be_shared);
    tc = suite_case(suite, "limits");
    tcase_add_test(tc, a_tensor_may_have_10_gib);
    tcase_add_test(tc, a_file_may_have_100_gib);
    tcase_add_test(tc, there_may_be_100000_tensors);
    tcase_add_test(tc, metadata_may_have_100_mib);
    tcase_add_test(tc, duplicates_are_refused_by_name);
    tcase_add_test(tc, scalars_can_own_their_names);
    return suite_run(suite);
}
