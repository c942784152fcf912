/* Sidecars: dtype, shape and param_id from JSON. */
#include "pack/dtype.h"
#include "pack/util.h"
#include "view/json_load.h"

#include <string.h>

/* ---- objects and names ----------------------------------------------------------------------- */

struct field {
    const char *name;
    json_t *value; /* NULL: not there */
};

/* Finds the fields of an object, whose name in sentences is `where`; any other key is refused. */
static enum bpk_text_verdict take_fields(const struct bpk_json_source *source, json_t *object,
                                         const char *where, struct field *fields, size_t count) {
    if (!json_is_object(object))
        return bpk_json_fault(source, "%s must be an object", where);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        size_t i = 0;
        while (i < count && strcmp(key, fields[i].name) != 0)
            i++;
        if (i == count) {
            char shown[BPK_JSON_SHOWN];
            bpk_json_show((struct bpk_str){key, strlen(key)}, shown);
            return bpk_json_fault(source, "unknown key \"%s\" in %s", shown, where);
        }
        fields[i].value = value;
    }
    return BPK_TEXT_GOOD;
}

static enum bpk_text_verdict missing(const struct bpk_json_source *source, const char *where,
                                     const char *name) {
    return bpk_json_fault(source, "%s without the key \"%s\"", where, name);
}

/* The same, where none may be missing. */
static enum bpk_text_verdict take_all_fields(const struct bpk_json_source *source, json_t *object,
                                             const char *where, struct field *fields,
                                             size_t count) {
    enum bpk_text_verdict verdict = take_fields(source, object, where, fields, count);
    for (size_t i = 0; i < count && verdict == BPK_TEXT_GOOD; i++)
        if (!fields[i].value)
            verdict = missing(source, where, fields[i].name);
    return verdict;
}

static enum bpk_text_verdict unknown(const struct bpk_json_source *source, const char *what,
                                     struct bpk_str name) {
    char shown[BPK_JSON_SHOWN];
    return bpk_json_fault(source, "unknown %s \"%s\"", what, bpk_json_show(name, shown));
}

/* A name that `find` knows; evaluates to a verdict. */
#define TAKE_NAME(source, value, what, find, ret)                                                  \
    ({                                                                                             \
        enum bpk_text_verdict verdict_ = BPK_TEXT_GOOD;                                            \
        if (!json_is_string(value))                                                                \
            verdict_ = bpk_json_fault(source, "a %s must be a name in quotes", what);              \
        else if (!find(bpk_json_text(value), ret))                                                 \
            verdict_ = unknown(source, what, bpk_json_text(value));                                \
        verdict_;                                                                                  \
    })

static enum bpk_text_verdict take_scale(const struct bpk_json_source *source, const json_t *value,
                                        enum bpk_scale *ret_scale) {
    return TAKE_NAME(source, value, "scale dtype", bpk_scale_from_name, ret_scale);
}

/* ---- schemes --------------------------------------------------------------------------------- */

static enum bpk_text_verdict take_store(const struct bpk_json_source *source, json_t *value,
                                        struct bpk_scheme *scheme) {
    json_t *dim = NULL;
    const char *key = bpk_json_only_key(value, &dim);
    struct bpk_str name = key ? (struct bpk_str){key, strlen(key)} : bpk_json_text(value);
    if (!name.bytes)
        return bpk_json_fault(source, "a quantization store must be a name in quotes, or "
                                      "{\"PackedU32\": 0} or the like");
    bool takes_dim;
    if (!bpk_quant_store_from_name(name, &scheme->store, &takes_dim))
        return unknown(source, "quantization store", name);
    if (takes_dim != (key != NULL))
        return bpk_json_fault(source,
                              key ? "the quantization store \"%s\" takes no dimension"
                                  : "the quantization store \"%1$s\" needs its dimension: "
                                    "{\"%1$s\": 0}",
                              name.bytes);
    return key ? bpk_json_take_u64(source, dim, "the packed dimension", UINT64_MAX,
                                   &scheme->packed_dim)
               : BPK_TEXT_GOOD;
}

static enum bpk_text_verdict take_u8(const struct bpk_json_source *source, const json_t *value,
                                     const char *what, uint8_t *ret_number) {
    uint64_t number = 0;
    enum bpk_text_verdict verdict = bpk_json_take_u64(source, value, what, UINT8_MAX, &number);
    if (verdict == BPK_TEXT_GOOD)
        *ret_number = (uint8_t)number;
    return verdict;
}

