/* bpk cat: the bytes of tensors. */
#include "cli/cli.h"

#include "pack/text.h"
#include "pack/util.h"

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
        r = write_all(STDOUT_FILENO, buffer, n);
        if (r < 0) {
            bpk_cli_error(NULL, "cannot write: %s", strerror(-r));
            return false;
        }
        offset += n;
    }
}

/* Every name is looked up before the first byte is written. */
static bool copy_all(const struct bpk_cli_pack *pack, int count, char **names) {
    _cleanup_free_ uint32_t *found = calloc((size_t)count, sizeof(*found));
    _cleanup_free_ char *buffer = malloc(BUFFER_SIZE);
    if (!found || !buffer) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (bpk_cli_find(pack, names[i], &found[i]) < 0) {
            char name[256];
            char shown[256];
            (void)snprintf(name, sizeof(name), "%s", names[i]);
            bpk_text_make_utf8(name);
            bpk_cli_error(pack->path, "there is no tensor '%s'; 'bpk ls' lists them",
                          bpk_text_escape(name, strlen(name), shown, sizeof(shown)));
            return false;
        }
    }
    for (int i = 0; i < count; i++)
        if (!copy_tensor(pack, found[i], buffer))
            return false;
    return true;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"force", no_argument, NULL, 'f'}, {0}};
    bool force = false;
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "fo:", options, NULL)) != -1) {
        if (c == 'f')
            force = true;
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
    bool good = copy_all(&pack, argc - optind - 1, argv + optind + 1);
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_cat = {
    .name = "cat",
    .arguments = "[--force] FILE TENSOR ...",
    .summary = "the bytes of tensors",
    .run = run,
};
