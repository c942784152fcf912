#include "cli/interrupt.h"

#include "pack/util.h"

#include <poll.h>
#include <signal.h>
#include <stddef.h>

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
static _Atomic int caught;
static _Atomic bool known;

static void note(int number) {
    caught = number;
}

void bpk_cli_interrupt_catch(void) {
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    for (size_t i = 0; i < BPK_ARRAY_LEN(numbers); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
}

bool bpk_cli_interrupted(void) {
    if (caught != 0)
        known = true;
    return caught != 0;
}

/* Blocked between the look and the wait, so that none slips in there. */
bool bpk_cli_interrupted_before_input(int fd) {
    struct pollfd input = {.fd = fd, .events = POLLIN};
    sigset_t all;
    sigset_t before;
    sigemptyset(&all);
    for (size_t i = 0; i < BPK_ARRAY_LEN(numbers); i++)
        sigaddset(&all, numbers[i]);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    if (caught == 0)
        (void)ppoll(&input, 1, NULL, &before);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bpk_cli_interrupted();
}

bool bpk_cli_interrupt_is_known(void) {
    return known;
}

void bpk_cli_interrupt_end(void) {
    if (!known)
        return;
    (void)signal(caught, SIG_DFL);
    (void)raise(caught);
}
