/* bpk stats: what the values of tensors are like. */
#include "view/stats.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "pack/parallel.h"
#include "pack/util.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    WINDOW = 64,      /* tensors that are computed before they are shown */
    LARGE = 16 << 20, /* bytes from which a tensor is work for all threads */
};

struct job {
    const struct bpk_cli_pack *pack;
    bool json;
    unsigned passes; /* over the bytes of a tensor, at most: histograms take a second one */
    struct bpk_cli_counter counter; /* of bytes; all passes count when a tensor is finished */
};

struct result {
    struct job *job;
    uint32_t index;
    struct bpk_array array;
    uint64_t *dims; /* the array's */
    int error;
    struct bpk_diag diag; /* the sentence is empty if there is none */
    struct bpk_stats stats;
};

/* ---- computing ------------------------------------------------------------------------------- */

static int read_source(void *context, uint64_t offset, void *buffer, size_t size) {
    struct result *result = context;
    size_t n;
    int r = bpk_pack_read(result->job->pack->pack, result->index, offset, buffer, size, &n);
    if (r < 0)
        return r;
    atomic_fetch_add(&result->job->counter.done, size);
    return n == size ? 0 : -EIO;
}

static void describe(struct job *job, uint32_t index, struct result *ret_result) {
    struct bpk_tensor tensor;
    struct bpk_shape shape = bpk_pack_tensor_shape(job->pack->pack, index);
    bpk_pack_tensor(job->pack->pack, index, &tensor);
    *ret_result = (struct result){
        .job = job,
        .index = index,
        .array = {.rank = tensor.rank, .size = tensor.end - tensor.start},
        .dims = calloc((size_t)tensor.rank + 1, sizeof(uint64_t)),
    };
    bpk_pack_tensor_dtype(job->pack->pack, index, &ret_result->array.dtype);
    ret_result->array.dims = ret_result->dims;
    if (!ret_result->dims)
        ret_result->error = -ENOMEM;
    for (uint32_t i = 0; i < tensor.rank && ret_result->dims; i++)
        (void)bpk_shape_next(&shape, &ret_result->dims[i]);
}

static void compute(struct result *result, unsigned threads) {
    const struct bpk_source source = {read_source, result};
    if (result->error == 0)
        result->error = bpk_stats_compute(&result->array, &source, threads, result->job->json, NULL,
                                          &result->stats, &result->diag);
}

/* Small tensors: each is one thread's. */
static int compute_small(void *context, unsigned worker, uint64_t step) {
    struct result *result = (struct result *)context + step;
    (void)worker;
    if (result->array.size < LARGE)
        compute(result, 1);
    return 0;
}

static void compute_all(struct job *job, struct result *results, uint32_t count) {
    uint64_t done = atomic_load(&job->counter.done);
    struct bpk_cli_progress progress = {
        .ask = bpk_cli_ask_counter, .context = &job->counter, .what = "computing"};
    bpk_cli_progress_begin(&progress);
    (void)bpk_parallel_run(bpk_parallel_workers(0, count), count, compute_small, results);
    for (uint32_t i = 0; i < count; i++)
        if (results[i].array.size >= LARGE)
            compute(&results[i], 0);
    bpk_cli_progress_end(&progress);
    for (uint32_t i = 0; i < count; i++)
        done += job->passes * results[i].array.size;
    atomic_store(&job->counter.done, done);
}

/* ---- showing --------------------------------------------------------------------------------- */

/* The widths of the columns are those of the head below. */
static void out_right(struct bpk_outbuf *out, size_t width, const char *text) {
    for (size_t i = strlen(text); i < width; i++)
        bpk_out(out, " ", 1);
    bpk_out_str(out, text);
}

/* A dash for none, so that any stands out. */
static void out_odd(struct bpk_outbuf *out, uint64_t count) {
    char text[24] = "-";
    if (count > 0)
        (void)snprintf(text, sizeof(text), "%" PRIu64, count);
    out_right(out, 10, text);
}

/* Rounding makes neither none nor all of a part. */
static void out_share(struct bpk_outbuf *out, uint64_t part, uint64_t whole) {
    char text[24] = "-";
    double percent = whole > 0 ? 100 * (double)part / (double)whole : 0;
    if (part > 0 && percent < 0.1)
        (void)snprintf(text, sizeof(text), "<0.1%%");
    else if (part < whole && percent > 99.9)
        (void)snprintf(text, sizeof(text), ">99.9%%");
    else if (part > 0)
        (void)snprintf(text, sizeof(text), "%.*f%%", part < whole ? 1 : 0, percent);
    out_right(out, 8, text);
}

