/* The texts of a mount: what they say, and what a user's text changes. All locked. */
#include "edit/state.h"

#include "pack/dtype.h"
#include "pack/text.h"
#include "pack/util.h"
#include "view/index.h"
#include "view/json.h"
#include "view/maps.h"
#include "view/sidecar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char metadata_json[] = "metadata.json";
static const char scalars_json[] = "scalars.json";

bool bpk_state_is_text(const struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    struct bpk_str stem;
    if (folder == BPK_IN_NPY)
        return false;
    if (folder == BPK_IN_ROOT)
        return strcmp(name, metadata_json) == 0 || strcmp(name, scalars_json) == 0;
    if (folder == BPK_IN_TENSORS && !bpk_rules_sidecar_stem(name, &stem))
        return false;
    if (bpk_state_base_has(edits, folder, name))
        return true;
    if (bpk_rules_is_scratch(name) || bpk_rules_is_backup(name))
        return false;
    char decoded[256];
    size_t len;
    return folder != BPK_IN_METADATA || bpk_rules_is_spelled_right(name, decoded, &len);
}

/* ---- metadata -------------------------------------------------------------------------------- */

int bpk_state_override(struct bpk_edits *edits, struct bpk_str key, const struct bpk_str *value) {
    struct bpk_override *override;
    HASH_FIND(hh, edits->overrides, key.bytes, key.len, override);
    if (!override) {
        override = calloc(1, sizeof(*override) + key.len + 1);
        if (!override)
            return -ENOMEM;
        memcpy(override->key, key.bytes, key.len);
        override->key_len = key.len;
        HASH_ADD(hh, edits->overrides, key, key.len, override);
        if (!override->hh.tbl) {
            free(override);
            return -ENOMEM;
        }
    }
    free(override->value);
    override->value = NULL;
    override->value_len = 0;
    override->older = false;
    if (value) {
        override->value = malloc(value->len + 1);
        if (!override->value)
            return -ENOMEM;
        memcpy(override->value, value->bytes, value->len);
        override->value_len = value->len;
    }
    edits->maps_changed = edits->clock;
    (void)clock_gettime(CLOCK_REALTIME, &edits->maps_mtime);
    bpk_record_override(edits, override);
    return 0;
}

void bpk_state_age_overrides(struct bpk_edits *edits) {
    struct bpk_override *override;
    struct bpk_override *next;
    HASH_ITER(hh, edits->overrides, override, next) {
        override->older = true;
        bpk_record_override(edits, override);
    }
}

bool bpk_state_is_younger(const struct bpk_edits *edits, struct bpk_str key) {
    const struct bpk_override *override;
    HASH_FIND(hh, edits->overrides, key.bytes, key.len, override);
    return override && override->value && !override->older;
}

static bool has_nul(struct bpk_str text) {
    return memchr(text.bytes, '\0', text.len) != NULL;
}

static int compare_entries(const void *a, const void *b) {
    const struct bpk_plan_entry *x = a;
    const struct bpk_plan_entry *y = b;
    size_t common = x->key.len < y->key.len ? x->key.len : y->key.len;
    int order = common > 0 ? memcmp(x->key.bytes, y->key.bytes, common) : 0;
    return order != 0 ? order : (x->key.len > y->key.len) - (x->key.len < y->key.len);
}

/* The map as it is now, sorted by key. The strings are the base's and the overrides' own. */
int bpk_state_effective_metadata(struct bpk_edits *edits, const struct bpk_committed *committed,
                                 struct bpk_plan_entry **ret_entries, size_t *ret_count) {
    struct bpk_pack_info info;
    bpk_pack_get_info(edits->base, &info);
    size_t room = info.metadata_entries + HASH_COUNT(edits->overrides) + 1;
    struct bpk_plan_entry *entries = calloc(room, sizeof(*entries));
    size_t count = 0;
    if (!entries)
        return -ENOMEM;
    struct bpk_override *override;
    struct bpk_override *next;
    for (uint32_t i = 0; i < info.metadata_entries; i++) {
        struct bpk_plan_entry *entry = &entries[count];
        bpk_pack_metadata(edits->base, i, &entry->key, &entry->value);
        HASH_FIND(hh, edits->overrides, entry->key.bytes, entry->key.len, override);
        if ((!override && (!edits->map_replaced || has_nul(entry->key))) ||
            bpk_state_key_left_out(edits, committed, entry->key))
            count++;
    }
    HASH_ITER(hh, edits->overrides, override, next) {
        struct bpk_str key = {override->key, override->key_len};
        if (override->value && !bpk_state_key_left_out(edits, committed, key))
            entries[count++] = (struct bpk_plan_entry){
                .key = key,
                .value = {override->value, override->value_len},
            };
    }
    qsort(entries, count, sizeof(*entries), compare_entries);
    *ret_entries = entries;
    *ret_count = count;
    return 0;
}

