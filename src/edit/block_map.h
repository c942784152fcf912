/* A set of blocks of a file: bits, in chunks that are made where a block is added. Not thread-safe.
 */
#ifndef BPK_EDIT_BLOCK_MAP_H
#define BPK_EDIT_BLOCK_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zeros: the empty set. */
struct bpk_block_map {
    uint64_t **chunks; /* NULL: none of its blocks is in the set */
    size_t chunk_count;
    uint64_t count; /* blocks in the set */
};

bool bpk_block_map_has(const struct bpk_block_map *map, uint64_t block);

/* Memory for a block, so that adding it cannot fail. 0 or -ENOMEM, as bpk_block_map_add. */
int bpk_block_map_make_room(struct bpk_block_map *map, uint64_t block);
int bpk_block_map_add(struct bpk_block_map *map, uint64_t block);

/* Takes out `block` and all behind it. */
void bpk_block_map_drop_from(struct bpk_block_map *map, uint64_t block);

/* First block from `block` up to `end` that is in the set if `block` is not, or the other way. */
uint64_t bpk_block_map_end_of_run(const struct bpk_block_map *map, uint64_t block, uint64_t end);

void bpk_block_map_clear(struct bpk_block_map *map);

#endif
