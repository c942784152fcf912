#include "edit/block_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_WORDS = 64, CHUNK_BLOCKS = CHUNK_WORDS * 64 };

bool bpk_block_map_has(const struct bpk_block_map *map, uint64_t block) {
    uint64_t chunk = block / CHUNK_BLOCKS;
    if (chunk >= map->chunk_count || !map->chunks[chunk])
        return false;
    uint64_t bit = block % CHUNK_BLOCKS;
    return map->chunks[chunk][bit / 64] >> (bit % 64) & 1;
}

int bpk_block_map_make_room(struct bpk_block_map *map, uint64_t block) {
    uint64_t chunk = block / CHUNK_BLOCKS;
    if (chunk >= map->chunk_count) {
        size_t count = (size_t)chunk + 1 + map->chunk_count / 2;
        uint64_t **grown = realloc(map->chunks, count * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        memset(grown + map->chunk_count, 0, (count - map->chunk_count) * sizeof(*grown));
        map->chunks = grown;
        map->chunk_count = count;
    }
    if (!map->chunks[chunk]) {
        map->chunks[chunk] = calloc(CHUNK_WORDS, sizeof(uint64_t));
        if (!map->chunks[chunk])
            return -ENOMEM;
    }
    return 0;
}

int bpk_block_map_add(struct bpk_block_map *map, uint64_t block) {
    int r = bpk_block_map_make_room(map, block);
    if (r < 0)
        return r;
    uint64_t chunk = block / CHUNK_BLOCKS;
    uint64_t bit = block % CHUNK_BLOCKS;
    uint64_t *word = &map->chunks[chunk][bit / 64];
    uint64_t mask = UINT64_C(1) << (bit % 64);
    map->count += !(*word & mask);
    *word |= mask;
    return 0;
}

void bpk_block_map_drop_from(struct bpk_block_map *map, uint64_t block) {
    for (uint64_t chunk = block / CHUNK_BLOCKS; chunk < map->chunk_count; chunk++) {
        if (!map->chunks[chunk])
            continue;
        for (unsigned word = 0; word < CHUNK_WORDS; word++) {
            uint64_t first = chunk * CHUNK_BLOCKS + word * 64;
            uint64_t keep = 0;
            if (first + 64 <= block)
                keep = UINT64_MAX;
            else if (first < block)
                keep = (UINT64_C(1) << (block - first)) - 1;
            uint64_t *bits = &map->chunks[chunk][word];
            map->count -= (unsigned)__builtin_popcountll(*bits & ~keep);
            *bits &= keep;
        }
    }
}

uint64_t bpk_block_map_end_of_run(const struct bpk_block_map *map, uint64_t block, uint64_t end) {
    bool owned = bpk_block_map_has(map, block);
    if (!owned && map->count == 0)
        return end;
    uint64_t at = block + 1;
    while (at < end) {
        /* Whole chunks without a map are passed at once. */
        uint64_t chunk = at / CHUNK_BLOCKS;
        if (!owned && at % CHUNK_BLOCKS == 0 &&
            (chunk >= map->chunk_count || !map->chunks[chunk])) {
            at += CHUNK_BLOCKS;
            continue;
        }
        if (bpk_block_map_has(map, at) != owned)
            break;
        at++;
    }
    return at < end ? at : end;
}

void bpk_block_map_clear(struct bpk_block_map *map) {
    for (size_t i = 0; i < map->chunk_count; i++)
        free(map->chunks[i]);
    free(map->chunks);
    map->chunks = NULL;
    map->chunk_count = 0;
    map->count = 0;
}
