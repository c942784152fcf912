#include "view/safetensors_read.h"

#include "pack/diag.h"
#include "pack/dtype.h"
#include "pack/util.h"
#include "view/json.h"
#include "view/json_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define METADATA_KEY "__metadata__"

/* Says what is wrong with a tensor; returns -EINVAL. */
static int refuse(struct bpk_diag *diag, struct bpk_str name, const char *why) {
    char shown[BPK_JSON_SHOWN];
    return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET, "the tensor \"%s\" %s",
                        bpk_json_show(name, shown), why);
}

/* The entries of a file in another order. */
struct sorted {
    struct bpk_safetensors_entry **entries;
    size_t count;
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* Each dtype of the format that Burn has; a Bool is a byte in both. */
static bool dtype_of(const json_t *value, struct bpk_dtype *ret_dtype) {
    static const enum bpk_kind plain[] = {BPK_F64, BPK_F32, BPK_F16, BPK_BF16, BPK_I64, BPK_I32,
                                          BPK_I16, BPK_I8,  BPK_U64, BPK_U32,  BPK_U16, BPK_U8};
    struct bpk_str name = bpk_json_text(value);
    *ret_dtype = (struct bpk_dtype){.kind = BPK_BOOL, .bool_store = BPK_BOOL_NATIVE};
    if (name.bytes && bpk_str_is(name, "BOOL"))
        return true;
    for (size_t i = 0; name.bytes && i < BPK_ARRAY_LEN(plain); i++) {
        ret_dtype->kind = plain[i];
        if (bpk_str_is(name, bpk_kind_name(plain[i])))
            return true;
    }
    return false;
}

static bool take_numbers(const struct bpk_json_source *source, const json_t *list,
                         uint64_t *ret_numbers, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bpk_json_take_u64(source, json_array_get(list, i), "", UINT64_MAX, &ret_numbers[i]) !=
            BPK_TEXT_GOOD)
            return false;
    return true;
}

/* One whose sentences are the caller's business. */
static const struct bpk_json_source silent = {.entry = BPK_JSON_NO_ENTRY};

static int take_tensor(struct bpk_str name, json_t *value, uint64_t data_size,
                       struct bpk_safetensors_entry *entry, struct bpk_diag *diag) {
    struct bpk_descriptor *d = &entry->descriptor;
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    uint64_t ends[2];
    uint64_t needed;
    entry->name = malloc(name.len + 1);
    if (!entry->name)
        return -ENOMEM;
    memcpy(entry->name, name.bytes, name.len);
    entry->name_len = name.len;
    if (!dtype_of(json_object_get(value, "dtype"), &d->dtype)) {
        char shown[BPK_JSON_SHOWN];
        struct bpk_str dtype = bpk_json_text(json_object_get(value, "dtype"));
        if (!dtype.bytes)
            return refuse(diag, name, "has no dtype");
        char why[BPK_JSON_SHOWN + 40];
        (void)snprintf(why, sizeof(why), "has the dtype %s, which Burn has not",
                       bpk_json_show(dtype, shown));
        return refuse(diag, name, why);
    }
    if (!json_is_array(shape) || json_array_size(shape) > UINT32_MAX)
        return refuse(diag, name, "has no shape");
    d->dims = calloc(json_array_size(shape) + 1, sizeof(*d->dims));
    if (!d->dims)
        return -ENOMEM;
    d->rank = (uint32_t)json_array_size(shape);
    if (!take_numbers(&silent, shape, d->dims, d->rank))
        return refuse(diag, name, "has a shape that is no list of numbers");
    if (json_array_size(offsets) != 2 || !take_numbers(&silent, offsets, ends, 2))
        return refuse(diag, name, "has no data_offsets");
    if (ends[0] > ends[1] || ends[1] > data_size)
        return refuse(diag, name, "has data_offsets beyond the file's end, or that are no range");
    if (!bpk_dtype_shape_length(&d->dtype, d->dims, d->rank, &needed) ||
        needed != ends[1] - ends[0])
        return refuse(diag, name, "has another length than its shape and dtype need");
    entry->start = ends[0];
    entry->end = ends[1];
    return 0;
}

