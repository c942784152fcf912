/* edits: texts while they are whole, not whole yet, and wrong; the two maps and their keys; what a
 * commit leaves out (semantics.md 2, 3.2, 3.3, 3.7, 4). */
#include "editbase.h"

#include "view/json.h"
#include "view/json_read.h"

#include <sys/stat.h>
#include <unistd.h>

static int put(enum bpk_folder folder, const char *name, const char *text) {
    return kit_try_put(&kit, folder, name, text, strlen(text));
}

static int commit(enum bpk_commit_mode mode, struct bpk_commit_result *ret_result) {
    return kit_commit(&kit, mode, ret_result);
}

static bool value_is(const char *key, const char *value) {
    char *got = kit_pack_value(&kit, key);
    bool same = got && value ? strcmp(got, value) == 0 : got == value;
    free(got);
    return same;
}

/* ---- good, early, bad ------------------------------------------------------------------------ */

START_TEST(a_good_sidecar_is_in_force_at_once) {
    ck_assert_int_eq(put(T, "b.json", "{\"dtype\": \"F32\", \"shape\": [6]}"), 0);
    ck_assert(kit_says(&kit, T, "b.json", "{\"dtype\": \"F32\", \"shape\": [6]}")); /* as written */
    ck_assert_str_eq(kit_problem(&kit, "tensors/b", NULL), "");
    kit_commit_all(&kit);
    ck_assert(kit_contains(&kit, T, "b.json", "\"numpy\": \"<f4\"")); /* canonical */
    struct bpk_pack *pack = kit_pack(&kit);
    struct bpk_tensor t;
    uint32_t index;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("b"), &index), 0);
    bpk_pack_tensor(pack, index, &t);
    ck_assert_uint_eq(t.rank, 1);
    ck_assert(!t.has_param_id); /* absent removes it */
    bpk_pack_unref(pack);
    ck_assert(is_as_made("b", PLACE_B, 24));
}

static const struct {
    enum bpk_folder folder;
    const char *name, *text, *path;
    bool is_early; /* may be whole later */
} bad_texts[] = {
    {BPK_IN_TENSORS, "b.json", "{\"dtype\": \"F32\", \"shape\": [6]", "tensors/b", true},
    {BPK_IN_TENSORS, "b.json", "{\"dtype\": \"F33\", \"shape\": [6]}", "tensors/b", false},
    {BPK_IN_TENSORS, "b.json", "{\"dtyp\": \"F32\"}", "tensors/b", false},
    {BPK_IN_TENSORS, "b.json", "", "tensors/b", true},
    {BPK_IN_ROOT, "metadata.json", "{\"a\": \"b\"", "metadata.json", true},
    {BPK_IN_ROOT, "metadata.json", "{\"a\": 1}", "metadata.json", false},
    {BPK_IN_ROOT, "metadata.json", "{\"a\": \"b\", \"a\": \"c\"}", "metadata.json", false},
    {BPK_IN_ROOT, "metadata.json", "", "metadata.json", true},
    {BPK_IN_ROOT, "scalars.json", "{\"a\": {\"Int\": 1}", "scalars.json", true},
    {BPK_IN_ROOT, "scalars.json", "{\"a\": 1}", "scalars.json", false},
    {BPK_IN_ROOT, "scalars.json", "", "scalars.json", true},
    {BPK_IN_METADATA, "note", "\xff\n", "metadata/note", false},
};

