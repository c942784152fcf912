#include "cli/hash.h"

#include "cli/progress.h"
#include "pack/parallel.h"
#include "pack/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { BUFFER_SIZE = 256 << 10 }; /* stays in the cache between reading and hashing */

struct job {
    const struct bpk_cli_pack *pack;
    const struct bpk_cli_selection *selection;
    struct bpk_cli_hash *hashes;
    int *errors;
    char *buffers;                  /* one of BUFFER_SIZE a worker */
    struct bpk_cli_counter counter; /* of bytes */
};

static int hash_tensor(struct job *job, uint32_t index, XXH3_state_t *state, char *buffer,
                       uint64_t *ret_hash) {
    uint64_t offset = 0;
    size_t n;
    (void)XXH3_64bits_reset(state);
    do {
        int r = bpk_pack_read(job->pack->pack, index, offset, buffer, BUFFER_SIZE, &n);
        if (r < 0)
            return r;
        (void)XXH3_64bits_update(state, buffer, n);
        offset += n;
        atomic_fetch_add(&job->counter.done, n);
    } while (n == BUFFER_SIZE);
    *ret_hash = XXH3_64bits_digest(state);
    return 0;
}

/* A tensor that cannot be read does not end it: the others are hashed. */
static int do_step(void *context, unsigned worker, uint64_t step) {
    struct job *job = context;
    uint64_t hash;
    XXH3_state_t *state = XXH3_createState();
    int r = state ? hash_tensor(job, job->selection->tensors[step], state,
                                job->buffers + (size_t)worker * BUFFER_SIZE, &hash)
                  : -ENOMEM;
    (void)XXH3_freeState(state);
    job->errors[step] = r;
    if (r == 0)
        (void)snprintf(job->hashes[step].text, sizeof(job->hashes[step].text), "%016" PRIx64, hash);
    return 0;
}

/* Whether there are none. */
static bool tell_errors(const struct job *job) {
    bool good = true;
    for (uint32_t i = 0; i < job->selection->count; i++) {
        if (job->errors[i] == 0)
            continue;
        good = false;
        if (bpk_pack_is_changed(job->pack->pack)) {
            bpk_cli_error(job->pack->path, "the file was changed while it was read");
            break;
        }
        char sentence[200];
        (void)snprintf(sentence, sizeof(sentence), "cannot read: %s", strerror(-job->errors[i]));
        bpk_cli_tensor_error(job->pack, job->selection->tensors[i], sentence);
    }
    return good;
}

bool bpk_cli_hash(const struct bpk_cli_pack *pack, const struct bpk_cli_selection *selection,
                  struct bpk_cli_hash **ret_hashes) {
    unsigned workers = bpk_parallel_workers(0, selection->count);
    _cleanup_free_ struct bpk_cli_hash *hashes =
        calloc((size_t)selection->count + 1, sizeof(*hashes));
    _cleanup_free_ int *errors = calloc((size_t)selection->count + 1, sizeof(*errors));
    _cleanup_free_ char *buffers = malloc((size_t)workers * BUFFER_SIZE);
    *ret_hashes = NULL;
    if (!hashes || !errors || !buffers) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    struct job job = {pack, selection, hashes, errors, buffers, {0}};
    for (uint32_t i = 0; i < selection->count; i++) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(pack->pack, selection->tensors[i], &tensor);
        job.counter.total += tensor.end - tensor.start;
    }
    struct bpk_cli_progress progress = {
        .ask = bpk_cli_ask_counter, .context = &job.counter, .what = "hashing"};
    bpk_cli_progress_begin(&progress);
    (void)bpk_parallel_run(workers, selection->count, do_step, &job);
    bpk_cli_progress_end(&progress);
    *ret_hashes = bpk_steal_ptr(hashes);
    return tell_errors(&job);
}
