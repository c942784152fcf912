/* Small helpers that every module may use: clean-up attributes and checked arithmetic.
 * Not for anything that knows about packs. */
#ifndef BPK_PACK_UTIL_H
#define BPK_PACK_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static inline void bpk_cleanup_freep(void *p) {
    free(*(void **)p);
}

static inline void bpk_cleanup_closep(const int *fd) {
    if (*fd >= 0)
        close(*fd);
}

/* The variable is freed (closed) when it goes out of scope; hand it on with bpk_steal_*. */
#define _cleanup_free_  __attribute__((cleanup(bpk_cleanup_freep)))
#define _cleanup_close_ __attribute__((cleanup(bpk_cleanup_closep)))

#define bpk_steal_ptr(p)                                                                           \
    ({                                                                                             \
        __auto_type bpk_stolen_ = (p);                                                             \
        (p) = NULL;                                                                                \
        bpk_stolen_;                                                                               \
    })

static inline int bpk_steal_fd(int *fd) {
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#define BPK_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* False on overflow; *ret is then untouched. */
static inline bool bpk_add_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *ret = sum;
    return true;
}

static inline bool bpk_mul_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *ret = product;
    return true;
}

/* Makes room for one more item in a growing array. Items are never allocated ahead of need by
 * more than a half, so that a count from a file never sizes anything. 0 or -ENOMEM. */
int bpk_grow(void **items, size_t *capacity, size_t count, size_t item_size);

#endif
