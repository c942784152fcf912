/* The plain model that the edits are held against: names, bytes in memory, and what a name knows of
 * its descriptor. opsrun.c does the operations; what they are is chosen by a seed
 * (test_random_ops.c) or by bytes (tests/fuzz/fuzz_ops.c). */
#ifndef TESTS_UNIT_OPSMODEL_H
#define TESTS_UNIT_OPSMODEL_H

#include "editkit.h"
#include "suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    NAMES = 13,
    FIRST_BACKUP = 10, /* names from here on are backups */
    FILES = 64,
    HANDLES = 6,
    SIZE_MAX_HERE = 400 << 10,
};

static const char *const names[NAMES] = {
    "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8.weight", "t9", "t0.bak", "b1.bak", "b2.bak",
};

struct model_file {
    bool live;
    uint64_t number;
    uint8_t *data;
    size_t len;
    int name;       /* -1: none any more */
    int moved_from; /* -1: not moved aside */
    unsigned opens;
};

struct model_name {
    int file; /* -1: nothing is there */
    bool in_base;
    bool has_desc; /* {"dtype": "U8", "shape": [desc_len]} is in force */
    uint64_t desc_len;
    bool remembers;
    uint64_t remembered_len;
};

struct handle {
    int file; /* -1: closed */
    bool for_writing;
};

struct run {
    struct kit kit;
    uint64_t random;
    uint64_t seed;          /* odd: the pack is of the v0.19 layout */
    const uint8_t *choices; /* if not NULL, they are made by these bytes, not by `random` */
    size_t choices_left;
    unsigned long op;
    struct model_file files[FILES];
    struct model_name names[NAMES];
    struct handle handles[HANDLES];
    unsigned long commits, reopens;
    char what[200];
    bool trace;
};

static inline void fail_at(const struct run *run, const char *what, int line) {
    ck_abort_msg("seed %llu, operation %lu (%s), line %d: %s", (unsigned long long)run->seed,
                 run->op, run->what, line, what);
}

#define must(run, condition)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_at(run, #condition, __LINE__);                                                    \
    } while (0)

__attribute__((format(printf, 2, 3))) static inline void say(struct run *run, const char *format,
                                                             ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(run->what, sizeof(run->what), format, args);
    va_end(args);
    if (run->trace)
        fprintf(stderr, "%lu %s\n", run->op, run->what);
}

/* The next choice in as few bytes as can hold it; zeros at their end. */
static inline uint64_t choose(struct run *run, uint64_t limit) {
    uint64_t value = 0;
    for (uint64_t above = limit - 1; above > 0; above >>= 8) {
        value = value << 8 | (run->choices_left > 0 ? *run->choices : 0);
        run->choices += run->choices_left > 0;
        run->choices_left -= run->choices_left > 0;
    }
    return value % limit;
}

static inline uint64_t below(struct run *run, uint64_t limit) {
    if (limit == 0)
        return 0;
    return run->choices ? choose(run, limit) : suite_random(&run->random) % limit;
}

/* ---- the model ------------------------------------------------------------------------------- */

static inline bool is_backup(int name) {
    return name >= FIRST_BACKUP;
}

static inline int new_file(struct run *run, int name, uint64_t number) {
    for (int i = 0; i < FILES; i++) {
        struct model_file *file = &run->files[i];
        if (file->live)
            continue;
        uint8_t *data = file->data;
        *file = (struct model_file){true, number, data, 0, name, -1, 0};
        if (!data)
            file->data = malloc(SIZE_MAX_HERE);
        must(run, file->data);
        run->names[name].file = i;
        return i;
    }
    fail_at(run, "too few files in the model", __LINE__);
    return -1;
}

static inline void lose_name(struct run *run, int file) {
    run->files[file].name = -1;
    if (run->files[file].opens == 0)
        run->files[file].live = false;
}

/* Whether what is at the name goes into the pack. */
static inline bool is_part(const struct run *run, int name) {
    return !is_backup(name) && (run->names[name].has_desc || run->names[name].in_base);
}

/* Whether a file was moved aside from the name, and is still there and nothing else. */
static inline int aside_of(const struct run *run, int name) {
    for (int i = 0; i < FILES; i++)
        if (run->files[i].live && run->files[i].name >= 0 && run->files[i].moved_from == name &&
            !is_part(run, run->files[i].name))
            return i;
    return -1;
}

static inline void forget_bytes(struct model_name *name) {
    if (!name->has_desc)
        return;
    name->has_desc = false;
    name->remembers = true;
    name->remembered_len = name->desc_len;
}

static inline void adopt(struct model_name *name) {
    if (name->has_desc || !name->remembers)
        return;
    name->has_desc = true;
    name->desc_len = name->remembered_len;
}

static inline void resize(struct model_file *file, size_t size) {
    if (size > file->len)
        memset(file->data + file->len, 0, size - file->len);
    file->len = size;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Makes the pack and opens its edits. `run` is all zeros but for how choices are made. */
void ops_begin(struct run *run);

/* One operation. */
void ops_step(struct run *run);

/* Reopens, commits, and removes everything. */
void ops_end(struct run *run);

#endif
