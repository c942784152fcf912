/* The numbers of views in views/npy/.
 *
 * A view has the number of its tensor's file with BPK_ARRAY_NUMBERS above it, and so has the array
 * that comes into its place: whoever has the one open goes on with the other. Where tensor and
 * array go different ways before the array is whole (either is moved or removed), the array keeps
 * the number, and the tensor's view gets one that was never given out. Only that is in tables.
 */
#include "edit/state.h"

#include <errno.h>
#include <string.h>

struct bpk_number {
    UT_hash_handle hh;
    uint64_t from;
    uint64_t to;
};

static const uint64_t *find(const struct bpk_number *table, uint64_t from) {
    const struct bpk_number *found;
    HASH_FIND(hh, table, &from, sizeof(from), found);
    return found ? &found->to : NULL;
}

static int set(struct bpk_number **table, uint64_t from, uint64_t to) {
    struct bpk_number *found;
    HASH_FIND(hh, *table, &from, sizeof(from), found);
    if (!found) {
        found = calloc(1, sizeof(*found));
        if (!found)
            return -ENOMEM;
        found->from = from;
        HASH_ADD(hh, *table, from, sizeof(found->from), found);
        if (!found->hh.tbl) {
            free(found);
            return -ENOMEM;
        }
    }
    found->to = to;
    return 0;
}

static void clear(struct bpk_number **table) {
    struct bpk_number *number;
    struct bpk_number *next;
    HASH_ITER(hh, *table, number, next) {
        HASH_DEL(*table, number);
        free(number);
    }
}

void bpk_state_free_view_numbers(struct bpk_edits *edits) {
    clear(&edits->view_numbers);
    clear(&edits->viewed_numbers);
}

/* ---- locked ---------------------------------------------------------------------------------- */

static uint64_t view_number(const struct bpk_edits *edits, uint64_t tensor) {
    const uint64_t *found = find(edits->view_numbers, tensor);
    return found ? *found : BPK_ARRAY_NUMBERS + tensor;
}

uint64_t bpk_state_viewed(const struct bpk_edits *edits, uint64_t number) {
    const uint64_t *found = find(edits->viewed_numbers, number);
    return found ? *found : number < BPK_ARRAY_NUMBERS ? 0 : number - BPK_ARRAY_NUMBERS;
}

uint64_t bpk_state_new_array_number(struct bpk_edits *edits, uint64_t tensor) {
    return tensor ? view_number(edits, tensor) : BPK_ARRAY_NUMBERS + edits->next_number++;
}

/* The array keeps the number. */
static int part(struct bpk_edits *edits, uint64_t number) {
    uint64_t tensor = bpk_state_viewed(edits, number);
    if (tensor && view_number(edits, tensor) == number) {
        uint64_t other = BPK_ARRAY_NUMBERS + edits->next_number++;
        int r = set(&edits->viewed_numbers, other, tensor);
        if (r == 0)
            r = set(&edits->view_numbers, tensor, other);
        if (r < 0)
            return r;
    }
    return set(&edits->viewed_numbers, number, 0);
}

int bpk_state_part_view(struct bpk_edits *edits, const struct bpk_file *file) {
    char name[BPK_FILE_NAME_BUF + 8];
    if (file->number >= BPK_ARRAY_NUMBERS)
        return part(edits, file->number);
    if (file->folder != BPK_IN_TENSORS || !file->name)
        return 0;
    size_t len = strnlen(file->name, BPK_FILE_NAME_BUF);
    memcpy(name, file->name, len);
    strcpy(name + len, ".npy");
    const struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_NPY, name);
    bool is_its_array =
        entry && entry->file && bpk_state_viewed(edits, entry->file->number) == file->number;
    return is_its_array ? part(edits, entry->file->number) : 0;
}

int bpk_state_join_view(struct bpk_edits *edits, uint64_t number, uint64_t *tensor) {
    uint64_t before = bpk_state_viewed(edits, number);
    if (*tensor == 0 && before >= BPK_FIRST_NEW_NUMBER && !bpk_state_file(edits, before))
        *tensor = before;
    if (*tensor == 0) {
        *tensor = edits->next_number++;
        if (number >= BPK_ARRAY_NUMBERS) {
            int r = set(&edits->view_numbers, *tensor, number);
            if (r < 0)
                return r;
        }
    }
    return *tensor == before ? 0 : set(&edits->viewed_numbers, number, *tensor);
}

/* ---- for the mount --------------------------------------------------------------------------- */

uint64_t bpk_edits_view_number(struct bpk_edits *edits, uint64_t tensor) {
    pthread_mutex_lock(&edits->lock);
    uint64_t number = view_number(edits, tensor);
    pthread_mutex_unlock(&edits->lock);
    return number;
}

uint64_t bpk_edits_viewed(struct bpk_edits *edits, uint64_t number) {
    pthread_mutex_lock(&edits->lock);
    uint64_t tensor = bpk_state_viewed(edits, number);
    pthread_mutex_unlock(&edits->lock);
    return tensor;
}
