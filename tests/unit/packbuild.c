/* Makes packs for the tests: see packbuild.h. */
#include "packbuild.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- bytes and CBOR -------------------------------------------------------------------------- */

void bytes_clear(struct bytes *b) {
    free(b->data);
    *b = (struct bytes){0};
}

/* Room for `len` more bytes, which count at once. */
static uint8_t *bytes_grow(struct bytes *b, size_t len) {
    if (b->capacity - b->len < len) {
        b->capacity = b->capacity * 2 + len + 64;
        b->data = realloc(b->data, b->capacity);
        ck_assert_ptr_nonnull(b->data);
    }
    b->len += len;
    return b->data + b->len - len;
}

void bytes_add(struct bytes *b, const void *data, size_t len) {
    if (len > 0)
        memcpy(bytes_grow(b, len), data, len);
}

void bytes_fill(struct bytes *b, uint8_t value, size_t count) {
    if (count > 0)
        memset(bytes_grow(b, count), value, count);
}

static unsigned hex_value(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *at = strchr(digits, c);
    ck_assert_msg(c && at, "bad hex digit in a test");
    return (unsigned)(at - digits);
}

void bytes_hex(struct bytes *b, const char *hex) {
    while (*hex) {
        if (*hex == ' ') {
            hex++;
            continue;
        }
        uint8_t byte = (uint8_t)(hex_value(hex[0]) << 4 | hex_value(hex[1]));
        bytes_add(b, &byte, 1);
        hex += 2;
    }
}

struct bytes bytes_from_hex(const char *hex) {
    struct bytes b = {0};
    bytes_hex(&b, hex);
    return b;
}

void cbor_wide_head(struct bytes *b, unsigned major, uint64_t argument, unsigned width) {
    uint8_t info = width == 1 ? 24 : width == 2 ? 25 : width == 4 ? 26 : 27;
    bytes_fill(b, (uint8_t)(major << 5 | info), 1);
    for (unsigned i = width; i-- > 0;)
        bytes_fill(b, (uint8_t)(argument >> 8 * i), 1);
}

void cbor_head(struct bytes *b, unsigned major, uint64_t argument) {
    if (argument < 24)
        bytes_fill(b, (uint8_t)(major << 5 | argument), 1);
    else
        cbor_wide_head(b, major, argument,
                       argument <= 0xff         ? 1
                       : argument <= 0xffff     ? 2
                       : argument <= 0xffffffff ? 4
                                                : 8);
}

void cbor_text_n(struct bytes *b, const char *text, size_t len) {
    cbor_head(b, CBOR_TEXT, len);
    bytes_add(b, text, len);
}

void cbor_text(struct bytes *b, const char *text) {
    cbor_text_n(b, text, strlen(text));
}

/* ---- packs ----------------------------------------------------------------------------------- */

struct bpk_str str(const char *text) {
    return (struct bpk_str){text, strlen(text)};
}

void spec_init(struct packspec *spec, enum bpk_layout layout) {
    *spec = (struct packspec){.layout = layout, .version = 1};
}

void spec_clear(struct packspec *spec) {
    bytes_clear(&spec->tensors);
    bytes_clear(&spec->metadata);
    bytes_clear(&spec->scalars);
    bytes_clear(&spec->unknown);
    bytes_clear(&spec->tail);
    bytes_clear(&spec->data);
}

void spec_tensor_at(struct packspec *spec, struct bpk_str name, const char *dtype_hex,
                    const uint64_t *dims, unsigned rank, uint64_t start, uint64_t end,
                    const uint64_t *param_id) {
    struct bytes *b = &spec->tensors;
    cbor_text_n(b, name.bytes, name.len);
    cbor_head(b, CBOR_MAP, param_id ? 4 : 3);
    cbor_text(b, "dtype");
    bytes_hex(b, dtype_hex);
    cbor_text(b, "shape");
    cbor_head(b, CBOR_ARRAY, rank);
    for (unsigned i = 0; i < rank; i++)
        cbor_head(b, CBOR_UINT, dims[i]);
    cbor_text(b, "data_offsets");
    cbor_head(b, CBOR_ARRAY, 2);
    cbor_head(b, CBOR_UINT, start);
    cbor_head(b, CBOR_UINT, end);
    if (param_id) {
        cbor_text(b, "param_id");
        cbor_head(b, CBOR_UINT, *param_id);
    }
    spec->tensor_count++;
}

