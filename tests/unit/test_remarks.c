/* remarks: what a new pack says to have mended or dropped is what it mended or dropped. */
#include "pack/replace.h"

#include "editkit.h"
#include "suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MENDED                                                                                     \
    "mended: overlapping tensors and those that did not start on a multiple of 256 have places "   \
    "of their own now: "
#define STRAYS "dropped: bytes between the tensors that belonged to none, the first at byte "

static char folder[TEMP_PATH];
static char path[TEMP_PATH + 20];

static void add_problem(void *context, uint32_t tensor, const char *sentence) {
    (void)tensor;
    bpk_remarks_collect(context, sentence);
}

static bool is(const struct bpk_outbuf *text, const char *expected) {
    return text->len == strlen(expected) &&
           strncmp(text->len ? text->text : "", expected, text->len) == 0;
}

static struct bpk_plan begin(const struct packspec *spec) {
    struct bytes file;
    struct bpk_pack *base;
    struct bpk_plan plan;
    struct bpk_diag diag = {0};
    kit_folder(folder);
    snprintf(path, sizeof(path), "%s/p.bpk", folder);
    spec_file(spec, &file);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, file.data, file.len), (ssize_t)file.len);
    close(fd);
    bytes_clear(&file);
    ck_assert_msg(bpk_pack_open(path, NULL, &base, &diag) == 0, "%s", diag.sentence);
    ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
    bpk_pack_unref(base);
    return plan;
}

/* Writes the plan: what is said then, and what a check of the new pack says. Zeros are all that
 * lies between its tensors. */
static void end(struct bpk_plan *plan, bool keeps_data, const char *said, const char *problems) {
    static const struct bpk_open_options aligned = {.force_layout = true};
    _cleanup_outbuf_ struct bpk_outbuf lines = {0};
    _cleanup_outbuf_ struct bpk_outbuf found = {0};
    struct bpk_replace_options options = {.remarks = {bpk_remarks_collect, &lines}};
    struct bpk_diag diag = {0};
    struct bpk_pack *made;
    int r = bpk_replace(plan, path, &options, NULL, &diag);
    ck_assert_msg(r == 0, "%s", diag.sentence);
    ck_assert_int_eq(plan->keeps_data, keeps_data);
    ck_assert_msg(is(&lines, said), "%.*s", (int)lines.len, lines.text);
    ck_assert_int_eq(bpk_pack_open(path, &aligned, &made, &diag), 0);
    ck_assert_int_eq(bpk_pack_check(made, add_problem, &found), 0);
    ck_assert_msg(is(&found, problems), "%.*s", (int)found.len, found.text);
    bpk_pack_unref(made);
    bpk_plan_clear(plan);
    kit_remove_folder(folder);
}

static void at(struct packspec *spec, const char *name, uint64_t start, uint64_t stop) {
    spec_tensor_at(spec, str(name), "625538", &(uint64_t){stop - start}, 1, start, stop, NULL);
}

static void spec_filled(struct packspec *spec, enum bpk_layout layout, size_t size) {
    spec_init(spec, layout);
    bytes_fill(&spec->data, 1, size);
}

START_TEST(a_good_pack_is_not_worth_a_word) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 3);
    spec_u8(&spec, "b", 0);
    spec_u8(&spec, "c", 300);
    spec_metadata(&spec, "k", "v");
    struct bpk_plan plan = begin(&spec);
    plan.metadata_count--;
    end(&plan, true, "", "");
    plan = begin(&spec);
    plan.tensor_count--;
    end(&plan, false, "", "");
    spec_clear(&spec);
}

START_TEST(what_no_name_leads_to_is_dropped) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 300);
    spec_metadata(&spec, "k", "1");
    spec_metadata(&spec, "k", "2");
    spec_scalar(&spec, "s", "a1 63496e74 01");
    spec_scalar(&spec, "s", "a1 63496e74 02");
    spec_scalar(&spec, "s", "a1 63496e74 03");
    bytes_hex(&spec.tail, "000102");
    bytes_fill(&spec.data, 9, 7);
    struct bpk_plan plan = begin(&spec);
    end(&plan, true,
        "dropped: duplicate metadata keys, 1 that later ones hid\n"
        "dropped: duplicate scalar names, 2 that later ones hid\n"
        "dropped: 3 bytes after the metadata, inside metadata_size\n"
        "dropped: 7 bytes after the last tensor\n",
        "");
    spec_clear(&spec);
}

