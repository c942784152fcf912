#include "bpk.h"

#include "pack/diag.h"
#include "pack/io.h"
#include "pack/layout.h"
#include "pack/pack_internal.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/* Compiled in: libbpk.so needs no other library for it. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- opening --------------------------------------------------------------------------------- */

static int open_file(const char *path, struct bpk_pack *pack, struct bpk_diag *diag) {
    /* O_NONBLOCK: a FIFO that nobody writes must not hang us; it means nothing to a file. */
    pack->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (pack->fd < 0)
        return bpk_diag_set(diag, -errno, BPK_NO_OFFSET, "cannot open: %s", strerror(errno));
    if (fstat(pack->fd, &pack->stat) < 0)
        return bpk_diag_set(diag, -errno, BPK_NO_OFFSET, "cannot stat: %s", strerror(errno));
    if (S_ISDIR(pack->stat.st_mode))
        return bpk_diag_set(diag, -EISDIR, BPK_NO_OFFSET, "is a directory, not a pack");
    if (!S_ISREG(pack->stat.st_mode))
        return bpk_diag_set(diag, -EINVAL, BPK_NO_OFFSET, "is not a regular file");
    if ((uint64_t)pack->stat.st_size > BPK_MAX_FILE)
        return bpk_diag_set(
            diag, -EBADMSG, BPK_NO_OFFSET, "a file of %llu bytes exceeds the limit of %llu",
            (unsigned long long)pack->stat.st_size, (unsigned long long)BPK_MAX_FILE);
    return 0;
}

static int read_some(const struct bpk_pack *pack, uint64_t offset, void *buffer, size_t size,
                     size_t *ret_read, struct bpk_diag *diag) {
    int r = bpk_io_pread(pack->fd, offset, buffer, size, ret_read);
    if (r < 0)
        return bpk_diag_set(diag, r, offset, "cannot read: %s", strerror(-r));
    return 0;
}

