#include "fuzz.h"

#include "pack/text.h"
#include "view/json_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- check without its runner ---------------------------------------------------------------- */

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...) {
    va_list args;
    fprintf(stderr, "%s:%d: %s", file, line, expr);
    if (msg) {
        fputs(": ", stderr);
        va_start(args, msg);
        vfprintf(stderr, msg, args);
        va_end(args);
    }
    fputc('\n', stderr);
    abort();
}

void _mark_point(const char *file, int line) {
    (void)file;
    (void)line;
}

/* ---- files and packs ------------------------------------------------------------------------- */

int fuzz_file(const void *data, size_t size, char path[FUZZ_PATH]) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    HOLDS(write(fd, data, size) == (ssize_t)size);
    snprintf(path, FUZZ_PATH, "/proc/self/fd/%d", fd);
    return fd;
}

void fuzz_check_sentence(const char *sentence) {
    const uint8_t *text = (const uint8_t *)sentence;
    size_t len = strlen(sentence);
    HOLDS(len > 0 && bpk_text_is_utf8(text, len));
    while (*text) {
        uint32_t code_point;
        text += bpk_text_char(text, &code_point);
        HOLDS(!bpk_text_is_unsafe(code_point));
    }
}

struct bpk_pack *fuzz_open(const char *path, const struct bpk_open_options *options) {
    struct bpk_pack *pack = NULL;
    struct bpk_diag diag = {0};
    int r = bpk_pack_open(path, options, &pack, &diag);
    if (r == 0)
        return pack;
    HOLDS(r < 0 && !pack && diag.code == r);
    fuzz_check_sentence(diag.sentence);
    return NULL;
}

/* ---- comparing ------------------------------------------------------------------------------- */

bool fuzz_str_equal(struct bpk_str a, struct bpk_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.bytes, b.bytes, a.len) == 0);
}

static void check_same_bytes(const struct bpk_pack *a, uint32_t i, const struct bpk_pack *b,
                             uint32_t k) {
    uint8_t left[4096];
    uint8_t right[4096];
    size_t n = 1;
    for (uint64_t offset = 0; n > 0; offset += n) {
        size_t m;
        HOLDS(bpk_pack_read(a, i, offset, left, sizeof(left), &n) == 0);
        HOLDS(bpk_pack_read(b, k, offset, right, sizeof(right), &m) == 0);
        HOLDS(n == m && memcmp(left, right, n) == 0);
    }
}

void fuzz_check_same_tensor(const struct bpk_pack *a, uint32_t i, const struct bpk_pack *b,
                            uint32_t k) {
    struct bpk_tensor left;
    struct bpk_tensor right;
    struct bpk_dtype left_dtype;
    struct bpk_dtype right_dtype;
    uint64_t left_dim;
    uint64_t right_dim;
    bpk_pack_tensor(a, i, &left);
    bpk_pack_tensor(b, k, &right);
    HOLDS(left.has_param_id == right.has_param_id && left.rank == right.rank);
    HOLDS(!left.has_param_id || left.param_id == right.param_id);
    HOLDS(left.end - left.start == right.end - right.start);
    bpk_pack_tensor_dtype(a, i, &left_dtype);
    bpk_pack_tensor_dtype(b, k, &right_dtype);
    HOLDS(bpk_dtype_equal(&left_dtype, &right_dtype));
    struct bpk_shape left_shape = bpk_pack_tensor_shape(a, i);
    struct bpk_shape right_shape = bpk_pack_tensor_shape(b, k);
    while (bpk_shape_next(&left_shape, &left_dim))
        HOLDS(bpk_shape_next(&right_shape, &right_dim) && left_dim == right_dim);
    check_same_bytes(a, i, b, k);
}
