/* A pack that is made from other files: what is to be in it, and writing it in one step. */
#ifndef BPK_CLI_NEWPACK_H
#define BPK_CLI_NEWPACK_H

#include "pack/outbuf.h"
#include "view/json_read.h"

#include <sys/stat.h>

/* A tensor whose bytes are a range of a file. All pointers are owned. */
struct bpk_cli_new_tensor {
    char *name;
    size_t name_len;
    struct bpk_descriptor descriptor;
    bool has_place; /* it comes before those without, in the order of `start`, then `end` */
    uint64_t start;
    uint64_t end;
    char *file;      /* in the folder of the new pack's files */
    bool in_scratch; /* `offset` is in the scratch file instead */
    uint64_t offset; /* of the bytes in the file */
    uint64_t size;
    struct stat stat;             /* of the file; it must not change */
    struct bpk_outbuf dtype_cbor; /* own */
};

struct bpk_cli_newpack {
    const char *from; /* the folder or file that messages name */
    int folder;       /* what `file` of a tensor is relative to: owned, or AT_FDCWD */
    struct bpk_cli_new_tensor *tensors;
    size_t count;
    size_t capacity;
    struct bpk_string_map metadata;
    struct bpk_scalar_map scalars;
    int scratch; /* if over 0: a file without a name, for bytes that had to be put in order */
    uint64_t scratch_size;
    int open; /* own: the file of the tensor that is being copied, -1: none */
    const struct bpk_cli_new_tensor *opened;
};

/* Room for one more tensor, zeroed; NULL, with a message, if there is no memory. */
struct bpk_cli_new_tensor *bpk_cli_newpack_add(struct bpk_cli_newpack *pack);

/* Opens a file of it, which must be a regular one. 0 or -errno; the caller closes. */
int bpk_cli_newpack_open(const struct bpk_cli_newpack *pack, const char *file, int *ret_fd,
                         struct stat *ret_stat);

/* What is wrong with a file that could not be opened; `r` is the above function's. */
const char *bpk_cli_newpack_reason(int r);

/* Puts the tensors in order and writes the pack to `path`, whole or not at all. Replaces what is
 * there only with `force`, and no pack that somebody edits. False with a message. */
bool bpk_cli_newpack_write(struct bpk_cli_newpack *pack, const char *path, bool force);

void bpk_cli_newpack_clear(struct bpk_cli_newpack *pack);

#endif
