/* Reads the journal back when edits are opened. All locked. */
#include "edit/records.h"
#include "edit/state.h"

#include "pack/diag.h"
#include "pack/dtype_cbor.h"
#include "pack/util.h"

#include <errno.h>
#include <string.h>

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
    bool force;        /* any pack will do */
    struct bpk_committed *committed; /* of that commit, once it was read */
    const uint8_t *at;
    size_t left;
    bool bad;
    bool no_memory; /* that is why it is bad */
    struct known_content *contents;
};

static void out_of_memory(struct reader *reader) {
    reader->bad = true;
    reader->no_memory = true;
}

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
    if (!name)
        out_of_memory(reader);
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
    if (number && !file)
        reader->bad = true;
    else if (bpk_state_set_entry(reader->edits, folder, name, file) < 0)
        out_of_memory(reader);
}

static void read_file(struct reader *reader) {
    struct bpk_edits *edits = reader->edits;
    uint64_t number = get_u64(reader);
    struct bpk_file *file = bpk_state_file(edits, number);
    if (!file)
        file = bpk_state_add_file(edits, number, BPK_IN_ROOT, "");
    if (!file) {
        out_of_memory(reader);
        return;
    }
    file->changed = edits->clock;
    file->folder = (enum bpk_folder)get_u64(reader);
    free(file->name);
    file->name = get_name(reader);
    file->mode = (mode_t)get_u64(reader);
    uint64_t content = get_u64(reader);
    free(file->target);
    file->target = get_name(reader);
    _cleanup_free_ char *moved_from = get_name(reader);
    enum bpk_folder from_folder = (enum bpk_folder)get_u64(reader);
    if (bpk_state_set_aside(edits, file, from_folder, moved_from) < 0)
        out_of_memory(reader);
    uint64_t flags = get_u64(reader);
    file->has_param_id = flags & BPK_FILE_HAS_PARAM_ID;
    file->was_moved = flags & BPK_FILE_WAS_MOVED;
    file->param_id = get_u64(reader);
    file->unparsed = get_u64(reader);
    file->verdict = (enum bpk_text_verdict)get_u64(reader);
    free(file->reason);
    file->reason = get_name(reader);
    struct known_content *known = content ? find_content(reader, content) : NULL;
    if (content && !known)
        reader->bad = true;
    bpk_content_unref(file->content, true);
    file->content = known ? bpk_content_ref(known->content) : NULL;
    number %= BPK_ARRAY_NUMBERS;
    if (number >= edits->next_number)
        edits->next_number = number + 1;
}

/* A tensor of the base shows through. What the pack does not have as it was is lost, until it is
 * looked for with force again, or the record of a commit says what it became. */
static void set_below_tensor(struct reader *reader, struct bpk_content *content, bool was_lost) {
    struct bpk_str name = get_str(reader);
    uint64_t size = get_u64(reader);
    struct bpk_tensor tensor;
    uint32_t index;
    bool found = (!was_lost || reader->force) && !reader->bad &&
                 bpk_pack_find_tensor(reader->edits->base, name, &index) == 0;
    if (found)
        bpk_pack_tensor(reader->edits->base, index, &tensor);
    if (found && tensor.end - tensor.start == size)
        bpk_content_rebase(content, reader->edits->base, index);
    else if (!reader->bad && bpk_content_lose(content, name, size) < 0)
        out_of_memory(reader);
}

