#include "cli/newpack.h"

#include "cli/busy.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "pack/cbor_writer.h"
#include "pack/diag.h"
#include "pack/replace.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct bpk_cli_new_tensor *bpk_cli_newpack_add(struct bpk_cli_newpack *pack) {
    if (bpk_grow((void **)&pack->tensors, &pack->capacity, pack->count, sizeof(*pack->tensors)) <
        0) {
        bpk_cli_error(NULL, "out of memory");
        return NULL;
    }
    struct bpk_cli_new_tensor *tensor = &pack->tensors[pack->count++];
    *tensor = (struct bpk_cli_new_tensor){0};
    return tensor;
}

void bpk_cli_newpack_clear(struct bpk_cli_newpack *pack) {
    for (size_t i = 0; i < pack->count; i++) {
        free(pack->tensors[i].name);
        free(pack->tensors[i].file);
        bpk_descriptor_clear(&pack->tensors[i].descriptor);
        bpk_outbuf_clear(&pack->tensors[i].dtype_cbor);
    }
    free(pack->tensors);
    if (pack->folder >= 0)
        close(pack->folder);
    if (pack->scratch > 0)
        close(pack->scratch);
    bpk_string_map_clear(&pack->metadata);
    bpk_scalar_map_clear(&pack->scalars);
    *pack = (struct bpk_cli_newpack){.folder = -1};
}

int bpk_cli_newpack_open(const struct bpk_cli_newpack *pack, const char *file, int *ret_fd,
                         struct stat *ret_stat) {
    _cleanup_close_ int fd = openat(pack->folder, file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, ret_stat) < 0)
        return -errno;
    if (!S_ISREG(ret_stat->st_mode))
        return S_ISDIR(ret_stat->st_mode) ? -EISDIR : -EINVAL;
    *ret_fd = bpk_steal_fd(&fd);
    return 0;
}

const char *bpk_cli_newpack_reason(int r) {
    return r == -EINVAL ? "it is no regular file" : strerror(-r);
}

/* ---- the tensors' bytes ---------------------------------------------------------------------- */

struct source {
    struct bpk_cli_newpack *pack;
    const struct bpk_cli_new_tensor *tensor;
};

static int next_run(void *context, uint64_t offset, struct bpk_run *ret_run) {
    const struct source *source = context;
    struct bpk_cli_newpack *pack = source->pack;
    const struct bpk_cli_new_tensor *tensor = source->tensor;
    if (tensor->in_scratch) {
        *ret_run = (struct bpk_run){pack->scratch, tensor->offset + offset, tensor->size - offset};
        return 0;
    }
    if (pack->opened != tensor) {
        struct stat now;
        int fd = -1;
        if (pack->opened)
            close(pack->open);
        pack->opened = NULL;
        int r = bpk_cli_newpack_open(pack, tensor->file, &fd, &now);
        if (r < 0)
            return r;
        pack->open = fd;
        pack->opened = tensor;
        if (!bpk_same_file(&now, &tensor->stat))
            return -ESTALE;
    }
    *ret_run = (struct bpk_run){pack->open, tensor->offset + offset, tensor->size - offset};
    return 0;
}

