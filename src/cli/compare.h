/* How two packs differ, tensor by tensor. */
#ifndef BPK_CLI_COMPARE_H
#define BPK_CLI_COMPARE_H

#include "cli/cli.h"

enum {
    BPK_DIFF_DTYPE = 1 << 0,
    BPK_DIFF_SHAPE = 1 << 1,
    BPK_DIFF_PARAM_ID = 1 << 2,
    BPK_DIFF_BYTES = 1 << 3,
};

/* A name that one of them has, or both. */
struct bpk_cli_pair {
    uint32_t a; /* BPK_NO_TENSOR: not there */
    uint32_t b;
    unsigned differs;
};

struct bpk_cli_comparison {
    const struct bpk_cli_pack *a;
    const struct bpk_cli_pack *b;
    struct bpk_cli_pair *pairs; /* owned, in the order of the names */
    size_t count;
};

/* Compares what is known of the tensors without reading them. False, with a message, if there is
 * no memory. */
bool bpk_cli_compare(const struct bpk_cli_pack *a, const struct bpk_cli_pack *b,
                     struct bpk_cli_comparison *ret_comparison);

/* Compares their bytes, several tensors or parts of one at a time; `first_only`: no further than
 * to the first difference. False, with a message, if not all could be read. */
bool bpk_cli_compare_bytes(struct bpk_cli_comparison *comparison, bool first_only);

bool bpk_cli_pair_is_same(const struct bpk_cli_pair *pair);

void bpk_cli_comparison_clear(struct bpk_cli_comparison *comparison);

#endif
