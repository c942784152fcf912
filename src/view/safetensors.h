/* The head of a safetensors file: all that is before the tensors' bytes. Pure.
 *
 * The format is that of github.com/huggingface/safetensors: the length of the header in 8 bytes,
 * the header (JSON, padded with spaces to a multiple of 8), then the tensors' bytes without a gap.
 * What it has no dtype for is kept in words, in the strings of __metadata__. */
#ifndef BPK_VIEW_SAFETENSORS_H
#define BPK_VIEW_SAFETENSORS_H

#include "pack/outbuf.h"
#include "pack/plan.h"
#include "view/array.h"

/* What the library takes as a header. */
#define BPK_SAFETENSORS_MAX_HEADER UINT64_C(100000000)

struct bpk_safetensors_tensor {
    struct bpk_str name;
    struct bpk_array array;
};

struct bpk_safetensors {
    /* In the order of their data; bpk_safetensors_takes is true of each, and names are unique. */
    const struct bpk_safetensors_tensor *tensors;
    size_t tensor_count;
    /* The user's metadata, in bytewise order of the keys. */
    const struct bpk_plan_entry *metadata;
    size_t metadata_count;
    const struct bpk_scalar *scalars;
    size_t scalar_count;
    /* Called for each key of our own that is left out because the user has it. May be NULL. */
    void (*left_out)(void *context, struct bpk_str key);
    void *context;
};

/* Whether the tensor can be in a safetensors file; if not, what it is or has, for a sentence that
 * begins with its name. */
bool bpk_safetensors_takes(struct bpk_str name, const struct bpk_array *array,
                           const char **ret_reason);

/* Compares two struct bpk_safetensors_tensor for qsort: the order in which the library writes them,
 * widest dtype first, then by name. Each then starts on a multiple of its items' size, which some
 * readers need. */
int bpk_safetensors_compare(const void *a, const void *b);

/* Writes length and header. Flex32 is F32 there, a Bool BOOL or (stored so) U32, a QFloat U8 in one
 * dimension. __metadata__ has the user's strings as they are, then
 *     "qfloat:NAME": "{\"dtype\": {\"QFloat\": …}, \"shape\": […]}"   as in a sidecar, and
 *     "scalar:NAME": "{\"UInt\": 3}"                                as in scalars.json.
 * *ret_data_size: bytes of all tensors. 0; -EFBIG if the header is larger than readers take;
 * -ENOMEM. On failure what is in `out` means nothing. */
int bpk_safetensors_head(const struct bpk_safetensors *file, struct bpk_outbuf *out,
                         uint64_t *ret_data_size);

#endif
