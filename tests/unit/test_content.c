/* content: blocks of its own over a tensor, another content or nothing; holes read as zeros,
 * whatever lay there before. */
#include "edit/content.h"

#include "editkit.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSOR = 3 * BPK_BLOCK + 100, MODEL = 40 * BPK_BLOCK };

static char folder[TEMP_PATH];
static int parent = -1;
static struct bpk_store store;
static struct bpk_pack *pack;
static uint64_t next_id = 1;

static void setup(void) {
    static const struct bpk_base_id base = {0};
    struct packspec spec;
    kit_folder(folder);
    parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(bpk_store_init(&store, parent, "p.bpk"), 0);
    ck_assert_int_eq(bpk_store_create(&store, &base), 0);
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "t", TENSOR);
    spec_u8(&spec, "next", 1000);
    pack = spec_open(&spec);
    spec_clear(&spec);
}

static void teardown(void) {
    bpk_pack_unref(pack);
    ck_assert_int_eq(bpk_store_remove(&store, true), 0);
    bpk_store_close(&store);
    close(parent);
    kit_remove_folder(folder);
}

static struct bpk_content *over_tensor(void) {
    uint32_t index;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("t"), &index), 0);
    struct bpk_content *content = bpk_content_over_tensor(&store, next_id++, pack, index);
    ck_assert_ptr_nonnull(content);
    return content;
}

static uint8_t tensor_byte(size_t at) {
    return pattern_byte(at);
}

static void put(struct bpk_content *content, uint64_t offset, const char *text, bool maps) {
    bool mapped = !maps;
    ck_assert_int_eq(bpk_content_write(content, offset, text, strlen(text), &mapped), 0);
    ck_assert_int_eq(mapped, maps);
}

static void cut(struct bpk_content *content, uint64_t size) {
    bpk_content_set_size(content, size);
    ck_assert_int_eq(bpk_content_apply_size(content), 0);
}

static uint8_t byte_at(struct bpk_content *content, uint64_t offset) {
    uint8_t byte = 0xee;
    size_t n;
    ck_assert_int_eq(bpk_content_read(content, offset, &byte, 1, &n), 0);
    ck_assert_uint_eq(n, 1);
    return byte;
}

static bool data_file_is_there(uint64_t id) {
    char path[TEMP_PATH + 60];
    snprintf(path, sizeof(path), "%s/.p.bpk.edits/c%llu", folder, (unsigned long long)id);
    return access(path, F_OK) == 0;
}

static uint64_t data_file_blocks(uint64_t id) {
    char path[TEMP_PATH + 60];
    struct stat attr;
    snprintf(path, sizeof(path), "%s/.p.bpk.edits/c%llu", folder, (unsigned long long)id);
    return stat(path, &attr) == 0 ? (uint64_t)attr.st_blocks * 512 / BPK_BLOCK : 0;
}

/* ---- one content ----------------------------------------------------------------------------- */

START_TEST(nothing_is_copied_before_a_write_and_then_a_block) {
    struct bpk_content *content = over_tensor();
    ck_assert_uint_eq(content->size, TENSOR);
    ck_assert_uint_eq(byte_at(content, 5000), tensor_byte(5000));
    ck_assert(!data_file_is_there(content->id));
    put(content, 5000, "abc", true);
    ck_assert_uint_eq(content->own.count, 1);
    ck_assert_uint_le(data_file_blocks(content->id), 1);
    put(content, 5001, "x", false);
    ck_assert_uint_eq(byte_at(content, 4999), tensor_byte(4999));
    ck_assert_uint_eq(byte_at(content, 5000), 'a');
    ck_assert_uint_eq(byte_at(content, 5001), 'x');
    ck_assert_uint_eq(byte_at(content, 5003), tensor_byte(5003));
    ck_assert_uint_eq(byte_at(content, 8192), tensor_byte(8192));
    bpk_content_unref(content, false);
}

