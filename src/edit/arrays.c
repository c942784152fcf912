/* Arrays that come into views/npy/ and become tensors.
 *
 * A file there that is written anew has contents of its own, as it came, until it is whole: header
 * and data. Then it becomes the tensor of its name, dtype and shape with it, and the file is gone:
 * the name leads to the tensor's view again. What the tensor was stays in force so long, and for
 * ever if the array is none that Burn can hold. Data in C order stays where it lies, behind its
 * header in the data file; any other is written again in order. All locked but the last.
 */
#include "edit/state.h"

#include "pack/diag.h"
#include "pack/util.h"
#include "view/npy.h"
#include "view/npy_order.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

/* The file name of the tensor that `name` in views/npy/ is meant to be. */
static bool tensor_of(const struct bpk_edits *edits, const char *name,
                      char ret_stem[BPK_FILE_NAME_BUF]) {
    char buffer[BPK_FILE_NAME_BUF];
    uint32_t index;
    struct bpk_str tensor;
    struct bpk_str stem;
    if (!bpk_rules_array_stem(name, &stem) || stem.len >= BPK_FILE_NAME_BUF)
        return false;
    memcpy(ret_stem, stem.bytes, stem.len);
    ret_stem[stem.len] = '\0';
    /* A name that the base has is always the base's; of others, an editor's own is no tensor's. */
    return bpk_state_find_base(edits, ret_stem, &index) ||
           (!bpk_rules_is_scratch(name) && bpk_state_tensor_name(edits, ret_stem, buffer, &tensor));
}

bool bpk_state_is_array(const struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    char stem[BPK_FILE_NAME_BUF];
    return folder == BPK_IN_NPY && tensor_of(edits, name, stem);
}

uint64_t bpk_state_array_number(struct bpk_edits *edits, const char *name) {
    char stem[BPK_FILE_NAME_BUF];
    uint64_t number = 0;
    if (!tensor_of(edits, name, stem))
        return edits->next_number++;
    if (bpk_state_exists(edits, BPK_IN_TENSORS, stem))
        number = bpk_state_number_of(edits, BPK_IN_TENSORS, stem);
    return bpk_state_new_array_number(edits, number);
}

int bpk_state_renumber_array(struct bpk_edits *edits, struct bpk_file *file) {
    char stem[BPK_FILE_NAME_BUF];
    bool is_of_tensor =
        tensor_of(edits, file->name, stem) && bpk_state_exists(edits, BPK_IN_TENSORS, stem);
    uint64_t tensor = is_of_tensor ? bpk_state_number_of(edits, BPK_IN_TENSORS, stem) : 0;
    /* One without a tensor, or whose tensor needs no number, has a number of its own, which no
     * other mount gives away. */
    if (tensor == 0 && file->number - BPK_ARRAY_NUMBERS >= BPK_FIRST_NEW_NUMBER)
        return 0;
    uint64_t number = bpk_state_new_array_number(edits, tensor);
    return number == file->number ? 0 : bpk_state_renumber(edits, file, number);
}

/* ---- looking --------------------------------------------------------------------------------- */

static int read_head(struct bpk_content *content, size_t size, struct bpk_npy *ret_npy,
                     struct bpk_diag *diag) {
    _cleanup_free_ char *head = malloc(size);
    size_t n;
    if (!head)
        return -ENOMEM;
    int r = bpk_content_read(content, 0, head, size, &n);
    return r < 0 ? r : bpk_npy_parse(head, n, ret_npy, diag);
}

/* The header of what has come so far: 0, -EAGAIN if more is to come, -EINVAL. */
static int look_at_header(struct bpk_content *content, struct bpk_npy *ret_npy,
                          struct bpk_diag *diag) {
    enum { USUAL = 4096 };
    (void)bpk_diag_set(diag, 0, BPK_NO_OFFSET, "the header is not whole");
    int r = read_head(content, USUAL, ret_npy, diag);
    if (r == -EAGAIN && content->size > USUAL)
        r = read_head(content, BPK_NPY_MAX_HEADER, ret_npy, diag);
    return r == -EFBIG ? -EINVAL : r;
}

