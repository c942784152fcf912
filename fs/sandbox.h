/* What the daemon gives up before it serves, so that a fault in it that a hostile pack finds leads
 * nowhere: privileges by exec, system calls that it has no use for, and all files outside the
 * pack's folder (the new pack and the edits lie there, too). Files that are open stay so.
 *
 * Everything is for the calling thread and those it starts later. It is no limit on owner, mode and
 * extended attributes, which Landlock leaves alone, nor on looking at files (stat).
 */
#ifndef BPKFS_SANDBOX_H
#define BPKFS_SANDBOX_H

/* Landlock's rules: files below the folder of `path`, a file, absolute, links followed. To be made
 * before anything is mounted over that. Returns an fd, or -errno: -EOPNOTSUPP, -ENOSYS where the
 * kernel has no Landlock. */
int bpk_sandbox_make_rules(const char *path);

/* No new privileges; the others need it. Opens what the C library would want to open later. 0 or a
 * negative errno: no thread can be started. */
int bpk_sandbox_begin(void);

/* EPERM for execve, ptrace, mount, sockets but those that syslog(3) needs, and others. 0 or a
 * negative errno: -EOPNOTSUPP where the numbers of this architecture's calls are not known. */
int bpk_sandbox_forbid_calls(void);

/* Puts the rules in force. 0 or a negative errno. */
int bpk_sandbox_confine(int rules);

#endif
