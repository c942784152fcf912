/* Sessions of edits for the tests: see editkit.h. */
#include "editkit.h"

#include "suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- folders --------------------------------------------------------------------------------- */

void kit_folder(char out[TEMP_PATH]) {
    const char *parent = getenv("BPK_TEST_FOLDER");
    if (!parent)
        parent = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    int n = snprintf(out, TEMP_PATH, "%s/bpk-unit-XXXXXX", parent);
    ck_assert_int_lt(n, TEMP_PATH);
    ck_assert_ptr_nonnull(mkdtemp(out));
}

typedef void entry_fn(const char *path, const char *name, const void *context);

static void each_entry(const char *folder, entry_fn *take, const void *context) {
    DIR *dir = opendir(folder);
    ck_assert_msg(dir != NULL, "cannot open %s", folder);
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        char path[TEMP_PATH + 300];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        take(path, entry->d_name, context);
    }
    closedir(dir);
}

static void remove_entry(const char *path, const char *name, const void *context) {
    (void)name;
    (void)context;
    struct stat attr;
    if (lstat(path, &attr) == 0 && S_ISDIR(attr.st_mode))
        kit_remove_folder(path);
    else
        unlink(path);
}

void kit_remove_folder(const char *folder) {
    each_entry(folder, remove_entry, NULL);
    rmdir(folder);
}

/* ---- life ------------------------------------------------------------------------------------ */

void kit_begin(struct kit *kit, const struct packspec *spec) {
    *kit = (struct kit){0};
    kit_folder(kit->folder);
    snprintf(kit->path, sizeof(kit->path), "%s/p.bpk", kit->folder);
    kit_replace_pack(kit, spec);
    kit_open(kit);
    ck_assert_uint_eq(kit->recovered, 0);
}

void kit_replace_pack(const struct kit *kit, const struct packspec *spec) {
    char temp[TEMP_PATH + 16];
    struct bytes file;
    spec_file(spec, &file);
    snprintf(temp, sizeof(temp), "%s/other", kit->folder);
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, file.data, file.len), (ssize_t)file.len);
    close(fd);
    ck_assert_int_eq(rename(temp, kit->path), 0);
    bytes_clear(&file);
}

void kit_end(struct kit *kit) {
    kit_close(kit);
    bpk_pack_unref(kit->mounted);
    kit->mounted = NULL;
    kit_remove_folder(kit->folder);
}

static uint64_t hash_of(enum bpk_folder folder, const char *name) {
    uint64_t hash = UINT64_C(1469598103934665603) ^ (uint64_t)folder;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return (hash & 0xffffffffff) | 1;
}

/* Numbers as a mount gives them: names of the pack that was mounted have one, whatever the base is
 * by now; others have none. */
static uint64_t number_of(enum bpk_folder folder, const char *name, const void *context) {
    const struct kit *kit = context;
    return kit_base_has(kit->mounted, folder, name) ? hash_of(folder, name) : 0;
}

int kit_try_open(struct kit *kit, const struct bpk_edits_options *options) {
    struct bpk_edits_options all = options ? *options : (struct bpk_edits_options){0};
    struct bpk_pack *pack;
    all.number_of = number_of;
    for (unsigned i = 0; i < BPK_FOLDERS; i++)
        all.folder_numbers[i] = 2 + 2 * i;
    kit->diag = (struct bpk_diag){0};
    int r = bpk_pack_open(kit->path, NULL, &pack, &kit->diag);
    ck_assert_msg(r == 0, "the pack does not open: %s", kit->diag.sentence);
    bpk_pack_unref(kit->mounted);
    kit->mounted = pack;
    all.number_context = kit;
    r = bpk_edits_open(kit->path, pack, &all, &kit->edits, &kit->recovered, &kit->diag);
    if (r < 0)
        kit->edits = NULL;
    return r;
}

void kit_open(struct kit *kit) {
    int r = kit_try_open(kit, NULL);
    ck_assert_msg(r == 0, "the edits do not open: %d %s", r, kit->diag.sentence);
}

void kit_close(struct kit *kit) {
    bpk_edits_close(kit->edits);
    kit->edits = NULL;
}

void kit_reopen(struct kit *kit) {
    kit_close(kit);
    kit_open(kit);
}

