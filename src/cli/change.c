#include "cli/change.h"

#include "cli/busy.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- numbers of files ------------------------------------------------------------------------ */

/* As a mount gives them: what the pack had when it was opened has one, for as long as this lives.
 */
static uint64_t number_of(enum bpk_folder folder, const char *name, const void *context) {
    const struct bpk_cli_change *change = context;
    const uint64_t first = (uint64_t)(folder + 1) << 32;
    struct bpk_str file = {name, strlen(name)};
    uint32_t index;
    if (folder == BPK_IN_ROOT)
        return strcmp(name, "metadata.json") == 0  ? first
               : strcmp(name, "scalars.json") == 0 ? first + 1
                                                   : 0;
    if (folder == BPK_IN_METADATA)
        return bpk_names_find(change->keys, file, &index) == 0 ? first + index : 0;
    if (folder != BPK_IN_TENSORS)
        return 0;
    bool is_sidecar = bpk_rules_sidecar_stem(name, &file);
    return bpk_names_find(change->pack.names, file, &index) == 0 ? first + 2 * index + is_sidecar
                                                                 : 0;
}

struct bpk_place bpk_cli_change_place(struct bpk_cli_change *change, enum bpk_folder folder,
                                      const char *name) {
    struct bpk_place place = {folder, name, 0};
    if (bpk_edits_lookup(change->edits, folder, name, &place.number) == BPK_FOUND_BASE)
        place.number = number_of(folder, name, change);
    return place;
}

/* ---- begin ----------------------------------------------------------------------------------- */

static bool open_edits(const char *path, struct bpk_cli_change *change) {
    const struct bpk_edits_options how = {.refuse = true,
                                          .number_of = number_of,
                                          .number_context = change,
                                          .is_cancelled = bpk_cli_interrupted};
    struct bpk_diag diag = {.sentence = "out of memory"};
    size_t found;
    int r = bpk_edits_open(path, change->pack.pack, &how, &change->edits, &found, &diag);
    if (r == -EBUSY)
        bpk_cli_tell_busy(path);
    else if (r == -EEXIST)
        bpk_cli_tell_edits(path);
    else if (r < 0)
        bpk_cli_error(path, "%s", diag.sentence);
    return r == 0;
}

