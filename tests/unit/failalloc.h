/* Allocations that fail at a given call. A program that includes this is linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc. */
#ifndef TESTS_UNIT_FAILALLOC_H
#define TESTS_UNIT_FAILALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);

static long countdown = -1; /* the call that fails is 0; negative: none */
static bool failed;

static bool fails_now(void) {
    if (countdown < 0 || countdown-- > 0)
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size) {
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *p, size_t size) {
    return fails_now() ? NULL : __real_realloc(p, size);
}

#endif
