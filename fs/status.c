#include "status.h"

#include "control.h"

#include "edit/rules.h"
#include "pack/text.h"
#include "view/json.h"
#include "view/names.h"
#include "view_exports.h"
#include "view_refusals.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The list of problems under way. */
struct problem_list {
    const struct bpk_mount *mount;
    struct bpk_outbuf *out;
    bool empty;
};

static void add_problem(void *context, uint32_t tensor, const char *sentence) {
    struct problem_list *list = context;
    bpk_out_str(list->out, list->empty ? "\n" : ",\n");
    list->empty = false;
    bpk_out_str(list->out, "    {\"file\": ");
    if (tensor == BPK_NO_TENSOR) {
        bpk_json_cstring(list->out, strrchr(list->mount->pack_path, '/') + 1);
    } else {
        char path[sizeof("tensors/") + BPK_FILE_NAME_BUF] = "tensors/";
        bpk_names_file(list->mount->tensor_names, tensor, path + strlen("tensors/"));
        bpk_json_cstring(list->out, path);
    }
    bpk_out_str(list->out, ", \"reason\": ");
    bpk_json_cstring(list->out, sentence);
    bpk_out_str(list->out, "}");
}

/* A path of the edits; JSON holds no bytes that are not UTF-8. */
static void out_path(struct bpk_outbuf *out, const char *path) {
    char shown[1200];
    if (!bpk_text_is_utf8((const uint8_t *)path, strlen(path)))
        path = bpk_text_escape(path, strlen(path), shown, sizeof(shown));
    bpk_json_cstring(out, path);
}

/* A list of paths under way, of edits or of scratch. */
struct path_list {
    struct bpk_outbuf *out;
    bool scratch;
    bool empty;
};

static void add_path(void *context, const struct bpk_edit *edit) {
    struct path_list *list = context;
    if ((edit->kind == BPK_EDIT_SCRATCH) != list->scratch)
        return;
    bpk_out_str(list->out, list->empty ? "\n    " : ",\n    ");
    list->empty = false;
    out_path(list->out, edit->path);
}

static void out_paths(const struct bpk_mount *mount, const char *key, bool scratch,
                      struct bpk_outbuf *out) {
    struct path_list list = {out, scratch, true};
    bpk_out_str(out, ",\n  ");
    bpk_json_cstring(out, key);
    bpk_out_str(out, ": [");
    if (mount->edits)
        bpk_edits_list(mount->edits, add_path, &list);
    bpk_out_str(out, list.empty ? "]" : "\n  ]");
}

/* An object of paths under way. */
struct path_map {
    struct bpk_outbuf *out;
    const char *key;
    bool empty;
};

static void add_to_map(struct path_map *map, const char *path, const char *value) {
    if (map->empty) {
        bpk_out_str(map->out, ",\n  ");
        bpk_json_cstring(map->out, map->key);
        bpk_out_str(map->out, ": {");
    }
    bpk_out_str(map->out, map->empty ? "\n    " : ",\n    ");
    map->empty = false;
    out_path(map->out, path);
    bpk_out_str(map->out, ": ");
    out_path(map->out, value);
}

static void add_change(void *context, const struct bpk_edit *edit) {
    if (edit->kind == BPK_EDIT)
        add_to_map(context, edit->path, bpk_change_name(edit->change));
    else if (edit->kind != BPK_EDIT_SCRATCH)
        add_to_map(context, edit->path, edit->kind == BPK_EDIT_BACKUP ? "backup" : "pending");
}

static void add_rename(void *context, const struct bpk_edit *edit) {
    if (edit->kind == BPK_EDIT && edit->change == BPK_RENAMED)
        add_to_map(context, edit->path, edit->from);
}

/* Only where there is something in it. */
static void out_map(const struct bpk_mount *mount, const char *key, bpk_edit_fn *add,
                    struct bpk_outbuf *out) {
    struct path_map map = {out, key, true};
    if (mount->edits)
        bpk_edits_list(mount->edits, add, &map);
    if (!map.empty)
        bpk_out_str(out, "\n  }");
}

