/* What the modules of this folder share: the inside of struct bpk_pack. */
#ifndef BPK_PACK_PACK_INTERNAL_H
#define BPK_PACK_PACK_INTERNAL_H

#include "pack/header.h"
#include "pack/meta.h"

#include <stdatomic.h>

struct bpk_pack {
    atomic_uint references;
    atomic_uint readers; /* those of them that may read the file; with the last it is closed */
    int fd;
    struct stat stat; /* when it was opened */
    struct bpk_header header;
    uint64_t table_hash; /* XXH3-64 of header and metadata, as they are in the file */
    struct bpk_meta meta;
    enum bpk_layout layout;
    bool overruled; /* the layout is the user's word, against what length and content say */
    uint64_t data_start;
    uint64_t data_size;           /* largest end of a tensor, relative to data_start */
    uint32_t *data_order;         /* indexes of the tensors by start, then end, then name */
    struct bpk_meta_tensor *lost; /* what salvage left out */
    size_t lost_count;
    size_t lost_capacity;
};

/* Whether the tensor shares bytes with another, or starts off a multiple of 256 where the layout
 * wants one. */
bool bpk_pack_is_misplaced(const struct bpk_pack *pack, uint32_t index);

/* How many names or keys of each of the three maps later ones hide. */
enum { BPK_PACK_MAPS = 3 };
struct bpk_pack_hidden {
    const char *what; /* "tensor names" … */
    size_t count;
};
void bpk_pack_hidden(const struct bpk_pack *pack, struct bpk_pack_hidden ret_hidden[BPK_PACK_MAPS]);

/* Looks from `from` on (absolute) for the first byte before the data's end that is not zero and
 * belongs to no tensor. Gaps that only bring the next tensor to a multiple of 256 are looked at if
 * `all`; there is one a tensor. Returns 1 with the byte's offset, 0 if there is none, -errno. */
int bpk_pack_find_stray(const struct bpk_pack *pack, uint64_t from, bool all, uint64_t *ret_offset);

/* A reference of one who needs what is in memory only: names, descriptors, metadata. It does not
 * keep the file open, whose disk space another pack may need by now. */
struct bpk_pack *bpk_pack_ref_table(struct bpk_pack *pack);
void bpk_pack_unref_table(struct bpk_pack *pack); /* NULL is fine */

#endif
