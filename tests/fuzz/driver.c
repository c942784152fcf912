/* Gives a fuzz target every file of the folders named, and every file named, once each: where there
 * is no libFuzzer, and as a test. It fails if there was none. */
#include "fuzz.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static unsigned long inputs;

/* Takes a file of a walk; the name is said before, for the one that ends all. */
static int take(const char *path, const struct stat *attr, int type, struct FTW *walk) {
    (void)walk;
    if (type != FTW_F)
        return type == FTW_D ? 0 : EIO;
    size_t size = (size_t)attr->st_size;
    uint8_t *data = malloc(size > 0 ? size : 1); /* exactly, so that sanitizers see a byte more */
    FILE *file = fopen(path, "rb");
    if (!data || !file || fread(data, 1, size, file) != size)
        return EIO;
    fclose(file);
    printf("%s\n", path);
    fflush(stdout);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    inputs++;
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (nftw(argv[i], take, 8, 0) != 0) {
            fprintf(stderr, "cannot read all of %s\n", argv[i]);
            return EXIT_FAILURE;
        }
    }
    printf("%lu inputs\n", inputs);
    return inputs > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
