/* A pack that is to be written: what is in it, and where each byte will lie.
 *
 * A plan is filled in (from a base pack, then changed), placed, and then written by writer.h.
 * Placing is pure: it computes every offset and the whole CBOR before a byte is written. Whatever
 * the plan points to is borrowed and must outlive it.
 */
#ifndef BPK_PACK_PLAN_H
#define BPK_PACK_PLAN_H

#include "pack/outbuf.h"
#include "pack/pack_internal.h"

/* A run of bytes of a tensor: of a file, or zeros where fd is -1. */
struct bpk_run {
    int fd;
    uint64_t offset; /* in the file */
    uint64_t size;   /* at least 1 */
};

/* Says what the tensor's bytes from `offset` on are, as far as one run goes. Its file stays open
 * until a run of another tensor is asked for. 0 or -errno. */
typedef int bpk_next_run_fn(void *context, uint64_t offset, struct bpk_run *ret_run);

struct bpk_plan_tensor {
    struct bpk_str name;

    /* The descriptor: dtype, shape and unknown keys are given here, or are those of tensor `index`
     * of `from` if that is not NULL. */
    const struct bpk_pack *from;
    uint32_t index;
    struct bpk_str dtype_cbor; /* one CBOR item */
    struct bpk_shape shape;
    struct bpk_str unknown_cbor; /* whole map entries, `unknown_count` of them */
    size_t unknown_count;
    bool has_param_id;
    uint64_t param_id;

    /* The data: `size` bytes from `next_run`, or if that is NULL those of tensor `data_index` of
     * `data_from`. */
    uint64_t size;
    bpk_next_run_fn *next_run;
    void *context;
    bool by_length; /* runs of whole files: copied like the base's, and not read back either */
    const struct bpk_pack *data_from;
    uint32_t data_index;

    uint64_t start; /* placed: relative to the data section */
};

struct bpk_plan_entry {
    struct bpk_str key;
    struct bpk_str value;
};

struct bpk_plan {
    struct bpk_pack *base; /* NULL for a pack made from nothing; unknown top keys come from it */

    struct bpk_plan_tensor *tensors; /* in the order of their data */
    size_t tensor_count;
    struct bpk_plan_entry *metadata;
    size_t metadata_count;
    struct bpk_scalar *scalars;
    size_t scalar_count;
    char *scalar_names; /* own, of bpk_plan_own_scalars */
    bool drops_strays;  /* the base has bytes between its tensors that must not come along, the */
    uint64_t stray;     /* first of them here; known by bpk_replace */

    /* placed */
    bool keeps_data;        /* the base's data section as it is */
    bool joins_padding;     /* what lies between neighbours of the base may come along with them */
    struct bpk_outbuf head; /* header, CBOR, and what is between that and the data section */
    uint32_t cbor_size;
    uint64_t data_start;
    uint64_t data_size;
};

/* A plan of what `base` holds: every tensor in the order of its data, all metadata and scalars.
 * Takes a reference to `base`. 0 or -ENOMEM. */
int bpk_plan_from_pack(struct bpk_pack *base, struct bpk_plan *ret_plan);

/* Makes copies of the scalars' names, so that they need not outlive this call. 0 or -ENOMEM. */
int bpk_plan_own_scalars(struct bpk_plan *plan);

void bpk_plan_clear(struct bpk_plan *plan);

/* Puts metadata and scalars in the order of their keys. */
void bpk_plan_sort_maps(struct bpk_plan *plan);

/* Sorts metadata and scalars, computes offsets and CBOR. `can_clone`: the new file will be able to
 * share blocks with the base's, so the data section is placed congruent to the base's modulo
 * BPK_CLONE_BLOCK. -EFBIG where a limit of the format is exceeded, -EEXIST for duplicate names,
 * -ENOMEM; `diag` then says which. */
int bpk_plan_place(struct bpk_plan *plan, bool can_clone, struct bpk_diag *diag);

/* Length of the file that is placed. */
uint64_t bpk_plan_file_size(const struct bpk_plan *plan);

#endif
