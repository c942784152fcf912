#include "view/names.h"

#include "pack/pack_internal.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    HASH_DIGITS = 16,
    /* What is left of an encoded name before "%~" and the hash. */
    CUT_MAX = BPK_FILE_NAME_MAX - 2 - HASH_DIGITS,
};

/* A name too long to be spelled out. */
struct long_name {
    uint64_t hash; /* XXH3-64 of the name, or the next free number on a clash */
    uint32_t index;
};

struct bpk_names {
    struct bpk_pack *pack;
    enum bpk_names_of of;
    uint32_t count;
    struct long_name *long_names; /* sorted by hash */
    size_t long_count;
};

/* ---- encoding -------------------------------------------------------------------------------- */

static bool ends_with_json(struct bpk_str name) {
    return name.len >= 5 && memcmp(name.bytes + name.len - 5, ".json", 5) == 0;
}

static bool must_escape(struct bpk_str name, size_t i) {
    unsigned char c = (unsigned char)name.bytes[i];
    if (c < 0x20 || c == 0x7f || c == '/' || c == '%')
        return true;
    if (c == '.')
        return i == 0 || (i + 5 == name.len && ends_with_json(name));
    return c == '~' && i + 1 == name.len;
}

/* Most names are spelled as they are: how many bytes from the begin on, whatever comes behind. */
static size_t plain_run(struct bpk_str name) {
    size_t i = 0;
    while (i < name.len) {
        unsigned char c = (unsigned char)name.bytes[i];
        bool is_plain = c > '9' ? c < '~' : c >= '-' ? c != '/' : c >= 0x20 && c != '%';
        if (!is_plain || (c == '.' && (i == 0 || i + 5 == name.len)))
            break;
        i++;
    }
    return i;
}

/* Encodes as many whole characters as fit into `max` bytes; returns the bytes written. Sets
 * *ret_whole to whether that was all. */
static size_t encode_up_to(struct bpk_str name, char *out, size_t max, bool *ret_whole) {
    static const char hex[] = "0123456789ABCDEF";
    size_t i = plain_run(name);
    if (i > max)
        i = max;
    size_t used = i;
    memcpy(out, name.bytes, i);
    while (i < name.len) {
        uint32_t code;
        size_t n = bpk_text_char((const uint8_t *)name.bytes + i, &code);
        bool escape = must_escape(name, i);
        size_t need = escape ? 3 : n;
        if (used + need > max)
            break;
        if (escape) {
            unsigned char c = (unsigned char)name.bytes[i];
            out[used] = '%';
            out[used + 1] = hex[c >> 4];
            out[used + 2] = hex[c & 15];
        } else {
            memcpy(out + used, name.bytes + i, n);
        }
        used += need;
        i += n;
    }
    *ret_whole = i == name.len;
    return used;
}

size_t bpk_name_encode(struct bpk_str name, char out[BPK_FILE_NAME_BUF]) {
    size_t used = 1;
    bool whole = true;
    if (name.len == 0)
        out[0] = '%';
    else
        used = encode_up_to(name, out, BPK_FILE_NAME_MAX, &whole);
    out[used] = '\0';
    return whole ? used : 0;
}

