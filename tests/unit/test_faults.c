/* Out of memory at every place: each allocation of ours fails once while a rich pack is opened and
 * all views of it are made. What answers is -ENOMEM, a buffer that says that it failed, or success;
 * never a crash, a leak, or an output that was touched. Needs -Wl,--wrap=malloc,calloc,realloc. */
#include "bpk.h"

#include "failalloc.h"
#include "packbuild.h"
#include "suite.h"
#include "view/index.h"
#include "view/maps.h"
#include "view/names.h"
#include "view/sidecar.h"
#include "view/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* An assertion that needs no memory: check's own calls are wrapped too. */
static int broken_line;

static void hold_at(bool condition, int line) {
    if (!condition && broken_line == 0)
        broken_line = line;
}

#define hold(condition) hold_at(condition, __LINE__)

/* A buffer that was filled is whole, or says that it is not. */
static void check_buffer(struct bpk_outbuf *out, const struct bpk_outbuf *counted) {
    hold(out->failed || out->len == counted->len);
    bpk_outbuf_clear(out);
}

static void view_tensor(const struct bpk_pack *pack, uint32_t index) {
    struct bpk_outbuf counted = {.counting = true};
    struct bpk_outbuf out = {0};
    bpk_sidecar_file(&counted, pack, index);
    bpk_sidecar_file(&out, pack, index);
    check_buffer(&out, &counted);
}

static int view_folder(const struct bpk_pack *pack, const struct bpk_tree_node *folder) {
    uint64_t cursor = 0;
    char file[BPK_FILE_NAME_BUF];
    struct bpk_tree_node node;
    struct bpk_tree_node again;
    while (bpk_tree_next(pack, folder, &cursor, file, &node)) {
        int r = bpk_tree_find(pack, folder, str(file), &again);
        if (r < 0 && !failed)
            return r;
        if (node.kind == BPK_TREE_FOLDER)
            r = view_folder(pack, &node);
        if (r < 0 && r != -ENOENT)
            return r;
    }
    return 0;
}

static void ignore(void *context, uint32_t tensor, const char *sentence) {
    (void)context;
    (void)tensor;
    (void)sentence;
}

static int view_names(struct bpk_pack *pack, enum bpk_names_of of) {
    static struct bpk_names *const untouched = (struct bpk_names *)&failed;
    struct bpk_names *names = untouched;
    int r = bpk_names_new(pack, of, &names);
    if (r < 0) {
        hold(names == untouched);
        return r;
    }
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    uint32_t count = of == BPK_NAMES_TENSORS ? info.tensors : info.metadata_entries;
    for (uint32_t i = 0; i < count; i++) {
        char file[BPK_FILE_NAME_BUF];
        uint32_t found;
        bpk_names_file(names, i, file);
        hold(bpk_names_find(names, str(file), &found) == 0);
        hold(found == i);
    }
    if (of == BPK_NAMES_TENSORS) {
        /* counting, it still needs a little memory for a dtype */
        struct bpk_outbuf counted = {.counting = true};
        struct bpk_outbuf out = {0};
        bpk_index_file(&counted, pack, names);
        bpk_index_file(&out, pack, names);
        hold(counted.failed || out.failed || out.len == counted.len);
        bpk_outbuf_clear(&out);
        bpk_outbuf_clear(&counted);
    }
    bpk_names_free(names);
    return 0;
}

/* Everything that a mount does with a pack. 0 or the first error. */
static int open_and_view(const char *path) {
    static const struct bpk_tree_node root = {BPK_TREE_FOLDER, 0, 0};
    static struct bpk_pack *const untouched = (struct bpk_pack *)&failed;
    struct bpk_pack *pack = untouched;
    struct bpk_diag diag = {0};
    int r = bpk_pack_open(path, NULL, &pack, &diag);
    if (r < 0) {
        hold(pack == untouched);
        hold(diag.code == r);
        hold(diag.sentence[0] != '\0');
        return r;
    }
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    r = view_names(pack, BPK_NAMES_TENSORS);
    if (r == 0)
        r = view_names(pack, BPK_NAMES_METADATA);
    if (r == 0)
        r = view_folder(pack, &root);
    for (uint32_t i = 0; i < info.tensors; i++)
        view_tensor(pack, i);
    struct bpk_outbuf counted = {.counting = true};
    struct bpk_outbuf out = {0};
    bpk_metadata_file(&counted, pack);
    bpk_metadata_file(&out, pack);
    check_buffer(&out, &counted);
    counted = (struct bpk_outbuf){.counting = true};
    bpk_scalars_file(&counted, pack);
    bpk_scalars_file(&out, pack);
    check_buffer(&out, &counted);
    if (r == 0)
        r = bpk_pack_check(pack, ignore, NULL);
    bpk_pack_notes(pack, ignore, NULL);
    bpk_pack_unref(pack);
    return r;
}

/* Enough tensors, keys and scalars, out of order, that every table grows more than once. */
static void temp_rich(char path[TEMP_PATH]) {
    struct packspec spec;
    spec_rich(&spec);
    for (int i = 45; i > 0; i--) {
        char name[320];
        memset(name, 'n', sizeof(name));
        int n = snprintf(name, sizeof(name), "layer.%d.weight", i);
        spec_u8(&spec, name, 1);
        spec_metadata(&spec, name, "value");
        spec_scalar(&spec, name, "a1 6455496e74 03");
        name[n] = 'n';
        spec_u8_n(&spec, (struct bpk_str){name, sizeof(name)}, 1);
    }
    temp_spec(&spec, path);
    spec_clear(&spec);
}

START_TEST(every_allocation_fails_once) {
    char path[TEMP_PATH];
    temp_rich(path);
    countdown = -1;
    ck_assert_int_eq(open_and_view(path), 0);
    unsigned refused = 0;
    long n = 0;
    for (;; n++) {
        failed = false;
        countdown = n;
        int r = open_and_view(path);
        bool was_failed = failed;
        countdown = -1;
        failed = false;
        ck_assert_msg(broken_line == 0, "allocation %ld: see line %d", n, broken_line);
        if (!was_failed) {
            ck_assert_int_eq(r, 0); /* there were no more than n */
            break;
        }
        ck_assert_msg(r == 0 || r == -ENOMEM, "allocation %ld: %d", n, r);
        refused += r != 0;
    }
    ck_assert_int_gt(n, 100);
    ck_assert_uint_gt(refused, 10);
    unlink(path);
}

int main(void) {
    Suite *suite = suite_create("faults");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, every_allocation_fails_once);
    return suite_run(suite);
}
