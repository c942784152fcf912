/* The CBOR block of a pack as tables: tensors, user metadata, scalars.
 *
 * The tables hold offsets into the block, not copies, so that memory stays within a small multiple
 * of the block whatever it holds. Offsets of tensors are as in the file: relative to the data
 * section. Unknown keys stay in the block as they are. The block's own bytes are changed in one
 * case only: a name, key or value in chunks is made definite in place.
 */
#ifndef BPK_PACK_META_H
#define BPK_PACK_META_H

#include "pack/cbor_reader.h"
#include "pack/outbuf.h"

enum {
    BPK_TENSOR_HAS_PARAM_ID = 1 << 0,
    BPK_TENSOR_OVERLAPS = 1 << 1,     /* set by pack.c; `partner` says with which */
    BPK_TENSOR_SHAPE_BYTES = 1 << 2,  /* the shape is a byte string */
    BPK_TENSOR_MODERN_DTYPE = 1 << 3, /* bpk_dtype_is_modern */
    BPK_TENSOR_HAS_UNKNOWN = 1 << 4,  /* the descriptor has keys that we do not know */
};

struct bpk_meta_tensor {
    uint32_t name;       /* head of a definite text */
    uint32_t descriptor; /* where it starts, tags included */
    uint32_t dtype;      /* head of the dtype */
    uint32_t shape;      /* first dimension */
    uint32_t rank;
    uint64_t start; /* relative to the data section */
    uint64_t end;
    uint64_t param_id;
    uint64_t elements; /* product of the shape, 1 for an empty one */
    uint32_t partner;
    uint8_t kind;
    uint8_t flags;
    bool elements_overflow;
};

struct bpk_meta_entry {
    uint32_t key; /* heads of definite texts */
    uint32_t value;
};

struct bpk_meta_scalar {
    uint32_t key;
    uint32_t kind;
    uint64_t bits;
};

/* Entries of a map, as they stand in the block. */
struct bpk_meta_range {
    uint32_t start;
    uint32_t end;
};

/* Between the three fields that the top map may have there are at most four runs of others. */
enum { BPK_META_UNKNOWN_MAX = 4 };

struct bpk_meta {
    uint8_t *block;
    size_t block_size; /* of the CBOR item; what followed it is gone */
    bool tail_is_zero; /* the bytes of metadata_size after the item */
    bool has_metadata; /* the key was there */
    bool has_scalars;

    /* keys of the top map that we do not know, with their values */
    struct bpk_meta_range unknown[BPK_META_UNKNOWN_MAX];
    size_t unknown_runs;
    size_t unknown_entries;

    /* sorted bytewise by name or key, without duplicates */
    struct bpk_meta_tensor *tensors;
    size_t tensor_count;
    struct bpk_meta_entry *entries;
    size_t entry_count;
    struct bpk_meta_scalar *scalars;
    size_t scalar_count;

    /* how many names, keys were there more than once and dropped; the last one counts */
    size_t tensor_duplicates;
    size_t entry_duplicates;
    size_t scalar_duplicates;
};

/* Decodes `block` of `size` bytes, which lies at `file_offset` of the file. Takes ownership of
 * `block` (from malloc) on success and failure alike. 0, -EBADMSG or -ENOMEM. */
int bpk_meta_parse(uint8_t *block, size_t size, uint64_t file_offset, struct bpk_meta *ret_meta,
                   struct bpk_diag *diag);

void bpk_meta_clear(struct bpk_meta *meta);

struct bpk_str bpk_meta_text(const struct bpk_meta *meta, uint32_t head);

/* Bytewise order; a prefix comes first. */
int bpk_str_compare(struct bpk_str a, struct bpk_str b);

/* Appends the keys of a descriptor that we do not know, with their values, as they stand in the
 * block; returns how many entries that were. */
size_t bpk_meta_unknown(const struct bpk_meta *meta, const struct bpk_meta_tensor *tensor,
                        struct bpk_outbuf *out);

/* The dtype as it stands in the block. */
struct bpk_str bpk_meta_dtype_cbor(const struct bpk_meta *meta,
                                   const struct bpk_meta_tensor *tensor);

struct bpk_shape bpk_meta_shape(const struct bpk_meta *meta, const struct bpk_meta_tensor *tensor);
/* "[64, 1, 3, 3]", cut where it is long. */
void bpk_shape_show(struct bpk_shape shape, char *out, size_t size);

void bpk_meta_dtype(const struct bpk_meta *meta, const struct bpk_meta_tensor *tensor,
                    struct bpk_dtype *ret_dtype);

#endif
