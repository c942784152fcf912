/* One mounted pack: what every file of fs works on. Immutable after bpk_mount_open but for the
 * members that say otherwise.
 *
 * Lock order; who holds one takes only what stands to the right of it:
 *   control.c's `once`, snapshots_lock, status_lock, refusals_lock or exports_lock, the edits' lock
 *   sizes_lock, the edits' lock
 *   the lock of an open view, stats_lock or the edits' lock
 * While one of handles_lock, tree_lock, stats_lock, seen_lock, saver.c's lock or the helper's is
 * held, no other is taken; nor while the edits' is, which calls back with it held: callbacks from
 * there take none. None is held while the kernel is told or answered, but for the helper's.
 */
#ifndef BPKFS_MOUNT_H
#define BPKFS_MOUNT_H

#include "edit/edits.h"
#include "options.h"
#include "pack/outbuf.h"
#include "view/names.h"

#include <pthread.h>
#include <stdatomic.h>

/* metadata.json, scalars.json, index.tsv */
enum { BPK_SNAPSHOTS = 3 };
/* model.bpk, model.safetensors */
enum { BPK_EXPORTS = 2 };

struct bpk_mount {
    /* As it was mounted: numbers of files come from it. Of a writable mount its table only: the
     * file is the edits', who let go of it with the first commit. */
    struct bpk_pack *pack;
    struct bpk_edits *edits;      /* NULL: read-only */
    const char *why_read_only;    /* though nobody asked for it; else NULL */
    size_t recovered;             /* edits of an earlier mount */
    bool leaves_edits;            /* they wait for a writable mount */
    struct fuse_session *session; /* set before the first request */
    struct bpk_pack_info info;
    struct bpk_names *tensor_names;
    struct bpk_names *key_names;
    char *real_path; /* of the pack: absolute, links followed */
    int folder;      /* that it is in, for a look only */
    char *pack_path; /* the same, made UTF-8: for showing */
    bool xattr;
    unsigned readahead; /* KiB; 0: the kernel's own, or not settled yet */
    bool lists_views;   /* the root lists views/ and .bpkfs/ */

    pthread_mutex_t handles_lock;
    struct bpk_handle *handles; /* all that are open; guarded by handles_lock */

    pthread_mutex_t tree_lock;
    struct bpk_tree_view *tree; /* what tree/ shows; guarded by tree_lock */

    /* attributes that all files share */
    uid_t uid;
    gid_t gid;
    mode_t file_mode; /* permission bits */
    mode_t folder_mode;
    bool has_mask; /* of umask=: no file has permissions of its own */

    pthread_mutex_t sizes_lock;
    struct bpk_text_size {   /* of texts that take time to compose; guarded by sizes_lock */
        uint64_t generation; /* of the edits, plus 1 */
        uint64_t size;
    } sizes[BPK_SNAPSHOTS];

    pthread_mutex_t snapshots_lock;
    struct bpk_snapshot *snapshots[BPK_SNAPSHOTS]; /* see snapshots.h; guarded by snapshots_lock */

    pthread_mutex_t exports_lock;
    struct bpk_export *exports[BPK_EXPORTS]; /* see view_exports.h; guarded by exports_lock */

    pthread_mutex_t stats_lock;
    struct bpk_known_stats *stats; /* see view_stats.h; guarded by stats_lock */

    pthread_mutex_t refusals_lock;
    struct bpk_refusals { /* numbers of views that were refused; guarded by refusals_lock */
        uint64_t *numbers;
        size_t count;
        size_t capacity;
    } refusals;

    pthread_mutex_t seen_lock;
    struct bpk_seen *seen; /* see seen.h; guarded by seen_lock */

    atomic_bool told_of_change; /* that the pack was changed underneath: said once */

    /* of the last command; guarded by status_lock */
    char last_error[512];      /* why it failed, or "" */
    bool commit_failed;        /* and whether it was a commit */
    struct bpk_outbuf remarks; /* what it mended and dropped, one line each */
    unsigned maps_put_back;    /* by commits that nobody asked for, since */
    pthread_mutex_t status_lock;
    bool checked;             /* `faults` are those of `pack`; guarded by status_lock */
    struct bpk_outbuf faults; /* as status.json lists them; guarded by status_lock */
};

/* Opens the pack and everything that is derived from it. A message is printed on failure.
 * 0 or a negative errno. */
int bpk_mount_open(const struct bpk_options *options, struct bpk_mount *ret_mount);
void bpk_mount_close(struct bpk_mount *mount);

#endif
