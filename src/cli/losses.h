/* What the files of an unpacked pack do not say of it. */
#ifndef BPK_CLI_LOSSES_H
#define BPK_CLI_LOSSES_H

#include "cli/cli.h"

/* Says on standard error what cannot be carried, and whether the bytes of the pack would not come
 * back the same. Returns whether all that a reader can find in the pack is carried. */
bool bpk_cli_tell_losses(const struct bpk_cli_pack *pack);

#endif
