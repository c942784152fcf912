/* Tensors as they are now, edits included: what the typed views are made of. */
#ifndef BPK_EDIT_CURRENT_H
#define BPK_EDIT_CURRENT_H

#include "edit/edits.h"
#include "view/array.h"
#include "view/names.h"

/* One tensor: the descriptor in force and the length of its bytes, which need not go together. */
struct bpk_current {
    struct bpk_array array;
    uint64_t *dims;   /* what array.dims points to; owned */
    uint64_t number;  /* of the file that has its bytes */
    uint64_t version; /* another one after every change of bytes or descriptor in this mount */
    char name[BPK_FILE_NAME_BUF]; /* file name in tensors/ */
    struct bpk_str title;         /* the tensor's name; owned */
};

/* The tensor of that file name. -ENOENT if there is none: a name without bytes or without a
 * descriptor is no tensor. */
int bpk_edits_current(struct bpk_edits *edits, const char *name, struct bpk_current *ret_current);

/* The tensor whose bytes are in the file of that number, which was never touched or has a name.
 * -ESTALE if it is none. */
int bpk_edits_current_of(struct bpk_edits *edits, const struct bpk_place *place,
                         struct bpk_current *ret_current);

/* The same of a pack without edits; `number` is the caller's, the version 0. */
int bpk_current_of_pack(const struct bpk_pack *pack, const struct bpk_names *names, uint32_t index,
                        uint64_t number, struct bpk_current *ret_current);

void bpk_current_clear(struct bpk_current *current);

#endif
