#include "view_stats.h"

#include "pack/outbuf.h"
#include "view/stats.h"

#include <errno.h>
#include <stdlib.h>

/* Out of memory, HASH_ADD adds nothing and leaves the element without a table (hh.tbl is NULL). */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct bpk_known_stats {
    UT_hash_handle hh;
    uint64_t number; /* of the tensor's file */
    uint64_t version;
    struct bpk_stats stats;
};

static bool recall(struct bpk_mount *mount, const struct bpk_current *current,
                   struct bpk_stats *ret_stats) {
    struct bpk_known_stats *known;
    pthread_mutex_lock(&mount->stats_lock);
    HASH_FIND(hh, mount->stats, &current->number, sizeof(current->number), known);
    bool found = known && known->version == current->version;
    if (found)
        *ret_stats = known->stats;
    pthread_mutex_unlock(&mount->stats_lock);
    return found;
}

/* Out of memory it is computed again the next time. */
static void keep(struct bpk_mount *mount, const struct bpk_current *current,
                 const struct bpk_stats *stats) {
    struct bpk_known_stats *known;
    pthread_mutex_lock(&mount->stats_lock);
    HASH_FIND(hh, mount->stats, &current->number, sizeof(current->number), known);
    if (!known && (known = calloc(1, sizeof(*known)))) {
        known->number = current->number;
        HASH_ADD(hh, mount->stats, number, sizeof(known->number), known);
        if (!known->hh.tbl) {
            free(known);
            known = NULL;
        }
    }
    if (known) {
        known->version = current->version;
        known->stats = *stats;
    }
    pthread_mutex_unlock(&mount->stats_lock);
}

uint64_t bpk_view_stats_size(const struct bpk_current *current) {
    static const struct bpk_stats none;
    struct bpk_outbuf counter = {.counting = true};
    bpk_stats_json(&counter, current->title, &current->array, &none);
    return counter.len;
}

int bpk_view_stats(struct bpk_mount *mount, const struct bpk_current *current,
                   const struct bpk_source *source, struct bpk_outbuf *ret_text) {
    struct bpk_stats stats;
    struct bpk_outbuf text = {0};
    if (!recall(mount, current, &stats)) {
        int r = bpk_stats_compute(&current->array, source, 0, true, NULL, &stats, NULL);
        if (r < 0)
            return r;
        keep(mount, current, &stats);
    }
    bpk_stats_json(&text, current->title, &current->array, &stats);
    if (text.failed) {
        bpk_outbuf_clear(&text);
        return -ENOMEM;
    }
    *ret_text = text;
    return 0;
}

void bpk_view_stats_close(struct bpk_mount *mount) {
    struct bpk_known_stats *known;
    struct bpk_known_stats *next;
    HASH_ITER(hh, mount->stats, known, next) {
        HASH_DEL(mount->stats, known);
        free(known);
    }
}
