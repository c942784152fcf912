"""The daemon and its helper process: who does what at a signal, what each holds, what each may do."""

import contextlib
import ctypes
import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import bpkcrash as crash
import bpkedit as edit
import conftest
from conftest import BPKFS, ENVIRONMENT, NOBODY, as_nobody, check_lines, mounted, need_fuse, need_root, reap, run
from conftest import run_bpkfs, table_entry, wait_until

# --- The processes ---


def field(pid, name):
    """A field of /proc/PID/status, or None."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return re.search(rf"^{name}:\s*(.*)$", text, re.M)[1]


def is_running(pid):
    return (field(pid, "State") or "X")[0] not in "ZX"


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends
            found += map(int, (task / "children").read_text(encoding="utf-8").split())
    return found


def helper_of(daemon):
    """It is started soon after the mount is there, and has its name soon after that."""

    def named():
        return [child for child in children(daemon) if field(child, "Name") == "bpkfs-helper"]

    wait_until(lambda: len(named()) == 1, "a helper")
    return named()[0]


def files_of(pid):
    """What a process has open, with numbers that the test's own files do not get."""
    folder = pathlib.Path(f"/proc/{pid}/fd")
    return {int(link.name): os.readlink(link) for link in folder.iterdir()}


@contextlib.contextmanager
def daemon(*command, at, cwd):
    """A writable bpkfs in the foreground, known to be mounted AT."""
    need_fuse()
    log = cwd / "log"
    with open(log, "wb") as stderr:
        process = subprocess.Popen([*command], cwd=cwd, stdin=subprocess.DEVNULL, stderr=stderr, env=ENVIRONMENT)
    try:
        wait_until(lambda: table_entry(at) or process.poll() is not None, f"{at} mounted")
        assert table_entry(at), log.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        conftest.detach(at)


@pytest.fixture(name="packs")
def _packs(folder):
    """A folder with a pack, which every user may write."""
    path = folder / "packs"
    path.mkdir()
    path.chmod(0o777)
    edit.make_pack(path).chmod(0o666)
    return path


# --- The helper ---


@pytest.mark.parametrize("options", [(), ("-s",), ("ro",)], ids=["rw", "one thread", "ro"])
def test_a_mount_at_rest_uses_no_processor(options, packs):
    """Though a thread that has served a request looks for the next one for a moment."""

    def used(pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])  # ticks of 10 ms, in user and kernel mode

    with mounted(packs / "model.bpk", *options) as mount:
        for i in range(500):
            assert not (mount.path / f"no such file {i}").exists()
        before = used(mount.daemon.pid)
        time.sleep(0.5)
        assert used(mount.daemon.pid) - before <= 1


def test_the_helper_holds_nothing(packs):
    pack = packs / "model.bpk"
    with edit.edited(pack) as mount:
        (mount / "metadata/k").write_text("edited\n")
        helper = helper_of(mount.daemon.pid)
        held = files_of(helper)
        assert set(held) == {0, 1, 2, 3} and held[3].startswith("socket:")
        assert {held[0], held[1], held[2]} == {"/dev/null"}
        assert os.readlink(f"/proc/{helper}/cwd") == "/"
        assert field(helper, "Name") == "bpkfs-helper"
        arguments = pathlib.Path(f"/proc/{helper}/cmdline").read_bytes().rstrip(b"\0")
        assert b"bpkfs-helper /var/tmp/bpk-".startswith(arguments[:26]) and b"\0" not in arguments
        assert os.getsid(helper) == helper != os.getsid(mount.daemon.pid)
        mount.unmount()
        assert mount.wait() == 0
        assert not is_running(helper)


def test_nobody_waits_for_the_helper(packs, folder):
    """Whoever reads the daemon's output until its end sees that end when the daemon has gone to the background."""
    need_root()
    (folder / "mnt").mkdir()
    result = subprocess.run(
        [BPKFS, packs / "model.bpk", folder / "mnt"], capture_output=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    pid = edit.json.loads((folder / "mnt/.bpkfs/status.json").read_text())["pid"]
    helper = helper_of(pid)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_running(pid) and not is_running(helper), "both ended")
    assert table_entry(folder / "mnt") is None


