#include "pack/outbuf.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(struct bpk_outbuf *out, size_t more) {
    if (out->capacity - out->len >= more)
        return true;
    size_t wanted = out->capacity + out->capacity / 2 + 256;
    if (wanted < out->len + more)
        wanted = out->len + more;
    char *grown = realloc(out->text, wanted);
    if (!grown) {
        out->failed = true;
        return false;
    }
    out->text = grown;
    out->capacity = wanted;
    return true;
}

void bpk_out(struct bpk_outbuf *out, const char *bytes, size_t len) {
    if (len == 0 || out->failed)
        return;
    if (!out->counting) {
        if (!make_room(out, len))
            return;
        memcpy(out->text + out->len, bytes, len);
    }
    out->len += len;
}

void bpk_out_str(struct bpk_outbuf *out, const char *text) {
    bpk_out(out, text, strlen(text));
}

void bpk_out_u64(struct bpk_outbuf *out, uint64_t number) {
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    bpk_out(out, digits + at, sizeof(digits) - at);
}

void bpk_outbuf_clear(struct bpk_outbuf *out) {
    free(out->text);
    *out = (struct bpk_outbuf){0};
}