/* ---- the edits folder ------------------------------------------------------------------------ */

void kit_edits_path(const struct kit *kit, char out[TEMP_PATH + 32]) {
    snprintf(out, TEMP_PATH + 32, "%s/.p.bpk.edits", kit->folder);
}

bool kit_has_edits_folder(const struct kit *kit) {
    char path[TEMP_PATH + 32];
    kit_edits_path(kit, path);
    return access(path, F_OK) == 0;
}

/* Sparse files stay sparse: their holes are large. */
static void copy_entry(const char *path, const char *name, const void *context) {
    char target[TEMP_PATH + 300];
    char buffer[65536];
    snprintf(target, sizeof(target), "%s/%s", (const char *)context, name);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert(from >= 0 && to >= 0);
    off_t end = lseek(from, 0, SEEK_END);
    ck_assert_int_eq(ftruncate(to, end), 0);
    off_t at = lseek(from, 0, SEEK_DATA);
    while (at >= 0 && at < end) {
        ssize_t n = pread(from, buffer, sizeof(buffer), at);
        HOLDS(n > 0 && pwrite(to, buffer, (size_t)n, at) == n);
        at = lseek(from, at + n, SEEK_DATA);
    }
    close(from);
    close(to);
}

void kit_keep_edits(const struct kit *kit, char copy[TEMP_PATH]) {
    char path[TEMP_PATH + 32];
    kit_edits_path(kit, path);
    kit_folder(copy);
    if (access(path, F_OK) == 0)
        each_entry(path, copy_entry, copy);
    else
        ck_assert_int_eq(rmdir(copy), 0);
}

void kit_put_back_edits(const struct kit *kit, const char *copy) {
    char path[TEMP_PATH + 32];
    kit_edits_path(kit, path);
    if (access(path, F_OK) == 0)
        kit_remove_folder(path);
    if (access(copy, F_OK) != 0)
        return;
    ck_assert_int_eq(mkdir(path, 0700), 0);
    each_entry(copy, copy_entry, path);
    kit_remove_folder(copy);
}

/* ---- names ----------------------------------------------------------------------------------- */

bool kit_base_has(const struct bpk_pack *pack, enum bpk_folder folder, const char *name) {
    char stem[300];
    uint32_t index;
    size_t len = strlen(name);
    if (folder == BPK_IN_ROOT)
        return strcmp(name, "metadata.json") == 0 || strcmp(name, "scalars.json") == 0;
    if (folder == BPK_IN_METADATA)
        return bpk_pack_find_metadata(pack, str(name), &index) == 0;
    snprintf(stem, sizeof(stem), "%s", name);
    if (len > 5 && strcmp(name + len - 5, ".json") == 0)
        stem[len - 5] = '\0';
    return bpk_pack_find_tensor(pack, str(stem), &index) == 0;
}

struct bpk_place kit_place(struct kit *kit, enum bpk_folder folder, const char *name) {
    struct bpk_place place = {folder, name, 0};
    switch (bpk_edits_lookup(kit->edits, folder, name, &place.number)) {
    case BPK_FOUND_NOTHING:
        place.number = 0;
        break;
    case BPK_FOUND_FILE:
        break;
    case BPK_FOUND_BASE:
        place.number = number_of(folder, name, kit);
        break;
    }
    return place;
}