START_TEST(a_bad_text_is_kept_told_and_refused) {
    const char *name = bad_texts[_i].name;
    enum bpk_folder folder = bad_texts[_i].folder;
    struct bpk_commit_result result;
    struct bytes before;
    struct bytes after;
    kit_read(&kit, R, "metadata.json", &before);
    ck_assert_int_eq(put(folder, name, bad_texts[_i].text), bad_texts[_i].is_early ? 0 : -EBADMSG);
    ck_assert(kit_says(&kit, folder, name, bad_texts[_i].text));
    ck_assert_int_eq(kit_fsync(&kit, folder, name), -EBADMSG);
    ck_assert_str_ne(kit_problem(&kit, bad_texts[_i].path, NULL), "");
    if (folder != R || strcmp(name, "metadata.json") != 0) { /* the last good value is in force */
        kit_read(&kit, R, "metadata.json", &after);
        ck_assert_uint_eq(before.len, after.len);
        ck_assert_int_eq(memcmp(before.data, after.data, after.len), 0);
        bytes_clear(&after);
    }
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), -EBADMSG);
    ck_assert_msg(strstr(kit.diag.sentence, bad_texts[_i].path) != NULL, "%s", kit.diag.sentence);
    kit_reopen(&kit);
    ck_assert(kit_says(&kit, folder, name, bad_texts[_i].text));
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), -EBADMSG);
    /* the others go in without it */
    kit_write(&kit, "a", 0, "0123456789");
    ck_assert_int_eq(commit(BPK_COMMIT_VALID, &result), 0);
    ck_assert_uint_eq(result.left_out, 1);
    ck_assert(result.wrote);
    ck_assert(pack_says("a", "0123456789"));
    ck_assert(is_as_made("b", PLACE_B, 24));
    ck_assert(value_is("note", "x"));
    ck_assert(kit_says(&kit, folder, name, bad_texts[_i].text));
    ck_assert(kit_has_edits_folder(&kit));
    kit_reopen(&kit);
    ck_assert(kit_says(&kit, folder, name, bad_texts[_i].text));
    bytes_clear(&before);
}

/* Some dup of a handle was closed in the middle of a text; the rest comes. */
START_TEST(a_text_can_come_in_pieces) {
    struct bpk_place place = kit_place(&kit, T, "b.json");
    static const char text[] = "{\"dtype\": \"F32\", \"shape\": [3, 2]}";
    bpk_edits_opened(kit.edits, &place, true);
    ck_assert_int_eq(bpk_edits_truncate(kit.edits, &place, 0), 0);
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        ck_assert_int_eq(bpk_edits_write(kit.edits, &place, i, text + i, 1), 0);
        ck_assert_int_eq(bpk_edits_flush(kit.edits, &place), 0);
    }
    bpk_edits_released(kit.edits, place.number, true);
    ck_assert_int_eq(kit_fsync(&kit, T, "b.json"), 0);
    kit_commit_all(&kit);
    ck_assert(kit_contains(&kit, T, "b.json", "3,\n    2") ||
              kit_contains(&kit, T, "b.json", "[3, 2]"));
}

/* Written and never flushed: a commit parses it. */
START_TEST(a_commit_parses_what_nobody_flushed) {
    struct bpk_place place = kit_place(&kit, M, "note");
    ck_assert_int_eq(bpk_edits_truncate(kit.edits, &place, 0), 0);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &place, 0, "later\n", 6), 0);
    kit_commit_all(&kit);
    ck_assert(value_is("note", "later"));
}

START_TEST(a_bad_text_is_not_renamed_over_a_good_one) {
    kit_put(&kit, T, "tmp~", "{\"dtype\": \"F32\"");
    ck_assert_int_eq(kit_rename(&kit, T, "tmp~", "b.json"), -EBADMSG);
    ck_assert(kit_exists(&kit, T, "tmp~"));
    ck_assert(kit_contains(&kit, T, "b.json", "F32"));
    kit_put(&kit, T, "tmp~",
            "{\"dtype\": \"I32\", \"shape\": [6], \"param_id\": \"18446744073709551615\"}");
    ck_assert_int_eq(kit_rename(&kit, T, "tmp~", "b.json"), 0);
    kit_commit_all(&kit);
    ck_assert(kit_contains(&kit, T, "b.json", "18446744073709551615"));
}

/* An editor that writes beside and renames over, for all three kinds of text. */
START_TEST(texts_can_be_renamed_over) {
    kit_put(&kit, R, ".m.swp", "{\"only\": \"one\"}");
    ck_assert_int_eq(kit_rename(&kit, R, ".m.swp", "metadata.json"), 0);
    kit_put(&kit, R, "s~", "{\"x\": {\"Bool\": true}}");
    ck_assert_int_eq(kit_rename(&kit, R, "s~", "scalars.json"), 0);
    kit_put(&kit, M, ".k", "two\n");
    ck_assert_int_eq(kit_rename(&kit, M, ".k", "key"), 0);
    kit_commit_all(&kit);
    ck_assert(value_is("only", "one"));
    ck_assert(value_is("key", "two"));
    ck_assert(value_is("note", NULL));
    ck_assert(kit_contains(&kit, R, "scalars.json", "true"));
    ck_assert(!kit_has_edits_folder(&kit));
}

