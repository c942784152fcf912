/* Replacing a file in one step.
 *
 * Life of a replacement: begin (a temporary file beside the target, of our own, locked) → the
 * caller writes → seal (owner, mode, attributes as the old file's; fsync) → publish (the old and
 * the new file change places, what came out is checked, the folder is synced, the old file goes).
 * Before publish nothing has changed; abort takes the temporary file away. At any instant the
 * target's name holds the whole old file or the whole new one.
 *
 * The folder is held open from begin on, so that a folder that is moved or a symbolic link that is
 * changed meanwhile leads nowhere else.
 */
#ifndef BPK_PACK_ATOMIC_FILE_H
#define BPK_PACK_ATOMIC_FILE_H

#include "bpk.h"

struct bpk_atomic_file {
    int folder; /* of the target, O_PATH or O_RDONLY */
    char *name; /* the target's, in the folder; symbolic links are followed before */
    char temp[256];
    int fd;         /* the new file, open for reading and writing, locked */
    bool has_old;   /* a file is to be replaced: `old` is its identity */
    bool published; /* the new file is what the name leads to */
    struct stat old;
};

/* Whether two stats are of the same file with the same content as far as can be seen: device,
 * inode, size, mtime. */
bool bpk_same_file(const struct stat *a, const struct stat *b);

/* Opens the folder of `path`, following symbolic links to where the file really is. The name is
 * allocated. 0 or -errno. */
int bpk_open_folder(const char *path, int *ret_folder, char **ret_name);

/* Begins. `old` is the file that is to be replaced, NULL if there must be none: -EEXIST. */
int bpk_atomic_begin(const char *path, const struct stat *old, struct bpk_atomic_file *ret_file,
                     struct bpk_diag *diag);

/* The same for `name` in an open folder, whatever its path leads to by now. */
int bpk_atomic_begin_at(int folder, const char *name, const struct stat *old,
                        struct bpk_atomic_file *ret_file, struct bpk_diag *diag);

/* Owner, group, mode, user attributes, ACL of `from` (an fd; -1: mode 0666 less the umask), then
 * fsync. `ignore_owner`: an owner that cannot be given is left out. */
int bpk_atomic_seal(struct bpk_atomic_file *file, int from, bool ignore_owner,
                    struct bpk_diag *diag);

/* Publishes. -ESTALE if the target is no longer what begin was told, -EEXIST if there is one where
 * none was to be: it is then left as it is. On failure `published` says whether the new file is
 * there all the same: it could not be made to last, and there was no way back. */
int bpk_atomic_publish(struct bpk_atomic_file *file, struct bpk_diag *diag);

/* Whether `temp` is what the temporary file of a replacement of `name` is called. */
bool bpk_atomic_is_temp(const char *name, const char *temp);

/* Takes the temporary file away, if it was not published, and frees. */
void bpk_atomic_end(struct bpk_atomic_file *file);

#endif
