#include "cli/import.h"

#include "cli/cli.h"
#include "cli/folder_maps.h"
#include "cli/interrupt.h"
#include "edit/rules.h"
#include "pack/atomic_file.h"
#include "pack/io.h"
#include "pack/util.h"
#include "view/npy_order.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- arrays in another order ----------------------------------------------------------------- */

struct source {
    int fd;
    uint64_t offset; /* of the data in the file */
};

static int read_source(void *context, uint64_t offset, void *buffer, size_t size) {
    const struct source *source = context;
    size_t n;
    if (bpk_cli_interrupted())
        return -EINTR;
    int r = bpk_io_pread(source->fd, source->offset + offset, buffer, size, &n);
    return r == 0 && n < size ? -ESTALE : r;
}

struct target {
    int fd;
    uint64_t offset;
};

static int write_target(void *context, uint64_t offset, const void *bytes, size_t size) {
    const struct target *target = context;
    return bpk_io_pwrite(target->fd, target->offset + offset, bytes, size);
}

/* A file without a name beside the new pack: there is room where that will be. */
static int make_scratch(const char *out, int *ret_fd) {
    _cleanup_close_ int folder = -1;
    _cleanup_free_ char *name = NULL;
    int r = bpk_open_folder(out, &folder, &name);
    if (r < 0)
        return r;
    int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* Puts the array into the scratch file, of which the tensor is then a part. */
static int put_in_order(struct bpk_cli_newpack *pack, struct bpk_cli_new_tensor *tensor,
                        const struct bpk_npy *npy, int fd, const char *out) {
    struct source from = {fd, npy->header_size};
    const struct bpk_source source = {read_source, &from};
    int r = pack->scratch > 0 ? 0 : make_scratch(out, &pack->scratch);
    struct target target = {pack->scratch, pack->scratch_size};
    if (r == 0)
        r = bpk_npy_reorder(npy, &source, write_target, &target);
    tensor->in_scratch = true;
    tensor->offset = pack->scratch_size;
    pack->scratch_size += npy->size;
    return r;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static bool read_header(const struct bpk_cli_newpack *pack, const char *file, int fd,
                        uint64_t file_size, struct bpk_npy *npy) {
    struct bpk_diag diag = {.sentence = "the header is not whole"};
    char sentence[100];
    _cleanup_free_ char *head = malloc(BPK_NPY_MAX_HEADER);
    size_t n;
    int r = head ? bpk_io_pread(fd, 0, head, BPK_NPY_MAX_HEADER, &n) : -ENOMEM;
    if (r < 0)
        return bpk_cli_folder_error(pack->from, file, strerror(-r));
    r = bpk_npy_parse(head, n, npy, &diag);
    if (r < 0)
        return bpk_cli_folder_error(pack->from, file, diag.sentence);
    if (file_size - npy->header_size == npy->size)
        return true;
    (void)snprintf(sentence, sizeof(sentence),
                   "has %" PRIu64 " bytes of data, its header says %" PRIu64,
                   file_size - npy->header_size, npy->size);
    return bpk_cli_folder_error(pack->from, file, sentence);
}

static bool describe(const struct bpk_npy *npy, struct bpk_cli_new_tensor *tensor) {
    struct bpk_descriptor *descriptor = &tensor->descriptor;
    (void)bpk_npy_dtype(npy, NULL, &descriptor->dtype);
    descriptor->rank = npy->rank;
    descriptor->dims = calloc((size_t)npy->rank + 1, sizeof(*descriptor->dims));
    if (descriptor->dims)
        memcpy(descriptor->dims, npy->dims, npy->rank * sizeof(npy->dims[0]));
    return descriptor->dims != NULL;
}

static bool take_file(struct bpk_cli_newpack *pack, const char *file, const char *stem,
                      const char *out) {
    char name[NAME_MAX + 1];
    size_t len;
    struct bpk_npy npy;
    _cleanup_close_ int fd = -1;
    if (!bpk_rules_is_spelled_right(stem, name, &len))
        return bpk_cli_folder_error(pack->from, file,
                                    "this is not how the name of a tensor is spelled: see bpk(5)");
    struct bpk_cli_new_tensor *tensor = bpk_cli_newpack_add(pack);
    if (!tensor)
        return false;
    int r = bpk_cli_newpack_open(pack, file, &fd, &tensor->stat);
    if (r < 0)
        return bpk_cli_folder_error(pack->from, file, bpk_cli_newpack_reason(r));
    if (!read_header(pack, file, fd, (uint64_t)tensor->stat.st_size, &npy))
        return false;
    tensor->file = strdup(file);
    tensor->name = malloc(len + 1);
    tensor->offset = npy.header_size;
    tensor->size = npy.size;
    if (!tensor->file || !tensor->name || !describe(&npy, tensor))
        return bpk_cli_folder_error(pack->from, file, "out of memory");
    memcpy(tensor->name, name, len);
    tensor->name_len = len;
    if (bpk_npy_needs_order(&npy))
        r = put_in_order(pack, tensor, &npy, fd, out);
    return r == 0 || bpk_cli_folder_error(pack->from, file, strerror(-r));
}

bool bpk_cli_import_npy(const char *path, const char *out, struct bpk_cli_newpack *pack) {
    struct bpk_cli_names names;
    pack->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (pack->folder < 0 || !bpk_cli_list_names(pack->folder, ".", &names)) {
        bpk_cli_error(path, "cannot read: %s", strerror(errno));
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < names.count && good; i++) {
        char copy[NAME_MAX + 1];
        struct bpk_str stem;
        if (!bpk_rules_array_stem(names.names[i], &stem)) {
            (void)bpk_cli_folder_error(path, names.names[i], "left out: it is no .npy file");
            continue;
        }
        (void)snprintf(copy, sizeof(copy), "%.*s", (int)stem.len, stem.bytes);
        good = take_file(pack, names.names[i], copy, out);
    }
    if (good && pack->count == 0) {
        bpk_cli_error(path, "there is no .npy file in it");
        good = false;
    }
    bpk_cli_names_clear(&names);
    return good;
}
