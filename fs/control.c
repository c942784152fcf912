#include "control.h"

#include "forgetting.h"
#include "log.h"
#include "pack/text.h"
#include "pack/util.h"
#include "saver.h"
#include "view_exports.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_EDITS_LEFT = 3 };

/* Keeps why the last command failed, or what it had to remark: takes `remarks`. Whether that is
 * another reason than the one before. */
static bool note_outcome(struct bpk_mount *mount, int r, const char *sentence,
                         struct bpk_outbuf *remarks, bool is_commit) {
    sentence = r < 0 ? sentence : "";
    pthread_mutex_lock(&mount->status_lock);
    bool is_new = strncmp(mount->last_error, sentence, sizeof(mount->last_error) - 1) != 0;
    (void)snprintf(mount->last_error, sizeof(mount->last_error), "%s", sentence);
    mount->commit_failed = is_commit && r < 0 && r != -EBADMSG; /* those are listed by name */
    bpk_outbuf_clear(&mount->remarks);
    mount->remarks = *remarks;
    *remarks = (struct bpk_outbuf){0};
    pthread_mutex_unlock(&mount->status_lock);
    return is_new;
}

void bpk_control_note(struct bpk_mount *mount, int r, const char *sentence,
                      struct bpk_outbuf *remarks) {
    (void)note_outcome(mount, r, sentence, remarks, false);
}

void bpk_control_outcome(struct bpk_mount *mount, struct bpk_outbuf *out) {
    char shown[600]; /* a name in it may have a line break */
    pthread_mutex_lock(&mount->status_lock);
    if (mount->last_error[0]) {
        bpk_out_str(out, bpk_text_escape(mount->last_error, strlen(mount->last_error), shown,
                                         sizeof(shown)));
        bpk_out_str(out, "\n");
    }
    bpk_out(out, mount->remarks.text, mount->remarks.len);
    pthread_mutex_unlock(&mount->status_lock);
}

void bpk_control_each_put_back(unsigned maps, bpk_put_back_fn *take, void *context) {
    static const char sentence[] = "was removed, which only 'bpk commit' takes: it was put back";
    if (maps & BPK_MAP_METADATA)
        take(context, "metadata.json", sentence);
    if (maps & BPK_MAP_SCALARS)
        take(context, "scalars.json", sentence);
}

static void log_put_back(void *context, const char *file, const char *sentence) {
    (void)context;
    bpk_log("%s: %s", file, sentence);
}

/* What the user removed is there again: said, and in the status until a commit by name. */
static void note_put_back(struct bpk_mount *mount, enum bpk_commit_mode mode,
                          const struct bpk_commit_result *result) {
    bool by_name = mode == BPK_COMMIT_ALL || mode == BPK_COMMIT_VALID;
    pthread_mutex_lock(&mount->status_lock);
    mount->maps_put_back = (by_name ? 0 : mount->maps_put_back) | result->maps_put_back;
    pthread_mutex_unlock(&mount->status_lock);
    bpk_control_each_put_back(result->maps_put_back, log_put_back, NULL);
}

static void log_remark(void *context, const char *sentence) {
    const struct bpk_mount *mount = context;
    bpk_log("%s: %s", mount->pack_path, sentence);
}

/* With nobody to wait for it, remarks and each new reason of a failure are said. */
static int commit(struct bpk_mount *mount, enum bpk_commit_mode mode, bool nobody_waits) {
    struct bpk_commit_result result;
    struct bpk_diag diag = {.sentence = ""};
    struct bpk_outbuf text = {0};
    const struct bpk_remarks logged = {log_remark, mount};
    const struct bpk_remarks kept = {bpk_remarks_collect, &text};
    int r = bpk_edits_commit(mount->edits, mode, nobody_waits ? &logged : &kept, &result, &diag);
    bool is_new = note_outcome(mount, r, diag.sentence, &text, true);
    if (r == 0)
        note_put_back(mount, mode, &result);
    bpk_view_exports_forget(mount);
    if (r < 0 && is_new && nobody_waits)
        bpk_log("the edits could not be committed: %s", diag.sentence);
    return r;
}

static void refuse(fuse_req_t req, int r, const char *sentence) {
    struct bpk_outbuf none = {0};
    bpk_control_note(bpk_mount_of(req), r, sentence, &none);
    bpk_reply_error(req, r);
}

/* Answers the request itself, now or later. */
static void save(fuse_req_t req, size_t size, const char *arguments) {
    static const char option[] = "--valid ";
    bool valid = strncmp(arguments, option, strlen(option)) == 0;
    const char *path = arguments + (valid ? strlen(option) : 0);
    if (path[0] != '/') {
        refuse(req, -EINVAL, "the new file's path must begin with '/'");
        return;
    }
    int r = bpk_saver_save(req, size, path, valid ? BPK_COMMIT_VALID : BPK_COMMIT_ALL);
    if (r < 0)
        refuse(req, r, r == -EBUSY ? "another file is being saved" : strerror(-r));
}

