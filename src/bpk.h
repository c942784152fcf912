/* libbpk: reads Burn checkpoint packs (burnpack, .bpk).
 *
 * What it does: opens a pack, checks it, and answers for its tensors, user metadata and scalars;
 * tensor bytes are read lazily with pread. What it does not do: it never logs, prints, exits or
 * keeps globals, and it never maps the pack into memory.
 *
 * Errors: functions return 0 or a negative errno unless they say otherwise; outputs come last, are
 * named ret_… and are untouched on failure. A pack is immutable once open: any number of threads
 * may use it without a lock. Strings from a pack are UTF-8 with a length, may hold NUL, and live as
 * long as the pack. Sizes and offsets are bytes.
 */
#ifndef BPK_H
#define BPK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of the format (Burn's reader, crates/burn-pack/src/base.rs). */
#define BPK_MAX_METADATA UINT32_C(104857600)    /* bytes of CBOR: 100 MiB */
#define BPK_MAX_TENSOR   UINT64_C(10737418240)  /* bytes of one tensor: 10 GiB */
#define BPK_MAX_TENSORS  UINT32_C(100000)       /* tensors of one pack */
#define BPK_MAX_FILE     UINT64_C(107374182400) /* bytes of one pack: 100 GiB */
#define BPK_ALIGNMENT    256 /* tensors start on multiples of this since Burn 0.20.0-pre.5 */

#define BPK_NO_OFFSET UINT64_MAX

/* What went wrong, for people. */
struct bpk_diag {
    int code;           /* the negative errno that was returned */
    uint64_t offset;    /* byte of the file, or BPK_NO_OFFSET */
    char sentence[400]; /* printable, no final stop; opens with what is wrong, not with the file */
};

struct bpk_str {
    const char *bytes; /* not terminated */
    size_t len;
};

/* ---- dtypes ---------------------------------------------------------------------------------- */

enum bpk_kind {
    BPK_F64,
    BPK_F32,
    BPK_FLEX32, /* stored as F32 */
    BPK_F16,
    BPK_BF16,
    BPK_I64,
    BPK_I32,
    BPK_I16,
    BPK_I8,
    BPK_U64,
    BPK_U32,
    BPK_U16,
    BPK_U8,
    BPK_BOOL,
    BPK_QFLOAT,
};

/* How a Bool is stored; TEXT is the spelling "Bool" of Burn up to 0.21.0-pre.2 (one byte each). */
enum bpk_bool_store { BPK_BOOL_TEXT, BPK_BOOL_NATIVE, BPK_BOOL_U8, BPK_BOOL_U32 };

enum bpk_quant_value {
    BPK_Q8F,
    BPK_E5M2,
    BPK_E4M3,
    BPK_Q4F,
    BPK_E2M1,
    BPK_Q2F,
    BPK_Q8S,
    BPK_Q4S,
    BPK_Q2S,
};

enum bpk_scale { BPK_SCALE_F32, BPK_SCALE_F16, BPK_SCALE_BF16, BPK_SCALE_UE8M0, BPK_SCALE_UE4M3 };

/* STORE_U32 is the spelling of Burn 0.19, equal to PACKED_U32 along the innermost dimension. */
enum bpk_quant_store {
    BPK_STORE_NATIVE,
    BPK_STORE_PACKED_NATIVE,
    BPK_STORE_PACKED_U32,
    BPK_STORE_U32,
};

enum bpk_quant_mode { BPK_MODE_SYMMETRIC, BPK_MODE_LOOKUP };

/* LEVELLED: Burn 0.19 to 0.22.0-pre.2, with "param" and "level"; SCALED: later, with "tensor" and
 * "block". */
enum bpk_scheme_form { BPK_SCHEME_SCALED, BPK_SCHEME_LEVELLED };

enum bpk_quant_level { BPK_LEVEL_TENSOR, BPK_LEVEL_BLOCK, BPK_LEVEL_BLOCK_TENSOR };

/* A QuantScheme in any of its four forms. In the LEVELLED forms has_tensor and has_block say the
 * same as `level`, with `param` as the scale. */
