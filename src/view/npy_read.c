/* Reading the header of a .npy file: a small parser for the Python literals that NumPy's own
 * writers and their like put there. What Python would take besides (escapes, comments, signs,
 * names) is refused. */
#include "view/npy.h"

#include "pack/diag.h"
#include "pack/dtype.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- items ----------------------------------------------------------------------------------- */

/* What follows the byte order in NumPy's dtype string. */
static const struct {
    const char *text;
    enum bpk_kind kind;
} items[] = {
    {"f8", BPK_F64}, {"f4", BPK_F32}, {"f2", BPK_F16},  {"V2", BPK_BF16}, {"i8", BPK_I64},
    {"i4", BPK_I32}, {"i2", BPK_I16}, {"i1", BPK_I8},   {"u8", BPK_U64},  {"u4", BPK_U32},
    {"u2", BPK_U16}, {"u1", BPK_U8},  {"b1", BPK_BOOL},
};

static const struct {
    char letter;
    const char *what;
} strangers[] = {
    {'c', "complex numbers"}, {'O', "Python objects"}, {'S', "byte strings"},
    {'a', "byte strings"},    {'U', "text"},           {'M', "dates"},
    {'m', "time spans"},      {'V', "raw items"},      {'f', "floats of an unknown size"},
};

static struct bpk_dtype dtype_of(enum bpk_kind kind) {
    return (struct bpk_dtype){.kind = kind, .bool_store = BPK_BOOL_NATIVE};
}

/* "f12" and "f16" are what "long double" is on one machine and another. */
static const char *stranger(struct bpk_str text) {
    if (bpk_str_is(text, "f12") || bpk_str_is(text, "f16"))
        return "long doubles";
    for (size_t i = 0; i < BPK_ARRAY_LEN(strangers); i++)
        if (text.len > 0 && text.bytes[0] == strangers[i].letter)
            return strangers[i].what;
    return "items of an unknown dtype";
}

/* `at` is the byte of the file where the string begins. */
static int read_descr(struct bpk_str descr, uint64_t at, struct bpk_npy *npy,
                      struct bpk_diag *diag) {
    struct bpk_str text = descr;
    char order = '=';
    if (text.len > 0 && memchr("<>|=", text.bytes[0], 4)) {
        order = text.bytes[0];
        text = (struct bpk_str){text.bytes + 1, text.len - 1};
    }
    (void)bpk_text_escape(descr.bytes, descr.len, npy->descr, sizeof(npy->descr));
    for (size_t i = 0; i < BPK_ARRAY_LEN(items); i++) {
        if (!bpk_str_is(text, items[i].text))
            continue;
        struct bpk_dtype dtype = dtype_of(items[i].kind);
        if (order == '>' && dtype.kind == BPK_BF16)
            break; /* NumPy does not say whether raw items are swapped */
        npy->kind = dtype.kind;
        npy->item_size = bpk_dtype_size(&dtype);
        npy->is_big_endian = order == '>' && npy->item_size > 1;
        return 0;
    }
    return bpk_diag_set(diag, -EINVAL, at, "the array holds %s ('%s'), which no Burn tensor can",
                        stranger(text), npy->descr);
}

bool bpk_npy_dtype(const struct bpk_npy *npy, const struct bpk_dtype *old,
                   struct bpk_dtype *ret_dtype) {
    struct bpk_dtype own = dtype_of(npy->kind);
    bool is_same = old && strcmp(bpk_dtype_numpy(old), bpk_dtype_numpy(&own)) == 0 &&
                   (old->kind != BPK_QFLOAT || npy->rank == 1);
    *ret_dtype = is_same ? *old : own;
    return is_same && old->kind == BPK_QFLOAT;
}

/* ---- literals -------------------------------------------------------------------------------- */

struct cursor {
    const char *text; /* the file from its first byte */
    size_t len;       /* to the end of the header */
    size_t pos;
    bool takes_longs; /* 3L, as Python 2 wrote it: not in format 3.0 */
    struct bpk_diag *diag;
};

static int expected(const struct cursor *cursor, const char *what) {
    return bpk_diag_set(cursor->diag, -EINVAL, cursor->pos,
                        "%s is expected here in the header of a .npy file", what);
}

