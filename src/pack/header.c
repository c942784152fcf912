#include "pack/header.h"

#include "pack/diag.h"

#include <errno.h>

static uint32_t read_le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int bpk_header_parse(const uint8_t *bytes, size_t size, struct bpk_header *ret_header,
                     struct bpk_diag *diag) {
    if (size < BPK_HEADER_SIZE)
        return bpk_diag_set(diag, -EBADMSG, 0, "%zu bytes are too few for a header of %d bytes",
                            size, BPK_HEADER_SIZE);
    uint32_t magic = read_le32(bytes);
    if (magic != BPK_MAGIC)
        return bpk_diag_set(diag, -EBADMSG, 0,
                            "not a burnpack: it starts with %02x %02x %02x %02x instead of "
                            "4e 52 55 42",
                            bytes[0], bytes[1], bytes[2], bytes[3]);
    struct bpk_header header = {
        .version = (uint16_t)(bytes[4] | bytes[5] << 8),
        .metadata_size = read_le32(bytes + 6),
    };
    if (header.version > BPK_VERSION)
        return bpk_diag_set(diag, -EBADMSG, 4,
                            "version %u of the format is not supported (only %d)", header.version,
                            BPK_VERSION);
    if (header.metadata_size > BPK_MAX_METADATA)
        return bpk_diag_set(diag, -EBADMSG, 6, "metadata of %u bytes exceeds the limit of %u",
                            header.metadata_size, BPK_MAX_METADATA);
    *ret_header = header;
    return 0;
}
