/* The pack that the tests of edits begin with:
 *   a  U8 [10]      b  F32 [2, 3], param_id 7      c  U8 [5000]      d  U8 [0]
 *   metadata: note "x", producer "burn"; scalars: epoch 3
 */
#ifndef TESTS_UNIT_EDITBASE_H
#define TESTS_UNIT_EDITBASE_H

#include "editkit.h"
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define T BPK_IN_TENSORS
#define M BPK_IN_METADATA
#define R BPK_IN_ROOT

static struct kit kit;

static inline void editbase_setup(void) {
    static const uint64_t param_id = 7;
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 10);
    spec_tensor(&spec, "b", "63463332", (const uint64_t[]){2, 3}, 2, 24, &param_id);
    spec_u8(&spec, "c", 5000);
    spec_u8(&spec, "d", 0);
    spec_metadata(&spec, "note", "x");
    spec_metadata(&spec, "producer", "burn");
    spec_scalar(&spec, "epoch", "a1 6455496e74 03");
    kit_begin(&kit, &spec);
    spec_clear(&spec);
}

static inline void editbase_teardown(void) {
    kit_end(&kit);
}

static inline TCase *editbase_case(Suite *suite, const char *name) {
    TCase *tc = suite_case(suite, name);
    tcase_add_checked_fixture(tc, editbase_setup, editbase_teardown);
    return tc;
}

/* Whether the pack on the disk has this text as the tensor's bytes. */
static inline bool pack_says(const char *tensor, const char *text) {
    return kit_pack_holds(&kit, tensor, text, strlen(text));
}

/* The bytes that a tensor of the base was made with. */
static inline bool is_as_made(const char *tensor, uint64_t place, size_t size) {
    struct bytes data = {0};
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = pattern_byte(place + i);
        bytes_add(&data, &byte, 1);
    }
    bool same = kit_pack_holds(&kit, tensor, data.data, size);
    bytes_clear(&data);
    return same;
}

enum { PLACE_A = 0, PLACE_B = 256, PLACE_C = 512 };

#endif