/* The same of the whole array. */
static int look(struct bpk_content *content, struct bpk_npy *ret_npy, struct bpk_diag *diag) {
    struct bpk_npy npy;
    int r = look_at_header(content, &npy, diag);
    if (r < 0)
        return r;
    uint64_t has = content->size - npy.header_size;
    if (has != npy.size)
        r = bpk_diag_set(diag, has < npy.size ? -EAGAIN : -EINVAL, BPK_NO_OFFSET,
                         "has %llu bytes of data, its header says %llu", (unsigned long long)has,
                         (unsigned long long)npy.size);
    if (r == 0)
        *ret_npy = npy;
    return r;
}

static int note_verdict(struct bpk_edits *edits, struct bpk_file *file, int r,
                        const struct bpk_diag *diag) {
    char *reason = r < 0 ? strdup(diag->sentence) : NULL;
    free(file->reason);
    file->reason = reason;
    file->unparsed = false;
    file->verdict = r == -EAGAIN ? BPK_TEXT_EARLY_END : r < 0 ? BPK_TEXT_BAD : BPK_TEXT_GOOD;
    bpk_record_file(edits, file);
    return r < 0 && !reason ? -ENOMEM : r;
}

/* One of no tensor is scratch while it is empty; the view of a tensor is not. */
bool bpk_judge_array(struct bpk_edits *edits, const struct bpk_entry *entry, char *out,
                     size_t size) {
    const struct bpk_file *file = entry->file;
    char stem[BPK_FILE_NAME_BUF];
    if (!file || !file->content || entry->key[0] != BPK_IN_NPY ||
        !tensor_of(edits, entry->key + 1, stem))
        return false;
    bool is_empty = file->content->size == 0;
    if (is_empty && !bpk_state_exists(edits, BPK_IN_TENSORS, stem))
        return false;
    if (is_empty)
        (void)snprintf(out, size, "is empty: write it again, or remove it");
    else if (file->content->suspect)
        (void)snprintf(out, size, "the power was lost before it was on the disk: write it again");
    else
        (void)snprintf(out, size, "%s: write it again, or remove it",
                       file->reason ? file->reason : "is not whole");
    return true;
}

int bpk_state_note_array(struct bpk_edits *edits, struct bpk_file *file, uint64_t offset) {
    struct bpk_npy npy;
    struct bpk_diag diag;
    if (offset >= BPK_NPY_MAX_HEADER)
        return 0;
    int r = look_at_header(file->content, &npy, &diag);
    return r == -EINVAL ? note_verdict(edits, file, r, &diag) : 0;
}

int bpk_state_check_array(struct bpk_file *file) {
    struct bpk_npy npy;
    struct bpk_diag diag;
    if (!file->content)
        return -EINVAL;
    int r = look(file->content, &npy, &diag);
    return r == -EAGAIN ? -EINVAL : r;
}

/* ---- becoming a tensor ----------------------------------------------------------------------- */

struct sorter {
    struct bpk_content *from;
    uint64_t skip;
    struct bpk_content *to;
};

static int read_data(void *context, uint64_t offset, void *buffer, size_t size) {
    const struct sorter *sorter = context;
    size_t n;
    int r = bpk_content_read(sorter->from, sorter->skip + offset, buffer, size, &n);
    return r == 0 && n < size ? -EIO : r;
}

static int write_data(void *context, uint64_t offset, const void *bytes, size_t size) {
    const struct sorter *sorter = context;
    bool mapped;
    return bpk_content_write(sorter->to, offset, bytes, size, &mapped);
}

/* Fills a content with the array's data in C order. What was made durable as it came is so still
 * when it lies elsewhere; nothing else waits for the disk, unless it is to last. */
static int sort_into(struct bpk_content *to, struct bpk_content *from, const struct bpk_npy *npy,
                     bool lasts) {
    struct sorter sorter = {from, npy->header_size, to};
    const struct bpk_source source = {read_data, &sorter};
    int r = bpk_npy_reorder(npy, &source, write_data, &sorter);
    if (r == 0 && (lasts || bpk_content_is_synced(from))) {
        r = bpk_content_sync(to);
        to->unsynced = r < 0;
    }
    return r;
}

static int sort_data(struct bpk_edits *edits, struct bpk_content *from, const struct bpk_npy *npy,
                     struct bpk_content **ret_content) {
    struct bpk_content *to = bpk_content_new(&edits->store, edits->next_content++);
    int r = to ? sort_into(to, from, npy, false) : -ENOMEM;
    if (r < 0)
        bpk_content_unref(to, false);
    else
        *ret_content = to;
    return r;
}