static int compose_metadata(struct bpk_edits *edits, struct bpk_outbuf *out) {
    struct bpk_plan_entry *entries;
    size_t count;
    int r = bpk_state_effective_metadata(edits, NULL, &entries, &count);
    if (r < 0)
        return r;
    struct bpk_map_writer writer = bpk_map_begin(out, 0);
    for (size_t i = 0; i < count; i++) {
        if (has_nul(entries[i].key))
            continue;
        bpk_map_key(&writer, entries[i].key);
        bpk_json_string(out, entries[i].value);
    }
    bpk_map_end(&writer);
    bpk_out_str(out, "\n");
    free(entries);
    return 0;
}

static int compose_scalars(struct bpk_edits *edits, struct bpk_outbuf *out) {
    if (!edits->has_scalars) {
        bpk_scalars_file(out, edits->base);
        return 0;
    }
    struct bpk_map_writer writer = bpk_map_begin(out, 0);
    for (size_t i = 0; i < edits->scalars.count; i++) {
        bpk_map_key(&writer, edits->scalars.scalars[i].name);
        bpk_scalar_value(out, &edits->scalars.scalars[i]);
    }
    bpk_map_end(&writer);
    bpk_out_str(out, "\n");
    return 0;
}

/* The decoded key of a file in metadata/. */
static bool key_of(struct bpk_edits *edits, const char *name, char buffer[256],
                   struct bpk_str *ret_key) {
    uint32_t index;
    size_t len;
    struct bpk_str value;
    if (bpk_names_find(edits->key_names, (struct bpk_str){name, strlen(name)}, &index) == 0) {
        bpk_pack_metadata(edits->base, index, ret_key, &value);
        return true;
    }
    if (!bpk_rules_is_spelled_right(name, buffer, &len))
        return false;
    *ret_key = (struct bpk_str){buffer, len};
    return true;
}

static int compose_key(struct bpk_edits *edits, const char *name, struct bpk_outbuf *out) {
    char buffer[256];
    struct bpk_str key;
    struct bpk_str value = {0};
    struct bpk_override *override;
    uint32_t index;
    if (!key_of(edits, name, buffer, &key))
        return -ENOENT;
    HASH_FIND(hh, edits->overrides, key.bytes, key.len, override);
    if (override)
        value = (struct bpk_str){override->value, override->value_len};
    else if (bpk_pack_find_metadata(edits->base, key, &index) == 0)
        bpk_pack_metadata(edits->base, index, &key, &value);
    else
        return -ENOENT;
    bpk_out(out, value.bytes, value.len);
    bpk_out_str(out, "\n");
    return 0;
}

/* ---- sidecars -------------------------------------------------------------------------------- */

/* Bytes of the tensor named `stem` as they are now; false if there are none. */
static bool size_of(struct bpk_edits *edits, const char *stem, uint64_t *ret_size, bool *ret_base) {
    const struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_TENSORS, stem);
    uint32_t index;
    *ret_base = false;
    if (entry && !entry->file)
        return false;
    if (entry && entry->file->content) {
        *ret_size = entry->file->content->size;
        return true;
    }
    if (!bpk_state_find_base(edits, stem, &index))
        return false;
    struct bpk_tensor tensor;
    bpk_pack_tensor(edits->base, index, &tensor);
    *ret_size = tensor.end - tensor.start;
    *ret_base = true;
    return true;
}