struct bpk_scheme {
    enum bpk_scheme_form form;
    enum bpk_quant_value value;
    enum bpk_quant_store store;
    enum bpk_quant_mode mode;
    enum bpk_quant_level level; /* LEVELLED only */
    uint64_t packed_dim;        /* PACKED_*: dimension that is packed, counted from the innermost */
    bool has_tensor;            /* one scale for the whole tensor, of dtype tensor_scale */
    enum bpk_scale tensor_scale;
    bool has_block; /* a scale for each block, of dtype block_scale */
    enum bpk_scale block_scale;
    uint8_t block_len; /* how many of block_dims count; as in the file, may be over 5 */
    uint8_t block_dims[5];
};

struct bpk_dtype {
    enum bpk_kind kind;
    enum bpk_bool_store bool_store; /* BPK_BOOL only */
    struct bpk_scheme scheme;       /* BPK_QFLOAT only */
};

/* "F32", "Bool", "QFloat" …: the variant's name in the pack. */
const char *bpk_kind_name(enum bpk_kind kind);
const char *bpk_bool_store_name(enum bpk_bool_store store); /* "Native", "U8", "U32", "Bool" */
const char *bpk_quant_value_name(enum bpk_quant_value value);
const char *bpk_scale_name(enum bpk_scale scale);
const char *bpk_quant_store_name(enum bpk_quant_store store); /* "PackedU32" ... */
const char *bpk_quant_mode_name(enum bpk_quant_mode mode);

/* Bytes of one element; 0 for QFloat, whose elements have no fixed size. */
unsigned bpk_dtype_size(const struct bpk_dtype *dtype);

/* NumPy's dtype string: "<f4", "|b1" … BF16 is "<V2", QFloat "|u1" in one dimension. */
const char *bpk_dtype_numpy(const struct bpk_dtype *dtype);

/* ---- packs ----------------------------------------------------------------------------------- */

struct bpk_pack; /* reference-counted, immutable */

enum bpk_layout {
    BPK_LAYOUT_ALIGNED, /* data section on a multiple of 256 (Burn 0.20.0-pre.5 and later) */
    BPK_LAYOUT_LEGACY,  /* data section right after the CBOR (Burn 0.19) */
};

struct bpk_open_options {
    /* Take this layout instead of telling it from the content. */
    bool force_layout;
    enum bpk_layout layout;
    /* Open what is whole in a truncated pack: tensors whose range is not inside the file are left
     * out, and counted among the pack's problems. */
    bool salvage;
};

/* Opens exactly the path given and reads header and CBOR; no byte of a tensor. `options` and
 * `ret_diag` may be NULL. Refusals are -EBADMSG (what Burn's reader refuses), -EISDIR or -EINVAL (a
 * directory, or something else that is no regular file), -ENOMEM, or the errno of the call that
 * failed; then *ret_diag says why. The caller owns the pack, and drops it with bpk_pack_unref. */
int bpk_pack_open(const char *path, const struct bpk_open_options *options,
                  struct bpk_pack **ret_pack, struct bpk_diag *ret_diag);

struct bpk_pack *bpk_pack_ref(struct bpk_pack *pack); /* returns `pack` */
void bpk_pack_unref(struct bpk_pack *pack);           /* NULL is fine */

struct bpk_pack_info {
    uint16_t version;
    uint32_t metadata_size; /* as the header says */
    uint32_t cbor_size;     /* of the CBOR item itself; the rest of metadata_size is ignored */
    enum bpk_layout layout;
    uint64_t data_start; /* absolute offset of the data section */
    uint64_t data_end;   /* end of the last tensor, absolute; data_start if there is none */
    uint32_t tensors;
    uint32_t metadata_entries;
    uint32_t scalars;
};

void bpk_pack_get_info(const struct bpk_pack *pack, struct bpk_pack_info *ret_info);

/* The pack's file as it was when opened: owner, mode, times, size. */
const struct stat *bpk_pack_stat(const struct bpk_pack *pack);

/* The open file, for fstatvfs and the like; the pack keeps it. */
int bpk_pack_fd(const struct bpk_pack *pack);

/* Whether the file has been changed in place since it was opened (device, inode, size or mtime). */
bool bpk_pack_is_changed(const struct bpk_pack *pack);

/* ---- tensors, in bytewise order of their names ------------------------------------------------
 */

struct bpk_tensor {
    struct bpk_str name;
    enum bpk_kind kind;
    bool has_param_id;
    uint64_t param_id;
    uint64_t start; /* absolute offset in the file */
    uint64_t end;   /* absolute, exclusive */
    uint32_t rank;  /* number of dimensions */
};

