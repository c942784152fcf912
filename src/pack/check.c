/* What is odd about a pack that opens: faults, and notes that are none. */
#include "bpk.h"

#include "pack/dtype.h"
#include "pack/io.h"
#include "pack/layout.h"
#include "pack/pack_internal.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE = 400, SHOWN_NAME = 100, SHOWN_SHAPE = 100 };

static const char *dtype_label(const struct bpk_pack *pack, uint32_t index) {
    struct bpk_dtype dtype;
    bpk_pack_tensor_dtype(pack, index, &dtype);
    return dtype.kind == BPK_BOOL && dtype.bool_store == BPK_BOOL_U32 ? "Bool (U32)"
                                                                      : bpk_kind_name(dtype.kind);
}

/* Whether shape and dtype ask for another length than the range has. */
static bool length_fault(const struct bpk_pack *pack, uint32_t index, char *out, size_t size) {
    const struct bpk_meta_tensor *t = &pack->meta.tensors[index];
    if (t->kind == BPK_QFLOAT)
        return false; /* its range is authoritative */
    struct bpk_dtype dtype;
    bpk_pack_tensor_dtype(pack, index, &dtype);
    uint64_t needed;
    bool overflow = t->elements_overflow || !bpk_dtype_length(&dtype, t->elements, &needed);
    uint64_t length = t->end - t->start;
    if (!overflow && needed == length)
        return false;
    char shape[SHOWN_SHAPE];
    bpk_shape_show(bpk_pack_tensor_shape(pack, index), shape, sizeof(shape));
    if (overflow)
        snprintf(out, size, "has %" PRIu64 " bytes, but the size of shape %s overflows", length,
                 shape);
    else
        snprintf(out, size, "has %" PRIu64 " bytes, but shape %s of %s needs %" PRIu64, length,
                 shape, dtype_label(pack, index), needed);
    return true;
}

static bool starts_off(const struct bpk_pack *pack, const struct bpk_meta_tensor *t) {
    return pack->layout == BPK_LAYOUT_ALIGNED && t->start % BPK_ALIGNMENT != 0;
}

bool bpk_pack_is_misplaced(const struct bpk_pack *pack, uint32_t index) {
    const struct bpk_meta_tensor *t = &pack->meta.tensors[index];
    return (t->flags & BPK_TENSOR_OVERLAPS) || starts_off(pack, t);
}

/* Adds a fault to the sentence, after "; " if it is not the first. */
__attribute__((format(printf, 4, 5))) static void add_fault(char *buffer, size_t size, size_t *used,
                                                            const char *format, ...) {
    if (*used + 3 > size)
        return;
    if (*used > 0)
        *used += (size_t)snprintf(buffer + *used, size - *used, "; ");
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buffer + *used, size - *used, format, args);
    va_end(args);
    *used = n < 0 || (size_t)n >= size - *used ? size - 1 : *used + (size_t)n;
}

bool bpk_pack_tensor_problem(const struct bpk_pack *pack, uint32_t index, char *buffer,
                             size_t size) {
    const struct bpk_meta_tensor *t = &pack->meta.tensors[index];
    char fault[SENTENCE];
    size_t used = 0;
    if (length_fault(pack, index, fault, sizeof(fault)))
        add_fault(buffer, size, &used, "%s", fault);
    if (t->flags & BPK_TENSOR_OVERLAPS) {
        char shown[SHOWN_NAME];
        struct bpk_str other = bpk_pack_tensor_name(pack, t->partner);
        bpk_text_escape(other.bytes, other.len, shown, sizeof(shown));
        add_fault(buffer, size, &used, "its bytes overlap those of '%s'", shown);
    }
    if (starts_off(pack, t))
        add_fault(buffer, size, &used, "starts at %" PRIu64 ", which is no multiple of %d",
                  t->start, BPK_ALIGNMENT);
    return used > 0;
}

/* ---- the pack as a whole --------------------------------------------------------------------- */

/* Who reports, and to whom: one sentence at a time. */
struct reporter {
    bpk_problem_fn *report;
    void *context;
};