/* ---- the two maps ---------------------------------------------------------------------------- */

START_TEST(keys_and_the_map_are_one) {
    kit_put(&kit, M, "added", "1\n");
    ck_assert(kit_contains(&kit, R, "metadata.json", "\"added\": \"1\""));
    kit_put(&kit, R, "metadata.json", "{\"added\": \"2\", \"third\": \"3\"}");
    ck_assert(kit_says(&kit, M, "added", "2\n"));
    ck_assert(kit_says(&kit, M, "third", "3\n"));
    ck_assert(!kit_exists(&kit, M, "note"));
    ck_assert(!kit_exists(&kit, M, "producer"));
    kit_put(&kit, M, "note", "again\n");
    ck_assert_int_eq(kit_unlink(&kit, M, "third"), 0);
    ck_assert(!kit_contains(&kit, R, "metadata.json", "third"));
    kit_reopen(&kit);
    ck_assert(kit_says(&kit, M, "note", "again\n"));
    kit_commit_all(&kit);
    ck_assert(value_is("added", "2"));
    ck_assert(value_is("note", "again"));
    ck_assert(value_is("third", NULL));
    ck_assert(value_is("producer", NULL));
}

static const struct {
    const char *text, *value;
} values[] = {{"v\n", "v"},   {"v", "v"},         {"", ""},      {"\n", ""},
              {"\n\n", "\n"}, {"a\nb\n", "a\nb"}, {" x ", " x "}};

START_TEST(one_newline_is_the_files) {
    kit_put(&kit, M, "k", values[_i].text);
    kit_commit_all(&kit);
    ck_assert(value_is("k", values[_i].value));
    char shown[20];
    snprintf(shown, sizeof(shown), "%s\n", values[_i].value);
    ck_assert(kit_says(&kit, M, "k", shown));
}

START_TEST(keys_are_renamed_with_their_values) {
    ck_assert_int_eq(kit_rename(&kit, M, "note", "note2"), 0);
    kit_commit_all(&kit);
    ck_assert(value_is("note", NULL));
    ck_assert(value_is("note2", "x"));
    ck_assert_int_eq(kit_rename(&kit, M, "note2", "note2.bak"), 0);
    kit_commit_all(&kit); /* moved aside: put back */
    ck_assert(value_is("note2", "x"));
    ck_assert(kit_exists(&kit, M, "note2"));
}

/* rm metadata.json empties the map, but only where that was asked for. */
/* The last write of a key wins, be it of one key or of the map that is gone. */
START_TEST(a_key_that_is_written_after_its_map_was_removed_stays) {
    kit_put(&kit, M, "note", "before\n");
    kit_put(&kit, M, "first", "before\n");
    ck_assert_int_eq(kit_unlink(&kit, R, "metadata.json"), 0);
    kit_put(&kit, M, "note", "after\n");
    kit_put(&kit, M, "other", "new\n");
    if (_i == 1)
        kit_reopen(&kit);
    kit_commit_all(&kit);
    ck_assert(value_is("note", "after"));
    ck_assert(value_is("other", "new"));
    ck_assert(value_is("first", NULL));
    ck_assert(value_is("producer", NULL));
}

START_TEST(a_removed_map_is_emptied_by_name_only) {
    struct bpk_commit_result result;
    ck_assert_int_eq(kit_unlink(&kit, R, "metadata.json"), 0);
    ck_assert_int_eq(kit_unlink(&kit, R, "scalars.json"), 0);
    kit_write(&kit, "a", 0, "x");
    ck_assert_int_eq(commit(BPK_COMMIT_VALID_AT_UNMOUNT, &result), 0);
    ck_assert_uint_eq(result.maps_put_back, BPK_MAP_METADATA | BPK_MAP_SCALARS);
    ck_assert(value_is("note", "x"));
    ck_assert(kit_exists(&kit, R, "metadata.json"));
    ck_assert_int_eq(kit_unlink(&kit, R, "metadata.json"), 0);
    ck_assert_int_eq(kit_unlink(&kit, R, "scalars.json"), 0);
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), 0);
    ck_assert_uint_eq(result.maps_put_back, 0);
    ck_assert(value_is("note", NULL));
    ck_assert(kit_says(&kit, R, "metadata.json", "{}\n"));
    ck_assert(kit_says(&kit, R, "scalars.json", "{}\n"));
}

