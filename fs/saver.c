#include "saver.h"

#include "control.h"
#include "pack/atomic_file.h"
#include "pack/diag.h"
#include "pack/text.h"
#include "pack/util.h"
#include "requests.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct job {
    fuse_req_t req;
    size_t size;
    enum bpk_commit_mode mode;
    char *path; /* NULL: there is none to do */
};

static struct {
    struct bpk_mount *mount; /* these two are set before the thread starts */
    const char *mountpoint;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    bool is_running;
    bool is_ending;
    struct job job;
} saver = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* What is written into the mount would be an edit of the pack that is being written. */
static int check_outside_mount(int folder, struct bpk_diag *diag) {
    struct stat mount;
    struct stat attr;
    if (fstat(folder, &attr) < 0 || stat(saver.mountpoint, &mount) < 0)
        return bpk_diag_set(diag, -errno, BPK_NO_OFFSET, "cannot look at the folder: %s",
                            strerror(errno));
    if (attr.st_dev == mount.st_dev)
        return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET, "it would be in the mount");
    return 0;
}

/* What is wrong with the new file, and not with an edit, is said with its name. */
static int save_fault(const struct job *job, int r, struct bpk_diag *diag) {
    enum { SHOWN = 100 };
    size_t len = strlen(job->path);
    const struct bpk_diag fault = *diag;
    char end[SHOWN + 1];
    char shown[3 * SHOWN + 1];
    if (r == 0 || r == -EBADMSG || r == -EBUSY)
        return r;
    (void)snprintf(end, sizeof(end), "%s", len > SHOWN ? job->path + len - SHOWN : job->path);
    bpk_text_make_utf8(end);
    bpk_text_escape(end, strlen(end), shown, sizeof(shown));
    return bpk_diag_set(diag, r, BPK_NO_OFFSET, "%s%s: %s", len > SHOWN ? "..." : "", shown,
                        fault.sentence);
}

static int save(const struct job *job, const struct bpk_remarks *remarks, struct bpk_diag *diag) {
    _cleanup_close_ int folder = -1;
    _cleanup_free_ char *name = NULL;
    int r = bpk_open_folder(job->path, &folder, &name);
    if (r < 0)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "cannot open its folder: %s", strerror(-r));
    r = check_outside_mount(folder, diag);
    return r < 0 ? r : bpk_edits_save(saver.mount->edits, job->mode, folder, name, remarks, diag);
}

static void do_job(const struct job *job) {
    struct bpk_diag diag = {.sentence = ""};
    fuse_req_t req = job->req;
    size_t size = job->size;
    struct bpk_outbuf text = {0};
    const struct bpk_remarks remarks = {bpk_remarks_collect, &text};
    int r = save_fault(job, save(job, &remarks, &diag), &diag);
    bpk_control_note(saver.mount, r, diag.sentence, &text);
    pthread_mutex_lock(&saver.lock); /* who has the answer may ask for the next */
    free(bpk_steal_ptr(saver.job.path));
    pthread_mutex_unlock(&saver.lock);
    if (r < 0)
        bpk_reply_error(req, r);
    else
        (void)fuse_reply_write(req, size);
}

static void *run(void *unused) {
    (void)unused;
    pthread_mutex_lock(&saver.lock);
    while (saver.job.path || !saver.is_ending) {
        if (!saver.job.path) {
            pthread_cond_wait(&saver.changed, &saver.lock);
            continue;
        }
        pthread_mutex_unlock(&saver.lock);
        do_job(&saver.job); /* nobody changes it while it has a path */
        pthread_mutex_lock(&saver.lock);
    }
    pthread_mutex_unlock(&saver.lock);
    return NULL;
}

int bpk_saver_start(struct bpk_mount *mount, const char *mountpoint) {
    if (!mount->edits)
        return 0;
    saver.mount = mount;
    saver.mountpoint = mountpoint;
    int r = pthread_create(&saver.thread, NULL, run, NULL);
    saver.is_running = r == 0;
    return -r;
}

int bpk_saver_save(fuse_req_t req, size_t size, const char *path, enum bpk_commit_mode mode) {
    int r = -EBUSY;
    pthread_mutex_lock(&saver.lock);
    if (!saver.job.path && !saver.is_ending) {
        saver.job = (struct job){req, size, mode, strdup(path)};
        r = saver.job.path ? 0 : -ENOMEM;
        pthread_cond_signal(&saver.changed);
    }
    pthread_mutex_unlock(&saver.lock);
    return r;
}

void bpk_saver_stop(void) {
    if (!saver.is_running)
        return;
    pthread_mutex_lock(&saver.lock);
    saver.is_ending = true;
    pthread_cond_signal(&saver.changed);
    pthread_mutex_unlock(&saver.lock);
    (void)pthread_join(saver.thread, NULL);
}
