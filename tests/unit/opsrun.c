/* Operations on a mount's edits, each done to the plain model too and compared: see opsmodel.h. */
#include "opsmodel.h"

#include <errno.h>

/* ---- comparing ------------------------------------------------------------------------------- */

static struct bpk_place place_of(const struct run *run, int file) {
    const struct model_file *f = &run->files[file];
    return (struct bpk_place){BPK_IN_TENSORS, f->name >= 0 ? names[f->name] : NULL, f->number};
}

static void compare_range(struct run *run, int file, size_t offset, size_t size) {
    static uint8_t buffer[SIZE_MAX_HERE + 1];
    const struct model_file *f = &run->files[file];
    struct bpk_place place = place_of(run, file);
    struct bpk_file_stat attr;
    size_t n = SIZE_MAX;
    int r = bpk_edits_stat(run->kit.edits, &place, &attr);
    if (r != 0 || attr.size != f->len)
        say(run, "%s: stat %d, %llu bytes, not %zu", f->name >= 0 ? names[f->name] : "(nameless)",
            r, (unsigned long long)attr.size, f->len);
    must(run, r == 0 && attr.size == f->len);
    r = bpk_edits_read(run->kit.edits, &place, offset, buffer, size, &n);
    if (r != 0)
        say(run, "%s: read %d", f->name >= 0 ? names[f->name] : "(nameless)", r);
    must(run, r == 0);
    size_t there = offset >= f->len ? 0 : f->len - offset;
    must(run, n == (size < there ? size : there));
    if (n == 0 || memcmp(buffer, f->data + offset, n) == 0)
        return;
    size_t at = 0;
    while (buffer[at] == f->data[offset + at])
        at++;
    say(run, "%s: byte %zu of %zu is %02x, not %02x", f->name >= 0 ? names[f->name] : "(nameless)",
        offset + at, f->len, buffer[at], f->data[offset + at]);
    fail_at(run, "the bytes differ", __LINE__);
}

static void compare_mount(struct run *run) {
    for (int i = 0; i < NAMES; i++) {
        struct bpk_place place = kit_place(&run->kit, BPK_IN_TENSORS, names[i]);
        int file = run->names[i].file;
        if ((place.number != 0) != (file >= 0))
            say(run, "%s is %s", names[i], place.number ? "there" : "not there");
        must(run, (place.number != 0) == (file >= 0));
        if (file >= 0 && place.number != run->files[file].number)
            say(run, "%s has the number %llx, not %llx", names[i], (unsigned long long)place.number,
                (unsigned long long)run->files[file].number);
        must(run, file < 0 || place.number == run->files[file].number);
    }
    for (int i = 0; i < FILES; i++)
        if (run->files[i].live)
            compare_range(run, i, 0, SIZE_MAX_HERE + 1);
}

/* The file whose bytes the pack is to have under this name; -1: none. */
static int in_pack(const struct run *run, int name) {
    const struct model_name *n = &run->names[name];
    if (is_backup(name))
        return -1;
    if (n->file >= 0)
        return n->has_desc ? n->file : -1;
    return n->remembers ? aside_of(run, name) : -1;
}

static void compare_pack(struct run *run) {
    struct bpk_pack *pack = kit_pack(&run->kit);
    struct bpk_pack_info info;
    uint32_t expected = 0;
    static uint8_t buffer[SIZE_MAX_HERE + 1];
    bpk_pack_get_info(pack, &info);
    for (int i = 0; i < NAMES; i++) {
        int file = in_pack(run, i);
        uint32_t index;
        size_t n;
        uint64_t dim;
        bool there = bpk_pack_find_tensor(pack, str(names[i]), &index) == 0;
        if (there != (file >= 0))
            say(run, "the pack %s %s", there ? "has" : "lacks", names[i]);
        must(run, there == (file >= 0));
        if (!there)
            continue;
        expected++;
        must(run, bpk_pack_read(pack, index, 0, buffer, sizeof(buffer), &n) == 0);
        if (n != run->files[file].len || memcmp(buffer, run->files[file].data, n) != 0)
            say(run, "%s in the pack: %zu bytes, %zu expected", names[i], n, run->files[file].len);
        must(run, n == run->files[file].len);
        must(run, memcmp(buffer, run->files[file].data, n) == 0);
        struct bpk_shape shape = bpk_pack_tensor_shape(pack, index);
        must(run, shape.left == 1 && bpk_shape_next(&shape, &dim) && dim == n);
    }
    must(run, info.tensors == expected);
    bpk_pack_unref(pack);
}