static size_t encode_long(struct bpk_str name, uint64_t hash, char out[BPK_FILE_NAME_BUF]) {
    bool whole;
    size_t used = encode_up_to(name, out, CUT_MAX, &whole);
    used += (size_t)snprintf(out + used, BPK_FILE_NAME_BUF - used, "%%~%016llx",
                             (unsigned long long)hash);
    return used;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int bpk_name_decode(struct bpk_str file, char *out) {
    if (file.len == 1 && file.bytes[0] == '%')
        return 0;
    int used = 0;
    for (size_t i = 0; i < file.len; i++) {
        char c = file.bytes[i];
        if (c == '%') {
            int high = i + 2 < file.len ? hex_digit(file.bytes[i + 1]) : -1;
            int low = i + 2 < file.len ? hex_digit(file.bytes[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -EINVAL;
            c = (char)(high << 4 | low);
            i += 2;
        }
        out[used++] = c;
    }
    return used;
}

/* ---- the names of a pack --------------------------------------------------------------------- */

static struct bpk_str name_of(const struct bpk_names *names, uint32_t index) {
    if (names->of == BPK_NAMES_TENSORS)
        return bpk_pack_tensor_name(names->pack, index);
    struct bpk_str key;
    bpk_pack_metadata(names->pack, index, &key, &(struct bpk_str){0});
    return key;
}

static int find_name(const struct bpk_names *names, struct bpk_str name, uint32_t *ret_index) {
    if (names->of == BPK_NAMES_TENSORS)
        return bpk_pack_find_tensor(names->pack, name, ret_index);
    return bpk_pack_find_metadata(names->pack, name, ret_index);
}

/* By hash, then in order of the names, which is the order of their indexes. */
static int compare_long(const void *a, const void *b) {
    const struct long_name *x = a;
    const struct long_name *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int gather_long(struct bpk_names *names) {
    size_t capacity = 0;
    for (uint32_t i = 0; i < names->count; i++) {
        char ignored[BPK_FILE_NAME_BUF];
        struct bpk_str name = name_of(names, i);
        if (name.len * 3 <= BPK_FILE_NAME_MAX || bpk_name_encode(name, ignored) > 0)
            continue;
        int r = bpk_grow((void **)&names->long_names, &capacity, names->long_count,
                         sizeof(names->long_names[0]));
        if (r < 0)
            return r;
        names->long_names[names->long_count++] = (struct long_name){
            .hash = XXH3_64bits(name.bytes, name.len),
            .index = i,
        };
    }
    if (names->long_count > 0)
        qsort(names->long_names, names->long_count, sizeof(names->long_names[0]), compare_long);
    for (size_t i = 1; i < names->long_count; i++)
        if (names->long_names[i].hash <= names->long_names[i - 1].hash)
            names->long_names[i].hash = names->long_names[i - 1].hash + 1;
    return 0;
}

int bpk_names_new(struct bpk_pack *pack, enum bpk_names_of of, struct bpk_names **ret_names) {
    struct bpk_names *names = calloc(1, sizeof(*names));
    if (!names)
        return -ENOMEM;
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    names->pack = bpk_pack_ref_table(pack);
    names->of = of;
    names->count = of == BPK_NAMES_TENSORS ? info.tensors : info.metadata_entries;
    int r = gather_long(names);
    if (r < 0) {
        bpk_names_free(names);
        return r;
    }
    *ret_names = names;
    return 0;
}

void bpk_names_free(struct bpk_names *names) {
    if (!names)
        return;
    bpk_pack_unref_table(names->pack);
    free(names->long_names);
    free(names);
}

/* Place of the first long name whose hash is not less than `hash`. */
static size_t first_long(const struct bpk_names *names, uint64_t hash) {
    size_t low = 0;
    size_t high = names->long_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (names->long_names[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t hash_of(const struct bpk_names *names, uint32_t index) {
    struct bpk_str name = name_of(names, index);
    uint64_t hash = XXH3_64bits(name.bytes, name.len);
    size_t at = first_long(names, hash);
    while (names->long_names[at].index != index)
        at++; /* a clash moved it up */
    return names->long_names[at].hash;
}

size_t bpk_names_file(const struct bpk_names *names, uint32_t index, char out[BPK_FILE_NAME_BUF]) {
    struct bpk_str name = name_of(names, index);
    size_t len = bpk_name_encode(name, out);
    return len > 0 ? len : encode_long(name, hash_of(names, index), out);
}

/* The number in a file name that ends in "%~" and 16 digits. */
static bool hash_in_file(struct bpk_str file, uint64_t *ret_hash) {
    if (file.len < 2 + HASH_DIGITS || file.len > BPK_FILE_NAME_MAX)
        return false;
    const char *mark = file.bytes + file.len - HASH_DIGITS - 2;
    if (mark[0] != '%' || mark[1] != '~')
        return false;
    char digits[HASH_DIGITS + 1];
    memcpy(digits, mark + 2, HASH_DIGITS);
    digits[HASH_DIGITS] = '\0';
    *ret_hash = strtoull(digits, NULL, 16);
    return true;
}

bool bpk_name_is_cut(struct bpk_str file, struct bpk_str name) {
    char again[BPK_FILE_NAME_BUF];
    uint64_t hash;
    return hash_in_file(file, &hash) && bpk_name_encode(name, again) == 0 &&
           hash - XXH3_64bits(name.bytes, name.len) < BPK_MAX_TENSORS &&
           encode_long(name, hash, again) == file.len && memcmp(again, file.bytes, file.len) == 0;
}

/* Such a file name stands for the long name of that hash. */
static int find_long(const struct bpk_names *names, struct bpk_str file, uint32_t *ret_index) {
    uint64_t hash;
    if (!hash_in_file(file, &hash))
        return -ENOENT;
    size_t at = first_long(names, hash);
    if (at == names->long_count || names->long_names[at].hash != hash)
        return -ENOENT;
    *ret_index = names->long_names[at].index;
    return 0;
}

int bpk_names_find(const struct bpk_names *names, struct bpk_str file, uint32_t *ret_index) {
    char decoded[BPK_FILE_NAME_BUF];
    char again[BPK_FILE_NAME_BUF];
    uint32_t index;
    if (file.len == 0 || file.len > BPK_FILE_NAME_MAX)
        return -ENOENT;
    int len = bpk_name_decode(file, decoded);
    if (len < 0 || find_name(names, (struct bpk_str){decoded, (size_t)len}, &index) < 0) {
        int r = find_long(names, file, &index);
        if (r < 0)
            return r;
    }
    /* One spelling of a name is its file; others, as %61 for "a", are no file. */
    if (bpk_names_file(names, index, again) != file.len || memcmp(again, file.bytes, file.len) != 0)
        return -ENOENT;
    *ret_index = index;
    return 0;
}
