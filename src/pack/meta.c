#include "pack/meta.h"

#include "pack/diag.h"
#include "pack/dtype.h"
#include "pack/dtype_cbor.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Levels of nesting left inside the top map, inside one of its maps, and inside a descriptor. */
enum {
    DEPTH_IN_TOP = BPK_CBOR_MAX_DEPTH - 1,
    DEPTH_IN_DESCRIPTOR = BPK_CBOR_MAX_DEPTH - 3,
};

/* A growing table; all three have their key, the head of a text, as first member. */
struct table {
    void *items;
    size_t count;
    size_t capacity;
    size_t item_size;
    bool sorted;    /* strictly ascending so far */
    size_t dropped; /* equal to the one before, which they replaced */
};

struct parser {
    struct bpk_cbor cbor;
    struct table tensors;
    struct table entries;
    struct table scalars;
    struct bpk_meta *meta; /* takes what is no table */
};

int bpk_str_compare(struct bpk_str a, struct bpk_str b) {
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common > 0 ? memcmp(a.bytes, b.bytes, common) : 0;
    if (order != 0)
        return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static uint32_t key_of(const struct table *table, size_t index) {
    uint32_t key;
    memcpy(&key, (const char *)table->items + index * table->item_size, sizeof(key));
    return key;
}

static int compare_keys(const uint8_t *block, uint32_t a, uint32_t b) {
    return bpk_str_compare(bpk_cbor_text_at(block, a), bpk_cbor_text_at(block, b));
}

/* `item` starts with its key. */
static int table_add(struct table *table, const uint8_t *block, const void *item) {
    int r = bpk_grow(&table->items, &table->capacity, table->count, table->item_size);
    if (r < 0)
        return r;
    memcpy((char *)table->items + table->count * table->item_size, item, table->item_size);
    if (table->count > 0 && table->sorted)
        table->sorted =
            compare_keys(block, key_of(table, table->count - 1), key_of(table, table->count)) < 0;
    table->count++;
    return 0;
}

/* Equal keys are ordered by where they stand, so that the last one comes last. */
static int compare_items(const void *a, const void *b, void *block) {
    uint32_t key_a;
    uint32_t key_b;
    memcpy(&key_a, a, sizeof(key_a));
    memcpy(&key_b, b, sizeof(key_b));
    int order = compare_keys(block, key_a, key_b);
    if (order != 0)
        return order;
    return key_a < key_b ? -1 : key_a > key_b;
}

/* Sorts by key and keeps the last of equal keys. Returns how many were dropped. */
static size_t table_finish(struct table *table, uint8_t *block) {
    if (table->sorted || table->count == 0)
        return table->dropped;
    qsort_r(table->items, table->count, table->item_size, compare_items, block);
    char *items = table->items;
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++) {
        if (i + 1 < table->count &&
            compare_keys(block, key_of(table, i), key_of(table, i + 1)) == 0)
            continue;
        memmove(items + kept++ * table->item_size, items + i * table->item_size, table->item_size);
    }
    size_t dropped = table->dropped + table->count - kept;
    table->count = kept;
    return dropped;
}

/* ---- one descriptor -------------------------------------------------------------------------- */

/* "WHAT "FIELD"", for faults that a field's name explains. */
static int complain(struct bpk_cbor *cbor, size_t at, const char *what, const char *field) {
    return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + at, "%s \"%s\"", what, field);
}

/* Multiplies in the order of the file, as Burn does: an overflow before a zero stays one. */
static void multiply_dim(struct bpk_meta_tensor *tensor, uint64_t dim) {
    if (!bpk_mul_u64(tensor->elements, dim, &tensor->elements))
        tensor->elements_overflow = true;
}

/* A byte string stands for a list of small numbers. It is not copied: the iterator walks it. */
static int parse_bytes_shape(struct bpk_cbor *cbor, const struct bpk_cbor_item *item,
                             struct bpk_meta_tensor *tensor) {
    tensor->flags |= BPK_TENSOR_SHAPE_BYTES;
    tensor->shape = (uint32_t)item->head;
    uint64_t rank;
    int r = bpk_cbor_bytes(cbor, item, NULL, 0, &rank);
    if (r < 0)
        return r;
    tensor->rank = (uint32_t)rank;
    struct bpk_shape shape = {
        .block = cbor->data,
        .size = cbor->size,
        .pos = tensor->shape,
        .left = tensor->rank,
        .is_bytes = true,
    };
    uint64_t dim;
    while (bpk_shape_next(&shape, &dim))
        multiply_dim(tensor, dim);
    return 0;
}

