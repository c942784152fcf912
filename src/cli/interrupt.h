/* Ctrl-C and its like (SIGINT, SIGTERM, SIGHUP) where work would leave something half done.
 *
 * The first signal ends the work at its next step, as a fault would: what was begun is taken away.
 * Then the program ends by that signal, as if it had not been caught; one that comes when all is
 * done is too late. A second one ends it at once.
 */
#ifndef BPK_CLI_INTERRUPT_H
#define BPK_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on; a signal that is ignored stays so. A call that waits for long and cannot be told of
 * one (standard output, for one) is not for such a verb. */
void bpk_cli_interrupt_catch(void);

/* Whether one came: who asks does not go on then. */
bool bpk_cli_interrupted(void);

/* The same, after waiting for something to read. */
bool bpk_cli_interrupted_before_input(int fd);

/* Whether somebody was told so: what fails from then on fails of that, and nobody wants to hear. */
bool bpk_cli_interrupt_is_known(void);

/* Ends the program then. */
void bpk_cli_interrupt_end(void);

#endif
