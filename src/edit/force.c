/* Edits of another version of the pack, taken with force: what they say of names is made to agree
 * with the base at hand. Lost tensors are content.c's. All locked. */
#include "edit/state.h"

#include <errno.h>
#include <stdlib.h>

/* Whether the file has nothing to show: it was touched, not written, and this pack does not have
 * what it showed. */
static bool is_baseless(struct bpk_edits *edits, const struct bpk_file *file) {
    struct bpk_outbuf counter = {.counting = true};
    if (file->content || file->target || bpk_state_base_has(edits, file->folder, file->name))
        return false;
    return !bpk_state_is_text(edits, file->folder, file->name) ||
           bpk_state_compose(edits, file->folder, file->name, &counter) == -ENOENT;
}

static void drop_baseless(struct bpk_edits *edits) {
    struct bpk_entry *entry;
    struct bpk_entry *next;
    HASH_ITER(hh, edits->entries, entry, next) {
        if (!entry->file || !is_baseless(edits, entry->file))
            continue;
        bpk_state_drop_file(edits, entry->file);
        HASH_DEL(edits->entries, entry);
        free(entry);
    }
}

/* The stem of a name that came and went, or went while no pack had it, says that the name has no
 * descriptor. A tensor of this pack that was not touched has. */
static void drop_past_stems(struct bpk_edits *edits) {
    struct bpk_stem *stem;
    struct bpk_stem *next;
    uint32_t index;
    HASH_ITER(hh, edits->stems, stem, next) {
        if (!stem->now && !bpk_state_entry(edits, BPK_IN_TENSORS, stem->name) &&
            bpk_state_find_base(edits, stem->name, &index))
            bpk_state_free_stem(edits, stem);
    }
}

int bpk_state_fit_base(struct bpk_edits *edits) {
    drop_baseless(edits);
    drop_past_stems(edits);
    return bpk_state_hide_keys(edits);
}
