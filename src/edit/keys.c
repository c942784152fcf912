/* The files of metadata/ follow the map. All locked. */
#include "edit/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The file name of a key; false for a new key too long to have one. */
static bool file_of(struct bpk_edits *edits, struct bpk_str key, char out[BPK_FILE_NAME_BUF]) {
    uint32_t index;
    if (bpk_pack_find_metadata(edits->base, key, &index) == 0) {
        bpk_names_file(edits->key_names, index, out);
        return true;
    }
    return bpk_name_encode(key, out) > 0;
}

static bool has_value(struct bpk_edits *edits, struct bpk_str key) {
    struct bpk_override *override;
    HASH_FIND(hh, edits->overrides, key.bytes, key.len, override);
    if (override)
        return override->value != NULL;
    uint32_t index;
    return (!edits->map_replaced || memchr(key.bytes, '\0', key.len)) &&
           bpk_pack_find_metadata(edits->base, key, &index) == 0;
}

bool bpk_state_has_value(struct bpk_edits *edits, const char *name) {
    char decoded[BPK_FILE_NAME_BUF];
    struct bpk_str key = {decoded, 0};
    struct bpk_str value;
    uint32_t index;
    if (bpk_names_find(edits->key_names, (struct bpk_str){name, strlen(name)}, &index) == 0)
        bpk_pack_metadata(edits->base, index, &key, &value);
    else if (!bpk_rules_is_spelled_right(name, decoded, &key.len))
        return false;
    return has_value(edits, key);
}

bool bpk_state_key_left_out(struct bpk_edits *edits, const struct bpk_committed *committed,
                            struct bpk_str key) {
    char path[sizeof("metadata/") + BPK_FILE_NAME_BUF] = "metadata/";
    return committed && committed->left_out_count > 0 && file_of(edits, key, path + strlen(path)) &&
           bpk_committed_left_out(committed, path);
}

static int hide(struct bpk_edits *edits, const char *name) {
    struct bpk_entry *entry = bpk_state_entry(edits, BPK_IN_METADATA, name);
    if (entry && !entry->file)
        return 0;
    bpk_state_stale_name(edits, BPK_IN_METADATA, name);
    struct bpk_file *file = entry ? entry->file : NULL;
    int r = bpk_state_set_entry(edits, BPK_IN_METADATA, name, NULL);
    if (r == 0 && file) {
        free(file->name);
        file->name = NULL;
        if (file->opens == 0)
            bpk_state_drop_file(edits, file);
    }
    return r;
}

int bpk_state_hide_keys(struct bpk_edits *edits) {
    char name[BPK_FILE_NAME_BUF];
    struct bpk_pack_info info;
    int r = 0;
    bpk_pack_get_info(edits->base, &info);
    for (uint32_t i = 0; i < info.metadata_entries && r == 0; i++) {
        struct bpk_str key;
        struct bpk_str value;
        bpk_pack_metadata(edits->base, i, &key, &value);
        bpk_names_file(edits->key_names, i, name);
        if (!has_value(edits, key))
            r = hide(edits, name);
    }
    return r;
}

static int show(struct bpk_edits *edits, const char *name) {
    if (bpk_state_exists(edits, BPK_IN_METADATA, name)) {
        bpk_state_reset_text(edits, BPK_IN_METADATA, name);
        return 0;
    }
    struct bpk_file *file = bpk_state_add_file(edits, edits->next_number++, BPK_IN_METADATA, name);
    if (!file)
        return -ENOMEM;
    bpk_record_file(edits, file);
    return bpk_state_set_entry(edits, BPK_IN_METADATA, name, file);
}

/* After the whole map was written: `before` are the entries that there were. */
int bpk_state_show_keys(struct bpk_edits *edits, const struct bpk_plan_entry *before,
                        size_t count) {
    char name[BPK_FILE_NAME_BUF];
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        if (!has_value(edits, before[i].key) && file_of(edits, before[i].key, name))
            r = hide(edits, name);
    struct bpk_plan_entry *now = NULL;
    size_t now_count = 0;
    if (r == 0)
        r = bpk_state_effective_metadata(edits, NULL, &now, &now_count);
    for (size_t i = 0; i < now_count && r == 0; i++)
        if (file_of(edits, now[i].key, name))
            r = show(edits, name);
    bpk_state_stale(edits, edits->folder_numbers[BPK_IN_METADATA]);
    free(now);
    return r;
}