@pytest.mark.parametrize("user", [None, NOBODY])
@pytest.mark.parametrize("given", [True, False])
def test_signal(user, given, packs, folder, request):
    """The mount is detached and a mount point that was made is gone, whoever the daemon runs as."""
    need_root()
    if user:
        request.getfixturevalue("open_fuse")
        conftest.need_tool("fusermount3")
        (packs / "model.bpk").unlink()
        folder.chmod(0o777)
        edit.make_pack(packs)
        os.chown(packs / "model.bpk", user, user)
    at = folder / "model"
    if given:
        at.mkdir()
        os.chown(at, user or 0, user or 0)
    command = [BPKFS, "-f", "packs/model.bpk", *(["model"] if given else [])]
    with daemon(*(as_nobody(*command) if user else command), at=at, cwd=folder) as process:
        helper = helper_of(process.pid)
        subprocess.run(
            as_nobody("sh", "-c", f"echo edited > '{at}/metadata/k'")
            if user
            else ["sh", "-c", f"echo edited > '{at}/metadata/k'"],
            check=True,
        )
        process.send_signal(signal.SIGTERM)
        assert reap(process) == 0, (folder / "log").read_text()
        assert (folder / "log").read_text() == ""
        assert table_entry(at) is None and at.exists() == given
        assert not is_running(helper)
    assert edit.book(packs / "model.bpk").metadata["k"] == "edited"


def test_signal_to_the_whole_group(packs):
    """Ctrl-C: what is mapped is brought in, and the mount is gone."""
    pack = packs / "model.bpk"
    need_fuse()
    mount = edit.WritableMount(pack, [])
    try:
        mount.wait_for_mount()
        helper = helper_of(mount.daemon.pid)
        with open(mount.tensors / "conv.weight", "r+b") as file:
            pages = mmap.mmap(file.fileno(), 4096)
        pages[:6] = b"mapped"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as a service manager sends them
            os.kill(helper, number)
        mount.send(signal.SIGINT)
        wait_until(lambda: not mount.is_mounted(), "detached")
        pages.close()
        assert mount.wait() == 0, mount.read_log()
    finally:
        mount.clear()
    assert edit.book(pack).tensor("conv.weight")[3][:6] == b"mapped"


def test_daemon_killed(packs):
    """The helper ends by itself and leaves the dead mount as it is, for the next mount to clean up."""
    pack = packs / "model.bpk"
    mount = edit.WritableMount(pack, [])
    try:
        mount.wait_for_mount()
        (mount / "metadata/k").write_text("edited\n")
        helper = helper_of(mount.daemon.pid)
        mount.daemon.kill()
        mount.status = mount.daemon.wait()
        wait_until(lambda: not is_running(helper), "the helper ended", 10)
        assert mount.is_mounted() and conftest.code_of(os.stat, mount.path) == "ENOTCONN"
    finally:
        mount.clear()
    with edit.edited(pack, log=["edits of an earlier mount are back"]) as mount:
        assert (mount / "metadata/k").read_text() == "edited\n"


@pytest.mark.parametrize("writer", [False, True])
def test_helper_killed(writer, packs):
    """The daemon serves on; at a signal it says that it cannot detach the mount, and commits all the same."""
    pack = packs / "model.bpk"
    mount = edit.WritableMount(pack, ["grace=1"])
    try:
        mount.wait_for_mount()
        helper = helper_of(mount.daemon.pid)
        os.kill(helper, signal.SIGKILL)
        wait_until(lambda: not children(mount.daemon.pid), "no zombie left")
        (mount / "metadata/k").write_text("edited\n")
        with contextlib.ExitStack() as stack:
            if writer:
                fd = os.open(mount.tensors / "text", os.O_WRONLY)
                stack.callback(lambda: conftest.code_of(os.close, fd))
                os.pwrite(fd, b"written", 0)
            mount.send(signal.SIGTERM)
            assert mount.wait() == (3 if writer else 0)
        said = [rf"^bpkfs: cannot unmount {mount.path}: the helper process is gone$"]
        check_lines(mount.read_log(), said + [r"still open for writing: tensors/text$"] * writer)
    finally:
        mount.clear()
    now = edit.book(pack)
    assert now.metadata["k"] == "edited"
    assert (now.tensor("text")[3][:7] == b"written") == writer


