#include "cli/folder.h"

#include "cli/cli.h"
#include "cli/folder_maps.h"
#include "edit/rules.h"
#include "pack/dtype.h"
#include "pack/meta.h"
#include "pack/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool bpk_cli_list_names(int folder, const char *sub, struct bpk_cli_names *ret_names) {
    struct bpk_cli_names names = {0};
    size_t capacity = 0;
    int fd = openat(folder, sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return false;
    const struct dirent *entry;
    bool good = true;
    while (good && (errno = 0, entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        good = bpk_grow((void **)&names.names, &capacity, names.count, sizeof(*names.names)) == 0 &&
               (names.names[names.count] = strdup(entry->d_name));
        names.count += good;
    }
    good = good && errno == 0;
    int r = errno;
    closedir(dir);
    if (!good)
        bpk_cli_names_clear(&names);
    else if (names.count > 0)
        qsort(names.names, names.count, sizeof(*names.names), bpk_cli_compare_names);
    *ret_names = names;
    errno = r;
    return good;
}

int bpk_cli_compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void bpk_cli_names_clear(struct bpk_cli_names *names) {
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct bpk_cli_names){0};
}

bool bpk_cli_folder_error(const char *path, const char *file, const char *sentence) {
    _cleanup_free_ char *whole = NULL;
    if (asprintf(&whole, "%s/%s", path, file) < 0)
        whole = NULL;
    bpk_cli_error(whole ? whole : path, "%s", sentence);
    return false;
}

