/* edits: what names mean, and what becomes of a descriptor that bytes leave behind (semantics.md
 * 3.4, 3.6, 3.7). */
#include "editbase.h"

static int rename_to(const char *from, const char *to) {
    return kit_rename(&kit, T, from, to);
}

static enum bpk_edit_kind kind_of(const char *path) {
    enum bpk_edit_kind kind = BPK_EDIT;
    ck_assert_msg(kit_problem(&kit, path, &kind) != NULL, "%s is not listed", path);
    return kind;
}

/* The param_id of a tensor in the pack on the disk; 0: none. */
static uint64_t param_id_of(const char *tensor) {
    struct bpk_pack *pack = kit_pack(&kit);
    struct bpk_tensor t;
    uint32_t index;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str(tensor), &index), 0);
    bpk_pack_tensor(pack, index, &t);
    bpk_pack_unref(pack);
    return t.has_param_id ? t.param_id : 0;
}

static enum bpk_kind dtype_of(const char *tensor) {
    struct bpk_pack *pack = kit_pack(&kit);
    struct bpk_tensor t;
    uint32_t index;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str(tensor), &index), 0);
    bpk_pack_tensor(pack, index, &t);
    bpk_pack_unref(pack);
    return t.kind;
}

static const char new_b[] = "abcdefghijklmnopqrstuvwx"; /* 24 bytes */

/* ---- renames --------------------------------------------------------------------------------- */

START_TEST(a_renamed_tensor_takes_its_descriptor_along) {
    ck_assert_int_eq(rename_to("b", "new.name"), 0);
    ck_assert(kit_contains(&kit, T, "new.name.json", "F32"));
    ck_assert(kit_contains(&kit, T, "b.json", "no tensor"));
    kit_commit_all(&kit);
    ck_assert(!kit_pack_has(&kit, "b"));
    ck_assert(!kit_exists(&kit, T, "b.json"));
    ck_assert(is_as_made("new.name", PLACE_B, 24));
    ck_assert_int_eq(dtype_of("new.name"), BPK_F32);
    ck_assert_uint_eq(param_id_of("new.name"), 7);
}

START_TEST(two_can_change_names) {
    ck_assert_int_eq(rename_to("a", "tmp"), 0);
    ck_assert_int_eq(rename_to("b", "a"), 0);
    ck_assert_int_eq(rename_to("tmp", "b"), 0);
    kit_commit_all(&kit);
    ck_assert(is_as_made("b", PLACE_A, 10));
    ck_assert(is_as_made("a", PLACE_B, 24));
    ck_assert_uint_eq(param_id_of("a"), 7);
    ck_assert_uint_eq(param_id_of("b"), 0);
}

/* mv from another disk, tar x, install: the bytes come without a descriptor. */
START_TEST(bytes_that_replace_a_tensor_take_its_descriptor) {
    kit_put(&kit, T, "incoming", new_b);
    ck_assert_int_eq(kind_of("tensors/incoming"), BPK_EDIT_PENDING);
    ck_assert_int_eq(rename_to("incoming", "b"), 0);
    kit_commit_all(&kit);
    ck_assert(pack_says("b", new_b));
    ck_assert_uint_eq(param_id_of("b"), 7);
}

START_TEST(removed_and_created_again_it_remembers) {
    ck_assert_int_eq(kit_unlink(&kit, T, "b"), 0);
    kit_put(&kit, T, "b", new_b);
    kit_commit_all(&kit);
    ck_assert(pack_says("b", new_b));
    ck_assert_int_eq(dtype_of("b"), BPK_F32);
    ck_assert_uint_eq(param_id_of("b"), 7); /* the bytes are gone: the id stays */
}

/* param_id follows the bytes unless they are gone. */
START_TEST(what_takes_the_place_of_a_moved_tensor_has_no_param_id) {
    ck_assert_int_eq(rename_to("b", "moved"), 0);
    kit_put(&kit, T, "b", new_b);
    kit_commit_all(&kit);
    ck_assert_uint_eq(param_id_of("moved"), 7);
    ck_assert_uint_eq(param_id_of("b"), 0);
    ck_assert_int_eq(dtype_of("b"), BPK_F32);
}

