/* CBOR as Burn's own writer (ciborium) emits it: definite lengths, shortest heads, floats as short
 * as keeps every bit. Appends to a buffer; failures are the buffer's. */
#ifndef BPK_PACK_CBOR_WRITER_H
#define BPK_PACK_CBOR_WRITER_H

#include "bpk.h"
#include "pack/outbuf.h"

void bpk_cbor_out_uint(struct bpk_outbuf *out, uint64_t value);
void bpk_cbor_out_int(struct bpk_outbuf *out, int64_t value);
void bpk_cbor_out_text(struct bpk_outbuf *out, struct bpk_str text);
void bpk_cbor_out_cstring(struct bpk_outbuf *out, const char *text);
void bpk_cbor_out_array(struct bpk_outbuf *out, uint64_t count); /* the head; items follow */
void bpk_cbor_out_map(struct bpk_outbuf *out, uint64_t count);   /* the head; entries follow */
void bpk_cbor_out_bool(struct bpk_outbuf *out, bool value);
void bpk_cbor_out_null(struct bpk_outbuf *out);

/* The double with these bits, as half or single where that is the same bits again. */
void bpk_cbor_out_float(struct bpk_outbuf *out, uint64_t bits);

/* A dtype as the newest writer spells it; LEVELLED schemes and text "Bool" as their own writers
 * did. */
void bpk_cbor_out_dtype(struct bpk_outbuf *out, const struct bpk_dtype *dtype);

#endif
