/* npy_order: bytes swapped and Fortran arrays turned round, compared with the plain way to do it.
 */
#include "view/npy_order.h"

#include "suite.h"

#include <errno.h>
#include <string.h>

START_TEST(items_are_swapped) {
    static const struct {
        unsigned item_size;
        const char *swapped;
    } sizes[] = {{1, "abcdefghijklmnop"},
                 {2, "badcfehgjilknmpo"},
                 {4, "dcbahgfelkjiponm"},
                 {8, "hgfedcbaponmlkji"}};
    for (int i = 0; i < ROWS(sizes); i++) {
        char bytes[] = "-abcdefghijklmnop-"; /* not aligned */
        bpk_npy_swap(bytes + 1, 16, sizes[i].item_size);
        ck_assert_mem_eq(bytes + 1, sizes[i].swapped, 16);
        ck_assert(bytes[0] == '-' && bytes[17] == '-');
        bpk_npy_swap(bytes + 1, 0, sizes[i].item_size);
        ck_assert_mem_eq(bytes + 1, sizes[i].swapped, 16);
    }
}

/* ---- arrays in memory ------------------------------------------------------------------------ */

struct memory {
    uint64_t size;
    const char *in;
    char *out;
    uint8_t *written;    /* how often each byte was */
    uint64_t calls_left; /* until one fails with -EIO (read) or -ENOSPC (write) */
};

static bool is_out_of_calls(struct memory *memory) {
    return memory->calls_left-- == 0;
}

static int read_memory(void *context, uint64_t offset, void *buffer, size_t size) {
    struct memory *memory = context;
    HOLDS(size > 0 && offset <= memory->size && size <= memory->size - offset);
    if (is_out_of_calls(memory))
        return -EIO;
    memcpy(buffer, memory->in + offset, size);
    return 0;
}

static int write_memory(void *context, uint64_t offset, const void *bytes, size_t size) {
    struct memory *memory = context;
    HOLDS(size > 0 && size <= 8 << 20);
    HOLDS(offset <= memory->size && size <= memory->size - offset);
    if (is_out_of_calls(memory))
        return -ENOSPC;
    memcpy(memory->out + offset, bytes, size);
    for (size_t i = 0; i < size; i++)
        memory->written[offset + i]++;
    return 0;
}

static struct memory new_memory(uint64_t size) {
    struct memory memory = {.size = size, .calls_left = UINT64_MAX};
    uint64_t state = size;
    char *in = malloc(size + 8);
    memory.out = malloc(size + 1);
    memory.written = calloc(size + 1, 1);
    ck_assert(in && memory.out && memory.written);
    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t random = suite_random(&state);
        memcpy(in + i, &random, 8);
    }
    memory.in = in;
    return memory;
}

static void clear_memory(struct memory *memory) {
    free((char *)memory->in);
    free(memory->out);
    free(memory->written);
}

/* One item after another, in the order of the tensor. */
static void expect_turned(const struct bpk_npy *npy, const struct memory *memory) {
    uint64_t index[BPK_NPY_MAX_RANK] = {0};
    unsigned item_size = npy->item_size;
    for (uint64_t at = 0; at < npy->size; at += item_size) {
        uint64_t from = 0;
        if (npy->is_fortran) {
            for (uint32_t i = npy->rank; i-- > 0;)
                from = from * npy->dims[i] + index[i];
            from *= item_size;
        } else {
            from = at;
        }
        for (unsigned k = 0; k < item_size; k++) {
            HOLDS(memory->written[at + k] == 1);
            HOLDS(memory->out[at + k] ==
                  memory->in[from + (npy->is_big_endian ? item_size - 1 - k : k)]);
        }
        for (uint32_t i = npy->rank; i-- > 0 && ++index[i] == npy->dims[i];)
            index[i] = 0;
    }
}

static struct bpk_npy array(unsigned item_size, bool is_fortran, bool is_big_endian, uint32_t rank,
                            const uint64_t *dims) {
    struct bpk_npy npy = {.item_size = item_size,
                          .is_fortran = is_fortran,
                          .is_big_endian = is_big_endian,
                          .rank = rank,
                          .size = item_size};
    for (uint32_t i = 0; i < rank; i++) {
        npy.dims[i] = dims[i];
        npy.size *= dims[i];
    }
    return npy;
}