static const struct {
    const char *text;
    enum bpk_commit_mode mode;
} commits[] = {
    {"commit", BPK_COMMIT_ALL},
    {"commit --valid", BPK_COMMIT_VALID},
    {"commit --unmount", BPK_COMMIT_ALL_AT_UNMOUNT},
    {"commit --unmount --valid", BPK_COMMIT_VALID_AT_UNMOUNT},
};

/* Answers the request itself. */
static void discard(fuse_req_t req, size_t size) {
    struct bpk_mount *mount = bpk_mount_of(req);
    struct bpk_outbuf none = {0};
    bpk_control_note(mount, 0, "", &none);
    note_put_back(mount, BPK_COMMIT_ALL, &(struct bpk_commit_result){0});
    struct bpk_forgetting *forgetting = bpk_forgetting_new(mount);
    int r = forgetting ? bpk_edits_discard(mount->edits, bpk_forgetting_add, forgetting) : -ENOMEM;
    bpk_view_exports_forget(mount);
    bpk_forgetting_finish_write(forgetting, req, size, r);
}

static void run_command(fuse_req_t req, size_t size, const char *command) {
    struct bpk_mount *mount = bpk_mount_of(req);
    size_t i = 0;
    while (i < BPK_ARRAY_LEN(commits) && strcmp(command, commits[i].text) != 0)
        i++;
    if (i == BPK_ARRAY_LEN(commits)) {
        refuse(req, -EINVAL, "there is no such command");
        return;
    }
    int r = commit(mount, commits[i].mode, false);
    bpk_tell_changed(mount);
    if (r < 0)
        bpk_reply_error(req, r);
    else
        (void)fuse_reply_write(req, size);
    bpk_pack_unref(bpk_edits_take_replaced(mount->edits)); /* nobody waits for that */
}

void bpk_control_write(fuse_req_t req, const char *text, size_t size) {
    static const char save_word[] = "save ";
    char command[PATH_MAX + 16];
    size_t len = size - (size > 0 && text[size - 1] == '\n');
    bool is_save = len >= strlen(save_word) && memcmp(text, save_word, strlen(save_word)) == 0;
    while (!is_save && len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    if (len >= sizeof(command) || memchr(text, '\0', len)) {
        refuse(req, -EINVAL, "that is no command: it is too long, or has a NUL in it");
        return;
    }
    memcpy(command, text, len);
    command[len] = '\0';
    if (is_save)
        save(req, size, command + strlen(save_word));
    else if (strcmp(command, "discard") == 0)
        discard(req, size);
    else
        run_command(req, size, command);
}

void bpk_control_commit_idle(struct bpk_mount *mount) {
    if (bpk_edits_each_writer(mount->edits, NULL, NULL) > 0)
        return;
    (void)commit(mount, BPK_COMMIT_VALID_AT_UNMOUNT, true);
    bpk_tell_changed(mount);
    bpk_pack_unref(bpk_edits_take_replaced(mount->edits));
}

/* What is left when the mount is gone, one line each. */
struct remains {
    size_t edits;
    size_t kept;
};

static void count_remains(void *context, const struct bpk_edit *edit) {
    struct remains *remains = context;
    if (edit->kind == BPK_EDIT) {
        remains->edits++;
        bpk_log("not committed: %s%s%s", edit->path, edit->problem ? ": " : "",
                edit->problem ? edit->problem : "");
    } else if (edit->kind != BPK_EDIT_SCRATCH) {
        remains->kept++;
        bpk_log("kept beside the pack: %s", edit->path);
    }
}

static int finish(struct bpk_mount *mount) {
    struct bpk_commit_result result;
    struct bpk_diag diag = {.sentence = ""};
    struct remains remains = {0};
    const struct bpk_remarks remarks = {log_remark, mount};
    int r = bpk_edits_commit(mount->edits, BPK_COMMIT_LAST, &remarks, &result, &diag);
    if (r < 0)
        bpk_log("the edits are not in the pack: %s; they are kept beside it, and the next mount "
                "has them again",
                diag.sentence);
    else
        note_put_back(mount, BPK_COMMIT_LAST, &result);
    (void)bpk_edits_drop_scratch(mount->edits);
    bpk_edits_list(mount->edits, count_remains, &remains);
    if (r == 0 && remains.edits == 0 && remains.kept == 0) {
        (void)bpk_edits_discard(mount->edits, NULL, NULL); /* scratch alone dies with the mount */
        return 0;
    }
    if (r < 0 && r != -EPERM)
        return EXIT_FAILED;
    return EXIT_EDITS_LEFT;
}

/* The main thread comes here when the mount is gone, the thread of signals when it has waited long
 * enough: the second one waits for the first, and gets its status. */
int bpk_control_finish(struct bpk_mount *mount) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static bool done;
    static int status;
    if (!mount->edits)
        return 0;
    pthread_mutex_lock(&once);
    if (!done)
        status = finish(mount);
    done = true;
    int r = status;
    pthread_mutex_unlock(&once);
    return r;
}
