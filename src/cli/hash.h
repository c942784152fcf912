/* The XXH3-64 hashes of tensors' bytes, several tensors at a time. */
#ifndef BPK_CLI_HASH_H
#define BPK_CLI_HASH_H

#include "cli/table.h"

enum { BPK_CLI_HASH_DIGITS = 16 };

struct bpk_cli_hash {
    char text[BPK_CLI_HASH_DIGITS + 1]; /* lower-case hex; empty: the tensor could not be read */
};

/* Hashes the tensors of a selection, in its order. False, with a message for each that could not be
 * read, if not all is well; *ret_hashes is then NULL if there is none at all. The caller frees. */
bool bpk_cli_hash(const struct bpk_cli_pack *pack, const struct bpk_cli_selection *selection,
                  struct bpk_cli_hash **ret_hashes);

#endif
