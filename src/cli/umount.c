/* bpk umount: commits, unmounts, waits for the daemon's end, and says what came of it. */
#include "cli/cli.h"
#include "cli/live.h"

#include "edit/store.h"
#include "pack/fusermount.h"
#include "pack/text.h"
#include "pack/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_pidfd(pid_t pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd >= 0 ? fd : -errno;
}

/* ---- who is in the way ----------------------------------------------------------------------- */

static bool leads_into(int proc, const char *name, dev_t device) {
    struct stat attr;
    return fstatat(proc, name, &attr, 0) == 0 && attr.st_dev == device;
}

static bool has_file_open(int proc, dev_t device) {
    int listed = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = listed >= 0 ? fdopendir(listed) : NULL;
    const struct dirent *entry;
    bool found = false;
    while (folder && !found && (entry = readdir(folder)))
        found = entry->d_name[0] != '.' && leads_into(dirfd(folder), entry->d_name, device);
    if (folder)
        closedir(folder);
    return found;
}

static void print_users(const char *mountpoint) {
    struct stat attr;
    DIR *proc = stat(mountpoint, &attr) == 0 ? opendir("/proc") : NULL;
    const struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end != '\0' || pid == getpid())
            continue;
        _cleanup_close_ int fd =
            openat(dirfd(proc), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char name[64] = "";
        if (fd < 0 || (!leads_into(fd, "cwd", attr.st_dev) && !has_file_open(fd, attr.st_dev)))
            continue;
        _cleanup_close_ int comm = openat(fd, "comm", O_RDONLY | O_CLOEXEC);
        ssize_t n = comm >= 0 ? read(comm, name, sizeof(name) - 1) : 0;
        for (ssize_t i = 0; i < n; i++)
            if ((unsigned char)name[i] < 0x20 || (unsigned char)name[i] >= 0x7f)
                name[i] = '\0';
        bpk_cli_error(mountpoint, "in use by process %ld (%s)", pid, name);
    }
    if (proc)
        closedir(proc);
}

/* ---- unmounting ------------------------------------------------------------------------------ */

static void wait_for_end(int pidfd) {
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR)
        ;
}

/* Another bpk, or a desktop that looks at each new mount, has it open for a moment only. */
static int unmount_soon(const char *mountpoint, struct bpk_diag *ret_diag) {
    enum { TRIES = 10, PAUSE_US = 100000 };
    int r = bpk_unmount(mountpoint, false, ret_diag);
    for (int i = 0; i < TRIES && r == -EBUSY; i++) {
        (void)usleep(PAUSE_US);
        r = bpk_unmount(mountpoint, false, ret_diag);
    }
    return r;
}

static int unmount(const char *mountpoint, const struct bpk_status *status) {
    _cleanup_close_ int pidfd = open_pidfd(status->pid);
    struct bpk_diag diag;
    int r = unmount_soon(mountpoint, &diag);
    if (r < 0) {
        bpk_cli_error(mountpoint, "cannot unmount: %s", diag.sentence);
        if (r == -EBUSY)
            print_users(mountpoint);
        return BPK_EXIT_FAILED;
    }
    if (pidfd >= 0)
        wait_for_end(pidfd);
    if (!status->read_only && bpk_store_is_there(status->pack)) {
        bpk_cli_error(mountpoint, "edits that are not in the pack are kept beside it; the next "
                                  "mount has them again, 'bpk recover' shows them");
        return BPK_EXIT_EDITS_LEFT;
    }
    return BPK_EXIT_OK;
}

/* What was removed from the mount and is in the pack all the same. */
static void print_put_back(const char *mountpoint) {
    struct bpk_status status;
    char shown[600];
    if (bpk_live_status(mountpoint, &status, NULL) < 0)
        return;
    for (size_t i = 0; i < status.problem_count; i++) {
        const struct bpk_status_problem *problem = &status.problems[i];
        if (strcmp(problem->file, "metadata.json") == 0 ||
            strcmp(problem->file, "scalars.json") == 0)
            bpk_cli_error(
                mountpoint, "%s: %s", problem->file,
                bpk_text_escape(problem->reason, strlen(problem->reason), shown, sizeof(shown)));
    }
    bpk_status_clear(&status);
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"valid", no_argument, NULL, 'v'}, {0}};
    bool valid = false;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c != 'v')
            return bpk_cli_usage(&bpk_verb_umount);
        valid = true;
    }
    if (optind + 1 != argc)
        return bpk_cli_usage(&bpk_verb_umount);
    const char *mountpoint = argv[optind];
    struct bpk_status status;
    if (bpk_live_status(mountpoint, &status, NULL) < 0)
        return BPK_EXIT_FAILED;
    int exit_status = BPK_EXIT_FAILED;
    const char *command = valid ? "commit --unmount --valid" : "commit --unmount";
    bool committed = !status.read_only && bpk_live_command(mountpoint, command) == 0;
    if (committed) {
        print_put_back(mountpoint);
        bpk_live_print_waiting(mountpoint);
    }
    if (committed || status.read_only)
        exit_status = unmount(mountpoint, &status);
    else
        bpk_cli_error(mountpoint, "still mounted; 'bpk status' shows what is in the way");
    bpk_status_clear(&status);
    return exit_status;
}

const struct bpk_verb bpk_verb_umount = {
    .name = "umount",
    .arguments = "[--valid] MNT",
    .summary = "commit, unmount, and wait until all is done",
    .options = "    --valid    leave out what is not valid; it is kept beside the pack\n",
    .run = run,
};
