/* bpk cat: the bytes of tensors, as they are or as .npy files. */
#include "cli/cli.h"

#include "pack/text.h"
#include "pack/util.h"
#include "view/npy.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_SIZE = 1 << 20 };

static int write_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        bytes += n;
        size -= (size_t)n;
    }
    return 0;
}

static bool write_out(const char *bytes, size_t size) {
    int r = write_all(STDOUT_FILENO, bytes, size);
    if (r < 0)
        bpk_cli_error(NULL, "cannot write: %s", strerror(-r));
    return r == 0;
}

static bool copy_tensor(const struct bpk_cli_pack *pack, uint32_t index, char *buffer) {
    uint64_t offset = 0;
    for (;;) {
        size_t n;
        int r = bpk_pack_read(pack->pack, index, offset, buffer, BUFFER_SIZE, &n);
        if (r < 0) {
            bpk_cli_error(pack->path,
                          bpk_pack_is_changed(pack->pack) ? "the file was changed while it was read"
                                                          : "cannot read: %s",
                          strerror(-r));
            return false;
        }
        if (n == 0)
            return true;
        if (!write_out(buffer, n))
            return false;
        offset += n;
    }
}

/* ---- headers --------------------------------------------------------------------------------- */

struct tensor {
    uint32_t index;
    struct bpk_outbuf header; /* of its .npy file; empty where that is not asked for */
};

/* False, with a message, if NumPy could not load it. */
static bool prepare_header(const struct bpk_cli_pack *pack, struct tensor *tensor,
                           const char *shown) {
    uint64_t dims[BPK_NPY_MAX_RANK];
    struct bpk_array array = {.dims = dims};
    struct bpk_tensor facts;
    bpk_pack_tensor(pack->pack, tensor->index, &facts);
    if (facts.rank > BPK_NPY_MAX_RANK) {
        bpk_cli_error(pack->path, "'%s' has %u dimensions, an array of NumPy has at most %d", shown,
                      facts.rank, BPK_NPY_MAX_RANK);
        return false;
    }
    struct bpk_shape shape = bpk_pack_tensor_shape(pack->pack, tensor->index);
    while (array.rank < facts.rank)
        (void)bpk_shape_next(&shape, &dims[array.rank++]);
    bpk_pack_tensor_dtype(pack->pack, tensor->index, &array.dtype);
    array.size = facts.end - facts.start;
    if (!bpk_array_is_whole(&array)) {
        bpk_cli_error(pack->path, "'%s' has another length than its shape and dtype need", shown);
        return false;
    }
    bpk_npy_array_header(&tensor->header, &array);
    if (tensor->header.failed)
        bpk_cli_error(NULL, "out of memory");
    return !tensor->header.failed;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool prepare(const struct bpk_cli_pack *pack, const char *given, bool npy,
                    struct tensor *tensor) {
    char name[256];
    char shown[256];
    (void)snprintf(name, sizeof(name), "%s", given);
    bpk_text_make_utf8(name);
    bpk_text_escape(name, strlen(name), shown, sizeof(shown));
    if (bpk_cli_find(pack, given, &tensor->index) < 0) {
        bpk_cli_error(pack->path, "there is no tensor '%s'; 'bpk ls' lists them", shown);
        return false;
    }
    return !npy || prepare_header(pack, tensor, shown);
}

/* Every tensor is looked up, and every header made, before the first byte is written. */
static bool copy_all(const struct bpk_cli_pack *pack, int count, char **names, bool npy) {
    _cleanup_free_ struct tensor *tensors = calloc((size_t)count, sizeof(*tensors));
    _cleanup_free_ char *buffer = malloc(BUFFER_SIZE);
    if (!tensors || !buffer) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    bool good = true;
    for (int i = 0; i < count && good; i++)
        good = prepare(pack, names[i], npy, &tensors[i]);
    for (int i = 0; i < count && good; i++)
        good = write_out(tensors[i].header.text, tensors[i].header.len) &&
               copy_tensor(pack, tensors[i].index, buffer);
    for (int i = 0; i < count; i++)
        bpk_outbuf_clear(&tensors[i].header);
    return good;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {
        {"force", no_argument, NULL, 'f'}, {"npy", no_argument, NULL, 'n'}, {0}};
    bool force = false;
    bool npy = false;
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "fo:", options, NULL)) != -1) {
        if (c == 'f')
            force = true;
        else if (c == 'n')
            npy = true;
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
    bool good = copy_all(&pack, argc - optind - 1, argv + optind + 1, npy);
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_cat = {
    .name = "cat",
    .arguments = "[--force] [--npy] FILE TENSOR ...",
    .summary = "the bytes of tensors, or .npy files of them",
    .run = run,
};
