/* Where the data section starts, and whether what the metadata says fits the file. Pure.
 *
 * The header does not say which of the two layouts a pack has: Burn 0.19 put the data right after
 * the CBOR (legacy), later writers put it on the next multiple of 256 (aligned). It is told from
 * the file's length first, then from what only one of the writers could have made.
 */
#ifndef BPK_PACK_LAYOUT_H
#define BPK_PACK_LAYOUT_H

#include "bpk.h"

struct bpk_layout_facts {
    uint64_t unaligned_start; /* first byte after the CBOR block: 10 + metadata_size */
    uint64_t data_size;       /* largest end of any tensor, relative to the data section */
    uint64_t file_size;
    bool starts_aligned;  /* every tensor starts on a multiple of 256 */
    bool padding_is_zero; /* the bytes between unaligned_start and the next multiple of 256 */
    /* metadata and dtypes, as evidence for one of the writers */
    bool has_metadata;
    bool is_modern;          /* scalars, or a dtype spelling of aligned writers */
    bool has_zero_tail;      /* zero bytes after the CBOR item, inside metadata_size */
    struct bpk_str version;  /* metadata "version"; bytes NULL if absent */
    struct bpk_str producer; /* metadata "producer"; bytes NULL if absent */
};

/* The next multiple of 256. `offset` is at most 2^63. */
uint64_t bpk_layout_align(uint64_t offset);

/* Start of the data section, absolute. */
uint64_t bpk_layout_data_start(enum bpk_layout layout, uint64_t unaligned_start);

/* Tells the layout. -EBADMSG with `diag` where the file is too short for it, or where it could be
 * either, one of them cut short. */
int bpk_layout_detect(const struct bpk_layout_facts *facts, enum bpk_layout *ret_layout,
                      struct bpk_diag *diag);

/* For a file that is too short for either layout: the one that its content speaks for. */
enum bpk_layout bpk_layout_guess(const struct bpk_layout_facts *facts);

#endif