static int parse_shape(struct bpk_cbor *cbor, struct bpk_meta_tensor *tensor) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    tensor->elements = 1;
    if (item.kind == BPK_CBOR_BYTES || item.kind == BPK_CBOR_BYTES_START)
        return parse_bytes_shape(cbor, &item, tensor);
    if (item.kind != BPK_CBOR_ARRAY && item.kind != BPK_CBOR_ARRAY_START)
        return bpk_cbor_unexpected(cbor, &item, "a shape (an array)");
    tensor->shape = (uint32_t)cbor->pos;
    bool indefinite = item.kind == BPK_CBOR_ARRAY_START;
    uint64_t rank = 0;
    while (indefinite || rank < item.value) {
        uint64_t dim;
        if (indefinite && cbor->pos < cbor->size && cbor->data[cbor->pos] == 0xff) {
            cbor->pos++;
            break;
        }
        r = bpk_cbor_uint(cbor, &dim);
        if (r < 0)
            return r;
        multiply_dim(tensor, dim);
        rank++;
    }
    tensor->rank = (uint32_t)rank;
    return 0;
}

/* [start, end), as an array of exactly two or as a byte string of at least two. */
static int parse_offsets(struct bpk_cbor *cbor, struct bpk_meta_tensor *tensor) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    if (item.kind == BPK_CBOR_BYTES || item.kind == BPK_CBOR_BYTES_START) {
        uint8_t bytes[2];
        uint64_t count;
        r = bpk_cbor_bytes(cbor, &item, bytes, sizeof(bytes), &count);
        if (r < 0)
            return r;
        if (count >= 2) {
            tensor->start = bytes[0];
            tensor->end = bytes[1];
            return 0;
        }
    }
    if (item.kind != BPK_CBOR_ARRAY || item.value != 2)
        return bpk_cbor_unexpected(cbor, &item, "data_offsets (an array of two)");
    r = bpk_cbor_uint(cbor, &tensor->start);
    return r < 0 ? r : bpk_cbor_uint(cbor, &tensor->end);
}

static int parse_param_id(struct bpk_cbor *cbor, struct bpk_meta_tensor *tensor) {
    struct bpk_cbor_item item;
    size_t start = cbor->pos;
    int r = bpk_cbor_next(cbor, &item);
    if (r < 0 || item.kind == BPK_CBOR_NULL)
        return r;
    cbor->pos = start;
    tensor->flags |= BPK_TENSOR_HAS_PARAM_ID;
    return bpk_cbor_uint(cbor, &tensor->param_id);
}

static int parse_dtype(struct bpk_cbor *cbor, struct bpk_meta_tensor *tensor) {
    struct bpk_dtype dtype;
    int r = bpk_dtype_parse(cbor, DEPTH_IN_DESCRIPTOR, &dtype, &tensor->dtype);
    if (r < 0)
        return r;
    tensor->kind = (uint8_t)dtype.kind;
    if (bpk_dtype_is_modern(&dtype))
        tensor->flags |= BPK_TENSOR_MODERN_DTYPE;
    return 0;
}

/* The fields of a struct that are known, and how each is read; required ones come first. */
typedef int parse_field_fn(struct bpk_cbor *cbor, struct bpk_meta_tensor *tensor);

static const struct {
    const char *name;
    parse_field_fn *parse;
} descriptor_fields[] = {
    {"dtype", parse_dtype},
    {"shape", parse_shape},
    {"data_offsets", parse_offsets},
    {"param_id", parse_param_id},
};
enum { REQUIRED_FIELDS = 3 };

/* The known field of that name, or the number of them. */
static size_t find_field(struct bpk_str field) {
    size_t i = 0;
    while (i < BPK_ARRAY_LEN(descriptor_fields) && !bpk_str_is(field, descriptor_fields[i].name))
        i++;
    return i;
}

static int parse_descriptor(struct bpk_cbor *cbor, struct bpk_meta_tensor *tensor) {
    size_t at = cbor->pos;
    tensor->descriptor = (uint32_t)at;
    bool seen[BPK_ARRAY_LEN(descriptor_fields)] = {false};
    struct bpk_cbor_map map;
    int r = bpk_cbor_map_begin(cbor, &map);
    while (r == 0 && bpk_cbor_map_next(cbor, &map)) {
        struct bpk_str field;
        size_t key_at = cbor->pos;
        r = bpk_cbor_ident(cbor, &field);
        if (r < 0)
            return r;
        size_t i = find_field(field);
        if (i == BPK_ARRAY_LEN(descriptor_fields)) {
            tensor->flags |= BPK_TENSOR_HAS_UNKNOWN;
            r = bpk_cbor_skip(cbor, DEPTH_IN_DESCRIPTOR);
            continue;
        }
        if (seen[i])
            return complain(cbor, key_at, "a descriptor with two fields",
                            descriptor_fields[i].name);
        seen[i] = true;
        r = descriptor_fields[i].parse(cbor, tensor);
    }
    if (r == 0)
        r = map.error;
    for (size_t i = 0; i < REQUIRED_FIELDS && r == 0; i++)
        if (!seen[i])
            r = complain(cbor, at, "a descriptor without the field", descriptor_fields[i].name);
    return r;
}

