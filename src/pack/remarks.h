/* What a new pack does not have of its base although nobody edited it: faults of place that were
 * mended, bytes that no name led to. Said in sentences, after it was written. */
#ifndef BPK_PACK_REMARKS_H
#define BPK_PACK_REMARKS_H

struct bpk_plan;

/* Called with one sentence at a time: printable, no final stop. */
typedef void bpk_remark_fn(void *context, const char *sentence);

struct bpk_remarks {
    bpk_remark_fn *report; /* may be NULL */
    void *context;
};

/* A `report` that appends each as a line to its context, a struct bpk_outbuf. */
void bpk_remarks_collect(void *out, const char *sentence);

void bpk_remarks_tell(const struct bpk_plan *plan, const struct bpk_remarks *remarks);

#endif
