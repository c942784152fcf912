#include "edit/rules.h"

#include "pack/text.h"
#include "view/names.h"

#include <ctype.h>
#include <string.h>

static bool ends_with(const char *name, const char *end) {
    size_t len = strlen(name);
    size_t end_len = strlen(end);
    return len > end_len && strcmp(name + len - end_len, end) == 0;
}

/* sed -i writes to "sed" and six letters or digits. */
static bool is_sed_name(const char *name) {
    if (strncmp(name, "sed", 3) != 0 || strlen(name) != 9)
        return false;
    for (const char *p = name + 3; *p; p++)
        if (!isalnum((unsigned char)*p))
            return false;
    return true;
}

bool bpk_rules_is_scratch(const char *name) {
    size_t len = strlen(name);
    return strcmp(name, "4913") == 0 || is_sed_name(name) || name[0] == '.' || name[0] == '#' ||
           (len > 0 && name[len - 1] == '~');
}

bool bpk_rules_is_backup(const char *name) {
    return ends_with(name, ".bak") || ends_with(name, ".orig") || ends_with(name, ".old") ||
           ends_with(name, ".rej");
}

bool bpk_rules_sidecar_stem(const char *name, struct bpk_str *ret_stem) {
    if (!ends_with(name, ".json"))
        return false;
    *ret_stem = (struct bpk_str){name, strlen(name) - strlen(".json")};
    return true;
}

bool bpk_rules_array_stem(const char *name, struct bpk_str *ret_stem) {
    if (!ends_with(name, ".npy"))
        return false;
    *ret_stem = (struct bpk_str){name, strlen(name) - strlen(".npy")};
    return true;
}

const char *bpk_rules_folder_path(enum bpk_folder folder) {
    static const char *const paths[BPK_FOLDERS] = {
        [BPK_IN_ROOT] = "",
        [BPK_IN_TENSORS] = "tensors/",
        [BPK_IN_METADATA] = "metadata/",
        [BPK_IN_NPY] = "views/npy/",
    };
    return paths[folder];
}

bool bpk_rules_is_spelled_right(const char *name, char *out, size_t *ret_len) {
    char again[BPK_FILE_NAME_BUF];
    struct bpk_str file = {name, strlen(name)};
    if (file.len == 0 || file.len > BPK_FILE_NAME_MAX)
        return false;
    int len = bpk_name_decode(file, out);
    if (len < 0 || !bpk_text_is_utf8((const uint8_t *)out, (size_t)len))
        return false;
    *ret_len = (size_t)len;
    return bpk_name_encode((struct bpk_str){out, (size_t)len}, again) == file.len &&
           memcmp(again, name, file.len) == 0;
}
