#include "handles.h"

#include <stdlib.h>
#include <utlist.h>

void *bpk_handle_new(struct bpk_mount *mount, size_t size,
                     void (*clear)(struct bpk_handle *handle)) {
    struct bpk_handle *handle = calloc(1, size);
    if (!handle)
        return NULL;
    handle->clear = clear;
    pthread_mutex_lock(&mount->handles_lock);
    DL_APPEND(mount->handles, handle);
    pthread_mutex_unlock(&mount->handles_lock);
    return handle;
}

void bpk_handle_free(struct bpk_mount *mount, struct bpk_handle *handle) {
    if (!handle)
        return;
    pthread_mutex_lock(&mount->handles_lock);
    DL_DELETE(mount->handles, handle);
    pthread_mutex_unlock(&mount->handles_lock);
    if (handle->clear)
        handle->clear(handle);
    free(handle);
}

void bpk_handles_close(struct bpk_mount *mount) {
    while (mount->handles)
        bpk_handle_free(mount, mount->handles);
}
