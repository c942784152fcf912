/* index.tsv: all tensors in one table, for awk, sort and spreadsheets. */
#ifndef BPK_VIEW_INDEX_H
#define BPK_VIEW_INDEX_H

#include "bpk.h"
#include "pack/outbuf.h"
#include "view/names.h"

/* A header line, then a line a tensor in bytewise order of the names, fields parted by tabs: file
 * name, dtype (compact JSON), shape ("64x1x3x3", empty for a scalar), bytes, offset in the file. */
void bpk_index_file(struct bpk_outbuf *out, const struct bpk_pack *pack,
                    const struct bpk_names *names);

/* "64x1x3x3" */
void bpk_index_shape(struct bpk_outbuf *out, struct bpk_shape shape);

#endif
