"""The house of the integration suite: where the programs are, how they are run, how packs are mounted.

    /usr/bin/python3 -m pytest tests/integration

BPK_BUILD   the build folder (default: build in the repository); fs/bpkfs and src/cli/bpk are taken from there
BPK_SHARED  the folder with fixtures/ and malformed/ (default: ../shared beside the repository)
CI=true     programs that are not built and a /dev/fuse that cannot be used fail the tests instead of skipping them

`with mounted(pack, *options) as mount:` starts `bpkfs -f -o ro` as a child with a mount point in a fresh folder under
/var/tmp. The end of the block unmounts it and demands that the daemon ends with status 0, that it said nothing that was
not expected, and that nothing is left in the folder. `run_bpkfs` and `run_bpk` run a program to its end and can tell
its peak of memory. All works with sanitizer builds too: their reports have an exit status of their own.
Only what a test started itself is ever killed, by its process id.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from bpkref import build

pytest.register_assert_rewrite("bpkview")

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BPK_BUILD", REPOSITORY / "build")).resolve()
BPKFS, BPK = BUILD / "fs/bpkfs", BUILD / "src/cli/bpk"
SHARED = pathlib.Path(os.environ.get("BPK_SHARED", REPOSITORY.parent / "shared")).resolve()
FIXTURES, MALFORMED = SHARED / "fixtures", SHARED / "malformed"
NO_SHARED = pytest.mark.skip(reason=f"no shared packs at {SHARED}: set BPK_SHARED")

REPORTED = 99  # exit status of a program that a sanitizer reports
SANITIZED = BPKFS.exists() and b"__asan_init" in BPKFS.read_bytes()
PATIENCE = 60 if SANITIZED else 20  # seconds after which something hangs
NOBODY = 65534
ENVIRONMENT = {
    **os.environ,
    "LC_ALL": "C.UTF-8",
    "ASAN_OPTIONS": f"detect_leaks=1:{os.environ.get('ASAN_OPTIONS', '')}:exitcode={REPORTED}",
    "UBSAN_OPTIONS": f"print_stacktrace=1:{os.environ.get('UBSAN_OPTIONS', '')}:halt_on_error=1:exitcode={REPORTED}",
}


# --- What must be there ---


def missing(reason):
    """Skips the test, or fails it where everything must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def need_programs():
    for program in (BPKFS, BPK):
        if not os.access(program, os.X_OK):
            missing(f"no program at {program}: build it, or set BPK_BUILD")


def need_fuse():
    need_programs()
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        missing(f"/dev/fuse cannot be used: {error.strerror}")


def need_root():
    if os.geteuid() != 0:
        pytest.skip("needs root")


def need_tool(name):
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")