static void no_problem(void *context, uint32_t tensor, const char *sentence) {
    struct run *run = context;
    say(run, "the pack's %s: %s", tensor == BPK_NO_TENSOR ? "file" : "tensor", sentence);
    fail_at(run, "the pack has a problem", __LINE__);
}

static void check_pack(struct run *run) {
    struct bpk_pack *pack = kit_pack(&run->kit);
    must(run, bpk_pack_check(pack, no_problem, run) == 0);
    bpk_pack_unref(pack);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* A file to work on: by an open handle or by a name; -1: there is none. */
static int any_file(struct run *run) {
    if (below(run, 4) == 0) {
        const struct handle *handle = &run->handles[below(run, HANDLES)];
        if (handle->file >= 0)
            return handle->file;
    }
    for (int tries = 0; tries < 4; tries++) {
        int file = run->names[below(run, NAMES)].file;
        if (file >= 0)
            return file;
    }
    return -1;
}

/* Places near borders of blocks and near the end are where mistakes are. */
static size_t any_offset(struct run *run, const struct model_file *file) {
    size_t near = below(run, 9);
    size_t at;
    switch (below(run, 5)) {
    case 0:
        at = 4096 * below(run, 75) + near;
        break;
    case 1:
        at = file->len + near;
        break;
    case 2:
        at = file->len / 4096 * 4096 + near;
        break;
    case 3:
        at = below(run, file->len + 1) + 4;
        break;
    default:
        at = below(run, 300 << 10) + 4;
        break;
    }
    return at > 4 ? at - 4 : 0;
}

static size_t any_size(struct run *run) {
    switch (below(run, 8)) {
    case 0:
        return 4096 * (1 + below(run, 4)) - 3 + below(run, 7);
    case 1:
        return 1 + below(run, 20000);
    case 2:
        return below(run, 10) == 0 ? 1 + below(run, 90 << 10) : 4096;
    default:
        return below(run, 300);
    }
}

static void do_write(struct run *run) {
    static uint8_t buffer[SIZE_MAX_HERE];
    int i = any_file(run);
    if (i < 0)
        return;
    struct model_file *file = &run->files[i];
    size_t offset = any_offset(run, file);
    size_t size = any_size(run);
    if (offset + size > SIZE_MAX_HERE)
        return;
    uint8_t byte = (uint8_t)(1 + below(run, 255));
    for (size_t k = 0; k < size; k++)
        buffer[k] = (uint8_t)(byte + k * 3 + (k >> 8));
    say(run, "write %s %zu+%zu of %zu", file->name >= 0 ? names[file->name] : "(nameless)", offset,
        size, file->len);
    struct bpk_place place = place_of(run, i);
    int r = bpk_edits_write(run->kit.edits, &place, offset, buffer, size);
    must(run, r == 0);
    if (size == 0)
        return;
    if (offset + size > file->len)
        resize(file, offset + size);
    memcpy(file->data + offset, buffer, size);
}

static void do_truncate(struct run *run) {
    int i = any_file(run);
    if (i < 0)
        return;
    struct model_file *file = &run->files[i];
    size_t size = below(run, 12) == 0 ? 0 : any_offset(run, file);
    if (below(run, 3) == 0) /* a little up or down, inside the padding after it */
        size = file->len + below(run, 300) > 150 ? file->len + below(run, 300) - 150 : 0;
    if ((ssize_t)size < 0 || size > SIZE_MAX_HERE)
        return;
    say(run, "truncate %s %zu to %zu", file->name >= 0 ? names[file->name] : "(nameless)",
        file->len, size);
    struct bpk_place place = place_of(run, i);
    must(run, bpk_edits_truncate(run->kit.edits, &place, size) == 0);
    resize(file, size);
}

static void do_read(struct run *run) {
    int i = any_file(run);
    if (i < 0)
        return;
    size_t offset = any_offset(run, &run->files[i]);
    size_t size = any_size(run);
    say(run, "read %d %zu+%zu", i, offset, size);
    compare_range(run, i, offset, size);
}

static void do_create(struct run *run) {
    int i = (int)below(run, NAMES);
    struct model_name *name = &run->names[i];
    uint64_t number;
    say(run, "create %s", names[i]);
    int r = bpk_edits_create(run->kit.edits, BPK_IN_TENSORS, names[i], 0600, &number);
    must(run, r == (name->file >= 0 ? -EEXIST : 0));
    if (r < 0)
        return;
    new_file(run, i, number);
    if (!is_backup(i))
        adopt(name);
}

/* What was moved aside is put back even where the name was used again and removed: such histories
 * are left out here. */
static bool may_leave(const struct run *run, int name) {
    return aside_of(run, name) < 0;
}

static void do_unlink(struct run *run) {
    int i = (int)below(run, NAMES);
    struct model_name *name = &run->names[i];
    if (name->file < 0 || !may_leave(run, i))
        return;
    say(run, "unlink %s", names[i]);
    struct bpk_place place = place_of(run, name->file);
    must(run, bpk_edits_unlink(run->kit.edits, &place) == 0);
    if (!is_backup(i))
        forget_bytes(name);
    lose_name(run, name->file);
    name->file = -1;
}

/* What was moved aside and not written again is there again, as a file of its own. */
static void put_back(struct run *run, int name, const struct model_file *aside) {
    struct bpk_place place = kit_place(&run->kit, BPK_IN_TENSORS, names[name]);
    must(run, place.number != 0);
    struct model_file *file = &run->files[new_file(run, name, place.number)];
    memcpy(file->data, aside->data, aside->len);
    file->len = aside->len;
}

/* What was moved aside to a name that becomes another file's is back where it was. */
static void put_aside_back(struct run *run, int name) {
    int old = run->names[name].file;
    int source = old >= 0 ? run->files[old].moved_from : -1;
    if (source < 0 || is_part(run, name) || run->names[source].file >= 0)
        return;
    put_back(run, source, &run->files[old]);
    adopt(&run->names[source]);
    run->files[old].moved_from = -1;
}

static void do_rename(struct run *run) {
    int i = (int)below(run, NAMES);
    int k = (int)below(run, NAMES);
    struct model_name *from = &run->names[i];
    struct model_name *to = &run->names[k];
    bool no_replace = below(run, 8) == 0;
    if (from->file < 0 || !may_leave(run, i))
        return;
    int moving = from->file;
    say(run, "rename %s to %s", names[i], names[k]);
    struct bpk_place place = place_of(run, moving);
    int r = bpk_edits_rename(run->kit.edits, &place, BPK_IN_TENSORS, names[k], no_replace);
    must(run, r == (no_replace && to->file >= 0 ? -EEXIST : 0));
    if (r < 0 || i == k)
        return;
    put_aside_back(run, k);
    struct model_file *file = &run->files[moving];
    bool was_part = is_part(run, i);
    if (!is_backup(i) && from->has_desc && !is_backup(k)) {
        to->has_desc = true;
        to->desc_len = from->desc_len;
        to->remembers = false;
        forget_bytes(from);
    } else if (!is_backup(i) && from->has_desc) {
        forget_bytes(from);
    } else if (!is_backup(k)) {
        adopt(to);
    }
    if (is_part(run, k))
        file->moved_from = -1;
    else if (was_part)
        file->moved_from = i;
    if (to->file >= 0)
        lose_name(run, to->file);
    from->file = -1;
    to->file = moving;
    file->name = k;
}

static void write_sidecar(struct run *run, int name, uint64_t size) {
    char text[100];
    char sidecar[40];
    snprintf(sidecar, sizeof(sidecar), "%s.json", names[name]);
    int len = snprintf(text, sizeof(text), "{\"dtype\": \"U8\", \"shape\": [%llu]}",
                       (unsigned long long)size);
    must(run, kit_try_put(&run->kit, BPK_IN_TENSORS, sidecar, text, (size_t)len) == 0);
    run->names[name].has_desc = true;
    run->names[name].desc_len = size;
}

/* Sometimes before there are bytes. */
static void do_sidecar(struct run *run) {
    int i = (int)below(run, FIRST_BACKUP);
    int file = run->names[i].file;
    if (file < 0 && below(run, 4) != 0)
        return;
    uint64_t size = file >= 0 ? run->files[file].len : below(run, 9000);
    say(run, "sidecar %s %llu", names[i], (unsigned long long)size);
    write_sidecar(run, i, size);
}

static void do_remove_sidecar(struct run *run) {
    int i = (int)below(run, FIRST_BACKUP);
    char sidecar[40];
    snprintf(sidecar, sizeof(sidecar), "%s.json", names[i]);
    struct bpk_place place = kit_place(&run->kit, BPK_IN_TENSORS, sidecar);
    if (place.number == 0)
        return;
    say(run, "unlink %s", sidecar);
    must(run, bpk_edits_unlink(run->kit.edits, &place) == 0);
    if (run->names[i].file < 0)
        run->names[i].has_desc = false;
}

static void do_fsync(struct run *run) {
    int i = any_file(run);
    if (i < 0)
        return;
    say(run, "fsync %d", i);
    struct bpk_place place = place_of(run, i);
    must(run, bpk_edits_fsync(run->kit.edits, &place) == 0);
    must(run, bpk_edits_fsync_folder(run->kit.edits) == 0);
}

static void do_handle(struct run *run) {
    struct handle *handle = &run->handles[below(run, HANDLES)];
    if (handle->file >= 0) {
        struct model_file *file = &run->files[handle->file];
        say(run, "close %d", handle->file);
        bpk_edits_released(run->kit.edits, file->number, handle->for_writing);
        if (--file->opens == 0 && file->name < 0)
            file->live = false;
        handle->file = -1;
        return;
    }
    int file = run->names[below(run, NAMES)].file;
    if (file < 0)
        return;
    say(run, "open %d", file);
    struct bpk_place place = place_of(run, file);
    *handle = (struct handle){file, below(run, 2) == 0};
    bpk_edits_opened(run->kit.edits, &place, handle->for_writing);
    run->files[file].opens++;
}

static void do_reopen(struct run *run) {
    char copy[TEMP_PATH];
    bool killed = below(run, 3) == 0;
    say(run, killed ? "kill" : "reopen");
    for (int i = 0; i < FILES; i++)
        run->files[i].opens = 0;
    for (int i = 0; i < FILES; i++)
        if (run->files[i].live && run->files[i].name < 0)
            run->files[i].live = false;
    for (int i = 0; i < HANDLES; i++)
        run->handles[i].file = -1;
    if (killed)
        kit_keep_edits(&run->kit, copy);
    kit_close(&run->kit);
    if (killed)
        kit_put_back_edits(&run->kit, copy);
    kit_open(&run->kit);
    for (int i = 0; i < NAMES; i++) {
        struct bpk_place place = kit_place(&run->kit, BPK_IN_TENSORS, names[i]);
        if (place.number && run->names[i].file >= 0)
            run->files[run->names[i].file].number = place.number;
    }
    compare_mount(run);
    run->reopens++;
}

/* Makes every tensor whole, as its owner would before a commit. */
static void make_whole(struct run *run) {
    for (int i = 0; i < FIRST_BACKUP; i++) {
        struct model_name *name = &run->names[i];
        int aside = name->file < 0 && !name->has_desc ? aside_of(run, i) : -1;
        if (name->file < 0 && name->has_desc) { /* a sidecar without bytes */
            uint64_t number;
            must(run,
                 bpk_edits_create(run->kit.edits, BPK_IN_TENSORS, names[i], 0600, &number) == 0);
            new_file(run, i, number);
        }
        if (aside >= 0 && name->remembers && run->files[aside].len != name->remembered_len) {
            struct bpk_place place = place_of(run, aside);
            must(run, name->remembered_len <= SIZE_MAX_HERE);
            must(run, bpk_edits_truncate(run->kit.edits, &place, name->remembered_len) == 0);
            resize(&run->files[aside], name->remembered_len);
        }
        if (name->file >= 0 && name->has_desc && run->files[name->file].len != name->desc_len)
            write_sidecar(run, i, run->files[name->file].len);
    }
}

static void show_edit(void *context, const struct bpk_edit *edit) {
    (void)context;
    fprintf(stderr, "    %s: kind %d %s\n", edit->path, (int)edit->kind,
            edit->problem ? edit->problem : "");
}

static void do_commit(struct run *run) {
    struct bpk_commit_result result;
    say(run, "commit");
    make_whole(run);
    if (run->trace)
        bpk_edits_list(run->kit.edits, show_edit, NULL);
    int r = kit_commit(&run->kit, below(run, 4) == 0 ? BPK_COMMIT_VALID : BPK_COMMIT_ALL, &result);
    if (r != 0)
        say(run, "commit: %d %s", r, run->kit.diag.sentence);
    must(run, r == 0);
    must(run, result.left_out == 0);
    compare_pack(run);
    check_pack(run);
    for (int i = 0; i < NAMES; i++) {
        struct model_name *name = &run->names[i];
        int file = in_pack(run, i);
        name->in_base = name->has_desc = file >= 0;
        name->remembers = false;
        if (file >= 0)
            name->desc_len = run->files[file].len;
        if (file >= 0 && name->file < 0)
            put_back(run, i, &run->files[file]);
    }
    compare_mount(run);
    run->commits++;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static const struct {
    void (*operation)(struct run *run);
    unsigned weight;
} operations[] = {
    {do_write, 300}, {do_truncate, 120},     {do_read, 250},   {do_create, 60},
    {do_unlink, 35}, {do_rename, 60},        {do_sidecar, 40}, {do_fsync, 20},
    {do_handle, 80}, {do_remove_sidecar, 8}, {do_reopen, 4},   {do_commit, 6},
};

void ops_step(struct run *run) {
    unsigned total = 0;
    for (int i = 0; i < ROWS(operations); i++)
        total += operations[i].weight;
    uint64_t at = below(run, total);
    int i = 0;
    while (at >= operations[i].weight)
        at -= operations[i++].weight;
    operations[i].operation(run);
}

/* Lengths that lie close to the next tensor, or fill their blocks exactly. */
static const size_t base_sizes[8] = {0, 1, 255, 4096, 5100, 12288, 100000, 4095};

void ops_begin(struct run *run) {
    struct packspec spec;
    spec_init(&spec, run->seed % 2 ? BPK_LAYOUT_LEGACY : BPK_LAYOUT_ALIGNED);
    for (int i = 0; i < 8; i++)
        spec_u8(&spec, names[i], base_sizes[i]);
    spec_metadata(&spec, "producer", "burn");
    if (run->seed % 2)
        spec_metadata(&spec, "version", "0.19.0");
    kit_begin(&run->kit, &spec);
    spec_clear(&spec);
    for (int i = 0; i < NAMES; i++)
        run->names[i] = (struct model_name){.file = -1};
    for (int i = 0; i < HANDLES; i++)
        run->handles[i].file = -1;
    for (int i = 0; i < 8; i++) {
        struct bpk_place place = kit_place(&run->kit, BPK_IN_TENSORS, names[i]);
        size_t n;
        must(run, place.number != 0);
        int file = new_file(run, i, place.number);
        run->files[file].len = base_sizes[i];
        must(run, bpk_edits_read(run->kit.edits, &place, 0, run->files[file].data, base_sizes[i],
                                 &n) == 0);
        run->names[i] = (struct model_name){
            .file = file, .in_base = true, .has_desc = true, .desc_len = base_sizes[i]};
    }
}

void ops_end(struct run *run) {
    do_reopen(run);
    do_commit(run);
    kit_reopen(&run->kit);
    kit_end(&run->kit);
    for (int i = 0; i < FILES; i++) {
        free(run->files[i].data);
        run->files[i] = (struct model_file){0};
    }
}