uint8_t pattern_byte(uint64_t place) {
    return (uint8_t)(1 + (place * 7 + (place >> 8) * 13) % 251);
}

/* Makes room for `size` bytes where the layout wants them; returns their start. */
static uint64_t add_data(struct packspec *spec, size_t size) {
    if (spec->layout == BPK_LAYOUT_ALIGNED)
        bytes_fill(&spec->data, 0, -spec->data.len % BPK_ALIGNMENT);
    uint64_t start = spec->data.len;
    for (size_t i = 0; i < size; i++)
        bytes_fill(&spec->data, pattern_byte(start + i), 1);
    return start;
}

void spec_tensor(struct packspec *spec, const char *name, const char *dtype_hex,
                 const uint64_t *dims, unsigned rank, size_t size, const uint64_t *param_id) {
    uint64_t start = add_data(spec, size);
    spec_tensor_at(spec, str(name), dtype_hex, dims, rank, start, start + size, param_id);
}

void spec_u8_n(struct packspec *spec, struct bpk_str name, size_t size) {
    uint64_t start = add_data(spec, size);
    spec_tensor_at(spec, name, "625538", &(uint64_t){size}, 1, start, start + size, NULL);
}

void spec_u8(struct packspec *spec, const char *name, size_t size) {
    spec_u8_n(spec, str(name), size);
}

void spec_metadata_n(struct packspec *spec, struct bpk_str key, struct bpk_str value) {
    cbor_text_n(&spec->metadata, key.bytes, key.len);
    cbor_text_n(&spec->metadata, value.bytes, value.len);
    spec->metadata_count++;
}

void spec_metadata(struct packspec *spec, const char *key, const char *value) {
    spec_metadata_n(spec, str(key), str(value));
}

void spec_scalar(struct packspec *spec, const char *name, const char *value_hex) {
    cbor_text(&spec->scalars, name);
    bytes_hex(&spec->scalars, value_hex);
    spec->scalar_count++;
}

static void add_map(struct bytes *b, const char *field, unsigned count, const struct bytes *map) {
    cbor_text(b, field);
    cbor_head(b, CBOR_MAP, count);
    bytes_add(b, map->data, map->len);
}

void spec_block(const struct packspec *spec, struct bytes *ret_block) {
    struct bytes b = {0};
    cbor_head(&b, CBOR_MAP,
              1U + (spec->metadata_count > 0) + (spec->scalar_count > 0) + spec->unknown_count);
    add_map(&b, "tensors", spec->tensor_count, &spec->tensors);
    if (spec->metadata_count > 0)
        add_map(&b, "metadata", spec->metadata_count, &spec->metadata);
    if (spec->scalar_count > 0)
        add_map(&b, "scalars", spec->scalar_count, &spec->scalars);
    bytes_add(&b, spec->unknown.data, spec->unknown.len);
    *ret_block = b;
}

void spec_file(const struct packspec *spec, struct bytes *ret_file) {
    struct bytes block;
    struct bytes file = {0};
    spec_block(spec, &block);
    bytes_add(&block, spec->tail.data, spec->tail.len);
    bytes_hex(&file, "4e525542");
    const uint8_t rest[] = {
        (uint8_t)spec->version,    (uint8_t)(spec->version >> 8), (uint8_t)block.len,
        (uint8_t)(block.len >> 8), (uint8_t)(block.len >> 16),    (uint8_t)(block.len >> 24),
    };
    bytes_add(&file, rest, sizeof(rest));
    bytes_add(&file, block.data, block.len);
    if (spec->layout == BPK_LAYOUT_ALIGNED)
        bytes_fill(&file, spec->padding, -file.len % BPK_ALIGNMENT);
    bytes_add(&file, spec->data.data, spec->data.len);
    bytes_clear(&block);
    *ret_file = file;
}

