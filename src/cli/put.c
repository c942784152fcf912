/* bpk put: the bytes of a tensor, or a new one, from a file. */
#include "cli/change.h"
#include "cli/interrupt.h"

#include "pack/diag.h"
#include "pack/dtype.h"
#include "pack/text.h"
#include "pack/util.h"
#include "view/json.h"
#include "view/json_read.h"
#include "view/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_SIZE = 1 << 20 };

struct put {
    struct bpk_cli_change *change;
    char file[BPK_FILE_NAME_BUF]; /* of the tensor */
    bool exists;
    uint32_t index; /* if it exists */
    const char *data;
    int fd;
    char *buffer;
    size_t filled; /* of the buffer: the first bytes of the data */
};

/* ---- the data -------------------------------------------------------------------------------- */

static bool unreadable(const struct put *put, int r) {
    bpk_cli_error(put->data, "cannot read: %s", strerror(-r));
    return false;
}

/* Fills the buffer, but at the end of the data. */
static bool fill(struct put *put) {
    put->filled = 0;
    while (put->filled < BUFFER_SIZE) {
        if (bpk_cli_interrupted_before_input(put->fd))
            return unreadable(put, -EINTR);
        ssize_t n = read(put->fd, put->buffer + put->filled, BUFFER_SIZE - put->filled);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return unreadable(put, -errno);
        if (n == 0)
            break;
        put->filled += (size_t)n;
    }
    return true;
}

static bool is_npy(const struct put *put) {
    size_t len = sizeof(BPK_NPY_MAGIC) - 1;
    return put->filled >= len && memcmp(put->buffer, BPK_NPY_MAGIC, len) == 0;
}

/* `most`: more bytes than that are refused before they are written; an endless source is one. */
static bool write_all(struct put *put, const struct bpk_place *place, uint64_t most) {
    uint64_t offset = 0;
    while (put->filled > 0) {
        if (put->filled > most - offset) {
            bpk_cli_error(put->data, "has more than the %llu bytes that dtype and shape need",
                          (unsigned long long)most);
            return false;
        }
        int r = bpk_edits_write(put->change->edits, place, offset, put->buffer, put->filled);
        if (!bpk_cli_change_done(put->change, put->file, r))
            return false;
        offset += put->filled;
        if (!fill(put))
            return false;
    }
    return true;
}

/* ---- raw bytes ------------------------------------------------------------------------------- */

static const char too_large[] = "a tensor of that shape is too large";

/* "64x3", "64,3", "scalar" and "[64, 3]" as JSON. NULL, or what is wrong with it. */
static const char *out_shape(struct bpk_outbuf *out, const char *text) {
    static const char no_shape[] = "this is no shape; '64x3', '64' and 'scalar' are";
    bool is_scalar = strcmp(text, "scalar") == 0;
    if (text[0] == '[') {
        bpk_out_str(out, text);
        return NULL;
    }
    bpk_out_str(out, "[");
    while (!is_scalar && *text) {
        char *end;
        errno = 0;
        unsigned long long dim = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || (*end != '\0' && (*end != 'x' && *end != ',')) ||
            (*end != '\0' && end[1] == '\0'))
            return no_shape;
        if (errno == ERANGE || dim > INT64_MAX)
            return too_large;
        bpk_json_u64(out, dim);
        bpk_out_str(out, *end == '\0' ? "" : ",");
        text = *end == '\0' ? end : end + 1;
    }
    bpk_out_str(out, "]");
    return NULL;
}

static void out_old_shape(struct bpk_outbuf *out, const struct put *put) {
    bpk_json_shape(out, bpk_pack_tensor_shape(put->change->pack.pack, put->index));
}

