/* Lists the tensors of a pack with their dtypes, shapes and sizes, then its metadata.
 *
 *     cc lsbpk.c $(pkg-config --cflags --libs libbpk) -o lsbpk
 */
#include <bpk.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Text from a pack may hold anything; what could be a command to a terminal is not shown as it is.
 */
static void print_text(struct bpk_str text) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.bytes[i];
        putchar(c < 0x20 || c == 0x7f ? '?' : c);
    }
}

static void print_tensor(const struct bpk_pack *pack, uint32_t index) {
    struct bpk_tensor tensor;
    bpk_pack_tensor(pack, index, &tensor);
    printf("%s\t", bpk_kind_name(tensor.kind));
    struct bpk_shape shape = bpk_pack_tensor_shape(pack, index);
    uint64_t dim;
    for (const char *times = ""; bpk_shape_next(&shape, &dim); times = "x")
        printf("%s%" PRIu64, times, dim);
    printf("\t%" PRIu64 "\t", tensor.end - tensor.start);
    print_text(tensor.name);
    putchar('\n');
}

static void print_metadata(const struct bpk_pack *pack, uint32_t index) {
    struct bpk_str key;
    struct bpk_str value;
    bpk_pack_metadata(pack, index, &key, &value);
    print_text(key);
    fputs(" = ", stdout);
    print_text(value);
    putchar('\n');
}

static void print_problem(void *context, uint32_t tensor, const char *sentence) {
    (void)tensor;
    fprintf(stderr, "lsbpk: %s: %s\n", (const char *)context, sentence);
}

int main(int argc, char **argv) {
    struct bpk_pack *pack;
    struct bpk_pack_info info;
    struct bpk_diag diag;
    if (argc != 2) {
        fputs("usage: lsbpk FILE\n", stderr);
        return 2;
    }
    if (bpk_pack_open(argv[1], NULL, &pack, &diag) < 0) {
        fprintf(stderr, "lsbpk: %s: %s\n", argv[1], diag.sentence);
        return EXIT_FAILURE;
    }
    bpk_pack_get_info(pack, &info);
    for (uint32_t i = 0; i < info.tensors; i++)
        print_tensor(pack, i);
    for (uint32_t i = 0; i < info.metadata_entries; i++)
        print_metadata(pack, i);
    int r = bpk_pack_check(pack, print_problem, argv[1]);
    bpk_pack_unref(pack);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
