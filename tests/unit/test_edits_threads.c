/* edits from several threads: commits while files are written, read and closed. Nothing that was
 * acknowledged is lost, and no pack holds half of a write. */
#include "editbase.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { RECORD = 5000, SMALL = 24, ROUNDS = 200, CALLS = 2000 };

static atomic_bool stop;
static atomic_uint wrong;
static atomic_uint calls[4]; /* of each thread */

/* Fills the whole tensor with one byte, again and again, from a handle of its own each time. */
static void *write_c(void *last) {
    char bytes[RECORD];
    for (unsigned i = 1; !stop; i++) {
        struct bpk_place place = kit_place(&kit, T, "c");
        memset(bytes, (int)(i % 255 + 1), RECORD);
        bpk_edits_opened(kit.edits, &place, true);
        wrong += bpk_edits_write(kit.edits, &place, 0, bytes, RECORD) != 0;
        bpk_edits_released(kit.edits, place.number, true);
        *(unsigned *)last = i % 255 + 1;
        calls[0]++;
    }
    return NULL;
}

static void *read_c(void *unused) {
    (void)unused;
    char bytes[RECORD];
    size_t n;
    while (!stop) {
        struct bpk_place place = kit_place(&kit, T, "c");
        bpk_edits_opened(kit.edits, &place, false);
        if (bpk_edits_read(kit.edits, &place, 0, bytes, RECORD, &n) != 0 || n != RECORD)
            wrong++;
        bpk_edits_released(kit.edits, place.number, false);
        calls[1]++;
    }
    return NULL;
}

static void *rename_a(void *unused) {
    (void)unused;
    static const char *const names[] = {"a", "x", "y"};
    for (unsigned i = 0; !stop; i++) {
        struct bpk_place place = kit_place(&kit, T, names[i % 3]);
        wrong += bpk_edits_rename(kit.edits, &place, T, names[(i + 1) % 3], false) != 0;
        calls[2]++;
        usleep(10);
    }
    return NULL;
}

/* Replaces a tensor as editors do, with a backup, to which it writes too. */
static void *back_up_b(void *last) {
    uint64_t number;
    for (unsigned i = 1; !stop; i++) {
        char bytes[SMALL];
        memset(bytes, (int)(i % 255 + 1), SMALL);
        wrong += bpk_edits_create(kit.edits, T, ".new", 0600, &number) != 0;
        struct bpk_place fresh = {T, NULL, number};
        wrong += bpk_edits_write(kit.edits, &fresh, 0, bytes, SMALL) != 0;
        struct bpk_place place = kit_place(&kit, T, "b");
        wrong += bpk_edits_rename(kit.edits, &place, T, "b.bak", false) != 0;
        wrong += bpk_edits_rename(kit.edits, &fresh, T, "b", false) != 0;
        place = kit_place(&kit, T, "b.bak");
        wrong += bpk_edits_write(kit.edits, &place, 0, "!", 1) != 0;
        *(unsigned *)last = i;
        calls[3]++;
        usleep(10);
    }
    return NULL;
}

/* One byte all through, but for the first pack, which nobody may have written to yet. */
static bool is_whole(const uint8_t *bytes) {
    for (size_t i = 1; i < RECORD; i++)
        if (bytes[i] != bytes[0])
            return bytes[0] == pattern_byte(PLACE_C) && bytes[1] == pattern_byte(PLACE_C + 1);
    return true;
}

START_TEST(commits_while_others_write) {
    pthread_t threads[4];
    unsigned last = 0;
    unsigned backups = 0;
    static uint8_t bytes[RECORD + 1];
    size_t n;
    pthread_create(&threads[0], NULL, write_c, &last);
    pthread_create(&threads[1], NULL, read_c, NULL);
    pthread_create(&threads[2], NULL, rename_a, NULL);
    pthread_create(&threads[3], NULL, back_up_b, &backups);
    for (int i = 0;
         i < ROUNDS || calls[0] < CALLS || calls[1] < CALLS || calls[2] < 100 || calls[3] < 100;
         i++) {
        struct bpk_commit_result result;
        uint32_t index;
        int r = kit_commit(&kit, BPK_COMMIT_ALL, &result);
        ck_assert_msg(r == 0, "commit %d: %d %s", i, r, kit.diag.sentence);
        struct bpk_pack *pack = kit_pack(&kit);
        struct bpk_pack_info info;
        bpk_pack_get_info(pack, &info);
        ck_assert_uint_eq(info.tensors, 4);
        ck_assert_int_eq(bpk_pack_find_tensor(pack, str("c"), &index), 0);
        ck_assert_int_eq(bpk_pack_read(pack, index, 0, bytes, sizeof(bytes), &n), 0);
        ck_assert_uint_eq(n, RECORD);
        ck_assert(is_whole(bytes));
        bpk_pack_unref(pack);
    }
    stop = true;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(wrong, 0);
    kit_reopen(&kit);
    struct bytes backup;
    kit_read(&kit, T, "b.bak", &backup);
    ck_assert_uint_eq(backup.len, SMALL);
    ck_assert_int_eq(backup.data[0], '!');
    for (size_t i = 1; i < SMALL; i++)
        ck_assert_uint_eq(backup.data[i], (backups - 1) % 255 + 1);
    bytes_clear(&backup);
    memset(bytes, (int)last, RECORD);
    struct bytes data;
    kit_read(&kit, T, "c", &data);
    ck_assert_uint_eq(data.len, RECORD);
    ck_assert(last == 0 || memcmp(data.data, bytes, RECORD) == 0);
    bytes_clear(&data);
    kit_commit_all(&kit);
    ck_assert(last == 0 || kit_pack_holds(&kit, "c", bytes, RECORD));
}

int main(void) {
    Suite *suite = suite_create("edits_threads");
    TCase *tc = editbase_case(suite, "all");
    tcase_add_test(tc, commits_while_others_write);
    return suite_run(suite);
}
