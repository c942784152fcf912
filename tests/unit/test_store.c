/* store: the journal comes back whole up to the first frame that is not, and only a folder of our
 * own is used. */
#include "edit/store.h"

#include "editkit.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[TEMP_PATH];
static int parent = -1;
static const struct bpk_base_id base = {1, 2, 3, 4, 5};

/* The size of the journal's head, as its format has it. */
enum { HEAD = 8 + 40 + 36 + 4, FRAME = 16 };

static void begin_folder(void) {
    kit_folder(folder);
    parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(parent, 0);
}

static void end_folder(void) {
    close(parent);
    kit_remove_folder(folder);
}

static struct bpk_store make_store(void) {
    struct bpk_store store;
    ck_assert_int_eq(bpk_store_init(&store, parent, "p.bpk"), 0);
    ck_assert_str_eq(store.name, ".p.bpk.edits");
    return store;
}

static struct bpk_store create_store(void) {
    struct bpk_store store = make_store();
    ck_assert_int_eq(bpk_store_create(&store, &base), 0);
    return store;
}

static int try_open(struct bpk_store *store, struct bpk_diag *diag) {
    *store = make_store();
    *diag = (struct bpk_diag){0};
    return bpk_store_open(store, diag);
}

static struct bpk_store open_store(void) {
    struct bpk_store store;
    struct bpk_diag diag;
    int r = try_open(&store, &diag);
    ck_assert_msg(r == 0, "open: %d %s", r, diag.sentence);
    return store;
}

static int append(struct bpk_store *store, const char *text) {
    struct bpk_outbuf record = {0};
    bpk_out_str(&record, text);
    int r = bpk_store_append(store, &record);
    bpk_outbuf_clear(&record);
    return r;
}

/* All records, each followed by a bar. */
struct seen {
    struct bytes text;
    int stop_after; /* the n-th returns an error; 0: none */
};

static int take(void *context, const uint8_t *record, size_t size) {
    struct seen *seen = context;
    bytes_add(&seen->text, record, size);
    bytes_add(&seen->text, "|", 1);
    return seen->stop_after > 0 && --seen->stop_after == 0 ? -ECANCELED : 0;
}

static bool replays(struct bpk_store *store, const char *expected) {
    struct bpk_base_id id;
    bool same_boot;
    struct seen seen = {0};
    int r = bpk_store_replay(store, &id, &same_boot, take, &seen);
    bool same = r == 0 && seen.text.len == strlen(expected) &&
                (seen.text.len == 0 || memcmp(seen.text.data, expected, seen.text.len) == 0);
    bytes_clear(&seen.text);
    return same && same_boot && bpk_base_id_equal(&id, &base);
}

static void journal_path(char out[TEMP_PATH + 40]) {
    snprintf(out, TEMP_PATH + 40, "%s/.p.bpk.edits/journal", folder);
}