/* {"storage": [five numbers], "len": n} */
static enum bpk_text_verdict take_block_size(const struct bpk_json_source *source, json_t *value,
                                             struct bpk_scheme *scheme) {
    struct field fields[] = {{"storage", NULL}, {"len", NULL}};
    enum bpk_text_verdict verdict = take_all_fields(source, value, "a block size", fields, 2);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    const json_t *storage = fields[0].value;
    if (!json_is_array(storage) || json_array_size(storage) != BPK_ARRAY_LEN(scheme->block_dims))
        return bpk_json_fault(source, "\"storage\" of a block size must be a list of five numbers");
    for (size_t i = 0; i < BPK_ARRAY_LEN(scheme->block_dims) && verdict == BPK_TEXT_GOOD; i++)
        verdict = take_u8(source, json_array_get(storage, i), "a number of \"storage\"",
                          &scheme->block_dims[i]);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_u8(source, fields[1].value, "\"len\" of a block size", &scheme->block_len);
    return verdict;
}

/* A block size and a scale under these names. */
static enum bpk_text_verdict take_block(const struct bpk_json_source *source, json_t *value,
                                        const char *size_name, const char *scale_name,
                                        struct bpk_scheme *scheme, enum bpk_scale *ret_scale) {
    struct field fields[] = {{size_name, NULL}, {scale_name, NULL}};
    enum bpk_text_verdict verdict =
        take_all_fields(source, value, "a quantization block", fields, 2);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_block_size(source, fields[0].value, scheme);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_scale(source, fields[1].value, ret_scale);
    return verdict;
}

static enum bpk_text_verdict take_level(const struct bpk_json_source *source, json_t *value,
                                        struct bpk_scheme *scheme) {
    json_t *inner = NULL;
    const char *key = bpk_json_only_key(value, &inner);
    if (json_is_string(value) && bpk_str_is(bpk_json_text(value), "Tensor")) {
        scheme->level = BPK_LEVEL_TENSOR;
        return BPK_TEXT_GOOD;
    }
    if (key && strcmp(key, "Block") == 0) {
        scheme->level = BPK_LEVEL_BLOCK;
        return take_block_size(source, inner, scheme);
    }
    if (key && strcmp(key, "BlockTensor") == 0) {
        scheme->level = BPK_LEVEL_BLOCK_TENSOR;
        return take_block(source, inner, "block", "global", scheme, &scheme->tensor_scale);
    }
    return bpk_json_fault(source, "a quantization level must be \"Tensor\", {\"Block\": …} or "
                                  "{\"BlockTensor\": …}");
}

enum { VALUE, STORE, MODE, TENSOR, BLOCK, PARAM, LEVEL, FIELDS };

static const char scheme_where[] = "a quantization scheme";

static enum bpk_text_verdict take_levelled(const struct bpk_json_source *source,
                                           const struct field *fields, struct bpk_scheme *scheme) {
    enum bpk_scale param;
    for (int i = TENSOR; i <= BLOCK; i++)
        if (fields[i].value)
            return bpk_json_fault(source, "%s with \"param\" or \"level\" takes no \"%s\"",
                                  scheme_where, fields[i].name);
    for (int i = PARAM; i <= LEVEL; i++)
        if (!fields[i].value)
            return missing(source, scheme_where, fields[i].name);
    enum bpk_text_verdict verdict = take_scale(source, fields[PARAM].value, &param);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_level(source, fields[LEVEL].value, scheme);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    scheme->form = BPK_SCHEME_LEVELLED;
    scheme->has_block = scheme->level != BPK_LEVEL_TENSOR;
    scheme->has_tensor = scheme->level != BPK_LEVEL_BLOCK;
    scheme->block_scale = param;
    if (scheme->level == BPK_LEVEL_TENSOR)
        scheme->tensor_scale = param;
    return BPK_TEXT_GOOD;
}

