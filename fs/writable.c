#include "writable.h"

#include "control.h"
#include "edit/store.h"
#include "inode.h"
#include "log.h"
#include "pack/pack_internal.h"
#include "requests.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- may it be ------------------------------------------------------------------------------- */

static bool is_own_group(gid_t group) {
    gid_t groups[NGROUPS_MAX];
    int count = getgroups(NGROUPS_MAX, groups);
    if (group == getegid())
        return true;
    for (int i = 0; i < count; i++)
        if (groups[i] == group)
            return true;
    return false;
}

/* Why edits cannot be taken, or NULL. */
static const char *why_read_only(const struct bpk_mount *mount, bool ignore_owner) {
    char folder[PATH_MAX];
    const char *slash = strrchr(mount->real_path, '/');
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - mount->real_path) + 1,
                   mount->real_path);
    if (access(folder, W_OK) < 0)
        return "its folder is not writable";
    const struct stat *pack = bpk_pack_stat(mount->pack);
    if (ignore_owner || geteuid() == 0)
        return NULL;
    if (pack->st_uid != geteuid())
        return "it belongs to somebody else, to whom a new one could not be given ('-o "
               "chown=ignore' makes it yours)";
    if (!is_own_group(pack->st_gid))
        return "it belongs to a group that a new one could not be given to ('-o chown=ignore' "
               "leaves that)";
    return NULL;
}

/* ---- who has it ------------------------------------------------------------------------------ */

/* Whether a bpkfs shows the pack; says where. */
static bool tell_holder(const struct bpk_mount *mount) {
    FILE *table = setmntent("/proc/self/mounts", "r");
    const struct stat *pack = bpk_pack_stat(mount->pack);
    const struct mntent *entry;
    struct stat other; /* the pack may be mounted under another name */
    bool found = false;
    while (table && (entry = getmntent(table))) {
        if (strcmp(entry->mnt_type, "fuse.bpkfs") != 0 || !hasmntopt(entry, "rw") ||
            stat(entry->mnt_fsname, &other) < 0 || other.st_dev != pack->st_dev ||
            other.st_ino != pack->st_ino)
            continue;
        bpk_log("%s: it is mounted for writing at %s; '-o ro' mounts it for reading",
                mount->pack_path, entry->mnt_dir);
        found = true;
    }
    if (table)
        endmntent(table);
    return found;
}

/* No mount is to be seen, so it is most likely a former daemon that still commits. */
static int wait_for_holder(const struct bpk_mount *mount) {
    enum { PATIENCE_SECONDS = 60, TRIES_A_SECOND = 10 };
    bpk_log("%s: waiting for a former mount to finish its commit", mount->pack_path);
    for (int i = 0; i < PATIENCE_SECONDS * TRIES_A_SECOND; i++) {
        if (flock(bpk_pack_fd(mount->pack), LOCK_EX | LOCK_NB) == 0)
            return -EAGAIN;
        (void)usleep(1000000 / TRIES_A_SECOND);
    }
    bpk_log(
        "%s: another process still has it locked after %d seconds; '-o ro' mounts it for reading",
        mount->pack_path, PATIENCE_SECONDS);
    return -EBUSY;
}

/* ---- opening --------------------------------------------------------------------------------- */

int bpk_writable_open(struct bpk_mount *mount, const struct bpk_options *options) {
    struct bpk_diag diag = {.offset = BPK_NO_OFFSET};
    bool ignore_owner = options->chown && strcmp(options->chown, "ignore") == 0;
    const char *why = why_read_only(mount, ignore_owner);
    if (options->read_only || options->salvage || why) {
        mount->why_read_only = options->read_only ? NULL : why;
        mount->leaves_edits = bpk_store_is_there(mount->real_path);
        return 0;
    }
    const struct bpk_edits_options edits = {
        .discard = options->edits && strcmp(options->edits, "discard") == 0,
        .ignore_owner = ignore_owner,
        .folder_numbers = {BPK_NODE_ROOT, BPK_NODE_TENSORS, BPK_NODE_METADATA, BPK_NODE_NPY_FOLDER},
        .number_of = bpk_node_number_of,
        .number_context = mount,
    };
    int r = bpk_edits_open(mount->real_path, mount->pack, &edits, &mount->edits, &mount->recovered,
                           &diag);
    if (r == -EBUSY)
        return tell_holder(mount) ? r : wait_for_holder(mount);
    if (r < 0) {
        bpk_log("%s: %s", mount->pack_path, diag.sentence);
        return r;
    }
    (void)bpk_pack_ref_table(mount->pack);
    bpk_pack_unref(mount->pack);
    return 0;
}

void bpk_writable_tell(const struct bpk_mount *mount) {
    const char *pack = mount->pack_path;
    if (mount->why_read_only)
        bpk_log("%s: mounted read-only: %s", pack, mount->why_read_only);
    if (mount->leaves_edits)
        bpk_log("%s: edits of an earlier mount are waiting; a writable mount has them", pack);
    if (!mount->edits)
        return;
    if (bpk_edits_are_damaged(mount->edits))
        bpk_log("%s: the journal of the edits is damaged: those made after the damage are lost",
                pack);
    if (mount->recovered > 0)
        bpk_log("%s: edits of an earlier mount are back; 'bpk status' shows them", pack);
    if (bpk_pack_stat(mount->pack)->st_nlink > 1)
        bpk_log("%s: it has other names (hard links): a commit leaves them with the old pack",
                pack);
}

/* ---- -o commit=SECONDS ----------------------------------------------------------------------- */

static struct {
    struct bpk_mount *mount; /* these two are set before the thread starts */
    unsigned seconds;
    pthread_t thread;
    bool is_running;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t ended;
    bool is_ending;
} timer = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* False if the timer is to end. */
static bool wait_seconds(unsigned seconds) {
    struct timespec until;
    int r = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&timer.lock);
    while (!timer.is_ending && r == 0)
        r = pthread_cond_timedwait(&timer.ended, &timer.lock, &until);
    bool goes_on = !timer.is_ending;
    pthread_mutex_unlock(&timer.lock);
    return goes_on;
}

/* Commits when nothing was changed for that long and nothing is open for writing. */
static void *run_timer(void *unused) {
    (void)unused;
    unsigned wait = timer.seconds;
    while (wait_seconds(wait)) {
        unsigned idle = bpk_edits_idle_seconds(timer.mount->edits);
        wait = idle < timer.seconds ? timer.seconds - idle : timer.seconds;
        if (idle >= timer.seconds)
            bpk_control_commit_idle(timer.mount);
    }
    return NULL;
}

int bpk_writable_start_timer(struct bpk_mount *mount, unsigned seconds) {
    pthread_condattr_t attributes;
    if (seconds == 0 || !mount->edits)
        return 0;
    timer.mount = mount;
    timer.seconds = seconds;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&timer.ended, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    int r = pthread_create(&timer.thread, NULL, run_timer, NULL);
    timer.is_running = r == 0;
    return -r;
}

void bpk_writable_stop_timer(void) {
    if (!timer.is_running)
        return;
    pthread_mutex_lock(&timer.lock);
    timer.is_ending = true;
    pthread_cond_signal(&timer.ended);
    pthread_mutex_unlock(&timer.lock);
    (void)pthread_join(timer.thread, NULL);
    timer.is_running = false;
}