static bool set_below(struct reader *reader, struct bpk_content *content) {
    uint64_t kind = get_u64(reader);
    if (kind == BPK_BELOW_TENSOR || kind == BPK_BELOW_LOST) {
        set_below_tensor(reader, content, kind == BPK_BELOW_LOST);
    } else if (kind == BPK_BELOW_CONTENT) {
        struct known_content *below = find_content(reader, get_u64(reader));
        if (!below)
            return false;
        if (!content->below)
            content->below = bpk_content_ref(below->content);
    } else {
        bpk_content_bare(content);
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
            out_of_memory(reader);
            return;
        }
        known->id = id;
        HASH_ADD(hh, reader->contents, id, sizeof(known->id), known);
        if (!known->hh.tbl) {
            bpk_content_unref(known->content, true);
            free(known);
            out_of_memory(reader);
            return;
        }
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
        out_of_memory(reader);
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
        out_of_memory(reader);
        return NULL;
    }
    bpk_outbuf_clear(&desc->dtype_cbor);
    bpk_out(&desc->dtype_cbor, dtype.bytes, dtype.len);
    bpk_out(&desc->unknown_cbor, unknown.bytes, unknown.len);
    desc->unknown_count = unknown_count;
    if (desc->dtype_cbor.failed || desc->unknown_cbor.failed)
        out_of_memory(reader);
    return desc;
}

static void read_stem(struct reader *reader) {
    struct bpk_stem *stem;
    _cleanup_free_ char *name = get_name(reader);
    if (!name) {
        reader->bad = true;
        return;
    }
    if (bpk_state_make_stem(reader->edits, name, &stem) < 0) {
        out_of_memory(reader);
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
    uint64_t flags = get_u64(reader);
    bool has_value = flags & BPK_OVERRIDE_HAS_VALUE;
    struct bpk_str value = {0};
    if (has_value)
        value = get_str(reader);
    if (reader->bad)
        return;
    if (bpk_state_override(reader->edits, key, has_value ? &value : NULL) < 0) {
        out_of_memory(reader);
        return;
    }
    struct bpk_override *override;
    HASH_FIND(hh, reader->edits->overrides, key.bytes, key.len, override);
    override->older = flags & BPK_OVERRIDE_IS_OLDER;
}

/* The map's storage holds the scalars themselves, then their names. */
static void read_maps(struct reader *reader) {
    struct bpk_edits *edits = reader->edits;
    edits->maps_changed = edits->clock;
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
        out_of_memory(reader);
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
    if (known) {
        known->blocks_unsynced = false;
        known->content->was_synced = true;
    }
}

static void read_suspect(struct reader *reader) {
    struct known_content *known = find_content(reader, get_u64(reader));
    if (known)
        known->content->suspect = true;
}

static void read_shift(struct reader *reader) {
    struct known_content *known = find_content(reader, get_u64(reader));
    uint64_t shift = get_u64(reader);
    if (known && shift <= BPK_MAX_TENSOR)
        known->content->shift = shift;
    else
        reader->bad = true;
}

static void read_clock(struct reader *reader) {
    uint64_t frames = get_u64(reader);
    if (!reader->bad) {
        reader->edits->frames = frames;
        reader->edits->clock = frames;
    }
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
    committed.leaves_maps_out = (unsigned)get_u64(reader);
    committed.count = get_u64(reader);
    if (committed.count > reader->left)
        reader->bad = true;
    else
        committed.contents = calloc(committed.count + 1, sizeof(*committed.contents));
    if (!reader->bad && !committed.contents)
        out_of_memory(reader);
    for (size_t i = 0; i < committed.count && !reader->bad && committed.contents; i++) {
        committed.contents[i].id = get_u64(reader);
        struct bpk_str name = get_str(reader);
        struct known_content *known = find_content(reader, committed.contents[i].id);
        committed.contents[i].content = known ? bpk_content_ref(known->content) : NULL;
        committed.contents[i].owned = strndup(name.bytes, name.len);
        if (!committed.contents[i].owned)
            out_of_memory(reader);
        committed.contents[i].name = (struct bpk_str){committed.contents[i].owned, name.len};
    }
    committed.left_out_count = get_u64(reader);
    if (reader->bad || committed.left_out_count > reader->left)
        reader->bad = true;
    else
        committed.left_out = calloc(committed.left_out_count + 1, sizeof(char *));
    if (!reader->bad && !committed.left_out)
        out_of_memory(reader);
    for (size_t i = 0; i < committed.left_out_count && !reader->bad && committed.left_out; i++)
        committed.left_out[i] = get_name(reader);
    bool wanted = reader->after_commit && !reader->bad &&
                  bpk_base_id_equal(&committed.base_id, &reader->edits->base_id);
    if (wanted) {
        committed.happened = reader->committed->happened;
        committed.replaced_id = reader->committed->replaced_id;
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
        case BPK_RECORD_ENTRY:
            read_entry(reader);
            break;
        case BPK_RECORD_FILE:
            read_file(reader);
            break;
        case BPK_RECORD_CONTENT:
            read_content(reader);
            break;
        case BPK_RECORD_BLOCKS:
            read_blocks(reader);
            break;
        case BPK_RECORD_STEM:
            read_stem(reader);
            break;
        case BPK_RECORD_OVERRIDE:
            read_override(reader);
            break;
        case BPK_RECORD_MAPS:
            read_maps(reader);
            break;
        case BPK_RECORD_SYNCED:
            read_synced(reader);
            break;
        case BPK_RECORD_COMMITTED:
            read_committed(reader);
            break;
        case BPK_RECORD_SUSPECT:
            read_suspect(reader);
            break;
        case BPK_RECORD_SHIFT:
            read_shift(reader);
            break;
        case BPK_RECORD_CLOCK:
            read_clock(reader);
            break;
        default:
            reader->bad = true;
            break;
        }
    }
    bpk_outbuf_clear(&reader->edits->record); /* setting state records it: not now */
    return reader->no_memory ? -ENOMEM : reader->bad ? -EBADMSG : 0;
}

