#include "cli/busy.h"

#include "cli/cli.h"
#include "edit/store.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

void bpk_cli_tell_busy(const char *path) {
    bpk_cli_error(path, "it is mounted for writing or being written; change it in the mount, or "
                        "'bpk umount' that first");
}

bool bpk_cli_has_edits(const char *path) {
    char real[PATH_MAX];
    return realpath(path, real) && bpk_store_is_there(real);
}

void bpk_cli_tell_edits(const char *path) {
    bpk_cli_error(
        path, "edits are waiting beside it, of a mount or of a verb that was stopped; 'bpk recover "
              "--commit' writes them into it, 'bpk recover --discard' drops them, and a mount "
              "has them again");
}

bool bpk_cli_claim(const char *path, int *ret_fd) {
    struct stat file;
    struct stat now;
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return true;
    if (fd < 0 || fstat(fd, &file) < 0) {
        bpk_cli_error(path, "cannot open: %s", strerror(errno));
        return false;
    }
    if (!S_ISREG(file.st_mode)) {
        bpk_cli_error(path, "it is no regular file");
        return false;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || stat(path, &now) < 0 || now.st_ino != file.st_ino ||
        now.st_dev != file.st_dev) {
        bpk_cli_tell_busy(path);
        return false;
    }
    if (bpk_cli_has_edits(path)) {
        bpk_cli_tell_edits(path);
        return false;
    }
    *ret_fd = bpk_steal_fd(&fd);
    return true;
}

void bpk_cli_tell_unmade(const char *path, int r, const char *sentence) {
    struct stat there;
    bool is_replaced = r == -EEXIST && stat(path, &there) == 0 && S_ISREG(there.st_mode);
    bpk_cli_error(path, is_replaced ? "%s; '--force' replaces it" : "%s", sentence);
}