static void skip_blanks(struct cursor *cursor) {
    while (cursor->pos < cursor->len && memchr(" \t\n", cursor->text[cursor->pos], 3))
        cursor->pos++;
}

static bool take(struct cursor *cursor, const char *token) {
    size_t len = strlen(token);
    skip_blanks(cursor);
    if (cursor->len - cursor->pos < len || memcmp(cursor->text + cursor->pos, token, len) != 0)
        return false;
    cursor->pos += len;
    return true;
}

static int read_string(struct cursor *cursor, struct bpk_str *ret_text) {
    char quote = '\'';
    if (!take(cursor, "'")) {
        if (!take(cursor, "\""))
            return expected(cursor, "a string");
        quote = '"';
    }
    size_t start = cursor->pos;
    for (; cursor->pos < cursor->len; cursor->pos++) {
        char c = cursor->text[cursor->pos];
        if (c == quote) {
            *ret_text = (struct bpk_str){cursor->text + start, cursor->pos - start};
            cursor->pos++;
            return 0;
        }
        if (c < 0x20 || c > 0x7e || c == '\\')
            return expected(cursor, "plain ASCII");
    }
    return expected(cursor, "the end of a string");
}

static int read_bool(struct cursor *cursor, bool *ret_value) {
    bool value = take(cursor, "True");
    if (!value && !take(cursor, "False"))
        return expected(cursor, "True or False");
    *ret_value = value;
    return 0;
}

static bool at_digit(const struct cursor *cursor) {
    return cursor->pos < cursor->len && cursor->text[cursor->pos] >= '0' &&
           cursor->text[cursor->pos] <= '9';
}

static int read_dim(struct cursor *cursor, uint64_t *ret_dim) {
    skip_blanks(cursor);
    size_t start = cursor->pos;
    uint64_t dim = 0;
    for (; at_digit(cursor); cursor->pos++) {
        if (!bpk_mul_u64(dim, 10, &dim) ||
            !bpk_add_u64(dim, (uint64_t)(cursor->text[cursor->pos] - '0'), &dim))
            return bpk_diag_set(cursor->diag, -EFBIG, start, "a dimension is beyond 2^64");
    }
    size_t digits = cursor->pos - start;
    if (digits == 0 || (digits > 1 && cursor->text[start] == '0'))
        return expected(cursor, "a dimension, which is a plain number,");
    if (cursor->takes_longs && cursor->pos < cursor->len && cursor->text[cursor->pos] == 'L')
        cursor->pos++;
    *ret_dim = dim;
    return 0;
}

/* (), (3,), (3, 4) or (3, 4,) */
static int read_shape(struct cursor *cursor, struct bpk_npy *npy) {
    bool comma = false;
    if (!take(cursor, "("))
        return expected(cursor, "a tuple");
    npy->rank = 0;
    while (!take(cursor, ")")) {
        if (npy->rank > 0 && !comma)
            return expected(cursor, "a comma or the end of the tuple");
        if (npy->rank == BPK_NPY_MAX_RANK)
            return bpk_diag_set(cursor->diag, -EINVAL, cursor->pos,
                                "the array has more than NumPy's %d dimensions", BPK_NPY_MAX_RANK);
        int r = read_dim(cursor, &npy->dims[npy->rank]);
        if (r < 0)
            return r;
        npy->rank++;
        comma = take(cursor, ",");
    }
    return npy->rank == 1 && !comma ? expected(cursor, "a tuple and no number") : 0;
}

/* ---- the dictionary -------------------------------------------------------------------------- */

static int read_descr_value(struct cursor *cursor, struct bpk_npy *npy) {
    struct bpk_str descr;
    skip_blanks(cursor);
    size_t at = cursor->pos;
    if (take(cursor, "[") || take(cursor, "("))
        return bpk_diag_set(cursor->diag, -EINVAL, at,
                            "the array's dtype is structured, which no Burn tensor's can be");
    int r = read_string(cursor, &descr);
    return r < 0 ? r : read_descr(descr, at, npy, cursor->diag);
}

/* Blanks; NumPy takes none behind the last newline. */
static int read_end(struct cursor *cursor) {
    while (cursor->pos < cursor->len && memchr(" \t", cursor->text[cursor->pos], 2))
        cursor->pos++;
    if (cursor->pos == cursor->len)
        return 0;
    skip_blanks(cursor);
    return cursor->pos == cursor->len && cursor->text[cursor->len - 1] == '\n'
               ? 0
               : expected(cursor, "the end");
}

