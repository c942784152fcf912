#include "view_writes.h"

#include "seen.h"
#include "view/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool bpk_view_is_writable(const struct bpk_mount *mount, const struct bpk_node *node) {
    return mount->edits && node->kind == BPK_NODE_NPY;
}

int bpk_view_place(struct bpk_mount *mount, const struct bpk_node *node,
                   char name[BPK_FILE_NAME_BUF + 8], struct bpk_place *ret_place) {
    struct bpk_node tensor;
    int r = bpk_view_tensor(mount, node, &tensor);
    if (r == 0)
        *ret_place = bpk_node_place(mount, &tensor, name);
    return r;
}

int bpk_view_npy_name(struct bpk_mount *mount, const struct bpk_node *node,
                      char ret_name[BPK_FILE_NAME_BUF]) {
    struct bpk_current current;
    int r = bpk_view_current(mount, node, &current);
    if (r < 0)
        return r;
    (void)snprintf(ret_name, BPK_FILE_NAME_BUF, "%.250s.npy", current.name);
    bpk_current_clear(&current);
    return 0;
}

int bpk_view_truncate(struct bpk_mount *mount, const struct bpk_node *node, uint64_t size) {
    struct bpk_node tensor;
    char name[BPK_FILE_NAME_BUF];
    uint64_t now;
    int r = bpk_view_stat(mount, node, &now, &tensor);
    if (r < 0)
        return r;
    if (size > 0)
        return size == now ? 0 : -EINVAL;
    r = bpk_view_npy_name(mount, node, name);
    return r < 0 ? r : bpk_edits_begin_array(mount->edits, name, bpk_view_number(node));
}

static bool is_same(const struct bpk_npy *a, const struct bpk_npy *b) {
    return a->header_size == b->header_size && a->kind == b->kind &&
           a->is_big_endian == b->is_big_endian && a->is_fortran == b->is_fortran &&
           a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

/* Whether a header with some of its bytes written anew says what it said. */
static int check_header(const struct bpk_outbuf *head, uint64_t offset, const char *bytes,
                        size_t size) {
    struct bpk_npy before;
    struct bpk_npy after;
    if (memcmp(head->text + offset, bytes, size) == 0)
        return 0;
    char *patched = malloc(head->len);
    if (!patched)
        return -ENOMEM;
    memcpy(patched, head->text, head->len);
    memcpy(patched + offset, bytes, size);
    bool same = bpk_npy_parse(patched, head->len, &after, NULL) == 0 &&
                bpk_npy_parse(head->text, head->len, &before, NULL) == 0 &&
                is_same(&before, &after);
    free(patched);
    return same ? 0 : -EINVAL;
}

static int write_data(struct bpk_mount *mount, const struct bpk_node *node, uint64_t offset,
                      const char *bytes, size_t size) {
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place;
    struct bpk_current current;
    int r = bpk_view_place(mount, node, name, &place);
    if (r == 0)
        r = bpk_edits_write(mount->edits, &place, offset, bytes, size);
    if (r < 0)
        return r;
    bpk_seen_changed_elsewhere(mount, place.number);
    if (bpk_view_current(mount, node, &current) == 0) { /* the kernel has what was written here */
        (void)bpk_seen_version(mount, bpk_view_number(node), current.version);
        bpk_current_clear(&current);
    }
    /* Attributes only, and with no lock held. */
    (void)fuse_lowlevel_notify_inval_inode(mount->session, place.number, -1, 0);
    return 0;
}

int bpk_view_write(struct bpk_view *view, uint64_t offset, const char *bytes, size_t size) {
    const struct bpk_outbuf *head = bpk_view_head(view);
    struct bpk_mount *mount = bpk_view_mount(view);
    const struct bpk_node *node = bpk_view_node(view);
    struct bpk_node tensor;
    uint64_t end;
    size_t in_head = offset < head->len ? (size_t)(head->len - offset) : 0;
    int r = bpk_view_stat(mount, node, &end, &tensor);
    if (in_head > size)
        in_head = size;
    if (r == 0 && (offset > end || size > end - offset))
        r = -EINVAL;
    if (r == 0 && in_head > 0)
        r = check_header(head, offset, bytes, in_head);
    if (r == 0 && size > in_head)
        r = write_data(mount, node, offset + in_head - head->len, bytes + in_head, size - in_head);
    return r;
}

int bpk_view_fsync(struct bpk_mount *mount, const struct bpk_node *node) {
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place;
    int r = bpk_view_place(mount, node, name, &place);
    return r < 0 ? r : bpk_edits_fsync(mount->edits, &place);
}
