/* The header of a safetensors file, read. Pure.
 *
 * Taken is every dtype that Burn has; others are refused by name. What safetensors.h keeps in
 * __metadata__ in words becomes what it was: quantised tensors and scalars. */
#ifndef BPK_VIEW_SAFETENSORS_READ_H
#define BPK_VIEW_SAFETENSORS_READ_H

#include "view/json_read.h"

struct bpk_safetensors_entry {
    char *name; /* owned, not terminated */
    size_t name_len;
    struct bpk_descriptor descriptor;
    uint64_t start; /* relative to the first byte after the header */
    uint64_t end;
};

struct bpk_safetensors_file {
    struct bpk_safetensors_entry *entries;
    size_t count;
    struct bpk_string_map metadata;
    struct bpk_scalar_map scalars;
};

/* `header` is the JSON, `data_size` the bytes that follow it. 0; -EINVAL with `diag`; -ENOMEM. */
int bpk_safetensors_parse(struct bpk_str header, uint64_t data_size,
                          struct bpk_safetensors_file *ret_file, struct bpk_diag *diag);
void bpk_safetensors_file_clear(struct bpk_safetensors_file *file);

#endif
