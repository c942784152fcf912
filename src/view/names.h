/* File names of tensors and metadata keys: a one-to-one mapping from any name to a legal file
 * name of at most 250 bytes, so that ".json" still fits behind it.
 *
 * These bytes are percent-encoded (upper-case hex): "/", NUL, below 0x20 and 0x7F, "%", a leading
 * ".", a trailing "~", the dot of a trailing ".json". The empty name is "%". What is longer than
 * 250 bytes then is cut, and ends in "%~" and the XXH3-64 hash of the name, in hex.
 */
#ifndef BPK_VIEW_NAMES_H
#define BPK_VIEW_NAMES_H

#include "bpk.h"

#define BPK_FILE_NAME_MAX 250 /* bytes of an encoded name */
#define BPK_FILE_NAME_BUF 256 /* room for one with ".json" and its end */

/* The file names of one map of a pack: its tensors or its user metadata. */
struct bpk_names;

enum bpk_names_of { BPK_NAMES_TENSORS, BPK_NAMES_METADATA };

/* Takes a reference to `pack`, not to its file. 0 or -ENOMEM. */
int bpk_names_new(struct bpk_pack *pack, enum bpk_names_of of, struct bpk_names **ret_names);
void bpk_names_free(struct bpk_names *names); /* NULL is fine */

/* The file name of entry `index`, terminated; returns its length. */
size_t bpk_names_file(const struct bpk_names *names, uint32_t index, char out[BPK_FILE_NAME_BUF]);

/* The entry whose file name is exactly `file`, or -ENOENT. */
int bpk_names_find(const struct bpk_names *names, struct bpk_str file, uint32_t *ret_index);

/* Encodes a whole name; returns its length, or 0 if it is longer than BPK_FILE_NAME_MAX. */
size_t bpk_name_encode(struct bpk_str name, char out[BPK_FILE_NAME_BUF]);

/* Whether `file` is the cut file name of the long name `name`, in whatever pack: a clash of hashes
 * may have moved its number up. */
bool bpk_name_is_cut(struct bpk_str file, struct bpk_str name);

/* Undoes every "%XX"; `file` of "%" alone is the empty name. Writes at most file.len bytes; returns
 * their number, or -EINVAL if "%" is followed by something else. It takes more spellings than
 * bpk_name_encode gives: compare with its result where that matters. */
int bpk_name_decode(struct bpk_str file, char *out);

#endif
