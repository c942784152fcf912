#include "status.h"

#include "view/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The list of problems under way. */
struct problem_list {
    const struct bpk_mount *mount;
    struct bpk_outbuf *out;
    bool empty;
};

static void add_problem(void *context, uint32_t tensor, const char *sentence) {
    struct problem_list *list = context;
    bpk_out_str(list->out, list->empty ? "\n" : ",\n");
    list->empty = false;
    bpk_out_str(list->out, "    {\"file\": ");
    if (tensor == BPK_NO_TENSOR) {
        bpk_json_cstring(list->out, strrchr(list->mount->pack_path, '/') + 1);
    } else {
        char path[sizeof("tensors/") + BPK_FILE_NAME_BUF] = "tensors/";
        bpk_names_file(list->mount->tensor_names, tensor, path + strlen("tensors/"));
        bpk_json_cstring(list->out, path);
    }
    bpk_out_str(list->out, ", \"reason\": ");
    bpk_json_cstring(list->out, sentence);
    bpk_out_str(list->out, "}");
}

static int compose(const struct bpk_mount *mount, struct bpk_outbuf *out) {
    bpk_out_str(out, "{\n  \"pack\": ");
    bpk_json_cstring(out, mount->pack_path);
    bpk_out_str(out, ",\n  \"mode\": \"ro\",\n  \"layout\": ");
    bpk_json_cstring(out, mount->info.layout == BPK_LAYOUT_LEGACY ? "legacy" : "aligned");
    bpk_out_str(out, ",\n  \"tensors\": ");
    bpk_out_u64(out, mount->info.tensors);
    bpk_out_str(out, ",\n  \"edits\": [],\n  \"scratch\": [],\n  \"problems\": [");
    struct problem_list list = {mount, out, true};
    int r = bpk_pack_check(mount->pack, add_problem, &list);
    bpk_out_str(out, list.empty ? "]" : "\n  ]");
    bpk_out_str(out, ",\n  \"last_commit\": null,\n  \"pid\": ");
    bpk_out_u64(out, (uint64_t)getpid());
    bpk_out_str(out, "\n}\n");
    return r == 0 && out->failed ? -ENOMEM : r;
}

/* Looking for problems may read the padding of the whole pack: it is done once. */
int bpk_status_file(struct bpk_mount *mount, struct bpk_outbuf *out) {
    int r = 0;
    pthread_mutex_lock(&mount->status_lock);
    if (mount->status.len == 0) {
        r = compose(mount, &mount->status);
        if (r < 0)
            bpk_outbuf_clear(&mount->status);
    }
    bpk_out(out, mount->status.text, mount->status.len);
    pthread_mutex_unlock(&mount->status_lock);
    return r == 0 && out->failed ? -ENOMEM : r;
}
