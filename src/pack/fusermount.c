#include "pack/fusermount.h"

#include <errno.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/wait.h>

extern char **environ;

static int run_helper(const char *path, bool lazy) {
    const char *const at_once[] = {"fusermount3", "-u", "-q", "--", path, NULL};
    const char *const lazily[] = {"fusermount3", "-u", "-q", "-z", "--", path, NULL};
    char *const *argv = (char *const *)(lazy ? lazily : at_once);
    pid_t pid;
    int status;
    int r = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
    if (r != 0)
        return -r;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int bpk_unmount(const char *path, bool lazy) {
    if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    return errno == EPERM ? run_helper(path, lazy) : -errno;
}