/* ---- handles --------------------------------------------------------------------------------- */

static const struct {
    enum bpk_folder folder;
    const char *name, *text, *path;
} held_texts[] = {
    {BPK_IN_TENSORS, "b.json", "{\"dtype\": \"F32\", \"shape\": [6]}", "tensors/b"},
    {BPK_IN_METADATA, "note", "held\n", "metadata/note"},
    {BPK_IN_METADATA, "new", "held\n", "metadata/new"},
    {BPK_IN_ROOT, "metadata.json", "{\"note\": \"held\"}", "metadata.json"},
    {BPK_IN_ROOT, "scalars.json", "{}", "scalars.json"},
};

/* A text with a handle open goes into the pack, is no edit any more, and stays as written, for who
 * writes on; when the mount is gone nobody does. */
START_TEST(a_held_text_stays_as_written_until_the_mount_is_gone) {
    struct bpk_commit_result result;
    const char *name = held_texts[_i].name;
    enum bpk_folder folder = held_texts[_i].folder;
    kit_put(&kit, folder, name, held_texts[_i].text);
    struct bpk_place place = kit_place(&kit, folder, name);
    bpk_edits_opened(kit.edits, &place, true);
    ck_assert_int_eq(commit(BPK_COMMIT_VALID_AT_UNMOUNT, &result), 0);
    ck_assert(result.wrote);
    ck_assert(kit_says(&kit, folder, name, held_texts[_i].text));
    ck_assert_ptr_null(kit_problem(&kit, held_texts[_i].path, NULL));
    ck_assert_int_eq(commit(BPK_COMMIT_LAST, &result), 0);
    ck_assert(!result.wrote);
    ck_assert_uint_eq(result.left_out, 0);
    ck_assert_ptr_null(kit_problem(&kit, held_texts[_i].path, NULL));
    ck_assert(!kit_has_edits_folder(&kit));
    bpk_edits_released(kit.edits, place.number, true);
}

/* One that is not whole is left out at the end too, and so is what is written after it. */
START_TEST(a_held_text_that_is_not_whole_stays) {
    struct bpk_commit_result result;
    ck_assert_int_eq(put(T, "b.json", "{\"dtype\": \"F32\""), 0);
    struct bpk_place b = kit_place(&kit, T, "b.json");
    struct bpk_place note = kit_place(&kit, M, "note");
    kit_put(&kit, M, "note", "first\n");
    bpk_edits_opened(kit.edits, &b, true);
    bpk_edits_opened(kit.edits, &note, true);
    ck_assert_int_eq(commit(BPK_COMMIT_LAST, &result), 0);
    ck_assert_uint_eq(result.left_out, 1);
    ck_assert_str_ne(kit_problem(&kit, "tensors/b", NULL), "");
    ck_assert_int_eq(bpk_edits_write(kit.edits, &note, 0, "later\n", 6), 0);
    ck_assert_ptr_nonnull(kit_problem(&kit, "metadata/note", NULL));
    bpk_edits_released(kit.edits, b.number, true);
    bpk_edits_released(kit.edits, note.number, true);
    kit_reopen(&kit);
    ck_assert(kit_says(&kit, T, "b.json", "{\"dtype\": \"F32\""));
    ck_assert(kit_says(&kit, M, "note", "later\n"));
    ck_assert(value_is("note", "first"));
}

/* ---- what is left out ------------------------------------------------------------------------ */

