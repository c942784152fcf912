/* A growing buffer for what we compose: CBOR, files of the mount, output of bpk.
 * Failures to grow are remembered, so that only the end has to be looked at. */
#ifndef BPK_PACK_OUTBUF_H
#define BPK_PACK_OUTBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpk_outbuf {
    char *text; /* owned; not terminated; NULL while only counting */
    size_t len;
    size_t capacity;
    bool counting; /* only `len` is kept: for the size of a file that nobody reads yet */
    bool failed;   /* out of memory: the content is not whole */
};

void bpk_out(struct bpk_outbuf *out, const char *bytes, size_t len);
void bpk_out_str(struct bpk_outbuf *out, const char *text);
void bpk_out_u64(struct bpk_outbuf *out, uint64_t number);
void bpk_outbuf_clear(struct bpk_outbuf *out);

#define _cleanup_outbuf_ __attribute__((cleanup(bpk_outbuf_clear)))

#endif