/* A large block is touched page by page, here and there: fewer and larger pages cost less. */
static void use_large_pages(uint8_t *block, size_t size) {
    enum { LARGE = 4 << 20, PAGE = 4096 };
    uintptr_t start = ((uintptr_t)block + PAGE - 1) / PAGE * PAGE;
    uintptr_t end = ((uintptr_t)block + size) / PAGE * PAGE;
    if (size >= LARGE)
        (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}

static int hash_table(const uint8_t *header, const uint8_t *block, size_t size,
                      uint64_t *ret_hash) {
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return -ENOMEM;
    (void)XXH3_64bits_reset(state);
    (void)XXH3_64bits_update(state, header, BPK_HEADER_SIZE);
    (void)XXH3_64bits_update(state, block, size);
    *ret_hash = XXH3_64bits_digest(state);
    (void)XXH3_freeState(state);
    return 0;
}

static int read_metadata(struct bpk_pack *pack, struct bpk_diag *diag) {
    uint8_t header[BPK_HEADER_SIZE];
    size_t n;
    int r = read_some(pack, 0, header, sizeof(header), &n, diag);
    if (r == 0)
        r = bpk_header_parse(header, n, &pack->header, diag);
    if (r < 0)
        return r;
    size_t size = pack->header.metadata_size;
    if ((uint64_t)pack->stat.st_size < BPK_HEADER_SIZE + size)
        return bpk_diag_set(diag, -EBADMSG, (uint64_t)pack->stat.st_size,
                            "the file is truncated: it has %llu bytes, its metadata alone needs "
                            "%zu",
                            (unsigned long long)pack->stat.st_size, BPK_HEADER_SIZE + size);
    _cleanup_free_ uint8_t *block = malloc(size > 0 ? size : 1);
    if (!block)
        return bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    use_large_pages(block, size);
    r = read_some(pack, BPK_HEADER_SIZE, block, size, &n, diag);
    if (r < 0)
        return r;
    if (n < size)
        return bpk_diag_set(diag, -EBADMSG, BPK_HEADER_SIZE + n,
                            "the file was cut while it was read");
    if (hash_table(header, block, size, &pack->table_hash) < 0) /* parsing changes the block */
        return bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    return bpk_meta_parse(bpk_steal_ptr(block), size, BPK_HEADER_SIZE, &pack->meta, diag);
}

static int complain_of(const struct bpk_pack *pack, const struct bpk_meta_tensor *tensor,
                       struct bpk_diag *diag, const char *what, uint64_t a, uint64_t b) {
    char shown[100];
    struct bpk_str name = bpk_meta_text(&pack->meta, tensor->name);
    bpk_text_escape(name.bytes, name.len, shown, sizeof(shown));
    return bpk_diag_set(diag, -EBADMSG, BPK_HEADER_SIZE + tensor->name,
                        "tensor '%s': data_offsets [%llu, %llu] %s", shown, (unsigned long long)a,
                        (unsigned long long)b, what);
}

/* Remembers a tensor that salvage leaves out. False: out of memory. */
static bool note_lost(struct bpk_pack *pack, const struct bpk_meta_tensor *tensor) {
    if (bpk_grow((void **)&pack->lost, &pack->lost_capacity, pack->lost_count,
                 sizeof(pack->lost[0])) < 0)
        return false;
    pack->lost[pack->lost_count++] = *tensor;
    return true;
}

/* What any layout needs of a range, and the end of the data section. */
static int check_ranges(struct bpk_pack *pack, bool salvage, struct bpk_diag *diag) {
    uint64_t data_size = 0;
    size_t kept = 0;
    for (size_t i = 0; i < pack->meta.tensor_count; i++) {
        const struct bpk_meta_tensor *t = &pack->meta.tensors[i];
        const char *fault = NULL;
        if (t->end < t->start)
            fault = "end before they start";
        else if (t->end > (uint64_t)INT64_MAX / 2)
            fault = "lie beyond the end of any file";
        else if (t->end - t->start > BPK_MAX_TENSOR)
            fault = "hold more than the limit of 10 GiB a tensor";
        if (fault && !salvage)
            return complain_of(pack, t, diag, fault, t->start, t->end);
        if (fault) {
            if (!note_lost(pack, t))
                return bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
            continue;
        }
        if (t->end > data_size)
            data_size = t->end;
        pack->meta.tensors[kept++] = *t;
    }
    pack->meta.tensor_count = kept;
    pack->data_size = data_size;
    return 0;
}

static struct bpk_str metadata_value(const struct bpk_pack *pack, const char *key) {
    uint32_t index;
    struct bpk_str value = {0};
    if (bpk_pack_find_metadata(pack, (struct bpk_str){key, strlen(key)}, &index) == 0)
        bpk_pack_metadata(pack, index, &(struct bpk_str){0}, &value);
    return value;
}

static int gather_facts(const struct bpk_pack *pack, struct bpk_layout_facts *ret_facts,
                        struct bpk_diag *diag) {
    struct bpk_layout_facts facts = {
        .unaligned_start = BPK_HEADER_SIZE + (uint64_t)pack->header.metadata_size,
        .data_size = pack->data_size,
        .file_size = (uint64_t)pack->stat.st_size,
        .starts_aligned = true,
        .padding_is_zero = true,
        .has_metadata = pack->meta.has_metadata,
        .is_modern = pack->meta.has_scalars,
        .has_zero_tail =
            pack->meta.block_size < pack->header.metadata_size && pack->meta.tail_is_zero,
        .version = metadata_value(pack, "version"),
        .producer = metadata_value(pack, "producer"),
    };
    for (size_t i = 0; i < pack->meta.tensor_count; i++) {
        const struct bpk_meta_tensor *t = &pack->meta.tensors[i];
        if (t->start % BPK_ALIGNMENT != 0)
            facts.starts_aligned = false;
        if (t->flags & BPK_TENSOR_MODERN_DTYPE)
            facts.is_modern = true;
    }
    uint64_t offset;
    int r = bpk_io_find_nonzero(pack->fd, facts.unaligned_start,
                                bpk_layout_align(facts.unaligned_start), &offset);
    if (r < 0)
        return bpk_diag_set(diag, r, facts.unaligned_start, "cannot read: %s", strerror(-r));
    facts.padding_is_zero = r == 0;
    *ret_facts = facts;
    return 0;
}

static int decide_layout(struct bpk_pack *pack, const struct bpk_open_options *options,
                         struct bpk_diag *diag) {
    struct bpk_layout_facts facts;
    int r = gather_facts(pack, &facts, diag);
    if (r < 0)
        return r;
    if (options->force_layout) {
        pack->layout = options->layout;
        enum bpk_layout found;
        pack->overruled = pack->data_size > 0 && bpk_layout_detect(&facts, &found, NULL) == 0 &&
                          bpk_layout_data_start(found, facts.unaligned_start) !=
                              bpk_layout_data_start(pack->layout, facts.unaligned_start);
    } else {
        r = bpk_layout_detect(&facts, &pack->layout, options->salvage ? NULL : diag);
        if (r < 0 && !options->salvage)
            return r;
        if (r < 0)
            pack->layout = bpk_layout_guess(&facts);
    }
    pack->data_start = bpk_layout_data_start(pack->layout, facts.unaligned_start);
    uint64_t needed = pack->data_start + pack->data_size;
    if (pack->data_size > 0 && facts.file_size < needed && !options->salvage)
        return bpk_diag_set(diag, -EBADMSG, facts.file_size,
                            "the file is truncated: it has %llu bytes, its tensors need %llu",
                            (unsigned long long)facts.file_size, (unsigned long long)needed);
    return 0;
}

/* Drops the tensors that a truncated file no longer holds. False: out of memory. */
static bool drop_lost(struct bpk_pack *pack) {
    size_t kept = 0;
    uint64_t held = (uint64_t)pack->stat.st_size - pack->data_start;
    if ((uint64_t)pack->stat.st_size < pack->data_start)
        held = 0;
    pack->data_size = 0;
    for (size_t i = 0; i < pack->meta.tensor_count; i++) {
        const struct bpk_meta_tensor *t = &pack->meta.tensors[i];
        if (t->end > held) {
            if (!note_lost(pack, t))
                return false;
            continue;
        }
        if (t->end > pack->data_size)
            pack->data_size = t->end;
        pack->meta.tensors[kept++] = *t;
    }
    pack->meta.tensor_count = kept;
    return true;
}

static int compare_starts(const void *a, const void *b, void *context) {
    const struct bpk_meta_tensor *tensors = context;
    uint32_t i = *(const uint32_t *)a;
    uint32_t k = *(const uint32_t *)b;
    if (tensors[i].start != tensors[k].start)
        return tensors[i].start < tensors[k].start ? -1 : 1;
    if (tensors[i].end != tensors[k].end)
        return tensors[i].end < tensors[k].end ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* Sorts by place in the file and marks what overlaps: each such tensor, and one other with it. */
static int order_data(struct bpk_pack *pack) {
    size_t count = pack->meta.tensor_count;
    struct bpk_meta_tensor *tensors = pack->meta.tensors;
    pack->data_order = calloc(count > 0 ? count : 1, sizeof(pack->data_order[0]));
    if (!pack->data_order)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        pack->data_order[i] = (uint32_t)i;
    qsort_r(pack->data_order, count, sizeof(pack->data_order[0]), compare_starts, tensors);
    uint64_t reached = 0;
    uint32_t holder = 0; /* the tensor that ends at `reached` */
    for (size_t k = 0; k < count; k++) {
        uint32_t i = pack->data_order[k];
        if (tensors[i].start == tensors[i].end)
            continue;
        if (tensors[i].start < reached) {
            tensors[i].flags |= BPK_TENSOR_OVERLAPS;
            tensors[i].partner = holder;
            if (!(tensors[holder].flags & BPK_TENSOR_OVERLAPS)) {
                tensors[holder].flags |= BPK_TENSOR_OVERLAPS;
                tensors[holder].partner = i;
            }
        }
        if (tensors[i].end > reached) {
            reached = tensors[i].end;
            holder = i;
        }
    }
    return 0;
}

static int load(struct bpk_pack *pack, const char *path, const struct bpk_open_options *options,
                struct bpk_diag *diag) {
    int r = open_file(path, pack, diag);
    if (r == 0)
        r = read_metadata(pack, diag);
    if (r == 0)
        r = check_ranges(pack, options->salvage, diag);
    if (r == 0)
        r = decide_layout(pack, options, diag);
    if (r < 0)
        return r;
    if (options->salvage && !drop_lost(pack))
        return bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    r = order_data(pack);
    if (r < 0)
        return bpk_diag_set(diag, r, BPK_NO_OFFSET, "out of memory");
    return 0;
}

int bpk_pack_open(const char *path, const struct bpk_open_options *options,
                  struct bpk_pack **ret_pack, struct bpk_diag *ret_diag) {
    static const struct bpk_open_options defaults = {0};
    struct bpk_pack *pack = calloc(1, sizeof(*pack));
    if (!pack)
        return bpk_diag_set(ret_diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    atomic_init(&pack->references, 1);
    atomic_init(&pack->readers, 1);
    pack->fd = -1;
    int r = load(pack, path, options ? options : &defaults, ret_diag);
    if (r < 0) {
        bpk_pack_unref(pack);
        return r;
    }
    *ret_pack = pack;
    return 0;
}

struct bpk_pack *bpk_pack_ref(struct bpk_pack *pack) {
    atomic_fetch_add_explicit(&pack->readers, 1, memory_order_relaxed);
    return bpk_pack_ref_table(pack);
}

void bpk_pack_unref(struct bpk_pack *pack) {
    if (!pack)
        return;
    if (atomic_fetch_sub_explicit(&pack->readers, 1, memory_order_acq_rel) == 1 && pack->fd >= 0) {
        close(pack->fd);
        pack->fd = -1;
    }
    bpk_pack_unref_table(pack);
}

struct bpk_pack *bpk_pack_ref_table(struct bpk_pack *pack) {
    atomic_fetch_add_explicit(&pack->references, 1, memory_order_relaxed);
    return pack;
}

void bpk_pack_unref_table(struct bpk_pack *pack) {
    if (!pack || atomic_fetch_sub_explicit(&pack->references, 1, memory_order_acq_rel) != 1)
        return;
    bpk_meta_clear(&pack->meta);
    free(pack->data_order);
    free(pack->lost);
    free(pack);
}

/* ---- asking ---------------------------------------------------------------------------------- */

void bpk_pack_get_info(const struct bpk_pack *pack, struct bpk_pack_info *ret_info) {
    *ret_info = (struct bpk_pack_info){
        .version = pack->header.version,
        .metadata_size = pack->header.metadata_size,
        .cbor_size = (uint32_t)pack->meta.block_size,
        .layout = pack->layout,
        .data_start = pack->data_start,
        .data_end = pack->data_start + pack->data_size,
        .tensors = (uint32_t)pack->meta.tensor_count,
        .metadata_entries = (uint32_t)pack->meta.entry_count,
        .scalars = (uint32_t)pack->meta.scalar_count,
    };
}

const struct stat *bpk_pack_stat(const struct bpk_pack *pack) {
    return &pack->stat;
}

int bpk_pack_fd(const struct bpk_pack *pack) {
    return pack->fd;
}

bool bpk_pack_is_changed(const struct bpk_pack *pack) {
    struct stat now;
    if (fstat(pack->fd, &now) < 0)
        return true;
    return now.st_dev != pack->stat.st_dev || now.st_ino != pack->stat.st_ino ||
           now.st_size != pack->stat.st_size || now.st_mtim.tv_sec != pack->stat.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != pack->stat.st_mtim.tv_nsec;
}

struct bpk_str bpk_pack_tensor_name(const struct bpk_pack *pack, uint32_t index) {
    return bpk_meta_text(&pack->meta, pack->meta.tensors[index].name);
}

void bpk_pack_tensor(const struct bpk_pack *pack, uint32_t index, struct bpk_tensor *ret_tensor) {
    const struct bpk_meta_tensor *t = &pack->meta.tensors[index];
    *ret_tensor = (struct bpk_tensor){
        .name = bpk_meta_text(&pack->meta, t->name),
        .kind = (enum bpk_kind)t->kind,
        .has_param_id = t->flags & BPK_TENSOR_HAS_PARAM_ID,
        .param_id = t->param_id,
        .start = pack->data_start + t->start,
        .end = pack->data_start + t->end,
        .rank = t->rank,
    };
}

void bpk_pack_tensor_dtype(const struct bpk_pack *pack, uint32_t index,
                           struct bpk_dtype *ret_dtype) {
    bpk_meta_dtype(&pack->meta, &pack->meta.tensors[index], ret_dtype);
}

struct bpk_shape bpk_pack_tensor_shape(const struct bpk_pack *pack, uint32_t index) {
    return bpk_meta_shape(&pack->meta, &pack->meta.tensors[index]);
}

uint32_t bpk_pack_lower_bound(const struct bpk_pack *pack, struct bpk_str name) {
    size_t low = 0;
    size_t high = pack->meta.tensor_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bpk_str_compare(bpk_pack_tensor_name(pack, (uint32_t)middle), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

int bpk_pack_find_tensor(const struct bpk_pack *pack, struct bpk_str name, uint32_t *ret_index) {
    uint32_t index = bpk_pack_lower_bound(pack, name);
    if (index == pack->meta.tensor_count ||
        bpk_str_compare(bpk_pack_tensor_name(pack, index), name) != 0)
        return -ENOENT;
    *ret_index = index;
    return 0;
}

void bpk_pack_metadata(const struct bpk_pack *pack, uint32_t index, struct bpk_str *ret_key,
                       struct bpk_str *ret_value) {
    *ret_key = bpk_meta_text(&pack->meta, pack->meta.entries[index].key);
    *ret_value = bpk_meta_text(&pack->meta, pack->meta.entries[index].value);
}

int bpk_pack_find_metadata(const struct bpk_pack *pack, struct bpk_str key, uint32_t *ret_index) {
    size_t low = 0;
    size_t high = pack->meta.entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order =
            bpk_str_compare(bpk_meta_text(&pack->meta, pack->meta.entries[middle].key), key);
        if (order == 0) {
            *ret_index = (uint32_t)middle;
            return 0;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -ENOENT;
}

const char *bpk_scalar_kind_name(enum bpk_scalar_kind kind) {
    static const char *const names[] = {
        [BPK_SCALAR_INT] = "Int",
        [BPK_SCALAR_UINT] = "UInt",
        [BPK_SCALAR_FLOAT] = "Float",
        [BPK_SCALAR_BOOL] = "Bool",
    };
    return names[kind];
}

void bpk_pack_scalar(const struct bpk_pack *pack, uint32_t index, struct bpk_scalar *ret_scalar) {
    const struct bpk_meta_scalar *s = &pack->meta.scalars[index];
    *ret_scalar = (struct bpk_scalar){
        .name = bpk_meta_text(&pack->meta, s->key),
        .kind = (enum bpk_scalar_kind)s->kind,
        .bits = s->bits,
    };
}

int bpk_pack_read(const struct bpk_pack *pack, uint32_t index, uint64_t offset, void *buffer,
                  size_t size, size_t *ret_read) {
    const struct bpk_meta_tensor *t = &pack->meta.tensors[index];
    uint64_t length = t->end - t->start;
    if (offset >= length) {
        *ret_read = 0;
        return 0;
    }
    if (size > length - offset)
        size = (size_t)(length - offset);
    if (bpk_pack_is_changed(pack))
        return -EIO;
    size_t n;
    int r = bpk_io_pread(pack->fd, pack->data_start + t->start + offset, buffer, size, &n);
    if (r < 0)
        return r;
    if (n < size || bpk_pack_is_changed(pack))
        return -EIO;
    *ret_read = n;
    return 0;
}

void bpk_pack_drop_cache(const struct bpk_pack *pack, uint32_t index, uint64_t offset,
                         uint64_t size) {
    struct bpk_tensor tensor;
    bpk_pack_tensor(pack, index, &tensor);
    uint64_t length = tensor.end - tensor.start;
    if (offset >= length)
        return;
    if (size > length - offset)
        size = length - offset;
    (void)posix_fadvise(pack->fd, (off_t)(tensor.start + offset), (off_t)size, POSIX_FADV_DONTNEED);
}