static int take_tensors(json_t *root, uint64_t data_size, struct bpk_safetensors_file *file,
                        struct bpk_diag *diag) {
    const char *key;
    json_t *value;
    file->entries = calloc(json_object_size(root) + 1, sizeof(*file->entries));
    if (!file->entries)
        return -ENOMEM;
    json_object_foreach(root, key, value) {
        if (strcmp(key, METADATA_KEY) == 0)
            continue;
        int r = take_tensor((struct bpk_str){key, strlen(key)}, value, data_size,
                            &file->entries[file->count++], diag);
        if (r < 0)
            return r;
    }
    return 0;
}

static int compare_places(const void *a, const void *b) {
    const struct bpk_safetensors_entry *x = *(const struct bpk_safetensors_entry *const *)a;
    const struct bpk_safetensors_entry *y = *(const struct bpk_safetensors_entry *const *)b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* As the format has it, each byte of the data is one tensor's. */
static int check_places(const struct sorted *sorted, uint64_t data_size, struct bpk_diag *diag) {
    uint64_t end = 0;
    if (sorted->count > 0)
        qsort(sorted->entries, sorted->count, sizeof(*sorted->entries), compare_places);
    for (size_t i = 0; i < sorted->count; i++) {
        const struct bpk_safetensors_entry *entry = sorted->entries[i];
        struct bpk_str name = {entry->name, entry->name_len};
        char why[100];
        (void)snprintf(why, sizeof(why),
                       entry->start < end ? "starts at byte %" PRIu64 ", inside another tensor"
                                          : "starts at byte %" PRIu64 ", after bytes of no tensor",
                       entry->start);
        if (entry->start != end)
            return refuse(diag, name, why);
        end = entry->end;
    }
    if (end != data_size)
        return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET,
                            "%" PRIu64 " byte%s after the last tensor", data_size - end,
                            data_size - end == 1 ? " comes" : "s come");
    return 0;
}

/* ---- what is kept in words ------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
    const struct bpk_safetensors_entry *const *x = a;
    const struct bpk_safetensors_entry *const *y = b;
    size_t len = (*x)->name_len < (*y)->name_len ? (*x)->name_len : (*y)->name_len;
    int order = memcmp((*x)->name, (*y)->name, len);
    return order != 0 ? order
                      : ((*x)->name_len > (*y)->name_len) - ((*x)->name_len < (*y)->name_len);
}

/* "qfloat:NAME": whether it is what the tensor NAME, a list of bytes, was. */
static bool take_qfloat(const struct sorted *sorted, const char *name, struct bpk_str text) {
    struct bpk_safetensors_entry wanted = {.name = (char *)(uintptr_t)name,
                                           .name_len = strlen(name)};
    const struct bpk_safetensors_entry *key = &wanted;
    struct bpk_descriptor descriptor;
    struct bpk_safetensors_entry **found =
        bsearch(&key, sorted->entries, sorted->count, sizeof(key), compare_names);
    if (!found || (*found)->descriptor.dtype.kind != BPK_U8 || (*found)->descriptor.rank != 1 ||
        bpk_sidecar_parse(text, &descriptor, NULL) != BPK_TEXT_GOOD)
        return false;
    if (descriptor.dtype.kind != BPK_QFLOAT) {
        bpk_descriptor_clear(&descriptor);
        return false;
    }
    bpk_descriptor_clear(&(*found)->descriptor);
    (*found)->descriptor = descriptor;
    return true;
}

/* "scalar:NAME": whether it is one; appended to the text of all of them. */
static bool take_scalar(const char *name, struct bpk_str text, struct bpk_outbuf *all) {
    _cleanup_outbuf_ struct bpk_outbuf entry = {0};
    _cleanup_outbuf_ struct bpk_outbuf single = {0};
    struct bpk_scalar_map map;
    bpk_json_cstring(&entry, name);
    bpk_out_str(&entry, ": ");
    bpk_out(&entry, text.bytes, text.len);
    bpk_out_str(&single, "{");
    bpk_out(&single, entry.text, entry.len);
    bpk_out_str(&single, "}");
    if (single.failed ||
        bpk_scalars_parse((struct bpk_str){single.text, single.len}, &map, NULL) != BPK_TEXT_GOOD)
        return false;
    bool is_one = map.count == 1;
    bpk_scalar_map_clear(&map);
    if (!is_one)
        return false;
    bpk_out_str(all, all->len > 1 ? ", " : "");
    bpk_out(all, entry.text, entry.len);
    return true;
}

