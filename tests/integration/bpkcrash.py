"""What the tests of crashes and faults share: edits to be lost, system calls that fail, filesystems that go away.

`Case` is a pack, edits to it and what both come to; `prepare()` runs its commit once without a fault and keeps the
bytes of the pack before and after, what the mount shows, and the system calls that the commit made. A test then does
the same with a fault at each of those calls. `Strace` attaches strace to a daemon, `injected` with an expression that
makes a call fail, or kills. `loop_mounted` is a fresh filesystem in a file, `power_cut` takes its power away.

BPK_LONG=1  every point instead of a sample, and more rounds
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest.mock

import pytest

import bpkedit
import conftest
from conftest import missing, wait_until

LONG = bool(os.environ.get("BPK_LONG"))
SEED = int(os.environ.get("BPK_SEED", "1"))

# The calls by which a commit changes anything.
CALLS = (
    "openat",
    "pwrite64",
    "write",
    "copy_file_range",
    "ioctl",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "fchmod",
    "fchown",
    "fsetxattr",
    "renameat",
    "renameat2",
    "close",
    "unlinkat",
    "mkdirat",
)


def need(tool):
    """A tool that CI must have."""
    if not shutil.which(tool):
        missing(f"{tool} is not installed")


def need_root():
    if os.geteuid() != 0:
        missing("needs root")


def sample(points, count):
    """COUNT of the points, the same ones every time; all of them where BPK_LONG is set."""
    if LONG or len(points) <= count:
        return list(points)
    return sorted(random.Random(SEED).sample(points, count))


# --- Mounts that may die ---


@contextlib.contextmanager
def fresh_folder(inside="/var/tmp"):
    path = pathlib.Path(tempfile.mkdtemp(prefix="bpk-", dir=inside))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def no_leaks():
    """The environment of a process that strace holds: leaks cannot be looked for in it."""
    return {**conftest.ENVIRONMENT, "ASAN_OPTIONS": f"{conftest.ENVIRONMENT['ASAN_OPTIONS']}:detect_leaks=0"}


@contextlib.contextmanager
def daemon(pack, *options):
    """A writable mount that the test may kill, and need not end."""
    with unittest.mock.patch.dict(conftest.ENVIRONMENT, no_leaks()):
        mount = bpkedit.WritableMount(pack, options)
    try:
        mount.wait_for_mount()
        yield mount
    finally:
        mount.clear()


def kill(mount):
    """kill -9, and what the kernel keeps of the mount goes too."""
    mount.daemon.kill()
    mount.status = mount.daemon.wait()
    if mount.is_mounted():
        subprocess.run(["umount", "-l", mount.path], check=True)


def leave(mount, patience=60):
    """Unmounts; the daemon's exit status."""
    if mount.is_mounted():
        mount.unmount()
    return mount.wait(patience)


def command(mount, text="commit"):
    """0, or the errno, of a command written to the control file."""
    try:
        bpkedit.control(mount, text)
    except OSError as error:
        return error.errno
    return 0


def json_or_none(raw):
    try:
        return json.loads(raw)
    except ValueError:
        return None


def view(mount):
    """What the mount says: path -> contents, hashes of long ones."""
    result = {}
    for name in sorted(bpkedit.listing(mount)):
        path = mount / name
        raw = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
        if name.startswith("tensors/") and name.endswith(".json"):
            side = json_or_none(raw)
            if not side:
                result[name] = raw
                continue
            if side.get("problem") == "no tensor":  # the next commit drops it
                continue
            raw = json.dumps([side["dtype"], side["shape"], side.get("param_id")]).encode()
        elif name == "index.tsv":
            continue
        result[name] = raw if len(raw) < 200 else hashlib.sha256(raw).hexdigest()
    return result


def debris(pack):
    """What lies beside a pack that should not."""
    return sorted(p.name for p in pack.parent.iterdir() if p.name.startswith("."))


# --- Cases ---


def edit_all(mount):
    """One of each: bytes, a descriptor, a key, a scalar, a new tensor, one removed, one renamed, one cut and grown."""
    tensors = mount.tensors
    with open(tensors / "conv.weight", "r+b") as file:
        file.seek(5000)
        file.write(b"edited" * 3000)
    bpkedit.change_sidecar(mount, "fc.weight", param_id=99)
    (mount / "metadata/k").write_text("another value\n")
    scalars = (mount / "scalars.json").read_text()
    (mount / "scalars.json").write_text(scalars.replace("3", "4"))
    (tensors / "new").write_bytes(bytes(range(64)))
    bpkedit.write_sidecar(mount, "new", "F32", [16])
    (tensors / "norm.gamma").unlink()
    (tensors / "text").rename(tensors / "renamed")
    with open(tensors / "long", "r+b") as file:
        file.truncate(10000)
        file.truncate(300000)