/* Both contents' data files are open: nothing of what the lock guards is needed to sort. */
static int prepare_sorting(struct bpk_content *from, struct bpk_content *to) {
    bool mapped;
    int r = to ? bpk_content_hold(from) : -ENOMEM;
    return r < 0 ? r : bpk_content_write(to, 0, "", 1, &mapped);
}

struct bpk_content *bpk_state_sort_ahead(struct bpk_edits *edits, uint64_t number, bool lasts) {
    enum { LARGE = 1 << 20 };
    struct bpk_npy npy;
    struct bpk_diag diag;
    const struct bpk_file *file = bpk_state_file(edits, number);
    if (!file || !file->name || !file->unparsed || !file->content || file->content->frozen ||
        file->content->size < LARGE || !bpk_state_is_array(edits, file->folder, file->name) ||
        look(file->content, &npy, &diag) < 0 || !bpk_npy_needs_order(&npy))
        return NULL;
    struct bpk_content *from = bpk_content_ref(file->content);
    struct bpk_content *to = bpk_content_new(&edits->store, edits->next_content++);
    int r = prepare_sorting(from, to);
    if (r == 0) {
        from->frozen = true; /* who writes meanwhile writes above it */
        pthread_mutex_unlock(&edits->lock);
        r = sort_into(to, from, &npy, lasts);
        pthread_mutex_lock(&edits->lock);
        from->frozen = false;
        file = bpk_state_file(edits, number);
    }
    if (r < 0 || !file || file->content != from) {
        bpk_content_unref(to, false);
        to = NULL;
    }
    bpk_content_unref(from, false);
    return to;
}

/* The content that the tensor is to have; a reference. */
static int take_data(struct bpk_edits *edits, struct bpk_file *file, const struct bpk_npy *npy,
                     struct bpk_content **sorted, struct bpk_content **ret_content) {
    if (sorted && *sorted) {
        *ret_content = bpk_steal_ptr(*sorted);
        return 0;
    }
    if (bpk_npy_needs_order(npy) ||
        bpk_content_cut_out(file->content, npy->header_size, npy->size) < 0)
        return sort_data(edits, file->content, npy, ret_content);
    *ret_content = bpk_content_ref(file->content);
    return 0;
}

/* Puts the content at the tensor's name. The tensor's file is the one that was there, or a new
 * one. */
static int put_data(struct bpk_edits *edits, const char *stem, uint64_t array_number,
                    struct bpk_content *content) {
    struct bpk_place place = {BPK_IN_TENSORS, stem, 0};
    struct bpk_file *tensor;
    bool is_new = !bpk_state_exists(edits, BPK_IN_TENSORS, stem);
    if (!is_new)
        place.number = bpk_state_number_of(edits, BPK_IN_TENSORS, stem);
    int r = bpk_state_join_view(edits, array_number, &place.number);
    if (r < 0)
        return r;
    if (!is_new) {
        r = bpk_state_touch(edits, &place, &tensor);
    } else {
        tensor = bpk_state_add_file(edits, place.number, BPK_IN_TENSORS, stem);
        r = tensor ? 0 : -ENOMEM;
    }
    if (r == 0 && tensor->target)
        r = -EINVAL;
    if (r < 0)
        return r;
    bpk_content_unref(tensor->content, false);
    tensor->content = content;
    clock_gettime(CLOCK_REALTIME, &tensor->mtime);
    bpk_record_content(edits, content);
    bpk_record_shift(edits, content);
    bpk_record_blocks(edits, content, 0, content->size);
    if (!content->unsynced)
        bpk_record_synced(edits, content);
    bpk_record_file(edits, tensor);
    bpk_state_note_version(edits, stem);
    bpk_state_stale(edits, tensor->number);
    if (!is_new)
        return 0;
    bpk_state_stale(edits, edits->folder_numbers[BPK_IN_TENSORS]);
    return bpk_state_set_entry(edits, BPK_IN_TENSORS, stem, tensor);
}