bool kit_exists(struct kit *kit, enum bpk_folder folder, const char *name) {
    return kit_place(kit, folder, name).number != 0;
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct bpk_place make(struct kit *kit, enum bpk_folder folder, const char *name) {
    struct bpk_place place = kit_place(kit, folder, name);
    if (place.number == 0) {
        int r = bpk_edits_create(kit->edits, folder, name, 0644, &place.number);
        ck_assert_msg(r == 0, "create %s: %d", name, r);
    }
    return place;
}

int kit_try_put(struct kit *kit, enum bpk_folder folder, const char *name, const void *data,
                size_t size) {
    struct bpk_place place = make(kit, folder, name);
    bpk_edits_opened(kit->edits, &place, true);
    int r = bpk_edits_truncate(kit->edits, &place, 0);
    if (r == 0)
        r = bpk_edits_write(kit->edits, &place, 0, data, size);
    if (r == 0)
        r = bpk_edits_flush(kit->edits, &place);
    bpk_edits_released(kit->edits, place.number, true);
    return r;
}

void kit_put_bytes(struct kit *kit, enum bpk_folder folder, const char *name, const void *data,
                   size_t size) {
    int r = kit_try_put(kit, folder, name, data, size);
    ck_assert_msg(r == 0, "put %s: %d", name, r);
}

void kit_put(struct kit *kit, enum bpk_folder folder, const char *name, const char *text) {
    kit_put_bytes(kit, folder, name, text, strlen(text));
}

void kit_write(struct kit *kit, const char *tensor, uint64_t offset, const char *text) {
    struct bpk_place place = kit_place(kit, BPK_IN_TENSORS, tensor);
    ck_assert_uint_ne(place.number, 0);
    ck_assert_int_eq(bpk_edits_write(kit->edits, &place, offset, text, strlen(text)), 0);
}

int kit_truncate(struct kit *kit, enum bpk_folder folder, const char *name, uint64_t size) {
    struct bpk_place place = kit_place(kit, folder, name);
    return bpk_edits_truncate(kit->edits, &place, size);
}

int kit_chmod(struct kit *kit, const struct bpk_place *place, mode_t mode) {
    return bpk_edits_set_attr(kit->edits, place, &(struct stat){.st_mode = mode}, BPK_SET_MODE);
}

int kit_touch(struct kit *kit, const struct bpk_place *place, struct timespec mtime) {
    return bpk_edits_set_attr(kit->edits, place, &(struct stat){.st_mtim = mtime}, BPK_SET_MTIME);
}

int kit_unlink(struct kit *kit, enum bpk_folder folder, const char *name) {
    struct bpk_place place = kit_place(kit, folder, name);
    return place.number ? bpk_edits_unlink(kit->edits, &place) : -ENOENT;
}

int kit_rename(struct kit *kit, enum bpk_folder folder, const char *from, const char *to) {
    struct bpk_place place = kit_place(kit, folder, from);
    return place.number ? bpk_edits_rename(kit->edits, &place, folder, to, false) : -ENOENT;
}

int kit_flush(struct kit *kit, enum bpk_folder folder, const char *name) {
    struct bpk_place place = kit_place(kit, folder, name);
    return bpk_edits_flush(kit->edits, &place);
}

int kit_fsync(struct kit *kit, enum bpk_folder folder, const char *name) {
    struct bpk_place place = kit_place(kit, folder, name);
    return bpk_edits_fsync(kit->edits, &place);
}

void kit_sidecar(struct kit *kit, const char *tensor, uint64_t size) {
    char name[300];
    char text[100];
    snprintf(name, sizeof(name), "%s.json", tensor);
    snprintf(text, sizeof(text), "{\"dtype\": \"U8\", \"shape\": [%llu]}\n",
             (unsigned long long)size);
    kit_put(kit, BPK_IN_TENSORS, name, text);
}

void kit_read(struct kit *kit, enum bpk_folder folder, const char *name, struct bytes *ret_data) {
    struct bpk_place place = kit_place(kit, folder, name);
    struct bpk_file_stat attr;
    struct bytes data = {0};
    size_t n = 0;
    ck_assert_msg(place.number != 0, "%s is not there", name);
    ck_assert_int_eq(bpk_edits_stat(kit->edits, &place, &attr), 0);
    bytes_fill(&data, 0xaa, attr.size + 10);
    int r = bpk_edits_read(kit->edits, &place, 0, data.data, data.len, &n);
    if (r == -ENODATA) {
        struct bpk_outbuf text = {0};
        ck_assert_int_eq(bpk_edits_text(kit->edits, &place, &text), 0);
        bytes_clear(&data);
        bytes_add(&data, text.text, text.len);
        n = text.len;
        bpk_outbuf_clear(&text);
    } else {
        ck_assert_msg(r == 0, "read %s: %d", name, r);
    }
    ck_assert_uint_eq(n, attr.size);
    data.len = n;
    *ret_data = data;
}

bool kit_says(struct kit *kit, enum bpk_folder folder, const char *name, const char *text) {
    struct bytes data;
    kit_read(kit, folder, name, &data);
    bool same = data.len == strlen(text) && memcmp(data.data, text, data.len) == 0;
    bytes_clear(&data);
    return same;
}

bool kit_contains(struct kit *kit, enum bpk_folder folder, const char *name, const char *part) {
    struct bytes data;
    kit_read(kit, folder, name, &data);
    bool found = memmem(data.data, data.len, part, strlen(part)) != NULL;
    bytes_clear(&data);
    return found;
}

/* ---- commits --------------------------------------------------------------------------------- */

int kit_commit(struct kit *kit, enum bpk_commit_mode mode, struct bpk_commit_result *ret_result) {
    kit->diag = (struct bpk_diag){0};
    return bpk_edits_commit(kit->edits, mode, NULL, ret_result, &kit->diag);
}

void kit_commit_all(struct kit *kit) {
    struct bpk_commit_result result;
    int r = kit_commit(kit, BPK_COMMIT_ALL, &result);
    ck_assert_msg(r == 0, "the commit failed: %d %s", r, kit->diag.sentence);
}

struct bpk_pack *kit_pack(const struct kit *kit) {
    struct bpk_pack *pack;
    struct bpk_diag diag = {0};
    int r = bpk_pack_open(kit->path, NULL, &pack, &diag);
    ck_assert_msg(r == 0, "the pack does not open: %s", diag.sentence);
    return pack;
}

bool kit_pack_holds(const struct kit *kit, const char *tensor, const void *data, size_t size) {
    struct bpk_pack *pack = kit_pack(kit);
    uint32_t index;
    size_t n = 0;
    char *bytes = malloc(size + 1);
    bool same = bpk_pack_find_tensor(pack, str(tensor), &index) == 0 &&
                bpk_pack_read(pack, index, 0, bytes, size + 1, &n) == 0 && n == size &&
                (size == 0 || memcmp(bytes, data, size) == 0);
    free(bytes);
    bpk_pack_unref(pack);
    return same;
}

bool kit_pack_has(const struct kit *kit, const char *tensor) {
    struct bpk_pack *pack = kit_pack(kit);
    uint32_t index;
    bool has = bpk_pack_find_tensor(pack, str(tensor), &index) == 0;
    bpk_pack_unref(pack);
    return has;
}

char *kit_pack_value(const struct kit *kit, const char *key) {
    struct bpk_pack *pack = kit_pack(kit);
    uint32_t index;
    struct bpk_str name;
    struct bpk_str value;
    char *copy = NULL;
    if (bpk_pack_find_metadata(pack, str(key), &index) == 0) {
        bpk_pack_metadata(pack, index, &name, &value);
        copy = strndup(value.bytes, value.len);
    }
    bpk_pack_unref(pack);
    return copy;
}

struct wanted {
    const char *path;
    bool found;
    enum bpk_edit_kind kind;
    char problem[500];
    char change[300];
};

static void look(void *context, const struct bpk_edit *edit) {
    struct wanted *wanted = context;
    if (strcmp(edit->path, wanted->path) != 0)
        return;
    wanted->found = true;
    wanted->kind = edit->kind;
    snprintf(wanted->problem, sizeof(wanted->problem), "%s", edit->problem ? edit->problem : "");
    static const char *const changes[] = {"changed", "new", "removed", "renamed from "};
    ck_assert_int_eq(edit->from != NULL, edit->change == BPK_RENAMED);
    snprintf(wanted->change, sizeof(wanted->change), "%s%s", changes[edit->change],
             edit->from ? edit->from : "");
}

const char *kit_problem(struct kit *kit, const char *path, enum bpk_edit_kind *ret_kind) {
    static struct wanted wanted;
    wanted = (struct wanted){.path = path};
    bpk_edits_list(kit->edits, look, &wanted);
    if (ret_kind)
        *ret_kind = wanted.kind;
    return wanted.found ? wanted.problem : NULL;
}

const char *kit_change(struct kit *kit, const char *path) {
    static struct wanted wanted;
    wanted = (struct wanted){.path = path};
    bpk_edits_list(kit->edits, look, &wanted);
    return wanted.found ? wanted.change : NULL;
}

int kit_count_files(const char *folder) {
    int count = 0;
    DIR *dir = opendir(folder);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}
