/* Sidecars: where a tensor came from. */
#include "pack/util.h"
#include "view/json_load.h"

#include <string.h>

static bool take_number(const struct bpk_json_source *source, const json_t *value,
                        uint64_t *ret_number) {
    return value && bpk_json_take_u64(source, value, "", UINT64_MAX, ret_number) == BPK_TEXT_GOOD;
}

static bool take_name(const json_t *value, struct bpk_sidecar_origin *origin) {
    struct bpk_str text = bpk_json_text(value);
    if (!text.bytes)
        return true;
    origin->name = malloc(text.len + 1);
    if (!origin->name)
        return false;
    memcpy(origin->name, text.bytes, text.len);
    origin->name_len = text.len;
    return true;
}

enum bpk_text_verdict bpk_sidecar_origin_parse(struct bpk_str text,
                                               struct bpk_sidecar_origin *ret_origin,
                                               struct bpk_diag *diag) {
    struct bpk_json_source source = {.text = text, .diag = diag, .entry = BPK_JSON_NO_ENTRY};
    struct bpk_sidecar_origin origin = {0};
    enum bpk_text_verdict verdict = bpk_json_open(&source);
    if (verdict == BPK_TEXT_GOOD) {
        source.diag = NULL; /* what holds something else is as if it were not there */
        const json_t *offsets = json_object_get(source.root, "data_offsets");
        origin.has_offsets = json_array_size(offsets) == 2 &&
                             take_number(&source, json_array_get(offsets, 0), &origin.start) &&
                             take_number(&source, json_array_get(offsets, 1), &origin.end);
        origin.has_size =
            take_number(&source, json_object_get(source.root, "nbytes"), &origin.size);
        source.diag = diag;
        if (!take_name(json_object_get(source.root, "name"), &origin))
            verdict = bpk_json_no_memory(&source);
    }
    bpk_json_close(&source);
    if (verdict == BPK_TEXT_GOOD)
        *ret_origin = origin;
    return verdict;
}

void bpk_sidecar_origin_clear(struct bpk_sidecar_origin *origin) {
    free(origin->name);
    *origin = (struct bpk_sidecar_origin){0};
}
