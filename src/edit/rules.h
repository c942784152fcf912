/* What a name says about a file that the pack does not have. Pure. */
#ifndef BPK_EDIT_RULES_H
#define BPK_EDIT_RULES_H

#include "bpk.h"

/* The folders of a mount that can be written to. */
enum bpk_folder { BPK_IN_ROOT, BPK_IN_TENSORS, BPK_IN_METADATA, BPK_IN_NPY };
enum { BPK_FOLDERS = 4 };

/* Its path in the mount: "", "tensors/", "metadata/", "views/npy/". */
const char *bpk_rules_folder_path(enum bpk_folder folder);

/* Editors' own files: 4913, "sed" and six letters or digits, a leading "." or "#", a trailing
 * "~". */
bool bpk_rules_is_scratch(const char *name);

/* *.bak, *.orig, *.old, *.rej */
bool bpk_rules_is_backup(const char *name);

/* The stem of "STEM.json"; false for other names. The stem points into `name`. */
bool bpk_rules_sidecar_stem(const char *name, struct bpk_str *ret_stem);

/* The same of "STEM.npy". */
bool bpk_rules_array_stem(const char *name, struct bpk_str *ret_stem);

/* Whether the name spells a tensor or key as this program would: encode(decode(x)) is x, and UTF-8.
 * Writes the decoded name, of at most strlen(name) bytes, into `out`. */
bool bpk_rules_is_spelled_right(const char *name, char *out, size_t *ret_len);

#endif
