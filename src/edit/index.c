/* index.tsv of a mount with edits: the tensors as they are now. */
#include "edit/state.h"

#include "pack/pack_internal.h"
#include "pack/util.h"
#include "view/index.h"

#include <errno.h>
#include <string.h>

struct row {
    struct bpk_str name; /* what rows are sorted by */
    char *owned;
    char *file;
    struct bpk_desc *desc; /* NULL: the base's */
    uint32_t index;
    uint64_t size;
    bool edited;
};

static int compare_rows(const void *a, const void *b) {
    return bpk_str_compare(((const struct row *)a)->name, ((const struct row *)b)->name);
}

static int touched_row(struct bpk_edits *edits, const char *stem, struct row *ret_row) {
    struct bpk_judged judged;
    char buffer[BPK_FILE_NAME_BUF];
    struct bpk_str name;
    int r = bpk_judge_stem(edits, stem, &judged);
    if (r < 0)
        return r;
    const struct bpk_content *content = judged.file ? judged.file->content : NULL;
    bool has_desc = judged.desc || (judged.index != BPK_NO_TENSOR && !bpk_state_stem(edits, stem));
    bool shown =
        has_desc &&
        (judged.judgement == BPK_JUDGED_TENSOR || judged.judgement == BPK_JUDGED_INVALID) &&
        (content || judged.index != BPK_NO_TENSOR) &&
        bpk_state_tensor_name(edits, stem, buffer, &name);
    if (!shown) {
        bpk_desc_unref(judged.desc);
        return 0;
    }
    struct row row = {
        .owned = malloc(name.len + 1),
        .file = strdup(stem),
        .desc = judged.desc,
        .index = judged.index,
        .edited = true,
    };
    if (!row.owned || !row.file) {
        free(row.owned);
        free(row.file);
        bpk_desc_unref(judged.desc);
        return -ENOMEM;
    }
    memcpy(row.owned, name.bytes, name.len);
    row.name = (struct bpk_str){row.owned, name.len};
    if (content) {
        row.size = content->size;
    } else {
        struct bpk_tensor tensor;
        bpk_pack_tensor(edits->base, judged.index, &tensor);
        row.size = tensor.end - tensor.start;
        row.edited = judged.desc != NULL;
    }
    *ret_row = row;
    return 1;
}

static int gather(struct bpk_edits *edits, struct row **ret_rows, size_t *ret_count) {
    char **touched = NULL;
    size_t touched_count = 0;
    struct row *rows = NULL;
    size_t count = 0;
    size_t capacity = 0;
    int r = bpk_judge_touched(edits, &touched, &touched_count);
    for (uint32_t i = 0; i < (uint32_t)edits->base->meta.tensor_count && r >= 0; i++) {
        char file[BPK_FILE_NAME_BUF];
        const char *key = file;
        bpk_names_file(edits->tensor_names, i, file);
        if (touched_count > 0 &&
            bsearch(&key, touched, touched_count, sizeof(*touched), bpk_judge_compare_names))
            continue;
        r = bpk_grow((void **)&rows, &capacity, count, sizeof(*rows));
        if (r == 0)
            rows[count++] = (struct row){.name = bpk_pack_tensor_name(edits->base, i), .index = i};
    }
    for (size_t i = 0; i < touched_count; i++) {
        if (r >= 0)
            r = bpk_grow((void **)&rows, &capacity, count, sizeof(*rows));
        if (r >= 0)
            r = touched_row(edits, touched[i], &rows[count]);
        if (r > 0)
            count++;
        free(touched[i]);
    }
    free(touched);
    *ret_rows = rows;
    *ret_count = count;
    return r < 0 ? r : 0;
}

static void out_row(struct bpk_edits *edits, const struct row *row, struct bpk_outbuf *out) {
    char file[BPK_FILE_NAME_BUF];
    struct bpk_tensor tensor = {0};
    struct bpk_dtype dtype;
    struct bpk_shape shape;
    if (row->index != BPK_NO_TENSOR)
        bpk_pack_tensor(edits->base, row->index, &tensor);
    if (row->desc) {
        dtype = row->desc->means.dtype;
        shape = bpk_desc_shape(row->desc);
    } else {
        bpk_pack_tensor_dtype(edits->base, row->index, &dtype);
        shape = bpk_pack_tensor_shape(edits->base, row->index);
    }
    if (!row->file)
        bpk_names_file(edits->tensor_names, row->index, file);
    bpk_index_row(out, row->file ? row->file : file, &dtype, shape,
                  row->file ? row->size : tensor.end - tensor.start,
                  row->edited ? NULL : &tensor.start);
}

int bpk_edits_index(struct bpk_edits *edits, struct bpk_outbuf *out) {
    struct row *rows;
    size_t count;
    pthread_mutex_lock(&edits->lock);
    int r = gather(edits, &rows, &count);
    if (r == 0) {
        if (count > 0)
            qsort(rows, count, sizeof(*rows), compare_rows);
        bpk_index_header(out);
        for (size_t i = 0; i < count; i++)
            out_row(edits, &rows[i], out);
    }
    for (size_t i = 0; i < count; i++) {
        free(rows[i].owned);
        free(rows[i].file);
        bpk_desc_unref(rows[i].desc);
    }
    free(rows);
    pthread_mutex_unlock(&edits->lock);
    return r == 0 && out->failed ? -ENOMEM : r;
}
