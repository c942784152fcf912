#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/live.h"

#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void bpk_cli_error(const char *file, const char *format, ...) {
    char message[1024];
    va_list args;
    if (bpk_cli_interrupt_is_known())
        return;
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (!file) {
        (void)fprintf(stderr, "bpk: %s\n", message);
        return;
    }
    char name[PATH_MAX];
    char shown[PATH_MAX];
    (void)snprintf(name, sizeof(name), "%s", file);
    bpk_text_make_utf8(name);
    (void)fprintf(stderr, "bpk: %s: %s\n",
                  bpk_text_escape(name, strlen(name), shown, sizeof(shown)), message);
}

size_t bpk_cli_lines(const char *file, const struct bpk_outbuf *text) {
    size_t count = 0;
    for (size_t at = 0; at < text->len; count++) {
        char shown[600];
        const char *line = text->text + at;
        const char *end = memchr(line, '\n', text->len - at);
        size_t len = end ? (size_t)(end - line) : text->len - at;
        bpk_cli_error(file, "%s", bpk_text_escape(line, len, shown, sizeof(shown)));
        at += len + 1;
    }
    return count;
}

bool bpk_cli_out(const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            bpk_cli_error(NULL, "cannot write: %s", strerror(errno));
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

int bpk_cli_usage(const struct bpk_verb *verb) {
    (void)fprintf(stderr, "usage: bpk %s %s\n", verb->name, verb->arguments);
    return BPK_EXIT_USAGE;
}

bool bpk_cli_layout(const char *text, struct bpk_open_options *options) {
    options->force_layout = true;
    options->layout = BPK_LAYOUT_ALIGNED;
    if (strcmp(text, "layout=aligned") == 0)
        return true;
    options->layout = BPK_LAYOUT_LEGACY;
    if (strcmp(text, "layout=legacy") == 0)
        return true;
    bpk_cli_error(NULL, "-o takes 'layout=aligned' or 'layout=legacy'");
    return false;
}

int bpk_cli_open(const char *path, const struct bpk_open_options *options,
                 struct bpk_cli_pack *ret_pack) {
    struct bpk_diag diag;
    struct bpk_cli_pack pack = {.path = path};
    int r = bpk_pack_open(path, options, &pack.pack, &diag);
    if (r == -EISDIR && bpk_live_tell_pack(path))
        return r;
    if (r < 0) {
        if (diag.offset == BPK_NO_OFFSET)
            bpk_cli_error(path, "%s", diag.sentence);
        else
            bpk_cli_error(path, "at byte %" PRIu64 ": %s", diag.offset, diag.sentence);
        return r;
    }
    bpk_pack_get_info(pack.pack, &pack.info);
    r = bpk_names_new(pack.pack, BPK_NAMES_TENSORS, &pack.names);
    if (r < 0) {
        bpk_cli_error(path, "out of memory");
        bpk_pack_unref(pack.pack);
        return r;
    }
    *ret_pack = pack;
    return 0;
}

void bpk_cli_close(struct bpk_cli_pack *pack) {
    bpk_names_free(pack->names);
    bpk_pack_unref(pack->pack);
    *pack = (struct bpk_cli_pack){0};
}

void bpk_cli_unread(const struct bpk_cli_pack *pack, int r) {
    bpk_cli_error(pack->path,
                  bpk_pack_is_changed(pack->pack) ? "the file was changed while it was read"
                                                  : "cannot read: %s",
                  strerror(-r));
}

/* The tensor that is shown as `name`: for what neither spelling leads to. */
static int find_shown(const struct bpk_cli_pack *pack, struct bpk_str name, uint32_t *ret_index) {
    for (uint32_t i = 0; i < pack->info.tensors; i++) {
        _cleanup_outbuf_ struct bpk_outbuf shown = {0};
        bpk_cli_show_name(pack, i, &shown);
        if (!shown.failed && shown.len == name.len &&
            memcmp(shown.text, name.bytes, name.len) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return -ENOENT;
}

int bpk_cli_find(const struct bpk_cli_pack *pack, const char *name, uint32_t *ret_index) {
    struct bpk_str file = {name, strlen(name)};
    if (bpk_names_find(pack->names, file, ret_index) == 0)
        return 0;
    _cleanup_free_ char *decoded = malloc(file.len + 1);
    if (!decoded)
        return -ENOMEM;
    int len = bpk_name_decode(file, decoded);
    if (len >= 0 &&
        bpk_pack_find_tensor(pack->pack, (struct bpk_str){decoded, (size_t)len}, ret_index) == 0)
        return 0;
    if (memchr(name, '%', file.len) && find_shown(pack, file, ret_index) == 0)
        return 0;
    /* As 'bpk diff' and 'bpk status' say it. */
    size_t folder = strlen("tensors/");
    return strncmp(name, "tensors/", folder) == 0 ? bpk_cli_find(pack, name + folder, ret_index)
                                                  : -ENOENT;
}

void bpk_cli_show_name(const struct bpk_cli_pack *pack, uint32_t index, struct bpk_outbuf *out) {
    char file[BPK_FILE_NAME_BUF];
    size_t len = bpk_names_file(pack->names, index, file);
    for (size_t i = 0; i < len;) {
        uint32_t code;
        size_t n = bpk_text_char((const uint8_t *)file + i, &code);
        for (size_t k = 0; k < n; k++) {
            char escape[4];
            if (bpk_text_is_unsafe(code))
                bpk_out(out, escape,
                        (size_t)snprintf(escape, sizeof(escape), "%%%02X",
                                         (unsigned)(unsigned char)file[i + k]));
            else
                bpk_out(out, file + i + k, 1);
        }
        i += n;
    }
}

static int output_errno; /* of the first write to stdout that failed */

bool bpk_cli_print(struct bpk_outbuf *out) {
    bool good = !out->failed;
    if (!good) {
        bpk_cli_error(NULL, "out of memory");
    } else if (out->len > 0 && fwrite(out->text, 1, out->len, stdout) != out->len) {
        output_errno = output_errno ? output_errno : errno;
        good = false;
    }
    bpk_outbuf_clear(out);
    return good;
}

int bpk_cli_finish(int status) {
    if (fflush(stdout) != 0 && output_errno == 0)
        output_errno = errno;
    if (output_errno == 0 && !ferror(stdout))
        return status;
    bpk_cli_error(NULL, "cannot write: %s", strerror(output_errno ? output_errno : EIO));
    return status == BPK_EXIT_OK ? BPK_EXIT_FAILED : status;
}
