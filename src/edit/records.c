/* The journal's records: how the state is written down and read back. All locked.
 *
 * A record is a letter and its fields; numbers are 8 bytes little-endian as the machine has them
 * (the journal never leaves it), strings are a length and bytes. One operation's records go into
 * one frame of the store, so that it is there whole or not at all. Each says what is from now on;
 * reading them in order and keeping the last of each kind gives the state.
 */
#include "edit/state.h"

#include "pack/diag.h"
#include "pack/dtype_cbor.h"
#include "pack/util.h"

#include <errno.h>
#include <string.h>

enum {
    ENTRY = 'E',
    FILE_RECORD = 'F',
    CONTENT = 'C',
    BLOCKS = 'B',
    STEM = 'S',
    OVERRIDE = 'K',
    MAPS = 'M',
    SYNCED = 'Y',
    COMMITTED = 'X',
};

enum { BELOW_NOTHING, BELOW_TENSOR, BELOW_CONTENT };

/* ---- writing --------------------------------------------------------------------------------- */

static void put_u64(struct bpk_outbuf *out, uint64_t number) {
    bpk_out(out, (const char *)&number, sizeof(number));
}

static void put_str(struct bpk_outbuf *out, struct bpk_str text) {
    put_u64(out, text.len);
    bpk_out(out, text.bytes, text.len);
}

static void put_name(struct bpk_outbuf *out, const char *name) {
    put_u64(out, name != NULL);
    if (name)
        put_str(out, (struct bpk_str){name, strlen(name)});
}

static void put_kind(struct bpk_outbuf *out, char kind) {
    bpk_out(out, &kind, 1);
}

void bpk_record_entry(struct bpk_edits *edits, const struct bpk_entry *entry) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, ENTRY);
    put_u64(out, (uint64_t)entry->key[0]);
    put_name(out, entry->key + 1);
    put_u64(out, entry->file ? entry->file->number : 0);
}

void bpk_record_file(struct bpk_edits *edits, const struct bpk_file *file) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, FILE_RECORD);
    put_u64(out, file->number);
    put_u64(out, file->folder);
    put_name(out, file->name);
    put_u64(out, file->mode);
    put_u64(out, file->content ? file->content->id : 0);
    put_name(out, file->target);
    put_name(out, file->moved_from);
    put_u64(out, file->moved_from_folder);
    put_u64(out, file->unparsed);
    put_u64(out, file->verdict);
    put_name(out, file->reason);
}

void bpk_record_content(struct bpk_edits *edits, const struct bpk_content *content) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, CONTENT);
    put_u64(out, content->id);
    put_u64(out, content->size);
    put_u64(out, content->below_limit);
    if (content->pack) {
        put_u64(out, BELOW_TENSOR);
        put_str(out, bpk_pack_tensor_name(content->pack, content->index));
    } else if (content->below) {
        put_u64(out, BELOW_CONTENT);
        put_u64(out, content->below->id);
    } else {
        put_u64(out, BELOW_NOTHING);
    }
}

void bpk_record_blocks(struct bpk_edits *edits, const struct bpk_content *content, uint64_t offset,
                       uint64_t size) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, BLOCKS);
    put_u64(out, content->id);
    put_u64(out, offset);
    put_u64(out, size);
    put_u64(out, content->size);
}

static void put_desc(struct bpk_outbuf *out, const struct bpk_desc *desc) {
    put_u64(out, desc != NULL);
    if (!desc)
        return;
    put_str(out, (struct bpk_str){desc->dtype_cbor.text, desc->dtype_cbor.len});
    put_str(out, (struct bpk_str){desc->unknown_cbor.text, desc->unknown_cbor.len});
    put_u64(out, desc->unknown_count);
    put_u64(out, desc->means.rank);
    bpk_out(out, (const char *)desc->means.dims, desc->means.rank * sizeof(uint64_t));
    put_u64(out, desc->means.has_param_id);
    put_u64(out, desc->means.param_id);
}

