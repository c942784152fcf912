/* Talking to a live mount through its .bpkfs folder. */
#ifndef BPK_CLI_LIVE_H
#define BPK_CLI_LIVE_H

#include "pack/outbuf.h"
#include "view/status_read.h"

/* Reads the status of the mount at `mountpoint`, as text too if `ret_text` is not NULL. A message
 * is printed on failure. 0 or a negative errno. */
int bpk_live_status(const char *mountpoint, struct bpk_status *ret_status,
                    struct bpk_outbuf *ret_text);

/* Says of a folder, which is no pack, which pack is mounted on it, if one is: false if none is. */
bool bpk_live_tell_pack(const char *folder);

/* Sends a command, and prints what the mount says of it: why it failed, or what a commit mended and
 * dropped. 0 or a negative errno. */
int bpk_live_command(const char *mountpoint, const char *command);

/* Prints edits that a commit left out, if any, and why: pending files, backups, what is not valid.
 */
void bpk_live_print_waiting(const char *mountpoint);

#endif
