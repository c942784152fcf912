/* Where the tensors of a new pack come from: other formats. */
#ifndef BPK_CLI_IMPORT_H
#define BPK_CLI_IMPORT_H

#include "cli/newpack.h"

/* False with a message. What does not become part of the pack is named. */
bool bpk_cli_import_safetensors(const char *path, struct bpk_cli_newpack *pack);

/* Every .npy file of a folder. Arrays that are not in a pack's order are put in order in a
 * temporary file beside `out`. */
bool bpk_cli_import_npy(const char *path, const char *out, struct bpk_cli_newpack *pack);

#endif
