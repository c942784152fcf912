#include "view/stats.h"

#include "view/json.h"

#include <string.h>

/* How the numbers of one text are set. */
struct setting {
    struct bpk_outbuf *out;
    const struct bpk_stats *stats;
    unsigned indent;
    bool padded; /* to the width of the longest number that may stand there */
};

/* -1.2345678901234567e-308; 10 GiB of bytes; "abs_max" */
enum { VALUE_WIDTH = 24, COUNT_WIDTH = 11, KEY_WIDTH = 7 };

/* ---- numbers --------------------------------------------------------------------------------- */

/* All end in one column. */
static size_t width_behind(const char *key) {
    return VALUE_WIDTH + KEY_WIDTH - strlen(key);
}

/* Writes a number that was composed, and empties its buffer. */
static void put(const struct setting *setting, struct bpk_outbuf *number, size_t width) {
    if (setting->padded)
        for (size_t len = number->len; len < width; len++)
            bpk_out_str(setting->out, " ");
    bpk_out(setting->out, number->text, number->len);
    setting->out->failed |= number->failed;
    bpk_outbuf_clear(number);
}

static void out_double(struct bpk_outbuf *out, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bpk_json_double(out, bits);
}

static void out_integer(struct bpk_outbuf *out, __int128 number) {
    if (number < 0)
        bpk_json_i64(out, (int64_t)number);
    else
        bpk_json_u64(out, (uint64_t)number);
}

static void put_count(const struct setting *setting, const char *key, uint64_t count) {
    struct bpk_outbuf number = {0};
    bpk_json_field(setting->out, setting->indent, false, key);
    bpk_json_u64(&number, count);
    put(setting, &number, width_behind(key));
}

/* A value in the tensor's own kind of number, as far as it has one. */
static void put_value(const struct setting *setting, const char *key, double value,
                      const __int128 *integer) {
    struct bpk_outbuf number = {0};
    bpk_json_field(setting->out, setting->indent, false, key);
    if (setting->stats->finite == 0)
        bpk_out_str(&number, "null");
    else if (setting->stats->is_integer && integer)
        out_integer(&number, *integer);
    else
        out_double(&number, value);
    put(setting, &number, width_behind(key));
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_edge(const struct setting *setting, bool first, const char *key, double edge) {
    struct bpk_outbuf number = {0};
    bpk_json_field(setting->out, setting->indent + 2, first, key);
    if (setting->stats->finite == 0)
        bpk_out_str(&number, "null");
    else
        out_double(&number, edge);
    put(setting, &number, VALUE_WIDTH);
}

static void put_histogram(const struct setting *setting) {
    struct bpk_outbuf *out = setting->out;
    bpk_json_field(out, setting->indent, false, "histogram");
    bpk_out_str(out, "{");
    put_edge(setting, true, "min", setting->stats->bins_min);
    put_edge(setting, false, "max", setting->stats->bins_max);
    bpk_json_field(out, setting->indent + 2, false, "counts");
    for (unsigned i = 0; i < BPK_STATS_BINS; i++) {
        struct bpk_outbuf number = {0};
        bpk_out_str(out, i == 0 ? "[" : ", ");
        bpk_json_u64(&number, setting->stats->histogram[i]);
        put(setting, &number, COUNT_WIDTH);
    }
    bpk_out_str(out, "]");
    bpk_json_end_object(out, setting->indent + 2);
}

static void put_object(const struct setting *setting, struct bpk_str name,
                       const struct bpk_array *array) {
    static const uint64_t none[1] = {0};
    const struct bpk_shape shape = {
        .dims = array->dims ? array->dims : none,
        .left = array->rank,
    };
    const struct bpk_stats *stats = setting->stats;
    struct bpk_outbuf *out = setting->out;
    unsigned indent = setting->indent;
    __int128 integer_abs_max =
        -stats->integer_min > stats->integer_max ? -stats->integer_min : stats->integer_max;
    bpk_out_str(out, "{");
    bpk_json_field(out, indent, true, "name");
    bpk_json_string(out, name);
    bpk_json_field(out, indent, false, "dtype");
    bpk_json_dtype(out, &array->dtype);
    bpk_json_field(out, indent, false, "shape");
    bpk_json_shape(out, shape);
    put_count(setting, "count", stats->count);
    put_count(setting, "nan", stats->nan);
    put_count(setting, "inf", stats->pos_inf);
    put_count(setting, "neg_inf", stats->neg_inf);
    put_count(setting, "zeros", stats->zeros);
    put_value(setting, "min", stats->min, &stats->integer_min);
    put_value(setting, "max", stats->max, &stats->integer_max);
    put_value(setting, "mean", stats->mean, NULL);
    put_value(setting, "std", stats->std, NULL);
    put_value(setting, "abs_max", stats->abs_max, &integer_abs_max);
    put_histogram(setting);
    bpk_json_end_object(out, indent);
}

void bpk_stats_object(struct bpk_outbuf *out, struct bpk_str name, const struct bpk_array *array,
                      const struct bpk_stats *stats, unsigned indent) {
    const struct setting setting = {out, stats, indent, false};
    put_object(&setting, name, array);
}

void bpk_stats_json(struct bpk_outbuf *out, struct bpk_str name, const struct bpk_array *array,
                    const struct bpk_stats *stats) {
    const struct setting setting = {out, stats, 0, true};
    put_object(&setting, name, array);
    bpk_out_str(out, "\n");
}