START_TEST(reads_stop_at_the_end) {
    struct bpk_content *content = over_tensor();
    char buffer[300];
    size_t n = 77;
    ck_assert_int_eq(bpk_content_read(content, TENSOR - 10, buffer, 300, &n), 0);
    ck_assert_uint_eq(n, 10);
    ck_assert_int_eq(bpk_content_read(content, TENSOR, buffer, 300, &n), 0);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(bpk_content_read(content, UINT64_MAX, buffer, 300, &n), 0);
    ck_assert_uint_eq(n, 0);
    bpk_content_unref(content, false);
}

START_TEST(cut_and_longer_again_is_zeros) {
    struct bpk_content *content = over_tensor();
    put(content, 100, "own", true);
    cut(content, 101);
    cut(content, TENSOR);
    ck_assert_uint_eq(byte_at(content, 100), 'o');
    for (uint64_t at = 101; at < TENSOR; at += 97)
        ck_assert_uint_eq(byte_at(content, at), 0);
    put(content, TENSOR - 2, "xy", true); /* brings the other bytes of its block: zeros */
    ck_assert_uint_eq(byte_at(content, TENSOR - 3), 0);
    ck_assert_uint_eq(byte_at(content, TENSOR - 100), 0);
    bpk_content_unref(content, false);
}

START_TEST(a_write_past_the_end_leaves_zeros) {
    struct bpk_content *content = bpk_content_new(&store, next_id++);
    put(content, 0, "a", true);
    put(content, 100000, "b", true);
    ck_assert_uint_eq(content->size, 100001);
    ck_assert_uint_eq(content->own.count, 2);
    for (uint64_t at = 1; at < 100000; at += 4095)
        ck_assert_uint_eq(byte_at(content, at), 0);
    ck_assert_uint_eq(byte_at(content, 99999), 0);
    bpk_content_unref(content, false);
}

START_TEST(ten_gib_of_hole_cost_nothing) {
    struct bpk_content *content = bpk_content_new(&store, next_id++);
    struct bpk_run run;
    const uint64_t end = UINT64_C(10) << 30;
    bpk_content_set_size(content, end);
    ck_assert_int_eq(bpk_content_next_run(content, 0, &run), 0);
    ck_assert_int_eq(run.fd, -1);
    ck_assert_uint_eq(run.size, end);
    put(content, end - 1, "x", true);
    ck_assert_int_eq(bpk_content_next_run(content, 17, &run), 0);
    ck_assert_int_eq(run.fd, -1);
    ck_assert_uint_eq(run.size, end - BPK_BLOCK - 17);
    bpk_content_unref(content, false);
}

START_TEST(runs_say_where_bytes_are) {
    struct bpk_content *content = over_tensor();
    struct bpk_run run;
    struct bpk_tensor tensor;
    put(content, BPK_BLOCK + 1, "x", true);
    bpk_pack_tensor(pack, content->index, &tensor);
    ck_assert_int_eq(bpk_content_next_run(content, 10, &run), 0);
    ck_assert_int_eq(run.fd, bpk_pack_fd(pack));
    ck_assert_uint_eq(run.offset, tensor.start + 10);
    ck_assert_uint_eq(run.size, BPK_BLOCK - 10);
    ck_assert_int_eq(bpk_content_next_run(content, BPK_BLOCK + 5, &run), 0);
    ck_assert_int_eq(run.fd, content->fd);
    ck_assert_uint_eq(run.offset, BPK_BLOCK + 5);
    ck_assert_uint_eq(run.size, BPK_BLOCK - 5);
    ck_assert_int_eq(bpk_content_next_run(content, 2 * BPK_BLOCK, &run), 0);
    ck_assert_uint_eq(run.size, TENSOR - 2 * BPK_BLOCK);
    bpk_content_unref(content, false);
}

