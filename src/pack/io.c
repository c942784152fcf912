#include "pack/io.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

int bpk_io_pread(int fd, uint64_t offset, void *buffer, size_t size, size_t *ret_read) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (char *)buffer + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *ret_read = done;
    return 0;
}

int bpk_io_pwrite(int fd, uint64_t offset, const void *buffer, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = pwrite(fd, (const char *)buffer + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EIO;
        done += (size_t)n;
    }
    return 0;
}

int bpk_io_find_nonzero(int fd, uint64_t start, uint64_t end, uint64_t *ret_offset) {
    uint8_t buffer[16384];
    uint64_t at = start;
    while (at < end) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            return 0; /* a hole up to the end of the file */
        if (data >= 0 && (uint64_t)data > at)
            at = (uint64_t)data;
        if (at >= end)
            return 0;
        size_t wanted = end - at < sizeof(buffer) ? (size_t)(end - at) : sizeof(buffer);
        size_t n;
        int r = bpk_io_pread(fd, at, buffer, wanted, &n);
        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++) {
            if (buffer[i] != 0) {
                *ret_offset = at + i;
                return 1;
            }
        }
        if (n < wanted)
            return 0;
        at += n;
    }
    return 0;
}
