#include "cli/losses.h"

#include "cli/table.h"
#include "pack/cbor_writer.h"
#include "pack/io.h"
#include "pack/plan.h"
#include "pack/util.h"

#include <string.h>

/* ---- what a reader can find ------------------------------------------------------------------ */

static bool has_nul(struct bpk_str text) {
    return memchr(text.bytes, '\0', text.len) != NULL;
}

static bool tell_keys(const struct bpk_cli_pack *pack) {
    size_t keys = 0;
    size_t scalars = 0;
    for (uint32_t i = 0; i < pack->info.metadata_entries; i++) {
        struct bpk_str key;
        struct bpk_str value;
        bpk_pack_metadata(pack->pack, i, &key, &value);
        keys += has_nul(key);
    }
    for (uint32_t i = 0; i < pack->info.scalars; i++) {
        struct bpk_scalar scalar;
        bpk_pack_scalar(pack->pack, i, &scalar);
        scalars += has_nul(scalar.name);
    }
    if (keys > 0)
        bpk_cli_error(pack->path,
                      "left out: %zu keys of the metadata with a NUL, which JSON "
                      "libraries cannot hold",
                      keys);
    if (scalars > 0)
        bpk_cli_error(pack->path,
                      "left out: %zu names of scalars with a NUL, which JSON "
                      "libraries cannot hold",
                      scalars);
    return keys == 0 && scalars == 0;
}

static bool tell_unknown(const struct bpk_cli_pack *pack) {
    const struct bpk_meta *meta = &pack->pack->meta;
    size_t tensors = 0;
    for (size_t i = 0; i < meta->tensor_count; i++)
        tensors += (meta->tensors[i].flags & BPK_TENSOR_HAS_UNKNOWN) != 0;
    if (meta->unknown_entries > 0)
        bpk_cli_error(pack->path, "left out: %zu entries that this version does not know",
                      meta->unknown_entries);
    if (tensors > 0)
        bpk_cli_error(pack->path,
                      "left out: what this version does not know in the descriptors of %zu tensors",
                      tensors);
    return meta->unknown_entries == 0 && tensors == 0;
}

/* ---- what is only in its bytes --------------------------------------------------------------- */

struct findings {
    const struct bpk_cli_pack *pack;
    size_t count;
};

static void tell_problem(void *context, uint32_t tensor, const char *sentence) {
    struct findings *findings = context;
    findings->count++;
    if (tensor == BPK_NO_TENSOR)
        bpk_cli_error(findings->pack->path, "not carried over: %s", sentence);
    else
        bpk_cli_tensor_error(findings->pack, tensor, sentence);
}

/* The dtypes as a sidecar has them, behind each other. */
static bool spell_dtypes(const struct bpk_pack *pack, struct bpk_plan *plan,
                         struct bpk_outbuf *out) {
    for (size_t i = 0; i < plan->tensor_count; i++) {
        struct bpk_dtype dtype;
        struct bpk_plan_tensor *tensor = &plan->tensors[i];
        size_t from = out->len;
        bpk_pack_tensor_dtype(pack, tensor->index, &dtype);
        bpk_cbor_out_dtype(out, &dtype);
        tensor->dtype_cbor.len = out->len - from;
    }
    if (out->failed)
        return false;
    const char *at = out->text;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        struct bpk_plan_tensor *tensor = &plan->tensors[i];
        tensor->dtype_cbor.bytes = at;
        tensor->shape = bpk_pack_tensor_shape(pack, tensor->index);
        tensor->from = NULL;
        at += tensor->dtype_cbor.len;
    }
    return true;
}

/* Whether a pack made of the files has the same header, metadata and places. */
static bool comes_back(const struct bpk_cli_pack *pack) {
    struct bpk_plan plan = {0};
    _cleanup_outbuf_ struct bpk_outbuf dtypes = {0};
    _cleanup_free_ char *head = NULL;
    size_t n;
    bool same = bpk_plan_from_pack(pack->pack, &plan) == 0;
    bpk_pack_unref(bpk_steal_ptr(plan.base));
    same = same && spell_dtypes(pack->pack, &plan, &dtypes) &&
           bpk_plan_place(&plan, false, NULL) == 0 && plan.data_start == pack->info.data_start &&
           (head = malloc(plan.head.len + 1)) &&
           bpk_io_pread(bpk_pack_fd(pack->pack), 0, head, plan.head.len, &n) == 0 &&
           n == plan.head.len && memcmp(head, plan.head.text, n) == 0;
    bpk_plan_clear(&plan);
    return same;
}

bool bpk_cli_tell_losses(const struct bpk_cli_pack *pack) {
    struct findings findings = {.pack = pack};
    bool keys = tell_keys(pack);
    bool carried = tell_unknown(pack) && keys;
    (void)bpk_pack_check(pack->pack, tell_problem, &findings);
    if (pack->info.layout == BPK_LAYOUT_LEGACY)
        bpk_cli_error(pack->path, "it has the layout of Burn 0.19; 'bpk pack' makes an aligned one "
                                  "of the files");
    else if (carried && findings.count == 0 && !comes_back(pack))
        bpk_cli_error(pack->path, "its metadata is not spelled as Burn spells it now: 'bpk pack' "
                                  "makes other bytes of the files, which say the same");
    return carried;
}
