/* bpk export: a pack in another format. */
#include "cli/busy.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

#include "edit/export.h"
#include "pack/atomic_file.h"
#include "pack/io.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { BUFFER_SIZE = 1 << 20 };

struct job {
    const struct bpk_cli_pack *pack;
    struct bpk_export *export;
    int fd;                         /* where it goes; -1: standard output */
    struct bpk_cli_counter counter; /* of bytes */
};

static bool copy(struct job *job, const char *out) {
    _cleanup_free_ char *buffer = malloc(BUFFER_SIZE);
    if (!buffer) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    for (;;) {
        size_t n;
        int r = bpk_export_read(job->export, job->counter.done, buffer, BUFFER_SIZE, &n);
        if (r < 0) {
            bpk_cli_unread(job->pack, r);
            return false;
        }
        if (n == 0)
            return true;
        if (bpk_cli_interrupted())
            return false;
        if (job->fd < 0 && !bpk_cli_out(buffer, n))
            return false;
        if (job->fd >= 0)
            r = bpk_io_pwrite(job->fd, job->counter.done, buffer, n);
        if (r < 0) {
            bpk_cli_error(out, "cannot write: %s", strerror(-r));
            return false;
        }
        job->counter.done += n;
    }
}

static bool copy_with_progress(struct job *job, const char *out) {
    struct bpk_cli_progress progress = {
        .ask = bpk_cli_ask_counter, .context = &job->counter, .what = "exporting"};
    job->counter.total = bpk_export_size(job->export);
    bpk_cli_progress_begin(&progress);
    bool good = copy(job, out);
    bpk_cli_progress_end(&progress);
    return good;
}

static bool is_source(const struct bpk_cli_pack *pack, const struct stat *file) {
    struct stat source;
    return stat(pack->path, &source) == 0 && source.st_dev == file->st_dev &&
           source.st_ino == file->st_ino;
}

static bool copy_to_file(struct job *job, const char *out, bool force) {
    struct bpk_atomic_file file;
    struct bpk_diag diag = {.sentence = ""};
    struct stat old;
    _cleanup_close_ int old_fd = -1; /* locked: no mount and no verb changes it meanwhile */
    bpk_cli_interrupt_catch();       /* standard output has nothing to take away */
    if (force && !bpk_cli_claim(out, &old_fd))
        return false;
    bool replaces = old_fd >= 0 && fstat(old_fd, &old) == 0;
    if (replaces && is_source(job->pack, &old)) {
        bpk_cli_error(out, "it is the pack itself, of which this would be all that is left");
        return false;
    }
    int r = bpk_atomic_begin(out, replaces ? &old : NULL, &file, &diag);
    if (r < 0) {
        bpk_cli_tell_unmade(out, r, diag.sentence);
        return false;
    }
    job->fd = file.fd;
    bool good = copy_with_progress(job, out);
    r = good ? bpk_atomic_seal(&file, -1, true, &diag) : 0;
    good = good && !bpk_cli_interrupted();
    if (good && r == 0)
        r = bpk_atomic_publish(&file, &diag);
    if (r < 0)
        bpk_cli_error(out, "%s", diag.sentence);
    bpk_atomic_end(&file);
    return good && r == 0;
}

struct left_out {
    const char *path;
    size_t count;
};

static void tell_left_out(void *context, const char *name, const char *reason) {
    struct left_out *left_out = context;
    char copy[256];
    char shown[256];
    (void)snprintf(copy, sizeof(copy), "%s", name);
    bpk_text_make_utf8(copy);
    bpk_text_escape(copy, strlen(copy), shown, sizeof(shown));
    bpk_cli_error(left_out->path, "'%s' is left out: it %s", shown, reason);
    left_out->count++;
}

static int export_pack(const struct bpk_cli_pack *pack, const char *out, bool force) {
    struct job job = {.pack = pack, .fd = -1};
    struct left_out left_out = {.path = pack->path};
    struct bpk_diag diag = {.sentence = "out of memory"};
    int r = bpk_export_of_pack(pack->pack, BPK_EXPORT_SAFETENSORS, &job.export, &diag);
    if (r < 0) {
        bpk_cli_error(pack->path, "%s", diag.sentence);
        return BPK_EXIT_FAILED;
    }
    bool good =
        strcmp(out, "-") == 0 ? copy_with_progress(&job, out) : copy_to_file(&job, out, force);
    if (good)
        bpk_export_each_left_out(job.export, tell_left_out, &left_out);
    bpk_export_unref(job.export);
    return good && left_out.count == 0 ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {
        {"safetensors", no_argument, NULL, 's'}, {"force", no_argument, NULL, 'f'}, {0}};
    struct bpk_open_options how = {0};
    bool has_format = false;
    bool force = false;
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c == 's')
            has_format = true;
        else if (c == 'f')
            force = true;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_export);
    }
    if (optind + 2 != argc || !has_format)
        return bpk_cli_usage(&bpk_verb_export);
    const char *out = argv[optind + 1];
    if (strcmp(out, "-") == 0 && !force && isatty(STDOUT_FILENO)) {
        bpk_cli_error(NULL, "standard output is a terminal; '--force' writes to it all the same");
        return BPK_EXIT_FAILED;
    }
    struct bpk_cli_pack pack;
    if (bpk_cli_open(argv[optind], &how, &pack) < 0)
        return BPK_EXIT_FAILED;
    int status = export_pack(&pack, out, force);
    bpk_cli_close(&pack);
    return status;
}

const struct bpk_verb bpk_verb_export = {
    .name = "export",
    .arguments = "--safetensors [--force] FILE OUT|-",
    .summary = "write the pack as a file of another format",
    .options = "    --safetensors    the format; it has to be named\n"
               "    --force          replace OUT if it is there, or write to a terminal\n",
    .run = run,
};