START_TEST(names_joined_by_a_rename_stand_or_fall_together) {
    struct bpk_commit_result result;
    ck_assert_int_eq(kit_rename(&kit, T, "c", "c2"), 0);
    ck_assert_int_eq(kit_truncate(&kit, T, "c2", 4000), 0); /* does not fit its shape */
    kit_put(&kit, T, "c", "instead");
    kit_sidecar(&kit, "c", 7);
    kit_write(&kit, "a", 0, "0123456789");
    ck_assert_int_eq(commit(BPK_COMMIT_VALID, &result), 0);
    ck_assert_uint_eq(result.left_out, 2);
    ck_assert(pack_says("a", "0123456789"));
    ck_assert(is_as_made("c", PLACE_C, 5000));
    ck_assert(!kit_pack_has(&kit, "c2"));
    kit_reopen(&kit);
    ck_assert(kit_says(&kit, T, "c", "instead"));
    struct bytes data;
    kit_read(&kit, T, "c2", &data);
    ck_assert_uint_eq(data.len, 4000);
    for (size_t i = 0; i < 4000; i++)
        HOLDS(data.data[i] == pattern_byte(PLACE_C + i));
    bytes_clear(&data);
    kit_sidecar(&kit, "c2", 4000);
    kit_commit_all(&kit);
    ck_assert(pack_says("c", "instead"));
    ck_assert(is_as_made("c2", PLACE_C, 4000));
    ck_assert(!kit_has_edits_folder(&kit));
}

/* Edits of the map, one of which is no good. */
static void edit_keys(void) {
    kit_put(&kit, M, "note", "good at first\n");
    ck_assert_int_eq(put(M, "note", "\xff\n"), -EBADMSG);
    ck_assert_int_eq(put(M, "new bad", "\xfe"), -EBADMSG);
    kit_put(&kit, M, "new", "good\n");
    ck_assert_int_eq(kit_unlink(&kit, M, "producer"), 0);
}

static void check_left_out_keys(void) {
    ck_assert(value_is("note", "x"));
    ck_assert(value_is("new bad", NULL));
    ck_assert(value_is("new", "good"));
    ck_assert(value_is("producer", NULL));
    ck_assert(kit_says(&kit, M, "note", "\xff\n"));
    ck_assert(kit_says(&kit, M, "new bad", "\xfe"));
    ck_assert_str_eq(kit_problem(&kit, "metadata/note", NULL), "the value is not UTF-8");
    ck_assert_str_eq(kit_problem(&kit, "metadata/new bad", NULL), "the value is not UTF-8");
    ck_assert_ptr_null(kit_problem(&kit, "metadata/new", NULL));
    ck_assert(!kit_exists(&kit, M, "producer"));
    ck_assert(kit_contains(&kit, R, "metadata.json", "good at first")); /* the last good value */
}

START_TEST(a_key_is_left_out_alone) {
    struct bpk_commit_result result;
    edit_keys();
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), -EBADMSG);
    ck_assert_int_eq(commit(BPK_COMMIT_LAST, &result), 0);
    ck_assert(result.wrote);
    ck_assert_uint_eq(result.left_out, 2);
    check_left_out_keys();
    ck_assert_int_eq(commit(BPK_COMMIT_VALID, &result), 0);
    ck_assert(!result.wrote); /* nothing new */
    ck_assert_uint_eq(result.left_out, 2);
    kit_reopen(&kit);
    check_left_out_keys();
    kit_put(&kit, M, "note", "mended\n");
    ck_assert_int_eq(kit_unlink(&kit, M, "new bad"), 0);
    kit_commit_all(&kit);
    ck_assert(value_is("note", "mended"));
    ck_assert(value_is("new", "good"));
    ck_assert(!kit_has_edits_folder(&kit));
}

/* Killed before the journal was written anew: it is read back with the record of the commit. */
START_TEST(a_key_that_was_left_out_survives_a_kill) {
    struct bpk_commit_result result;
    char in_the_way[TEMP_PATH + 60];
    edit_keys();
    kit_edits_path(&kit, in_the_way);
    strcat(in_the_way, "/journal.new");
    ck_assert_int_eq(mkdir(in_the_way, 0700), 0);
    ck_assert_int_eq(commit(BPK_COMMIT_VALID, &result), 0);
    ck_assert(result.wrote);
    kit_close(&kit);
    ck_assert_int_eq(rmdir(in_the_way), 0);
    kit_open(&kit);
    check_left_out_keys();
}

