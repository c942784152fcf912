/* The journal's records: how the state is written down; replay.c reads it back. All locked.
 *
 * A record is a letter and its fields; numbers are 8 bytes little-endian as the machine has them
 * (the journal never leaves it), strings are a length and bytes. One operation's records go into
 * one frame of the store, so that it is there whole or not at all. Each says what is from now on;
 * reading them in order and keeping the last of each kind gives the state.
 */
#include "edit/records.h"
#include "edit/state.h"

#include <errno.h>
#include <string.h>

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
    put_kind(out, BPK_RECORD_ENTRY);
    put_u64(out, (uint64_t)entry->key[0]);
    put_name(out, entry->key + 1);
    put_u64(out, entry->file ? entry->file->number : 0);
}

void bpk_record_file(struct bpk_edits *edits, const struct bpk_file *file) {
    struct bpk_outbuf *out = &edits->record;
    if (!file->name) /* it goes with its last handle; that no entry leads to it is enough */
        return;
    put_kind(out, BPK_RECORD_FILE);
    put_u64(out, file->number);
    put_u64(out, file->folder);
    put_name(out, file->name);
    put_u64(out, file->mode);
    put_u64(out, file->content ? file->content->id : 0);
    put_name(out, file->target);
    put_name(out, file->aside ? file->aside->name : NULL);
    put_u64(out, file->aside ? file->aside->folder : 0);
    put_u64(out, (file->has_param_id ? BPK_FILE_HAS_PARAM_ID : 0) |
                     (file->was_moved ? BPK_FILE_WAS_MOVED : 0));
    put_u64(out, file->param_id);
    put_u64(out, file->unparsed);
    put_u64(out, file->verdict);
    put_name(out, file->reason);
}

void bpk_record_content(struct bpk_edits *edits, const struct bpk_content *content) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, BPK_RECORD_CONTENT);
    put_u64(out, content->id);
    put_u64(out, content->size);
    put_u64(out, content->below_limit);
    if (content->pack) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(content->pack, content->index, &tensor);
        put_u64(out, BPK_BELOW_TENSOR);
        put_str(out, tensor.name);
        put_u64(out, tensor.end - tensor.start);
    } else if (content->lost) {
        put_u64(out, BPK_BELOW_LOST);
        put_str(out, (struct bpk_str){content->lost->name, content->lost->name_len});
        put_u64(out, content->lost->size);
    } else if (content->below) {
        put_u64(out, BPK_BELOW_CONTENT);
        put_u64(out, content->below->id);
    } else {
        put_u64(out, BPK_BELOW_NOTHING);
    }
}

void bpk_record_shift(struct bpk_edits *edits, const struct bpk_content *content) {
    put_kind(&edits->record, BPK_RECORD_SHIFT);
    put_u64(&edits->record, content->id);
    put_u64(&edits->record, content->shift);
}

void bpk_record_blocks(struct bpk_edits *edits, const struct bpk_content *content, uint64_t offset,
                       uint64_t size) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, BPK_RECORD_BLOCKS);
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
    put_kind(out, BPK_RECORD_STEM);
    put_name(out, stem->name);
    put_u64(out, stem->remembers_param_id);
    put_desc(out, stem->now);
    put_desc(out, stem->remembered);
}

void bpk_record_override(struct bpk_edits *edits, const struct bpk_override *override) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, BPK_RECORD_OVERRIDE);
    put_str(out, (struct bpk_str){override->key, override->key_len});
    put_u64(out, (override->value ? BPK_OVERRIDE_HAS_VALUE : 0) |
                     (override->older ? BPK_OVERRIDE_IS_OLDER : 0));
    if (override->value)
        put_str(out, (struct bpk_str){override->value, override->value_len});
}

void bpk_record_maps(struct bpk_edits *edits) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, BPK_RECORD_MAPS);
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
    put_kind(&edits->record, BPK_RECORD_SYNCED);
    put_u64(&edits->record, content->id);
}

void bpk_record_committed(struct bpk_edits *edits, const struct bpk_committed *committed) {
    struct bpk_outbuf *out = &edits->record;
    put_kind(out, BPK_RECORD_COMMITTED);
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

static void record_clock(struct bpk_edits *edits, uint64_t clock) {
    put_kind(&edits->record, BPK_RECORD_CLOCK);
    put_u64(&edits->record, clock);
}

void bpk_record_tick(struct bpk_edits *edits) {
    record_clock(edits, edits->clock);
}

/* What the records of one operation come to at most, but for texts and descriptors. */
enum { ROOM_FOR_ONE = 16 << 10 };

int bpk_record_begin(struct bpk_edits *edits, size_t room) {
    if (edits->read_only)
        return -EROFS;
    int r = edits->broken ? bpk_state_compact(edits, true) : 0;
    if (r < 0)
        return r;
    edits->broken = false;
    bpk_outbuf_clear(&edits->record);
    edits->clock = edits->frames + 1;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    edits->last_change = now.tv_sec;
    edits->generation++;
    r = bpk_store_create(&edits->store, &edits->base_id);
    return r < 0 ? r : bpk_store_reserve(&edits->store, room + ROOM_FOR_ONE);
}

int bpk_record_room(struct bpk_edits *edits, size_t room) {
    return bpk_store_reserve(&edits->store, edits->record.len + room + ROOM_FOR_ONE);
}

int bpk_record_finish_once(struct bpk_edits *edits, int result) {
    if (edits->record.len == 0 && !edits->record.failed)
        return result;
    int r = edits->record.failed ? -ENOMEM : bpk_store_append(&edits->store, &edits->record);
    bpk_outbuf_clear(&edits->record);
    edits->frames++;
    /* What is in memory is not in the journal: nothing may build on it before that is written anew.
     */
    if (r < 0)
        edits->broken = true;
    return r < 0 ? r : result;
}

int bpk_record_finish(struct bpk_edits *edits, int result) {
    bool was_broken = edits->broken;
    int r = bpk_record_finish_once(edits, result);
    if (was_broken || !edits->broken || bpk_state_compact(edits, true) < 0)
        return r;
    edits->broken = false;
    return result;
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

static void record_suspect(struct bpk_edits *edits, const struct bpk_content *content) {
    put_kind(&edits->record, BPK_RECORD_SUSPECT);
    put_u64(&edits->record, content->id);
}

static void record_whole_content(struct bpk_edits *edits, const struct bpk_content *content) {
    if (content->below)
        record_whole_content(edits, content->below);
    bpk_record_content(edits, content);
    if (content->shift > 0)
        bpk_record_shift(edits, content);
    struct block_recorder recorder = {edits, content};
    (void)bpk_content_each_own(content, record_run, &recorder);
    if (!content->unsynced)
        bpk_record_synced(edits, content);
    if (content->suspect)
        record_suspect(edits, content);
}

/* Puts the whole state into edits->record. */
int bpk_record_all(struct bpk_edits *edits) {
    bpk_outbuf_clear(&edits->record);
    /* The one frame that this becomes counts for all that went before. */
    record_clock(edits, edits->frames);
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
