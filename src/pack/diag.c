#include "pack/diag.h"

#include <stdarg.h>
#include <stdio.h>

int bpk_diag_set(struct bpk_diag *diag, int code, uint64_t offset, const char *format, ...) {
    if (diag) {
        diag->code = code;
        diag->offset = offset;
        va_list args;
        va_start(args, format);
        (void)vsnprintf(diag->sentence, sizeof(diag->sentence), format, args);
        va_end(args);
    }
    return code;
}