static void add_sentence(struct problem_list *list, const char *path, const char *reason) {
    bpk_out_str(list->out, list->empty ? "\n" : ",\n");
    list->empty = false;
    bpk_out_str(list->out, "    {\"file\": ");
    out_path(list->out, path);
    bpk_out_str(list->out, ", \"reason\": ");
    out_path(list->out, reason);
    bpk_out_str(list->out, "}");
}

/* What can become of a file that is no part of the pack. */
static const char *why_pending(const char *path) {
    static const char unspellable[] =
        "no tensor or key can have this name, in which a '%' is written "
        "as '%25': rename it, or remove it";
    char decoded[BPK_FILE_NAME_BUF];
    const char *name = strrchr(path, '/');
    size_t len;
    name = name ? name + 1 : path;
    bool in_npy = strncmp(path, "views/npy/", strlen("views/npy/")) == 0;
    struct bpk_str stem;
    if (in_npy && !bpk_rules_array_stem(name, &stem))
        return "is no array: move it to a name that ends in .npy, or remove it";
    if (name != path && !bpk_rules_is_spelled_right(name, decoded, &len))
        return strlen(name) > BPK_FILE_NAME_MAX ? "its name is too long: rename it, or remove it"
                                                : unspellable;
    if (strncmp(path, "tensors/", strlen("tensors/")) == 0)
        return "is no tensor yet: give it a sidecar, or remove it";
    return "is no part of a pack: move it to a name that is, or remove it";
}

static void add_edit_problem(void *context, const struct bpk_edit *edit) {
    struct problem_list *list = context;
    const char *problem = edit->problem;
    if (edit->kind == BPK_EDIT_PENDING && !problem)
        problem = why_pending(edit->path);
    if (!problem)
        return;
    add_sentence(list, edit->path, problem);
}

static void add_put_back(void *context, const char *file, const char *sentence) {
    add_sentence(context, file, sentence);
}

static void add_refusal(void *context, const char *path, const char *reason) {
    add_sentence(context, path, reason);
}

static void add_left_out(void *context, const char *name, const char *reason) {
    _cleanup_outbuf_ struct bpk_outbuf sentence = {0};
    bpk_out_str(&sentence, "'");
    bpk_out_str(&sentence, name);
    bpk_out_str(&sentence, "' is not in it: it ");
    bpk_out_str(&sentence, reason);
    bpk_out(&sentence, "", 1);
    if (!sentence.failed)
        add_sentence(context, "views/export/model.safetensors", sentence.text);
}

