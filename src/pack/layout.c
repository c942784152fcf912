#include "pack/layout.h"

#include "pack/diag.h"
#include "pack/dtype.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

uint64_t bpk_layout_align(uint64_t offset) {
    return (offset + BPK_ALIGNMENT - 1) / BPK_ALIGNMENT * BPK_ALIGNMENT;
}

uint64_t bpk_layout_data_start(enum bpk_layout layout, uint64_t unaligned_start) {
    return layout == BPK_LAYOUT_LEGACY ? unaligned_start : bpk_layout_align(unaligned_start);
}

enum verdict { UNDECIDED, ALIGNED, LEGACY };

/* Burn 0.20.0-pre.5 was the first release that aligned the data. */
static enum verdict judge_version(struct bpk_str version) {
    char text[32];
    if (!version.bytes || version.len >= sizeof(text))
        return UNDECIDED;
    memcpy(text, version.bytes, version.len);
    text[version.len] = '\0';
    unsigned major;
    unsigned minor;
    unsigned patch;
    int end = 0;
    if (sscanf(text, "%9u.%9u.%9u%n", &major, &minor, &patch, &end) != 3)
        return UNDECIDED;
    if (major > 0 || minor > 20)
        return ALIGNED;
    if (minor < 20)
        return minor == 19 ? LEGACY : UNDECIDED;
    unsigned pre;
    if (patch == 0 && sscanf(text + end, "-pre.%9u", &pre) == 1)
        return pre <= 4 ? LEGACY : ALIGNED;
    return ALIGNED;
}

/* For a file that ends exactly where a legacy one would: whole and legacy, or aligned and cut? */
static enum verdict judge_content(const struct bpk_layout_facts *facts) {
    if (!facts->padding_is_zero || !facts->starts_aligned)
        return LEGACY;
    enum verdict verdict = judge_version(facts->version);
    if (verdict != UNDECIDED)
        return verdict;
    if (!facts->has_metadata || facts->is_modern)
        return ALIGNED;
    if (facts->producer.bytes &&
        (bpk_str_is(facts->producer, "burn-import") || bpk_str_is(facts->producer, "burn-onnx")))
        return ALIGNED;
    return UNDECIDED;
}

enum bpk_layout bpk_layout_guess(const struct bpk_layout_facts *facts) {
    return judge_content(facts) == LEGACY ? BPK_LAYOUT_LEGACY : BPK_LAYOUT_ALIGNED;
}

static int truncated(const struct bpk_layout_facts *facts, uint64_t needed, struct bpk_diag *diag) {
    return bpk_diag_set(diag, -EBADMSG, facts->file_size,
                        "the file is truncated: it has %llu bytes, its tensors need %llu",
                        (unsigned long long)facts->file_size, (unsigned long long)needed);
}

/* The length alone would fit the other layout, or a file of it with something behind. */
static int ambiguous(const struct bpk_layout_facts *facts, uint64_t needed, struct bpk_diag *diag) {
    return bpk_diag_set(diag, -EBADMSG, facts->file_size,
                        "the file is truncated (it has %llu bytes, its tensors need %llu), or it "
                        "has the layout of Burn 0.19: '-o layout=legacy' reads it as that, "
                        "'-o layout=aligned' never does",
                        (unsigned long long)facts->file_size, (unsigned long long)needed);
}

int bpk_layout_detect(const struct bpk_layout_facts *facts, enum bpk_layout *ret_layout,
                      struct bpk_diag *diag) {
    uint64_t aligned_start = bpk_layout_align(facts->unaligned_start);
    /* No sum can wrap: both starts are below 2^27, and the caller keeps data_size below 2^63. */
    uint64_t legacy_end = facts->unaligned_start + facts->data_size;
    uint64_t aligned_end = aligned_start + facts->data_size;

    if (facts->file_size < legacy_end)
        return truncated(facts, aligned_end, diag);
    enum bpk_layout layout = BPK_LAYOUT_ALIGNED;
    if (facts->data_size == 0) {
        /* Nothing to misplace; the length tells whether the writer padded. */
        if (facts->file_size < aligned_start)
            layout = facts->file_size == legacy_end ? BPK_LAYOUT_LEGACY : BPK_LAYOUT_ALIGNED;
    } else if (aligned_start == facts->unaligned_start) {
        /* The same bytes in both layouts. Starts off a multiple of 256 are a legacy writer's, but
         * for zero bytes after the CBOR: those we write, where the data must not move. */
        bool is_legacy = !facts->starts_aligned && !facts->has_zero_tail;
        layout = is_legacy ? BPK_LAYOUT_LEGACY : BPK_LAYOUT_ALIGNED;
    } else if (facts->file_size == legacy_end) {
        if (judge_content(facts) != LEGACY)
            return ambiguous(facts, aligned_end, diag);
        layout = BPK_LAYOUT_LEGACY;
    } else if (facts->file_size < aligned_end) {
        return ambiguous(facts, aligned_end, diag);
    } else if (!facts->padding_is_zero && !facts->starts_aligned) {
        layout = BPK_LAYOUT_LEGACY;
    }
    *ret_layout = layout;
    return 0;
}
