#include "cli/compare.h"

#include "cli/progress.h"
#include "pack/meta.h"
#include "pack/parallel.h"
#include "pack/util.h"
#include "view/json_read.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    PART = 16 << 20,         /* of a tensor, in one step */
    BUFFER_SIZE = 256 << 10, /* two of them stay in the cache */
};

/* ---- what is known without reading ----------------------------------------------------------- */

static bool same_shape(struct bpk_shape a, struct bpk_shape b) {
    uint64_t x;
    uint64_t y;
    if (a.left != b.left)
        return false;
    while (bpk_shape_next(&a, &x) && bpk_shape_next(&b, &y))
        if (x != y)
            return false;
    return true;
}

static unsigned compare_facts(const struct bpk_pack *a, uint32_t i, const struct bpk_pack *b,
                              uint32_t k) {
    struct bpk_tensor x;
    struct bpk_tensor y;
    struct bpk_dtype x_dtype;
    struct bpk_dtype y_dtype;
    unsigned differs = 0;
    bpk_pack_tensor(a, i, &x);
    bpk_pack_tensor(b, k, &y);
    bpk_pack_tensor_dtype(a, i, &x_dtype);
    bpk_pack_tensor_dtype(b, k, &y_dtype);
    if (!bpk_dtype_equal(&x_dtype, &y_dtype))
        differs |= BPK_DIFF_DTYPE;
    if (!same_shape(bpk_pack_tensor_shape(a, i), bpk_pack_tensor_shape(b, k)))
        differs |= BPK_DIFF_SHAPE;
    if (x.has_param_id != y.has_param_id || (x.has_param_id && x.param_id != y.param_id))
        differs |= BPK_DIFF_PARAM_ID;
    if (x.end - x.start != y.end - y.start)
        differs |= BPK_DIFF_BYTES;
    return differs;
}

bool bpk_cli_compare(const struct bpk_cli_pack *a, const struct bpk_cli_pack *b,
                     struct bpk_cli_comparison *ret_comparison) {
    struct bpk_cli_comparison comparison = {.a = a, .b = b};
    comparison.pairs =
        calloc((size_t)a->info.tensors + b->info.tensors + 1, sizeof(*comparison.pairs));
    if (!comparison.pairs) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    uint32_t i = 0;
    uint32_t k = 0;
    while (i < a->info.tensors || k < b->info.tensors) {
        struct bpk_cli_pair *pair = &comparison.pairs[comparison.count++];
        int order = i == a->info.tensors   ? 1
                    : k == b->info.tensors ? -1
                                           : bpk_str_compare(bpk_pack_tensor_name(a->pack, i),
                                                             bpk_pack_tensor_name(b->pack, k));
        pair->a = order <= 0 ? i++ : BPK_NO_TENSOR;
        pair->b = order >= 0 ? k++ : BPK_NO_TENSOR;
        if (order == 0)
            pair->differs = compare_facts(a->pack, pair->a, b->pack, pair->b);
    }
    *ret_comparison = comparison;
    return true;
}

bool bpk_cli_pair_is_same(const struct bpk_cli_pair *pair) {
    return pair->differs == 0 && pair->a != BPK_NO_TENSOR && pair->b != BPK_NO_TENSOR;
}

