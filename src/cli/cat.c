/* bpk cat: the bytes of tensors, as they are or as .npy files, or their values as float32. */
#include "cli/cli.h"

#include "pack/text.h"
#include "pack/util.h"
#include "view/f32.h"
#include "view/npy.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_SIZE = 1 << 20 };

/* What is written of each tensor. */
enum form { FORM_BYTES, FORM_NPY, FORM_F32 };

static bool copy_tensor(const struct bpk_cli_pack *pack, uint32_t index, char *buffer) {
    uint64_t offset = 0;
    for (;;) {
        size_t n;
        int r = bpk_pack_read(pack->pack, index, offset, buffer, BUFFER_SIZE, &n);
        if (r < 0) {
            bpk_cli_unread(pack, r);
            return false;
        }
        if (n == 0)
            return true;
        if (!bpk_cli_out(buffer, n))
            return false;
        offset += n;
    }
}

/* ---- .npy files ------------------------------------------------------------------------------ */

struct tensor {
    const struct bpk_cli_pack *pack;
    uint32_t index;
    uint64_t dims[BPK_NPY_MAX_RANK];
    struct bpk_outbuf header; /* of its .npy file; empty for bytes alone */
    struct bpk_f32 *f32;      /* only where values are asked for */
};

static int read_source(void *context, uint64_t offset, void *buffer, size_t size) {
    const struct tensor *tensor = context;
    size_t n;
    int r = bpk_pack_read(tensor->pack->pack, tensor->index, offset, buffer, size, &n);
    return r == 0 && n < size ? -EIO : r;
}

/* What its file begins with. False, with a message, if NumPy could not load it. */
static bool prepare_file(struct tensor *tensor, enum form form, const char *shown) {
    struct bpk_tensor facts;
    struct bpk_array array = {.dims = tensor->dims};
    struct bpk_diag diag = {.sentence = "has another length than its shape and dtype need"};
    bpk_pack_tensor(tensor->pack->pack, tensor->index, &facts);
    if (facts.rank > BPK_NPY_MAX_RANK) {
        bpk_cli_error(tensor->pack->path,
                      "'%s' has %u dimensions, an array of NumPy has at most %d", shown, facts.rank,
                      BPK_NPY_MAX_RANK);
        return false;
    }
    struct bpk_shape shape = bpk_pack_tensor_shape(tensor->pack->pack, tensor->index);
    while (array.rank < facts.rank)
        (void)bpk_shape_next(&shape, &tensor->dims[array.rank++]);
    bpk_pack_tensor_dtype(tensor->pack->pack, tensor->index, &array.dtype);
    array.size = facts.end - facts.start;
    int r = 0;
    if (form == FORM_F32)
        r = bpk_f32_new(&array, &tensor->f32, &diag);
    else if (!bpk_array_is_whole(&array))
        r = -EINVAL;
    if (r == 0 && form == FORM_F32)
        bpk_npy_header(&tensor->header, "<f4", array.dims, array.rank);
    else if (r == 0)
        bpk_npy_array_header(&tensor->header, &array);
    if (r == -ENOMEM || tensor->header.failed)
        bpk_cli_error(NULL, "out of memory");
    else if (r < 0)
        bpk_cli_error(tensor->pack->path, "'%s' %s", shown, diag.sentence);
    return r == 0 && !tensor->header.failed;
}

static bool copy_values(struct tensor *tensor, char *buffer) {
    const struct bpk_source source = {.read = read_source, .context = tensor};
    float *values = (float *)buffer;
    uint64_t count = bpk_f32_count(tensor->f32);
    size_t n;
    for (uint64_t first = 0; first < count; first += n) {
        n = BUFFER_SIZE / sizeof(*values);
        if (n > count - first)
            n = (size_t)(count - first);
        int r = bpk_f32_read(tensor->f32, &source, first, n, values);
        if (r < 0) {
            bpk_cli_unread(tensor->pack, r);
            return false;
        }
        if (!bpk_cli_out(buffer, n * sizeof(*values)))
            return false;
    }
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Fills in what is known before the first byte is written. */
static bool prepare(const struct bpk_cli_pack *pack, const char *name, enum form form,
                    struct tensor *tensor) {
    char shown[256];
    char copy[256];
    (void)snprintf(copy, sizeof(copy), "%s", name);
    bpk_text_make_utf8(copy);
    bpk_text_escape(copy, strlen(copy), shown, sizeof(shown));
    tensor->pack = pack;
    if (bpk_cli_find(pack, name, &tensor->index) < 0) {
        bpk_cli_error(pack->path, "there is no tensor '%s'; 'bpk ls' lists them", shown);
        return false;
    }
    return form == FORM_BYTES || prepare_file(tensor, form, shown);
}

static bool copy_all(const struct bpk_cli_pack *pack, int count, char **names, enum form form) {
    _cleanup_free_ struct tensor *tensors = calloc((size_t)count, sizeof(*tensors));
    _cleanup_free_ char *buffer = malloc(BUFFER_SIZE);
    if (!tensors || !buffer) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    bool good = true;
    for (int i = 0; i < count && good; i++)
        good = prepare(pack, names[i], form, &tensors[i]);
    for (int i = 0; i < count && good; i++)
        good = bpk_cli_out(tensors[i].header.text, tensors[i].header.len) &&
               (tensors[i].f32 ? copy_values(&tensors[i], buffer)
                               : copy_tensor(pack, tensors[i].index, buffer));
    for (int i = 0; i < count; i++) {
        bpk_f32_free(tensors[i].f32);
        bpk_outbuf_clear(&tensors[i].header);
    }
    return good;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"f32", no_argument, NULL, '3'},
                                            {"force", no_argument, NULL, 'f'},
                                            {"npy", no_argument, NULL, 'n'},
                                            {0}};
    bool force = false;
    enum form form = FORM_BYTES;
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "fo:", options, NULL)) != -1) {
        if (c == 'f')
            force = true;
        else if (c == '3')
            form = FORM_F32;
        else if (c == 'n')
            form = FORM_NPY;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_cat);
    }
    if (argc - optind < 2)
        return bpk_cli_usage(&bpk_verb_cat);
    if (!force && isatty(STDOUT_FILENO)) {
        bpk_cli_error(argv[optind], "tensors are binary; send them to a file or through "
                                    "'hexdump -C', or use --force");
        return BPK_EXIT_FAILED;
    }
    struct bpk_cli_pack pack;
    if (bpk_cli_open(argv[optind], &how, &pack) < 0)
        return BPK_EXIT_FAILED;
    bool good = copy_all(&pack, argc - optind - 1, argv + optind + 1, form);
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_cat = {
    .name = "cat",
    .arguments = "[--f32 | --npy] [--force] FILE TENSOR ...",
    .summary = "the bytes of tensors, or .npy files of them",
    .options = "    --f32      a .npy file of the values as float32, whatever the dtype\n"
               "    --npy      a .npy file of the bytes as they are\n"
               "    --force    write to a terminal, too\n",
    .run = run,
};
