#include "pack/atomic_file.h"

#include "pack/diag.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/xattr.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

bool bpk_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int fail(struct bpk_diag *diag, int r, const char *what) {
    return bpk_diag_set(diag, r, BPK_NO_OFFSET, "%s: %s", what, strerror(-r));
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Where a path leads, whether the file itself is there or not. */
static char *resolve(const char *path) {
    char *whole = realpath(path, NULL);
    if (whole || errno != ENOENT)
        return whole;
    const char *slash = strrchr(path, '/');
    _cleanup_free_ char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    _cleanup_free_ char *real = folder ? realpath(folder, NULL) : NULL;
    if (real && asprintf(&whole, "%s/%s", real, slash ? slash + 1 : path) < 0)
        whole = NULL;
    return whole;
}

int bpk_open_folder(const char *path, int *ret_folder, char **ret_name) {
    _cleanup_free_ char *whole = resolve(path);
    if (!whole)
        return -errno;
    char *slash = strrchr(whole, '/');
    char *name = strdup(slash + 1);
    if (!name)
        return -ENOMEM;
    slash[slash == whole ? 1 : 0] = '\0';
    int folder = open(whole, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        int r = -errno;
        free(name);
        return r;
    }
    *ret_folder = folder;
    *ret_name = name;
    return 0;
}

/* ".NAME.XXXXXXXXXXXXXXXX.tmp", NAME cut where it would be too long. */
static void make_temp_name(const char *name, char out[256]) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) < 0)
        random = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)out;
    (void)snprintf(out, 256, ".%.*s.%016llx.tmp", NAME_MAX - 22, name, (unsigned long long)random);
}

bool bpk_atomic_is_temp(const char *name, const char *temp) {
    char like[256];
    make_temp_name(name, like);
    size_t len = strlen(like);
    size_t digits = len - sizeof("0123456789abcdef.tmp") + 1;
    return strlen(temp) == len && memcmp(temp, like, digits) == 0 &&
           strspn(temp + digits, "0123456789abcdef") == 16 && strcmp(temp + len - 4, ".tmp") == 0;
}