void bpk_cli_comparison_clear(struct bpk_cli_comparison *comparison) {
    free(comparison->pairs);
    *comparison = (struct bpk_cli_comparison){0};
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* A part of a pair of tensors of the same length. */
struct part {
    size_t pair;
    uint64_t offset;
    uint64_t size;
};

struct job {
    struct bpk_cli_comparison *comparison;
    struct part *parts;
    size_t count;
    char *buffers; /* two of BUFFER_SIZE a worker */
    bool first_only;
    _Atomic bool *differs; /* one a pair */
    _Atomic int error;
    _Atomic bool error_in_b;
    struct bpk_cli_counter counter; /* of bytes */
};

static int read_part(const struct bpk_cli_pack *pack, uint32_t index, uint64_t offset, char *buffer,
                     size_t size) {
    size_t n;
    int r = bpk_pack_read(pack->pack, index, offset, buffer, size, &n);
    return r == 0 && n < size ? -EIO : r;
}

static int do_step(void *context, unsigned worker, uint64_t step) {
    struct job *job = context;
    const struct part *part = &job->parts[step];
    const struct bpk_cli_pair *pair = &job->comparison->pairs[part->pair];
    char *a = job->buffers + (size_t)worker * 2 * BUFFER_SIZE;
    char *b = a + BUFFER_SIZE;
    for (uint64_t at = 0; at < part->size && !job->differs[part->pair]; at += BUFFER_SIZE) {
        size_t size = part->size - at < BUFFER_SIZE ? (size_t)(part->size - at) : BUFFER_SIZE;
        uint64_t offset = part->offset + at;
        int r = read_part(job->comparison->a, pair->a, offset, a, size);
        bool in_b = r == 0;
        if (r == 0)
            r = read_part(job->comparison->b, pair->b, offset, b, size);
        if (r < 0) {
            job->error_in_b = in_b;
            job->error = r;
            return r;
        }
        if (memcmp(a, b, size) != 0)
            job->differs[part->pair] = true;
    }
    job->counter.done += part->size;
    return job->first_only && job->differs[part->pair] ? -ECANCELED : 0;
}

static bool add_parts(struct job *job, size_t pair, size_t *capacity) {
    struct bpk_tensor tensor;
    bpk_pack_tensor(job->comparison->a->pack, job->comparison->pairs[pair].a, &tensor);
    uint64_t size = tensor.end - tensor.start;
    for (uint64_t offset = 0; offset < size; offset += PART) {
        if (bpk_grow((void **)&job->parts, capacity, job->count, sizeof(*job->parts)) < 0)
            return false;
        job->parts[job->count++] =
            (struct part){pair, offset, size - offset < PART ? size - offset : PART};
    }
    job->counter.total += size;
    return true;
}

static bool run_job(struct job *job) {
    struct bpk_cli_comparison *comparison = job->comparison;
    unsigned workers = bpk_parallel_workers(0, job->count);
    struct bpk_cli_progress progress = {
        .ask = bpk_cli_ask_counter, .context = &job->counter, .what = "comparing"};
    job->buffers = malloc((size_t)workers * 2 * BUFFER_SIZE);
    if (!job->buffers) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    bpk_cli_progress_begin(&progress);
    (void)bpk_parallel_run(workers, job->count, do_step, job);
    bpk_cli_progress_end(&progress);
    for (size_t i = 0; i < comparison->count; i++)
        if (job->differs[i])
            comparison->pairs[i].differs |= BPK_DIFF_BYTES;
    if (job->error < 0)
        bpk_cli_unread(job->error_in_b ? comparison->b : comparison->a, job->error);
    return job->error == 0;
}

bool bpk_cli_compare_bytes(struct bpk_cli_comparison *comparison, bool first_only) {
    struct job job = {.comparison = comparison, .first_only = first_only};
    size_t capacity = 0;
    bool good = true;
    job.differs = calloc(comparison->count + 1, sizeof(*job.differs));
    for (size_t i = 0; i < comparison->count && good && job.differs; i++) {
        const struct bpk_cli_pair *pair = &comparison->pairs[i];
        if (first_only && !bpk_cli_pair_is_same(pair))
            goto out; /* it is known already */
        if (pair->a != BPK_NO_TENSOR && pair->b != BPK_NO_TENSOR &&
            !(pair->differs & BPK_DIFF_BYTES))
            good = add_parts(&job, i, &capacity);
    }
    if (!good || !job.differs)
        bpk_cli_error(NULL, "out of memory");
    good = good && job.differs && run_job(&job);
out:
    free((void *)job.differs);
    free(job.buffers);
    free(job.parts);
    return good;
}
