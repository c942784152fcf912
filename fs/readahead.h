/* -o readahead=KIB: how far the kernel reads ahead in the mount. */
#ifndef BPKFS_READAHEAD_H
#define BPKFS_READAHEAD_H

/* Sets it for what is mounted at `path`, an absolute path. 0, or -errno: only root may. */
int bpk_readahead_set(const char *path, unsigned kib);

#endif