/* The map was replaced, or removed, and one key is no good: the pack's own stays for that key. */
START_TEST(a_key_is_left_out_of_a_new_map) {
    struct bpk_commit_result result;
    if (_i == 0)
        kit_put(&kit, R, "metadata.json", "{\"note\": \"of the map\", \"other\": \"1\"}");
    else
        ck_assert_int_eq(kit_unlink(&kit, R, "metadata.json"), 0);
    ck_assert_int_eq(put(M, "note", "\xff\n"), -EBADMSG);
    ck_assert_int_eq(commit(BPK_COMMIT_VALID, &result), 0);
    ck_assert_uint_eq(result.left_out, 1);
    ck_assert(value_is("note", "x"));
    ck_assert(value_is("other", _i == 0 ? "1" : NULL));
    ck_assert(value_is("producer", NULL));
    ck_assert(kit_says(&kit, M, "note", "\xff\n"));
}

/* Where the file of the whole map is no good, no key goes in. */
START_TEST(a_map_is_left_out_whole) {
    struct bpk_commit_result result;
    kit_put(&kit, M, "note", "good\n");
    ck_assert_int_eq(put(R, "metadata.json", "{\"a\": 1}"), -EBADMSG);
    ck_assert_int_eq(put(M, "new bad", "\xfe"), -EBADMSG);
    kit_put(&kit, R, "scalars.json", "{}");
    ck_assert_int_eq(commit(BPK_COMMIT_VALID, &result), 0);
    ck_assert_uint_eq(result.left_out, 2);
    ck_assert(value_is("note", "x"));
    ck_assert(kit_says(&kit, M, "note", "good\n"));
    kit_reopen(&kit);
    ck_assert(kit_says(&kit, M, "note", "good\n"));
    kit_put(&kit, R, "metadata.json", "{\"a\": \"1\"}");
    ck_assert_int_eq(kit_unlink(&kit, M, "new bad"), 0);
    kit_commit_all(&kit);
    ck_assert(value_is("a", "1"));
    ck_assert(value_is("note", NULL));
}

START_TEST(half_of_the_tensors_do_not_go_unasked) {
    struct bpk_commit_result result;
    ck_assert_int_eq(kit_unlink(&kit, T, "a"), 0);
    ck_assert_int_eq(kit_unlink(&kit, T, "b"), 0);
    ck_assert_int_eq(kit_unlink(&kit, T, "c"), 0);
    ck_assert_int_eq(commit(BPK_COMMIT_VALID_AT_UNMOUNT, &result), -EPERM);
    ck_assert(!result.wrote);
    ck_assert(kit_pack_has(&kit, "a"));
    kit_reopen(&kit);
    ck_assert(!kit_exists(&kit, T, "a"));
    kit_put(&kit, T, "c", "x");
    kit_sidecar(&kit, "c", 1);
    ck_assert_int_eq(commit(BPK_COMMIT_VALID_AT_UNMOUNT, &result),
                     0); /* two of four: not fewer than half */
    ck_assert(!kit_pack_has(&kit, "a"));
}

/* ---- what is in force ------------------------------------------------------------------------ */

/* "KIND DIMS param_id" of the tensor at that place, or the error. */
static const char *in_force(const struct bpk_place *place) {
    static char text[100];
    struct bpk_descriptor now = {0};
    struct bpk_outbuf out = {0};
    int r = bpk_edits_descriptor(kit.edits, place, &now);
    if (r < 0)
        return r == -ENODATA ? "ENODATA" : r == -ENOTSUP ? "ENOTSUP" : "other";
    bpk_json_dtype(&out, &now.dtype);
    for (uint32_t i = 0; i < now.rank; i++) {
        bpk_out_str(&out, " ");
        bpk_out_u64(&out, now.dims[i]);
    }
    if (now.has_param_id) {
        bpk_out_str(&out, " #");
        bpk_out_u64(&out, now.param_id);
    }
    snprintf(text, sizeof(text), "%.*s", (int)out.len, out.text);
    bpk_outbuf_clear(&out);
    bpk_descriptor_clear(&now);
    return text;
}

