/* What pack.c and check.c share: the inside of struct bpk_pack. */
#ifndef BPK_PACK_PACK_INTERNAL_H
#define BPK_PACK_PACK_INTERNAL_H

#include "pack/header.h"
#include "pack/meta.h"

#include <stdatomic.h>

struct bpk_pack {
    atomic_uint references;
    int fd;
    struct stat stat; /* when it was opened */
    struct bpk_header header;
    struct bpk_meta meta;
    enum bpk_layout layout;
    uint64_t data_start;
    uint64_t data_size;           /* largest end of a tensor, relative to data_start */
    uint32_t *data_order;         /* indexes of the tensors by start, then end, then name */
    struct bpk_meta_tensor *lost; /* what salvage left out */
    size_t lost_count;
    size_t lost_capacity;
};

#endif