static void read_journal(struct bytes *ret_bytes) {
    char path[TEMP_PATH + 40];
    uint8_t buffer[4096];
    *ret_bytes = (struct bytes){0};
    journal_path(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    while ((n = read(fd, buffer, sizeof(buffer))) > 0)
        bytes_add(ret_bytes, buffer, (size_t)n);
    close(fd);
}

static void write_journal(const void *bytes, size_t len) {
    char path[TEMP_PATH + 40];
    journal_path(path);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static bool is_there(const char *name) {
    char path[TEMP_PATH + 300];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* ---- records --------------------------------------------------------------------------------- */

START_TEST(records_come_back_in_order) {
    begin_folder();
    struct bpk_store store = make_store();
    struct bpk_diag diag;
    ck_assert_int_eq(bpk_store_open(&store, &diag), -ENOENT);
    ck_assert(!is_there(".p.bpk.edits"));
    ck_assert_int_eq(bpk_store_create(&store, &base), 0);
    ck_assert(is_there(".p.bpk.edits/journal"));
    ck_assert(replays(&store, ""));
    ck_assert_int_eq(bpk_store_reserve(&store, 1000), 0);
    ck_assert_int_eq(append(&store, "one"), 0);
    ck_assert_int_eq(append(&store, ""), 0);
    ck_assert_int_eq(append(&store, "three"), 0);
    ck_assert_int_eq(bpk_store_sync(&store), 0);
    ck_assert(replays(&store, "one||three|"));
    ck_assert_uint_eq(store.end, HEAD + 3 * FRAME + 8);
    bpk_store_close(&store);
    store = open_store();
    ck_assert(replays(&store, "one||three|"));
    ck_assert_int_eq(append(&store, "four"), 0);
    ck_assert(replays(&store, "one||three|four|"));
    ck_assert_int_eq(bpk_store_remove(&store, true), 0);
    ck_assert(!is_there(".p.bpk.edits"));
    ck_assert_int_eq(bpk_store_remove(&store, true), 0);
    bpk_store_close(&store);
    end_folder();
}

/* About as much room as the journal has already, so that a small one fits on a small disk. */
START_TEST(room_grows_with_the_journal) {
    static char text[100 << 10];
    begin_folder();
    struct bpk_store store = make_store();
    ck_assert_int_eq(bpk_store_create(&store, &base), 0);
    ck_assert_int_eq(bpk_store_reserve(&store, 1000), 0);
    ck_assert_uint_ge(store.reserved, store.end + 1000);
    ck_assert_uint_le(store.reserved, 20 << 10);
    memset(text, 'x', sizeof(text) - 1);
    ck_assert_int_eq(append(&store, text), 0);
    ck_assert_int_eq(bpk_store_reserve(&store, 1000), 0);
    ck_assert_uint_ge(store.reserved, 190 << 10);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(append(&store, text), 0);
    ck_assert_int_eq(bpk_store_reserve(&store, 1000), 0);
    ck_assert_uint_le(store.reserved, store.end + (300 << 10));
    ck_assert_int_eq(bpk_store_remove(&store, true), 0);
    bpk_store_close(&store);
    end_folder();
}

/* Killed at any byte of a write: what was whole before is there, and more can follow. */
START_TEST(torn_at_every_length) {
    static const char *const expected[] = {"", "first|", "first|second record|",
                                           "first|second record|3|"};
    static const size_t ends[] = {HEAD, HEAD + FRAME + 5, HEAD + 2 * FRAME + 18,
                                  HEAD + 3 * FRAME + 19};
    struct bytes whole;
    begin_folder();
    struct bpk_store store = create_store();
    ck_assert_int_eq(append(&store, "first"), 0);
    ck_assert_int_eq(append(&store, "second record"), 0);
    ck_assert_int_eq(append(&store, "3"), 0);
    bpk_store_close(&store);
    read_journal(&whole);
    ck_assert_uint_eq(whole.len, ends[3]);
    int frames = 0;
    for (size_t len = HEAD; len <= whole.len; len++) {
        char more[100];
        while (frames < 3 && len >= ends[frames + 1])
            frames++;
        write_journal(whole.data, len);
        store = open_store();
        ck_assert_msg(replays(&store, expected[frames]), "cut at %zu", len);
        ck_assert_uint_eq(store.end, ends[frames]);
        ck_assert_int_eq(append(&store, "new"), 0);
        snprintf(more, sizeof(more), "%snew|", expected[frames]);
        bpk_store_close(&store);
        store = open_store();
        ck_assert_msg(replays(&store, more), "cut at %zu and written on", len);
        bpk_store_close(&store);
    }
    for (size_t len = 0; len < HEAD; len++) { /* no head, no journal */
        struct bpk_base_id id;
        bool same_boot;
        write_journal(whole.data, len);
        store = open_store();
        ck_assert_int_eq(bpk_store_replay(&store, &id, &same_boot, take, NULL), -EBADMSG);
        bpk_store_close(&store);
    }
    bytes_clear(&whole);
    end_folder();
}

START_TEST(every_flipped_byte_is_seen) {
    static const char *const expected[] = {"", "first|", "first|second|"};
    struct bytes whole;
    begin_folder();
    struct bpk_store store = create_store();
    ck_assert_int_eq(append(&store, "first"), 0);
    ck_assert_int_eq(append(&store, "second"), 0);
    ck_assert_int_eq(append(&store, "third"), 0);
    bpk_store_close(&store);
    read_journal(&whole);
    for (size_t at = 0; at < whole.len; at++) {
        struct bpk_base_id id;
        bool same_boot;
        struct seen seen = {0};
        whole.data[at] ^= 0x40;
        write_journal(whole.data, whole.len);
        whole.data[at] ^= 0x40;
        store = open_store();
        int r = bpk_store_replay(&store, &id, &same_boot, take, &seen);
        if (at < 8) {
            ck_assert_int_eq(r, -EBADMSG);
        } else if (at < 48) {
            ck_assert_int_eq(r, 0);
            ck_assert(!bpk_base_id_equal(&id, &base));
        } else if (at < 84) {
            ck_assert_int_eq(r, 0);
            ck_assert(!same_boot);
        } else if (at >= HEAD) {
            int frame = at < HEAD + FRAME + 5 ? 0 : at < HEAD + 2 * FRAME + 11 ? 1 : 2;
            ck_assert_int_eq(r, 0);
            ck_assert_msg(replays(&store, expected[frame]), "byte %zu", at);
            size_t start[] = {HEAD, HEAD + FRAME + 5, HEAD + 2 * FRAME + 11};
            if (at >= start[frame] + 8) /* the length is as it was */
                ck_assert_int_eq(store.damaged, frame < 2);
            /* A record of the same length does not bring those behind it back. */
            static const char *const as_long[] = {"FIRST", "SECOND", "THIRD"};
            char more[100];
            snprintf(more, sizeof(more), "%s%s|", expected[frame], as_long[frame]);
            ck_assert_int_eq(append(&store, as_long[frame]), 0);
            bpk_store_close(&store);
            store = open_store();
            ck_assert_msg(replays(&store, more), "byte %zu, written on", at);
            ck_assert(!store.damaged);
        }
        bytes_clear(&seen.text);
        bpk_store_close(&store);
    }
    bytes_clear(&whole);
    end_folder();
}

/* A length that goes past the file, or past 2^64. */
START_TEST(sizes_are_not_believed) {
    static const uint64_t sizes[] = {100, UINT32_MAX, UINT64_MAX, UINT64_MAX - 15,
                                     UINT64_C(1) << 63};
    struct bytes whole;
    begin_folder();
    struct bpk_store store = create_store();
    ck_assert_int_eq(append(&store, "first"), 0);
    bpk_store_close(&store);
    read_journal(&whole);
    for (int i = 0; i < ROWS(sizes); i++) {
        memcpy(whole.data + HEAD, &sizes[i], 8);
        write_journal(whole.data, whole.len);
        store = open_store();
        ck_assert(replays(&store, ""));
        bpk_store_close(&store);
    }
    bytes_clear(&whole);
    end_folder();
}

START_TEST(a_taker_can_stop) {
    struct bpk_base_id id;
    bool same_boot;
    struct seen seen = {.stop_after = 2};
    begin_folder();
    struct bpk_store store = create_store();
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(append(&store, "x"), 0);
    ck_assert_int_eq(bpk_store_replay(&store, &id, &same_boot, take, &seen), -ECANCELED);
    ck_assert_uint_eq(seen.text.len, 4);
    bytes_clear(&seen.text);
    bpk_store_close(&store);
    end_folder();
}

START_TEST(a_new_journal_replaces_the_old_one) {
    static const struct bpk_base_id other = {9, 8, 7, 6, 5};
    struct bpk_outbuf frames = {0};
    struct bpk_outbuf record = {0};
    struct bpk_base_id id;
    bool same_boot;
    struct seen seen = {0};
    begin_folder();
    struct bpk_store store = create_store();
    ck_assert_int_eq(append(&store, "old"), 0);
    bpk_out_str(&record, "a");
    bpk_store_frame(&frames, &record);
    bpk_store_frame(&frames, &record);
    ck_assert_int_eq(bpk_store_rewrite(&store, &other, &frames), 0);
    ck_assert_int_eq(append(&store, "b"), 0);
    bpk_store_close(&store);
    ck_assert(!is_there(".p.bpk.edits/journal.new"));
    store = open_store();
    ck_assert_int_eq(bpk_store_replay(&store, &id, &same_boot, take, &seen), 0);
    ck_assert(bpk_base_id_equal(&id, &other));
    ck_assert_uint_eq(seen.text.len, 6);
    ck_assert_int_eq(memcmp(seen.text.data, "a|a|b|", 6), 0);
    bytes_clear(&seen.text);
    bpk_outbuf_clear(&frames);
    bpk_outbuf_clear(&record);
    bpk_store_close(&store);
    end_folder();
}

/* ---- data files ------------------------------------------------------------------------------ */

START_TEST(a_data_file_is_made_empty) {
    begin_folder();
    struct bpk_store store = create_store();
    ck_assert_int_eq(bpk_store_open_data(&store, 7, false), -ENOENT);
    int fd = bpk_store_open_data(&store, 7, true);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "abc", 3), 3);
    close(fd);
    fd = bpk_store_open_data(&store, 7, false);
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), 3);
    close(fd);
    fd = bpk_store_open_data(&store, 7, true); /* as if a crash had left it */
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), 0);
    close(fd);
    bpk_store_close(&store);
    end_folder();
}