void spec_rich(struct packspec *spec) {
    static const uint64_t param_id = UINT64_C(9505838338724798577);
    spec_init(spec, BPK_LAYOUT_ALIGNED);
    spec_tensor(spec, "conv.weight", "63463332", (const uint64_t[]){2, 3}, 2, 24, &param_id);
    spec_tensor(spec, "conv.weight.lora.a", "6442463136", (const uint64_t[]){4}, 1, 8, NULL);
    spec_tensor(spec, "flag",
                "a164426f6f6c66"
                "4e6174697665",
                NULL, 0, 1, NULL);
    spec_tensor(spec, "q",
                "a16651466c6f6174a56576616c7565635138466573746f7265a1695061636b656455333200646d6f"
                "64656953796d6d65747269636674656e736f72f665626c6f636bf6",
                (const uint64_t[]){4, 4}, 2, 20, NULL);
    spec_tensor(spec, "wrong", "63463332", (const uint64_t[]){3}, 1, 8, NULL);
    spec_u8(spec, "", 3);
    spec_u8(spec, "a/b%", 300);
    spec_u8(spec, ".hidden.json", 0);
    char name[400];
    for (char c = 'p'; c < 's'; c++) {
        memset(name, c, sizeof(name));
        spec_u8_n(spec, (struct bpk_str){name, sizeof(name)}, 5);
    }
    spec_metadata(spec, "producer", "burn");
    spec_metadata(spec, "", "empty key");
    spec_metadata_n(spec, (struct bpk_str){name, sizeof(name)}, str("\x1b[31m"));
    spec_metadata_n(spec, (struct bpk_str){"a\0b", 3}, str("nul"));
    spec_scalar(spec, "epoch", "a1 6455496e74 03");
    spec_scalar(spec, "lr", "a1 65466c6f6174 fb3f50624dd2f1a9fc");
    spec_scalar(spec, "delta", "a1 63496e74 22");
    spec_scalar(spec, "done", "a1 64426f6f6c f5");
    cbor_text(&spec->unknown, "later");
    bytes_hex(&spec->unknown, "83 01 7f 6161 6162 ff a1 f6 c1 80");
    spec->unknown_count++;
}

/* ---- files ----------------------------------------------------------------------------------- */

void temp_write(const void *data, size_t len, char path[TEMP_PATH]) {
    const char *folder = getenv("TMPDIR");
    int n = snprintf(path, TEMP_PATH, "%s/bpk-unit-XXXXXX", folder ? folder : "/tmp");
    ck_assert_int_lt(n, TEMP_PATH);
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    const char *p = data;
    while (len > 0) {
        ssize_t written = write(fd, p, len);
        ck_assert_int_gt(written, 0);
        p += written;
        len -= (size_t)written;
    }
    ck_assert_int_eq(close(fd), 0);
}

void temp_spec(const struct packspec *spec, char path[TEMP_PATH]) {
    struct bytes file;
    spec_file(spec, &file);
    temp_write(file.data, file.len, path);
    bytes_clear(&file);
}

int bytes_open(const struct bytes *file, const struct bpk_open_options *options,
               struct bpk_pack **ret_pack, struct bpk_diag *ret_diag) {
    char path[TEMP_PATH];
    struct bpk_pack *pack = NULL;
    temp_write(file->data, file->len, path);
    int r = bpk_pack_open(path, options, &pack, ret_diag);
    unlink(path);
    *ret_pack = pack;
    return r;
}

struct bpk_pack *spec_open_with(const struct packspec *spec,
                                const struct bpk_open_options *options) {
    struct bytes file;
    struct bpk_pack *pack;
    struct bpk_diag diag = {0};
    spec_file(spec, &file);
    int r = bytes_open(&file, options, &pack, &diag);
    bytes_clear(&file);
    ck_assert_msg(r == 0, "a pack did not open: %s", diag.sentence);
    return pack;
}

struct bpk_pack *spec_open(const struct packspec *spec) {
    return spec_open_with(spec, NULL);
}