START_TEST(memory_ends_with_the_commit) {
    ck_assert_int_eq(kit_unlink(&kit, T, "b"), 0);
    kit_commit_all(&kit);
    kit_put(&kit, T, "b", new_b);
    ck_assert_int_eq(kind_of("tensors/b"), BPK_EDIT_PENDING);
    kit_commit_all(&kit);
    ck_assert(!kit_pack_has(&kit, "b"));
    ck_assert(kit_says(&kit, T, "b", new_b));
}

START_TEST(renames_that_are_refused) {
    struct bpk_place a = kit_place(&kit, T, "a");
    struct bpk_place note = kit_place(&kit, M, "note");
    char name[300];
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &a, T, "b", true), -EEXIST);
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &a, M, "a", false), -EXDEV);
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &note, T, "note", false), -EXDEV);
    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &a, T, name, false), -ENAMETOOLONG);
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &a, T, "a", false), 0);
    struct bpk_place none = {T, "none", 99};
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &none, T, "x", false), -ENOENT);
    uint64_t number;
    ck_assert_int_eq(bpk_edits_create(kit.edits, T, "a", 0600, &number), -EEXIST);
    ck_assert_int_eq(bpk_edits_create(kit.edits, T, name, 0600, &number), -ENAMETOOLONG);
    ck_assert(is_as_made("a", PLACE_A, 10));
}

/* A refusal is no edit, of what was to be moved nor of what was there. */
START_TEST(a_refused_rename_leaves_nothing_behind) {
    static const struct {
        enum bpk_folder from_folder, folder;
        const char *from, *name;
        int error;
        bool no_replace;
    } renames[] = {
        {T, T, "a", "b.json", -EBADMSG, false},
        {T, T, "c", "new.json", -EBADMSG, false},
        {R, R, "scalars.json", "metadata.json", -EBADMSG, false},
        {T, T, "a", "b", -EEXIST, true},
        {T, M, "a", "key", -EXDEV, false},
        {M, R, "note", "metadata.json", -EXDEV, false},
        {R, T, "metadata.json", "b.json", -EXDEV, false},
        {T, T, "a", "a", 0, false},
    };
    for (int open = 0; open < 2; open++) {
        for (int i = 0; i < ROWS(renames); i++) {
            struct bpk_place from = kit_place(&kit, renames[i].from_folder, renames[i].from);
            struct bpk_place to = kit_place(&kit, renames[i].folder, renames[i].name);
            bpk_edits_opened(kit.edits, &from, false);
            if (open && to.number)
                bpk_edits_opened(kit.edits, &to, true);
            ck_assert_int_eq(bpk_edits_rename(kit.edits, &from, renames[i].folder, renames[i].name,
                                              renames[i].no_replace),
                             renames[i].error);
            ck_assert_msg(!kit_has_edits_folder(&kit), "%s to %s", renames[i].from,
                          renames[i].name);
            if (open && to.number)
                bpk_edits_released(kit.edits, to.number, true);
            bpk_edits_released(kit.edits, from.number, false);
        }
    }
    kit_put(&kit, T, "tmp~", "{");
    ck_assert_int_eq(rename_to("tmp~", "b.json"), -EBADMSG);
    ck_assert_int_eq(kind_of("tensors/tmp~"), BPK_EDIT_SCRATCH);
    ck_assert_ptr_null(kit_problem(&kit, "tensors/b", NULL));
}

/* Names between what a tensor's file may have and what a file may have can only be pending. */
START_TEST(very_long_names_are_pending) {
    char name[300];
    for (size_t len = 248; len <= 255; len++) {
        memset(name, 'n', sizeof(name));
        name[len] = '\0';
        ck_assert_int_eq(rename_to("a", name), 0);
        struct bytes data;
        kit_read(&kit, T, name, &data);
        ck_assert_uint_eq(data.len, 10);
        bytes_clear(&data);
        kit_reopen(&kit);
        kit_read(&kit, T, name, &data);
        ck_assert_uint_eq(data.len, 10);
        bytes_clear(&data);
        ck_assert(!kit_exists(&kit, T, "a"));
        ck_assert_int_eq(rename_to(name, "a"), 0);
    }
    kit_commit_all(&kit);
    ck_assert(is_as_made("a", PLACE_A, 10));
}

