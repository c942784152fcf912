#include "view/npy_order.h"

#include "pack/util.h"

#include <errno.h>
#include <string.h>

enum {
    BOX_SIZE = 8 << 20, /* bytes; there are two buffers of it */
    LINE = 64,          /* bytes of a cache line: small squares are that wide */
};

/* ---- byte order ------------------------------------------------------------------------------ */

#define SWAP_ALL(type, swap, bytes, size)                                                          \
    for (size_t i_ = 0; i_ < (size); i_ += sizeof(type)) {                                         \
        type item_;                                                                                \
        memcpy(&item_, (bytes) + i_, sizeof(item_));                                               \
        item_ = swap(item_);                                                                       \
        memcpy((bytes) + i_, &item_, sizeof(item_));                                               \
    }

void bpk_npy_swap(void *bytes, size_t size, unsigned item_size) {
    char *p = bytes;
    if (item_size == 2)
        SWAP_ALL(uint16_t, __builtin_bswap16, p, size)
    else if (item_size == 4)
        SWAP_ALL(uint32_t, __builtin_bswap32, p, size)
    else if (item_size == 8)
        SWAP_ALL(uint64_t, __builtin_bswap64, p, size)
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* The dimensions that are not 1: fastest first in the source, slowest first in the tensor. All
 * lengths and strides are in items. */
struct plan {
    const struct bpk_npy *npy;
    uint32_t rank;
    uint64_t dims[BPK_NPY_MAX_RANK];
    uint64_t box[BPK_NPY_MAX_RANK]; /* the extent of a whole box */
};

struct box {
    uint64_t at[BPK_NPY_MAX_RANK];
    uint64_t extent[BPK_NPY_MAX_RANK]; /* less than the plan's at the array's edges */
    uint64_t items;
};

/* A Fortran array of more than one dimension that is not 1. */
static bool needs_turn(const struct bpk_npy *npy) {
    uint32_t long_dims = 0;
    for (uint32_t i = 0; i < npy->rank; i++)
        long_dims += npy->dims[i] > 1;
    return npy->is_fortran && npy->size > 0 && long_dims > 1;
}

static uint64_t product(const uint64_t *numbers, uint32_t count) {
    uint64_t result = 1;
    for (uint32_t i = 0; i < count; i++)
        result *= numbers[i];
    return result;
}

/* Makes the box longer along one dimension after another, as far as `limit` items allow. */
static void grow(struct plan *plan, bool from_last, uint64_t limit) {
    for (uint32_t i = 0; i < plan->rank; i++) {
        uint32_t axis = from_last ? plan->rank - 1 - i : i;
        uint64_t room = limit / (product(plan->box, plan->rank) / plan->box[axis]);
        uint64_t extent = room < plan->dims[axis] ? room : plan->dims[axis];
        if (extent > plan->box[axis])
            plan->box[axis] = extent;
        if (plan->box[axis] < plan->dims[axis])
            return;
    }
}

static void make_plan(struct plan *plan, const struct bpk_npy *npy) {
    uint64_t limit = BOX_SIZE / npy->item_size;
    uint64_t root = 1; /* of two */
    while (root * root < limit)
        root++;
    *plan = (struct plan){.npy = npy};
    if (!needs_turn(npy)) { /* in order already: one line of items */
        plan->dims[0] = npy->size / npy->item_size;
        plan->box[0] = plan->dims[0] < limit ? plan->dims[0] : limit;
        plan->rank = 1;
        return;
    }
    for (uint32_t i = 0; i < npy->rank; i++) {
        if (npy->dims[i] == 1)
            continue;
        plan->dims[plan->rank] = npy->dims[i];
        plan->box[plan->rank++] = 1;
    }
    grow(plan, false, root);
    grow(plan, true, limit);
    grow(plan, false, limit);
}

/* The box at the next place, the last dimension first; false behind the last one. */
static bool next_box(const struct plan *plan, struct box *box) {
    for (uint32_t axis = plan->rank; axis-- > 0;) {
        box->at[axis] += plan->box[axis];
        if (box->at[axis] < plan->dims[axis])
            return true;
        box->at[axis] = 0;
    }
    return false;
}

static void measure(const struct plan *plan, struct box *box) {
    for (uint32_t i = 0; i < plan->rank; i++) {
        uint64_t left = plan->dims[i] - box->at[i];
        box->extent[i] = left < plan->box[i] ? left : plan->box[i];
    }
    box->items = product(box->extent, plan->rank);
}

/* ---- between a box and the two sides --------------------------------------------------------- */

typedef int piece_fn(void *context, uint64_t offset, char *bytes, size_t size);

/* Calls `piece` for each part of the box that is in one piece on a side: the source (first
 * dimension fastest) or the tensor. `buffer` holds the box in the order of that side. */
static int each_piece(const struct plan *plan, const struct box *box, bool is_source, char *buffer,
                      piece_fn *piece, void *context) {
    uint32_t order[BPK_NPY_MAX_RANK]; /* of the dimensions, fastest first */
    uint64_t stride[BPK_NPY_MAX_RANK];
    uint64_t index[BPK_NPY_MAX_RANK] = {0};
    uint64_t whole = 1;
    uint64_t items = 1;    /* of a piece */
    uint32_t inside = 0;   /* dimensions that a piece goes through */
    bool is_joined = true; /* the next dimension's neighbours lie side by side */
    for (uint32_t i = 0; i < plan->rank; i++) {
        uint32_t axis = is_source ? i : plan->rank - 1 - i;
        order[i] = axis;
        stride[i] = whole;
        whole *= plan->dims[axis];
        if (is_joined) {
            items *= box->extent[axis];
            inside = i + 1;
        }
        is_joined = is_joined && box->extent[axis] == plan->dims[axis];
    }
    unsigned item_size = plan->npy->item_size;
    for (uint64_t done = 0; done < box->items; done += items) {
        uint64_t offset = 0;
        for (uint32_t i = 0; i < plan->rank; i++)
            offset += (box->at[order[i]] + index[i]) * stride[i];
        int r = piece(context, offset * item_size, buffer + done * item_size, items * item_size);
        if (r < 0)
            return r;
        for (uint32_t i = inside; i < plan->rank && ++index[i] == box->extent[order[i]]; i++)
            index[i] = 0;
    }
    return 0;
}

/* ---- within a box ---------------------------------------------------------------------------- */

/* to[row][column] = from[column][row], in squares whose lines stay in the cache. */
static inline __attribute__((always_inline)) void
transpose_items(char *to, size_t to_stride, const char *from, size_t from_stride, size_t rows,
                size_t columns, size_t item_size) {
    const size_t side = LINE / item_size;
    for (size_t row0 = 0; row0 < rows; row0 += side) {
        size_t row_end = rows - row0 < side ? rows : row0 + side;
        for (size_t column0 = 0; column0 < columns; column0 += side) {
            size_t column_end = columns - column0 < side ? columns : column0 + side;
            for (size_t row = row0; row < row_end; row++)
                for (size_t column = column0; column < column_end; column++)
                    memcpy(to + (row * to_stride + column) * item_size,
                           from + (column * from_stride + row) * item_size, item_size);
        }
    }
}

static void transpose(char *to, size_t to_stride, const char *from, size_t from_stride, size_t rows,
                      size_t columns, unsigned item_size) {
    switch (item_size) {
    case 1:
        transpose_items(to, to_stride, from, from_stride, rows, columns, 1);
        break;
    case 2:
        transpose_items(to, to_stride, from, from_stride, rows, columns, 2);
        break;
    case 4:
        transpose_items(to, to_stride, from, from_stride, rows, columns, 4);
        break;
    default:
        transpose_items(to, to_stride, from, from_stride, rows, columns, 8);
        break;
    }
}

/* Turns a box round: the first and the last dimension at once, one step of those between after
 * another. */
static void turn(const struct plan *plan, const struct box *box, char *to, const char *from) {
    unsigned item_size = plan->npy->item_size;
    uint32_t last = plan->rank - 1;
    uint64_t from_stride[BPK_NPY_MAX_RANK];
    uint64_t to_stride[BPK_NPY_MAX_RANK];
    uint64_t index[BPK_NPY_MAX_RANK] = {0};
    for (uint32_t i = 0; i <= last; i++) {
        from_stride[i] = product(box->extent, i);
        to_stride[i] = product(box->extent + i + 1, last - i);
    }
    uint64_t steps = product(box->extent + 1, last - 1);
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t from_offset = 0;
        uint64_t to_offset = 0;
        for (uint32_t i = 1; i < last; i++) {
            from_offset += index[i] * from_stride[i];
            to_offset += index[i] * to_stride[i];
        }
        transpose(to + to_offset * item_size, to_stride[0], from + from_offset * item_size,
                  from_stride[last], box->extent[0], box->extent[last], item_size);
        for (uint32_t i = last - 1; i > 0 && ++index[i] == box->extent[i]; i--)
            index[i] = 0;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct sides {
    const struct bpk_source *source;
    int (*write)(void *context, uint64_t offset, const void *bytes, size_t size);
    void *context;
};

static int read_piece(void *context, uint64_t offset, char *bytes, size_t size) {
    const struct sides *sides = context;
    return sides->source->read(sides->source->context, offset, bytes, size);
}

static int write_piece(void *context, uint64_t offset, char *bytes, size_t size) {
    const struct sides *sides = context;
    return sides->write(sides->context, offset, bytes, size);
}

bool bpk_npy_needs_order(const struct bpk_npy *npy) {
    return needs_turn(npy) || (npy->is_big_endian && npy->size > 0);
}

int bpk_npy_reorder(const struct bpk_npy *npy, const struct bpk_source *source,
                    int (*write)(void *context, uint64_t offset, const void *bytes, size_t size),
                    void *context) {
    struct sides sides = {source, write, context};
    struct plan plan;
    struct box box = {0};
    if (npy->size == 0)
        return 0;
    make_plan(&plan, npy);
    size_t room = npy->size < BOX_SIZE ? (size_t)npy->size : BOX_SIZE;
    _cleanup_free_ char *from = malloc(room);
    _cleanup_free_ char *turned = malloc(room);
    if (!from || !turned)
        return -ENOMEM;
    do {
        measure(&plan, &box);
        int r = each_piece(&plan, &box, true, from, read_piece, &sides);
        if (r < 0)
            return r;
        char *to = from;
        if (plan.rank > 1) {
            turn(&plan, &box, turned, from);
            to = turned;
        }
        if (npy->is_big_endian)
            bpk_npy_swap(to, box.items * npy->item_size, npy->item_size);
        r = each_piece(&plan, &box, false, to, write_piece, &sides);
        if (r < 0)
            return r;
    } while (next_box(&plan, &box));
    return 0;
}