/* The data file goes with the last reference, unless it is to stay. */
START_TEST(data_files_go_when_they_should) {
    struct bpk_outbuf record = {0};
    struct bpk_content *content = over_tensor();
    uint64_t id = content->id;
    put(content, 0, "x", true);
    ck_assert_ptr_eq(bpk_content_ref(content), content);
    bpk_content_unref(content, false);
    ck_assert(data_file_is_there(id));
    bpk_content_unref(content, true);
    ck_assert(data_file_is_there(id));
    content = over_tensor();
    id = content->id;
    put(content, 0, "x", true);
    bpk_content_unref(content, false);
    bpk_out_str(&record, "it is gone");
    ck_assert_int_eq(bpk_store_append(&store, &record), 0);
    ck_assert(!data_file_is_there(id));
    bpk_outbuf_clear(&record);
    bpk_content_unref(NULL, false);
}

/* Closing it is no loss; but a commit that reads a frozen one must not have it closed. */
START_TEST(closing_is_no_loss) {
    struct bpk_content *content = over_tensor();
    put(content, 7, "x", true);
    bpk_content_close(content);
    ck_assert_int_eq(content->fd, -1);
    ck_assert_uint_eq(byte_at(content, 7), 'x');
    content->frozen = true;
    bpk_content_close(content);
    ck_assert_int_ge(content->fd, 0);
    content->frozen = false;
    bpk_content_unref(content, false);
}

static int add_range(void *context, uint64_t offset, uint64_t size) {
    struct bytes *text = context;
    char line[60];
    int n = snprintf(line, sizeof(line), "%llu+%llu ", (unsigned long long)offset / BPK_BLOCK,
                     (unsigned long long)size / BPK_BLOCK);
    bytes_add(text, line, (size_t)n);
    return text->len > 200 ? -E2BIG : 0;
}

/* As a journal is read back: the map is made from what the records say. */
START_TEST(the_map_can_be_told) {
    struct bpk_content *content = bpk_content_new(&store, next_id++);
    struct bytes text = {0};
    content->size = 20000 * (uint64_t)BPK_BLOCK;
    ck_assert_int_eq(bpk_content_map(content, 0, 0), 0);
    ck_assert_int_eq(bpk_content_map(content, 5, 1), 0);
    ck_assert_int_eq(bpk_content_map(content, 3 * BPK_BLOCK - 1, 2), 0);
    ck_assert_int_eq(bpk_content_map(content, 4095 * BPK_BLOCK, 2 * BPK_BLOCK), 0);
    ck_assert_int_eq(bpk_content_map(content, 19999 * (uint64_t)BPK_BLOCK, 1), 0);
    ck_assert_int_eq(bpk_content_each_own(content, add_range, &text), 0);
    bytes_add(&text, "", 1);
    ck_assert_str_eq((char *)text.data, "0+1 2+2 4095+2 19999+1 ");
    ck_assert_uint_eq(content->own.count, 6);
    bytes_clear(&text);
    bpk_content_unref(content, true);
}

START_TEST(a_missing_data_file_is_not_trusted) {
    struct bpk_content *content = over_tensor();
    char path[TEMP_PATH + 60];
    put(content, 7, "x", true);
    snprintf(path, sizeof(path), "%s/.p.bpk.edits/c%llu", folder, (unsigned long long)content->id);
    bpk_content_close(content);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(bpk_content_settle(content), 0);
    ck_assert(content->suspect);
    bpk_content_set_size(content, 0);
    ck_assert(!content->suspect);
    bpk_content_unref(content, false);
}

START_TEST(a_pack_that_was_cut_is_eio) {
    struct packspec spec;
    struct bpk_diag diag;
    char path[TEMP_PATH];
    struct bpk_pack *other;
    uint8_t byte;
    size_t n;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "t", 20000);
    temp_spec(&spec, path);
    ck_assert_int_eq(bpk_pack_open(path, NULL, &other, &diag), 0);
    struct bpk_content *content = bpk_content_over_tensor(&store, next_id++, other, 0);
    put(content, 1, "own", true);
    ck_assert_int_eq(truncate(path, 5000), 0);
    ck_assert_int_eq(bpk_content_read(content, 9000, &byte, 1, &n), -EIO);
    ck_assert_uint_eq(byte_at(content, 1), 'o');
    bool mapped;
    ck_assert_int_eq(bpk_content_write(content, 9000, "x", 1, &mapped), -EIO);
    ck_assert_int_eq(bpk_content_write(content, 8192, path, 0, &mapped), 0);
    bpk_content_unref(content, false);
    bpk_pack_unref(other);
    unlink(path);
    spec_clear(&spec);
}

