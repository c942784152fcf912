/* Changes to entries of metadata and scalars, as arguments name them. */
#ifndef BPK_CLI_ENTRIES_H
#define BPK_CLI_ENTRIES_H

#include "cli/change.h"

enum bpk_cli_map { BPK_CLI_METADATA, BPK_CLI_SCALARS };

struct bpk_cli_entry {
    enum bpk_cli_map map;
    struct bpk_str key;
    struct bpk_outbuf json; /* the value; empty: the entry goes */
};

/* A list that grows; the keys are borrowed. */
struct bpk_cli_entries {
    struct bpk_cli_entry *entries;
    size_t count;
    size_t capacity;
};

/* One more; NULL, with a message, if there is no memory. */
struct bpk_cli_entry *bpk_cli_entries_add(struct bpk_cli_entries *entries, enum bpk_cli_map map,
                                          struct bpk_str key);
void bpk_cli_entries_clear(struct bpk_cli_entries *entries);

/* Whether the pack has that entry. `ret_scalar` may be NULL. */
bool bpk_cli_has_entry(const struct bpk_cli_change *change, enum bpk_cli_map map,
                       struct bpk_str key, struct bpk_scalar *ret_scalar);

/* Writes the maps anew that these entries change; the last one of a key counts. False with a
 * message. */
bool bpk_cli_change_entries(struct bpk_cli_change *change, const struct bpk_cli_entries *entries);

/* What a verb makes of its arguments. Each is false with a message. */
struct bpk_cli_entry_takers {
    bool (*key)(const struct bpk_cli_change *change, const char *argument,
                struct bpk_cli_entries *entries);
    bool (*scalar)(const struct bpk_cli_change *change, const char *argument,
                   struct bpk_cli_entries *entries); /* of a --scalar */
    /* After the maps are written; may be NULL. */
    bool (*finish)(struct bpk_cli_change *change, const struct bpk_cli_entries *entries);
};

/* The whole of a verb with the arguments FILE [KEY ...] [--scalar NAME ...]; its exit status. */
int bpk_cli_run_entries(const struct bpk_verb *verb, const struct bpk_cli_entry_takers *takers,
                        int argc, char **argv);

#endif
