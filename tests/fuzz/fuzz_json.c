/* The texts that users write, and bpk's reading of the status: any bytes are judged; what is good
 * reads the same when we write it, and no start of it is called wrong. */
#include "fuzz.h"

#include "view/json.h"
#include "view/json_read.h"
#include "view/maps.h"
#include "view/sidecar.h"
#include "view/status_read.h"

#include <errno.h>
#include <string.h>

static struct bpk_str text_of(const struct bpk_outbuf *out) {
    HOLDS(!out->failed);
    return (struct bpk_str){out->text, out->len};
}

static void check_verdict(enum bpk_text_verdict verdict, const struct bpk_diag *diag) {
    HOLDS(verdict != BPK_TEXT_NO_MEMORY);
    if (verdict != BPK_TEXT_GOOD)
        fuzz_check_sentence(diag->sentence);
}

/* ---- sidecars -------------------------------------------------------------------------------- */

static enum bpk_text_verdict try_sidecar(struct bpk_str text) {
    struct bpk_descriptor first;
    struct bpk_descriptor second;
    struct bpk_outbuf out = {0};
    struct bpk_diag diag = {0};
    enum bpk_text_verdict verdict = bpk_sidecar_parse(text, &first, &diag);
    check_verdict(verdict, &diag);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    const struct bpk_sidecar sidecar = {
        .name = {"a", 1},
        .dtype = first.dtype,
        .shape = {.dims = first.dims, .left = first.rank},
        .has_param_id = first.has_param_id,
        .param_id = first.param_id,
    };
    bpk_sidecar_object(&out, &sidecar, 0);
    HOLDS(bpk_sidecar_parse(text_of(&out), &second, NULL) == BPK_TEXT_GOOD);
    HOLDS(bpk_dtype_equal(&first.dtype, &second.dtype) && first.rank == second.rank);
    for (uint32_t i = 0; i < first.rank; i++)
        HOLDS(first.dims[i] == second.dims[i]);
    HOLDS(first.has_param_id == second.has_param_id);
    HOLDS(!first.has_param_id || first.param_id == second.param_id);
    bpk_descriptor_clear(&first);
    bpk_descriptor_clear(&second);
    bpk_outbuf_clear(&out);
    return verdict;
}

/* ---- maps ------------------------------------------------------------------------------------ */

static enum bpk_text_verdict try_metadata(struct bpk_str text) {
    struct bpk_string_map first;
    struct bpk_string_map second;
    struct bpk_outbuf out = {0};
    struct bpk_diag diag = {0};
    enum bpk_text_verdict verdict = bpk_metadata_parse(text, &first, &diag);
    check_verdict(verdict, &diag);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    struct bpk_map_writer writer = bpk_map_begin(&out, 0);
    for (size_t i = 0; i < first.count; i++) {
        bpk_map_key(&writer, first.pairs[i].key);
        bpk_json_string(&out, first.pairs[i].value);
    }
    bpk_map_end(&writer);
    HOLDS(bpk_metadata_parse(text_of(&out), &second, NULL) == BPK_TEXT_GOOD);
    HOLDS(first.count == second.count);
    size_t same = 0;
    for (size_t i = 0; i < first.count; i++)
        for (size_t k = 0; k < second.count; k++)
            same += fuzz_str_equal(first.pairs[i].key, second.pairs[k].key) &&
                    fuzz_str_equal(first.pairs[i].value, second.pairs[k].value);
    HOLDS(same == first.count);
    bpk_string_map_clear(&first);
    bpk_string_map_clear(&second);
    bpk_outbuf_clear(&out);
    return verdict;
}

static enum bpk_text_verdict try_scalars(struct bpk_str text) {
    struct bpk_scalar_map first;
    struct bpk_scalar_map second;
    struct bpk_outbuf out = {0};
    struct bpk_diag diag = {0};
    enum bpk_text_verdict verdict = bpk_scalars_parse(text, &first, &diag);
    check_verdict(verdict, &diag);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    struct bpk_map_writer writer = bpk_map_begin(&out, 0);
    for (size_t i = 0; i < first.count; i++) {
        bpk_map_key(&writer, first.scalars[i].name);
        bpk_scalar_value(&out, &first.scalars[i]);
    }
    bpk_map_end(&writer);
    HOLDS(bpk_scalars_parse(text_of(&out), &second, NULL) == BPK_TEXT_GOOD);
    HOLDS(first.count == second.count);
    size_t same = 0;
    for (size_t i = 0; i < first.count; i++)
        for (size_t k = 0; k < second.count; k++)
            same += fuzz_str_equal(first.scalars[i].name, second.scalars[k].name) &&
                    first.scalars[i].kind == second.scalars[k].kind &&
                    first.scalars[i].bits == second.scalars[k].bits;
    HOLDS(same == first.count);
    bpk_scalar_map_clear(&first);
    bpk_scalar_map_clear(&second);
    bpk_outbuf_clear(&out);
    return verdict;
}

static void try_status(struct bpk_str text) {
    struct bpk_status status;
    int r = bpk_status_parse(text, &status);
    HOLDS(r == 0 || r == -EBADMSG);
    if (r == 0)
        bpk_status_clear(&status);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Text that a writer has not finished yet is no mistake, wherever he is. */
static void try_starts(enum bpk_text_verdict (*try_text)(struct bpk_str text),
                       struct bpk_str text) {
    enum { MAX_STARTS = 200 };
    if (try_text(text) != BPK_TEXT_GOOD)
        return;
    size_t step = 1 + text.len / MAX_STARTS;
    for (size_t len = 0; len < text.len; len += step) {
        char *start = malloc(len > 0 ? len : 1); /* for sanitizers */
        ck_assert_ptr_nonnull(start);
        memcpy(start, text.bytes, len);
        enum bpk_text_verdict verdict = try_text((struct bpk_str){start, len});
        ck_assert_msg(verdict == BPK_TEXT_GOOD || verdict == BPK_TEXT_EARLY_END,
                      "the first %zu bytes are bad", len);
        free(start);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bpk_str text = {(const char *)data, size};
    try_starts(try_sidecar, text);
    try_starts(try_metadata, text);
    try_starts(try_scalars, text);
    try_status(text);
    return 0;
}
