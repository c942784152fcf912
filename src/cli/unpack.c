/* bpk unpack: the files that a mount shows, in a folder. */
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/losses.h"
#include "cli/progress.h"

#include "pack/copy.h"
#include "pack/io.h"
#include "pack/util.h"
#include "view/maps.h"
#include "view/sidecar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A folder without tensors/ is not whole: it gets that name when all is there. */
static const char unfinished[] = ".tensors.unfinished";

struct job {
    const struct bpk_cli_pack *pack;
    const char *path;
    bool made_folder;
    int folder;
    int tensors; /* the folder of that name */
    mode_t mode; /* of files */
    mode_t folder_mode;
    uint32_t made; /* tensors that have files, maybe not whole */
    struct bpk_copier copier;
    struct bpk_cli_counter counter; /* of bytes of tensors */
};

static bool fail(const struct job *job, const char *what, const char *file, int r) {
    bpk_cli_error(job->path, "cannot %s %s: %s", what, file, strerror(-r));
    return false;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static bool is_empty(int folder) {
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool empty = dir != NULL;
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        empty = empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
    if (dir)
        closedir(dir);
    return empty;
}

static bool begin(struct job *job) {
    mode_t mode = bpk_pack_stat(job->pack->pack)->st_mode & 0666;
    job->mode = mode | 0600;
    job->folder_mode = job->mode | (job->mode & 0444) >> 2;
    job->made_folder = mkdir(job->path, job->folder_mode) == 0;
    if (!job->made_folder && errno != EEXIST)
        return fail(job, "make", "it", -errno);
    job->folder = open(job->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job->folder < 0)
        return fail(job, "open", "it", -errno);
    if (!job->made_folder && !is_empty(job->folder)) {
        bpk_cli_error(job->path, "the folder is not empty");
        return false;
    }
    if (mkdirat(job->folder, unfinished, job->folder_mode) < 0)
        return fail(job, "make", "a folder in it", -errno);
    job->tensors = openat(job->folder, unfinished, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return job->tensors >= 0 || fail(job, "open", unfinished, -errno);
}

/* Takes everything away that was made. */
static void undo(struct job *job) {
    char file[BPK_FILE_NAME_BUF + 8];
    for (uint32_t i = 0; i < job->made; i++) {
        size_t len = bpk_names_file(job->pack->names, i, file);
        (void)unlinkat(job->tensors, file, 0);
        strcpy(file + len, ".json");
        (void)unlinkat(job->tensors, file, 0);
    }
    if (job->tensors < 0)
        return;
    (void)unlinkat(job->folder, unfinished, AT_REMOVEDIR);
    (void)unlinkat(job->folder, "metadata.json", 0);
    (void)unlinkat(job->folder, "scalars.json", 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool write_text(const struct job *job, int folder, const char *name,
                       const struct bpk_outbuf *text) {
    if (text->failed)
        return fail(job, "compose", name, -ENOMEM);
    _cleanup_close_ int fd =
        openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, job->mode);
    int r = fd < 0 ? -errno : bpk_io_pwrite(fd, 0, text->text, text->len);
    return r == 0 || fail(job, "write", name, r);
}

/* There may be a hole at the end. Where the size is right already it is left alone: XFS would write
 * everything back first, and a file that is made long before it is written is slower on ext4. */
static int set_size(int fd, uint64_t size) {
    struct stat attr;
    if (fstat(fd, &attr) < 0)
        return -errno;
    return (uint64_t)attr.st_size == size || ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
}

static int go_on(void *context, uint64_t done, uint64_t total) {
    (void)context;
    (void)done;
    (void)total;
    return bpk_cli_interrupted() ? -EINTR : 0;
}

static bool write_tensor(struct job *job, uint32_t index, const char *name) {
    struct bpk_tensor tensor;
    bpk_pack_tensor(job->pack->pack, index, &tensor);
    uint64_t size = tensor.end - tensor.start;
    int from = bpk_pack_fd(job->pack->pack);
    _cleanup_close_ int fd =
        openat(job->tensors, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, job->mode);
    if (fd < 0)
        return fail(job, "make", name, -errno);
    job->copier.to = fd;
    if (index == 0)
        job->copier.clone = bpk_copy_can_clone(from, fd);
    int r = bpk_copier_range(&job->copier, from, tensor.start, 0, size);
    if (r == 0)
        r = set_size(fd, size);
    job->counter.done += size;
    return r == 0 || fail(job, "write", name, r);
}

static bool write_tensors(struct job *job) {
    char file[BPK_FILE_NAME_BUF + 8];
    for (uint32_t i = 0; i < job->pack->info.tensors; i++) {
        _cleanup_outbuf_ struct bpk_outbuf text = {0};
        size_t len = bpk_names_file(job->pack->names, i, file);
        job->made = i + 1;
        if (bpk_cli_interrupted() || !write_tensor(job, i, file))
            return false;
        bpk_sidecar_file(&text, job->pack->pack, i);
        strcpy(file + len, ".json");
        if (!write_text(job, job->tensors, file, &text))
            return false;
    }
    return true;
}

static bool write_maps(const struct job *job) {
    _cleanup_outbuf_ struct bpk_outbuf metadata = {0};
    _cleanup_outbuf_ struct bpk_outbuf scalars = {0};
    bpk_metadata_file(&metadata, job->pack->pack);
    bpk_scalars_file(&scalars, job->pack->pack);
    return write_text(job, job->folder, "metadata.json", &metadata) &&
           write_text(job, job->folder, "scalars.json", &scalars);
}

static bool finish(const struct job *job) {
    if (bpk_cli_interrupted())
        return false;
    if (bpk_pack_is_changed(job->pack->pack)) {
        bpk_cli_error(job->pack->path, "the file was changed while it was read");
        return false;
    }
    return renameat(job->folder, unfinished, job->folder, "tensors") == 0 ||
           fail(job, "rename", unfinished, -errno);
}

static bool unpack(const struct bpk_cli_pack *pack, const char *path) {
    struct job job = {
        .pack = pack,
        .path = path,
        .folder = -1,
        .tensors = -1,
        .copier = {.lazy = true, .progress = {go_on, NULL}},
        .counter = {.total = pack->info.data_end - pack->info.data_start},
    };
    struct bpk_cli_progress progress = {
        .ask = bpk_cli_ask_counter, .context = &job.counter, .what = "unpacking"};
    bpk_cli_progress_begin(&progress);
    bool good = begin(&job) && write_tensors(&job) && write_maps(&job) && finish(&job);
    bpk_cli_progress_end(&progress);
    bpk_copier_clear(&job.copier);
    if (!good)
        undo(&job);
    if (job.tensors >= 0)
        close(job.tensors);
    if (job.folder >= 0)
        close(job.folder);
    if (!good && job.made_folder)
        (void)rmdir(path);
    return good;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{0}};
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_unpack);
    }
    if (optind + 2 != argc)
        return bpk_cli_usage(&bpk_verb_unpack);
    struct bpk_cli_pack pack;
    if (bpk_cli_open(argv[optind], &how, &pack) < 0)
        return BPK_EXIT_FAILED;
    bool good = unpack(&pack, argv[optind + 1]) && bpk_cli_tell_losses(&pack);
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_unpack = {
    .name = "unpack",
    .arguments = "FILE DIR",
    .summary = "write the files that a mount shows into a folder",
    .run = run,
    .writes = true,
};