/* It goes only when the journal can do without it. */
START_TEST(a_data_file_goes_after_the_record) {
    begin_folder();
    struct bpk_store store = create_store();
    close(bpk_store_open_data(&store, 1, true));
    close(bpk_store_open_data(&store, 2, true));
    bpk_store_remove_data(&store, 1, false);
    bpk_store_remove_data(&store, 2, true);
    ck_assert(is_there(".p.bpk.edits/c1"));
    ck_assert_int_eq(append(&store, "x"), 0);
    ck_assert(!is_there(".p.bpk.edits/c1"));
    ck_assert(is_there(".p.bpk.edits/c2"));
    ck_assert_int_eq(bpk_store_sync(&store), 0);
    ck_assert(!is_there(".p.bpk.edits/c2"));
    bpk_store_close(&store);
    end_folder();
}

START_TEST(what_a_crash_left_is_swept) {
    begin_folder();
    struct bpk_store store = create_store();
    for (uint64_t id = 1; id <= 5; id++)
        close(bpk_store_open_data(&store, id, true));
    bpk_store_sweep(&store, (const uint64_t[]){2, 5}, 2);
    ck_assert(!is_there(".p.bpk.edits/c1"));
    ck_assert(is_there(".p.bpk.edits/c2"));
    ck_assert(!is_there(".p.bpk.edits/c4"));
    ck_assert(is_there(".p.bpk.edits/c5"));
    ck_assert(is_there(".p.bpk.edits/journal"));
    bpk_store_close(&store);
    end_folder();
}

