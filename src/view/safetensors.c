#include "view/safetensors.h"

#include "pack/dtype.h"
#include "pack/util.h"
#include "view/json.h"
#include "view/maps.h"

#include <errno.h>
#include <string.h>

#define METADATA_KEY "__metadata__"

enum { LENGTH_SIZE = 8, ALIGNMENT = 8 };

/* ---- tensors --------------------------------------------------------------------------------- */

/* Names, and their places in the library's order of dtypes (enum Dtype), by which it sorts. */
static const struct {
    const char *name;
    int place;
} dtypes[] = {
    [BPK_BOOL] = {"BOOL", 0}, [BPK_U8] = {"U8", 1},      [BPK_I8] = {"I8", 2},
    [BPK_I16] = {"I16", 3},   [BPK_U16] = {"U16", 4},    [BPK_F16] = {"F16", 5},
    [BPK_BF16] = {"BF16", 6}, [BPK_I32] = {"I32", 7},    [BPK_U32] = {"U32", 8},
    [BPK_F32] = {"F32", 9},   [BPK_FLEX32] = {"F32", 9}, [BPK_F64] = {"F64", 10},
    [BPK_I64] = {"I64", 11},  [BPK_U64] = {"U64", 12},   [BPK_QFLOAT] = {"U8", 1},
};

static enum bpk_kind kind_of(const struct bpk_array *array) {
    const struct bpk_dtype *dtype = &array->dtype;
    return dtype->kind == BPK_BOOL && dtype->bool_store == BPK_BOOL_U32 ? BPK_U32 : dtype->kind;
}

bool bpk_safetensors_takes(struct bpk_str name, const struct bpk_array *array,
                           const char **ret_reason) {
    if (bpk_str_is(name, METADATA_KEY))
        *ret_reason = "has the name under which safetensors files keep their metadata";
    else if (!bpk_array_is_whole(array))
        *ret_reason = "has another length than its shape and dtype need";
    else
        return true;
    return false;
}

int bpk_safetensors_compare(const void *a, const void *b) {
    const struct bpk_safetensors_tensor *x = a;
    const struct bpk_safetensors_tensor *y = b;
    int order = dtypes[kind_of(&y->array)].place - dtypes[kind_of(&x->array)].place;
    return order != 0 ? order : bpk_str_compare(x->name, y->name);
}

static void out_numbers(struct bpk_outbuf *out, const uint64_t *numbers, uint32_t count) {
    bpk_out_str(out, "[");
    for (uint32_t i = 0; i < count; i++) {
        bpk_out_str(out, i == 0 ? "" : ",");
        bpk_out_u64(out, numbers[i]);
    }
    bpk_out_str(out, "]");
}

static void out_tensor(struct bpk_outbuf *out, const struct bpk_safetensors_tensor *tensor,
                       uint64_t start, uint64_t end) {
    const struct bpk_array *array = &tensor->array;
    bpk_json_string(out, tensor->name);
    bpk_out_str(out, ":{\"dtype\":");
    bpk_json_cstring(out, dtypes[kind_of(array)].name);
    bpk_out_str(out, ",\"shape\":");
    if (array->dtype.kind == BPK_QFLOAT)
        out_numbers(out, &array->size, 1);
    else
        out_numbers(out, array->dims, array->rank);
    bpk_out_str(out, ",\"data_offsets\":");
    out_numbers(out, (const uint64_t[]){start, end}, 2);
    bpk_out_str(out, "}");
}

/* ---- __metadata__ ---------------------------------------------------------------------------- */

struct head {
    const struct bpk_safetensors *file;
    struct bpk_outbuf *out;
    size_t start;   /* of the JSON in `out` */
    size_t entries; /* of __metadata__, so far */
};

/* There is no need to go on. */
static bool is_full(const struct head *head) {
    return head->out->failed || head->out->len - head->start > BPK_SAFETENSORS_MAX_HEADER;
}

static void out_entry(struct head *head, struct bpk_str key, struct bpk_str value) {
    if (is_full(head))
        return;
    bpk_out_str(head->out, head->entries++ == 0 ? "\"" METADATA_KEY "\":{" : ",");
    bpk_json_string(head->out, key);
    bpk_out_str(head->out, ":");
    bpk_json_string(head->out, value);
}

