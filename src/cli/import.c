/* bpk import: a pack of what other formats hold. */
#include "cli/import.h"

#include "cli/cli.h"

#include <getopt.h>

static int run(int argc, char **argv) {
    static const struct option options[] = {{"force", no_argument, NULL, 'f'},
                                            {"npy", no_argument, NULL, 'n'},
                                            {"safetensors", no_argument, NULL, 's'},
                                            {0}};
    struct bpk_cli_newpack pack = {.folder = -1};
    bool force = false;
    int format = 0;
    int c;
    while ((c = getopt_long(argc, argv, "f", options, NULL)) != -1) {
        if (c == 'f')
            force = true;
        else if ((c == 'n' || c == 's') && (format == 0 || format == c))
            format = c;
        else
            return bpk_cli_usage(&bpk_verb_import);
    }
    if (optind + 2 != argc || format == 0)
        return bpk_cli_usage(&bpk_verb_import);
    const char *out = argv[optind + 1];
    pack.from = argv[optind];
    bool good = format == 's' ? bpk_cli_import_safetensors(pack.from, &pack)
                              : bpk_cli_import_npy(pack.from, out, &pack);
    good = good && bpk_cli_newpack_write(&pack, out, force);
    bpk_cli_newpack_clear(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_import = {
    .name = "import",
    .arguments = "--safetensors|--npy [--force] FROM FILE",
    .summary = "make a pack of another format's file, or folder",
    .options =
        "    --safetensors    FROM is a safetensors file\n"
        "    --npy            FROM is a folder; each .npy file in it becomes a tensor of its name\n"
        "    --force          replace FILE if it is there\n",
    .run = run,
    .writes = true,
};