static void reorder_and_compare(const struct bpk_npy *npy) {
    struct memory memory = new_memory(npy->size);
    struct bpk_source source = {read_memory, &memory};
    ck_assert_int_eq(bpk_npy_reorder(npy, &source, write_memory, &memory), 0);
    expect_turned(npy, &memory);
    if (!bpk_npy_needs_order(npy))
        HOLDS(memcmp(memory.in, memory.out, npy->size) == 0);
    clear_memory(&memory);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static const struct {
    uint32_t rank;
    uint64_t dims[6];
} shapes[] = {
    {0, {0}},
    {1, {1}},
    {1, {1000}},
    {1, {0}},
    {2, {3, 0}},
    {2, {3, 4}},
    {2, {1, 77}},
    {2, {77, 1}},
    {2, {65, 129}},
    {3, {5, 1, 7}},
    {3, {2, 3, 4}},
    {4, {64, 16, 3, 3}},
    {4, {3, 3, 16, 64}},
    {5, {2, 3, 1, 4, 5}},
    {6, {3, 2, 3, 2, 3, 2}},
    /* of several boxes of 8-byte items: in rows, in columns, in both, cut between the two ends */
    {1, {1100001}},
    {2, {3, 500001}},
    {2, {500001, 3}},
    {2, {1301, 1303}},
    {3, {1301, 7, 201}},
    {4, {101, 3, 3, 1301}},
    {4, {3, 601, 703, 2}},
};

START_TEST(arrays_are_put_in_order) {
    for (unsigned i = 0; i < 4; i++) {
        struct bpk_npy npy = array(1u << i, true, i % 2 == 1, shapes[_i].rank, shapes[_i].dims);
        if (npy.size < 1 << 20 || npy.item_size == 8)
            reorder_and_compare(&npy);
    }
}

START_TEST(arrays_in_order_are_copied_or_swapped) {
    struct bpk_npy npy = array(8, false, _i % 2 == 1, shapes[_i].rank, shapes[_i].dims);
    reorder_and_compare(&npy);
}

START_TEST(random_shapes) {
    uint64_t state = 1;
    for (int turn = 0; turn < 300; turn++) {
        uint64_t dims[BPK_NPY_MAX_RANK];
        uint32_t rank = (uint32_t)(suite_random(&state) % 7);
        for (uint32_t i = 0; i < rank; i++)
            dims[i] = 1 + suite_random(&state) % (rank < 4 ? 20 : 6);
        struct bpk_npy npy =
            array(1u << suite_random(&state) % 4, true, suite_random(&state) % 2 == 0, rank, dims);
        reorder_and_compare(&npy);
    }
}

START_TEST(several_boxes_of_bytes) {
    static const uint64_t dims[] = {3001, 3003};
    struct bpk_npy npy = array(1, true, false, 2, dims);
    reorder_and_compare(&npy);
}

/* NumPy's most: 64 dimensions. */
START_TEST(many_dimensions) {
    uint64_t dims[BPK_NPY_MAX_RANK];
    for (uint32_t i = 0; i < BPK_NPY_MAX_RANK; i++)
        dims[i] = i % 6 == 0 ? 3 : 1;
    struct bpk_npy npy = array(2, true, true, BPK_NPY_MAX_RANK, dims);
    reorder_and_compare(&npy);
}

START_TEST(needs) {
    static const struct {
        unsigned item_size;
        bool is_fortran;
        bool is_big_endian;
        uint64_t dims[2];
        bool needs;
    } cases[] = {
        {4, false, false, {3, 4}, false}, {4, false, true, {3, 4}, true},
        {4, true, false, {3, 4}, true},   {4, true, false, {1, 4}, false},
        {4, true, false, {4, 1}, false},  {4, true, true, {4, 1}, true},
        {4, true, true, {4, 0}, false},   {4, true, true, {1, 1}, true},
    };
    for (int i = 0; i < ROWS(cases); i++) {
        struct bpk_npy npy = array(cases[i].item_size, cases[i].is_fortran, cases[i].is_big_endian,
                                   2, cases[i].dims);
        ck_assert_int_eq(bpk_npy_needs_order(&npy), cases[i].needs);
    }
}

/* Every call of either side that fails ends it with its own error. */
START_TEST(errors_end_it) {
    static const uint64_t dims[] = {3001, 3003};
    struct bpk_npy npy = array(1, true, false, 2, dims);
    struct memory memory = new_memory(npy.size);
    struct bpk_source source = {read_memory, &memory};
    ck_assert_int_eq(bpk_npy_reorder(&npy, &source, write_memory, &memory), 0);
    uint64_t calls = UINT64_MAX - memory.calls_left;
    ck_assert_uint_gt(calls, 2);
    bool seen[2] = {false};
    for (uint64_t i = 0; i < calls; i += calls / 20) {
        memory.calls_left = i;
        int r = bpk_npy_reorder(&npy, &source, write_memory, &memory);
        HOLDS(r == -EIO || r == -ENOSPC);
        HOLDS(memory.calls_left == UINT64_MAX); /* that call was the last */
        seen[r == -EIO] = true;
    }
    ck_assert(seen[0] && seen[1]);
    clear_memory(&memory);
}

int main(void) {
    Suite *suite = suite_create("npy_order");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, items_are_swapped);
    tcase_add_loop_test(tc, arrays_are_put_in_order, 0, ROWS(shapes));
    tcase_add_loop_test(tc, arrays_in_order_are_copied_or_swapped, 0, ROWS(shapes));
    tcase_add_test(tc, random_shapes);
    tcase_add_test(tc, several_boxes_of_bytes);
    tcase_add_test(tc, many_dimensions);
    tcase_add_test(tc, needs);
    tcase_add_test(tc, errors_end_it);
    return suite_run(suite);
}
