/* Moving ranges of bytes between files: by sharing blocks where the filesystem can, else by
 * reading and writing, never a whole tensor in memory. */
#ifndef BPK_PACK_COPY_H
#define BPK_PACK_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks that filesystems share are multiples of this. */
#define BPK_CLONE_BLOCK 4096

/* Whether blocks of `from` can be shared with `to`: tried with the first block of `from`. What is
 * in `to` is lost. */
bool bpk_copy_can_clone(int from, int to);

/* Called now and then with the bytes done so far; may be NULL. 0, or a negative errno, with which
 * the copy ends. */
typedef int bpk_progress_fn(void *context, uint64_t done, uint64_t total);

struct bpk_progress {
    bpk_progress_fn *report;
    void *context;
};

struct bpk_copier {
    int to;
    struct bpk_progress progress; /* told how far into `to` the copy is, of `total` */
    uint64_t total;
    bool clone;      /* bpk_copy_can_clone */
    bool lazy;       /* nobody will wait for the disk: writeback is left to the kernel */
    uint64_t copied; /* bytes written from memory so far */
    uint64_t cloned; /* bytes shared so far */
    uint64_t unsynced;
    int from;            /* the last file that was copied from, and where it is */
    uint64_t data_start; /* known to have no holes; that may be wrong, and costs some zeros then */
    uint64_t data_end;
    int direct;   /* own; 0: not tried yet, -1: cannot */
    void *buffer; /* own; freed by bpk_copier_clear */
};

void bpk_copier_clear(struct bpk_copier *copier);

/* Copies [from_offset, from_offset + size) to `to_offset`, where `to` is zero: holes are left out.
 * -ESTALE if `from` ends before; or what `progress` said. */
int bpk_copier_range(struct bpk_copier *copier, int from, uint64_t from_offset, uint64_t to_offset,
                     uint64_t size);

/* Writes bytes from memory. 0 or -errno. */
int bpk_copier_write(struct bpk_copier *copier, uint64_t to_offset, const void *bytes, size_t size);

#endif
