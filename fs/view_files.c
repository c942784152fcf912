#include "view_files.h"

#include "seen.h"
#include "view/f32.h"
#include "view/npy.h"
#include "view_exports.h"
#include "view_refusals.h"
#include "view_stats.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bpk_view {
    struct bpk_mount *mount;
    struct bpk_node node;
    struct bpk_node tensor;
    struct bpk_current current; /* as it was when the view was opened */
    struct bpk_outbuf head;     /* NumPy's header */
    struct bpk_f32 *f32;
    struct bpk_export *export;
    bool keeps_cache;
    bool is_counted; /* among the open files of the tensor's own, which lives on while it is open */
    pthread_mutex_t lock;   /* of what is computed when it is first read */
    struct bpk_outbuf text; /* of statistics; guarded by lock */
};

/* ---- opening --------------------------------------------------------------------------------- */

static int compose_f32(const struct bpk_current *current, struct bpk_f32 **ret_f32,
                       struct bpk_outbuf *head) {
    int r = bpk_f32_new(&current->array, ret_f32, NULL);
    if (r == 0)
        bpk_npy_header(head, "<f4", current->array.dims, current->array.rank);
    /* Bytes and shape that do not go together have no values either. */
    return r == -EINVAL ? -ENOTSUP : r;
}

static void count_open(struct bpk_view *view) {
    char name[BPK_FILE_NAME_BUF + 8];
    if (!view->mount->edits)
        return;
    struct bpk_place place = bpk_node_place(view->mount, &view->tensor, name);
    bpk_edits_opened(view->mount->edits, &place, false);
    view->is_counted = true;
}

static int prepare(struct bpk_view *view) {
    int r = 0;
    struct bpk_f32 *f32 = NULL;
    if (bpk_view_is_export(&view->node)) {
        r = bpk_view_export(view->mount, &view->node, &view->export);
        if (r == 0 && view->node.kind == BPK_NODE_EXPORT_PACK && !bpk_export_is_whole(view->export))
            r = -EBADMSG;
        view->keeps_cache = true; /* another export is another file */
        return r;
    }
    r = bpk_view_tensor(view->mount, &view->node, &view->tensor);
    if (r == 0)
        r = bpk_view_current(view->mount, &view->node, &view->current);
    if (r < 0)
        return r;
    count_open(view);
    view->keeps_cache =
        bpk_seen_version(view->mount, bpk_view_number(&view->node), view->current.version);
    if (view->node.kind == BPK_NODE_NPY)
        bpk_npy_array_header(&view->head, &view->current.array);
    else if (view->node.kind == BPK_NODE_F32)
        r = compose_f32(&view->current, &view->f32, &view->head);
    else
        r = bpk_f32_new(&view->current.array, &f32, NULL); /* only what has values */
    bpk_f32_free(f32);
    if (r == -EINVAL)
        r = -ENOTSUP;
    return r == 0 && view->head.failed ? -ENOMEM : r;
}

int bpk_view_open(struct bpk_mount *mount, const struct bpk_node *node,
                  struct bpk_view **ret_view) {
    struct bpk_view *view = calloc(1, sizeof(*view));
    if (!view)
        return -ENOMEM;
    view->mount = mount;
    view->node = *node;
    (void)pthread_mutex_init(&view->lock, NULL);
    int r = prepare(view);
    if (r == -ENOTSUP)
        bpk_view_note_refusal(mount, node);
    if (r < 0) {
        bpk_view_close(view);
        return r;
    }
    *ret_view = view;
    return 0;
}

void bpk_view_close(struct bpk_view *view) {
    if (!view)
        return;
    if (view->is_counted)
        bpk_edits_released(view->mount->edits, bpk_node_number(&view->tensor), false);
    bpk_current_clear(&view->current);
    bpk_outbuf_clear(&view->head);
    bpk_outbuf_clear(&view->text);
    bpk_f32_free(view->f32);
    bpk_export_unref(view->export);
    (void)pthread_mutex_destroy(&view->lock);
    free(view);
}

bool bpk_view_keeps_cache(const struct bpk_view *view) {
    return view->keeps_cache;
}

uint64_t bpk_view_size(const struct bpk_view *view) {
    if (view->export)
        return bpk_export_size(view->export);
    if (view->node.kind == BPK_NODE_STATS)
        return bpk_view_stats_size(&view->current);
    return view->head.len +
           (view->f32 ? bpk_f32_count(view->f32) * sizeof(float) : view->current.array.size);
}

struct bpk_mount *bpk_view_mount(const struct bpk_view *view) {
    return view->mount;
}

const struct bpk_node *bpk_view_node(const struct bpk_view *view) {
    return &view->node;
}

