#include "log.h"

#include "pack/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

static bool use_syslog; /* set once, before any thread starts */

void bpk_log_to_syslog(void) {
    openlog("bpkfs", LOG_PID, LOG_DAEMON);
    use_syslog = true;
}

void bpk_log(const char *format, ...) {
    char message[1024];
    char shown[1100]; /* names in it may hold anything */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    bpk_text_escape(message, strlen(message), shown, sizeof(shown));
    if (use_syslog)
        syslog(LOG_WARNING, "%s", shown);
    else
        (void)fprintf(stderr, "bpkfs: %s\n", shown);
}