static enum bpk_text_verdict take_scaled(const struct bpk_json_source *source,
                                         const struct field *fields, struct bpk_scheme *scheme) {
    json_t *tensor = fields[TENSOR].value;
    json_t *block = fields[BLOCK].value;
    if (scheme->store == BPK_STORE_U32)
        return bpk_json_fault(source,
                              "the quantization store \"U32\" needs \"param\" and \"level\"");
    enum bpk_text_verdict verdict = BPK_TEXT_GOOD;
    scheme->form = BPK_SCHEME_SCALED;
    scheme->has_tensor = tensor && !json_is_null(tensor);
    scheme->has_block = block && !json_is_null(block);
    if (scheme->has_tensor)
        verdict = take_scale(source, tensor, &scheme->tensor_scale);
    if (scheme->has_block && verdict == BPK_TEXT_GOOD)
        verdict = take_block(source, block, "size", "dtype", scheme, &scheme->block_scale);
    return verdict;
}

static enum bpk_text_verdict take_scheme(const struct bpk_json_source *source, json_t *value,
                                         struct bpk_scheme *scheme) {
    struct field fields[FIELDS] = {
        [VALUE] = {"value", NULL},   [STORE] = {"store", NULL}, [MODE] = {"mode", NULL},
        [TENSOR] = {"tensor", NULL}, [BLOCK] = {"block", NULL}, [PARAM] = {"param", NULL},
        [LEVEL] = {"level", NULL}};
    enum bpk_text_verdict verdict = take_fields(source, value, scheme_where, fields, FIELDS);
    for (int i = VALUE; i <= MODE && verdict == BPK_TEXT_GOOD; i++)
        if (!fields[i].value)
            verdict = missing(source, scheme_where, fields[i].name);
    if (verdict == BPK_TEXT_GOOD)
        verdict = TAKE_NAME(source, fields[VALUE].value, "quantization value",
                            bpk_quant_value_from_name, &scheme->value);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_store(source, fields[STORE].value, scheme);
    if (verdict == BPK_TEXT_GOOD)
        verdict = TAKE_NAME(source, fields[MODE].value, "quantization mode",
                            bpk_quant_mode_from_name, &scheme->mode);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    return fields[PARAM].value || fields[LEVEL].value ? take_levelled(source, fields, scheme)
                                                      : take_scaled(source, fields, scheme);
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static enum bpk_text_verdict take_dtype(const struct bpk_json_source *source, json_t *value,
                                        struct bpk_dtype *dtype) {
    json_t *inner = NULL;
    const char *key = bpk_json_only_key(value, &inner);
    *dtype = (struct bpk_dtype){0};
    if (!key && !json_is_string(value))
        return bpk_json_fault(source, "\"dtype\" must be a name such as \"F32\", or "
                                      "{\"Bool\": …} or {\"QFloat\": …}");
    struct bpk_str name = key ? (struct bpk_str){key, strlen(key)} : bpk_json_text(value);
    if (!bpk_kind_from_name(name, &dtype->kind))
        return unknown(source, "dtype", name);
    if (dtype->kind == BPK_QFLOAT)
        return key ? take_scheme(source, inner, &dtype->scheme)
                   : bpk_json_fault(source, "the dtype \"QFloat\" needs its scheme: "
                                            "{\"QFloat\": {\"value\": …}}");
    if (!key)
        return BPK_TEXT_GOOD; /* "Bool" too: BPK_BOOL_TEXT is 0 */
    if (dtype->kind == BPK_BOOL)
        return TAKE_NAME(source, inner, "store of a Bool", bpk_bool_store_from_name,
                         &dtype->bool_store);
    return bpk_json_fault(source, "the dtype \"%s\" takes no value: write it as \"%s\"", key, key);
}

static bool scheme_equal(const struct bpk_scheme *a, const struct bpk_scheme *b) {
    bool packed = a->store == BPK_STORE_PACKED_NATIVE || a->store == BPK_STORE_PACKED_U32;
    if (a->form != b->form || a->value != b->value || a->store != b->store || a->mode != b->mode ||
        (packed && a->packed_dim != b->packed_dim))
        return false;
    if (a->form == BPK_SCHEME_LEVELLED && a->level != b->level)
        return false;
    if (a->has_tensor != b->has_tensor || a->has_block != b->has_block)
        return false;
    if (a->has_tensor && a->tensor_scale != b->tensor_scale)
        return false;
    return !a->has_block || (a->block_scale == b->block_scale && a->block_len == b->block_len &&
                             memcmp(a->block_dims, b->block_dims, sizeof(a->block_dims)) == 0);
}

bool bpk_dtype_equal(const struct bpk_dtype *a, const struct bpk_dtype *b) {
    if (a->kind != b->kind)
        return false;
    if (a->kind == BPK_BOOL)
        return a->bool_store == b->bool_store;
    return a->kind != BPK_QFLOAT || scheme_equal(&a->scheme, &b->scheme);
}

/* ---- sidecars -------------------------------------------------------------------------------- */

static enum bpk_text_verdict take_shape(const struct bpk_json_source *source, const json_t *value,
                                        struct bpk_descriptor *descriptor) {
    if (!json_is_array(value))
        return bpk_json_fault(source, "\"shape\" must be a list of numbers");
    size_t rank = json_array_size(value);
    if (rank > UINT32_MAX)
        return bpk_json_fault(source, "\"shape\" has more dimensions than fit 32 bits");
    if (rank == 0)
        return BPK_TEXT_GOOD;
    descriptor->dims = calloc(rank, sizeof(descriptor->dims[0]));
    if (!descriptor->dims)
        return bpk_json_no_memory(source);
    descriptor->rank = (uint32_t)rank;
    enum bpk_text_verdict verdict = BPK_TEXT_GOOD;
    for (size_t i = 0; i < rank && verdict == BPK_TEXT_GOOD; i++)
        verdict = bpk_json_take_u64(source, json_array_get(value, i), "a dimension of \"shape\"",
                                    UINT64_MAX, &descriptor->dims[i]);
    return verdict;
}

static enum bpk_text_verdict take_param_id(const struct bpk_json_source *source,
                                           const json_t *value, struct bpk_descriptor *descriptor) {
    descriptor->has_param_id = !json_is_null(value);
    return descriptor->has_param_id
               ? bpk_json_take_u64(source, value, "\"param_id\"", UINT64_MAX, &descriptor->param_id)
               : BPK_TEXT_GOOD;
}

static bool is_ignored(const char *key) {
    static const char *const ignored[] = {"name",  "nbytes", "data_offsets",
                                          "numpy", "xxh3",   "problem"};
    for (size_t i = 0; i < BPK_ARRAY_LEN(ignored); i++)
        if (strcmp(key, ignored[i]) == 0)
            return true;
    return false;
}

static enum bpk_text_verdict take_sidecar(struct bpk_json_source *source,
                                          struct bpk_descriptor *descriptor) {
    bool has_dtype = false;
    bool has_shape = false;
    const char *key;
    json_t *value;
    source->entry = 0;
    json_object_foreach(source->root, key, value) {
        enum bpk_text_verdict verdict = BPK_TEXT_GOOD;
        if (strcmp(key, "dtype") == 0) {
            verdict = take_dtype(source, value, &descriptor->dtype);
            has_dtype = true;
        } else if (strcmp(key, "shape") == 0) {
            verdict = take_shape(source, value, descriptor);
            has_shape = true;
        } else if (strcmp(key, "param_id") == 0) {
            verdict = take_param_id(source, value, descriptor);
        } else if (!is_ignored(key)) {
            char shown[BPK_JSON_SHOWN];
            bpk_json_show((struct bpk_str){key, strlen(key)}, shown);
            verdict = bpk_json_fault(
                source, "unknown key \"%s\" (known are \"dtype\", \"shape\", \"param_id\")", shown);
        }
        if (verdict != BPK_TEXT_GOOD)
            return verdict;
        source->entry++;
    }
    source->entry = BPK_JSON_NO_ENTRY;
    if (!has_dtype || !has_shape)
        return missing(source, "a sidecar", has_dtype ? "shape" : "dtype");
    return BPK_TEXT_GOOD;
}

void bpk_descriptor_clear(struct bpk_descriptor *descriptor) {
    free(descriptor->dims);
    *descriptor = (struct bpk_descriptor){0};
}

enum bpk_text_verdict bpk_sidecar_parse(struct bpk_str text, struct bpk_descriptor *ret_descriptor,
                                        struct bpk_diag *diag) {
    struct bpk_json_source source = {.text = text, .diag = diag};
    struct bpk_descriptor descriptor = {0};
    enum bpk_text_verdict verdict = bpk_json_open(&source);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_sidecar(&source, &descriptor);
    bpk_json_close(&source);
    if (verdict == BPK_TEXT_GOOD)
        *ret_descriptor = descriptor;
    else
        bpk_descriptor_clear(&descriptor);
    return verdict;
}
