/* The files that a mount shows, read back from a folder: see bpk unpack. */
#ifndef BPK_CLI_FOLDER_H
#define BPK_CLI_FOLDER_H

#include "cli/newpack.h"

/* Takes tensors/, metadata.json, scalars.json, and metadata/ where a copy of a mount has it.
 * What the mount would leave out as an editor's file or a backup is named and left out; anything
 * else that is not as the mount would have it is refused: false, with a message. */
bool bpk_cli_read_folder(const char *path, struct bpk_cli_newpack *ret_pack);

#endif
