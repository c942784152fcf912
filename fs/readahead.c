#include "readahead.h"

#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Undoes the octal escapes of a mount table, in place. */
static void unescape(char *text) {
    char *out = text;
    for (const char *at = text; *at; out++) {
        unsigned byte;
        if (at[0] == '\\' && sscanf(at + 1, "%3o", &byte) == 1) {
            *out = (char)byte;
            at += 4;
        } else {
            *out = *at++;
        }
    }
    *out = '\0';
}

/* The device number of the last that was mounted at `path`: to ask the mount itself would be to
 * wait for ourselves. */
static bool find_device(const char *path, unsigned *ret_major, unsigned *ret_minor) {
    FILE *table = fopen("/proc/self/mountinfo", "re");
    _cleanup_free_ char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    while (table && getline(&line, &capacity, table) > 0) {
        unsigned major;
        unsigned minor;
        int at = 0;
        /* ID, parent, device, root, mount point */
        if (sscanf(line, "%*u %*u %u:%u %*s %n", &major, &minor, &at) < 2 || at == 0)
            continue;
        char *point = line + at;
        point[strcspn(point, " ")] = '\0';
        unescape(point);
        if (strcmp(point, path) != 0)
            continue;
        *ret_major = major;
        *ret_minor = minor;
        found = true;
    }
    if (table)
        (void)fclose(table);
    return found;
}

int bpk_readahead_set(const char *path, unsigned kib) {
    char name[64];
    unsigned major;
    unsigned minor;
    if (!find_device(path, &major, &minor))
        return -ENOENT;
    (void)snprintf(name, sizeof(name), "/sys/class/bdi/%u:%u/read_ahead_kb", major, minor);
    _cleanup_close_ int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return dprintf(fd, "%u", kib) < 0 ? -errno : 0;
}
