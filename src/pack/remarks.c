#include "pack/remarks.h"

#include "pack/plan.h"
#include "pack/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { SENTENCE = 500, SHOWN_NAME = 60, NAMES_SHOWN = 5 };

__attribute__((format(printf, 2, 3))) static void tell(const struct bpk_remarks *to,
                                                       const char *format, ...) {
    char sentence[SENTENCE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    to->report(to->context, sentence);
}

/* A tensor with bytes of its own is the base's tensor of that name. */
static bool was_misplaced(const struct bpk_pack *base, const struct bpk_plan_tensor *t) {
    uint32_t index = t->data_index;
    if (t->next_run && bpk_pack_find_tensor(base, t->name, &index) < 0)
        return false;
    return (t->next_run || t->data_from == base) && bpk_pack_is_misplaced(base, index);
}

static void tell_mended(const struct bpk_plan *plan, const struct bpk_remarks *to) {
    char names[NAMES_SHOWN * (SHOWN_NAME + 4)];
    size_t used = 0;
    size_t count = 0;
    for (size_t i = 0; i < plan->tensor_count && !plan->keeps_data; i++) {
        const struct bpk_plan_tensor *t = &plan->tensors[i];
        if (!was_misplaced(plan->base, t))
            continue;
        char shown[SHOWN_NAME];
        if (count < NAMES_SHOWN)
            used += (size_t)snprintf(
                names + used, sizeof(names) - used, "%s'%s'", count > 0 ? ", " : "",
                bpk_text_escape(t->name.bytes, t->name.len, shown, sizeof(shown)));
        count++;
    }
    char more[40] = "";
    if (count > NAMES_SHOWN)
        (void)snprintf(more, sizeof(more), " and %zu more", count - NAMES_SHOWN);
    if (count > 0)
        tell(to,
             "mended: overlapping tensors and those that did not start on a multiple of %d have "
             "places of their own now: %s%s",
             BPK_ALIGNMENT, names, more);
}

static void tell_dropped(const struct bpk_plan *plan, const struct bpk_remarks *to) {
    const struct bpk_pack *base = plan->base;
    const struct bpk_meta *meta = &base->meta;
    struct bpk_pack_hidden hidden[BPK_PACK_MAPS];
    bpk_pack_hidden(base, hidden);
    for (size_t i = 0; i < BPK_PACK_MAPS; i++)
        if (hidden[i].count > 0)
            tell(to, "dropped: duplicate %s, %zu that later ones hid", hidden[i].what,
                 hidden[i].count);
    if (!meta->tail_is_zero)
        tell(to, "dropped: %zu bytes after the metadata, inside metadata_size",
             base->header.metadata_size - meta->block_size);
    if (plan->drops_strays)
        tell(to,
             "dropped: bytes between the tensors that belonged to none, the first at byte %" PRIu64,
             plan->stray);
    uint64_t end = base->data_start + base->data_size;
    if ((uint64_t)base->stat.st_size > end)
        tell(to, "dropped: %" PRIu64 " bytes after the last tensor",
             (uint64_t)base->stat.st_size - end);
}

void bpk_remarks_collect(void *out, const char *sentence) {
    bpk_out_str(out, sentence);
    bpk_out_str(out, "\n");
}

void bpk_remarks_tell(const struct bpk_plan *plan, const struct bpk_remarks *remarks) {
    if (!plan->base || !remarks->report)
        return;
    tell_mended(plan, remarks);
    tell_dropped(plan, remarks);
}
