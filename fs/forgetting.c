#include "forgetting.h"

#include "pack/util.h"

#include <stdlib.h>
#include <string.h>

struct bpk_forgetting {
    struct bpk_mount *mount;
    fuse_req_t req;
    bool is_write;
    size_t written;
    int error;
    struct dropped_name {
        uint64_t folder_number;
        char *name;
    } * names;
    size_t name_count;
    size_t name_capacity;
    uint64_t *numbers;
    size_t number_count;
};

struct bpk_forgetting *bpk_forgetting_new(struct bpk_mount *mount) {
    struct bpk_forgetting *forgetting = calloc(1, sizeof(*forgetting));
    if (forgetting)
        forgetting->mount = mount;
    return forgetting;
}

void bpk_forgetting_add(void *context, uint64_t folder_number, const char *name) {
    struct bpk_forgetting *forgetting = context;
    char *copy = strdup(name);
    if (!copy || bpk_grow((void **)&forgetting->names, &forgetting->name_capacity,
                          forgetting->name_count, sizeof(forgetting->names[0])) < 0) {
        free(copy);
        return;
    }
    forgetting->names[forgetting->name_count++] = (struct dropped_name){folder_number, copy};
}

/* Names before pages: an open in between finds the file that counts. */
static void *forget(void *context) {
    struct bpk_forgetting *forgetting = context;
    struct fuse_session *session = forgetting->mount->session;
    for (size_t i = 0; i < forgetting->name_count; i++) {
        const struct dropped_name *dropped = &forgetting->names[i];
        (void)fuse_lowlevel_notify_inval_entry(session, dropped->folder_number, dropped->name,
                                               strlen(dropped->name));
        free(dropped->name);
    }
    for (size_t i = 0; i < forgetting->number_count; i++)
        (void)fuse_lowlevel_notify_inval_inode(session, forgetting->numbers[i], 0, 0);
    if (forgetting->error < 0 || !forgetting->is_write)
        bpk_reply_error(forgetting->req, forgetting->error);
    else
        (void)fuse_reply_write(forgetting->req, forgetting->written);
    free(forgetting->names);
    free(forgetting->numbers);
    free(forgetting);
    return NULL;
}

void bpk_forgetting_finish(struct bpk_forgetting *forgetting, fuse_req_t req, int r) {
    pthread_t thread;
    if (!forgetting) {
        bpk_reply_error(req, r);
        return;
    }
    forgetting->req = req;
    forgetting->error = r;
    forgetting->number_count = bpk_edits_take_stale(forgetting->mount->edits, &forgetting->numbers);
    if (pthread_create(&thread, NULL, forget, forgetting) == 0)
        (void)pthread_detach(thread);
    else
        (void)forget(forgetting); /* out of threads: better to risk a wait than a stale name */
}

void bpk_forgetting_finish_write(struct bpk_forgetting *forgetting, fuse_req_t req, size_t size,
                                 int r) {
    if (forgetting) {
        forgetting->is_write = true;
        forgetting->written = size;
    }
    bpk_forgetting_finish(forgetting, req, r);
}
