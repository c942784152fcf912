/* Reading and writing whole ranges of a file: short calls and EINTR are dealt with here. */
#ifndef BPK_PACK_IO_H
#define BPK_PACK_IO_H

#include <stddef.h>
#include <stdint.h>

/* Reads up to `size` bytes at `offset`; short only at the end of the file. 0 or -errno. */
int bpk_io_pread(int fd, uint64_t offset, void *buffer, size_t size, size_t *ret_read);

/* Writes all of `size` bytes at `offset`. 0 or -errno. */
int bpk_io_pwrite(int fd, uint64_t offset, const void *buffer, size_t size);

/* Looks for a byte that is not zero in [start, end) of the file; holes are skipped unread. Returns
 * 1 with its offset in *ret_offset, 0 if there is none, -errno. */
int bpk_io_find_nonzero(int fd, uint64_t start, uint64_t end, uint64_t *ret_offset);

#endif