static void out_number(struct bpk_outbuf *out, const struct bpk_stats *stats, double value) {
    char text[32] = "-";
    if (stats->finite > 0)
        (void)snprintf(text, sizeof(text), "%.6g", value);
    out_right(out, 13, text);
}

static const char head[] =
    "  " BPK_CLI_DTYPE_AND_SHAPE
    "       NAN       INF   ZEROS          MIN          MAX         MEAN          STD  NAME\n";

static void out_row(const struct result *result, struct bpk_outbuf *out) {
    const struct bpk_stats *stats = &result->stats;
    bpk_out_str(out, stats->finite < stats->count ? "! " : "  ");
    bpk_cli_dtype_and_shape(result->job->pack, result->index, out);
    out_odd(out, stats->nan);
    out_odd(out, stats->pos_inf + stats->neg_inf);
    out_share(out, stats->zeros, stats->count);
    out_number(out, stats, stats->min);
    out_number(out, stats, stats->max);
    out_number(out, stats, stats->mean);
    out_number(out, stats, stats->std);
    bpk_out_str(out, "  ");
    bpk_cli_show_name(result->job->pack, result->index, out);
    bpk_out_str(out, "\n");
}

static void tell_error(const struct result *result) {
    char sentence[sizeof(result->diag.sentence)];
    (void)snprintf(sentence, sizeof(sentence), "cannot read: %s", strerror(-result->error));
    bpk_cli_tensor_error(result->job->pack, result->index,
                         result->diag.sentence[0] ? result->diag.sentence : sentence);
}

/* False if a tensor could not be computed, or nothing printed. */
static bool show_all(struct job *job, const struct result *results, uint32_t count, bool *any) {
    struct bpk_outbuf out = {0};
    bool good = true;
    for (uint32_t i = 0; i < count; i++) {
        const struct result *result = &results[i];
        if (result->error < 0) {
            good = false;
            if (!bpk_pack_is_changed(job->pack->pack)) /* else told once for all */
                tell_error(result);
            continue;
        }
        if (job->json) {
            bpk_out_str(&out, *any ? ",\n  " : "\n  ");
            bpk_stats_object(&out, bpk_pack_tensor_name(job->pack->pack, result->index),
                             &result->array, &result->stats, 2);
        } else {
            out_row(result, &out);
        }
        *any = true;
    }
    return bpk_cli_print(&out) && good;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool work(struct job *job, const struct bpk_cli_selection *selection) {
    _cleanup_free_ struct result *results = calloc(WINDOW, sizeof(*results));
    bool any = false;
    bool good = true;
    job->passes = job->json ? 2 : 1;
    if (!results) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < selection->count; i++) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(job->pack->pack, selection->tensors[i], &tensor);
        job->counter.total += job->passes * (tensor.end - tensor.start);
    }
    (void)fputs(job->json ? "[" : head, stdout);
    for (uint32_t i = 0; i < selection->count; i += WINDOW) {
        uint32_t count = selection->count - i < WINDOW ? selection->count - i : WINDOW;
        for (uint32_t k = 0; k < count; k++)
            describe(job, selection->tensors[i + k], &results[k]);
        compute_all(job, results, count);
        good = show_all(job, results, count, &any) && good;
        for (uint32_t k = 0; k < count; k++)
            free(results[k].dims);
        if (bpk_pack_is_changed(job->pack->pack)) {
            bpk_cli_error(job->pack->path, "the file was changed while it was read");
            good = false;
            break;
        }
    }
    if (job->json)
        (void)fputs(any ? "\n]\n" : "]\n", stdout);
    return good;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    struct job job = {0};
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c == 'j')
            job.json = true;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_stats);
    }
    if (optind >= argc)
        return bpk_cli_usage(&bpk_verb_stats);
    struct bpk_cli_pack pack;
    if (bpk_cli_open(argv[optind], &how, &pack) < 0)
        return BPK_EXIT_FAILED;
    _cleanup_selection_ struct bpk_cli_selection selection;
    job.pack = &pack;
    bool good = bpk_cli_select(&pack, argc - optind - 1, argv + optind + 1, &selection);
    good = work(&job, &selection) && good;
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_stats = {
    .name = "stats",
    .arguments = "[--json] FILE [PATTERN ...]",
    .summary = "NaN, extremes, mean and deviation of the values",
    .options = "    --json    an array of objects, with histograms\n",
    .run = run,
};