/* ---- the three maps -------------------------------------------------------------------------- */

/* Adds the tensor's name to a complaint about its descriptor. */
static void name_in_diag(struct bpk_cbor *cbor, uint32_t name) {
    if (!cbor->diag)
        return;
    char shown[100];
    struct bpk_str text = bpk_cbor_text_at(cbor->data, name);
    bpk_text_escape(text.bytes, text.len, shown, sizeof(shown));
    char sentence[sizeof(cbor->diag->sentence)];
    memcpy(sentence, cbor->diag->sentence, sizeof(sentence));
    bpk_diag_set(cbor->diag, cbor->diag->code, cbor->diag->offset, "tensor '%s': %.280s", shown,
                 sentence);
}

static int parse_tensor(struct parser *parser, uint32_t name) {
    struct bpk_cbor *cbor = &parser->cbor;
    struct bpk_meta_tensor tensor = {.name = name};
    int r = parse_descriptor(cbor, &tensor);
    if (r < 0) {
        name_in_diag(cbor, name);
        return r;
    }
    return table_add(&parser->tensors, cbor->data, &tensor);
}

static int parse_entry(struct parser *parser, uint32_t key) {
    struct bpk_meta_entry entry = {.key = key};
    int r = bpk_cbor_text(&parser->cbor, &entry.value);
    return r < 0 ? r : table_add(&parser->entries, parser->cbor.data, &entry);
}

static int parse_scalar(struct parser *parser, uint32_t key) {
    struct bpk_cbor *cbor = &parser->cbor;
    struct bpk_meta_scalar scalar = {.key = key};
    struct bpk_cbor_variant variant;
    int r = bpk_cbor_enum(cbor, &variant);
    if (r < 0)
        return r;
    int kind = BPK_SCALAR_INT;
    while (kind <= BPK_SCALAR_BOOL &&
           !bpk_str_is(variant.name, bpk_scalar_kind_name((enum bpk_scalar_kind)kind)))
        kind++;
    if (kind > BPK_SCALAR_BOOL || !variant.has_value)
        return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + variant.head,
                            "a scalar is not a map of one Int, UInt, Float or Bool");
    scalar.kind = (uint32_t)kind;
    int64_t number;
    switch (kind) {
    case BPK_SCALAR_INT:
        r = bpk_cbor_int(cbor, &number);
        scalar.bits = r == 0 ? (uint64_t)number : 0;
        break;
    case BPK_SCALAR_UINT:
        r = bpk_cbor_uint(cbor, &scalar.bits);
        break;
    case BPK_SCALAR_FLOAT:
        r = bpk_cbor_float(cbor, &scalar.bits);
        break;
    default:
        r = bpk_cbor_bool(cbor, &scalar.bits);
        break;
    }
    return r < 0 ? r : table_add(&parser->scalars, cbor->data, &scalar);
}

typedef int parse_value_fn(struct parser *parser, uint32_t key);

/* A map from text to whatever `parse_value` reads. */
static int parse_text_map(struct parser *parser, parse_value_fn *parse_value) {
    struct bpk_cbor *cbor = &parser->cbor;
    struct bpk_cbor_map map;
    int r = bpk_cbor_map_begin(cbor, &map);
    while (r == 0 && bpk_cbor_map_next(cbor, &map)) {
        uint32_t key;
        r = bpk_cbor_text(cbor, &key);
        if (r == 0)
            r = parse_value(parser, key);
    }
    return r < 0 ? r : map.error;
}

static const struct {
    const char *name;
    parse_value_fn *parse_value;
} top_fields[] = {
    {"tensors", parse_tensor},
    {"metadata", parse_entry},
    {"scalars", parse_scalar},
};
enum { TENSORS, METADATA, SCALARS, TOP_FIELDS };

