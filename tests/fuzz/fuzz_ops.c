/* Operations on a mount's edits, chosen by bytes, against the plain model of the unit tests. */
#include "fuzz.h"

#include "opsmodel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MAX_OPERATIONS = 1000 };
    static struct run run;
    if (size < 2)
        return 0;
    run = (struct run){.seed = data[0], .choices = data + 1, .choices_left = size - 1};
    run.trace = getenv("BPK_TRACE") != NULL;
    ops_begin(&run);
    for (; run.choices_left > 0 && run.op < MAX_OPERATIONS; run.op++)
        ops_step(&run);
    ops_end(&run);
    return 0;
}