START_TEST(misspelled_names_are_pending) {
    static const char *const bad[] = {"50%", "%61", "%2f"};
    for (int i = 0; i < ROWS(bad); i++) {
        char path[50];
        kit_put(&kit, T, bad[i], "x");
        kit_sidecar(&kit, bad[i], 1);
        snprintf(path, sizeof(path), "tensors/%s", bad[i]);
        ck_assert_int_eq(kind_of(path), BPK_EDIT_PENDING);
    }
    kit_put(&kit, T, "a%2Fb", "x");
    kit_sidecar(&kit, "a%2Fb", 1);
    kit_commit_all(&kit);
    ck_assert(kit_pack_has(&kit, "a/b"));
    ck_assert(kit_says(&kit, T, "50%", "x"));
    ck_assert(kit_says(&kit, T, "a%2Fb", "x"));
}

/* ---- moved aside ----------------------------------------------------------------------------- */

/* sed -i, vim: the old one aside, a new one in its place. */
START_TEST(an_editor_keeps_the_descriptor) {
    static const char *const aside[] = {"b.bak", "b~", "sedAbCdEf", ".b.swp", "#b#", "4913"};
    for (int i = 0; i < ROWS(aside); i++) {
        char text[30];
        ck_assert_int_eq(rename_to("b", aside[i]), 0);
        snprintf(text, sizeof(text), "%s%d", "abcdefghijklmnopqrstuvw", i);
        kit_put(&kit, T, "b", text);
        kit_commit_all(&kit);
        ck_assert(pack_says("b", text));
        ck_assert_uint_eq(param_id_of("b"), 7);
        ck_assert_int_eq(kit_unlink(&kit, T, aside[i]), 0);
        kit_commit_all(&kit);
        ck_assert(pack_says("b", text));
    }
}

START_TEST(moved_aside_and_not_written_again_it_is_put_back) {
    kit_write(&kit, "b", 0, "last contents");
    ck_assert_int_eq(rename_to("b", "b~"), 0);
    ck_assert_ptr_nonnull(strstr(kit_problem(&kit, "tensors/b", NULL), "put back"));
    kit_commit_all(&kit);
    ck_assert_uint_eq(param_id_of("b"), 7);
    ck_assert(kit_exists(&kit, T, "b"));
    struct bytes data;
    kit_read(&kit, T, "b", &data);
    ck_assert_int_eq(memcmp(data.data, "last contents", 13), 0);
    bytes_clear(&data);
}

START_TEST(moved_aside_and_removed_it_is_gone) {
    ck_assert_int_eq(rename_to("b", "b.orig"), 0);
    ck_assert_int_eq(kit_unlink(&kit, T, "b.orig"), 0);
    kit_commit_all(&kit);
    ck_assert(!kit_pack_has(&kit, "b"));
}

START_TEST(moved_aside_and_back_it_is_as_it_was) {
    ck_assert_int_eq(rename_to("b", "b.old"), 0);
    ck_assert_int_eq(rename_to("b.old", "b"), 0);
    kit_commit_all(&kit);
    ck_assert(is_as_made("b", PLACE_B, 24));
    ck_assert_uint_eq(param_id_of("b"), 7);
}

START_TEST(a_new_tensor_moved_aside_is_put_back_too) {
    kit_put(&kit, T, "new", "abc");
    kit_sidecar(&kit, "new", 3);
    ck_assert_int_eq(rename_to("new", "new.bak"), 0);
    kit_reopen(&kit);
    kit_commit_all(&kit);
    ck_assert(pack_says("new", "abc"));
    ck_assert(kit_exists(&kit, T, "new"));
    ck_assert(kit_exists(&kit, T, "new.json"));
    ck_assert(kit_says(&kit, T, "new.bak", "abc"));
}

