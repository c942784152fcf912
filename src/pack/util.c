#include "pack/util.h"

#include <errno.h>

int bpk_grow(void **items, size_t *capacity, size_t count, size_t item_size) {
    if (count < *capacity)
        return 0;
    size_t wanted = *capacity + *capacity / 2 + 16;
    size_t bytes;
    if (__builtin_mul_overflow(wanted, item_size, &bytes))
        return -ENOMEM;
    void *grown = realloc(*items, bytes);
    if (!grown)
        return -ENOMEM;
    *items = grown;
    *capacity = wanted;
    return 0;
}