/* Notes an entry of the top map that is kept as it stands; neighbours become one run. */
static void note_unknown(struct bpk_meta *meta, size_t start, size_t end) {
    struct bpk_meta_range *last =
        meta->unknown_runs > 0 ? &meta->unknown[meta->unknown_runs - 1] : NULL;
    if (last && last->end == start)
        last->end = (uint32_t)end;
    else
        meta->unknown[meta->unknown_runs++] =
            (struct bpk_meta_range){(uint32_t)start, (uint32_t)end};
    meta->unknown_entries++;
}

static int parse_top(struct parser *parser, bool seen[TOP_FIELDS]) {
    struct bpk_cbor *cbor = &parser->cbor;
    struct bpk_cbor_map map;
    int r = bpk_cbor_map_begin(cbor, &map);
    while (r == 0 && bpk_cbor_map_next(cbor, &map)) {
        struct bpk_str field;
        size_t key_at = cbor->pos;
        r = bpk_cbor_ident(cbor, &field);
        if (r < 0)
            return r;
        int i = TENSORS;
        while (i < TOP_FIELDS && !bpk_str_is(field, top_fields[i].name))
            i++;
        if (i == TOP_FIELDS) {
            r = bpk_cbor_skip(cbor, DEPTH_IN_TOP);
            note_unknown(parser->meta, key_at, cbor->pos);
            continue;
        }
        if (seen[i])
            return complain(cbor, key_at, "the metadata has two fields", top_fields[i].name);
        seen[i] = true;
        r = parse_text_map(parser, top_fields[i].parse_value);
    }
    if (r == 0)
        r = map.error;
    if (r == 0 && !seen[TENSORS])
        r = complain(cbor, 0, "the metadata has no field", "tensors");
    return r;
}