/* ---- whose param_id it is -------------------------------------------------------------------- */

/* Three tensors of one shape: s1 has param_id 101, s2 102, s3 none; their bytes are 1s, 2s, 3s. */
static void setup_same(void) {
    static const uint64_t ids[] = {101, 102};
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_tensor(&spec, "s1", "625538", (const uint64_t[]){4}, 1, 4, &ids[0]);
    spec_tensor(&spec, "s2", "625538", (const uint64_t[]){4}, 1, 4, &ids[1]);
    spec_tensor(&spec, "s3", "625538", (const uint64_t[]){4}, 1, 4, NULL);
    kit_begin(&kit, &spec);
    spec_clear(&spec);
    kit_put(&kit, T, "s1", "1111");
    kit_put(&kit, T, "s2", "2222");
    kit_put(&kit, T, "s3", "3333");
    kit_commit_all(&kit);
}

/* Steps: "a>b" renames, "+a" makes a anew with the bytes "new!", "-a" removes it. Wanted: the name,
 * the first of its bytes, its param_id. */
static const struct {
    const char *steps, *wanted;
} moves[] = {
    /* names change, the param_ids with the bytes */
    {"s1>.tmp s2>s1 .tmp>s2", "s1:2:102 s2:1:101 s3:3:0"},
    {"s1>s1.bak s2>s1 s1.bak>s2", "s1:2:102 s2:1:101 s3:3:0"},
    {"s1>.tmp s3>s1 .tmp>s3", "s1:3:0 s3:1:101 s2:2:102"},
    {"s3>.tmp s1>s3 .tmp>s1", "s3:1:101 s1:3:0 s2:2:102"},
    {"s1>.tmp s2>s1 s3>s2 .tmp>s3", "s1:2:102 s2:3:0 s3:1:101"},
    {"s1>.tmp .tmp>.tmp2 s2>s1 .tmp2>s2", "s1:2:102 s2:1:101"},
    {"s1>.a s2>.b .a>s2 .b>s1", "s1:2:102 s2:1:101"},
    {"s1>.a s2>.b s3>.c .a>s2 .b>s3 .c>s1", "s1:3:0 s2:1:101 s3:2:102"},
    /* an editor's new bytes have the param_id of the old ones */
    {"s1>s1~ +s1 -s1~", "s1:n:101 s2:2:102"},
    {"s1>s1~ +s1", "s1:n:101 s2:2:102"},
    {"s1>s1~ +new new>s1 -s1~", "s1:n:101"},
    {"s1>s1~ +s1 -s1 s1~>s1", "s1:1:101"},
    {"s1>s1~ s1~>s1", "s1:1:101"},
    {"-s1 +s1", "s1:n:101"},
    {"s1>s1~ +s1 s1>s1~ +s1", "s1:n:101"},
    /* and nobody else has it then */
    {"s1>s1~ +s1 s2>x s1~>s2", "s1:n:101 s2:1:0 x:2:102"},
    {"s1>.a s2>x .a>s2 +s1", "s1:n:0 s2:1:101 x:2:102"},
    {"s1>s1.bak +s1 s1>x s2>y s1.bak>s2", "x:n:101 s2:1:0 y:2:102"},
    /* over a tensor that is there, it is that one's */
    {"s1>.a .a>s2", "s2:1:102"},
    {"s1>.a .a>s2 s2>.b s3>s2 .b>s3", "s2:3:0 s3:1:102"},
};

static void move_step(const char *step) {
    char from[20];
    const char *to = strchr(step, '>');
    if (*step == '+') {
        kit_put(&kit, T, step + 1, "new!");
    } else if (*step == '-') {
        ck_assert_int_eq(kit_unlink(&kit, T, step + 1), 0);
    } else {
        snprintf(from, sizeof(from), "%.*s", (int)(to - step), step);
        ck_assert_int_eq(kit_rename(&kit, T, from, to + 1), 0);
    }
}

enum { STRAIGHT, REOPENED, KILLED, WAYS };