def test_helper_killed_and_unmounted(packs, folder):
    """Without it a mount point that was made cannot be removed by a sandboxed daemon: said, and no more."""
    need_root()
    at = folder / "model"
    with daemon(BPKFS, "-f", "packs/model.bpk", at=at, cwd=folder) as process:
        os.kill(helper_of(process.pid), signal.SIGKILL)
        wait_until(lambda: not children(process.pid), "the helper is gone")
        subprocess.run(["umount", at], check=True)
        assert reap(process) == 0
        assert not at.exists() or (folder / "log").read_text().startswith(f"bpkfs: cannot remove {at}: ")


def test_no_helper_for_a_bad_pack(folder):
    (folder / "bad.bpk").write_bytes(conftest.GOOD[:100])
    (folder / "mnt").mkdir()
    assert run_bpkfs("-f", folder / "bad.bpk", folder / "mnt").status == 1


def test_read_only_mounts_have_one_too(pack):
    with mounted(pack) as mount:
        assert field(helper_of(mount.daemon.pid), "Name") == "bpkfs-helper"
        mount.send(signal.SIGTERM)
        assert mount.wait() == 0


# --- The sandbox ---


def has_landlock():
    """Whether the kernel has it."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(444, None, 0, 1) > 0


@pytest.mark.parametrize("options", [[], ["ro"], ["-s"]])
def test_sandboxed(options, packs):
    """Every thread of the daemon, but not the helper."""
    with edit.edited(packs / "model.bpk", *options, log=[]) as mount:
        assert (mount / "metadata/k").read_text() == "v\n"
        pid = mount.daemon.pid
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            assert (field(f"{pid}/task/{task.name}", "NoNewPrivs"), field(pid, "Seccomp")) == ("1", "2")
        helper = helper_of(pid)
        assert (field(helper, "NoNewPrivs"), field(helper, "Seccomp")) == ("0", "0")
        assert not any("landlock" in target for target in files_of(pid).values())


def test_nosandbox(packs, folder):
    pack = packs / "model.bpk"
    with edit.edited(pack, "nosandbox", log=[]) as mount:
        (mount / "metadata/k").write_text("edited\n")
        assert (field(mount.daemon.pid, "NoNewPrivs"), field(mount.daemon.pid, "Seccomp")) == ("0", "0")
        assert helper_of(mount.daemon.pid)
        edit.control(mount, f"save {folder}/copy.bpk")
    assert edit.book(folder / "copy.bpk").metadata["k"] == edit.book(pack).metadata["k"] == "edited"


def traced(pack, *options):
    """(thread, call) of the calls by which the daemon sandboxes itself and starts threads, in their order."""
    crash.need("strace")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        (trace, at) = (pathlib.Path(home) / "trace", pathlib.Path(home) / "mnt")
        at.mkdir()
        command = ["strace", "-f", "-qq", "-o", trace, "-e", "trace=landlock_restrict_self,prctl,seccomp,clone,clone3"]
        flags = [flag for option in options for flag in ("-o", option)]
        process = subprocess.Popen([*command, BPKFS, "-f", *flags, pack, at], env=crash.no_leaks())
        wait_until(lambda: table_entry(at) or process.poll() is not None, f"{at} mounted")
        (at / "metadata/k").read_bytes()
        subprocess.run(["umount", at], check=True)
        assert reap(process) == 0
        calls = (re.match(r"(\d+) +(\w+)\((.*)", line) for line in trace.read_text().splitlines())
        return [(call[1], call[2], call[3]) for call in calls if call]


def test_confined_to_the_pack_s_folder(packs):
    """The main thread is, before it serves and before all other threads but the one that saves."""
    need_root()
    if not has_landlock():
        conftest.missing("no Landlock here")
    calls = traced(packs / "model.bpk")
    main = calls[0][0]
    names = [name for thread, name, _ in calls if thread == main]
    confined = names.index("landlock_restrict_self")
    assert len([name for name in names[:confined] if name.startswith("clone")]) == 3  # helper, a thread at once gone, saver
    assert len([name for name in names[confined:] if name.startswith("clone")]) >= 1
    assert names.count("landlock_restrict_self") == 1
    assert not [name for _, name, _ in traced(packs / "model.bpk", "nosandbox") if name == "landlock_restrict_self"]


def test_debug_says_what_the_kernel_lacks(packs):
    """Nothing, where it lacks nothing."""
    if not has_landlock():
        conftest.missing("no Landlock here")
    with edit.edited(packs / "model.bpk", "-d") as mount:
        (mount / "metadata/k").write_text("edited\n")
        assert "no sandbox" not in mount.read_log()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_commits_on(kind):
    """A clone, an exchange, attributes and an ACL, an edits folder that comes and goes."""
    with crash.loop_mounted(kind) as loop:
        pack = edit.make_pack(loop.path, [("big", "U8", [8 << 20], bytes(range(256)) * 32768, None), *edit.TENSORS])
        os.setxattr(pack, "user.note", b"kept")
        with edit.edited(pack, log=[]) as mount:
            for number in range(3):
                (mount / "metadata/k").write_text(f"{number}\n")
                crash.write_at(mount.tensors / "big", 5000 * number, b"edited")
                (mount.tensors / "backup.bak").write_bytes(b"x")
                edit.commit(mount)
                (mount.tensors / "backup.bak").unlink()
                assert edit.book(pack).metadata["k"] == str(number)
        assert os.getxattr(pack, "user.note") == b"kept"
        assert edit.book(pack).tensor("big")[3][10000:10006] == b"edited"


@pytest.mark.parametrize("over", [".", "sub", "..", "link"])
def test_mounts_around_the_pack(over, packs, folder):
    """Over the pack's folder, below and above it, and through a link: the new pack comes where the old one was."""
    need_root()
    (packs / "sub").mkdir()
    (folder / "link").symlink_to("packs/model.bpk")
    (folder / "elsewhere").mkdir()
    given = folder / "link" if over == "link" else packs / "model.bpk"
    at = pathlib.Path(os.path.normpath(folder / "elsewhere" if over == "link" else packs / over))
    with daemon(BPKFS, "-f", given, at, at=at, cwd=folder) as process:
        (at / "metadata/k").write_text("edited\n")
        assert run(conftest.BPK, "umount", at).status == 0
        assert reap(process) == 0
    assert edit.book(packs / "model.bpk").metadata["k"] == "edited"
    assert os.readlink(folder / "link") == "packs/model.bpk"


