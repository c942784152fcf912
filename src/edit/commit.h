/* A commit under way: what gather.c finds for it, and commit.c writes. */
#ifndef BPK_EDIT_COMMIT_H
#define BPK_EDIT_COMMIT_H

#include "edit/state.h"

struct bpk_commit;

/* A tensor that the new pack is to have. */
struct bpk_commit_item {
    struct bpk_commit *commit;
    struct bpk_str name;
    char *owned;                 /* the name, if it is not the base's */
    struct bpk_desc *desc;       /* NULL: the base's */
    struct bpk_content *content; /* NULL: the base's bytes */
    uint32_t index; /* the base's tensor that descriptor or bytes are of; BPK_NO_TENSOR: none */
    uint32_t rank;  /* place among the data; new tensors come last */
    uint64_t size;
};

struct bpk_commit {
    struct bpk_edits *edits;
    enum bpk_commit_mode mode;
    struct bpk_pack *base;
    struct bpk_commit_item *items;
    size_t count;
    size_t capacity;
    struct bpk_plan_entry *metadata;
    size_t metadata_count;
    struct bpk_outbuf metadata_text; /* the strings of `metadata` that are not the base's */
    struct bpk_committed committed;
    struct bpk_pack *made;
    int lock_fd;
    struct bpk_content *reading; /* its data file is open because it is copied; no reference */
    size_t kept;
    size_t arrays_left_out; /* in views/npy/ */
    bool empties_metadata;  /* metadata.json was removed, and the commit is by name */
    bool empties_scalars;
    unsigned maps_put_back; /* or not by name */
    bool only_looks;        /* nothing is frozen: what is gathered is read, not written */
};

/* ---- gather.c (locked) ---- */
/* Judges the edits, freezes those that go in and makes the plan of the new pack. *ret_something:
 * whether it would be another than the base. */
int bpk_commit_gather(struct bpk_commit *commit, struct bpk_plan *ret_plan, bool *ret_something,
                      struct bpk_diag *diag);
/* Drops what was gathered; takes the lock. */
void bpk_commit_release(struct bpk_commit *commit);
/* The content at the bottom of a content's layers. */
const struct bpk_content *bpk_commit_bottom(const struct bpk_content *content);

/* ---- borrowers.c ---- */
/* Brings what borrows from the base while others go on; takes the lock. */
int bpk_commit_free_early(struct bpk_commit *commit);
/* The same, locked, of what came to it meanwhile. */
int bpk_commit_free_rest(struct bpk_commit *commit);

#endif