static int compare_key(const void *key, const void *entry) {
    const struct bpk_str *left = key;
    return bpk_str_compare(*left, ((const struct bpk_plan_entry *)entry)->key);
}

static bool user_has(const struct bpk_safetensors *file, struct bpk_str key) {
    return file->metadata_count > 0 && bsearch(&key, file->metadata, file->metadata_count,
                                               sizeof(file->metadata[0]), compare_key);
}

/* An entry of our own, under PREFIX and NAME. */
static void out_own_entry(struct head *head, const char *prefix, struct bpk_str name,
                          const struct bpk_outbuf *value) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    bpk_out_str(&text, prefix);
    bpk_out(&text, name.bytes, name.len);
    struct bpk_str key = {text.text, text.len};
    if (text.failed || value->failed)
        head->out->failed = true;
    else if (!user_has(head->file, key))
        out_entry(head, key, (struct bpk_str){value->text, value->len});
    else if (head->file->left_out)
        head->file->left_out(head->file->context, key);
}

static void out_qfloat(struct head *head, const struct bpk_safetensors_tensor *tensor) {
    _cleanup_outbuf_ struct bpk_outbuf value = {0};
    bpk_out_str(&value, "{\"dtype\": ");
    bpk_json_dtype(&value, &tensor->array.dtype);
    bpk_out_str(&value, ", \"shape\": ");
    bpk_json_shape(&value,
                   (struct bpk_shape){.dims = tensor->array.dims, .left = tensor->array.rank});
    bpk_out_str(&value, "}");
    out_own_entry(head, "qfloat:", tensor->name, &value);
}

static void out_scalar(struct head *head, const struct bpk_scalar *scalar) {
    _cleanup_outbuf_ struct bpk_outbuf value = {0};
    bpk_scalar_value(&value, scalar);
    out_own_entry(head, "scalar:", scalar->name, &value);
}

static bool out_metadata(struct head *head) {
    const struct bpk_safetensors *file = head->file;
    for (size_t i = 0; i < file->metadata_count; i++)
        out_entry(head, file->metadata[i].key, file->metadata[i].value);
    for (size_t i = 0; i < file->tensor_count; i++)
        if (file->tensors[i].array.dtype.kind == BPK_QFLOAT)
            out_qfloat(head, &file->tensors[i]);
    for (size_t i = 0; i < file->scalar_count; i++)
        out_scalar(head, &file->scalars[i]);
    if (head->entries == 0)
        return false;
    bpk_out_str(head->out, "}");
    return true;
}

/* ---- the head -------------------------------------------------------------------------------- */

int bpk_safetensors_head(const struct bpk_safetensors *file, struct bpk_outbuf *out,
                         uint64_t *ret_data_size) {
    size_t begin = out->len;
    struct head head = {.file = file, .out = out, .start = begin + LENGTH_SIZE};
    uint64_t end = 0;
    bpk_out(out, (const char[LENGTH_SIZE]){0}, LENGTH_SIZE); /* filled in below */
    bpk_out_str(out, "{");
    bool any = out_metadata(&head);
    for (size_t i = 0; i < file->tensor_count && !is_full(&head); i++) {
        uint64_t offset = end;
        if (!bpk_add_u64(end, file->tensors[i].array.size, &end))
            return -EFBIG;
        bpk_out_str(out, any ? "," : "");
        out_tensor(out, &file->tensors[i], offset, end);
        any = true;
    }
    bpk_out_str(out, "}");
    while ((out->len - head.start) % ALIGNMENT != 0 && !out->failed)
        bpk_out(out, " ", 1);
    if (out->failed)
        return -ENOMEM;
    if (is_full(&head))
        return -EFBIG;
    uint64_t size = out->len - head.start;
    for (size_t i = 0; i < LENGTH_SIZE && !out->counting; i++)
        out->text[begin + i] = (char)(size >> 8 * i);
    *ret_data_size = end;
    return 0;
}