/* ---- layers, against a model ----------------------------------------------------------------- */

struct model {
    struct bpk_content *content;
    uint8_t *bytes;
    size_t len;
};

static void check_model(struct model *model) {
    static uint8_t buffer[MODEL + 1];
    size_t n;
    HOLDS(model->content->size == model->len);
    HOLDS(bpk_content_read(model->content, 0, buffer, sizeof(buffer), &n) == 0);
    HOLDS(n == model->len && memcmp(buffer, model->bytes, n) == 0);
    /* and by runs, as a commit reads it */
    for (uint64_t at = 0; at < model->len;) {
        struct bpk_run run;
        HOLDS(bpk_content_next_run(model->content, at, &run) == 0);
        HOLDS(run.size > 0 && run.size <= model->len - at);
        if (run.fd < 0)
            memset(buffer, 0, run.size);
        else
            HOLDS(pread(run.fd, buffer, run.size, (off_t)run.offset) == (ssize_t)run.size);
        HOLDS(memcmp(buffer, model->bytes + at, run.size) == 0);
        at += run.size;
    }
}

static void change(struct model *model, uint64_t *state) {
    static uint8_t buffer[3 * BPK_BLOCK];
    size_t at = suite_random(state) % 20 * BPK_BLOCK + suite_random(state) % 9;
    size_t size = 1 + suite_random(state) % (suite_random(state) % 2 ? 20 : sizeof(buffer));
    bool mapped;
    at -= at >= 4 ? 4 : 0;
    switch (suite_random(state) % 8) {
    case 0:
    case 1:
        if (at > model->len)
            memset(model->bytes + model->len, 0, at - model->len);
        model->len = at;
        cut(model->content, at);
        break;
    case 2:
        HOLDS(bpk_content_sync(model->content) == 0);
        break;
    case 3:
        bpk_content_close(model->content);
        break;
    default:
        memset(buffer, (int)(1 + suite_random(state) % 255), size);
        HOLDS(bpk_content_write(model->content, at, buffer, size, &mapped) == 0);
        if (at > model->len)
            memset(model->bytes + model->len, 0, at - model->len);
        memcpy(model->bytes + at, buffer, size);
        if (at + size > model->len)
            model->len = at + size;
        break;
    }
}

START_TEST(layers_are_what_the_model_says) {
    uint64_t state = (uint64_t)_i + 1;
    struct model model = {over_tensor(), calloc(1, MODEL), TENSOR};
    for (size_t at = 0; at < TENSOR; at++)
        model.bytes[at] = tensor_byte(at);
    for (int i = 0; i < 300; i++) {
        change(&model, &state);
        if (i % 10 == 0)
            check_model(&model);
        if (suite_random(&state) % 40 == 0) { /* a commit froze it, and failed */
            struct bpk_content *below = model.content;
            model.content = bpk_content_over_content(&store, next_id++, below);
            bpk_content_unref(below, false);
        }
        if (suite_random(&state) % 90 == 0) {
            HOLDS(bpk_content_own_all(model.content) == 0);
            HOLDS(!model.content->pack && !model.content->below);
        }
    }
    check_model(&model);
    bpk_content_unref(model.content, false);
    free(model.bytes);
}

