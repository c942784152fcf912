#include "mount.h"

#include "inode.h"
#include "log.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>

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
    mode_t bits = pack->st_mode & 0777 & ~options->mask;
    mount->file_mode = bits & 0666;
    mount->folder_mode = mount->file_mode | (mount->file_mode & 0444) >> 2;
}

static int derive(struct bpk_mount *mount, const struct bpk_options *options) {
    mount->real_path = realpath(options->pack, NULL);
    mount->pack_path = mount->real_path ? strdup(mount->real_path) : NULL;
    if (!mount->pack_path)
        return -errno;
    bpk_text_make_utf8(mount->pack_path);
    int r = bpk_names_new(mount->pack, BPK_NAMES_TENSORS, &mount->tensor_names);
    if (r == 0)
        r = bpk_names_new(mount->pack, BPK_NAMES_METADATA, &mount->key_names);
    if (r < 0)
        return r;
    bpk_pack_get_info(mount->pack, &mount->info);
    set_attributes(mount, options);
    mount->xattr = options->xattr;
    return pthread_mutex_init(&mount->status_lock, NULL) == 0 ? 0 : -ENOMEM;
}

/* Why edits cannot be taken, or NULL: the mount is then read-only. */
static const char *why_read_only(const struct bpk_mount *mount) {
    char *slash = strrchr(mount->real_path, '/');
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - mount->real_path) + 1,
                   mount->real_path);
    if (access(folder, W_OK) < 0)
        return "its folder is not writable";
    const struct stat *pack = bpk_pack_stat(mount->pack);
    if (geteuid() != 0 && pack->st_uid != geteuid())
        return "it belongs to somebody else";
    return NULL;
}

/* "mounted at …" by the table of mounts, for whoever has the pack already. */
static void tell_holder(const char *path) {
    FILE *table = setmntent("/proc/self/mounts", "r");
    const struct mntent *entry;
    while (table && (entry = getmntent(table)))
        if (strcmp(entry->mnt_type, "fuse.bpkfs") == 0 && strcmp(entry->mnt_fsname, path) == 0)
            bpk_log("it is mounted at %s; a read-only mount is possible: -o ro", entry->mnt_dir);
    if (table)
        endmntent(table);
}

static int open_edits(struct bpk_mount *mount, const struct bpk_options *options) {
    struct bpk_diag diag = {.offset = BPK_NO_OFFSET};
    size_t recovered = 0;
    const char *why = why_read_only(mount);
    if (options->read_only || options->salvage || why) {
        if (why && !options->read_only)
            bpk_log("%s: mounted read-only: %s", mount->pack_path, why);
        return 0;
    }
    struct bpk_edits_options edits = {
        .discard = options->edits && strcmp(options->edits, "discard") == 0,
        .ignore_owner = options->chown && strcmp(options->chown, "ignore") == 0,
        .folder_numbers = {BPK_NODE_ROOT, BPK_NODE_TENSORS, BPK_NODE_METADATA},
        .number_of = bpk_node_number_of,
        .number_context = mount,
    };
    int r = bpk_edits_open(mount->real_path, mount->pack, &edits, &mount->edits, &recovered, &diag);
    if (r < 0) {
        diag.offset = BPK_NO_OFFSET;
        tell(mount->pack_path, &diag);
        if (r == -EBUSY)
            tell_holder(mount->real_path);
        return r;
    }
    if (recovered > 0)
        bpk_log("%s: %zu edits of an earlier mount are back", mount->pack_path, recovered);
    return 0;
}

int bpk_mount_open(const struct bpk_options *options, struct bpk_mount *ret_mount) {
    struct bpk_diag diag;
    *ret_mount = (struct bpk_mount){0};
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
        r = open_edits(ret_mount, options);
    if (r < 0)
        bpk_mount_close(ret_mount);
    return r;
}

void bpk_mount_close(struct bpk_mount *mount) {
    bpk_edits_close(mount->edits);
    bpk_names_free(mount->tensor_names);
    bpk_names_free(mount->key_names);
    bpk_pack_unref(mount->pack);
    bpk_outbuf_clear(&mount->status);
    free(mount->pack_path);
    free(mount->real_path);
    *mount = (struct bpk_mount){0};
}
