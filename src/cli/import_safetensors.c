#include "cli/import.h"

#include "cli/cli.h"
#include "pack/io.h"
#include "pack/util.h"
#include "view/safetensors.h"
#include "view/safetensors_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

enum { LENGTH_SIZE = 8 };

static bool read_header(const char *path, int fd, uint64_t file_size, char **ret_header,
                        size_t *ret_size) {
    uint8_t bytes[LENGTH_SIZE];
    uint64_t size = 0;
    size_t n;
    int r = bpk_io_pread(fd, 0, bytes, sizeof(bytes), &n);
    for (size_t i = 0; r == 0 && i < n; i++)
        size |= (uint64_t)bytes[i] << 8 * i;
    if (r == 0 && (n < LENGTH_SIZE || size > file_size - LENGTH_SIZE)) {
        bpk_cli_error(path, "it is no safetensors file, or cut: it ends before its header does");
        return false;
    }
    if (r == 0 && size > BPK_SAFETENSORS_MAX_HEADER) {
        bpk_cli_error(path, "its header has %" PRIu64 " bytes, more than any reader takes", size);
        return false;
    }
    _cleanup_free_ char *header = malloc((size_t)size + 1);
    if (r == 0)
        r = header ? bpk_io_pread(fd, LENGTH_SIZE, header, (size_t)size, &n) : -ENOMEM;
    if (r < 0 || n < size) {
        bpk_cli_error(path, "cannot read: %s", strerror(r < 0 ? -r : EIO));
        return false;
    }
    *ret_header = bpk_steal_ptr(header);
    *ret_size = (size_t)size;
    return true;
}

static bool take(struct bpk_cli_newpack *pack, struct bpk_safetensors_entry *entry,
                 uint64_t data_start, const struct stat *file) {
    struct bpk_cli_new_tensor *tensor = bpk_cli_newpack_add(pack);
    if (!tensor)
        return false;
    tensor->name = bpk_steal_ptr(entry->name);
    tensor->name_len = entry->name_len;
    tensor->descriptor = entry->descriptor;
    entry->descriptor = (struct bpk_descriptor){0};
    tensor->has_place = true;
    tensor->start = entry->start;
    tensor->end = entry->end;
    tensor->offset = data_start + entry->start;
    tensor->size = entry->end - entry->start;
    tensor->stat = *file;
    tensor->file = strdup(pack->from);
    if (!tensor->file)
        bpk_cli_error(NULL, "out of memory");
    return tensor->file != NULL;
}

bool bpk_cli_import_safetensors(const char *path, struct bpk_cli_newpack *pack) {
    struct bpk_safetensors_file file;
    struct bpk_diag diag = {.sentence = ""};
    struct stat attr;
    _cleanup_free_ char *header = NULL;
    _cleanup_close_ int fd = -1;
    size_t size;
    pack->folder = AT_FDCWD;
    int r = bpk_cli_newpack_open(pack, path, &fd, &attr);
    if (r < 0) {
        bpk_cli_error(path, "cannot read: %s", bpk_cli_newpack_reason(r));
        return false;
    }
    if (!read_header(path, fd, (uint64_t)attr.st_size, &header, &size))
        return false;
    uint64_t data_start = LENGTH_SIZE + (uint64_t)size;
    r = bpk_safetensors_parse((struct bpk_str){header, size}, (uint64_t)attr.st_size - data_start,
                              &file, &diag);
    if (r < 0) {
        bpk_cli_error(path, "%s", diag.sentence);
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < file.count && good; i++)
        good = take(pack, &file.entries[i], data_start, &attr);
    pack->metadata = file.metadata;
    pack->scalars = file.scalars;
    file.metadata = (struct bpk_string_map){0};
    file.scalars = (struct bpk_scalar_map){0};
    bpk_safetensors_file_clear(&file);
    return good;
}