static int create_temp(struct bpk_atomic_file *file) {
    for (int tries = 0; tries < 100; tries++) {
        make_temp_name(file->name, file->temp);
        file->fd = openat(file->folder, file->temp,
                          O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file->fd >= 0)
            return flock(file->fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
        if (errno != EEXIST)
            break;
    }
    file->temp[0] = '\0';
    return -errno;
}

/* There must be nothing of that name: better known now than when all is written. */
static int check_free(int folder, const char *name, struct bpk_diag *diag) {
    struct stat attr;
    if (fstatat(folder, name, &attr, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
        return errno == ENOENT ? 0 : fail(diag, -errno, "cannot look at the new file");
    /* A link that leads to something was followed before. */
    return bpk_diag_set(diag, -EEXIST, BPK_NO_OFFSET, "there is a %s already",
                        S_ISDIR(attr.st_mode)   ? "folder of that name"
                        : S_ISLNK(attr.st_mode) ? "link of that name, which leads nowhere,"
                                                : "file of that name");
}

int bpk_atomic_begin_at(int folder, const char *name, const struct stat *old,
                        struct bpk_atomic_file *ret_file, struct bpk_diag *diag) {
    struct bpk_atomic_file file = {.folder = -1, .fd = -1, .has_old = old != NULL};
    int r = old ? 0 : check_free(folder, name, diag);
    if (r < 0)
        return r;
    if (old)
        file.old = *old;
    file.folder = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    file.name = strdup(name);
    r = file.folder < 0 ? -errno : file.name ? create_temp(&file) : -ENOMEM;
    if (r < 0) {
        bpk_atomic_end(&file);
        return fail(diag, r, "cannot make a temporary file beside it");
    }
    *ret_file = file;
    return 0;
}

int bpk_atomic_begin(const char *path, const struct stat *old, struct bpk_atomic_file *ret_file,
                     struct bpk_diag *diag) {
    _cleanup_close_ int folder = -1;
    _cleanup_free_ char *name = NULL;
    int r = bpk_open_folder(path, &folder, &name);
    if (r < 0)
        return fail(diag, r, r == -ENAMETOOLONG ? "cannot make it" : "cannot open the folder");
    return bpk_atomic_begin_at(folder, name, old, ret_file, diag);
}

/* ---- seal ------------------------------------------------------------------------------------ */

/* Attributes that a copy of the file is to have: the users' own and the ACL. */
static bool is_carried(const char *name) {
    return strncmp(name, "user.", 5) == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
           strcmp(name, "security.selinux") == 0;
}

static int copy_attribute(int from, int to, const char *name) {
    ssize_t size = fgetxattr(from, name, NULL, 0);
    if (size < 0)
        return errno == ENODATA || errno == ENOTSUP ? 0 : -errno;
    _cleanup_free_ char *value = malloc((size_t)size + 1);
    if (!value)
        return -ENOMEM;
    size = fgetxattr(from, name, value, (size_t)size);
    if (size < 0)
        return -errno;
    if (fsetxattr(to, name, value, (size_t)size, 0) == 0)
        return 0;
    return strncmp(name, "user.", 5) == 0 ? -errno : 0;
}

static int copy_attributes(int from, int to) {
    ssize_t size = flistxattr(from, NULL, 0);
    if (size <= 0)
        return size < 0 && errno != ENOTSUP ? -errno : 0;
    _cleanup_free_ char *names = malloc((size_t)size + 1);
    if (!names)
        return -ENOMEM;
    size = flistxattr(from, names, (size_t)size);
    if (size < 0)
        return -errno;
    names[size] = '\0';
    for (char *name = names; name < names + size; name += strlen(name) + 1) {
        int r = is_carried(name) ? copy_attribute(from, to, name) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int copy_owner(int fd, const struct stat *from, bool ignore_owner) {
    struct stat now;
    if (fstat(fd, &now) < 0)
        return -errno;
    if (now.st_uid == from->st_uid && now.st_gid == from->st_gid)
        return 0;
    if (fchown(fd, from->st_uid, from->st_gid) == 0)
        return 0;
    return ignore_owner ? 0 : -errno;
}

/* The owner comes before the mode, which a change of owner may cut; the ACL before the mode too,
 * whose group bits are its mask. */
static int copy_identity(int fd, int from, bool ignore_owner) {
    struct stat attr;
    if (from < 0) {
        mode_t mask = umask(0);
        (void)umask(mask);
        return fchmod(fd, 0666 & ~mask) < 0 ? -errno : 0;
    }
    if (fstat(from, &attr) < 0)
        return -errno;
    int r = copy_owner(fd, &attr, ignore_owner);
    if (r == 0)
        r = copy_attributes(from, fd);
    if (r == 0 && fchmod(fd, attr.st_mode & 07777) < 0)
        r = -errno;
    return r;
}

int bpk_atomic_seal(struct bpk_atomic_file *file, int from, bool ignore_owner,
                    struct bpk_diag *diag) {
    int r = copy_identity(file->fd, from, ignore_owner);
    if (r < 0)
        return fail(diag, r, "cannot give the new file the old one's owner, mode and attributes");
    if (fsync(file->fd) < 0)
        return fail(diag, -errno, "cannot write to the disk");
    return 0;
}

/* ---- publish --------------------------------------------------------------------------------- */

static int stale(struct bpk_diag *diag) {
    return bpk_diag_set(diag, -ESTALE, BPK_NO_OFFSET,
                        "the file was changed or replaced by somebody else; nothing was written "
                        "over it");
}

static bool is_old(const struct bpk_atomic_file *file, const char *name) {
    struct stat now;
    return fstatat(file->folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           bpk_same_file(&now, &file->old);
}

static int exchange_back(struct bpk_atomic_file *file) {
    if (renameat2(file->folder, file->temp, file->folder, file->name, RENAME_EXCHANGE) < 0)
        return -errno;
    file->published = false;
    return 0;
}

/* The two files change places; what came out is looked at once more, so that a file that somebody
 * put there in the last moment is put back. */
static int exchange(struct bpk_atomic_file *file, struct bpk_diag *diag) {
    if (renameat2(file->folder, file->temp, file->folder, file->name, RENAME_EXCHANGE) < 0) {
        if (errno != EINVAL && errno != ENOSYS)
            return errno == ENOENT ? stale(diag) : fail(diag, -errno, "cannot replace the file");
        if (renameat(file->folder, file->temp, file->folder, file->name) < 0)
            return fail(diag, -errno, "cannot replace the file");
        file->temp[0] = '\0';
        file->published = true;
        return 0;
    }
    file->published = true;
    if (is_old(file, file->temp))
        return 0;
    if (exchange_back(file) == 0)
        return stale(diag);
    int r = bpk_diag_set(diag, -EIO, BPK_NO_OFFSET,
                         "somebody replaced the file meanwhile, and it could not be put back: it "
                         "is '%s' now",
                         file->temp);
    file->temp[0] = '\0'; /* it is not ours to take away */
    return r;
}

static int put_new(struct bpk_atomic_file *file, struct bpk_diag *diag) {
    if (renameat2(file->folder, file->temp, file->folder, file->name, RENAME_NOREPLACE) == 0) {
        file->temp[0] = '\0';
        file->published = true;
        return 0;
    }
    return errno == EEXIST ? bpk_diag_set(diag, -EEXIST, BPK_NO_OFFSET,
                                          "a file of that name was made meanwhile")
                           : fail(diag, -errno, "cannot make the file");
}

int bpk_atomic_publish(struct bpk_atomic_file *file, struct bpk_diag *diag) {
    if (file->has_old && !is_old(file, file->name))
        return stale(diag);
    int r = file->has_old ? exchange(file, diag) : put_new(file, diag);
    if (r < 0)
        return r;
    if (fsync(file->folder) < 0) {
        r = -errno;
        if (!file->has_old && unlinkat(file->folder, file->name, 0) == 0)
            file->published = false;
        else if (file->temp[0] != '\0')
            (void)exchange_back(file);
        return fail(diag, r, "syncing the folder failed");
    }
    if (file->temp[0] != '\0')
        (void)unlinkat(file->folder, file->temp, 0);
    file->temp[0] = '\0';
    return 0;
}

void bpk_atomic_end(struct bpk_atomic_file *file) {
    if (file->temp[0] != '\0' && file->folder >= 0)
        (void)unlinkat(file->folder, file->temp, 0);
    if (file->fd >= 0)
        close(file->fd);
    if (file->folder >= 0)
        close(file->folder);
    free(file->name);
    *file = (struct bpk_atomic_file){.folder = -1, .fd = -1};
}
