/* Makes packs for the tests, good and broken, in memory and as temporary files.
 *
 * Two layers: `struct bytes` with helpers that emit CBOR, for blocks of any shape; and `struct
 * packspec`, which collects tensors, metadata and scalars and lays a whole file out, aligned or
 * legacy, as Burn's writers do. Anything may be set by hand to break it. Failures abort the test.
 */
#ifndef TESTS_UNIT_PACKBUILD_H
#define TESTS_UNIT_PACKBUILD_H

#include "bpk.h"

/* ---- bytes and CBOR -------------------------------------------------------------------------- */

struct bytes {
    uint8_t *data; /* owned */
    size_t len;
    size_t capacity;
};

void bytes_clear(struct bytes *b);
void bytes_add(struct bytes *b, const void *data, size_t len);
void bytes_fill(struct bytes *b, uint8_t value, size_t count);
void bytes_hex(struct bytes *b, const char *hex); /* spaces are skipped */
struct bytes bytes_from_hex(const char *hex);

enum { CBOR_UINT, CBOR_NEGINT, CBOR_BYTES, CBOR_TEXT, CBOR_ARRAY, CBOR_MAP, CBOR_TAG };

/* A head with the shortest argument, and one whose argument has 1, 2, 4 or 8 bytes. */
void cbor_head(struct bytes *b, unsigned major, uint64_t argument);
void cbor_wide_head(struct bytes *b, unsigned major, uint64_t argument, unsigned width);
void cbor_text(struct bytes *b, const char *text);
void cbor_text_n(struct bytes *b, const char *text, size_t len);

/* ---- packs ----------------------------------------------------------------------------------- */

enum { PACK_MAX_RANK = 16 };

struct packspec {
    enum bpk_layout layout;
    uint16_t version;
    struct bytes tensors; /* name and descriptor, one after the other */
    struct bytes metadata;
    struct bytes scalars;
    struct bytes unknown; /* whole entries of the top map, to follow the others */
    unsigned tensor_count;
    unsigned metadata_count;
    unsigned scalar_count;
    unsigned unknown_count;
    struct bytes tail; /* follows the CBOR inside metadata_size */
    struct bytes data; /* the data section */
    uint8_t padding;   /* fills the bytes before an aligned data section */
};

void spec_init(struct packspec *spec, enum bpk_layout layout);
void spec_clear(struct packspec *spec);

/* A tensor whose descriptor is given in full; `dtype` is CBOR in hex. No data is added. */
void spec_tensor_at(struct packspec *spec, struct bpk_str name, const char *dtype_hex,
                    const uint64_t *dims, unsigned rank, uint64_t start, uint64_t end,
                    const uint64_t *param_id);

/* A tensor whose `size` bytes are appended to the data where the layout wants them; byte i is
 * pattern_byte(its place in the data section). Dtype U8, one dimension. */
void spec_u8(struct packspec *spec, const char *name, size_t size);
void spec_u8_n(struct packspec *spec, struct bpk_str name, size_t size);

/* The same with another dtype and shape. */
void spec_tensor(struct packspec *spec, const char *name, const char *dtype_hex,
                 const uint64_t *dims, unsigned rank, size_t size, const uint64_t *param_id);

uint8_t pattern_byte(uint64_t place);

void spec_metadata(struct packspec *spec, const char *key, const char *value);
void spec_metadata_n(struct packspec *spec, struct bpk_str key, struct bpk_str value);
void spec_scalar(struct packspec *spec, const char *name, const char *value_hex);

/* The CBOR block alone, and the whole file. */
void spec_block(const struct packspec *spec, struct bytes *ret_block);
void spec_file(const struct packspec *spec, struct bytes *ret_file);

/* A pack of most things: quantised, all kinds of names, metadata, scalars, unknown keys. */
void spec_rich(struct packspec *spec);

/* ---- files ----------------------------------------------------------------------------------- */

enum { TEMP_PATH = 200 };

/* A new file of these bytes; the caller unlinks it. */
void temp_write(const void *data, size_t len, char path[TEMP_PATH]);
void temp_spec(const struct packspec *spec, char path[TEMP_PATH]);

/* Opens what the spec makes, which must succeed; the file is gone from its folder at once. */
struct bpk_pack *spec_open(const struct packspec *spec);
struct bpk_pack *spec_open_with(const struct packspec *spec,
                                const struct bpk_open_options *options);

/* 0 or the error of opening these bytes as a file; *ret_pack is NULL on failure. */
int bytes_open(const struct bytes *file, const struct bpk_open_options *options,
               struct bpk_pack **ret_pack, struct bpk_diag *ret_diag);

struct bpk_str str(const char *text);

#endif