/* The sidecar that the options ask for; what they leave open is the old tensor's. */
static bool compose_sidecar(const struct put *put, const char *dtype, const char *shape,
                            struct bpk_outbuf *out, uint64_t *ret_bytes) {
    struct bpk_descriptor descriptor;
    struct bpk_diag diag = {.sentence = "out of memory"};
    struct bpk_tensor old = {0};
    struct bpk_dtype old_dtype;
    const char *path = put->change->pack.path;
    if (put->exists) {
        bpk_pack_tensor(put->change->pack.pack, put->index, &old);
        bpk_pack_tensor_dtype(put->change->pack.pack, put->index, &old_dtype);
    } else if (!dtype || !shape) {
        bpk_cli_error(path, "a new tensor needs '--dtype' and '--shape', unless it comes as a .npy "
                            "file");
        return false;
    }
    if (shape && shape[0] == '\0')
        return bpk_cli_argument_fault(path, "--shape",
                                      "it is empty; that of a single value is 'scalar'");
    bpk_out_str(out, "{\"dtype\": ");
    if (!dtype)
        bpk_json_dtype(out, &old_dtype);
    else if (dtype[0] == '{' || dtype[0] == '"')
        bpk_out_str(out, dtype);
    else
        bpk_json_cstring(out, dtype);
    bpk_out_str(out, ", \"shape\": ");
    const char *fault = shape ? out_shape(out, shape) : NULL;
    if (fault)
        return bpk_cli_argument_fault(path, "--shape", fault);
    if (!shape)
        out_old_shape(out, put);
    if (old.has_param_id) {
        bpk_out_str(out, ", \"param_id\": ");
        bpk_json_u64(out, old.param_id);
    }
    bpk_out_str(out, "}\n");
    if (!out->failed && bpk_sidecar_parse((struct bpk_str){out->text, out->len}, &descriptor,
                                          &diag) == BPK_TEXT_GOOD) {
        bool fits =
            bpk_dtype_shape_length(&descriptor.dtype, descriptor.dims, descriptor.rank, ret_bytes);
        /* Of quantised tensors there is more than one length. */
        if (descriptor.dtype.kind == BPK_QFLOAT)
            *ret_bytes = UINT64_MAX;
        else if (!fits)
            bpk_diag_set(&diag, -EINVAL, BPK_NO_OFFSET, "%s", too_large);
        bool good = fits || descriptor.dtype.kind == BPK_QFLOAT;
        bpk_descriptor_clear(&descriptor);
        if (good)
            return true;
    }
    return bpk_cli_argument_fault(path,
                                  shape && dtype ? "--dtype, --shape"
                                  : shape        ? "--shape"
                                                 : "--dtype",
                                  diag.sentence);
}

/* What a tensor takes that keeps its dtype and shape. */
static uint64_t bytes_of_old(const struct put *put) {
    const struct bpk_pack *pack = put->change->pack.pack;
    struct bpk_shape shape = bpk_pack_tensor_shape(pack, put->index);
    struct bpk_dtype dtype;
    uint64_t elements = 1;
    uint64_t dim;
    uint64_t bytes;
    bpk_pack_tensor_dtype(pack, put->index, &dtype);
    bool known = dtype.kind != BPK_QFLOAT;
    while (known && bpk_shape_next(&shape, &dim))
        known = bpk_mul_u64(elements, dim, &elements);
    return known && bpk_dtype_length(&dtype, elements, &bytes) ? bytes : UINT64_MAX;
}

