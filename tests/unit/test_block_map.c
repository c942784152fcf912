/* block_map: a set of blocks against an array of booleans. */
#include "suite.h"

#include "edit/block_map.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 20000 }; /* some chunks, and a part of one */

static struct bpk_block_map map;
static bool model[BLOCKS];

static void check(void) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < BLOCKS; i++) {
        ck_assert(bpk_block_map_has(&map, i) == model[i]);
        count += model[i];
    }
    ck_assert_uint_eq(map.count, count);
    for (uint64_t i = 0; i < BLOCKS;) {
        uint64_t end = i;
        while (end < BLOCKS && model[end] == model[i])
            end++;
        ck_assert_uint_eq(bpk_block_map_end_of_run(&map, i, BLOCKS), end);
        i = end;
    }
}

START_TEST(an_empty_set) {
    memset(model, 0, sizeof(model));
    check();
    ck_assert(!bpk_block_map_has(&map, UINT64_MAX / 2));
    ck_assert_uint_eq(bpk_block_map_end_of_run(&map, 5, 7), 7);
    bpk_block_map_drop_from(&map, 0);
    bpk_block_map_clear(&map);
}

START_TEST(any_blocks_added_and_dropped) {
    memset(model, 0, sizeof(model));
    srand(7);
    for (int turn = 0; turn < 60; turn++) {
        uint64_t start = (uint64_t)rand() % BLOCKS;
        uint64_t size = (uint64_t)rand() % (rand() % 2 ? 5000 : 5);
        for (uint64_t i = start; i < start + size && i < BLOCKS; i++) {
            ck_assert_int_eq(bpk_block_map_add(&map, i), 0);
            model[i] = true;
        }
        if (turn % 7 == 0) {
            bpk_block_map_drop_from(&map, start);
            memset(model + start, 0, BLOCKS - start);
        }
        check();
    }
    bpk_block_map_clear(&map);
    ck_assert_uint_eq(map.count, 0);
}

int main(void) {
    Suite *suite = suite_create("block_map");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, an_empty_set);
    tcase_add_test(tc, any_blocks_added_and_dropped);
    return suite_run(suite);
}
