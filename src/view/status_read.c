#include "view/status_read.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static char *copy_string(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? strdup(text) : NULL;
}

static char **copy_list(const json_t *object, const char *key) {
    const json_t *array = json_object_get(object, key);
    size_t count = json_array_size(array);
    char **list = calloc(count + 1, sizeof(*list));
    size_t kept = 0;
    for (size_t i = 0; i < count && list; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (text && (list[kept] = strdup(text)))
            kept++;
    }
    return list;
}

static void free_list(char **list) {
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

static void copy_edits(const json_t *root, struct bpk_status *status) {
    const json_t *array = json_object_get(root, "edits");
    size_t count = json_array_size(array);
    status->edits = calloc(count + 1, sizeof(*status->edits));
    for (size_t i = 0; i < count && status->edits; i++) {
        const char *path = json_string_value(json_array_get(array, i));
        struct bpk_status_edit edit = {.path = path ? strdup(path) : NULL};
        if (!edit.path)
            continue;
        edit.change = copy_string(json_object_get(root, "changes"), path);
        edit.from = copy_string(json_object_get(root, "renamed_from"), path);
        status->edits[status->edit_count++] = edit;
    }
}

static void copy_problems(const json_t *root, struct bpk_status *status) {
    const json_t *array = json_object_get(root, "problems");
    size_t count = json_array_size(array);
    status->problems = calloc(count + 1, sizeof(*status->problems));
    for (size_t i = 0; i < count && status->problems; i++) {
        struct bpk_status_problem problem = {
            .file = copy_string(json_array_get(array, i), "file"),
            .reason = copy_string(json_array_get(array, i), "reason"),
        };
        if (problem.file && problem.reason) {
            status->problems[status->problem_count++] = problem;
        } else {
            free(problem.file);
            free(problem.reason);
        }
    }
}

int bpk_status_parse(struct bpk_str text, struct bpk_status *ret_status) {
    json_t *root = json_loadb(text.bytes, text.len, 0, NULL);
    if (!json_is_string(json_object_get(root, "pack")) ||
        !json_is_string(json_object_get(root, "layout"))) {
        json_decref(root);
        return -EBADMSG;
    }
    const char *mode = json_string_value(json_object_get(root, "mode"));
    struct bpk_status status = {
        .pack = copy_string(root, "pack"),
        .read_only = !mode || strcmp(mode, "rw") != 0,
        .layout = copy_string(root, "layout"),
        .tensors = (uint64_t)json_integer_value(json_object_get(root, "tensors")),
        .scratch = copy_list(root, "scratch"),
        .last_commit = copy_string(root, "last_commit"),
        .pid = (pid_t)json_integer_value(json_object_get(root, "pid")),
    };
    const json_t *committing = json_object_get(root, "committing");
    status.done = (uint64_t)json_integer_value(json_object_get(committing, "done"));
    status.total = (uint64_t)json_integer_value(json_object_get(committing, "total"));
    copy_edits(root, &status);
    copy_problems(root, &status);
    json_decref(root);
    if (!status.pack || !status.layout || !status.edits || !status.scratch || !status.problems) {
        bpk_status_clear(&status);
        return -ENOMEM;
    }
    *ret_status = status;
    return 0;
}

void bpk_status_clear(struct bpk_status *status) {
    free(status->pack);
    free(status->layout);
    for (size_t i = 0; i < status->edit_count; i++) {
        free(status->edits[i].path);
        free(status->edits[i].change);
        free(status->edits[i].from);
    }
    free(status->edits);
    free_list(status->scratch);
    for (size_t i = 0; i < status->problem_count; i++) {
        free(status->problems[i].file);
        free(status->problems[i].reason);
    }
    free(status->problems);
    free(status->last_commit);
    *status = (struct bpk_status){0};
}