void bpk_record_stem(struct bpk_edits *edits, const struct bpk_stem *stem) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, STEM);
    put_name(out, stem->name);
    put_u64(out, stem->remembers_param_id);
    put_desc(out, stem->now);
    put_desc(out, stem->remembered);
}

void bpk_record_override(struct bpk_edits *edits, const struct bpk_override *override) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, OVERRIDE);
    put_str(out, (struct bpk_str){override->key, override->key_len});
    put_u64(out, override->value != NULL);
    if (override->value)
        put_str(out, (struct bpk_str){override->value, override->value_len});
}

void bpk_record_maps(struct bpk_edits *edits) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, MAPS);
    put_u64(out, edits->map_replaced);
    put_u64(out, edits->has_scalars);
    put_u64(out, edits->scalars.count);
    for (size_t i = 0; i < edits->scalars.count; i++) {
        put_str(out, edits->scalars.scalars[i].name);
        put_u64(out, edits->scalars.scalars[i].kind);
        put_u64(out, edits->scalars.scalars[i].bits);
    }
}

void bpk_record_synced(struct bpk_edits *edits, const struct bpk_content *content) {
    put_kind(&edits->record, SYNCED);
    put_u64(&edits->record, content->id);
}

void bpk_record_committed(struct bpk_edits *edits, const struct bpk_committed *committed) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, COMMITTED);
    bpk_out(out, (const char *)&committed->base_id, sizeof(committed->base_id));
    put_u64(out, committed->frozen_at);
    put_u64(out, committed->leaves_maps_out);
    put_u64(out, committed->count);
    for (size_t i = 0; i < committed->count; i++) {
        put_u64(out, committed->contents[i].id);
        put_str(out, committed->contents[i].name);
    }
    put_u64(out, committed->left_out_count);
    for (size_t i = 0; i < committed->left_out_count; i++)
        put_name(out, committed->left_out[i]);
}

int bpk_record_begin(struct bpk_edits *edits, size_t room) {
    enum { ROOM_FOR_ONE = 64 << 10 };
    if (edits->read_only)
        return -EROFS;
    if (edits->broken)
        return -EIO;
    bpk_outbuf_clear(&edits->record);
    edits->clock = edits->frames + 1;
    int r = bpk_store_create(&edits->store, &edits->base_id);
    return r < 0 ? r : bpk_store_reserve(&edits->store, room + ROOM_FOR_ONE);
}

int bpk_record_finish(struct bpk_edits *edits, int result) {
    int r = 0;
    if (edits->record.failed)
        r = -ENOMEM;
    else if (edits->record.len > 0)
        r = bpk_store_append(&edits->store, &edits->record);
    if (r == 0 && edits->record.len > 0)
        edits->frames++;
    bpk_outbuf_clear(&edits->record);
    /* What is in memory is not on the disk: from here on nothing may build on it. */
    if (r < 0)
        edits->broken = true;
    return r < 0 ? r : result;
}

/* ---- everything ------------------------------------------------------------------------------ */

struct block_recorder {
    struct bpk_edits *edits;
    const struct bpk_content *content;
};

static int record_run(void *context, uint64_t offset, uint64_t size) {
    const struct block_recorder *recorder = context;
    bpk_record_blocks(recorder->edits, recorder->content, offset, size);
    return 0;
}

static void record_whole_content(struct bpk_edits *edits, const struct bpk_content *content) {
    if (content->below)
        record_whole_content(edits, content->below);
    bpk_record_content(edits, content);
    struct block_recorder recorder = {edits, content};
    (void)bpk_content_each_own(content, record_run, &recorder);
    if (!content->unsynced)
        bpk_record_synced(edits, content);
}

