#include "helper.h"

#include "pack/fusermount.h"
#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* One byte each way but for the result, which is an int. */
enum request { SYNC = 's', UNMOUNT = 'u', REMOVE = 'r' };

/* ---- the helper's side ----------------------------------------------------------------------- */

static int sync_mount(const char *mountpoint) {
    _cleanup_close_ int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || syncfs(fd) < 0 ? -errno : 0;
}

static int run_request(char request, const char *mountpoint) {
    switch (request) {
    case SYNC:
        return sync_mount(mountpoint);
    case UNMOUNT:
        return bpk_unmount(mountpoint, true, NULL);
    case REMOVE:
        return rmdir(mountpoint) < 0 ? -errno : 0;
    default:
        return -EINVAL;
    }
}

static void close_from(unsigned first) {
    enum { FEW = 1024 };
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0)
        return;
#endif
    for (unsigned fd = first; fd < FEW; fd++) /* the daemon has just started */
        close((int)fd);
}

/* Of the daemon's files only the socket stays, as fd 3. */
static void leave_files(int fd) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
        (void)dup2(null, i);
    if (fd != STDERR_FILENO + 1)
        (void)dup2(fd, STDERR_FILENO + 1);
    (void)fcntl(STDERR_FILENO + 1, F_SETFD, FD_CLOEXEC);
    close_from(STDERR_FILENO + 2);
}

/* Arguments follow each other in memory; what ps shows is what is there. */
static void set_name(char **argv, const char *mountpoint) {
    static const char name[] = "bpkfs-helper";
    char *end = argv[0];
    for (char **arg = argv; *arg && *arg == end; arg++)
        end += strlen(end) + 1;
    size_t room = (size_t)(end - argv[0]);
    memset(argv[0], 0, room);
    (void)snprintf(argv[0], room, "%s %s", name, mountpoint);
    (void)prctl(PR_SET_NAME, name);
}

static _Noreturn void help(const char *mountpoint) {
    enum { DAEMON = STDERR_FILENO + 1 };
    char request;
    for (;;) {
        ssize_t n = recv(DAEMON, &request, sizeof(request), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0);
        int r = run_request(request, mountpoint);
        (void)send(DAEMON, &r, sizeof(r), MSG_NOSIGNAL);
    }
}

static _Noreturn void become_helper(int fd, const char *mountpoint, char **argv) {
    (void)setsid();
    if (chdir("/") < 0)
        _exit(1);
    (void)signal(SIGCHLD, SIG_DFL);
    leave_files(fd);
    set_name(argv, mountpoint);
    help(mountpoint);
}

/* ---- the daemon's side ----------------------------------------------------------------------- */

int bpk_helper_start(struct bpk_helper *helper, const char *mountpoint, char **argv) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    (void)signal(SIGCHLD, SIG_IGN); /* no zombie, however soon it ends */
    pid_t pid = fork();
    if (pid < 0) {
        int r = -errno;
        close(ends[0]);
        close(ends[1]);
        return r;
    }
    if (pid == 0)
        become_helper(ends[1], mountpoint, argv);
    close(ends[1]);
    helper->fd = ends[0];
    helper->pid = pid;
    return 0;
}

static int exchange(int fd, char request) {
    int result;
    ssize_t n;
    do {
        n = send(fd, &request, sizeof(request), MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -EPIPE;
    do {
        n = recv(fd, &result, sizeof(result), 0);
    } while (n < 0 && errno == EINTR);
    return n == sizeof(result) ? result : -EPIPE;
}

static int ask(struct bpk_helper *helper, char request) {
    pthread_mutex_lock(&helper->lock);
    int r = helper->fd >= 0 ? exchange(helper->fd, request) : -EPIPE;
    pthread_mutex_unlock(&helper->lock);
    return r;
}

int bpk_helper_sync(struct bpk_helper *helper) {
    return ask(helper, SYNC);
}

int bpk_helper_unmount(struct bpk_helper *helper) {
    return ask(helper, UNMOUNT);
}

int bpk_helper_remove(struct bpk_helper *helper) {
    return ask(helper, REMOVE);
}

void bpk_helper_stop(struct bpk_helper *helper) {
    pthread_mutex_lock(&helper->lock);
    if (helper->fd >= 0) {
        close(helper->fd);
        helper->fd = -1;
        /* Children are not waited for (SIG_IGN), so this waits for its end and then fails. */
        while (waitpid(helper->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    pthread_mutex_unlock(&helper->lock);
}