static void out_time(struct bpk_outbuf *out, time_t when) {
    char text[40];
    struct tm parts;
    if (when == 0 || !gmtime_r(&when, &parts) ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        bpk_out_str(out, "null");
    else
        bpk_json_cstring(out, text);
}

/* What the pack's path leads to by now, if to something else; NULL: to the pack. By way of its
 * folder: where the mount covers that, the path leads into the mount. */
static const char *find_other(const struct bpk_mount *mount, const struct bpk_pack *base) {
    struct stat now;
    const struct stat *then = bpk_pack_stat(base);
    if (fstatat(mount->folder, strrchr(mount->real_path, '/') + 1, &now, 0) < 0)
        return mount->edits ? "is not at its place any more: 'bpk commit --to FILE' saves it with "
                              "the edits"
                            : "is not at its place any more: it is mounted all the same";
    if (now.st_ino == then->st_ino && now.st_dev == then->st_dev)
        return NULL;
    return mount->edits ? "was replaced by another file: 'bpk commit --to FILE' saves the edits, "
                          "'bpk discard' drops them"
                        : "was replaced by another file: the one before is mounted";
}

/* The faults of the pack itself, looked for once: it may read the padding of the whole pack. What
 * we wrote ourselves has none but those of its tensors, which their sidecars tell. */
static int add_pack_problems(struct bpk_mount *mount, const struct bpk_pack *base,
                             struct problem_list *list) {
    if (base != mount->pack)
        return 0;
    if (!mount->checked) {
        struct problem_list found = {mount, &mount->faults, true};
        int r = bpk_pack_check(base, add_problem, &found);
        if (r < 0 || mount->faults.failed) {
            bpk_outbuf_clear(&mount->faults);
            return r < 0 ? r : -ENOMEM;
        }
        mount->checked = true;
    }
    if (mount->faults.len == 0)
        return 0;
    if (!list->empty)
        bpk_out_str(list->out, ",");
    bpk_out(list->out, mount->faults.text, mount->faults.len);
    list->empty = false;
    return 0;
}

/* Only while a commit writes. */
static void out_progress(const struct bpk_mount *mount, struct bpk_outbuf *out) {
    uint64_t done;
    uint64_t total;
    if (!mount->edits || !bpk_edits_progress(mount->edits, &done, &total))
        return;
    bpk_out_str(out, ",\n  \"committing\": {\"done\": ");
    bpk_out_u64(out, done);
    bpk_out_str(out, ", \"total\": ");
    bpk_out_u64(out, total);
    bpk_out_str(out, "}");
}

static int compose(struct bpk_mount *mount, struct bpk_outbuf *out) {
    struct bpk_pack *base = mount->edits ? bpk_edits_base(mount->edits) : bpk_pack_ref(mount->pack);
    struct bpk_pack_info info;
    bpk_pack_get_info(base, &info);
    bpk_out_str(out, "{\n  \"pack\": ");
    bpk_json_cstring(out, mount->pack_path);
    bpk_out_str(out, ",\n  \"mode\": ");
    bpk_json_cstring(out, mount->edits ? "rw" : "ro");
    bpk_out_str(out, ",\n  \"layout\": ");
    bpk_json_cstring(out, info.layout == BPK_LAYOUT_LEGACY ? "legacy" : "aligned");
    bpk_out_str(out, ",\n  \"tensors\": ");
    bpk_out_u64(out, info.tensors);
    out_paths(mount, "edits", false, out);
    out_paths(mount, "scratch", true, out);
    bpk_out_str(out, ",\n  \"problems\": [");
    struct problem_list list = {mount, out, true};
    if (mount->edits)
        bpk_edits_list(mount->edits, add_edit_problem, &list);
    if (mount->commit_failed)
        add_problem(&list, BPK_NO_TENSOR, mount->last_error);
    bpk_control_each_put_back(mount->maps_put_back, add_put_back, &list);
    if (bpk_pack_is_changed(base))
        add_problem(&list, BPK_NO_TENSOR,
                    "was changed by somebody else while it is mounted: tensors that were not "
                    "edited cannot be read");
    const char *other = find_other(mount, base);
    if (other)
        add_problem(&list, BPK_NO_TENSOR, other);
    bpk_view_each_refusal(mount, add_refusal, &list);
    bpk_view_export_left_out(mount, add_left_out, &list);
    int r = add_pack_problems(mount, base, &list);
    bpk_out_str(out, list.empty ? "]" : "\n  ]");
    bpk_out_str(out, ",\n  \"last_commit\": ");
    out_time(out, mount->edits ? bpk_edits_last_commit(mount->edits) : 0);
    out_map(mount, "changes", add_change, out);
    out_map(mount, "renamed_from", add_rename, out);
    out_progress(mount, out);
    bpk_out_str(out, ",\n  \"pid\": ");
    bpk_out_u64(out, (uint64_t)getpid());
    bpk_out_str(out, "\n}\n");
    bpk_pack_unref(base);
    return r == 0 && out->failed ? -ENOMEM : r;
}

int bpk_status_file(struct bpk_mount *mount, struct bpk_outbuf *out) {
    pthread_mutex_lock(&mount->status_lock);
    int r = compose(mount, out);
    pthread_mutex_unlock(&mount->status_lock);
    return r == 0 && out->failed ? -ENOMEM : r;
}