@pytest.fixture
def folder():
    """A fresh folder under /var/tmp, for packs and more; others may enter it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="bpk-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    for left in mounts_below(path):  # after a failure
        detach(left)
    shutil.rmtree(path)


@pytest.fixture
def open_fuse():
    """/dev/fuse is open to every user while the test runs."""
    need_root()
    need_fuse()
    before = os.stat("/dev/fuse").st_mode & 0o7777
    os.chmod("/dev/fuse", 0o666)
    yield
    os.chmod("/dev/fuse", before)


def as_nobody(*command):
    """COMMAND run as a user without rights."""
    need_tool("setpriv")
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *map(str, command)]


# --- A small good pack ---

BYTES = bytes(range(256)) * 300
TENSORS = [
    ("conv.weight", "F32", [64, 300], BYTES, 9505838338724798577),
    ("conv.bias", {"Bool": "U8"}, [3], b"\1\0\1", None),
    ("a b,c\\d", "U8", [0], b"", 5),
]
GOOD = build(TENSORS, {"producer": "pytest", "k": "v"}, {"epoch": ("UInt", 3)})


@pytest.fixture
def pack(folder):
    path = folder / "model.bpk"
    path.write_bytes(GOOD)
    return path


def weight(mnt):
    """The file of the tensor whose bytes are BYTES."""
    return mnt / "tensors/conv.weight"


def code_of(function, *arguments):
    """The name of the error with which FUNCTION fails, or "done"."""
    try:
        function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


# --- Programs that end ---


@dataclasses.dataclass
class Result:
    status: int
    out: bytes
    err: str
    peak: int  # bytes resident at most; 0 if not measured


# Forks, because ru_maxrss of a process starts with what its parent had before the exec: pytest is large, this is small.
MEASURE = """
import os, sys
pid = os.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
os.write(int(sys.argv[1]), str(usage.ru_maxrss * 1024).encode())
os._exit(os.waitstatus_to_exitcode(status) % 256)
"""


def whereabouts(pid):
    """What each thread of a process waits for, and who traces it: all that can be said of one that hangs."""
    found = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
        for name in ("status", "wchan", "syscall", "stack"):
            try:
                text = (task / name).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                text = str(error)
            if name == "status":
                text = ", ".join(re.findall(r"^(?:Name|State|TracerPid|SigPnd|ShdPnd):.*", text, re.MULTILINE))
            found.append(f"{task.name} {name}: {text.strip()}")
    return "\n".join(found)


def reap(process, patience=PATIENCE):
    """The exit status of a Popen. One that hangs is killed, with its own session if it has one: a failure."""
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        threads = whereabouts(process.pid)
        if os.getsid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        return pytest.fail(f"{process.args} did not end within {patience} s:\n{threads}")


def run(*command, measure=False, patience=PATIENCE, **options):
    """Runs COMMAND to its end, output in files so that no pipe can fill. OPTIONS are Popen's."""
    command = [*map(os.fspath, command)]
    with contextlib.ExitStack() as stack:
        out, err, peak = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        if measure:
            command = [sys.executable, "-S", "-E", "-c", MEASURE, str(peak.fileno()), *command]
            options |= {"pass_fds": [peak.fileno()], "start_new_session": True}
        defaults = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "env": ENVIRONMENT}
        status = reap(subprocess.Popen(command, **{**defaults, **options}), patience)
        out.seek(0), err.seek(0), peak.seek(0)
        result = Result(status, out.read(), err.read().decode(errors="replace"), int(peak.read() or 0))
    assert status != REPORTED and 0 <= status < 128, f"{command}: status {status}\n{result.err}"
    return result


def run_bpk(*arguments, **options):
    need_programs()
    return run(BPK, *arguments, **options)


def run_bpkfs(*arguments, **options):
    need_fuse()
    return run(BPKFS, *arguments, **options)


# --- Mounts ---


def unescape(field):
    """A field of the mount table without its octal escapes."""
    return re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), field)


@dataclasses.dataclass
class TableEntry:
    options: str
    type: str
    source: str
    super_options: str


def table_entry(path):
    """What /proc/self/mountinfo has at PATH, or None."""
    found = None
    for line in pathlib.Path("/proc/self/mountinfo").read_bytes().splitlines():
        front, back = line.split(b" - ", 1)
        fields, (kind, source, super_options) = front.split(b" "), back.split(b" ")
        if unescape(fields[4]) == os.fsencode(path):
            texts = (fields[5], kind, unescape(source), super_options)
            found = TableEntry(*(os.fsdecode(text) for text in texts))
    return found


def mounts_below(folder):
    """The mount points in FOLDER, the last mounted first; one stands twice if two are mounted there."""
    table = pathlib.Path("/proc/self/mountinfo").read_bytes().splitlines()
    points = [os.fsdecode(unescape(line.split(b" ")[4])) for line in table]
    return [point for point in reversed(points) if point.startswith(f"{folder}/")]