def test_folder_that_is_closed_later(packs, folder, open_fuse):
    """A user's daemon goes on with what it has open, and says what it cannot do."""
    pack = packs / "model.bpk"
    os.chown(packs, NOBODY, NOBODY)
    os.chown(pack, NOBODY, NOBODY)
    at = folder / "mnt"
    at.mkdir()
    os.chown(at, NOBODY, NOBODY)
    folder.chmod(0o755)
    with daemon(*as_nobody(BPKFS, "-f", "packs/model.bpk", "mnt"), at=at, cwd=folder) as process:
        run(*as_nobody("sh", "-c", f"echo first >'{at}/metadata/k'"))
        packs.chmod(0)
        assert run(*as_nobody("cat", at / "metadata/k")).out == b"first\n"
        failed = run(*as_nobody(conftest.BPK, "commit", at))
        assert failed.status == 1 and "Permission denied" in failed.err
        packs.chmod(0o755)
        assert run(*as_nobody(conftest.BPK, "umount", at)).status == 0
        assert reap(process) == 0
    assert edit.book(pack).metadata["k"] == "first"


def test_the_journal_knows_the_boot(packs):
    """Read before the daemon is confined."""
    pack = packs / "model.bpk"
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    with edit.edited(pack) as mount:
        for round_ in range(2):
            (mount / "metadata/k").write_text(f"edited {round_}\n")
            assert boot in (edit.edits_folder(pack) / "journal").read_bytes()[:128]
            edit.commit(mount)