/* It is missing where it would show: not where bytes are own, cut off, or zeros. */
START_TEST(a_lost_tensor_is_missing_where_it_would_show) {
    static char block[BPK_BLOCK];
    struct bpk_content *below = over_tensor();
    bool mapped;
    char byte;
    size_t n;
    put(below, 10, "x", true);
    ck_assert_ptr_null(bpk_content_missing(below));
    ck_assert_int_eq(bpk_content_lose(below, str("t"), TENSOR), 0);
    struct bpk_content *content = bpk_content_over_content(&store, next_id++, below);
    ck_assert_uint_eq(bpk_content_missing(content)->size, TENSOR);
    ck_assert_uint_eq(byte_at(content, 10), 'x');
    ck_assert_uint_eq(byte_at(content, 9), tensor_byte(9));
    ck_assert_int_eq(bpk_content_read(content, BPK_BLOCK, &byte, 1, &n), -EIO);
    ck_assert_int_eq(bpk_content_write(content, TENSOR - 2, "x", 1, &mapped), -EIO);
    ck_assert_int_eq(bpk_content_own_all(content), -EIO);
    ck_assert_int_eq(bpk_content_write(content, BPK_BLOCK, block, BPK_BLOCK, &mapped), 0);
    content->sync_failed = true;
    content->frozen = true; /* a commit copies from the file as it is */
    ck_assert_int_eq(bpk_content_sync(content), -EBUSY);
    content->frozen = false; /* what is own is written again, and nothing else */
    ck_assert_int_eq(bpk_content_sync(content), 0);
    ck_assert_ptr_nonnull(bpk_content_missing(content));
    cut(content, 2 * BPK_BLOCK);
    ck_assert_ptr_null(bpk_content_missing(content));
    cut(content, TENSOR);
    ck_assert_ptr_null(bpk_content_missing(content));
    ck_assert_uint_eq(byte_at(content, TENSOR - 1), 0);
    bpk_content_unref(content, false);
    bpk_content_unref(below, false);
}

START_TEST(it_becomes_the_tensor_that_it_was_written_to) {
    struct bpk_content *content = bpk_content_new(&store, next_id++);
    uint64_t id = content->id;
    struct bpk_outbuf record = {0};
    uint32_t index;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("t"), &index), 0);
    put(content, TENSOR - 1, "x", true);
    content->frozen = true;
    bpk_content_become_tensor(content, pack, index);
    ck_assert(!content->frozen);
    ck_assert_uint_eq(content->own.count, 0);
    ck_assert_uint_eq(byte_at(content, TENSOR - 1), tensor_byte(TENSOR - 1));
    bpk_out_str(&record, "committed");
    ck_assert_int_eq(bpk_store_append(&store, &record), 0);
    ck_assert_int_eq(bpk_store_sync(&store), 0);
    ck_assert(!data_file_is_there(id));
    bpk_outbuf_clear(&record);
    put(content, 5, "y", true);
    ck_assert_uint_eq(byte_at(content, 4), tensor_byte(4));
    bpk_content_unref(content, false);
}

int main(void) {
    Suite *suite = suite_create("content");
    TCase *tc = suite_case(suite, "one");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, nothing_is_copied_before_a_write_and_then_a_block);
    tcase_add_test(tc, reads_stop_at_the_end);
    tcase_add_test(tc, cut_and_longer_again_is_zeros);
    tcase_add_test(tc, a_write_past_the_end_leaves_zeros);
    tcase_add_test(tc, ten_gib_of_hole_cost_nothing);
    tcase_add_test(tc, runs_say_where_bytes_are);
    tcase_add_test(tc, data_files_go_when_they_should);
    tcase_add_test(tc, closing_is_no_loss);
    tcase_add_test(tc, the_map_can_be_told);
    tcase_add_test(tc, a_missing_data_file_is_not_trusted);
    tcase_add_test(tc, a_pack_that_was_cut_is_eio);
    tc = suite_case(suite, "layers");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, layers_are_what_the_model_says, 0, 30);
    tcase_add_test(tc, a_lost_tensor_is_missing_where_it_would_show);
    tcase_add_test(tc, it_becomes_the_tensor_that_it_was_written_to);
    return suite_run(suite);
}