/* dtype and shape are the header's, or what the name has where they mean the same. */
static int put_descriptor(struct bpk_edits *edits, const char *stem, const struct bpk_npy *npy) {
    struct bpk_stem *record;
    int r = bpk_state_make_stem(edits, stem, &record);
    if (r < 0)
        return r;
    const struct bpk_desc *before = record->now ? record->now : record->remembered;
    struct bpk_descriptor means = {.rank = npy->rank};
    bool keeps_shape =
        bpk_npy_dtype(npy, before ? &before->means.dtype : NULL, &means.dtype) && before;
    if (before && (record->now || record->remembers_param_id)) {
        means.has_param_id = before->means.has_param_id;
        means.param_id = before->means.param_id;
    }
    const uint64_t *dims = keeps_shape ? before->means.dims : npy->dims;
    if (keeps_shape)
        means.rank = before->means.rank;
    means.dims = calloc((size_t)means.rank + 1, sizeof(*means.dims));
    if (!means.dims)
        return -ENOMEM;
    if (means.rank > 0)
        memcpy(means.dims, dims, means.rank * sizeof(*dims));
    struct bpk_desc *desc = bpk_desc_from(&means, before);
    bpk_descriptor_clear(&means);
    if (!desc)
        return -ENOMEM;
    bpk_desc_unref(record->now);
    record->now = desc;
    bpk_record_stem(edits, record);
    return bpk_state_reveal_sidecar(edits, stem);
}

static int become_tensor(struct bpk_edits *edits, struct bpk_file *file, const char *stem,
                         const struct bpk_npy *npy, struct bpk_content **sorted) {
    struct bpk_content *content = NULL;
    _cleanup_free_ char *name = strdup(file->name);
    int r = name ? bpk_record_room(edits,
                                   bpk_state_stem_room(edits, stem) + npy->rank * sizeof(uint64_t))
                 : -ENOMEM;
    if (r == 0)
        r = take_data(edits, file, npy, sorted, &content);
    if (r < 0)
        return r;
    r = put_data(edits, stem, file->number, content);
    if (r == 0)
        r = put_descriptor(edits, stem, npy);
    if (r == 0)
        r = bpk_state_set_entry(edits, BPK_IN_NPY, name, NULL);
    if (r < 0)
        return r;
    bpk_state_give_opens(edits, file);
    bpk_state_drop_file(edits, file);
    return 0;
}

int bpk_state_take_array(struct bpk_edits *edits, struct bpk_file *file, bool ends_here,
                         struct bpk_content **sorted) {
    char stem[BPK_FILE_NAME_BUF];
    struct bpk_npy npy;
    struct bpk_diag diag;
    if (!file->content || file->content->size == 0) {
        file->unparsed = false;
        return 0;
    }
    if (!tensor_of(edits, file->name, stem))
        return -EINVAL;
    int r = look(file->content, &npy, &diag);
    if (r == -EAGAIN || r == -EINVAL) {
        r = note_verdict(edits, file, r, &diag);
        return r != -EAGAIN ? r : ends_here ? -EBADMSG : 0;
    }
    if (r < 0)
        return r;
    return become_tensor(edits, file, stem, &npy, sorted);
}

/* ---- for the mount --------------------------------------------------------------------------- */

static int begin(struct bpk_edits *edits, const char *name, uint64_t number) {
    if (bpk_state_exists(edits, BPK_IN_NPY, name))
        return -EEXIST;
    struct bpk_file *file = bpk_state_add_file(edits, number, BPK_IN_NPY, name);
    if (!file)
        return -ENOMEM;
    file->content = bpk_content_new(&edits->store, edits->next_content++);
    if (!file->content) {
        bpk_state_drop_file(edits, file);
        return -ENOMEM;
    }
    bpk_state_take_opens(edits, file);
    clock_gettime(CLOCK_REALTIME, &file->mtime);
    bpk_record_content(edits, file->content);
    bpk_record_file(edits, file);
    return bpk_state_set_entry(edits, BPK_IN_NPY, name, file);
}

int bpk_edits_begin_array(struct bpk_edits *edits, const char *name, uint64_t number) {
    pthread_mutex_lock(&edits->lock);
    int r = bpk_record_begin(edits, 0);
    if (r == 0)
        r = begin(edits, name, number);
    r = bpk_record_finish(edits, r);
    bool is_there = bpk_state_number_of(edits, BPK_IN_NPY, name) == number;
    pthread_mutex_unlock(&edits->lock);
    /* Somebody else was as quick. */
    return r == -EEXIST && is_there
               ? bpk_edits_truncate(edits, &(struct bpk_place){.number = number}, 0)
               : r;
}

bool bpk_edits_has_file(struct bpk_edits *edits, uint64_t number) {
    pthread_mutex_lock(&edits->lock);
    bool has = bpk_state_file(edits, number) != NULL;
    pthread_mutex_unlock(&edits->lock);
    return has;
}
