/* The head of model.safetensors: which tensors of a plan are in it, and in what order. */
#ifndef BPK_EDIT_EXPORT_SAFETENSORS_H
#define BPK_EDIT_EXPORT_SAFETENSORS_H

#include "edit/commit.h"

/* What is not in the file. */
struct bpk_left_out {
    char *name; /* file name of a tensor, or a key of __metadata__; owned */
    const char *reason;
};

struct bpk_safetensors_layout {
    struct bpk_outbuf head;
    size_t *order; /* indexes of the plan's tensors, as their data lies behind the head, no gaps */
    size_t count;
    struct bpk_left_out *left_out;
    size_t left_out_count;
    size_t left_out_capacity;
};

/* Lays out what was gathered; `plan` is the commit's, or with `commit` NULL that of a pack. Sorts
 * the plan's maps. 0, -ENOMEM, -EFBIG. */
int bpk_safetensors_lay_out(struct bpk_plan *plan, const struct bpk_commit *commit,
                            struct bpk_safetensors_layout *ret_layout);
void bpk_safetensors_layout_clear(struct bpk_safetensors_layout *layout);

#endif