def edit_metadata(mount):
    (mount / "metadata/k").write_text("another value\n")


def edit_bytes(mount):
    with open(mount.tensors / "conv.weight", "r+b") as file:
        file.seek(5000)
        file.write(b"edited" * 3000)


def edit_aside(mount):
    """A backup that borrows bytes of the pack, and a pending file: both stay outside of it."""
    (mount.tensors / "text").rename(mount.tensors / "text.bak")
    (mount.tensors / "text").write_bytes(b"x" * len(bpkedit.TEXT))
    (mount.tensors / "pending").write_bytes(b"not yet")


TENSORS = [*bpkedit.TENSORS, ("long", "U8", [300000], bytes(range(250)) * 1200, None)]


@dataclasses.dataclass
class Case:
    """`folder` is where the packs are made, so that the filesystem can be chosen."""

    edit: object
    by_unmount: bool = False
    stays: bool = False  # something stays in the edits folder
    folder: str = "/var/tmp"
    old: bytes = b""
    new: bytes = b""
    shown: dict = dataclasses.field(default_factory=dict)
    calls: dict = dataclasses.field(default_factory=dict)  # call -> how often one thread makes it in the commit

    def make(self, folder):
        folder.mkdir(exist_ok=True)
        pack = bpkedit.make_pack(folder, TENSORS)
        os.setxattr(pack, "user.note", b"kept")
        return pack

    def commit(self, mount):
        """0 or an errno; of an unmount: 0 or the exit status."""
        if not self.by_unmount:
            return command(mount)
        status = leave(mount)
        return 0 if status == 3 and self.stays else status

    def prepare(self):
        need("strace")
        with fresh_folder(self.folder) as folder:
            pack = self.make(folder)
            self.old = pack.read_bytes()
            with daemon(pack) as mount:
                self.edit(mount)
                self.shown = view(mount)
                with Strace(mount.daemon.pid, f"-etrace={','.join(CALLS)}") as trace:
                    assert self.commit(mount) == 0
                self.calls = trace.counts()
                if not self.by_unmount:
                    shown = view(mount)
                    assert shown == self.shown, differences(self.shown, shown)
            self.new = pack.read_bytes()
            assert self.new != self.old
        return self

    def points(self):
        """(call, n) for each call of the commit."""
        return [(call, n) for call in sorted(self.calls) for n in range(1, self.calls[call] + 1)]

    def check_after(self, pack, what):
        """The pack is the old or the new one; the next mount has the edits, or has them committed; and nothing is left."""
        now = pack.read_bytes()
        assert now in (self.old, self.new), f"{what}: the pack is neither"
        with daemon(pack) as mount:
            shown = view(mount)
            assert shown == self.shown, f"{what}: {differences(self.shown, shown)}"
            assert pack.read_bytes() == now, what
            assert [name for name in debris(pack) if name.endswith(".tmp")] == [], what
            assert command(mount) == 0, f"{what}: {bpkedit.status(mount)}"
            shown = view(mount)
            assert shown == self.shown, f"{what}, committed: {differences(self.shown, shown)}"
            status = leave(mount)
            assert status == (3 if self.stays else 0), f"{what}: {status}, {mount.read_log()}"
        self.check_done(pack, what)

    def check_done(self, pack, what):
        assert pack.read_bytes() == self.new, f"{what}: not the new pack"
        assert os.getxattr(pack, "user.note") == b"kept", what
        wanted = [f".{pack.name}.edits"] if self.stays else []
        assert debris(pack) == wanted, what


def differences(wanted, got):
    return {
        name: (wanted.get(name), got.get(name))
        for name in wanted.keys() | got.keys()
        if wanted.get(name) != got.get(name)
    }


# --- Edits in steps ---