/* ---- whose folder it is ---------------------------------------------------------------------- */

static void spoil(int how) {
    char path[TEMP_PATH + 40];
    char moved[TEMP_PATH + 40];
    snprintf(path, sizeof(path), "%s/.p.bpk.edits", folder);
    snprintf(moved, sizeof(moved), "%s/elsewhere", folder);
    switch (how) {
    case 0:
        ck_assert_int_eq(chmod(path, 0720), 0);
        break;
    case 1:
        ck_assert_int_eq(chmod(path, 0702), 0);
        break;
    case 2:
        ck_assert_int_eq(rename(path, moved), 0);
        ck_assert_int_eq(symlink("elsewhere", path), 0);
        break;
    case 3:
        kit_remove_folder(path);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        break;
    default:
        if (geteuid() == 0)
            ck_assert_int_eq(chown(path, 12345, 12345), 0);
        else
            ck_assert_int_eq(chmod(path, 0777), 0);
        break;
    }
}

START_TEST(a_folder_that_is_not_ours_is_refused) {
    struct bpk_diag diag;
    begin_folder();
    struct bpk_store store = create_store();
    bpk_store_close(&store);
    spoil(_i);
    int r = try_open(&store, &diag);
    ck_assert_int_lt(r, 0);
    ck_assert_int_ne(r, -ENOENT);
    ck_assert_int_eq(diag.code, r);
    ck_assert_ptr_nonnull(strstr(diag.sentence, ".p.bpk.edits"));
    /* nor is it used by one that found none before */
    ck_assert_int_lt(bpk_store_create(&store, &base), 0);
    bpk_store_close(&store);
    end_folder();
}