def daemons_of(folder):
    """The processes that have FOLDER in their command line and are bpkfs."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            int(entry.name)
            words = (entry / "cmdline").read_bytes().split(b"\0")
            here = os.fsencode(folder) + b"/"
            inside = (os.fsencode(os.readlink(entry / "cwd")) + b"/").startswith(here)
            if words[0].endswith(b"bpkfs") and (inside or any(here in word for word in words)):
                found.append(int(entry.name))
    return found


def detach(point):
    command = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
    subprocess.run([*command, point], check=False)


def wait_until(condition, what, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {patience} s"
        time.sleep(0.002)


class Mount:
    """A mounted pack: `path` is the mount point, `home` the fresh folder that holds it, `pack` the pack's path."""

    def __init__(self, pack, options, user=None, program=BPKFS):
        need_fuse()
        self.pack = pathlib.Path(pack)
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="bpk-", dir="/var/tmp"))
        self.path, self.log = self.home / "mnt", self.home / "stderr"
        self.user = user
        self.path.mkdir()
        if user is not None:
            os.chown(self.home, user, user)
            os.chown(self.path, user, user)
        self.home.chmod(0o755)
        flags = [f for option in options for f in ([option] if option.startswith("-") else ["-o", option])]
        command = [program, "-f", "-o", "ro", *flags, self.pack, self.path]
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(
                as_nobody(*command) if user == NOBODY else command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
            )
        self.status = None

    def is_mounted(self):
        return table_entry(self.path) is not None

    def wait_for_mount(self):
        def settled():
            if self.is_mounted():
                return True
            self.status = self.daemon.poll()
            if self.status is not None:
                pytest.fail(f"bpkfs ended with {self.status}, not mounted: {self.read_log()}")
            return False

        wait_until(settled, f"{self.pack} mounted")

    def read_log(self):
        return self.log.read_text(errors="replace")

    def send(self, signal_number):
        self.daemon.send_signal(signal_number)

    def wait(self, patience=PATIENCE):
        """The daemon's exit status."""
        if self.status is None:
            self.status = reap(self.daemon, patience)
        return self.status

    def peak(self):
        """The most bytes that the daemon has had resident."""
        text = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) * 1024

    def unmount(self):
        """With the ordinary command, once more if something else on the machine looked in."""
        plain = os.geteuid() == 0 and self.user is None
        command = ["umount", self.path] if plain else ["fusermount3", "-u", self.path]
        if self.user == NOBODY:
            command = as_nobody(*command)
        for attempt in range(3):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                return
            time.sleep(0.1 * attempt)
        pytest.fail(f"{command}: {result.stderr}")

    def finish(self, expect):
        """The orderly end. EXPECT: regular expressions of the lines that the daemon may say, each of them once."""
        if self.is_mounted():
            self.unmount()
        status, log = self.wait(), self.read_log()
        assert status == 0, f"bpkfs ended with {status}: {log}"
        assert not self.is_mounted()
        check_lines(log, expect)
        assert sorted(p.name for p in self.home.iterdir()) == ["mnt", "stderr"]
        assert list(self.path.iterdir()) == []

    def clear(self):
        """After whatever happened: nothing stays mounted, running or on disk."""
        if self.status is None:
            self.daemon.kill()
            self.daemon.wait()
        for left in mounts_below(self.home):
            detach(left)
        shutil.rmtree(self.home)


def check_lines(text, expect):
    """TEXT has exactly one line for each of the regular expressions EXPECT, in their order."""
    lines = text.splitlines()
    assert len(lines) == len(expect), f"{len(expect)} lines expected: {text}"
    for line, pattern in zip(lines, expect):
        assert re.search(pattern, line), f"{pattern!r} expected: {line!r}"


def leftovers(pack):
    """What a mount might have made beside the pack: names that begin with a dot and the pack's name."""
    pack = pathlib.Path(pack)
    return sorted(p.name for p in pack.parent.iterdir() if p.name.startswith(f".{pack.name}"))


@contextlib.contextmanager
def mounted(pack, *options, expect=(), user=None):
    """A Mount with these -o OPTIONS (those that begin with "-" are passed as they are), orderly ended.

    EXPECT: regular expressions of the lines that the daemon must say; None: anything but a sanitizer's report.
    USER: NOBODY for a daemon without rights.
    """
    before = leftovers(pack)
    mount = Mount(pack, options, user)
    try:
        mount.wait_for_mount()
        yield mount
        if expect is None:
            mount.unmount()
            assert mount.wait() == 0, mount.read_log()
            assert "ERROR: " not in mount.read_log() and "runtime error" not in mount.read_log()
        else:
            mount.finish(expect)
        assert leftovers(pack) == before
    finally:
        mount.clear()
