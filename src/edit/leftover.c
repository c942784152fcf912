/* Temporary files that a commit left which was killed.
 *
 * Before it published, its file is unfinished, or at least not wanted. After, the file that came
 * out of the pack's place is the old pack, and the journal knows that one. If it is any other,
 * somebody put it there in the last moment, and it is their only copy.
 */
#include "edit/state.h"

#include "pack/diag.h"
#include "pack/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

/* Opens it if it is a file of ours that nobody is at work on any more; -1 otherwise. */
static int open_abandoned(int folder, const char *name, struct stat *ret_attr) {
    _cleanup_close_ int fd =
        openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, ret_attr) < 0 || !S_ISREG(ret_attr->st_mode))
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    return bpk_steal_fd(&fd);
}

static bool is_replaced(const struct stat *attr, const struct bpk_base_id *id) {
    return attr->st_ino == id->ino && (uint64_t)attr->st_size == id->size &&
           attr->st_mtim.tv_sec == id->mtime_sec && attr->st_mtim.tv_nsec == id->mtime_nsec;
}

static int put_back(const struct bpk_edits *edits, const char *pack_name, const char *temp,
                    struct bpk_diag *diag) {
    if (renameat2(edits->parent, temp, edits->parent, pack_name, RENAME_EXCHANGE) < 0)
        return bpk_diag_set(
            diag, -ESTALE, BPK_NO_OFFSET,
            "somebody replaced the pack while a commit wrote it; their file is '%s'", temp);
    (void)fsync(edits->parent);
    return bpk_diag_set(diag, -ESTALE, BPK_NO_OFFSET,
                        "somebody replaced the pack while a commit wrote it; their file is in its "
                        "place again, and what was committed is in '%s'",
                        temp);
}

static int clear_one(const struct bpk_edits *edits, const char *pack_name, const char *temp,
                     const struct bpk_committed *committed, struct bpk_diag *diag) {
    struct stat attr;
    _cleanup_close_ int fd = open_abandoned(edits->parent, temp, &attr);
    if (fd < 0)
        return 0;
    if (committed->happened && !is_replaced(&attr, &committed->replaced_id))
        return put_back(edits, pack_name, temp, diag);
    (void)unlinkat(edits->parent, temp, 0);
    return 0;
}

int bpk_leftover_clear(struct bpk_edits *edits, const char *pack_name,
                       const struct bpk_committed *committed, struct bpk_diag *diag) {
    int listed = openat(edits->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = listed >= 0 ? fdopendir(listed) : NULL;
    int r = 0;
    if (!folder) { /* a folder that may be searched but not read: nothing can be found in it */
        if (listed >= 0)
            close(listed);
        return 0;
    }
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(folder)))
        if (bpk_atomic_is_temp(pack_name, entry->d_name))
            r = clear_one(edits, pack_name, entry->d_name, committed, diag);
    closedir(folder);
    return r;
}