__attribute__((format(printf, 3, 4))) static void tell(const struct reporter *reporter,
                                                       uint32_t tensor, const char *format, ...) {
    char sentence[SENTENCE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    reporter->report(reporter->context, tensor, sentence);
}

void bpk_pack_hidden(const struct bpk_pack *pack,
                     struct bpk_pack_hidden ret_hidden[BPK_PACK_MAPS]) {
    const struct bpk_meta *meta = &pack->meta;
    ret_hidden[0] = (struct bpk_pack_hidden){"tensor names", meta->tensor_duplicates};
    ret_hidden[1] = (struct bpk_pack_hidden){"metadata keys", meta->entry_duplicates};
    ret_hidden[2] = (struct bpk_pack_hidden){"scalar names", meta->scalar_duplicates};
}

static void check_counts(const struct bpk_pack *pack, const struct reporter *to) {
    const struct bpk_meta *meta = &pack->meta;
    struct bpk_pack_hidden hidden[BPK_PACK_MAPS];
    bpk_pack_hidden(pack, hidden);
    if (pack->header.version != BPK_VERSION)
        tell(to, BPK_NO_TENSOR, "the header says version %u instead of %d", pack->header.version,
             BPK_VERSION);
    for (size_t i = 0; i < BPK_PACK_MAPS; i++)
        if (hidden[i].count > 0)
            tell(to, BPK_NO_TENSOR, "duplicate %s: %zu are hidden by later ones", hidden[i].what,
                 hidden[i].count);
    if (!meta->tail_is_zero)
        tell(to, BPK_NO_TENSOR,
             "bytes that are not zero follow the metadata at byte %zu, inside metadata_size",
             BPK_HEADER_SIZE + meta->block_size);
}

/* The tensors that salvage left out, each with where its bytes should be. */
static void check_lost(const struct bpk_pack *pack, const struct reporter *to) {
    for (size_t i = 0; i < pack->lost_count; i++) {
        const struct bpk_meta_tensor *t = &pack->lost[i];
        char shown[SHOWN_NAME];
        struct bpk_str name = bpk_meta_text(&pack->meta, t->name);
        bpk_text_escape(name.bytes, name.len, shown, sizeof(shown));
        tell(to, BPK_NO_TENSOR,
             "tensor '%s' is left out: the file has %lld bytes, its data_offsets [%" PRIu64
             ", %" PRIu64 "] lie beyond them or are no range",
             shown, (long long)pack->stat.st_size, t->start, t->end);
    }
}

/* Gaps between small tensors lie close together: one read gets many of them. */
struct window {
    uint64_t start;
    size_t len;
    uint8_t bytes[64 << 10];
};

/* As bpk_io_find_nonzero, for a gap of less than a block. `next` is where the next one may be. */
static int find_in_small_gap(const struct bpk_pack *pack, struct window *window, uint64_t start,
                             uint64_t end, uint64_t next, uint64_t *ret_offset) {
    if (start < window->start || end > window->start + window->len) {
        bool is_close = next < start + sizeof(window->bytes);
        size_t wanted = is_close ? sizeof(window->bytes) : (size_t)(end - start);
        window->start = start;
        int r = bpk_io_pread(pack->fd, start, window->bytes, wanted, &window->len);
        if (r < 0) {
            window->len = 0;
            return r;
        }
    }
    for (uint64_t at = start; at < end && at < window->start + window->len; at++) {
        if (window->bytes[at - window->start] != 0) {
            *ret_offset = at;
            return 1;
        }
    }
    return 0;
}

int bpk_pack_find_stray(const struct bpk_pack *pack, uint64_t from, bool all,
                        uint64_t *ret_offset) {
    uint64_t reached = from;
    int found = 0;
    _cleanup_free_ struct window *window = calloc(1, sizeof(*window));
    if (!window)
        return -ENOMEM;
    for (size_t k = 0; k < pack->meta.tensor_count && found == 0; k++) {
        const struct bpk_meta_tensor *t = &pack->meta.tensors[pack->data_order[k]];
        uint64_t start = pack->data_start + t->start;
        if (all && start > reached && start - reached < BPK_ALIGNMENT)
            found = find_in_small_gap(pack, window, reached, start, pack->data_start + t->end,
                                      ret_offset);
        else if (all ? start > reached : start > bpk_layout_align(reached))
            found = bpk_io_find_nonzero(pack->fd, reached, start, ret_offset);
        if (pack->data_start + t->end > reached)
            reached = pack->data_start + t->end;
    }
    if (found == 0 && pack->data_start > reached)
        found = bpk_io_find_nonzero(pack->fd, reached, pack->data_start, ret_offset);
    return found;
}

/* One finding between CBOR and data, or between tensors, is enough: there may be millions. The
 * v0.19 layout has no padding, only bytes that no name leads to. */
static int check_padding(const struct bpk_pack *pack, const struct reporter *to) {
    if (pack->layout == BPK_LAYOUT_LEGACY)
        return 0;
    uint64_t offset;
    int found = bpk_pack_find_stray(pack, BPK_HEADER_SIZE + (uint64_t)pack->header.metadata_size,
                                    true, &offset);
    if (found > 0)
        tell(to, BPK_NO_TENSOR, "the padding is not zero at byte %" PRIu64, offset);
    return found < 0 ? found : 0;
}

/* A file without tensor bytes may end anywhere up to its data section, where Burn pads it to. */
static void check_end(const struct bpk_pack *pack, const struct reporter *to) {
    uint64_t end = pack->data_start + pack->data_size;
    uint64_t size = (uint64_t)pack->stat.st_size;
    if (size > end)
        tell(to, BPK_NO_TENSOR, "%" PRIu64 " bytes follow the last tensor", size - end);
}

int bpk_pack_check(const struct bpk_pack *pack, bpk_problem_fn *report, void *context) {
    struct reporter to = {report, context};
    check_counts(pack, &to);
    for (size_t i = 0; i < pack->meta.tensor_count; i++) {
        char sentence[SENTENCE];
        if (bpk_pack_tensor_problem(pack, (uint32_t)i, sentence, sizeof(sentence)))
            report(context, (uint32_t)i, sentence);
    }
    check_lost(pack, &to);
    if (pack->lost_count > 0)
        return 0; /* where the lost tensors lay, nothing can be said of padding and end */
    check_end(pack, &to);
    int r = check_padding(pack, &to);
    return r < 0 && r != -ENOMEM ? -EIO : r;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static void note_quantized(const struct bpk_pack *pack, uint32_t index, const struct reporter *to) {
    const struct bpk_meta_tensor *t = &pack->meta.tensors[index];
    struct bpk_dtype dtype;
    bpk_pack_tensor_dtype(pack, index, &dtype);
    uint64_t length = t->end - t->start;
    if (dtype.scheme.form != BPK_SCHEME_SCALED)
        return; /* older writers had other formulas, which the file does not name */
    /* A rank past any real one would cost memory that the file has not paid for. */
    enum { MAX_RANK = 64 };
    uint64_t dims[MAX_RANK];
    uint64_t needed;
    struct bpk_shape shape = bpk_pack_tensor_shape(pack, index);
    uint32_t rank = 0;
    while (rank < MAX_RANK && bpk_shape_next(&shape, &dims[rank]))
        rank++;
    if (shape.left > 0 || !bpk_scheme_length(&dtype.scheme, dims, rank, &needed))
        tell(to, index, "its quantization scheme does not fit its shape");
    else if (needed != length)
        tell(to, index,
             "has %" PRIu64 " bytes, its shape and quantization scheme would give %" PRIu64, length,
             needed);
}

void bpk_pack_notes(const struct bpk_pack *pack, bpk_problem_fn *report, void *context) {
    struct reporter to = {report, context};
    if (pack->layout == BPK_LAYOUT_LEGACY)
        tell(&to, BPK_NO_TENSOR,
             "the data follows the metadata without alignment, as Burn 0.19 wrote it");
    size_t tail = pack->header.metadata_size - pack->meta.block_size;
    if (tail > 0 && pack->meta.tail_is_zero)
        tell(&to, BPK_NO_TENSOR, "%zu zero bytes follow the metadata, inside metadata_size", tail);
    for (size_t i = 0; i < pack->meta.tensor_count; i++)
        if (pack->meta.tensors[i].kind == BPK_QFLOAT)
            note_quantized(pack, (uint32_t)i, &to);
}