static int compose_sidecar(struct bpk_edits *edits, const char *file, struct bpk_outbuf *out) {
    char stem[BPK_FILE_NAME_BUF];
    char name[BPK_FILE_NAME_BUF];
    char problem[400];
    struct bpk_str part;
    uint32_t index;
    if (!bpk_rules_sidecar_stem(file, &part) || part.len >= sizeof(stem))
        return -ENOENT;
    memcpy(stem, part.bytes, part.len);
    stem[part.len] = '\0';
    const struct bpk_stem *record = bpk_state_stem(edits, stem);
    const struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_TENSORS, stem);
    bool in_base = bpk_state_find_base(edits, stem, &index);
    if (!record && !entry && in_base) {
        bpk_sidecar_file(out, edits->base, index);
        return 0;
    }
    struct bpk_sidecar sidecar = {0};
    bool bytes_of_base;
    bool has_bytes = size_of(edits, stem, &sidecar.size, &bytes_of_base);
    struct bpk_desc *desc;
    int r = bpk_state_desc(edits, stem, &desc);
    if (r < 0)
        return r;
    if (!desc && record)
        desc = bpk_desc_ref(record->remembered);
    if (!desc)
        return -ENOENT;
    if (!bpk_state_tensor_name(edits, stem, name, &sidecar.name))
        sidecar.name = (struct bpk_str){0};
    sidecar.dtype = desc->means.dtype;
    sidecar.shape = bpk_desc_shape(desc);
    sidecar.has_param_id = desc->means.has_param_id;
    sidecar.param_id = desc->means.param_id;
    if (in_base && has_bytes) {
        struct bpk_pack_info info;
        struct bpk_tensor tensor;
        bpk_pack_get_info(edits->base, &info);
        bpk_pack_tensor(edits->base, index, &tensor);
        sidecar.has_offsets = true;
        sidecar.start = tensor.start - info.data_start;
        sidecar.end = tensor.end - info.data_start;
    }
    if (!has_bytes)
        sidecar.problem = "no tensor";
    else if (bpk_judge_length(edits, stem, desc, sidecar.size, problem, sizeof(problem)))
        sidecar.problem = problem;
    bpk_sidecar_object(out, &sidecar, 0);
    bpk_out_str(out, "\n");
    bpk_desc_unref(desc);
    return 0;
}

int bpk_state_compose(struct bpk_edits *edits, enum bpk_folder folder, const char *name,
                      struct bpk_outbuf *out) {
    int r;
    if (folder == BPK_IN_ROOT)
        r = strcmp(name, metadata_json) == 0 ? compose_metadata(edits, out)
                                             : compose_scalars(edits, out);
    else if (folder == BPK_IN_METADATA)
        r = compose_key(edits, name, out);
    else
        r = compose_sidecar(edits, name, out);
    return r == 0 && out->failed ? -ENOMEM : r;
}

/* ---- a user's text --------------------------------------------------------------------------- */

/* Gives a text file bytes of its own: what it says now, or nothing. */
int bpk_state_own_text(struct bpk_edits *edits, struct bpk_file *file, bool empty) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    bool mapped;
    if (file->content)
        return 0;
    int r = empty ? 0 : bpk_state_compose(edits, file->folder, file->name, &text);
    if (r < 0)
        return r;
    struct bpk_content *content = bpk_content_new(&edits->store, edits->next_content++);
    if (!content)
        return -ENOMEM;
    r = bpk_content_write(content, 0, text.text, text.len, &mapped);
    if (r < 0) {
        bpk_content_unref(content, false);
        return r;
    }
    file->content = content;
    bpk_record_content(edits, content);
    bpk_record_blocks(edits, content, 0, text.len);
    bpk_record_file(edits, file);
    return 0;
}

/* The canonical text again, after a change through another name; a text that waits to be parsed, or
 * to be mended, is left alone: it may be somebody's only copy. */
void bpk_state_reset_text(struct bpk_edits *edits, enum bpk_folder folder, const char *name) {
    const struct bpk_entry *entry = bpk_state_entry(edits, folder, name);
    struct bpk_file *file = entry ? entry->file : NULL;
    bpk_state_stale_name(edits, folder, name);
    if (!file || !file->content || file->unparsed || file->verdict != BPK_TEXT_GOOD ||
        file->write_opens > 0)
        return;
    bpk_content_unref(file->content, false);
    file->content = NULL;
    file->verdict = BPK_TEXT_GOOD;
    bpk_record_file(edits, file);
}

static int take_sidecar(struct bpk_edits *edits, const char *name, struct bpk_str text,
                        bool only_look, enum bpk_text_verdict *ret_verdict, struct bpk_diag *diag) {
    char stem[BPK_FILE_NAME_BUF];
    struct bpk_str part;
    struct bpk_descriptor means;
    struct bpk_stem *record;
    *ret_verdict = bpk_sidecar_parse(text, &means, diag);
    if (*ret_verdict != BPK_TEXT_GOOD)
        return 0;
    bool too_long = !bpk_rules_sidecar_stem(name, &part) || part.len >= sizeof(stem);
    if (too_long || only_look) {
        bpk_descriptor_clear(&means);
        return too_long ? -ENAMETOOLONG : 0;
    }
    memcpy(stem, part.bytes, part.len);
    stem[part.len] = '\0';
    int r =
        bpk_record_room(edits, bpk_state_stem_room(edits, stem) + means.rank * sizeof(uint64_t));
    if (r == 0)
        r = bpk_state_make_stem(edits, stem, &record);
    struct bpk_desc *desc = NULL;
    if (r == 0)
        desc = bpk_desc_from(&means, record->now ? record->now : record->remembered);
    bpk_descriptor_clear(&means);
    if (!desc)
        return r < 0 ? r : -ENOMEM;
    bpk_desc_unref(record->now);
    record->now = desc;
    bpk_record_stem(edits, record);
    return 0;
}

