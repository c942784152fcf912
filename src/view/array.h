/* A tensor as the typed views see it: what it is, and where its bytes come from. */
#ifndef BPK_VIEW_ARRAY_H
#define BPK_VIEW_ARRAY_H

#include "bpk.h"

struct bpk_array {
    struct bpk_dtype dtype;
    uint32_t rank;
    const uint64_t *dims; /* outermost first; borrowed */
    uint64_t size;        /* bytes */
};

/* Whether its length is what its shape and dtype need. A QFloat's is as it is: its bytes are shown
 * in one dimension. */
bool bpk_array_is_whole(const struct bpk_array *array);

/* The bytes of one tensor, wherever they are. Any thread may call. */
struct bpk_source {
    /* Reads exactly `size` bytes at `offset`, all of them inside the tensor: 0 or -errno. */
    int (*read)(void *context, uint64_t offset, void *buffer, size_t size);
    void *context;
};

#endif
