#include "seen.h"

#include <stdlib.h>

/* Out of memory, HASH_ADD adds nothing and leaves the element without a table (hh.tbl is NULL). */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct bpk_seen {
    UT_hash_handle hh;
    uint64_t number;
    uint64_t version;
    bool has_version;
    bool changed_elsewhere;
};

/* The entry of a file, made if there is none; NULL: out of memory. */
static struct bpk_seen *entry_of(struct bpk_mount *mount, uint64_t number) {
    struct bpk_seen *seen;
    HASH_FIND(hh, mount->seen, &number, sizeof(number), seen);
    if (seen)
        return seen;
    seen = calloc(1, sizeof(*seen));
    if (!seen)
        return NULL;
    seen->number = number;
    HASH_ADD(hh, mount->seen, number, sizeof(seen->number), seen);
    if (!seen->hh.tbl) {
        free(seen);
        return NULL;
    }
    return seen;
}

bool bpk_seen_version(struct bpk_mount *mount, uint64_t number, uint64_t version) {
    pthread_mutex_lock(&mount->seen_lock);
    struct bpk_seen *seen = entry_of(mount, number);
    bool same = seen && seen->has_version && seen->version == version;
    if (seen) {
        seen->has_version = true;
        seen->version = version;
    }
    pthread_mutex_unlock(&mount->seen_lock);
    return same;
}

void bpk_seen_changed_elsewhere(struct bpk_mount *mount, uint64_t number) {
    pthread_mutex_lock(&mount->seen_lock);
    struct bpk_seen *seen = entry_of(mount, number);
    if (seen)
        seen->changed_elsewhere = true;
    pthread_mutex_unlock(&mount->seen_lock);
}

bool bpk_seen_take_change(struct bpk_mount *mount, uint64_t number) {
    struct bpk_seen *seen;
    pthread_mutex_lock(&mount->seen_lock);
    HASH_FIND(hh, mount->seen, &number, sizeof(number), seen);
    bool changed = seen && seen->changed_elsewhere;
    if (changed)
        seen->changed_elsewhere = false;
    pthread_mutex_unlock(&mount->seen_lock);
    return changed;
}

void bpk_seen_close(struct bpk_mount *mount) {
    struct bpk_seen *seen;
    struct bpk_seen *next;
    HASH_ITER(hh, mount->seen, seen, next) {
        HASH_DEL(mount->seen, seen);
        free(seen);
    }
}
