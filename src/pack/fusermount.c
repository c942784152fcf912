#include "pack/fusermount.h"

#include "pack/diag.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>

extern char **environ;

enum { LINE = 200 };

/* The start of what comes through the pipe until its end. */
static void read_line(int fd, char line[LINE]) {
    char rest[LINE];
    size_t used = 0;
    ssize_t n;
    do {
        bool has_room = used < LINE - 1;
        n = has_room ? read(fd, line + used, LINE - 1 - used) : read(fd, rest, sizeof(rest));
        if (n > 0 && has_room)
            used += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    line[used] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

static int start_helper(const char *path, bool lazy, int error_fd, pid_t *ret_pid) {
    const char *const at_once[] = {"fusermount3", "-u", "--", path, NULL};
    const char *const lazily[] = {"fusermount3", "-u", "-z", "--", path, NULL};
    char *const *argv = (char *const *)(lazy ? lazily : at_once);
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    r = posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
    if (r == 0)
        r = posix_spawnp(ret_pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* The helper knows no locale, and its status is 1 whatever was wrong. */
static int judge(const char *line, struct bpk_diag *ret_diag) {
    static const char busy[] = ": Device or resource busy";
    size_t len = strlen(line);
    char shown[2 * LINE];
    if (len >= strlen(busy) && strcmp(line + len - strlen(busy), busy) == 0)
        return bpk_diag_set(ret_diag, -EBUSY, BPK_NO_OFFSET, "%s", strerror(EBUSY));
    return bpk_diag_set(ret_diag, -EPERM, BPK_NO_OFFSET, "%s",
                        len > 0 ? bpk_text_escape(line, len, shown, sizeof(shown))
                                : "fusermount3 failed and did not say why");
}

static int run_helper(const char *path, bool lazy, struct bpk_diag *ret_diag) {
    char line[LINE];
    int ends[2];
    pid_t pid;
    int status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return bpk_diag_set(ret_diag, -errno, BPK_NO_OFFSET, "%s", strerror(errno));
    int r = start_helper(path, lazy, ends[1], &pid);
    close(ends[1]);
    read_line(ends[0], line);
    close(ends[0]);
    if (r < 0)
        return bpk_diag_set(ret_diag, r, BPK_NO_OFFSET, "cannot run fusermount3: %s", strerror(-r));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return bpk_diag_set(ret_diag, -errno, BPK_NO_OFFSET, "%s", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : judge(line, ret_diag);
}

int bpk_unmount(const char *path, bool lazy, struct bpk_diag *ret_diag) {
    if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    if (errno == EPERM)
        return run_helper(path, lazy, ret_diag);
    return bpk_diag_set(ret_diag, -errno, BPK_NO_OFFSET, "%s", strerror(errno));
}