/* `index` < bpk_pack_info.tensors. */
void bpk_pack_tensor(const struct bpk_pack *pack, uint32_t index, struct bpk_tensor *ret_tensor);
struct bpk_str bpk_pack_tensor_name(const struct bpk_pack *pack, uint32_t index);
void bpk_pack_tensor_dtype(const struct bpk_pack *pack, uint32_t index,
                           struct bpk_dtype *ret_dtype);

/* Walks the dimensions, outermost first. bpk_shape_next returns false after the last one. A shape
 * lives as long as its pack. */
struct bpk_shape {
    const uint64_t *dims; /* if not NULL, the dimensions left to walk are here */
    const uint8_t *block; /* from here on for the iterator's own use */
    size_t size;
    size_t pos;
    uint32_t left;
    uint32_t chunk;
    bool is_bytes;
};
struct bpk_shape bpk_pack_tensor_shape(const struct bpk_pack *pack, uint32_t index);
bool bpk_shape_next(struct bpk_shape *shape, uint64_t *ret_dim);

/* -ENOENT if there is no tensor of that name. */
int bpk_pack_find_tensor(const struct bpk_pack *pack, struct bpk_str name, uint32_t *ret_index);

/* The first tensor whose name is not less than `name`, bytewise; the number of tensors if none. */
uint32_t bpk_pack_lower_bound(const struct bpk_pack *pack, struct bpk_str name);

/* Reads up to `size` bytes at `offset` within the tensor; short only at its end. -EIO if the file
 * was changed or cut since it was opened. */
int bpk_pack_read(const struct bpk_pack *pack, uint32_t index, uint64_t offset, void *buffer,
                  size_t size, size_t *ret_read);

/* Lets the kernel forget the pages of the file that a range of the tensor lies in. A hint. */
void bpk_pack_drop_cache(const struct bpk_pack *pack, uint32_t index, uint64_t offset,
                         uint64_t size);

/* ---- user metadata and scalars, in bytewise order of their keys -------------------------------
 */

/* `index` < bpk_pack_info.metadata_entries. */
void bpk_pack_metadata(const struct bpk_pack *pack, uint32_t index, struct bpk_str *ret_key,
                       struct bpk_str *ret_value);

/* -ENOENT if there is no such key. */
int bpk_pack_find_metadata(const struct bpk_pack *pack, struct bpk_str key, uint32_t *ret_index);

enum bpk_scalar_kind { BPK_SCALAR_INT, BPK_SCALAR_UINT, BPK_SCALAR_FLOAT, BPK_SCALAR_BOOL };

struct bpk_scalar {
    struct bpk_str name;
    enum bpk_scalar_kind kind;
    /* INT: two's complement; FLOAT: the bits of an IEEE 754 double; BOOL: 0 or 1. */
    uint64_t bits;
};

const char *bpk_scalar_kind_name(enum bpk_scalar_kind kind); /* "Int", "UInt", "Float", "Bool" */
/* `index` < bpk_pack_info.scalars. */
void bpk_pack_scalar(const struct bpk_pack *pack, uint32_t index, struct bpk_scalar *ret_scalar);

/* ---- what is odd about a pack that opens ------------------------------------------------------
 */

/* Writes one sentence about a fault of the tensor (length, overlap, alignment) and returns true;
 * false, with nothing written, if there is none. */
bool bpk_pack_tensor_problem(const struct bpk_pack *pack, uint32_t index, char *buffer,
                             size_t size);

/* Called for each finding; `tensor` is BPK_NO_TENSOR for what concerns the whole pack. */
#define BPK_NO_TENSOR UINT32_MAX
typedef void bpk_problem_fn(void *context, uint32_t tensor, const char *sentence);

/* Reports every fault. This one reads the padding (not the tensors), which may take a while.
 * Returns 0, -ENOMEM, or -EIO if the file could not be read. */
int bpk_pack_check(const struct bpk_pack *pack, bpk_problem_fn *report, void *context);

/* Reports what is unusual but no fault: the v0.19 layout, zero bytes after the CBOR, a quantised
 * tensor whose length no formula explains. */
void bpk_pack_notes(const struct bpk_pack *pack, bpk_problem_fn *report, void *context);

#ifdef __cplusplus
}
#endif

#endif
