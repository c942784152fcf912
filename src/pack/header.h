/* The ten bytes that open every pack: magic, version, metadata_size. Pure. */
#ifndef BPK_PACK_HEADER_H
#define BPK_PACK_HEADER_H

#include "bpk.h"

#define BPK_MAGIC       UINT32_C(0x4255524E) /* little-endian on disk: "NRUB" */
#define BPK_VERSION     1
#define BPK_HEADER_SIZE 10

struct bpk_header {
    uint16_t version;       /* 0 or 1; Burn's reader takes both */
    uint32_t metadata_size; /* bytes of CBOR after the header, at most BPK_MAX_METADATA */
};

/* Checks magic, version and the limit on metadata_size, in the order in which Burn's reader does.
 * `size` may be less than BPK_HEADER_SIZE. 0 or -EBADMSG with `diag` filled. */
int bpk_header_parse(const uint8_t *bytes, size_t size, struct bpk_header *ret_header,
                     struct bpk_diag *diag);

#endif