const struct bpk_outbuf *bpk_view_head(const struct bpk_view *view) {
    return &view->head;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_tensor(const struct bpk_view *view, uint64_t offset, void *buffer, size_t size,
                       size_t *ret_read) {
    if (!view->mount->edits)
        return bpk_pack_read(view->mount->pack, view->tensor.index, offset, buffer, size, ret_read);
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(view->mount, &view->tensor, name);
    int r = bpk_edits_read(view->mount->edits, &place, offset, buffer, size, ret_read);
    return r == -ENODATA ? -ESTALE : r; /* the tensor is gone */
}

/* For a source: all of it or an error. A tensor that was cut since the view was opened is not the
 * one that it was opened for. */
static int read_exactly(void *context, uint64_t offset, void *buffer, size_t size) {
    const struct bpk_view *view = context;
    size_t n;
    int r = read_tensor(view, offset, buffer, size, &n);
    if (r == 0 && n < size)
        r = view->mount->edits ? -ESTALE : -EIO;
    return r;
}

static int read_values(struct bpk_view *view, uint64_t offset, void *buffer, size_t size,
                       size_t *ret_read) {
    enum { WIDTH = sizeof(float) };
    const struct bpk_source source = {read_exactly, view};
    uint64_t total = bpk_f32_count(view->f32) * WIDTH;
    char *out = buffer;
    int r = 0;
    size = offset >= total ? 0 : size < total - offset ? size : (size_t)(total - offset);
    *ret_read = size;
    while (size > 0 && r == 0) {
        size_t skip = (size_t)(offset % WIDTH);
        size_t n = size / WIDTH * WIDTH;
        if (skip == 0 && n > 0 && (uintptr_t)out % WIDTH == 0) {
            r = bpk_f32_read(view->f32, &source, offset / WIDTH, n / WIDTH, (float *)(void *)out);
        } else { /* a part of a value */
            float value;
            n = size < WIDTH - skip ? size : WIDTH - skip;
            r = bpk_f32_read(view->f32, &source, offset / WIDTH, 1, &value);
            memcpy(out, (const char *)&value + skip, n);
        }
        out += n;
        offset += n;
        size -= n;
    }
    return r;
}

static int read_text(const struct bpk_outbuf *text, uint64_t offset, void *buffer, size_t size,
                     size_t *ret_read) {
    size_t start = offset < text->len ? (size_t)offset : text->len;
    *ret_read = size < text->len - start ? size : text->len - start;
    if (*ret_read > 0)
        memcpy(buffer, text->text + start, *ret_read);
    return 0;
}

static int read_stats(struct bpk_view *view, uint64_t offset, void *buffer, size_t size,
                      size_t *ret_read) {
    const struct bpk_source source = {read_exactly, view};
    int r = 0;
    pthread_mutex_lock(&view->lock);
    if (view->text.len == 0)
        r = bpk_view_stats(view->mount, &view->current, &source, &view->text);
    if (r == 0)
        r = read_text(&view->text, offset, buffer, size, ret_read);
    pthread_mutex_unlock(&view->lock);
    return r;
}

int bpk_view_read(struct bpk_view *view, uint64_t offset, void *buffer, size_t size,
                  size_t *ret_read) {
    size_t head = 0;
    size_t n = 0;
    if (view->export)
        return bpk_export_read(view->export, offset, buffer, size, ret_read);
    if (view->node.kind == BPK_NODE_STATS)
        return read_stats(view, offset, buffer, size, ret_read);
    if (offset < view->head.len)
        (void)read_text(&view->head, offset, buffer, size, &head);
    uint64_t at = offset + head - view->head.len;
    int r = head == size ? 0
            : view->f32  ? read_values(view, at, (char *)buffer + head, size - head, &n)
                         : read_tensor(view, at, (char *)buffer + head, size - head, &n);
    *ret_read = head + n;
    return r;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int tensor_view_size(enum bpk_node_kind kind, const struct bpk_current *current,
                            uint64_t *ret_size) {
    struct bpk_outbuf counter = {.counting = true};
    struct bpk_f32 *f32 = NULL;
    int r = 0;
    if (kind == BPK_NODE_NPY) {
        bpk_npy_array_header(&counter, &current->array);
        *ret_size = counter.len + current->array.size;
        return 0;
    }
    *ret_size = 0; /* of what cannot be opened */
    if (kind == BPK_NODE_STATS) {
        r = bpk_f32_new(&current->array, &f32, NULL);
        if (r == 0)
            *ret_size = bpk_view_stats_size(current);
    } else {
        r = compose_f32(current, &f32, &counter);
        if (r == 0)
            *ret_size = counter.len + bpk_f32_count(f32) * sizeof(float);
    }
    bpk_f32_free(f32);
    return r == -ENOMEM ? r : 0;
}

int bpk_view_stat(struct bpk_mount *mount, const struct bpk_node *node, uint64_t *ret_size,
                  struct bpk_node *ret_tensor) {
    struct bpk_export *export;
    struct bpk_current current;
    int r;
    *ret_tensor = (struct bpk_node){0};
    if (bpk_view_is_export(node)) {
        r = bpk_view_export(mount, node, &export);
        if (r < 0)
            return r;
        *ret_size = bpk_export_size(export);
        bpk_export_unref(export);
        return 0;
    }
    r = bpk_view_tensor(mount, node, ret_tensor);
    if (r == 0)
        r = bpk_view_current(mount, node, &current);
    if (r < 0)
        return r;
    r = tensor_view_size(node->kind, &current, ret_size);
    bpk_current_clear(&current);
    return r;
}