/* Before the new pack is where it belongs: what it was made of is still as it was looked at. */
static int check_sources(void *context, int fd, struct bpk_diag *diag) {
    const struct bpk_cli_newpack *pack = context;
    (void)fd;
    if (bpk_cli_interrupted())
        return -EINTR;
    for (size_t i = 0; i < pack->count; i++) {
        const struct bpk_cli_new_tensor *tensor = &pack->tensors[i];
        struct stat now;
        char shown[300];
        if (fstatat(pack->folder, tensor->file, &now, 0) == 0 && bpk_same_file(&now, &tensor->stat))
            continue;
        bpk_text_escape(tensor->file, strlen(tensor->file), shown, sizeof(shown));
        return bpk_diag_set(diag, -ESTALE, BPK_NO_OFFSET,
                            "'%s' was changed while it was read; nothing was written", shown);
    }
    return 0;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    const struct bpk_cli_new_tensor *x = a;
    const struct bpk_cli_new_tensor *y = b;
    if (x->has_place != y->has_place)
        return x->has_place ? -1 : 1;
    if (x->has_place && x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->has_place && x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return bpk_str_compare((struct bpk_str){x->name, x->name_len},
                           (struct bpk_str){y->name, y->name_len});
}

static struct bpk_shape shape_of(const struct bpk_descriptor *descriptor) {
    static const uint64_t none[1] = {0};
    return (struct bpk_shape){
        .dims = descriptor->dims ? descriptor->dims : none,
        .left = descriptor->rank,
    };
}

/* `sources`: one a tensor. */
static bool fill_plan(struct bpk_cli_newpack *pack, struct source *sources, struct bpk_plan *plan) {
    if (pack->count > 0)
        qsort(pack->tensors, pack->count, sizeof(*pack->tensors), compare);
    plan->tensors = calloc(pack->count + 1, sizeof(*plan->tensors));
    plan->metadata = calloc(pack->metadata.count + 1, sizeof(*plan->metadata));
    plan->scalars = calloc(pack->scalars.count + 1, sizeof(*plan->scalars));
    if (!plan->tensors || !plan->metadata || !plan->scalars)
        return false;
    for (size_t i = 0; i < pack->count; i++) {
        struct bpk_cli_new_tensor *tensor = &pack->tensors[i];
        bpk_cbor_out_dtype(&tensor->dtype_cbor, &tensor->descriptor.dtype);
        if (tensor->dtype_cbor.failed)
            return false;
        sources[i] = (struct source){pack, tensor};
        plan->tensors[plan->tensor_count++] = (struct bpk_plan_tensor){
            .name = {tensor->name, tensor->name_len},
            .dtype_cbor = {tensor->dtype_cbor.text, tensor->dtype_cbor.len},
            .shape = shape_of(&tensor->descriptor),
            .has_param_id = tensor->descriptor.has_param_id,
            .param_id = tensor->descriptor.param_id,
            .size = tensor->size,
            .next_run = next_run,
            .context = &sources[i],
            .by_length = true,
        };
    }
    for (size_t i = 0; i < pack->metadata.count; i++)
        plan->metadata[plan->metadata_count++] =
            (struct bpk_plan_entry){pack->metadata.pairs[i].key, pack->metadata.pairs[i].value};
    for (size_t i = 0; i < pack->scalars.count; i++)
        plan->scalars[plan->scalar_count++] = pack->scalars.scalars[i];
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool replace(struct bpk_cli_newpack *pack, struct bpk_plan *plan, const char *path,
                    int old_fd) {
    struct bpk_cli_counter counter = {0};
    struct bpk_cli_progress progress = {
        .ask = bpk_cli_ask_counter, .context = &counter, .what = "packing"};
    const struct bpk_replace_options options = {
        .old_fd = old_fd,
        .progress = {bpk_cli_count, &counter},
        .before_publish = check_sources,
        .context = pack,
    };
    struct bpk_diag diag = {.sentence = ""};
    bpk_cli_progress_begin(&progress);
    int r = bpk_replace(plan, path, &options, NULL, &diag);
    bpk_cli_progress_end(&progress);
    if (pack->opened)
        close(pack->open);
    pack->opened = NULL;
    if (r < 0)
        bpk_cli_tell_unmade(path, r, diag.sentence);
    return r == 0;
}

bool bpk_cli_newpack_write(struct bpk_cli_newpack *pack, const char *path, bool force) {
    _cleanup_close_ int old_fd = -1;
    if (force && !bpk_cli_claim(path, &old_fd))
        return false;
    _cleanup_free_ struct source *sources = calloc(pack->count + 1, sizeof(*sources));
    struct bpk_plan plan = {0};
    bool good = sources && fill_plan(pack, sources, &plan);
    if (!good)
        bpk_cli_error(NULL, "out of memory");
    good = good && replace(pack, &plan, path, old_fd);
    bpk_plan_clear(&plan);
    return good;
}