static bool put_raw(struct put *put, const char *dtype, const char *shape) {
    char sidecar[BPK_FILE_NAME_BUF + 8];
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    bool describes = !put->exists || dtype || shape;
    uint64_t most = 0;
    if (!describes)
        most = bytes_of_old(put);
    else if (!compose_sidecar(put, dtype, shape, &text, &most))
        return false;
    struct bpk_place place = bpk_cli_change_place(put->change, BPK_IN_TENSORS, put->file);
    int r = place.number != 0 ? bpk_edits_truncate(put->change->edits, &place, 0)
                              : bpk_edits_create(put->change->edits, BPK_IN_TENSORS, put->file,
                                                 0644, &place.number);
    if (!bpk_cli_change_done(put->change, put->file, r) || !write_all(put, &place, most))
        return false;
    (void)snprintf(sidecar, sizeof(sidecar), "%s.json", put->file);
    return !describes || bpk_cli_change_text(put->change, BPK_IN_TENSORS, sidecar, &text);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

struct reason {
    const char *path;
    char text[400];
};

static void find_reason(void *context, const struct bpk_edit *edit) {
    struct reason *reason = context;
    if (edit->problem && strcmp(edit->path, reason->path) == 0)
        (void)snprintf(reason->text, sizeof(reason->text), "%s", edit->problem);
}

/* As numpy.save puts it into views/npy/ of a mount. */
static bool put_array(struct put *put) {
    char file[BPK_FILE_NAME_BUF + 8];
    char path[BPK_FILE_NAME_BUF + 32];
    struct bpk_edits *edits = put->change->edits;
    struct bpk_place place = {BPK_IN_NPY, file, 0};
    struct bpk_diag diag = {.sentence = ""};
    struct bpk_npy npy;
    int r = bpk_npy_parse(put->buffer, put->filled, &npy, &diag);
    if (r < 0 && r != -EAGAIN) {
        bpk_cli_error(put->data, "%s", diag.sentence);
        return false;
    }
    (void)snprintf(file, sizeof(file), "%s.npy", put->file);
    (void)snprintf(path, sizeof(path), "views/npy/%s", file);
    if (put->exists) {
        place.number =
            BPK_ARRAY_NUMBERS + bpk_cli_change_place(put->change, BPK_IN_TENSORS, put->file).number;
        r = bpk_edits_begin_array(edits, file, place.number);
    } else {
        r = bpk_edits_create(edits, BPK_IN_NPY, file, 0644, &place.number);
    }
    if (!bpk_cli_change_done(put->change, put->file, r) || !write_all(put, &place, UINT64_MAX))
        return false;
    r = bpk_edits_fsync(edits, &place);
    struct reason reason = {.path = path};
    bpk_edits_list(edits, find_reason, &reason);
    if (reason.text[0] != '\0') {
        bpk_cli_error(put->data, "%s", reason.text);
        return false;
    }
    return bpk_cli_change_done(put->change, put->file, r);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool put_data(struct put *put, const char *name, const char *dtype, const char *shape) {
    put->exists = bpk_cli_find(&put->change->pack, name, &put->index) == 0;
    if (put->exists)
        bpk_names_file(put->change->pack.names, put->index, put->file);
    else if (!bpk_cli_change_new_name(put->change, name, put->file))
        return false;
    if (strcmp(put->data, "-") != 0)
        put->fd = open(put->data, O_RDONLY | O_CLOEXEC);
    if (put->fd < 0 && errno == EINTR)
        (void)bpk_cli_interrupted();
    if (put->fd < 0)
        return unreadable(put, -errno);
    if (!fill(put))
        return false;
    if (dtype || shape)
        return put_raw(put, dtype, shape);
    size_t len = strlen(put->data);
    if (!is_npy(put) && len > 4 && strcmp(put->data + len - 4, ".npy") == 0) {
        bpk_cli_error(put->data, "it does not begin as a .npy file does; with '--dtype' or "
                                 "'--shape' it is taken as raw bytes");
        return false;
    }
    return is_npy(put) ? put_array(put) : put_raw(put, NULL, NULL);
}

static int run(int argc, char **argv) {
    static const struct option options[] = {
        {"dtype", required_argument, NULL, 'd'}, {"shape", required_argument, NULL, 's'}, {0}};
    struct bpk_open_options how = {0};
    struct bpk_cli_change change;
    const char *dtype = NULL;
    const char *shape = NULL;
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c == 'd')
            dtype = optarg;
        else if (c == 's')
            shape = optarg;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_put);
    }
    if (optind + 3 != argc)
        return bpk_cli_usage(&bpk_verb_put);
    if (!bpk_cli_change_begin(argv[optind], &how, &change))
        return BPK_EXIT_FAILED;
    struct put put = {.change = &change,
                      .data = argv[optind + 2],
                      .fd = STDIN_FILENO,
                      .buffer = malloc(BUFFER_SIZE)};
    if (!put.buffer)
        bpk_cli_error(NULL, "out of memory");
    bool good = put.buffer && put_data(&put, argv[optind + 1], dtype, shape);
    if (put.fd > STDIN_FILENO)
        close(put.fd);
    free(put.buffer);
    return bpk_cli_change_end(&change, good);
}

const struct bpk_verb bpk_verb_put = {
    .name = "put",
    .arguments = "[--dtype D] [--shape S] FILE NAME DATA|-",
    .summary = "write a tensor from raw bytes or a .npy file",
    .options = "    --dtype D    the dtype of the bytes, F32 for one\n"
               "    --shape S    their shape, 64x3 for one\n",
    .run = run,
    .writes = true,
};