/* A remount or a kill after any step makes no difference. */
START_TEST(a_param_id_follows_its_bytes_unless_they_are_gone) {
    char steps[100];
    char wanted[100];
    char *rest;
    int way = _i % WAYS;
    snprintf(steps, sizeof(steps), "%s", moves[_i / WAYS].steps);
    for (char *step = strtok_r(steps, " ", &rest); step; step = strtok_r(NULL, " ", &rest)) {
        char copy[TEMP_PATH];
        move_step(step);
        if (way == KILLED)
            kit_keep_edits(&kit, copy);
        if (way != STRAIGHT)
            kit_close(&kit);
        if (way == KILLED)
            kit_put_back_edits(&kit, copy);
        if (way != STRAIGHT)
            kit_open(&kit);
    }
    kit_commit_all(&kit);
    snprintf(wanted, sizeof(wanted), "%s", moves[_i / WAYS].wanted);
    for (char *one = strtok_r(wanted, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char name[20];
        char byte;
        unsigned id;
        ck_assert_int_eq(sscanf(one, "%19[^:]:%c:%u", name, &byte, &id), 3);
        struct bytes data;
        kit_read(&kit, T, name, &data);
        ck_assert_msg(data.data[0] == (uint8_t)byte, "%s: %s begins with %c",
                      moves[_i / WAYS].steps, name, data.data[0]);
        ck_assert_msg(param_id_of(name) == id, "%s: %s has %d", moves[_i / WAYS].steps, name,
                      (int)param_id_of(name));
        bytes_clear(&data);
    }
}

/* ---- what is in no pack ---------------------------------------------------------------------- */

START_TEST(files_that_are_no_tensors_are_kept_and_never_written) {
    struct bpk_commit_result result;
    kit_put(&kit, T, "pending", "p");
    kit_put(&kit, T, "x.bak", "b");
    kit_put(&kit, T, ".scratch", "s");
    kit_put(&kit, T, "empty", "");
    kit_put(&kit, R, "notes.txt", "root");
    kit_put(&kit, M, ".key.swp", "scratch in metadata");
    ck_assert_int_eq(kind_of("tensors/pending"), BPK_EDIT_PENDING);
    ck_assert_int_eq(kind_of("tensors/x.bak"), BPK_EDIT_BACKUP);
    ck_assert_int_eq(kind_of("tensors/.scratch"), BPK_EDIT_SCRATCH);
    ck_assert_int_eq(kind_of("tensors/empty"), BPK_EDIT_SCRATCH);
    ck_assert_int_eq(kind_of("notes.txt"), BPK_EDIT_PENDING);
    ck_assert_int_eq(kind_of("metadata/.key.swp"), BPK_EDIT_SCRATCH);
    ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_ALL, &result), 0);
    ck_assert_uint_eq(result.kept, 3);
    ck_assert_uint_eq(result.left_out, 0);
    kit_reopen(&kit);
    ck_assert(kit_says(&kit, T, "pending", "p"));
    ck_assert(kit_says(&kit, T, "x.bak", "b"));
    ck_assert(kit_says(&kit, R, "notes.txt", "root"));
    struct bpk_pack *pack = kit_pack(&kit);
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    ck_assert_uint_eq(info.tensors, 4);
    ck_assert_uint_eq(info.metadata_entries, 2);
    bpk_pack_unref(pack);
}