START_TEST(zeros_after_the_metadata_are_nothing) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 300);
    bytes_fill(&spec.tail, 0, 1000);
    struct bpk_plan plan = begin(&spec);
    end(&plan, true, "", "");
    spec_clear(&spec);
}

/* The bytes of the first "b" lie in a gap that is too large for padding. */
START_TEST(bytes_of_a_hidden_tensor_go_with_it) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 256);
    spec_u8(&spec, "b", 256);
    spec_u8(&spec, "b", 256);
    for (int zeros = 0; zeros < 2; zeros++) {
        if (zeros)
            memset(spec.data.data + 256, 0, 256);
        struct bpk_plan plan = begin(&spec);
        uint64_t stray = plan.base->data_start + 256 + (pattern_byte(256) == 0);
        char said[300] = "dropped: duplicate tensor names, 1 that later ones hid\n";
        if (!zeros)
            sprintf(said + strlen(said), STRAYS "%llu\n", (unsigned long long)stray);
        end(&plan, zeros, said, "");
    }
    spec_clear(&spec);
}

static bool can_clone(const struct bpk_plan *plan) {
    int fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    bool can = bpk_copy_can_clone(plan->base->fd, fd);
    close(fd);
    return can;
}

/* Padding that is not zero is found where the data is copied anyway, and comes along where its
 * blocks are shared. */
START_TEST(padding_is_looked_at_where_it_costs_little) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 3);
    spec_u8(&spec, "b", 3);
    spec_u8(&spec, "c", 3);
    spec.data.data[511] = 1;
    for (int removes = 0; removes < 2; removes++) {
        struct bpk_plan plan = begin(&spec);
        unsigned long long stray = plan.base->data_start + 511;
        char said[200] = "";
        char found[200] = "";
        bool kept = can_clone(&plan);
        plan.tensor_count -= (size_t)removes;
        if (kept)
            sprintf(found, "the padding is not zero at byte %llu\n", stray);
        else
            sprintf(said, STRAYS "%llu\n", stray);
        end(&plan, kept && !removes, said, found);
    }
    spec_clear(&spec);
}

START_TEST(faults_of_place_are_mended_when_the_data_moves) {
    struct packspec spec;
    spec_filled(&spec, BPK_LAYOUT_ALIGNED, 1024);
    at(&spec, "a", 0, 500);
    at(&spec, "b", 256, 600);
    at(&spec, "c", 600, 1000);
    at(&spec, "d", 1000, 1024);
    struct bpk_plan plan = begin(&spec);
    end(&plan, true, "",
        "its bytes overlap those of 'b'\n"
        "its bytes overlap those of 'a'\n"
        "starts at 600, which is no multiple of 256\n"
        "starts at 1000, which is no multiple of 256\n");
    plan = begin(&spec);
    plan.tensor_count--;
    plan.tensors[0].name = str("new\nname");
    end(&plan, false, MENDED "'new\\x0aname', 'b', 'c'\n", "");
    spec_clear(&spec);
}

/* All of them over each other; one has a name that is too long to be shown whole. */
START_TEST(five_of_the_mended_are_named) {
    static const char *const names[] = {"b", "c", "d", "e", "f", "g", "h", "i"};
    struct packspec spec;
    char long_name[300];
    memset(long_name, 'n', sizeof(long_name));
    spec_filled(&spec, BPK_LAYOUT_ALIGNED, 1024);
    for (int i = 0; i < ROWS(names); i++)
        at(&spec, names[i], 0, 1024);
    spec_tensor_at(&spec, (struct bpk_str){long_name, sizeof(long_name)}, "625538",
                   (const uint64_t[]){9}, 1, 0, 9, NULL); /* the first in the data */
    for (size_t count = 5; count <= 8; count++) {
        char more[30] = "";
        char said[600];
        struct bpk_plan plan = begin(&spec);
        plan.tensor_count = count;
        if (count > 5)
            sprintf(more, " and %zu more", count - 5);
        sprintf(said, MENDED "'%.56s…', 'b', 'c', 'd', 'e'%s\n", long_name, more);
        ck_assert_uint_lt(strlen(said), 500);
        end(&plan, false, said, "");
    }
    spec_clear(&spec);
}

