/* A CBOR reader over bytes of its own, as the tests of the reader and of dtypes want it. */
#ifndef TESTS_UNIT_CBORINPUT_H
#define TESTS_UNIT_CBORINPUT_H

#include "packbuild.h"
#include "suite.h"

#include "pack/cbor_reader.h"

#include <string.h>

struct input {
    struct bytes bytes;
    struct bpk_diag diag;
    struct bpk_cbor cbor;
};

static inline void input_start(struct input *in) {
    in->diag = (struct bpk_diag){0};
    /* Exactly the bytes, so that a sanitizer sees a read past them. */
    uint8_t *exact = malloc(in->bytes.len + !in->bytes.len);
    ck_assert_ptr_nonnull(exact);
    if (in->bytes.len > 0)
        memcpy(exact, in->bytes.data, in->bytes.len);
    free(in->bytes.data);
    in->bytes.data = exact;
    in->cbor = (struct bpk_cbor){
        .data = exact, .size = in->bytes.len, .file_offset = 10, .diag = &in->diag};
}

static inline void input_hex(struct input *in, const char *hex) {
    in->bytes = bytes_from_hex(hex);
    input_start(in);
}

static inline void input_finish(struct input *in) {
    bytes_clear(&in->bytes);
}

#endif