int bpk_cli_read_text(const struct bpk_cli_newpack *pack, const char *file,
                      struct bpk_outbuf *ret_text) {
    enum { STEP = 64 << 10 };
    struct stat attr;
    _cleanup_close_ int fd = -1;
    int r = bpk_cli_newpack_open(pack, file, &fd, &attr);
    /* Every byte of the metadata may be an escape of six in JSON. */
    if (r == 0 && (uint64_t)attr.st_size > 6 * (uint64_t)BPK_MAX_METADATA)
        r = -EFBIG;
    _cleanup_free_ char *step = r < 0 ? NULL : malloc(STEP);
    if (r == 0 && !step)
        r = -ENOMEM;
    ssize_t n = 1;
    while (r == 0 && n > 0) {
        n = read(fd, step, STEP);
        if (n > 0)
            bpk_out(ret_text, step, (size_t)n);
        if (n < 0)
            r = -errno;
    }
    return r == 0 && ret_text->failed ? -ENOMEM : r;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool has_name(const struct bpk_cli_names *names, const char *name) {
    return names->count > 0 &&
           bsearch(&name, names->names, names->count, sizeof(*names->names), bpk_cli_compare_names);
}

/* Which tensor the file is; `origin` is what its sidecar says of that. */
static bool take_name(const char *file, struct bpk_sidecar_origin *origin,
                      struct bpk_cli_new_tensor *tensor) {
    char name[BPK_FILE_NAME_BUF];
    size_t len;
    if (bpk_rules_is_spelled_right(file, name, &len)) {
        tensor->name = malloc(len + 1);
        if (tensor->name)
            memcpy(tensor->name, name, len);
        tensor->name_len = len;
        return tensor->name != NULL;
    }
    if (!origin->name || !bpk_name_is_cut((struct bpk_str){file, strlen(file)},
                                          (struct bpk_str){origin->name, origin->name_len}))
        return false;
    tensor->name_len = origin->name_len;
    tensor->name = bpk_steal_ptr(origin->name);
    return true;
}

/* Whether the length goes with shape and dtype. A QFloat's may be whatever it was when its sidecar
 * was written: no formula is that of all versions of Burn. */
static bool check_length(const struct bpk_cli_new_tensor *tensor,
                         const struct bpk_sidecar_origin *origin, char *out, size_t size) {
    const struct bpk_descriptor *d = &tensor->descriptor;
    uint64_t needed;
    bool known = bpk_dtype_shape_length(&d->dtype, d->dims, d->rank, &needed);
    if ((known && needed == tensor->size) ||
        (d->dtype.kind == BPK_QFLOAT && origin->has_size && origin->size == tensor->size))
        return true;
    if (known)
        (void)snprintf(out, size, "has %" PRIu64 " bytes, but its shape and dtype need %" PRIu64,
                       tensor->size, needed);
    else
        (void)snprintf(out, size, "its shape and dtype do not go together");
    return false;
}

/* All that is wrong is said here, with the file. */
static bool take_tensor(struct bpk_cli_newpack *pack, const char *name) {
    char file[NAME_MAX + 32];
    char sidecar[NAME_MAX + 40];
    struct bpk_diag diag = {.sentence = ""};
    struct bpk_sidecar_origin origin = {0};
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    _cleanup_close_ int fd = -1;
    struct bpk_cli_new_tensor *tensor = bpk_cli_newpack_add(pack);
    if (!tensor)
        return false;
    (void)snprintf(file, sizeof(file), "tensors/%s", name);
    (void)snprintf(sidecar, sizeof(sidecar), "%s.json", file);
    int r = bpk_cli_newpack_open(pack, file, &fd, &tensor->stat);
    if (r < 0)
        return bpk_cli_folder_error(pack->from, file, bpk_cli_newpack_reason(r));
    tensor->file = strdup(file);
    tensor->size = (uint64_t)tensor->stat.st_size;
    if (!tensor->file)
        return bpk_cli_folder_error(pack->from, file, "out of memory");
    r = bpk_cli_read_text(pack, sidecar, &text);
    if (r < 0)
        return bpk_cli_folder_error(pack->from, sidecar, bpk_cli_newpack_reason(r));
    const struct bpk_str json = {text.text, text.len};
    if (bpk_sidecar_parse(json, &tensor->descriptor, &diag) != BPK_TEXT_GOOD ||
        bpk_sidecar_origin_parse(json, &origin, &diag) != BPK_TEXT_GOOD)
        return bpk_cli_folder_error(pack->from, sidecar, diag.sentence);
    tensor->has_place = origin.has_offsets;
    tensor->start = origin.start;
    tensor->end = origin.end;
    bool named = take_name(name, &origin, tensor);
    bool good = named && check_length(tensor, &origin, diag.sentence, sizeof(diag.sentence));
    bpk_sidecar_origin_clear(&origin);
    if (!named)
        (void)snprintf(diag.sentence, sizeof(diag.sentence),
                       "this is not how the name of a tensor is spelled: see bpk(5)");
    return good || bpk_cli_folder_error(pack->from, file, diag.sentence);
}

/* A file that neither is a sidecar nor has one. */
static bool leave_out(const struct bpk_cli_newpack *pack, const char *folder, const char *name,
                      const char *refusal) {
    char file[NAME_MAX + 32];
    (void)snprintf(file, sizeof(file), "%s%s", folder, name);
    if (!bpk_rules_is_scratch(name) && !bpk_rules_is_backup(name))
        return bpk_cli_folder_error(pack->from, file, refusal);
    (void)bpk_cli_folder_error(pack->from, file, "left out: an editor's file or a backup");
    return true;
}

static bool take_tensors(struct bpk_cli_newpack *pack) {
    struct bpk_cli_names names;
    if (!bpk_cli_list_names(pack->folder, "tensors", &names)) {
        bpk_cli_error(pack->from, "cannot read its folder 'tensors': %s", strerror(errno));
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < names.count && good; i++) {
        char other[NAME_MAX + 32];
        struct bpk_str stem;
        const char *name = names.names[i];
        bool is_sidecar = bpk_rules_sidecar_stem(name, &stem);
        (void)snprintf(other, sizeof(other), "%s.json", name);
        if (is_sidecar)
            (void)snprintf(other, sizeof(other), "%.*s", (int)stem.len, stem.bytes);
        if (!has_name(&names, other))
            good = leave_out(pack, "tensors/", name,
                             is_sidecar ? "there is no file of the tensor beside it"
                                        : "there is no sidecar with its dtype and shape beside it");
        else if (!is_sidecar)
            good = take_tensor(pack, name);
    }
    bpk_cli_names_clear(&names);
    return good;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* What a mount, or a copy of one, has beside. */
static bool is_known(const char *name) {
    static const char *const known[] = {"tensors",   "metadata", "metadata.json", "scalars.json",
                                        "index.tsv", "tree",     "views",         ".bpkfs"};
    for (size_t i = 0; i < BPK_ARRAY_LEN(known); i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

static bool check_root(const struct bpk_cli_newpack *pack) {
    struct bpk_cli_names names;
    if (!bpk_cli_list_names(pack->folder, ".", &names)) {
        bpk_cli_error(pack->from, "cannot read it: %s", strerror(errno));
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < names.count && good; i++)
        good = is_known(names.names[i]) ||
               leave_out(pack, "", names.names[i], "this is no part of a pack");
    bpk_cli_names_clear(&names);
    return good;
}

bool bpk_cli_read_folder(const char *path, struct bpk_cli_newpack *ret_pack) {
    struct bpk_cli_newpack pack = {.from = path};
    pack.folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (pack.folder < 0) {
        bpk_cli_error(path, "cannot open: %s", strerror(errno));
        return false;
    }
    if (take_tensors(&pack) && check_root(&pack) && bpk_cli_take_maps(&pack)) {
        *ret_pack = pack;
        return true;
    }
    bpk_cli_newpack_clear(&pack);
    return false;
}