/* What the records of a new map come to: each key may get a file, and each that is there lose it.
 */
static size_t map_room(const struct bpk_edits *edits, const struct bpk_string_map *map,
                       const struct bpk_plan_entry *before, size_t count) {
    enum { RECORDS = 256, NAMES = 7 }; /* without what differs; the key, and encoded in two names */
    const struct bpk_override *override;
    const struct bpk_override *next;
    size_t room = 0;
    for (size_t i = 0; i < map->count; i++)
        room += RECORDS + NAMES * map->pairs[i].key.len + map->pairs[i].value.len;
    for (size_t i = 0; i < count; i++)
        room += RECORDS + NAMES * before[i].key.len;
    HASH_ITER(hh, edits->overrides, override, next)
    room += RECORDS + override->key_len;
    return room;
}

static size_t scalars_room(const struct bpk_scalar_map *scalars) {
    size_t room = 0;
    for (size_t i = 0; i < scalars->count; i++)
        room += scalars->scalars[i].name.len + 3 * sizeof(uint64_t);
    return room;
}

/* A whole metadata.json: its keys, and no others, are there from now on. */
static int take_metadata(struct bpk_edits *edits, struct bpk_str text, bool only_look,
                         enum bpk_text_verdict *ret_verdict, struct bpk_diag *diag) {
    struct bpk_string_map map;
    *ret_verdict = bpk_metadata_parse(text, &map, diag);
    if (*ret_verdict != BPK_TEXT_GOOD)
        return 0;
    struct bpk_plan_entry *before = NULL;
    size_t count = 0;
    int r = only_look ? 0 : bpk_state_effective_metadata(edits, NULL, &before, &count);
    if (r == 0 && !only_look)
        r = bpk_record_room(edits,
                            map_room(edits, &map, before, count) + scalars_room(&edits->scalars));
    if (r < 0 || only_look) {
        free(before);
        bpk_string_map_clear(&map);
        return r;
    }
    edits->map_replaced = true;
    struct bpk_override *override;
    struct bpk_override *next;
    HASH_ITER(hh, edits->overrides, override, next) {
        if (!has_nul((struct bpk_str){override->key, override->key_len}) && r == 0)
            r = bpk_state_override(edits, (struct bpk_str){override->key, override->key_len}, NULL);
    }
    for (size_t i = 0; i < map.count && r == 0; i++)
        r = bpk_state_override(edits, map.pairs[i].key, &map.pairs[i].value);
    bpk_record_maps(edits);
    if (r == 0)
        r = bpk_state_show_keys(edits, before, count);
    edits->maps_changed = edits->clock;
    free(before);
    bpk_string_map_clear(&map);
    return r;
}

static int take_scalars(struct bpk_edits *edits, struct bpk_str text, bool only_look,
                        enum bpk_text_verdict *ret_verdict, struct bpk_diag *diag) {
    struct bpk_scalar_map map;
    *ret_verdict = bpk_scalars_parse(text, &map, diag);
    if (*ret_verdict != BPK_TEXT_GOOD)
        return 0;
    int r = only_look ? 0 : bpk_record_room(edits, scalars_room(&map));
    if (r < 0 || only_look) {
        bpk_scalar_map_clear(&map);
        return r;
    }
    bpk_scalar_map_clear(&edits->scalars);
    edits->scalars = map;
    edits->has_scalars = true;
    edits->maps_changed = edits->clock;
    bpk_record_maps(edits);
    return 0;
}

/* One newline at the end is the file's, not the value's. */
static int take_key(struct bpk_edits *edits, const char *name, struct bpk_str text, bool only_look,
                    enum bpk_text_verdict *ret_verdict, struct bpk_diag *diag) {
    char buffer[256];
    struct bpk_str key;
    if (text.len > 0 && text.bytes[text.len - 1] == '\n')
        text.len--;
    if (!bpk_text_is_utf8((const uint8_t *)text.bytes, text.len)) {
        *ret_verdict = BPK_TEXT_BAD;
        (void)snprintf(diag->sentence, sizeof(diag->sentence), "the value is not UTF-8");
        return 0;
    }
    *ret_verdict = BPK_TEXT_GOOD;
    if (!key_of(edits, name, buffer, &key))
        return -EINVAL;
    if (only_look)
        return 0;
    int r = bpk_record_room(edits, key.len + text.len);
    if (r == 0)
        r = bpk_state_override(edits, key, &text);
    if (r == 0)
        bpk_state_reset_text(edits, BPK_IN_ROOT, metadata_json);
    return r;
}