/* Takes out of the object what is of our own, and the rest as it is. */
static int take_words(json_t *metadata, const struct sorted *sorted,
                      struct bpk_safetensors_file *file, struct bpk_diag *diag) {
    _cleanup_outbuf_ struct bpk_outbuf scalars = {0};
    const char *key;
    json_t *value;
    void *next;
    bpk_out_str(&scalars, "{");
    json_object_foreach_safe(metadata, next, key, value) {
        struct bpk_str text = bpk_json_text(value);
        if (!text.bytes)
            continue; /* refused below */
        if ((strncmp(key, "qfloat:", 7) == 0 && take_qfloat(sorted, key + 7, text)) ||
            (strncmp(key, "scalar:", 7) == 0 && take_scalar(key + 7, text, &scalars)))
            (void)json_object_del(metadata, key);
    }
    bpk_out_str(&scalars, "}");
    _cleanup_free_ char *rest = json_dumps(metadata, 0);
    if (!rest || scalars.failed)
        return -ENOMEM;
    enum bpk_text_verdict verdict =
        bpk_scalars_parse((struct bpk_str){scalars.text, scalars.len}, &file->scalars, diag);
    if (verdict == BPK_TEXT_GOOD)
        verdict = bpk_metadata_parse((struct bpk_str){rest, strlen(rest)}, &file->metadata, diag);
    return verdict == BPK_TEXT_GOOD ? 0 : verdict == BPK_TEXT_NO_MEMORY ? -ENOMEM : -EINVAL;
}

static int take_metadata(json_t *root, const struct sorted *sorted,
                         struct bpk_safetensors_file *file, struct bpk_diag *diag) {
    json_t *metadata = json_object_get(root, METADATA_KEY);
    if (!metadata || json_is_null(metadata))
        return 0;
    if (!json_is_object(metadata))
        return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET, METADATA_KEY " is no object");
    if (sorted->count > 0)
        qsort(sorted->entries, sorted->count, sizeof(*sorted->entries), compare_names);
    return take_words(metadata, sorted, file, diag);
}

static int take_file(json_t *root, uint64_t data_size, struct bpk_safetensors_file *file,
                     struct bpk_diag *diag) {
    int r = take_tensors(root, data_size, file, diag);
    if (r < 0)
        return r;
    struct sorted sorted = {calloc(file->count + 1, sizeof(struct bpk_safetensors_entry *)),
                            file->count};
    if (!sorted.entries)
        return -ENOMEM;
    for (size_t i = 0; i < file->count; i++)
        sorted.entries[i] = &file->entries[i];
    r = check_places(&sorted, data_size, diag);
    if (r == 0)
        r = take_metadata(root, &sorted, file, diag);
    free(sorted.entries);
    return r;
}

int bpk_safetensors_parse(struct bpk_str header, uint64_t data_size,
                          struct bpk_safetensors_file *ret_file, struct bpk_diag *diag) {
    struct bpk_json_source source = {.text = header, .diag = diag};
    struct bpk_safetensors_file file = {0};
    enum bpk_text_verdict verdict = bpk_json_open(&source);
    int r = verdict == BPK_TEXT_GOOD ? 0 : verdict == BPK_TEXT_NO_MEMORY ? -ENOMEM : -EINVAL;
    if (r == 0)
        r = take_file(source.root, data_size, &file, diag);
    bpk_json_close(&source);
    if (r == 0)
        *ret_file = file;
    else
        bpk_safetensors_file_clear(&file);
    return r == -ENOMEM ? bpk_diag_set(diag, r, BPK_NO_OFFSET, "out of memory") : r;
}

void bpk_safetensors_file_clear(struct bpk_safetensors_file *file) {
    for (size_t i = 0; i < file->count; i++) {
        free(file->entries[i].name);
        bpk_descriptor_clear(&file->entries[i].descriptor);
    }
    free(file->entries);
    bpk_string_map_clear(&file->metadata);
    bpk_scalar_map_clear(&file->scalars);
    *file = (struct bpk_safetensors_file){0};
}
