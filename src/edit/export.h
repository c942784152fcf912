/* A whole pack, or safetensors file, of the tensors as they are now, readable at any place without
 * being built: a head that is composed, and parts that are read from where the bytes are.
 *
 * An export is of one generation of the edits: once anything changed it answers -ESTALE, so that
 * nobody reads a mixture. Any thread may read.
 */
#ifndef BPK_EDIT_EXPORT_H
#define BPK_EDIT_EXPORT_H

#include "edit/edits.h"

enum bpk_export_format { BPK_EXPORT_PACK, BPK_EXPORT_SAFETENSORS };

struct bpk_export; /* reference-counted */

/* Of the pack as a commit would write it now; without edits, the pack's file as it is. Edits that
 * are not valid are left out: see bpk_export_is_whole. -EFBIG where a limit of the format is
 * exceeded, with `diag`. */
int bpk_export_of_edits(struct bpk_edits *edits, enum bpk_export_format format,
                        struct bpk_export **ret_export, struct bpk_diag *diag);

/* Of a pack without edits. */
int bpk_export_of_pack(struct bpk_pack *pack, enum bpk_export_format format,
                       struct bpk_export **ret_export, struct bpk_diag *diag);

struct bpk_export *bpk_export_ref(struct bpk_export *export);
void bpk_export_unref(struct bpk_export *export); /* NULL is fine */

uint64_t bpk_export_size(const struct bpk_export *export);

/* The generation of the edits that it is of; 0 of a pack without. */
uint64_t bpk_export_generation(const struct bpk_export *export);

/* Whether every edit is in it. */
bool bpk_export_is_whole(const struct bpk_export *export);

/* Calls `report` for each tensor that the format cannot hold or that has a problem, and for what
 * of its metadata is left out: the tensor's file name, and why. */
typedef void bpk_left_out_fn(void *context, const char *name, const char *reason);
void bpk_export_each_left_out(const struct bpk_export *export, bpk_left_out_fn *report,
                              void *context);

/* Reads up to `size` bytes; short only at the end. -ESTALE once something was edited, -EIO if the
 * pack was changed underneath. */
int bpk_export_read(struct bpk_export *export, uint64_t offset, void *buffer, size_t size,
                    size_t *ret_read);

#endif
