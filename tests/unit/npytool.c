/* What npy and npy_order make of bytes from outside, for comparison with NumPy:
 *
 *     npytool headers <RECORDS      each a length (4 bytes, little-endian) and that many bytes;
 *                                   prints "DESCR ORDER HEADER_SIZE DIM DIM …", "more" or "refused"
 *     npytool reorder IN.npy OUT    writes the array's data as a tensor has it */
#include "pack/io.h"
#include "pack/util.h"
#include "view/npy_order.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_header(const char *bytes, size_t len) {
    struct bpk_npy npy;
    int r = bpk_npy_parse(bytes, len, &npy, NULL);
    if (r < 0) {
        puts(r == -EAGAIN ? "more" : "refused");
        return;
    }
    struct bpk_dtype dtype;
    (void)bpk_npy_dtype(&npy, NULL, &dtype);
    const char *name = bpk_dtype_numpy(&dtype);
    printf("%c%s %c %zu", npy.is_big_endian ? '>' : name[0], name + 1, npy.is_fortran ? 'F' : 'C',
           npy.header_size);
    for (uint32_t i = 0; i < npy.rank; i++)
        printf(" %" PRIu64, npy.dims[i]);
    puts("");
}

static int headers(void) {
    unsigned char length[4];
    while (fread(length, 1, sizeof(length), stdin) == sizeof(length)) {
        size_t len = length[0] | length[1] << 8 | length[2] << 16;
        _cleanup_free_ char *bytes = malloc(len + !len);
        if (!bytes || fread(bytes, 1, len, stdin) != len)
            return 1;
        print_header(bytes, len);
    }
    return 0;
}

struct files {
    int in;
    int out;
    uint64_t data; /* where it begins in `in` */
};

static int read_data(void *context, uint64_t offset, void *buffer, size_t size) {
    const struct files *files = context;
    size_t n;
    int r = bpk_io_pread(files->in, files->data + offset, buffer, size, &n);
    return r == 0 && n < size ? -EIO : r;
}

static int write_data(void *context, uint64_t offset, const void *bytes, size_t size) {
    const struct files *files = context;
    return bpk_io_pwrite(files->out, offset, bytes, size);
}

static int reorder(const char *in, const char *out) {
    struct files files = {.in = open(in, O_RDONLY | O_CLOEXEC),
                          .out = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
    struct bpk_source source = {read_data, &files};
    char head[BPK_NPY_MAX_TEXT + 12];
    struct bpk_npy npy;
    ssize_t n = pread(files.in, head, sizeof(head), 0);
    if (n < 0 || bpk_npy_parse(head, (size_t)n, &npy, NULL) < 0)
        return 1;
    files.data = npy.header_size;
    int r = bpk_npy_reorder(&npy, &source, write_data, &files);
    if (r < 0)
        fprintf(stderr, "npytool: %s\n", strerror(-r));
    return r < 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "headers") == 0)
        return headers();
    if (argc == 4 && strcmp(argv[1], "reorder") == 0)
        return reorder(argv[2], argv[3]);
    return 2;
}
