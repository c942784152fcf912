/* What the verbs that print a table of tensors share: which tensors, and the columns. */
#ifndef BPK_CLI_TABLE_H
#define BPK_CLI_TABLE_H

#include "cli/cli.h"

/* Tensors of a pack, in its order. */
struct bpk_cli_selection {
    uint32_t *tensors; /* owned */
    uint32_t count;
};

/* Selects the tensors that a pattern matches, or all if there is no pattern. A pattern matches file
 * names as the shell would, but "*" also a leading dot; one that is a name as we show it is that
 * tensor. False, with a message and an empty selection, if there is no such tensor. */
bool bpk_cli_select(const struct bpk_cli_pack *pack, int count, char **patterns,
                    struct bpk_cli_selection *ret_selection);
void bpk_cli_selection_clear(struct bpk_cli_selection *selection);

#define _cleanup_selection_ __attribute__((cleanup(bpk_cli_selection_clear)))

/* Pads what was written since `from` to `width` columns; names may hold wide characters, which
 * then stand a little off. */
void bpk_cli_pad(struct bpk_outbuf *out, size_t from, size_t width);

/* "bpk: FILE: tensor 'NAME': SENTENCE" on stderr. */
void bpk_cli_tensor_error(const struct bpk_cli_pack *pack, uint32_t index, const char *sentence);

#define BPK_CLI_DTYPE_AND_SHAPE "DTYPE     SHAPE           " /* the head of the next one */
void bpk_cli_dtype_and_shape(const struct bpk_cli_pack *pack, uint32_t index,
                             struct bpk_outbuf *out);

#endif
