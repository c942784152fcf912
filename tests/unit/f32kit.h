/* What the tests of float32 values share: tensors of made-up schemes, a source in memory. */
#ifndef TESTS_UNIT_F32KIT_H
#define TESTS_UNIT_F32KIT_H

#include "packbuild.h"
#include "suite.h"
#include "view/f32.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { NATIVE = BPK_STORE_NATIVE, PN = BPK_STORE_PACKED_NATIVE, PU32 = BPK_STORE_PACKED_U32 };
enum { U32 = BPK_STORE_U32, NONE = -1, F32 = BPK_SCALE_F32, F16 = BPK_SCALE_F16 };
enum { BF16 = BPK_SCALE_BF16, UE8M0 = BPK_SCALE_UE8M0, UE4M3 = BPK_SCALE_UE4M3 };

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline bool same(float a, float b) {
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

/* ---- a source that counts, and fails --------------------------------------------------------- */

struct memory {
    const uint8_t *bytes;
    size_t size;
    unsigned reads;
    uint64_t bytes_read;
    int fail_at; /* the read that fails, from 0; -1: none */
};

static inline int read_memory(void *context, uint64_t offset, void *buffer, size_t size) {
    struct memory *memory = context;
    HOLDS(size > 0 && offset <= memory->size && size <= memory->size - offset);
    if (memory->fail_at >= 0 && (unsigned)memory->fail_at == memory->reads)
        return -ESTALE;
    memory->reads++;
    memory->bytes_read += size;
    memcpy(buffer, memory->bytes + offset, size);
    return 0;
}

static inline struct memory memory_of(const struct bytes *bytes) {
    return (struct memory){.bytes = bytes->data, .size = bytes->len, .fail_at = -1};
}

static inline int read_range(const struct bpk_f32 *f32, struct memory *memory, uint64_t first,
                             size_t count, float *values) {
    struct bpk_source source = {.read = read_memory, .context = memory};
    return bpk_f32_read(f32, &source, first, count, values);
}

/* ---- schemes --------------------------------------------------------------------------------- */

/* `tensor` and `block` are scales or NONE. */
static inline struct bpk_dtype quantised(enum bpk_quant_value value, int store, uint64_t packed_dim,
                                         int tensor, int block, const char *block_dims) {
    struct bpk_scheme scheme = {
        .value = value,
        .store = (enum bpk_quant_store)store,
        .packed_dim = packed_dim,
        .has_tensor = tensor != NONE,
        .has_block = block != NONE,
        .block_len = (uint8_t)strlen(block_dims),
        .block_dims = {1, 1, 1, 1, 1},
    };
    if (scheme.has_tensor)
        scheme.tensor_scale = (enum bpk_scale)tensor;
    if (scheme.has_block)
        scheme.block_scale = (enum bpk_scale)block;
    for (int i = 0; i < scheme.block_len && i < 5; i++)
        scheme.block_dims[i] = (uint8_t)block_dims[i];
    return (struct bpk_dtype){.kind = BPK_QFLOAT, .scheme = scheme};
}

/* The same as Burn spelled it up to 0.22.0-pre.2. */
static inline struct bpk_dtype levelled(struct bpk_dtype dtype) {
    dtype.scheme.form = BPK_SCHEME_LEVELLED;
    dtype.scheme.level = dtype.scheme.has_block ? BPK_LEVEL_BLOCK : BPK_LEVEL_TENSOR;
    return dtype;
}

static inline struct bpk_array array_of(struct bpk_dtype dtype, const uint64_t *dims, uint32_t rank,
                                        uint64_t size) {
    return (struct bpk_array){.dtype = dtype, .rank = rank, .dims = dims, .size = size};
}

/* Random bytes for a tensor of this length. */
static inline struct bytes noise(uint64_t size, uint64_t *seed) {
    struct bytes bytes = {0};
    bytes_fill(&bytes, 0, (size_t)size);
    for (size_t i = 0; i < bytes.len; i++)
        bytes.data[i] = (uint8_t)suite_random(seed);
    return bytes;
}

/* Ranges of `whole`, by first and count, equal it. */
static inline void check_ranges(const struct bpk_f32 *f32, struct memory *memory,
                                const float *whole, uint64_t *seed) {
    uint64_t count = bpk_f32_count(f32);
    float *values = malloc((size_t)count * sizeof(*values) + sizeof(*values));
    ck_assert_ptr_nonnull(values);
    for (int k = 0; k < 40 && count > 0; k++) {
        uint64_t first = suite_random(seed) % count;
        uint64_t most = k % 4 == 0 ? count - first : (uint64_t)k;
        uint64_t n = suite_random(seed) % (most + 1);
        n = n < count - first ? n : count - first;
        values[n] = 42;
        HOLDS(read_range(f32, memory, first, (size_t)n, values) == 0);
        HOLDS(values[n] == 42);
        for (uint64_t i = 0; i < n; i++)
            HOLDS(same(values[i], whole[first + i]));
    }
    free(values);
}

#endif
