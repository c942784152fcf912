#include "edit/current.h"

#include "edit/state.h"
#include "pack/util.h"

#include <errno.h>
#include <string.h>

/* ---- versions -------------------------------------------------------------------------------- */

/* When a name was last changed: kept over commits, which change nothing that a view shows. */
struct bpk_version {
    UT_hash_handle hh;
    uint64_t generation;
    char name[]; /* file name of the tensor */
};

void bpk_state_note_version(struct bpk_edits *edits, const char *name) {
    struct bpk_version *version;
    size_t len = strlen(name);
    HASH_FIND(hh, edits->versions, name, len, version);
    if (!version) {
        version = calloc(1, sizeof(*version) + len + 1);
        if (version) {
            memcpy(version->name, name, len + 1);
            HASH_ADD(hh, edits->versions, name, len, version);
        }
        if (!version || !version->hh.tbl) { /* then all of them are new */
            free(version);
            edits->all_versions = edits->generation;
            return;
        }
    }
    version->generation = edits->generation;
}

static uint64_t version_of(const struct bpk_edits *edits, const char *name) {
    const struct bpk_version *version;
    HASH_FIND(hh, edits->versions, name, strlen(name), version);
    return version && version->generation > edits->all_versions ? version->generation
                                                                : edits->all_versions;
}

void bpk_state_free_versions(struct bpk_edits *edits) {
    struct bpk_version *version;
    struct bpk_version *next;
    HASH_ITER(hh, edits->versions, version, next) {
        HASH_DEL(edits->versions, version);
        free(version);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int set_title(struct bpk_str name, struct bpk_current *current) {
    char *copy = malloc(name.len + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name.bytes, name.len);
    current->title = (struct bpk_str){copy, name.len};
    return 0;
}

static int fill_from_desc(const struct bpk_desc *desc, struct bpk_current *current) {
    uint32_t rank = desc->means.rank;
    current->array.dtype = desc->means.dtype;
    current->array.rank = rank;
    if (rank == 0)
        return 0;
    current->dims = calloc(rank, sizeof(*current->dims));
    if (!current->dims)
        return -ENOMEM;
    memcpy(current->dims, desc->means.dims, rank * sizeof(*current->dims));
    current->array.dims = current->dims;
    return 0;
}

static int find_locked(struct bpk_edits *edits, const char *name, struct bpk_current *ret_current) {
    struct bpk_current current = {.version = version_of(edits, name)};
    char buffer[BPK_FILE_NAME_BUF];
    struct bpk_str tensor_name;
    uint32_t index;
    if (strlen(name) >= sizeof(current.name) || bpk_state_is_text(edits, BPK_IN_TENSORS, name))
        return -ENOENT;
    const struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_TENSORS, name);
    bool in_base = bpk_state_find_base(edits, name, &index);
    const struct bpk_file *file = entry ? entry->file : NULL;
    const struct bpk_content *content = file ? file->content : NULL;
    if ((entry ? !file || file->target : !in_base) || (!content && !in_base) ||
        !bpk_state_tensor_name(edits, name, buffer, &tensor_name))
        return -ENOENT;
    struct bpk_desc *desc;
    int r = bpk_state_desc(edits, name, &desc);
    if (r == 0 && !desc)
        r = -ENOENT;
    if (r == 0)
        r = fill_from_desc(desc, &current);
    bpk_desc_unref(desc);
    if (r == 0)
        r = set_title(tensor_name, &current);
    if (r < 0) {
        bpk_current_clear(&current);
        return r;
    }
    if (content) {
        current.array.size = content->size;
    } else {
        struct bpk_tensor tensor;
        bpk_pack_tensor(edits->base, index, &tensor);
        current.array.size = tensor.end - tensor.start;
    }
    current.number = bpk_state_number_of(edits, BPK_IN_TENSORS, name);
    strcpy(current.name, name);
    *ret_current = current;
    return 0;
}

int bpk_edits_current(struct bpk_edits *edits, const char *name, struct bpk_current *ret_current) {
    pthread_mutex_lock(&edits->lock);
    int r = find_locked(edits, name, ret_current);
    pthread_mutex_unlock(&edits->lock);
    return r;
}

int bpk_edits_current_of(struct bpk_edits *edits, const struct bpk_place *place,
                         struct bpk_current *ret_current) {
    pthread_mutex_lock(&edits->lock);
    const struct bpk_file *file = bpk_state_file(edits, place->number);
    const char *name = file ? file->name : place->name;
    enum bpk_folder folder = file ? file->folder : place->folder;
    int r = -ENOENT;
    if (name && folder == BPK_IN_TENSORS &&
        bpk_state_number_of(edits, BPK_IN_TENSORS, name) == place->number)
        r = find_locked(edits, name, ret_current);
    pthread_mutex_unlock(&edits->lock);
    return r == -ENOENT ? -ESTALE : r;
}

int bpk_current_of_pack(const struct bpk_pack *pack, const struct bpk_names *names, uint32_t index,
                        uint64_t number, struct bpk_current *ret_current) {
    struct bpk_current current = {.number = number};
    struct bpk_tensor tensor;
    bpk_pack_tensor(pack, index, &tensor);
    bpk_pack_tensor_dtype(pack, index, &current.array.dtype);
    current.array.rank = tensor.rank;
    current.array.size = tensor.end - tensor.start;
    if (tensor.rank > 0) {
        struct bpk_shape shape = bpk_pack_tensor_shape(pack, index);
        current.dims = calloc(tensor.rank, sizeof(*current.dims));
        if (!current.dims)
            return -ENOMEM;
        for (uint32_t i = 0; bpk_shape_next(&shape, &current.dims[i]); i++)
            ;
        current.array.dims = current.dims;
    }
    bpk_names_file(names, index, current.name);
    int r = set_title(tensor.name, &current);
    if (r < 0) {
        bpk_current_clear(&current);
        return r;
    }
    *ret_current = current;
    return 0;
}

void bpk_current_clear(struct bpk_current *current) {
    free(current->dims);
    free((char *)(uintptr_t)current->title.bytes);
    *current = (struct bpk_current){0};
}
