/* Out of memory at every place of a session of edits: each allocation of ours fails once while a
 * pack is opened for edits, changed in every way, committed, and opened again. What answers is
 * -ENOMEM or success (or what follows from an operation that failed before); never a crash or a
 * leak, and the pack is the old or the new one. Needs -Wl,--wrap for malloc, calloc, realloc,
 * strdup, strndup. */
#include "editkit.h"
#include "failalloc.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
char *__wrap_strdup(const char *text) {
    return fails_now() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size) {
    return fails_now() ? NULL : __real_strndup(text, size);
}

/* ---- the session ----------------------------------------------------------------------------- */

struct session {
    char path[TEMP_PATH + 20];
    struct bpk_edits *edits;
    int first_error; /* of any operation; the rest is then only asked not to crash */
    int broken_line;
};

static void note(struct session *session, int r, int line) {
    if (r == 0)
        return;
    if (session->first_error == 0)
        session->first_error = r;
    /* What has to be true without memory: nothing fails before an allocation did. */
    if (!failed && session->broken_line == 0)
        session->broken_line = line;
}

#define step(session, call) note(session, call, __LINE__)

static uint64_t number_of(enum bpk_folder folder, const char *name, const void *context) {
    (void)context;
    static const char *const names[] = {"a",     "a.json",        "b",           "b.json", "note",
                                        "other", "metadata.json", "scalars.json"};
    (void)folder;
    for (unsigned i = 0; i < 8; i++)
        if (strcmp(name, names[i]) == 0)
            return 100 + i;
    return 0;
}

static struct bpk_place place_of(struct session *session, enum bpk_folder folder,
                                 const char *name) {
    struct bpk_place place = {folder, name, 0};
    if (bpk_edits_lookup(session->edits, folder, name, &place.number) == BPK_FOUND_BASE)
        place.number = number_of(folder, name, NULL);
    return place;
}

static int put(struct session *session, enum bpk_folder folder, const char *name,
               const char *text) {
    struct bpk_place place = place_of(session, folder, name);
    int r = 0;
    if (place.number == 0)
        r = bpk_edits_create(session->edits, folder, name, 0600, &place.number);
    if (r < 0)
        return r;
    bpk_edits_opened(session->edits, &place, true);
    r = bpk_edits_truncate(session->edits, &place, 0);
    if (r == 0)
        r = bpk_edits_write(session->edits, &place, 0, text, strlen(text));
    if (r == 0)
        r = bpk_edits_flush(session->edits, &place);
    if (r == 0)
        r = bpk_edits_fsync(session->edits, &place);
    bpk_edits_released(session->edits, place.number, true);
    return r;
}

static int move(struct session *session, const char *from, const char *to) {
    struct bpk_place place = place_of(session, BPK_IN_TENSORS, from);
    return bpk_edits_rename(session->edits, &place, BPK_IN_TENSORS, to, false);
}

static int drop(struct session *session, enum bpk_folder folder, const char *name) {
    struct bpk_place place = place_of(session, folder, name);
    return bpk_edits_unlink(session->edits, &place);
}

static int look(struct session *session, enum bpk_folder folder, const char *name) {
    struct bpk_place place = place_of(session, folder, name);
    struct bpk_file_stat attr;
    struct bpk_outbuf text = {0};
    char buffer[100];
    size_t n;
    int r = bpk_edits_stat(session->edits, &place, &attr);
    if (r == 0)
        r = bpk_edits_read(session->edits, &place, 0, buffer, sizeof(buffer), &n);
    if (r == -ENODATA) {
        r = bpk_edits_text(session->edits, &place, &text);
        bpk_outbuf_clear(&text);
    }
    return r;
}

static void ignore(void *context, const struct bpk_edit *edit) {
    (void)context;
    (void)edit;
}

static int view(struct session *session) {
    struct bpk_outbuf index = {0};
    uint64_t *stale;
    int r = bpk_edits_index(session->edits, &index);
    bpk_outbuf_clear(&index);
    bpk_edits_list(session->edits, ignore, NULL);
    (void)bpk_edits_take_stale(session->edits, &stale);
    free(stale);
    return r;
}

static int open_edits(struct session *session) {
    const struct bpk_edits_options options = {.folder_numbers = {2, 4, 6}, .number_of = number_of};
    struct bpk_pack *pack;
    struct bpk_diag diag = {0};
    size_t recovered;
    int r = bpk_pack_open(session->path, NULL, &pack, &diag);
    if (r < 0)
        return r;
    r = bpk_edits_open(session->path, pack, &options, &session->edits, &recovered, &diag);
    bpk_pack_unref(pack);
    if (r < 0)
        session->edits = NULL;
    return r;
}