static int read_all(struct bpk_content *content, struct bpk_outbuf *out) {
    enum { TEXT_MAX = 256 << 20, STEP = 65536 };
    uint64_t size = content->size;
    if (size > TEXT_MAX)
        return -EFBIG;
    _cleanup_free_ char *bytes = malloc(STEP);
    size_t n = STEP;
    int r = bytes ? 0 : -ENOMEM;
    for (uint64_t at = 0; at < size && r == 0; at += n) {
        r = bpk_content_read(content, at, bytes, STEP, &n);
        if (r == 0)
            bpk_out(out, bytes, n);
    }
    return r == 0 && out->failed ? -ENOMEM : r;
}

/* What a text would say as that of `name` in `folder`; `only_look`: and nothing more, else it is in
 * force. */
static int take(struct bpk_edits *edits, const struct bpk_outbuf *text, enum bpk_folder folder,
                const char *name, bool only_look, enum bpk_text_verdict *ret_verdict,
                struct bpk_diag *diag) {
    struct bpk_str all = {text->text ? text->text : "", text->len};
    int r;
    if (folder == BPK_IN_TENSORS)
        r = take_sidecar(edits, name, all, only_look, ret_verdict, diag);
    else if (folder == BPK_IN_METADATA)
        r = take_key(edits, name, all, only_look, ret_verdict, diag);
    else if (strcmp(name, metadata_json) == 0)
        r = take_metadata(edits, all, only_look, ret_verdict, diag);
    else
        r = take_scalars(edits, all, only_look, ret_verdict, diag);
    return r == 0 && *ret_verdict == BPK_TEXT_NO_MEMORY ? -ENOMEM : r;
}

/* Parses the file's own text as that of `name` in `folder`, and puts what it says in force. An
 * early end is a fault only where nothing more can come (`ends_here`). */
int bpk_state_parse(struct bpk_edits *edits, struct bpk_file *file, enum bpk_folder folder,
                    const char *name, bool ends_here) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    struct bpk_diag diag = {.sentence = ""};
    enum bpk_text_verdict verdict = BPK_TEXT_GOOD;
    int r = read_all(file->content, &text);
    if (r == 0)
        r = take(edits, &text, folder, name, false, &verdict, &diag);
    if (r < 0)
        return r;
    file->unparsed = false;
    file->verdict = verdict;
    free(file->reason);
    file->reason = verdict == BPK_TEXT_GOOD ? NULL : strdup(diag.sentence);
    file->changed = edits->clock;
    bpk_record_file(edits, file);
    if (verdict == BPK_TEXT_BAD || (verdict == BPK_TEXT_EARLY_END && ends_here))
        return -EBADMSG;
    return 0;
}

static int read_place(struct bpk_edits *edits, const struct bpk_place *place,
                      struct bpk_outbuf *out) {
    struct bpk_file *file = bpk_state_file(edits, place->number);
    enum bpk_folder folder;
    const char *name;
    uint32_t index;
    if (file && file->content)
        return read_all(file->content, out);
    int r = bpk_state_find_place(edits, place, &folder, &name);
    if (r < 0)
        return r;
    if (bpk_state_is_text(edits, folder, name))
        return bpk_state_compose(edits, folder, name, out);
    if (!bpk_state_find_base(edits, name, &index))
        return -ESTALE;
    struct bpk_content *bytes = bpk_content_over_tensor(&edits->store, 0, edits->base, index);
    r = bytes ? read_all(bytes, out) : -ENOMEM;
    bpk_content_unref(bytes, false);
    return r;
}

int bpk_state_check_text(struct bpk_edits *edits, const struct bpk_place *place,
                         enum bpk_folder folder, const char *name) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    struct bpk_diag diag = {.sentence = ""};
    enum bpk_text_verdict verdict = BPK_TEXT_GOOD;
    int r = read_place(edits, place, &text);
    if (r == 0)
        r = take(edits, &text, folder, name, true, &verdict, &diag);
    return r == 0 && verdict != BPK_TEXT_GOOD ? -EBADMSG : r;
}