static bool is_zero(const uint8_t *bytes, size_t size) {
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

int bpk_meta_parse(uint8_t *block, size_t size, uint64_t file_offset, struct bpk_meta *ret_meta,
                   struct bpk_diag *diag) {
    struct bpk_meta meta = {.block = block};
    struct parser parser = {
        .meta = &meta,
        .cbor = {.data = block, .size = size, .file_offset = file_offset, .diag = diag},
        .tensors = {.item_size = sizeof(struct bpk_meta_tensor), .sorted = true},
        .entries = {.item_size = sizeof(struct bpk_meta_entry), .sorted = true},
        .scalars = {.item_size = sizeof(struct bpk_meta_scalar), .sorted = true},
    };
    bool seen[TOP_FIELDS] = {false};
    int r = parse_top(&parser, seen);
    if (r == -ENOMEM)
        bpk_diag_set(diag, r, BPK_NO_OFFSET, "out of memory");
    size_t used = parser.cbor.pos;
    meta.block_size = used;
    meta.tail_is_zero = r == 0 && is_zero(block + used, size - used);
    meta.has_metadata = seen[METADATA];
    meta.has_scalars = seen[SCALARS];
    if (r == 0) {
        meta.tensor_duplicates = table_finish(&parser.tensors, block);
        meta.entry_duplicates = table_finish(&parser.entries, block);
        meta.scalar_duplicates = table_finish(&parser.scalars, block);
    }
    meta.tensors = parser.tensors.items;
    meta.tensor_count = parser.tensors.count;
    meta.entries = parser.entries.items;
    meta.entry_count = parser.entries.count;
    meta.scalars = parser.scalars.items;
    meta.scalar_count = parser.scalars.count;
    if (r == 0 && meta.tensor_count > BPK_MAX_TENSORS)
        r = bpk_diag_set(diag, -EBADMSG, file_offset, "%zu tensors exceed the limit of %u",
                         meta.tensor_count, BPK_MAX_TENSORS);
    if (r < 0) {
        bpk_meta_clear(&meta);
        return r;
    }
    uint8_t *shrunk = realloc(block, used);
    if (shrunk)
        meta.block = shrunk;
    *ret_meta = meta;
    return 0;
}

void bpk_meta_clear(struct bpk_meta *meta) {
    free(meta->block);
    free(meta->tensors);
    free(meta->entries);
    free(meta->scalars);
    *meta = (struct bpk_meta){0};
}

/* ---- reading the tables ---------------------------------------------------------------------- */

struct bpk_str bpk_meta_text(const struct bpk_meta *meta, uint32_t head) {
    return bpk_cbor_text_at(meta->block, head);
}

size_t bpk_meta_unknown(const struct bpk_meta *meta, const struct bpk_meta_tensor *tensor,
                        struct bpk_outbuf *out) {
    size_t count = 0;
    if (!(tensor->flags & BPK_TENSOR_HAS_UNKNOWN))
        return 0;
    struct bpk_cbor cbor = {
        .data = meta->block, .size = meta->block_size, .pos = tensor->descriptor};
    struct bpk_cbor_map map;
    struct bpk_str field;
    /* All was parsed once, so nothing fails. */
    if (bpk_cbor_map_begin(&cbor, &map) < 0)
        return 0;
    while (bpk_cbor_map_next(&cbor, &map)) {
        size_t key_at = cbor.pos;
        if (bpk_cbor_ident(&cbor, &field) < 0)
            break;
        size_t i = find_field(field);
        if (i < BPK_ARRAY_LEN(descriptor_fields)) {
            /* Not skipped: see bpk_meta_dtype_cbor. */
            struct bpk_meta_tensor known = {0};
            if (descriptor_fields[i].parse(&cbor, &known) < 0)
                break;
            continue;
        }
        if (bpk_cbor_skip(&cbor, DEPTH_IN_DESCRIPTOR) < 0)
            break;
        bpk_out(out, (const char *)meta->block + key_at, cbor.pos - key_at);
        count++;
    }
    return count;
}

struct bpk_str bpk_meta_dtype_cbor(const struct bpk_meta *meta,
                                   const struct bpk_meta_tensor *tensor) {
    struct bpk_cbor cbor = {.data = meta->block, .size = meta->block_size, .pos = tensor->dtype};
    struct bpk_dtype dtype;
    uint32_t head;
    /* Not skipped: tags that mean a big number elsewhere are passed over where a map must follow.
     */
    (void)bpk_dtype_parse(&cbor, DEPTH_IN_DESCRIPTOR, &dtype, &head);
    return (struct bpk_str){(const char *)meta->block + tensor->dtype, cbor.pos - tensor->dtype};
}

struct bpk_shape bpk_meta_shape(const struct bpk_meta *meta, const struct bpk_meta_tensor *tensor) {
    return (struct bpk_shape){
        .block = meta->block,
        .size = meta->block_size,
        .pos = tensor->shape,
        .left = tensor->rank,
        .is_bytes = tensor->flags & BPK_TENSOR_SHAPE_BYTES,
    };
}

/* The next byte of a byte string, over its head and over the heads of its chunks. */
static uint8_t next_byte(struct bpk_shape *shape, struct bpk_cbor *cbor) {
    while (shape->chunk == 0) {
        struct bpk_cbor_item item;
        if (bpk_cbor_next(cbor, &item) < 0)
            return 0;
        if (item.kind == BPK_CBOR_BYTES) {
            shape->chunk = (uint32_t)item.value;
            cbor->pos = (size_t)(item.data - cbor->data);
        }
    }
    shape->chunk--;
    return cbor->data[cbor->pos++];
}

bool bpk_shape_next(struct bpk_shape *shape, uint64_t *ret_dim) {
    if (shape->left == 0)
        return false;
    shape->left--;
    if (shape->dims) {
        *ret_dim = *shape->dims++;
        return true;
    }
    /* The reader writes only where it joins texts; what is read here was parsed before. */
    struct bpk_cbor cbor = {
        .data = (uint8_t *)(uintptr_t)shape->block,
        .size = shape->size,
        .pos = shape->pos,
    };
    if (shape->is_bytes)
        *ret_dim = next_byte(shape, &cbor);
    else if (bpk_cbor_uint(&cbor, ret_dim) < 0)
        return false;
    shape->pos = cbor.pos;
    return true;
}

void bpk_shape_show(struct bpk_shape shape, char *out, size_t size) {
    enum { ROOM_FOR_ONE = 32 };
    uint64_t dim;
    size_t used = (size_t)snprintf(out, size, "[");
    for (const char *separator = ""; bpk_shape_next(&shape, &dim); separator = ", ") {
        if (used + ROOM_FOR_ONE > size) {
            used += (size_t)snprintf(out + used, size - used, ", …");
            break;
        }
        used +=
            (size_t)snprintf(out + used, size - used, "%s%llu", separator, (unsigned long long)dim);
    }
    (void)snprintf(out + used, size - used, "]");
}

void bpk_meta_dtype(const struct bpk_meta *meta, const struct bpk_meta_tensor *tensor,
                    struct bpk_dtype *ret_dtype) {
    *ret_dtype = (struct bpk_dtype){.kind = (enum bpk_kind)tensor->kind};
    if (tensor->kind != BPK_BOOL && tensor->kind != BPK_QFLOAT)
        return;
    struct bpk_cbor cbor = {
        .data = meta->block,
        .size = meta->block_size,
        .pos = tensor->dtype,
    };
    uint32_t head;
    /* It was parsed once, so it cannot fail. */
    (void)bpk_dtype_parse(&cbor, DEPTH_IN_DESCRIPTOR, ret_dtype, &head);
}
