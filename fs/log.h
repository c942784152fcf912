/* Messages of the daemon: stderr in the foreground, syslog once in the background. */
#ifndef BPKFS_LOG_H
#define BPKFS_LOG_H

/* From now on messages go to syslog: stderr is gone. */
void bpk_log_to_syslog(void);

/* "bpkfs: " and the message. The message is printable: text from a pack is escaped before. */
void bpk_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
