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

/* The header line alone. */
void bpk_index_header(struct bpk_outbuf *out);

/* One line; without an offset (what is edited has none yet) that field is "-". */
void bpk_index_row(struct bpk_outbuf *out, const char *file, const struct bpk_dtype *dtype,
                   struct bpk_shape shape, uint64_t size, const uint64_t *offset);

/* "64x1x3x3" */
void bpk_index_shape(struct bpk_outbuf *out, struct bpk_shape shape);

#endif
