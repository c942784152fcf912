#include "control.h"

#include "log.h"
#include "requests.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_EDITS_LEFT = 3 };

/* Keeps why the last command failed. */
static void note_error(struct bpk_mount *mount, int r, const struct bpk_diag *diag) {
    pthread_mutex_lock(&mount->status_lock);
    (void)snprintf(mount->last_error, sizeof(mount->last_error), "%s", r < 0 ? diag->sentence : "");
    pthread_mutex_unlock(&mount->status_lock);
}

void bpk_control_outcome(struct bpk_mount *mount, struct bpk_outbuf *out) {
    pthread_mutex_lock(&mount->status_lock);
    if (mount->last_error[0]) {
        bpk_out_str(out, mount->last_error);
        bpk_out_str(out, "\n");
    }
    pthread_mutex_unlock(&mount->status_lock);
}

static int commit(struct bpk_mount *mount, enum bpk_commit_mode mode) {
    struct bpk_commit_result result;
    struct bpk_diag diag = {.sentence = ""};
    int r = bpk_edits_commit(mount->edits, mode, &result, &diag);
    note_error(mount, r, &diag);
    return r;
}

static int discard(struct bpk_mount *mount) {
    struct bpk_diag diag = {.sentence = ""};
    note_error(mount, 0, &diag);
    int r = bpk_edits_discard(mount->edits);
    bpk_tell_discarded(mount);
    return r;
}

static int save(struct bpk_mount *mount, const char *path) {
    struct bpk_diag diag = {.sentence = ""};
    int r = path[0] == '/' ? bpk_edits_save(mount->edits, path, &diag) : -EINVAL;
    note_error(mount, r, &diag);
    return r;
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

int bpk_control_run(struct bpk_mount *mount, const char *text, size_t size) {
    char command[PATH_MAX + 16];
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' '))
        size--;
    if (size >= sizeof(command))
        return -EINVAL;
    memcpy(command, text, size);
    command[size] = '\0';
    for (size_t i = 0; i < sizeof(commits) / sizeof(commits[0]); i++)
        if (strcmp(command, commits[i].text) == 0)
            return commit(mount, commits[i].mode);
    if (strcmp(command, "discard") == 0)
        return discard(mount);
    if (strncmp(command, "save ", 5) == 0)
        return save(mount, command + 5);
    return -EINVAL;
}

static void count_writer(void *context, const char *path) {
    (void)context;
    (void)path;
}

void bpk_control_commit_idle(struct bpk_mount *mount) {
    if (bpk_edits_each_writer(mount->edits, count_writer, NULL) > 0)
        return;
    (void)commit(mount, BPK_COMMIT_VALID_AT_UNMOUNT);
    bpk_tell_changed(mount);
}

/* What is left when the mount is gone, one line each. */
struct remains {
    size_t edits;
    size_t kept;
};

static void count_remains(void *context, enum bpk_edit_kind kind, const char *path,
                          const char *problem) {
    struct remains *remains = context;
    if (kind == BPK_EDIT) {
        remains->edits++;
        bpk_log("not committed: %s%s%s", path, problem ? ": " : "", problem ? problem : "");
    } else if (kind != BPK_EDIT_SCRATCH) {
        remains->kept++;
        bpk_log("kept beside the pack: %s", path);
    }
}

static int finish(struct bpk_mount *mount) {
    struct bpk_commit_result result;
    struct bpk_diag diag = {.sentence = ""};
    struct remains remains = {0};
    int r = bpk_edits_commit(mount->edits, BPK_COMMIT_VALID_AT_UNMOUNT, &result, &diag);
    if (r < 0)
        bpk_log("the edits are not in the pack: %s; they are kept beside it, and the next mount "
                "has them again",
                diag.sentence);
    (void)bpk_edits_drop_scratch(mount->edits);
    bpk_edits_list(mount->edits, count_remains, &remains);
    if (r == 0 && remains.edits == 0 && remains.kept == 0) {
        (void)bpk_edits_discard(mount->edits); /* scratch alone dies with the mount */
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
