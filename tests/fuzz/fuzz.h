/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput, linked to
 * libFuzzer or to driver.c, which gives it the files of a corpus. It says what must hold with
 * check's macros, which abort here, and always returns 0. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "bpk.h"
#include "suite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_PATH = 40 };

/* A file in memory of these bytes, and a path that it can be opened by until it is closed. */
int fuzz_file(const void *data, size_t size, char path[FUZZ_PATH]);

/* Sentences for people: not empty, nothing that a terminal would take for a command. */
void fuzz_check_sentence(const char *sentence);

/* bpk_pack_open; a refusal must have its code and a sentence in its diag. NULL if refused. */
struct bpk_pack *fuzz_open(const char *path, const struct bpk_open_options *options);

bool fuzz_str_equal(struct bpk_str a, struct bpk_str b);

/* Dtype, shape and param_id of the two, and their bytes. */
void fuzz_check_same_tensor(const struct bpk_pack *a, uint32_t i, const struct bpk_pack *b,
                            uint32_t k);

#endif