/* A tensor with bytes of its own has a right place as well; a new one was never in a wrong one. */
static int zeros_only(void *context, uint64_t offset, struct bpk_run *ret_run) {
    (void)context;
    *ret_run = (struct bpk_run){.fd = -1, .size = 10 - offset};
    return 0;
}

START_TEST(an_edited_tensor_is_mended_too) {
    struct packspec spec;
    spec_filled(&spec, BPK_LAYOUT_ALIGNED, 300);
    at(&spec, "a", 1, 11);
    at(&spec, "b", 256, 300);
    struct bpk_plan plan = begin(&spec);
    for (int i = 0; i < 2; i++) {
        plan.tensors[i].next_run = zeros_only;
        plan.tensors[i].size = 10;
    }
    plan.tensors[1].name = str("new");
    end(&plan, false, MENDED "'a'\n" STRAYS "256\n",
        "has 10 bytes, but shape [44] of U8 needs 44\n");
    spec_clear(&spec);
}

/* What a removed tensor leaves behind is no padding, wherever it lay: in the old layout, off 256,
 * under another one. */
static const struct {
    enum bpk_layout layout;
    uint64_t removed[2];
} leftovers[] = {
    {BPK_LAYOUT_ALIGNED, {100, 104}},
    {BPK_LAYOUT_ALIGNED, {0, 100}},
    {BPK_LAYOUT_LEGACY, {4, 256}},
};

START_TEST(nothing_of_a_removed_tensor_stays) {
    struct packspec spec;
    spec_init(&spec, leftovers[_i].layout);
    bytes_fill(&spec.data, 0, 256 + 44);
    memset(spec.data.data, 1, 4);
    at(&spec, "a", 0, 4);
    at(&spec, "b", 256, 300);
    at(&spec, "gone", leftovers[_i].removed[0], leftovers[_i].removed[1]);
    memset(spec.data.data + leftovers[_i].removed[0], 1,
           leftovers[_i].removed[1] - leftovers[_i].removed[0]);
    memset(spec.data.data + 256, 1, 44);
    spec_metadata(&spec, "version", "0.19.0");
    struct bpk_plan plan = begin(&spec);
    ck_assert_int_eq(plan.base->layout, leftovers[_i].layout);
    size_t kept = 0;
    for (size_t i = 0; i < 3; i++)
        if (bpk_str_compare(plan.tensors[i].name, str("gone")) != 0)
            plan.tensors[kept++] = plan.tensors[i];
    plan.tensor_count = kept;
    ck_assert_uint_eq(kept, 2);
    bool overlaps = leftovers[_i].removed[0] == 0;
    end(&plan, false, overlaps ? MENDED "'a'\n" : "", "");
    spec_clear(&spec);
}

int main(void) {
    Suite *suite = suite_create("remarks");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, a_good_pack_is_not_worth_a_word);
    tcase_add_test(tc, what_no_name_leads_to_is_dropped);
    tcase_add_test(tc, zeros_after_the_metadata_are_nothing);
    tcase_add_test(tc, bytes_of_a_hidden_tensor_go_with_it);
    tcase_add_test(tc, padding_is_looked_at_where_it_costs_little);
    tcase_add_test(tc, faults_of_place_are_mended_when_the_data_moves);
    tcase_add_test(tc, five_of_the_mended_are_named);
    tcase_add_test(tc, an_edited_tensor_is_mended_too);
    tcase_add_loop_test(tc, nothing_of_a_removed_tensor_stays, 0, ROWS(leftovers));
    return suite_run(suite);
}
