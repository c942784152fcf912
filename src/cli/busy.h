/* Whether somebody else has a pack that is to be changed or replaced. */
#ifndef BPK_CLI_BUSY_H
#define BPK_CLI_BUSY_H

#include <stdbool.h>

/* Whether there is a folder of edits beside the pack. */
bool bpk_cli_has_edits(const char *path);

/* Takes the lock of a file that is to be replaced: *ret_fd, which the caller closes, -1 if there
 * is none. False, with a message, if it is no file, is mounted for writing or being written, or has
 * edits beside it. */
bool bpk_cli_claim(const char *path, int *ret_fd);

/* Says why a file could not be made or replaced: `r` and its sentence. That '--force' replaces what
 * is there is added where it does. */
void bpk_cli_tell_unmade(const char *path, int r, const char *sentence);

/* "edits are waiting ..." and "it is mounted ...", with the ways out. */
void bpk_cli_tell_edits(const char *path);
void bpk_cli_tell_busy(const char *path);

#endif