/* Scratch dies with the mount, though others stay. */
START_TEST(scratch_dies_and_what_it_stands_beside_does_not) {
    static const struct {
        enum bpk_folder folder;
        const char *name, *text;
        bool stays;
    } files[] = {
        {T, "pending", "p", true},   {T, "empty", "", false},
        {T, "empty.bak", "", true},  {T, ".scratch", "s", false},
        {T, "sedAbCdEf", "", false}, {R, "notes", "n", true},
        {R, "empty", "", false},     {R, ".x", "", false},
        {M, "50%", "", true},        {M, ".key.swp", "s", false},
        {T, "new", "", true},        {T, "new.json", "{", true},
        {T, "told", "", true},       {T, "told.json", "{\"dtype\": \"U8\", \"shape\": [3]}", false},
    };
    for (int i = 0; i < ROWS(files); i++)
        kit_put(&kit, files[i].folder, files[i].name, files[i].text);
    ck_assert_int_eq(kit_unlink(&kit, T, "told.json"), 0); /* hidden, but in force */
    ck_assert_int_eq(kind_of("empty"), BPK_EDIT_SCRATCH);
    ck_assert_int_eq(kind_of("tensors/empty"), BPK_EDIT_SCRATCH);
    ck_assert_int_eq(kind_of("metadata/50%"), BPK_EDIT_PENDING);
    ck_assert_int_eq(bpk_edits_drop_scratch(kit.edits), 0);
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < ROWS(files); i++)
            ck_assert_msg(kit_exists(&kit, files[i].folder, files[i].name) == files[i].stays, "%s",
                          files[i].name);
        kit_reopen(&kit);
    }
    ck_assert(kit_exists(&kit, T, "d")); /* an empty tensor is none */
}

START_TEST(pending_becomes_real_with_a_name_or_a_sidecar) {
    kit_put(&kit, T, "p", "xyz");
    kit_put(&kit, R, "q", "0123456789");
    struct bpk_place q = kit_place(&kit, R, "q");
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &q, T, "a", false), 0);
    kit_sidecar(&kit, "p", 3);
    kit_commit_all(&kit);
    ck_assert(pack_says("a", "0123456789"));
    ck_assert(pack_says("p", "xyz"));
    ck_assert(!kit_has_edits_folder(&kit));
}

/* A backup that borrows the base's bytes keeps them when the base goes. */
START_TEST(a_backup_outlives_its_base) {
    ck_assert_int_eq(rename_to("c", "c.bak"), 0);
    kit_put(&kit, T, "c", "short");
    kit_sidecar(&kit, "c", 5);
    kit_commit_all(&kit);
    for (int i = 0; i < 3; i++) {
        struct bytes data;
        kit_read(&kit, T, "c.bak", &data);
        ck_assert_uint_eq(data.len, 5000);
        for (size_t k = 0; k < 5000; k++)
            HOLDS(data.data[k] == pattern_byte(PLACE_C + k));
        bytes_clear(&data);
        kit_write(&kit, "a", 0, i ? "1" : "2");
        kit_commit_all(&kit);
        kit_reopen(&kit);
    }
}

START_TEST(links_are_for_editors) {
    uint64_t number;
    struct bpk_outbuf target = {0};
    struct bpk_file_stat attr;
    ck_assert_int_eq(bpk_edits_symlink(kit.edits, T, "link", "x", &number), -EPERM);
    ck_assert_int_eq(bpk_edits_symlink(kit.edits, T, ".#a", "user@host.1", &number), 0);
    ck_assert_int_eq(bpk_edits_readlink(kit.edits, number, &target), 0);
    ck_assert_uint_eq(target.len, 11);
    bpk_outbuf_clear(&target);
    struct bpk_place link = kit_place(&kit, T, ".#a");
    ck_assert_uint_eq(link.number, number);
    ck_assert_int_eq(bpk_edits_stat(kit.edits, &link, &attr), 0);
    ck_assert(attr.is_link);
    ck_assert_uint_eq(attr.size, 11);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &link, 0, "x", 1), -EINVAL);
    kit_commit_all(&kit);
    ck_assert_int_eq(kit_unlink(&kit, T, ".#a"), 0);
    struct bpk_place a = kit_place(&kit, T, "a");
    ck_assert_int_eq(bpk_edits_readlink(kit.edits, a.number, &target), -EINVAL);
}

/* ---- sidecars -------------------------------------------------------------------------------- */

START_TEST(rm_of_everything_works) {
    static const char *const all[] = {"a", "a.json", "b", "b.json", "c", "c.json", "d", "d.json"};
    struct bpk_commit_result result;
    for (int i = 0; i < ROWS(all); i++)
        ck_assert_int_eq(kit_unlink(&kit, T, all[i]), 0);
    ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_VALID_AT_UNMOUNT, &result), -EPERM);
    ck_assert(kit_pack_has(&kit, "a"));
    kit_commit_all(&kit);
    ck_assert(!kit_pack_has(&kit, "a"));
    ck_assert(!kit_exists(&kit, T, "a.json"));
    ck_assert(!kit_has_edits_folder(&kit));
}