/* After the last record: data files as long as their contents say, and what the loss of power took
 * is not to be trusted. A journal that was not read to its end (`r`) says nothing about them. */
static int settle(struct reader *reader, int r) {
    struct known_content *known;
    struct known_content *next;
    bool is_whole = r == 0;
    HASH_ITER(hh, reader->contents, known, next) {
        struct bpk_content *content = known->content;
        if (known->blocks_unsynced && !reader->same_boot)
            content->suspect = true;
        content->unsynced = known->blocks_unsynced;
        if (r == 0 && content->references > 1)
            r = bpk_content_settle(content);
        bpk_content_close(content);
        HASH_DEL(reader->contents, known);
        bpk_content_unref(content, !is_whole);
        free(known);
    }
    return r;
}

/* Files without a name were held open by a process that is gone. One that was removed while nobody
 * had it open has its last name still, but no entry leads to it. */
static void drop_nameless(struct bpk_edits *edits) {
    struct bpk_file *file;
    struct bpk_file *next;
    HASH_ITER(by_number, edits->files, file, next) {
        const struct bpk_entry *entry =
            file->name ? bpk_state_entry(edits, file->folder, file->name) : NULL;
        if (!entry || entry->file != file)
            bpk_state_drop_file(edits, file);
    }
}

/* Looks for the record of the commit that made the pack, in a journal that another base began. */
static int find_commit(void *context, const uint8_t *record, size_t size) {
    struct reader *reader = context;
    struct bpk_base_id id;
    if (size < 1 + sizeof(id) || record[0] != BPK_RECORD_COMMITTED)
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
    ret_committed->happened = reader.after_commit;
    ret_committed->replaced_id = base;
    if (r == 0 && !matches && !reader.after_commit && !force)
        return bpk_diag_set(
            diag, -ESTALE, BPK_NO_OFFSET,
            "there are edits of another version of this pack in '%s': 'bpk recover --force' takes "
            "them all the same, 'bpk recover --discard' or '-o edits=discard' drops them",
            edits->store.name);
    reader.force = force;
    if (r == 0)
        r = bpk_store_replay(&edits->store, &base, &reader.same_boot, take_record, &reader);
    if (r == 0)
        drop_nameless(edits);
    if (r == 0 && force)
        r = bpk_state_fit_base(edits);
    r = settle(&reader, r);
    if (r < 0)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "the journal in '%s' cannot be read back: %s",
                            edits->store.name, strerror(-r));
    return 0;
}