static int read_dictionary(struct cursor *cursor, struct bpk_npy *npy) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    bool seen[BPK_ARRAY_LEN(keys)] = {false};
    bool comma = true; /* whether one more entry may follow */
    if (!take(cursor, "{"))
        return expected(cursor, "a dictionary");
    while (!take(cursor, "}")) {
        struct bpk_str key;
        size_t which = 0;
        size_t at = cursor->pos;
        int r = comma ? read_string(cursor, &key) : expected(cursor, "a comma or the end");
        if (r < 0)
            return r;
        while (which < BPK_ARRAY_LEN(keys) && !bpk_str_is(key, keys[which]))
            which++;
        if (which == BPK_ARRAY_LEN(keys) || seen[which])
            return bpk_diag_set(cursor->diag, -EINVAL, at, "the header of the .npy file has %s",
                                which == BPK_ARRAY_LEN(keys) ? "an unknown key" : "a key twice");
        seen[which] = true;
        if (!take(cursor, ":"))
            return expected(cursor, "a colon");
        if (which == 0)
            r = read_descr_value(cursor, npy);
        else
            r = which == 1 ? read_bool(cursor, &npy->is_fortran) : read_shape(cursor, npy);
        if (r < 0)
            return r;
        comma = take(cursor, ",");
    }
    for (size_t i = 0; i < BPK_ARRAY_LEN(keys); i++)
        if (!seen[i])
            return bpk_diag_set(cursor->diag, -EINVAL, cursor->pos,
                                "the header of the .npy file has no '%s'", keys[i]);
    return read_end(cursor);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Magic, version and length: where the text begins and ends. */
static int read_prefix(const unsigned char *bytes, size_t len, size_t *ret_start, size_t *ret_end,
                       struct bpk_diag *diag) {
    const size_t magic = sizeof(BPK_NPY_MAGIC) - 1;
    if (memcmp(bytes, BPK_NPY_MAGIC, len < magic ? len : magic) != 0)
        return bpk_diag_set(diag, -EINVAL, 0, "is no .npy file: it does not begin with \\x93NUMPY");
    if (len < magic + 2)
        return -EAGAIN;
    unsigned major = bytes[magic];
    if (major < 1 || major > 3 || bytes[magic + 1] != 0)
        return bpk_diag_set(diag, -EINVAL, magic, "version %u.%u of the .npy format is not known",
                            major, bytes[magic + 1]);
    size_t start = magic + 2 + (major == 1 ? 2 : 4);
    if (len < start)
        return -EAGAIN;
    uint64_t text = 0;
    for (size_t i = start; i > magic + 2; i--)
        text = text << 8 | bytes[i - 1];
    if (text > BPK_NPY_MAX_TEXT)
        return bpk_diag_set(diag, -EINVAL, magic + 2,
                            "the header of the .npy file is of %" PRIu64
                            " bytes; NumPy reads at most %d",
                            text, BPK_NPY_MAX_TEXT);
    if (len - start < text)
        return -EAGAIN;
    *ret_start = start;
    *ret_end = start + (size_t)text;
    return 0;
}

int bpk_npy_parse(const void *bytes, size_t len, struct bpk_npy *ret_npy, struct bpk_diag *diag) {
    struct bpk_npy npy = {0};
    struct cursor cursor = {.text = bytes, .diag = diag};
    int r = read_prefix(bytes, len, &cursor.pos, &cursor.len, diag);
    if (r < 0)
        return r;
    npy.header_size = cursor.len;
    cursor.takes_longs = cursor.text[sizeof(BPK_NPY_MAGIC) - 1] < 3;
    r = read_dictionary(&cursor, &npy);
    if (r < 0)
        return r;
    struct bpk_dtype dtype = dtype_of(npy.kind);
    if (!bpk_dtype_shape_length(&dtype, npy.dims, npy.rank, &npy.size) || npy.size > BPK_MAX_TENSOR)
        return bpk_diag_set(diag, -EFBIG, BPK_NO_OFFSET,
                            "the array is larger than a tensor of a pack can be (10 GiB)");
    *ret_npy = npy;
    return 0;
}
