#include "mount.h"

#include "handles.h"
#include "log.h"
#include "pack/pack_internal.h"
#include "pack/text.h"
#include "pack/util.h"
#include "seen.h"
#include "tree_nodes.h"
#include "view_exports.h"
#include "view_refusals.h"
#include "view_stats.h"
#include "writable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "FILE: at byte N: what is wrong" */
static void tell(const char *path, const struct bpk_diag *diag) {
    char shown[PATH_MAX];
    char name[PATH_MAX];
    (void)snprintf(name, sizeof(name), "%s", path);
    bpk_text_make_utf8(name);
    bpk_text_escape(name, strlen(name), shown, sizeof(shown));
    if (diag->offset == BPK_NO_OFFSET)
        bpk_log("%s: %s", shown, diag->sentence);
    else
        bpk_log("%s: at byte %" PRIu64 ": %s", shown, diag->offset, diag->sentence);
}

static void set_attributes(struct bpk_mount *mount, const struct bpk_options *options) {
    const struct stat *pack = bpk_pack_stat(mount->pack);
    mount->uid = options->has_uid ? options->owner : pack->st_uid;
    mount->gid = options->has_gid ? options->group : pack->st_gid;
    mount->has_mask = options->umask != NULL;
    mount->file_mode = (mount->has_mask ? ~options->mask : pack->st_mode) & 0666;
    mount->folder_mode =
        mount->has_mask ? ~options->mask & 0777 : mount->file_mode | (mount->file_mode & 0444) >> 2;
}

static int derive(struct bpk_mount *mount, const struct bpk_options *options) {
    mount->real_path = realpath(options->pack, NULL);
    mount->pack_path = mount->real_path ? strdup(mount->real_path) : NULL;
    if (!mount->pack_path)
        return -errno;
    bpk_text_make_utf8(mount->pack_path);
    _cleanup_free_ char *folder = strdup(mount->real_path);
    if (!folder)
        return -ENOMEM;
    strrchr(folder, '/')[1] = '\0';
    mount->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (mount->folder < 0)
        return -errno;
    int r = bpk_names_new(mount->pack, BPK_NAMES_TENSORS, &mount->tensor_names);
    if (r == 0)
        r = bpk_names_new(mount->pack, BPK_NAMES_METADATA, &mount->key_names);
    if (r < 0)
        return r;
    bpk_pack_get_info(mount->pack, &mount->info);
    set_attributes(mount, options);
    mount->xattr = options->xattr;
    mount->readahead = options->readahead;
    mount->lists_views = options->views != NULL;
    (void)pthread_mutex_init(&mount->handles_lock, NULL);
    (void)pthread_mutex_init(&mount->sizes_lock, NULL);
    (void)pthread_mutex_init(&mount->snapshots_lock, NULL);
    (void)pthread_mutex_init(&mount->tree_lock, NULL);
    (void)pthread_mutex_init(&mount->status_lock, NULL);
    (void)pthread_mutex_init(&mount->exports_lock, NULL);
    (void)pthread_mutex_init(&mount->stats_lock, NULL);
    (void)pthread_mutex_init(&mount->refusals_lock, NULL);
    (void)pthread_mutex_init(&mount->seen_lock, NULL);
    return 0;
}

static int open_once(const struct bpk_options *options, struct bpk_mount *ret_mount) {
    struct bpk_diag diag;
    *ret_mount = (struct bpk_mount){.folder = -1};
    int r = bpk_pack_open(options->pack, &options->open, &ret_mount->pack, &diag);
    if (r < 0) {
        tell(options->pack, &diag);
        return r;
    }
    r = derive(ret_mount, options);
    if (r < 0) {
        diag = (struct bpk_diag){.offset = BPK_NO_OFFSET};
        (void)snprintf(diag.sentence, sizeof(diag.sentence), "cannot prepare the mount: %s",
                       strerror(-r));
        tell(options->pack, &diag);
    }
    if (r == 0)
        r = bpk_writable_open(ret_mount, options);
    if (r < 0)
        bpk_mount_close(ret_mount);
    return r;
}

int bpk_mount_open(const struct bpk_options *options, struct bpk_mount *ret_mount) {
    int r;
    do { /* a commit that ended meanwhile has put another pack there */
        r = open_once(options, ret_mount);
    } while (r == -EAGAIN);
    return r;
}

void bpk_mount_close(struct bpk_mount *mount) {
    bpk_handles_close(mount);
    bpk_tree_nodes_close(mount);
    bpk_view_exports_close(mount); /* before the edits, whose data files they hold */
    bpk_view_stats_close(mount);
    bpk_view_refusals_close(mount);
    bpk_seen_close(mount);
    if (mount->edits)
        bpk_pack_unref_table(mount->pack);
    else
        bpk_pack_unref(mount->pack);
    bpk_edits_close(mount->edits);
    bpk_names_free(mount->tensor_names);
    bpk_names_free(mount->key_names);
    bpk_outbuf_clear(&mount->faults);
    bpk_outbuf_clear(&mount->remarks);
    free(mount->pack_path);
    free(mount->real_path);
    if (mount->folder >= 0)
        close(mount->folder);
    *mount = (struct bpk_mount){.folder = -1};
}