START_TEST(a_journal_that_is_a_link_is_refused) {
    struct bpk_diag diag;
    char path[TEMP_PATH + 40];
    begin_folder();
    struct bpk_store store = create_store();
    bpk_store_close(&store);
    journal_path(path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    ck_assert_int_eq(try_open(&store, &diag), -ELOOP);
    bpk_store_close(&store);
    end_folder();
}

/* Being made or unmade when the process died: there is nothing in it. */
START_TEST(a_folder_without_a_journal_is_none) {
    struct bpk_diag diag;
    begin_folder();
    struct bpk_store store = create_store();
    close(bpk_store_open_data(&store, 1, true));
    bpk_store_close(&store);
    char path[TEMP_PATH + 40];
    journal_path(path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(try_open(&store, &diag), -ENOENT);
    ck_assert_int_eq(bpk_store_create(&store, &base), 0);
    ck_assert(!is_there(".p.bpk.edits/c1"));
    ck_assert(replays(&store, ""));
    bpk_store_close(&store);
    end_folder();
}

START_TEST(long_names_are_cut_with_a_hash) {
    char a[256];
    char b[256];
    memset(a, 'n', sizeof(a));
    memset(b, 'n', sizeof(b));
    a[255] = b[255] = '\0';
    a[254] = 'a';
    b[254] = 'b';
    begin_folder();
    struct bpk_store first;
    struct bpk_store second;
    ck_assert_int_eq(bpk_store_init(&first, parent, a), 0);
    ck_assert_int_eq(bpk_store_init(&second, parent, b), 0);
    ck_assert_uint_le(strlen(first.name), 255);
    ck_assert_str_ne(first.name, second.name);
    ck_assert_int_eq(bpk_store_create(&first, &base), 0);
    ck_assert_int_eq(bpk_store_remove(&first, true), 0);
    bpk_store_close(&first);
    bpk_store_close(&second);
    end_folder();
}

int main(void) {
    Suite *suite = suite_create("store");
    TCase *tc = suite_case(suite, "records");
    tcase_add_test(tc, records_come_back_in_order);
    tcase_add_test(tc, room_grows_with_the_journal);
    tcase_add_test(tc, torn_at_every_length);
    tcase_add_test(tc, every_flipped_byte_is_seen);
    tcase_add_test(tc, sizes_are_not_believed);
    tcase_add_test(tc, a_taker_can_stop);
    tcase_add_test(tc, a_new_journal_replaces_the_old_one);
    tc = suite_case(suite, "data");
    tcase_add_test(tc, a_data_file_is_made_empty);
    tcase_add_test(tc, a_data_file_goes_after_the_record);
    tcase_add_test(tc, what_a_crash_left_is_swept);
    tc = suite_case(suite, "folder");
    tcase_add_loop_test(tc, a_folder_that_is_not_ours_is_refused, 0, 5);
    tcase_add_test(tc, a_journal_that_is_a_link_is_refused);
    tcase_add_test(tc, a_folder_without_a_journal_is_none);
    tcase_add_test(tc, long_names_are_cut_with_a_hash);
    return suite_run(suite);
}