class Steps:
    """Edits of every kind as single operations, so that a fault can come between any two of them.

    `run` does them in turn and tells how many were acknowledged; `views` is what the mount shows before the first and
    after each of them.
    """

    def __init__(self):
        self.fds, self.views, self.again = {}, [], False
        self.steps = [
            lambda m: write_at(m.tensors / "conv.weight", 5000, b"edited" * 300),
            lambda m: write_at(m.tensors / "conv.weight", 6000, b"again"),
            lambda m: write_at(m.tensors / "conv.weight", 76800, b"longer" * 100),
            lambda m: os.truncate(m.tensors / "conv.weight", 76800),
            lambda m: self.open(m.tensors / "fc.weight.json", os.O_WRONLY | os.O_TRUNC),
            lambda m: os.write(self.fds["fc.weight.json"], b'{"dtype": "F32", "shape": [4, 4], "param_id": 99}\n'),
            lambda m: self.close("fc.weight.json"),
            lambda m: self.open(m / "metadata/k", os.O_WRONLY | os.O_TRUNC),
            lambda m: os.write(self.fds["k"], b"another value\n"),
            lambda m: self.close("k"),
            lambda m: self.open(m.tensors / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
            lambda m: os.write(self.fds["new"], bytes(range(64))),
            lambda m: os.fsync(self.fds["new"]),
            lambda m: self.close("new"),
            lambda m: self.open(m.tensors / "other", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
            lambda m: os.write(self.fds["other"], bytes(range(64)) * 300),
            lambda m: self.close("other"),
            lambda m: os.unlink(m.tensors / "norm.gamma"),
            lambda m: os.rename(m.tensors / "text", m.tensors / "text.bak"),
            lambda m: os.rename(m.tensors / "other", m.tensors / "text"),
            lambda m: os.rename(m.tensors / "new", m.tensors / "long"),
            lambda m: os.truncate(m.tensors / "conv.weight", 10000),
            lambda m: os.truncate(m.tensors / "conv.weight", 76800),
            lambda m: os.unlink(m.tensors / "text"),
            lambda m: os.unlink(m.tensors / "long"),
            lambda m: os.unlink(m / "metadata/lines"),
            lambda m: os.symlink("somewhere", m.tensors / ".#lock"),
            lambda m: os.rename(m.tensors / "conv.weight", m.tensors / "moved"),
        ]

    def open(self, path, flags):
        self.fds[path.name] = os.open(path, flags & ~os.O_EXCL if self.again else flags, 0o644)

    def close(self, name):
        os.close(self.fds.pop(name))

    def close_all(self):
        for fd in self.fds.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds = {}

    def prepare(self, mount):
        self.views = [view(mount)]
        for step in self.steps:
            step(mount)
            self.views.append(view(mount))
        return self

    def run(self, mount, first=0, again=False):
        """(steps that were acknowledged, the error of the one that was not or None)

        AGAIN: the first one failed before, but may have been done all the same.
        """
        for number in range(first, len(self.steps)):
            self.again = again and number == first
            try:
                self.steps[number](mount)
            except OSError as error:
                if not self.again or error.errno not in (errno.ENOENT, errno.EEXIST):
                    return number, error.errno
            except KeyError:  # a close that failed has closed
                assert self.again
        return len(self.steps), None

    def check(self, mount, done, what):
        """The mount shows what it did after DONE steps, or after one more: it may have been done all the same."""
        shown = view(mount)
        wanted = self.views[done : done + 2]
        assert shown in wanted, f"{what}: {[differences(each, shown) for each in wanted]}"


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR):
    """An fd of a file whose mount may be gone at the end."""
    fd = os.open(path, flags, 0o644)
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def write_at(path, offset, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        assert os.pwrite(fd, data, offset) == len(data)
    finally:
        os.close(fd)


# --- strace ---


def is_gone(pid):
    """Whether the process is dead, reaped or not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


class Strace:
    """strace on a process and all its threads, while the block lasts or until the process dies."""

    def __init__(self, pid, *flags):
        self.pid, self.flags = pid, flags

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="bpk-strace-", dir="/var/tmp"))
        self.log, said = self.home / "log", self.home / "stderr"
        with open(said, "wb") as stderr:
            arguments = ["strace", "-f", "-o", self.log, *self.flags, "-p", str(self.pid)]
            self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)

        def attached():
            ended = self.process.poll() is not None
            if "attached" in said.read_text():  # what is injected may have killed the process at once
                return True
            assert not ended, said.read_text()
            return False

        try:
            wait_until(attached, "strace attached")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        for patience in (0.2, 10):  # with a process that was killed strace may wait for ever
            try:
                self.process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                if is_gone(self.pid):
                    break
        self.process.kill()
        self.process.wait()
        self.lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        shutil.rmtree(self.home)

    def calls(self):
        """(thread, name, whole line) of each call that was made, in the order of their beginnings."""
        found = (re.match(r"(\d+)\s+(\w+)\(", line) for line in self.lines)
        return [(match[1], match[2], match.string) for match in found if match]

    def counts(self):
        """call -> how often the busiest thread made it: strace counts for each thread on its own."""
        by_thread = {}
        for thread, name, _ in self.calls():
            by_thread.setdefault(name, {}).setdefault(thread, []).append(1)
        return {name: max(len(times) for times in threads.values()) for name, threads in by_thread.items()}

    def was_injected(self):
        return any("(INJECTED)" in line for line in self.lines)


def injected(mount, call, what, when):
    """The mount's CALL does WHAT the WHENth time that a thread makes it."""
    return Strace(mount.daemon.pid, f"-etrace={call}", f"-einject={call}:{what}:when={when}")


def compile_shim(folder, source):
    """A shared object for LD_PRELOAD."""
    if conftest.SANITIZED:
        pytest.skip("a sanitizer's own library must be the first one that is loaded")
    need("gcc")
    path = folder / "shim.so"
    (folder / "shim.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", path, folder / "shim.c", "-ldl"], check=True)
    return path


# --- Filesystems ---

GOINGDOWN = ord("X") << 8 | 125 | struct.calcsize("I") << 16 | 2 << 30  # _IOR('X', 125, uint32)
NO_LOG_FLUSH = 2


class Loop:
    """A filesystem in a file: `path` is where it is mounted."""

    def __init__(self, kind, size, home):
        self.kind, self.home = kind, pathlib.Path(home)
        self.image, self.path = self.home / "image", self.home / "fs"
        with open(self.image, "wb") as file:
            file.truncate(size)
        flags = {"xfs": ["-q", "-m", "reflink=1"], "ext4": ["-q", "-F"], "btrfs": ["-q"]}[kind]
        subprocess.run([f"mkfs.{kind}", *flags, self.image], check=True, capture_output=True)
        self.path.mkdir()

    def mount(self):
        options = "loop,noauto_da_alloc" if self.kind == "ext4" else "loop"
        subprocess.run(["mount", "-o", options, self.image, self.path], check=True, capture_output=True)

    def unmount(self):
        wait_until(
            lambda: subprocess.run(["umount", self.path], capture_output=True, check=False).returncode == 0,
            f"{self.path} unmounted",
        )

    def cut(self):
        """From here on nothing reaches the disk."""
        power_cut(self.path)


def sync(path):
    """Of one filesystem: sync() waits for those of others too, and for their daemons."""
    subprocess.run(["sync", "-f", path], check=True)


def power_cut(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, GOINGDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(fd)


@contextlib.contextmanager
def loop_mounted(kind, size=400 << 20):
    need_root()
    need(f"mkfs.{kind}")
    with fresh_folder() as home:
        loop = Loop(kind, size, home)
        try:
            loop.mount()
        except subprocess.CalledProcessError as error:
            missing(f"no {kind} in a loop device: {error.stderr.decode().strip()}")
        try:
            yield loop
        finally:
            if os.path.ismount(loop.path):
                loop.unmount()


@contextlib.contextmanager
def tmpfs(size):
    need_root()
    with fresh_folder() as home:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", home], check=True)
        try:
            yield home
        finally:
            wait_until(
                lambda: subprocess.run(["umount", home], capture_output=True, check=False).returncode == 0,
                f"{home} unmounted",
            )


def error_of(function, *arguments, **options):
    """The name of the error with which FUNCTION fails, or None."""
    try:
        function(*arguments, **options)
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


def pause():
    time.sleep(0.05)


def prepared_steps():
    """The steps, and how often each call is made by a mount of one thread while they are done."""
    need("strace")
    with fresh_folder() as folder:
        pack = bpkedit.make_pack(folder, TENSORS)
        with daemon(pack, "-s") as mount:
            steps = Steps().prepare(mount)
            bpkedit.control(mount, "discard")
        with daemon(pack, "-s") as mount:
            with Strace(mount.daemon.pid, f"-etrace={','.join(CALLS)}") as trace:
                assert steps.run(mount) == (len(steps.steps), None)
            assert view(mount) == steps.views[-1]
    counts = trace.counts()
    return steps, [(call, n) for call in sorted(counts) for n in range(1, counts[call] + 1)]
