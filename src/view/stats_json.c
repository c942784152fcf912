#include "view/json.h"
#include "view/stats.h"

#include <string.h>

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

static void out_count(struct bpk_outbuf *out, unsigned indent, const char *key, uint64_t count) {
    bpk_json_field(out, indent, false, key);
    bpk_json_u64(out, count);
}

/* A value in the tensor's own kind of number, as far as it has one. */
static void out_value(struct bpk_outbuf *out, unsigned indent, const char *key,
                      const struct bpk_stats *stats, double value, const __int128 *integer) {
    bpk_json_field(out, indent, false, key);
    if (stats->finite == 0)
        bpk_out_str(out, "null");
    else if (stats->is_integer && integer)
        out_integer(out, *integer);
    else
        out_double(out, value);
}

static void out_histogram(struct bpk_outbuf *out, const struct bpk_stats *stats, unsigned indent) {
    bpk_json_field(out, indent, false, "histogram");
    if (stats->finite == 0) {
        bpk_out_str(out, "null");
        return;
    }
    bpk_out_str(out, "{");
    bpk_json_field(out, indent + 2, true, "min");
    out_double(out, stats->bins_min);
    bpk_json_field(out, indent + 2, false, "max");
    out_double(out, stats->bins_max);
    bpk_json_field(out, indent + 2, false, "counts");
    for (unsigned i = 0; i < BPK_STATS_BINS; i++) {
        bpk_out_str(out, i == 0 ? "[" : ", ");
        bpk_json_u64(out, stats->histogram[i]);
    }
    bpk_out_str(out, "]");
    bpk_json_end_object(out, indent + 2);
}

void bpk_stats_object(struct bpk_outbuf *out, struct bpk_str name, const struct bpk_array *array,
                      const struct bpk_stats *stats, unsigned indent) {
    static const uint64_t none[1] = {0};
    const struct bpk_shape shape = {
        .dims = array->dims ? array->dims : none,
        .left = array->rank,
    };
    __int128 integer_abs_max =
        -stats->integer_min > stats->integer_max ? -stats->integer_min : stats->integer_max;
    bpk_out_str(out, "{");
    bpk_json_field(out, indent, true, "name");
    bpk_json_string(out, name);
    bpk_json_field(out, indent, false, "dtype");
    bpk_json_dtype(out, &array->dtype);
    bpk_json_field(out, indent, false, "shape");
    bpk_json_shape(out, shape);
    out_count(out, indent, "count", stats->count);
    out_count(out, indent, "nan", stats->nan);
    out_count(out, indent, "inf", stats->pos_inf);
    out_count(out, indent, "neg_inf", stats->neg_inf);
    out_count(out, indent, "zeros", stats->zeros);
    out_value(out, indent, "min", stats, stats->min, &stats->integer_min);
    out_value(out, indent, "max", stats, stats->max, &stats->integer_max);
    out_value(out, indent, "mean", stats, stats->mean, NULL);
    out_value(out, indent, "std", stats, stats->std, NULL);
    out_value(out, indent, "abs_max", stats, stats->abs_max, &integer_abs_max);
    out_histogram(out, stats, indent);
    bpk_json_end_object(out, indent);
}

void bpk_stats_json(struct bpk_outbuf *out, struct bpk_str name, const struct bpk_array *array,
                    const struct bpk_stats *stats) {
    bpk_stats_object(out, name, array, stats, 0);
    bpk_out_str(out, "\n");
}