bool bpk_cli_change_begin(const char *path, const struct bpk_open_options *options,
                          struct bpk_cli_change *ret_change) {
    *ret_change = (struct bpk_cli_change){0};
    if (bpk_cli_open(path, options, &ret_change->pack) < 0)
        return false;
    int r = bpk_names_new(ret_change->pack.pack, BPK_NAMES_METADATA, &ret_change->keys);
    if (r < 0)
        bpk_cli_error(path, "out of memory");
    if (r == 0 && open_edits(path, ret_change))
        return true;
    bpk_names_free(ret_change->keys);
    bpk_cli_close(&ret_change->pack);
    return false;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *show(const char *text, char out[300]) {
    char copy[300];
    (void)snprintf(copy, sizeof(copy), "%s", text);
    bpk_text_make_utf8(copy);
    return bpk_text_escape(copy, strlen(copy), out, 300);
}

bool bpk_cli_change_find(const struct bpk_cli_change *change, const char *argument,
                         char ret_file[BPK_FILE_NAME_BUF], uint32_t *ret_index) {
    char shown[300];
    if (bpk_cli_find(&change->pack, argument, ret_index) < 0) {
        bpk_cli_error(change->pack.path, "there is no tensor '%s'; 'bpk ls' lists them",
                      show(argument, shown));
        return false;
    }
    bpk_names_file(change->pack.names, *ret_index, ret_file);
    return true;
}

bool bpk_cli_change_new_name(const struct bpk_cli_change *change, const char *argument,
                             char ret_file[BPK_FILE_NAME_BUF]) {
    struct bpk_str text = {argument, strlen(argument)};
    char shown[300];
    const char *why = NULL;
    _cleanup_free_ char *name = malloc(text.len + 1);
    int len = name ? bpk_name_decode(text, name) : -ENOMEM;
    if (len == -ENOMEM)
        why = "out of memory";
    else if (text.len == 0)
        why = "the empty name is written as '%'";
    else if (len < 0)
        why = "a '%' in a name is written as '%25'";
    else if (!bpk_text_is_utf8((const uint8_t *)name, (size_t)len))
        why = "a name must be UTF-8";
    else if (bpk_name_encode((struct bpk_str){name, (size_t)len}, ret_file) == 0)
        why = "the name is too long for a file";
    else if (bpk_rules_is_scratch(ret_file) || bpk_rules_is_backup(ret_file))
        why = "editors' files and backups have such names, so that mounts do not take them for "
              "tensors";
    if (why)
        bpk_cli_error(change->pack.path, "no tensor can be named '%s': %s", show(argument, shown),
                      why);
    return !why;
}

bool bpk_cli_argument_fault(const char *path, const char *argument, const char *sentence) {
    char shown[300];
    const char *place = strstr(sentence, ", at line "); /* of a text that nobody has seen */
    bpk_cli_error(path, "'%s': %.*s", show(argument, shown),
                  place ? (int)(place - sentence) : (int)strlen(sentence), sentence);
    return false;
}

/* ---- edits ----------------------------------------------------------------------------------- */

bool bpk_cli_change_done(struct bpk_cli_change *change, const char *name, int r) {
    char shown[300];
    change->touched = true;
    /* The folder of the edits and the new pack are beside the old one. */
    if (r == -EACCES || r == -EPERM || r == -EROFS || r == -ENOSPC || r == -EDQUOT)
        bpk_cli_error(change->pack.path, "nothing can be written beside it: %s", strerror(-r));
    else if (r < 0)
        bpk_cli_error(change->pack.path, "cannot edit '%s': %s", show(name, shown), strerror(-r));
    return r >= 0;
}

bool bpk_cli_change_text(struct bpk_cli_change *change, enum bpk_folder folder, const char *name,
                         const struct bpk_outbuf *text) {
    struct bpk_place place = bpk_cli_change_place(change, folder, name);
    int r = text->failed ? -ENOMEM : 0;
    if (r == 0 && place.number == 0)
        r = bpk_edits_create(change->edits, folder, name, 0644, &place.number);
    else if (r == 0)
        r = bpk_edits_truncate(change->edits, &place, 0);
    if (r == 0)
        r = bpk_edits_write(change->edits, &place, 0, text->text, text->len);
    if (r == 0)
        r = bpk_edits_flush(change->edits, &place);
    return bpk_cli_change_done(change, name, r);
}

/* ---- end ------------------------------------------------------------------------------------- */

static bool ask(void *edits, uint64_t *ret_done, uint64_t *ret_total) {
    return bpk_edits_progress(edits, ret_done, ret_total);
}

bool bpk_cli_commit(struct bpk_edits *edits, const char *path, enum bpk_commit_mode mode,
                    struct bpk_commit_result *ret_result) {
    struct bpk_diag diag = {.sentence = ""};
    struct bpk_cli_progress progress = {.ask = ask, .context = edits, .what = "committing"};
    _cleanup_outbuf_ struct bpk_outbuf said = {0};
    const struct bpk_remarks remarks = {bpk_remarks_collect, &said};
    bpk_cli_progress_begin(&progress);
    int r = bpk_edits_commit(edits, mode, &remarks, ret_result, &diag);
    bpk_cli_progress_end(&progress);
    (void)bpk_cli_lines(path, &said);
    if (r < 0)
        bpk_cli_error(path, "%s", diag.sentence);
    return r == 0;
}

int bpk_cli_change_end(struct bpk_cli_change *change, bool good) {
    struct bpk_commit_result result;
    if (good && change->touched)
        good = bpk_cli_commit(change->edits, change->pack.path, BPK_COMMIT_ALL, &result);
    if (!good && change->touched)
        (void)bpk_edits_discard(change->edits, NULL, NULL);
    bpk_edits_close(change->edits);
    bpk_names_free(change->keys);
    bpk_cli_close(&change->pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}