static const char *name_in_force(enum bpk_folder folder, const char *name) {
    struct bpk_place place = kit_place(&kit, folder, name);
    return in_force(&place);
}

START_TEST(a_descriptor_is_what_the_sidecar_says) {
    ck_assert_str_eq(name_in_force(T, "b"), "\"F32\" 2 3 #7");
    ck_assert_str_eq(name_in_force(T, "d"), "\"U8\" 0");
    ck_assert_int_eq(put(T, "b.json", "{\"dtype\": \"I32\", \"shape\": [2, 3], \"param_id\": 9}"),
                     0);
    ck_assert_str_eq(name_in_force(T, "b"), "\"I32\" 2 3 #9");
    ck_assert_int_eq(put(T, "b.json", "{"), 0); /* the last good value */
    ck_assert_str_eq(name_in_force(T, "b"), "\"I32\" 2 3 #9");
    ck_assert_int_eq(put(T, "b.json", "{\"dtype\": \"F32\", \"shape\": [6]}"), 0);
    kit_commit_all(&kit);
    ck_assert_str_eq(name_in_force(T, "b"), "\"F32\" 6");
    ck_assert_int_eq(put(T, "new", "1234"), 0);
    ck_assert_str_eq(name_in_force(T, "new"), "ENODATA");
    ck_assert_int_eq(put(T, "new.json", "{\"dtype\": \"U8\", \"shape\": [4]}"), 0);
    ck_assert_str_eq(name_in_force(T, "new"), "\"U8\" 4");
    struct bpk_place moved = kit_place(&kit, T, "new");
    ck_assert_int_eq(bpk_edits_rename(kit.edits, &moved, T, "moved", false), 0);
    ck_assert_str_eq(in_force(&moved), "\"U8\" 4");
    ck_assert_str_eq(name_in_force(T, "new.json"), "ENOTSUP");
    ck_assert_str_eq(name_in_force(R, "metadata.json"), "ENOTSUP");
    ck_assert_str_eq(name_in_force(BPK_IN_METADATA, "note"), "ENOTSUP");
}

int main(void) {
    Suite *suite = suite_create("edits_texts");
    TCase *tc = editbase_case(suite, "texts");
    tcase_add_test(tc, a_good_sidecar_is_in_force_at_once);
    tcase_add_loop_test(tc, a_bad_text_is_kept_told_and_refused, 0, ROWS(bad_texts));
    tcase_add_test(tc, a_text_can_come_in_pieces);
    tcase_add_test(tc, a_commit_parses_what_nobody_flushed);
    tcase_add_test(tc, a_bad_text_is_not_renamed_over_a_good_one);
    tcase_add_test(tc, texts_can_be_renamed_over);
    tc = editbase_case(suite, "maps");
    tcase_add_test(tc, keys_and_the_map_are_one);
    tcase_add_loop_test(tc, one_newline_is_the_files, 0, ROWS(values));
    tcase_add_test(tc, keys_are_renamed_with_their_values);
    tcase_add_loop_test(tc, a_key_that_is_written_after_its_map_was_removed_stays, 0, 2);
    tcase_add_test(tc, a_removed_map_is_emptied_by_name_only);
    tc = editbase_case(suite, "handles");
    tcase_add_loop_test(tc, a_held_text_stays_as_written_until_the_mount_is_gone, 0,
                        ROWS(held_texts));
    tcase_add_test(tc, a_held_text_that_is_not_whole_stays);
    tc = editbase_case(suite, "in_force");
    tcase_add_test(tc, a_descriptor_is_what_the_sidecar_says);
    tc = editbase_case(suite, "left_out");
    tcase_add_test(tc, names_joined_by_a_rename_stand_or_fall_together);
    tcase_add_test(tc, a_key_is_left_out_alone);
    tcase_add_test(tc, a_key_that_was_left_out_survives_a_kill);
    tcase_add_loop_test(tc, a_key_is_left_out_of_a_new_map, 0, 2);
    tcase_add_test(tc, a_map_is_left_out_whole);
    tcase_add_test(tc, half_of_the_tensors_do_not_go_unasked);
    return suite_run(suite);
}
