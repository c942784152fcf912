#include "sandbox.h"

#include "pack/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

/* ---- before both ----------------------------------------------------------------------------- */

static void *exit_at_once(void *unused) {
    (void)unused;
    pthread_exit(NULL);
}

/* libfuse cancels its threads at the end, for which the C library loads the unwinder, and dies
 * where it cannot; and the time in a line for syslog needs the time zone. */
static int load_late_files(void) {
    pthread_t thread;
    tzset();
    int r = pthread_create(&thread, NULL, exit_at_once, NULL);
    if (r == 0)
        r = pthread_join(thread, NULL);
    return -r;
}

int bpk_sandbox_begin(void) {
    int r = load_late_files();
    if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    return r;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* <linux/landlock.h>, which older systems do not have: the kernel's interface, and its numbers,
 * which are the same on all architectures. */
enum {
    SYS_CREATE_RULESET = 444,
    SYS_ADD_RULE = 445,
    SYS_RESTRICT_SELF = 446,
    GET_ABI = 1,
    PATH_BENEATH = 1,
};

struct ruleset {
    uint64_t handled; /* is forbidden unless a rule allows it */
};

struct beneath {
    uint64_t allowed;
    int32_t folder;
} __attribute__((packed));

enum {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    REMOVE_DIR = 1 << 4,
    REMOVE_FILE = 1 << 5,
    MAKE_CHAR = 1 << 6,
    MAKE_DIR = 1 << 7,
    MAKE_REG = 1 << 8,
    MAKE_SOCK = 1 << 9,
    MAKE_FIFO = 1 << 10,
    MAKE_BLOCK = 1 << 11,
    MAKE_SYM = 1 << 12,
    REFER = 1 << 13,
    TRUNCATE = 1 << 14,
    IOCTL_DEV = 1 << 15,
};

/* What a kernel of this version can forbid. Version 4 is about networks. */
static uint64_t known_rights(long abi) {
    uint64_t rights = 2 * MAKE_SYM - 1;
    if (abi >= 2)
        rights |= REFER;
    if (abi >= 3)
        rights |= TRUNCATE;
    if (abi >= 5)
        rights |= IOCTL_DEV;
    return rights;
}

/* All that a commit and the edits folder need; nothing is moved to another folder. */
static const uint64_t needed =
    WRITE_FILE | READ_FILE | READ_DIR | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE;

static int allow(int rules, const char *path, uint64_t rights) {
    _cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct beneath rule = {rights, fd};
    return syscall(SYS_ADD_RULE, rules, PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

int bpk_sandbox_make_rules(const char *path) {
    long abi = syscall(SYS_CREATE_RULESET, NULL, 0, GET_ABI);
    if (abi < 0)
        return -errno;
    struct ruleset ruleset = {known_rights(abi)};
    _cleanup_close_ int rules = (int)syscall(SYS_CREATE_RULESET, &ruleset, sizeof(ruleset), 0);
    if (rules < 0)
        return -errno;
    _cleanup_free_ char *folder = strndup(path, (size_t)(strrchr(path, '/') - path) + 1);
    if (!folder)
        return -ENOMEM;
    int r = allow(rules, folder, needed & ruleset.handled);
    if (r == 0)
        (void)allow(rules, "/dev/urandom", READ_FILE); /* for the hash tables of jansson */
#ifdef BPK_INSTRUMENTED /* reports with the names of functions, and counts of what was run */
    if (r == 0)
        r = allow(rules, "/", (needed & ~(REMOVE_DIR | REMOVE_FILE)) & ruleset.handled);
#endif
    return r < 0 ? r : bpk_steal_fd(&rules);
}

int bpk_sandbox_confine(int rules) {
    return syscall(SYS_RESTRICT_SELF, rules, 0) < 0 ? -errno : 0;
}

/* ---- system calls ---------------------------------------------------------------------------- */

/* Those that are younger than some headers have one number on all architectures. */
enum {
    SYS_IO_URING_SETUP = 425, /* its requests pass every filter */
    SYS_OPEN_TREE = 428,
    SYS_MOVE_MOUNT = 429,
    SYS_FSOPEN = 430,
    SYS_FSCONFIG = 431,
    SYS_FSMOUNT = 432,
    SYS_FSPICK = 433,
    SYS_PIDFD_GETFD = 438,
    SYS_MOUNT_SETATTR = 442,
};

static const unsigned forbidden[] = {
    /* other programs */
    SYS_execve,
    SYS_execveat,
#ifndef BPK_INSTRUMENTED /* the search for leaks stops the other threads so */
    SYS_ptrace,
#endif
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_PIDFD_GETFD,
    SYS_kcmp,
    SYS_perf_event_open,
    /* what is where */
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_OPEN_TREE,
    SYS_MOVE_MOUNT,
    SYS_FSOPEN,
    SYS_FSCONFIG,
    SYS_FSMOUNT,
    SYS_FSPICK,
    SYS_MOUNT_SETATTR,
    SYS_open_by_handle_at,
    SYS_quotactl,
    /* the kernel, and the machine */
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
#ifdef __x86_64__
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
    /* interfaces of the kernel with a history */
    SYS_bpf,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_IO_URING_SETUP,
#ifdef SYS_userfaultfd
    SYS_userfaultfd,
#endif
};

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#endif

#ifdef NATIVE

#define LOAD(member)      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define SKIP_IF(k, n)     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, n, 0)
#define SKIP_UNLESS(k, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, 0, n)
#define SKIP_BELOW(k, n)  BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, k, 0, n)
#define ALLOW             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define DENY              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

/* Nothing is ever ended by it: whatever the daemon does, its edits are kept. */
int bpk_sandbox_forbid_calls(void) {
    static const struct sock_filter head[] = {
        LOAD(arch),
        SKIP_IF(NATIVE, 1),
        DENY,
        LOAD(nr),
#ifdef __x86_64__ /* calls of x32 have other numbers */
        SKIP_BELOW(0x40000000, 1),
        DENY,
#endif
        /* syslog(3) makes another one when its daemon was started anew. */
        SKIP_UNLESS(SYS_socket, 8),
        LOAD(args[0]),
        SKIP_IF(AF_UNIX, 1),
        DENY,
        LOAD(args[1]),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t) ~(SOCK_CLOEXEC | SOCK_NONBLOCK)),
        SKIP_UNLESS(SOCK_DGRAM, 1),
        ALLOW,
        DENY,
    };
    enum { HEAD = BPK_ARRAY_LEN(head), EACH = 2 };
    struct sock_filter filter[HEAD + EACH * BPK_ARRAY_LEN(forbidden) + 1];
    memcpy(filter, head, sizeof(head));
    size_t len = HEAD;
    for (size_t i = 0; i < BPK_ARRAY_LEN(forbidden); i++) {
        filter[len++] = (struct sock_filter)SKIP_UNLESS(forbidden[i], 1);
        filter[len++] = (struct sock_filter)DENY;
    }
    filter[len++] = (struct sock_filter)ALLOW;
    struct sock_fprog program = {(unsigned short)len, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

#else

int bpk_sandbox_forbid_calls(void) {
    (void)forbidden;
    return -EOPNOTSUPP;
}

#endif
