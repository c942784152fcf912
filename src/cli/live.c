#include "cli/live.h"

#include "cli/cli.h"
#include "cli/progress.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_control_file(const char *mountpoint, const char *name, int flags) {
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s/.bpkfs/%s", mountpoint, name) >= sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, flags | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static int read_all(int fd, struct bpk_outbuf *out) {
    char bytes[4096];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof(bytes))) > 0)
        bpk_out(out, bytes, (size_t)n);
    if (n < 0)
        return -errno;
    return out->failed ? -ENOMEM : 0;
}

static int read_status(const char *mountpoint, struct bpk_status *ret_status,
                       struct bpk_outbuf *text) {
    int fd = open_control_file(mountpoint, "status.json", O_RDONLY);
    int r = fd < 0 ? fd : read_all(fd, text);
    if (fd >= 0)
        close(fd);
    return r < 0 ? r : bpk_status_parse((struct bpk_str){text->text, text->len}, ret_status);
}

static bool ask_daemon(void *mountpoint, uint64_t *ret_done, uint64_t *ret_total) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    struct bpk_status status;
    if (read_status(mountpoint, &status, &text) < 0)
        return false;
    *ret_done = status.done;
    *ret_total = status.total;
    bpk_status_clear(&status);
    return true;
}

/* `r` is why no file of it could be opened. */
static void tell_of_mount(const char *mountpoint, int r) {
    if (r == -ENOENT)
        bpk_cli_error(mountpoint, "no pack is mounted there");
    else if (r == -ENOTDIR)
        bpk_cli_error(mountpoint, "is a file; the verb takes the folder that a pack is mounted on");
    else if (r == -ENOTCONN)
        bpk_cli_error(mountpoint, "its bpkfs was killed; mount the pack there again: that cleans "
                                  "up and has the edits back");
    else if (r == -EROFS)
        bpk_cli_error(mountpoint, "it is mounted read-only");
    else
        bpk_cli_error(mountpoint, "cannot reach its daemon: %s", strerror(-r));
}

bool bpk_live_tell_pack(const char *folder) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    struct bpk_status status;
    char shown[PATH_MAX];
    if (read_status(folder, &status, &text) < 0)
        return false;
    bpk_text_make_utf8(status.pack);
    bpk_cli_error(folder, "is a directory; the pack that is mounted there is %s",
                  bpk_text_escape(status.pack, strlen(status.pack), shown, sizeof(shown)));
    bpk_status_clear(&status);
    return true;
}

int bpk_live_status(const char *mountpoint, struct bpk_status *ret_status,
                    struct bpk_outbuf *ret_text) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    int r = read_status(mountpoint, ret_status, &text);
    if (r < 0)
        tell_of_mount(mountpoint, r);
    if (r == 0 && ret_text) {
        *ret_text = text;
        text = (struct bpk_outbuf){0};
    }
    return r;
}

/* What the daemon says of the last command: why it failed, or what it did beside. Returns how many
 * lines that were. */
static size_t print_outcome(const char *mountpoint) {
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    int fd = open_control_file(mountpoint, "control", O_RDONLY);
    if (fd >= 0) {
        (void)read_all(fd, &text);
        close(fd);
    }
    return bpk_cli_lines(mountpoint, &text);
}

int bpk_live_command(const char *mountpoint, const char *command) {
    int fd = open_control_file(mountpoint, "control", O_WRONLY);
    if (fd < 0) {
        tell_of_mount(mountpoint, fd);
        return fd;
    }
    struct bpk_cli_progress progress = {
        .ask = ask_daemon, .context = (void *)(uintptr_t)mountpoint, .what = "committing"};
    ssize_t n;
    bpk_cli_progress_begin(&progress);
    do {
        n = write(fd, command, strlen(command));
    } while (n < 0 && errno == EINTR);
    int r = n < 0 ? -errno : 0;
    bpk_cli_progress_end(&progress);
    close(fd);
    if (print_outcome(mountpoint) == 0 && r < 0)
        bpk_cli_error(mountpoint, "%s", strerror(-r));
    return r;
}

/* Why an edit waits; of a backup there is nothing wrong. */
static const char *find_reason(const struct bpk_status *status,
                               const struct bpk_status_edit *edit) {
    for (size_t i = 0; i < status->problem_count; i++)
        if (strcmp(status->problems[i].file, edit->path) == 0)
            return status->problems[i].reason;
    return edit->change ? edit->change : "an edit";
}

void bpk_live_print_waiting(const char *mountpoint) {
    struct bpk_status status;
    if (bpk_live_status(mountpoint, &status, NULL) < 0)
        return;
    for (size_t i = 0; i < status.edit_count; i++) {
        const char *path = status.edits[i].path;
        const char *reason = find_reason(&status, &status.edits[i]);
        char shown[600];
        printf("not in the pack: %s: ", bpk_text_escape(path, strlen(path), shown, sizeof(shown)));
        printf("%s\n", bpk_text_escape(reason, strlen(reason), shown, sizeof(shown)));
    }
    bpk_status_clear(&status);
}
