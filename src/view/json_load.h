/* What the readers of JSON texts share: the tree of a text, integers, and faults with their place.
 * For json_read, sidecar_read and maps_read alone: nobody else sees jansson.
 */
#ifndef BPK_VIEW_JSON_LOAD_H
#define BPK_VIEW_JSON_LOAD_H

#include "view/json_read.h"

#include <jansson.h>

/* The fault concerns the whole text. */
#define BPK_JSON_NO_ENTRY SIZE_MAX

/* A text that is being read. */
struct bpk_json_source {
    struct bpk_str text;
    struct bpk_diag *diag; /* may be NULL */
    const char *big_hint;  /* more advice on integers that are too big for a bare number, or NULL */
    json_t *root;          /* an object */
    size_t entry;          /* which of its entries is being read: what faults give the place of */
};

/* Parses source->text, which must be an object, into source->root. */
enum bpk_text_verdict bpk_json_open(struct bpk_json_source *source);
void bpk_json_close(struct bpk_json_source *source);

/* Sets the sentence, with line and column of the entry, and returns BPK_TEXT_BAD. */
enum bpk_text_verdict bpk_json_fault(const struct bpk_json_source *source, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum bpk_text_verdict bpk_json_no_memory(const struct bpk_json_source *source);

/* A place in a text of which entries are asked for in order; all zero at first. */
struct bpk_json_cursor {
    size_t at;
    size_t entry;
    size_t depth;
    bool in_string;
    bool is_escaped; /* the next byte, in a string */
};
/* Whether there is a '-' in an entry, outside of strings. For -0, whose sign jansson drops. */
bool bpk_json_has_minus(const struct bpk_json_source *source, struct bpk_json_cursor *cursor);

struct bpk_str bpk_json_text(const json_t *string);

/* Integers, as numbers or as strings of digits. `what` names them in sentences. */
enum bpk_text_verdict bpk_json_take_u64(const struct bpk_json_source *source, const json_t *value,
                                        const char *what, uint64_t max, uint64_t *ret_number);
enum bpk_text_verdict bpk_json_take_i64(const struct bpk_json_source *source, const json_t *value,
                                        const char *what, int64_t *ret_number);

/* The key of an object's only entry; NULL if `value` is something else. */
const char *bpk_json_only_key(json_t *value, json_t **ret_inner);

/* A key or name as sentences show it: without quotes, cut where it is long. */
enum { BPK_JSON_SHOWN = 80 };
const char *bpk_json_show(struct bpk_str name, char buffer[BPK_JSON_SHOWN]);

#endif
