/* Reading the JSON texts that users write: sidecars, metadata.json, scalars.json.
 *
 * The one wrapper of jansson for reading. Refused, each with a sentence that names line and column
 * where they are known: what is no JSON, duplicate keys, unknown keys of a sidecar, numbers out of
 * range, values of the wrong kind. Integers may be numbers (below 2^63) or strings of digits (any
 * that fits 64 bits); a bare number from 2^63 on is refused with the advice to quote it.
 */
#ifndef BPK_VIEW_JSON_READ_H
#define BPK_VIEW_JSON_READ_H

#include "bpk.h"
#include "pack/outbuf.h"

/* How a text was taken. */
enum bpk_text_verdict {
    BPK_TEXT_GOOD,
    BPK_TEXT_EARLY_END, /* the start of good JSON: more may be on its way. Also the empty text */
    BPK_TEXT_BAD,
    BPK_TEXT_NO_MEMORY,
};

/* What a sidecar says. */
struct bpk_descriptor {
    struct bpk_dtype dtype;
    uint64_t *dims; /* owned, `rank` of them; NULL if rank is 0 */
    uint32_t rank;
    bool has_param_id;
    uint64_t param_id;
};

void bpk_descriptor_clear(struct bpk_descriptor *descriptor);

/* Whether two dtypes mean the same (all that counts for their kind is equal). */
bool bpk_dtype_equal(const struct bpk_dtype *a, const struct bpk_dtype *b);

/* Editable are "dtype", "shape" (both must be there) and "param_id" (null or absent: none).
 * "name", "nbytes", "data_offsets", "numpy" and "problem" are ignored whatever they hold. Any other
 * key is refused by name. On BPK_TEXT_BAD and EARLY_END `diag->sentence` says why. */
enum bpk_text_verdict bpk_sidecar_parse(struct bpk_str text, struct bpk_descriptor *ret_descriptor,
                                        struct bpk_diag *diag);

/* What a sidecar tells beside the descriptor: which tensor of which place it was written for. */
struct bpk_sidecar_origin {
    char *name; /* owned, not terminated; NULL: not said */
    size_t name_len;
    bool has_offsets;
    uint64_t start; /* relative to the data section that it lay in */
    uint64_t end;
    bool has_size;
    uint64_t size;
};
void bpk_sidecar_origin_clear(struct bpk_sidecar_origin *origin);

/* Reads "name", "data_offsets" and "nbytes"; what holds something else is as if it were not there.
 */
enum bpk_text_verdict bpk_sidecar_origin_parse(struct bpk_str text,
                                               struct bpk_sidecar_origin *ret_origin,
                                               struct bpk_diag *diag);

/* A list of key and value, in no order; all in one allocation of which the strings are parts. */
struct bpk_string_map {
    struct bpk_string_pair {
        struct bpk_str key;
        struct bpk_str value;
    } * pairs;
    size_t count;
    char *storage;
};
void bpk_string_map_clear(struct bpk_string_map *map);

/* An object whose values are all strings. */
enum bpk_text_verdict bpk_metadata_parse(struct bpk_str text, struct bpk_string_map *ret_map,
                                         struct bpk_diag *diag);

struct bpk_scalar_map {
    struct bpk_scalar *scalars; /* names point into `storage` */
    size_t count;
    char *storage;
};
void bpk_scalar_map_clear(struct bpk_scalar_map *map);

/* An object of {"Int": n}, {"UInt": n}, {"Float": x}, {"Bool": b}. A Float is a number (an integer
 * too: 1 is 1.0), or "NaN", "Infinity", "-Infinity", or "0x" and 16 hex digits for the bits of a
 * NaN. */
enum bpk_text_verdict bpk_scalars_parse(struct bpk_str text, struct bpk_scalar_map *ret_map,
                                        struct bpk_diag *diag);

#endif