START_TEST(rm_of_a_sidecar_hides_it) {
    ck_assert_int_eq(kit_unlink(&kit, T, "b.json"), 0);
    ck_assert(!kit_exists(&kit, T, "b.json"));
    kit_commit_all(&kit);
    ck_assert(kit_exists(&kit, T, "b.json"));
    ck_assert_uint_eq(param_id_of("b"), 7);
}

START_TEST(a_sidecar_can_follow_its_tensor) {
    ck_assert_int_eq(rename_to("b", "b2"), 0);
    ck_assert_int_eq(rename_to("b.json", "b2.json"), 0);
    ck_assert(!kit_exists(&kit, T, "b.json"));
    kit_commit_all(&kit);
    ck_assert(is_as_made("b2", PLACE_B, 24));
    ck_assert_uint_eq(param_id_of("b2"), 7);
    ck_assert(!kit_pack_has(&kit, "b"));
}

START_TEST(a_sidecar_of_nothing_can_be_removed) {
    struct bpk_commit_result result;
    kit_sidecar(&kit, "ghost", 3);
    ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_ALL, &result), -EBADMSG);
    ck_assert_int_eq(kit_unlink(&kit, T, "ghost.json"), 0);
    kit_commit_all(&kit);
    ck_assert(!kit_pack_has(&kit, "ghost"));
}

int main(void) {
    Suite *suite = suite_create("edits_names");
    TCase *tc = editbase_case(suite, "renames");
    tcase_add_test(tc, a_renamed_tensor_takes_its_descriptor_along);
    tcase_add_test(tc, two_can_change_names);
    tcase_add_test(tc, bytes_that_replace_a_tensor_take_its_descriptor);
    tcase_add_test(tc, removed_and_created_again_it_remembers);
    tcase_add_test(tc, what_takes_the_place_of_a_moved_tensor_has_no_param_id);
    tcase_add_test(tc, memory_ends_with_the_commit);
    tcase_add_test(tc, renames_that_are_refused);
    tcase_add_test(tc, a_refused_rename_leaves_nothing_behind);
    tcase_add_test(tc, very_long_names_are_pending);
    tcase_add_test(tc, misspelled_names_are_pending);
    tc = editbase_case(suite, "aside");
    tcase_add_test(tc, an_editor_keeps_the_descriptor);
    tcase_add_test(tc, moved_aside_and_not_written_again_it_is_put_back);
    tcase_add_test(tc, moved_aside_and_removed_it_is_gone);
    tcase_add_test(tc, moved_aside_and_back_it_is_as_it_was);
    tcase_add_test(tc, a_new_tensor_moved_aside_is_put_back_too);
    tc = suite_case(suite, "param_id");
    tcase_add_checked_fixture(tc, setup_same, editbase_teardown);
    tcase_add_loop_test(tc, a_param_id_follows_its_bytes_unless_they_are_gone, 0,
                        WAYS * ROWS(moves));
    tc = editbase_case(suite, "others");
    tcase_add_test(tc, files_that_are_no_tensors_are_kept_and_never_written);
    tcase_add_test(tc, scratch_dies_and_what_it_stands_beside_does_not);
    tcase_add_test(tc, pending_becomes_real_with_a_name_or_a_sidecar);
    tcase_add_test(tc, a_backup_outlives_its_base);
    tcase_add_test(tc, links_are_for_editors);
    tc = editbase_case(suite, "sidecars");
    tcase_add_test(tc, rm_of_everything_works);
    tcase_add_test(tc, rm_of_a_sidecar_hides_it);
    tcase_add_test(tc, a_sidecar_can_follow_its_tensor);
    tcase_add_test(tc, a_sidecar_of_nothing_can_be_removed);
    return suite_run(suite);
}