/* Puts the whole state into edits->record. */
int bpk_record_all(struct bpk_edits *edits) {
    bpk_outbuf_clear(&edits->record);
    struct bpk_file *file;
    struct bpk_file *next_file;
    HASH_ITER(by_number, edits->files, file, next_file) {
        if (!file->name || bpk_state_is_clean(edits, file))
            continue;
        if (file->content)
            record_whole_content(edits, file->content);
        bpk_record_file(edits, file);
    }
    struct bpk_entry *entry;
    struct bpk_entry *next_entry;
    HASH_ITER(hh, edits->entries, entry, next_entry) {
        if (!entry->clean)
            bpk_record_entry(edits, entry);
    }
    struct bpk_stem *stem;
    struct bpk_stem *next_stem;
    HASH_ITER(hh, edits->stems, stem, next_stem)
    bpk_record_stem(edits, stem);
    struct bpk_override *override;
    struct bpk_override *next_override;
    HASH_ITER(hh, edits->overrides, override, next_override)
    bpk_record_override(edits, override);
    bpk_record_maps(edits);
    return edits->record.failed ? -ENOMEM : 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct known_content {
    UT_hash_handle hh;
    uint64_t id;
    struct bpk_content *content;
    bool blocks_unsynced;
};

struct reader {
    struct bpk_edits *edits;
    bool same_boot;
    bool after_commit; /* the pack is not the journal's base, but what a commit made of it */
    struct bpk_committed *committed; /* of that commit, once it was read */
    const uint8_t *at;
    size_t left;
    bool bad;
    struct known_content *contents;
};

static uint64_t get_u64(struct reader *reader) {
    uint64_t number = 0;
    if (reader->left < sizeof(number)) {
        reader->bad = true;
        return 0;
    }
    memcpy(&number, reader->at, sizeof(number));
    reader->at += sizeof(number);
    reader->left -= sizeof(number);
    return number;
}

static struct bpk_str get_str(struct reader *reader) {
    uint64_t len = get_u64(reader);
    if (len > reader->left) {
        reader->bad = true;
        len = 0;
    }
    struct bpk_str text = {(const char *)reader->at, len};
    reader->at += len;
    reader->left -= len;
    return text;
}

/* A new copy, or NULL. */
static char *get_name(struct reader *reader) {
    if (!get_u64(reader))
        return NULL;
    struct bpk_str text = get_str(reader);
    char *name = strndup(text.bytes, text.len);
    reader->bad |= name == NULL;
    return name;
}

static struct known_content *find_content(struct reader *reader, uint64_t id) {
    struct known_content *known;
    HASH_FIND(hh, reader->contents, &id, sizeof(id), known);
    return known;
}

static void read_entry(struct reader *reader) {
    enum bpk_folder folder = (enum bpk_folder)get_u64(reader);
    _cleanup_free_ char *name = get_name(reader);
    uint64_t number = get_u64(reader);
    if (reader->bad || !name || (int)folder >= BPK_FOLDERS) {
        reader->bad = true;
        return;
    }
    struct bpk_file *file = number ? bpk_state_file(reader->edits, number) : NULL;
    if ((number && !file) || bpk_state_set_entry(reader->edits, folder, name, file) < 0)
        reader->bad = true;
}

static void read_file(struct reader *reader) {
    struct bpk_edits *edits = reader->edits;
    uint64_t number = get_u64(reader);
    struct bpk_file *file = bpk_state_file(edits, number);
    if (!file)
        file = bpk_state_add_file(edits, number, BPK_IN_ROOT, "");
    if (!file) {
        reader->bad = true;
        return;
    }
    file->folder = (enum bpk_folder)get_u64(reader);
    free(file->name);
    file->name = get_name(reader);
    file->mode = (mode_t)get_u64(reader);
    uint64_t content = get_u64(reader);
    free(file->target);
    file->target = get_name(reader);
    free(file->moved_from);
    file->moved_from = get_name(reader);
    file->moved_from_folder = (enum bpk_folder)get_u64(reader);
    edits->aside_count += file->moved_from != NULL;
    file->unparsed = get_u64(reader);
    file->verdict = (enum bpk_text_verdict)get_u64(reader);
    free(file->reason);
    file->reason = get_name(reader);
    struct known_content *known = content ? find_content(reader, content) : NULL;
    if (content && !known)
        reader->bad = true;
    bpk_content_unref(file->content, true);
    file->content = known ? bpk_content_ref(known->content) : NULL;
    if (number >= edits->next_number)
        edits->next_number = number + 1;
}

static bool set_below(struct reader *reader, struct bpk_content *content) {
    uint64_t kind = get_u64(reader);
    uint32_t index;
    if (kind == BELOW_TENSOR) {
        struct bpk_str name = get_str(reader);
        if (bpk_pack_find_tensor(reader->edits->base, name, &index) < 0)
            return reader->after_commit; /* the commit's own record says what it is now */
        bpk_pack_unref(content->pack);
        content->pack = bpk_pack_ref(reader->edits->base);
        content->index = index;
    } else if (kind == BELOW_CONTENT) {
        struct known_content *below = find_content(reader, get_u64(reader));
        if (!below)
            return false;
        if (!content->below)
            content->below = bpk_content_ref(below->content);
    }
    return true;
}

static void read_content(struct reader *reader) {
    struct bpk_edits *edits = reader->edits;
    uint64_t id = get_u64(reader);
    struct known_content *known = find_content(reader, id);
    if (!known) {
        known = calloc(1, sizeof(*known));
        if (known)
            known->content = bpk_content_new(&edits->store, id);
        if (!known || !known->content) {
            free(known);
            reader->bad = true;
            return;
        }
        known->id = id;
        HASH_ADD(hh, reader->contents, id, sizeof(known->id), known);
    }
    bpk_content_set_size(known->content, get_u64(reader));
    known->content->below_limit = get_u64(reader);
    if (!set_below(reader, known->content))
        reader->bad = true;
    if (id >= edits->next_content)
        edits->next_content = id + 1;
}

static void read_blocks(struct reader *reader) {
    struct known_content *known = find_content(reader, get_u64(reader));
    uint64_t offset = get_u64(reader);
    uint64_t size = get_u64(reader);
    uint64_t total = get_u64(reader);
    if (!known || reader->bad || size > BPK_MAX_TENSOR || offset > BPK_MAX_TENSOR) {
        reader->bad = true;
        return;
    }
    if (bpk_content_map(known->content, offset, size) < 0)
        reader->bad = true;
    known->content->size = total;
    known->blocks_unsynced = true;
}

static struct bpk_desc *get_desc(struct reader *reader) {
    struct bpk_descriptor means = {0};
    uint32_t head;
    if (!get_u64(reader))
        return NULL;
    struct bpk_str dtype = get_str(reader);
    struct bpk_str unknown = get_str(reader);
    uint64_t unknown_count = get_u64(reader);
    uint64_t rank = get_u64(reader);
    struct bpk_cbor cbor = {.data = (uint8_t *)(uintptr_t)dtype.bytes, .size = dtype.len};
    if (reader->bad || rank > reader->left / sizeof(uint64_t) ||
        bpk_dtype_parse(&cbor, BPK_CBOR_MAX_DEPTH - 3, &means.dtype, &head) < 0) {
        reader->bad = true;
        return NULL;
    }
    means.rank = (uint32_t)rank;
    means.dims = calloc(rank + 1, sizeof(uint64_t));
    for (uint64_t i = 0; i < rank && means.dims; i++)
        means.dims[i] = get_u64(reader);
    means.has_param_id = get_u64(reader);
    means.param_id = get_u64(reader);
    struct bpk_desc *desc = means.dims ? bpk_desc_from(&means, NULL) : NULL;
    bpk_descriptor_clear(&means);
    if (!desc) {
        reader->bad = true;
        return NULL;
    }
    bpk_outbuf_clear(&desc->dtype_cbor);
    bpk_out(&desc->dtype_cbor, dtype.bytes, dtype.len);
    bpk_out(&desc->unknown_cbor, unknown.bytes, unknown.len);
    desc->unknown_count = unknown_count;
    return desc;
}

static void read_stem(struct reader *reader) {
    struct bpk_stem *stem;
    _cleanup_free_ char *name = get_name(reader);
    if (!name || bpk_state_make_stem(reader->edits, name, &stem) < 0) {
        reader->bad = true;
        return;
    }
    stem->remembers_param_id = get_u64(reader);
    bpk_desc_unref(stem->now);
    stem->now = get_desc(reader);
    bpk_desc_unref(stem->remembered);
    stem->remembered = get_desc(reader);
}

static void read_override(struct reader *reader) {
    struct bpk_str key = get_str(reader);
    bool has_value = get_u64(reader);
    struct bpk_str value = {0};
    if (has_value)
        value = get_str(reader);
    if (reader->bad || bpk_state_override(reader->edits, key, has_value ? &value : NULL) < 0)
        reader->bad = true;
}

/* The map's storage holds the scalars themselves, then their names. */
static void read_maps(struct reader *reader) {
    struct bpk_edits *edits = reader->edits;
    edits->map_replaced = get_u64(reader);
    edits->has_scalars = get_u64(reader);
    uint64_t count = get_u64(reader);
    bpk_scalar_map_clear(&edits->scalars);
    if (reader->bad || count > reader->left)
        reader->bad = true;
    if (reader->bad || count == 0)
        return;
    struct bpk_scalar_map map = {.storage =
                                     malloc(count * sizeof(struct bpk_scalar) + reader->left)};
    if (!map.storage) {
        reader->bad = true;
        return;
    }
    map.scalars = (struct bpk_scalar *)(void *)map.storage;
    char *end = map.storage + count * sizeof(struct bpk_scalar);
    for (uint64_t i = 0; i < count && !reader->bad; i++) {
        struct bpk_str name = get_str(reader);
        memcpy(end, name.bytes, name.len);
        map.scalars[i].name = (struct bpk_str){end, name.len};
        map.scalars[i].kind = (enum bpk_scalar_kind)get_u64(reader);
        map.scalars[i].bits = get_u64(reader);
        end += name.len;
        map.count++;
    }
    edits->scalars = map;
}

static void read_synced(struct reader *reader) {
    struct known_content *known = find_content(reader, get_u64(reader));
    if (known)
        known->blocks_unsynced = false;
}

static void read_committed(struct reader *reader) {
    struct bpk_committed committed = {0};
    if (reader->left < sizeof(committed.base_id)) {
        reader->bad = true;
        return;
    }
    memcpy(&committed.base_id, reader->at, sizeof(committed.base_id));
    reader->at += sizeof(committed.base_id);
    reader->left -= sizeof(committed.base_id);
    committed.frozen_at = get_u64(reader);
    committed.leaves_maps_out = get_u64(reader);
    committed.count = get_u64(reader);
    if (committed.count > reader->left)
        reader->bad = true;
    else
        committed.contents = calloc(committed.count + 1, sizeof(*committed.contents));
    for (size_t i = 0; i < committed.count && !reader->bad && committed.contents; i++) {
        committed.contents[i].id = get_u64(reader);
        struct bpk_str name = get_str(reader);
        struct known_content *known = find_content(reader, committed.contents[i].id);
        committed.contents[i].content = known ? bpk_content_ref(known->content) : NULL;
        committed.contents[i].owned = strndup(name.bytes, name.len);
        committed.contents[i].name = (struct bpk_str){committed.contents[i].owned, name.len};
    }
    committed.left_out_count = get_u64(reader);
    if (reader->bad || committed.left_out_count > reader->left)
        reader->bad = true;
    else
        committed.left_out = calloc(committed.left_out_count + 1, sizeof(char *));
    for (size_t i = 0; i < committed.left_out_count && !reader->bad && committed.left_out; i++)
        committed.left_out[i] = get_name(reader);
    bool wanted = reader->after_commit && !reader->bad &&
                  bpk_base_id_equal(&committed.base_id, &reader->edits->base_id);
    if (wanted) {
        bpk_committed_clear(reader->committed);
        *reader->committed = committed;
    } else {
        bpk_committed_clear(&committed);
    }
}

static int take_record(void *context, const uint8_t *record, size_t size) {
    struct reader *reader = context;
    reader->at = record;
    reader->left = size;
    reader->edits->clock = ++reader->edits->frames;
    while (reader->left > 0 && !reader->bad) {
        char kind = (char)*reader->at++;
        reader->left--;
        switch (kind) {
        case ENTRY:
            read_entry(reader);
            break;
        case FILE_RECORD:
            read_file(reader);
            break;
        case CONTENT:
            read_content(reader);
            break;
        case BLOCKS:
            read_blocks(reader);
            break;
        case STEM:
            read_stem(reader);
            break;
        case OVERRIDE:
            read_override(reader);
            break;
        case MAPS:
            read_maps(reader);
            break;
        case SYNCED:
            read_synced(reader);
            break;
        case COMMITTED:
            read_committed(reader);
            break;
        default:
            reader->bad = true;
            break;
        }
    }
    bpk_outbuf_clear(&reader->edits->record); /* setting state records it: not now */
    return reader->bad ? -EBADMSG : 0;
}

/* After the last record: data files as long as their contents say, and what the loss of power took
 * is not to be trusted. */
static int settle(struct reader *reader) {
    struct known_content *known;
    struct known_content *next;
    int r = 0;
    HASH_ITER(hh, reader->contents, known, next) {
        struct bpk_content *content = known->content;
        if (known->blocks_unsynced && !reader->same_boot)
            content->suspect = true;
        content->unsynced = known->blocks_unsynced;
        if (r == 0 && content->references > 1)
            r = bpk_content_apply_size(content);
        bpk_content_close(content);
        HASH_DEL(reader->contents, known);
        bpk_content_unref(content, false);
        free(known);
    }
    return r;
}

/* Files without a name were held open by a process that is gone. */
static void drop_nameless(struct bpk_edits *edits) {
    struct bpk_file *file;
    struct bpk_file *next;
    HASH_ITER(by_number, edits->files, file, next) {
        if (!file->name)
            bpk_state_drop_file(edits, file);
    }
}

/* Looks for the record of the commit that made the pack, in a journal that another base began. */
static int find_commit(void *context, const uint8_t *record, size_t size) {
    struct reader *reader = context;
    struct bpk_base_id id;
    if (size < 1 + sizeof(id) || record[0] != COMMITTED)
        return 0;
    memcpy(&id, record + 1, sizeof(id));
    if (bpk_base_id_equal(&id, &reader->edits->base_id))
        reader->after_commit = true;
    return 0;
}

int bpk_record_replay(struct bpk_edits *edits, bool force, struct bpk_committed *ret_committed,
                      struct bpk_diag *diag) {
    struct reader reader = {.edits = edits, .committed = ret_committed};
    struct bpk_base_id base;
    /* The first look is for what the records are judged by. */
    int r = bpk_store_replay(&edits->store, &base, &reader.same_boot, find_commit, &reader);
    bool matches = r == 0 && bpk_base_id_equal(&base, &edits->base_id);
    if (matches)
        reader.after_commit = false;
    if (r == 0 && !matches && !reader.after_commit && !force)
        return bpk_diag_set(diag, -ESTALE, BPK_NO_OFFSET,
                            "there are edits of another version of this pack in '%s'; "
                            "'-o edits=discard' drops them",
                            edits->store.name);
    if (r == 0)
        r = bpk_store_replay(&edits->store, &base, &reader.same_boot, take_record, &reader);
    drop_nameless(edits);
    int settled = settle(&reader);
    if (r == 0)
        r = settled;
    if (r < 0)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "the journal in '%s' cannot be read back: %s",
                            edits->store.name, strerror(-r));
    return 0;
}
