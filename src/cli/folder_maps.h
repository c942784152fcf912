/* The maps in a folder of a pack's files, and what reading the folder shares. */
#ifndef BPK_CLI_FOLDER_MAPS_H
#define BPK_CLI_FOLDER_MAPS_H

#include "cli/newpack.h"

/* Names in a folder, sorted. */
struct bpk_cli_names {
    char **names;
    size_t count;
};
/* False with errno. */
bool bpk_cli_list_names(int folder, const char *sub, struct bpk_cli_names *ret_names);
int bpk_cli_compare_names(const void *a, const void *b); /* for qsort and bsearch */
void bpk_cli_names_clear(struct bpk_cli_names *names);

/* "bpk: PATH/FILE: SENTENCE"; false. */
bool bpk_cli_folder_error(const char *path, const char *file, const char *sentence);

/* All of a small file of the folder. 0 or -errno. */
int bpk_cli_read_text(const struct bpk_cli_newpack *pack, const char *file,
                      struct bpk_outbuf *ret_text);

/* Reads metadata.json, scalars.json and metadata/, each of which may be missing. A key of metadata/
 * must be in metadata.json with that value, unless that is missing or cannot hold it. */
bool bpk_cli_take_maps(struct bpk_cli_newpack *pack);

#endif
