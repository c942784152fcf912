#include "mountpoint.h"

#include "log.h"
#include "pack/fusermount.h"
#include "pack/util.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- dead mounts ----------------------------------------------------------------------------- */

/* Whether the mount table has a bpkfs at `path`. */
static bool is_our_mount(const char *path) {
    FILE *table = setmntent("/proc/self/mounts", "r");
    if (!table)
        return false;
    bool found = false;
    const struct mntent *entry;
    while ((entry = getmntent(table)))
        if (strcmp(entry->mnt_dir, path) == 0)
            found = strcmp(entry->mnt_type, "fuse.bpkfs") == 0;
    endmntent(table);
    return found;
}

/* The absolute path of something whose last component cannot be looked at. */
static char *resolve_parent(const char *path) {
    char copy[PATH_MAX];
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len >= sizeof(copy))
        return NULL;
    memcpy(copy, path, len);
    copy[len] = '\0';
    char *slash = strrchr(copy, '/');
    const char *base = slash ? slash + 1 : copy;
    char *parent = slash == copy ? strdup("/") : NULL;
    if (slash && slash != copy)
        *slash = '\0';
    if (!parent)
        parent = realpath(slash ? copy : ".", NULL);
    char *whole = NULL;
    if (parent && asprintf(&whole, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, base) < 0)
        whole = NULL;
    free(parent);
    return whole;
}

/* A daemon that was killed leaves a mount that answers ENOTCONN to everything. */
static int clean_dead(const char *path) {
    _cleanup_free_ char *whole = resolve_parent(path);
    int r = -ENOTCONN;
    if (whole && is_our_mount(whole)) {
        r = bpk_unmount(whole, true, NULL);
        if (r == 0)
            bpk_log("%s: cleaned up the mount of a daemon that is gone", path);
    }
    if (r < 0)
        bpk_log("%s: a dead mount is in the way; remove it with: fusermount3 -u '%s'", path, path);
    return r;
}

/* ---- finding and making ---------------------------------------------------------------------- */

static int resolve(const char *path, char **ret_path) {
    struct stat attr;
    if (stat(path, &attr) < 0 && errno == ENOTCONN) {
        int r = clean_dead(path);
        if (r < 0)
            return r;
    }
    char *whole = realpath(path, NULL);
    if (!whole || stat(whole, &attr) < 0) {
        int r = -errno;
        bpk_log("%s: cannot use this mount point: %s", path, strerror(-r));
        free(whole);
        return r;
    }
    if (is_our_mount(whole)) {
        bpk_log("%s: a pack is mounted there already", path);
        free(whole);
        return -EBUSY;
    }
    if (!S_ISDIR(attr.st_mode)) {
        bpk_log("%s: the mount point is not a directory", path);
        free(whole);
        return -ENOTDIR;
    }
    *ret_path = whole;
    return 0;
}

/* The pack's file name without ".bpk". */
static char *default_name(const char *pack) {
    const char *slash = strrchr(pack, '/');
    const char *base = slash ? slash + 1 : pack;
    size_t len = strlen(base);
    if (len > 4 && strcmp(base + len - 4, ".bpk") == 0)
        len -= 4;
    return strndup(base, len);
}

static int make(const char *pack, struct bpk_mountpoint *ret_point) {
    _cleanup_free_ char *name = default_name(pack);
    if (!name)
        return -ENOMEM;
    struct stat attr;
    if (stat(name, &attr) < 0 && errno == ENOTCONN) {
        int r = clean_dead(name);
        if (r < 0)
            return r;
    }
    /* rmdir tells an empty folder, and takes one that an earlier mount left. */
    if (rmdir(name) < 0 && errno != ENOENT) {
        bpk_log("./%s is in the way: %s; give a mount point", name,
                errno == ENOTDIR ? "not a directory" : strerror(errno));
        return -EEXIST;
    }
    if (mkdir(name, 0777) < 0) {
        int r = -errno;
        bpk_log("./%s: cannot make this mount point: %s", name, strerror(errno));
        return r;
    }
    ret_point->path = realpath(name, NULL);
    ret_point->remove = true;
    if (!ret_point->path) {
        int r = -errno;
        (void)rmdir(name);
        return r;
    }
    return 0;
}

int bpk_mountpoint_prepare(const char *given, const char *pack, struct bpk_mountpoint *ret_point) {
    struct bpk_mountpoint point = {.helper = BPK_HELPER_NONE};
    int r = given ? resolve(given, &point.path) : make(pack, &point);
    if (r == 0)
        *ret_point = point;
    return r;
}

void bpk_mountpoint_remove(struct bpk_mountpoint *point) {
    if (!point->remove)
        return;
    int r = bpk_helper_remove(&point->helper);
    if (r == -EPIPE && rmdir(point->path) < 0)
        bpk_log("cannot remove %s: %s", point->path, strerror(errno));
}

void bpk_mountpoint_finish(struct bpk_mountpoint *point) {
    bpk_mountpoint_remove(point);
    bpk_helper_stop(&point->helper);
    free(point->path);
    point->path = NULL;
}