static void change(struct session *s) {
    struct bpk_place a = place_of(s, BPK_IN_TENSORS, "a");
    step(s, bpk_edits_write(s->edits, &a, 5000, "xyz", 3));
    step(s, put(s, BPK_IN_TENSORS, "a.json", "{\"dtype\": \"U8\", \"shape\": [5003]}"));
    step(s, put(s, BPK_IN_TENSORS, "new", "abcdefgh"));
    step(s, put(s, BPK_IN_TENSORS, "new.json", "{\"dtype\": \"U8\", \"shape\": [8]}"));
    step(s, put(s, BPK_IN_METADATA, "note", "value\n"));
    step(s, put(s, BPK_IN_ROOT, "metadata.json", "{\"k\": \"v\", \"note\": \"w\"}"));
    step(s, put(s, BPK_IN_ROOT, "scalars.json", "{\"lr\": {\"Float\": 0.5}}"));
    step(s, move(s, "b", "b.bak"));
    step(s, put(s, BPK_IN_TENSORS, "b", "0123456789"));
    step(s, move(s, "new", "newer"));
    step(s, drop(s, BPK_IN_TENSORS, "b.bak"));
    step(s, put(s, BPK_IN_TENSORS, "pending", "p"));
    step(s, drop(s, BPK_IN_METADATA, "k"));
    step(s, look(s, BPK_IN_TENSORS, "newer.json"));
    step(s, look(s, BPK_IN_TENSORS, "a"));
    step(s, look(s, BPK_IN_ROOT, "metadata.json"));
    step(s, view(s));
}

/* 0 or the first error. */
static int whole_session(struct session *s) {
    struct bpk_commit_result result;
    struct bpk_diag diag = {0};
    step(s, open_edits(s));
    if (!s->edits)
        return s->first_error;
    change(s);
    bpk_edits_close(s->edits);
    s->edits = NULL;
    step(s, open_edits(s));
    if (!s->edits)
        return s->first_error;
    step(s, view(s));
    step(s, bpk_edits_commit(s->edits, BPK_COMMIT_VALID, NULL, &result, &diag));
    step(s, look(s, BPK_IN_TENSORS, "newer"));
    bpk_edits_close(s->edits);
    s->edits = NULL;
    return s->first_error;
}

/* ---- the sweep ------------------------------------------------------------------------------- */

static char folder[TEMP_PATH];

static void make_pack(const char *path) {
    struct packspec spec;
    struct bytes file;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 5000);
    spec_u8(&spec, "b", 10);
    spec_metadata(&spec, "note", "x");
    spec_metadata(&spec, "other", "y");
    spec_scalar(&spec, "epoch", "a1 6455496e74 03");
    spec_file(&spec, &file);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, file.data, file.len), (ssize_t)file.len);
    close(fd);
    bytes_clear(&file);
    spec_clear(&spec);
}

/* The pack is whole, and the edits that are left can be taken up. */
static void check_after(struct session *session, long n) {
    struct bpk_pack *pack;
    struct bpk_diag diag = {0};
    char name[300];
    int r = bpk_pack_open(session->path, NULL, &pack, &diag);
    ck_assert_msg(r == 0, "allocation %ld left a broken pack: %s", n, diag.sentence);
    bpk_pack_unref(pack);
    r = open_edits(session);
    ck_assert_msg(r == 0, "allocation %ld: the edits cannot be taken up: %d", n, r);
    bpk_edits_close(session->edits);
    session->edits = NULL;
    snprintf(name, sizeof(name), "%s/.p.bpk.edits", folder);
    if (access(name, F_OK) == 0)
        kit_remove_folder(name);
}

START_TEST(every_allocation_fails_once) {
    struct session session;
    unsigned refused = 0;
    long n = 0;
    kit_folder(folder);
    for (;; n++) {
        session = (struct session){0};
        snprintf(session.path, sizeof(session.path), "%s/p.bpk", folder);
        make_pack(session.path);
        failed = false;
        countdown = n;
        int r = whole_session(&session);
        bool was_failed = failed;
        countdown = -1;
        failed = false;
        if (session.edits)
            bpk_edits_close(session.edits);
        session.edits = NULL;
        ck_assert_msg(session.broken_line == 0, "allocation %ld: see line %d: %d", n,
                      session.broken_line, session.first_error);
        if (!was_failed) {
            ck_assert_int_eq(r, 0); /* there were no more than n */
            break;
        }
        ck_assert_msg(r == 0 || r == -ENOMEM, "allocation %ld: %d", n, r);
        refused += r != 0;
        check_after(&session, n);
    }
    ck_assert_int_gt(n, 200);
    ck_assert_uint_gt(refused, 100);
    kit_remove_folder(folder);
}

int main(void) {
    Suite *suite = suite_create("edit_faults");
    TCase *tc = suite_case(suite, "all");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_allocation_fails_once);
    return suite_run(suite);
}