# --- The build ---


@pytest.mark.parametrize("program", [BPKFS, conftest.BPK], ids=["bpkfs", "bpk"])
def test_hardened_build(program):
    conftest.need_programs()
    crash.need("readelf")
    if conftest.SANITIZED:
        pytest.skip("a build to find faults")
    shown = run("readelf", "-hldsW", program).out.decode()
    assert re.search(r"^ *Type: +DYN ", shown, re.M) and re.search(r"FLAGS_1.* PIE", shown)
    assert re.search(r"FLAGS.*BIND_NOW|\(BIND_NOW\)", shown) and "GNU_RELRO" in shown
    assert re.search(r"GNU_STACK .* RW +0x", shown)
    assert "__stack_chk_fail" in shown
    options = edit.json.loads((conftest.BUILD / "meson-info/intro-buildoptions.json").read_text())
    if {option["name"]: option["value"] for option in options}["optimization"] not in ("0", "g"):
        assert re.search(r"__(\w+)_chk\b", shown.replace("__stack_chk_fail", ""))


# --- Messages in the background ---

# Run in a mount namespace of its own: a /dev with nothing but what is needed, and a syslog that is started twice.
SYSLOG = """
import os, pathlib, signal, socket, stat, subprocess, sys, time
bpkfs, pack, mnt = sys.argv[1:]
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "none", "/dev"], check=True)
for name, major, minor in (("null", 1, 3), ("urandom", 1, 9), ("fuse", 10, 229)):
    os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))

def listen():
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind("/dev/log")
    log.settimeout(30)
    return log

log = listen()
subprocess.run([bpkfs, "-o", "grace=1,commit=1", pack, mnt], check=True)
os.rename(pack, f"{pack}.away")
pathlib.Path(mnt, "metadata/k").write_text("edited\\n")
print(log.recv(4096).decode())
log.close()
os.unlink("/dev/log")
log = listen()
os.rename(f"{pack}.away", pack)
file = open(f"{mnt}/tensors/text", "r+b", buffering=0)
file.write(b"written")
pid = int(pathlib.Path(mnt, ".bpkfs/status.json").read_text().split('"pid": ')[1].split()[0])
os.kill(pid, signal.SIGTERM)
print(log.recv(4096).decode())
print(log.recv(4096).decode())
while os.path.exists(f"/proc/{pid}") and "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().split(")")[1]:
    time.sleep(0.01)
"""


def test_syslog(packs, folder):
    """Lines reach it from the sandbox, after it was started anew too, with the local time."""
    need_root()
    need_fuse()
    crash.need("unshare")
    zone = "Asia/Tokyo" if os.path.exists("/usr/share/zoneinfo/Asia/Tokyo") else "XXX-9"
    (folder / "mnt").mkdir()
    command = ["unshare", "-m", "--propagation", "private", sys.executable, "-c", SYSLOG]
    result = run(*command, BPKFS, packs / "model.bpk", folder / "mnt", env={**ENVIRONMENT, "TZ": zone})
    assert result.status == 0, result.err
    lines = result.out.decode().splitlines()
    check_lines(
        result.out.decode(), ["could not be committed: ", "still open after 1 seconds", "still open for writing: tensors/text"]
    )
    for line in lines:
        said = re.match(r"<28>(\w+ +\d+ \d+):\d+:\d+ bpkfs\[\d+\]: ", line)
        local = time.gmtime(time.time() + 9 * 3600)
        assert said and said[1] in (time.strftime(f"%b {local.tm_mday:2} %H", local),), line
