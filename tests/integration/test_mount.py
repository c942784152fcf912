"""The life of a mount: options, users, background, mount points, signals."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time

import pytest

import bpkedit as edit
import bpkview as view
from bpkref import read
from conftest import BPK, BPKFS, BYTES, ENVIRONMENT, GOOD, NOBODY, PATIENCE, SANITIZED, as_nobody, check_lines, code_of
from conftest import mounted, need_fuse, need_root, need_tool, reap, run, run_bpk, run_bpkfs, table_entry, wait_until
from conftest import weight

# --- Options ---


def test_foreground(pack):
    with mounted(pack) as mount:
        view.check_mount(mount.path, read(pack), pack)


def test_one_thread(pack):
    with mounted(pack, "-s") as mount:
        assert len(os.listdir(f"/proc/{mount.daemon.pid}/task")) <= 2  # and the one that waits for signals
        view.check_mount(mount.path, read(pack), pack)


@pytest.mark.parametrize("option", ["-d", "debug"])
def test_debug_prints_requests(option, pack):
    with mounted(pack, option, expect=None) as mount:
        assert weight(mount.path).read_bytes() == BYTES
        assert "LOOKUP" in mount.read_log() and "READ" in mount.read_log()


def test_uid_gid_umask(pack):
    pack.chmod(0o664)
    with mounted(pack, "uid=1234,gid=2345,umask=027") as mount:
        for place, mode in (("tensors", 0o750), ("tensors/conv.weight", 0o640), ("metadata/k", 0o640)):
            shown = (mount.path / place).stat()
            assert (shown.st_uid, shown.st_gid, shown.st_mode & 0o7777) == (1234, 2345, mode)
    with mounted(pack, "uid=nobody") as mount:
        assert weight(mount.path).stat().st_uid == NOBODY
        assert weight(mount.path).stat().st_gid == pack.stat().st_gid


@pytest.mark.parametrize("option", ["uid=no-such-user", "uid=-1", "gid=x", "umask=9", "umask=1777", "layout=odd"])
def test_bad_values_are_named(option, pack, folder):
    result = run_bpkfs("-f", "-o", f"ro,{option}", pack, folder)
    assert (result.status, result.out) == (2, b"")
    check_lines(result.err, [rf"^bpkfs: .*{option.split('=')[0]}="])


def test_other_users(pack, open_fuse):
    """Without allow_other root's mount is closed to others; with it the modes decide."""
    with mounted(pack) as mount:
        assert run(*as_nobody("cat", weight(mount.path))).status == 1
    with mounted(pack, "allow_other") as mount:
        shown = run(*as_nobody("cat", weight(mount.path)))
        assert (shown.status, shown.out) == (0, BYTES)
    pack.chmod(0o600)
    with mounted(pack, "allow_other") as mount:
        denied = run(*as_nobody("cat", weight(mount.path)))
        assert denied.status == 1 and "Permission denied" in denied.err
        assert weight(mount.path).read_bytes() == BYTES


def test_mount_flags(pack):
    with mounted(pack) as mount:
        entry = table_entry(mount.path)
        assert {"ro", "nosuid", "nodev"} <= set(entry.options.split(","))
        assert entry.type == "fuse.bpkfs"


def test_mount_flags_that_are_not_for_a_pack(pack):
    """Whatever root asks for."""
    need_root()
    with mounted(pack, "suid,dev") as mount:
        assert {"nosuid", "nodev"} <= set(table_entry(mount.path).options.split(","))


ODD_NAMES = ["a,b.bpk", "a b.bpk", "a\\b.bpk", "a\\,b c\\\\.bpk", "é 日本.bpk", "subtype=x,dev.bpk", "plain"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_fsname_is_the_pack_s_path(name, folder):
    path = folder / name
    path.write_bytes(GOOD)
    with mounted(path) as mount:
        entry = table_entry(mount.path)
        assert (entry.source, entry.type) == (os.fspath(path), "fuse.bpkfs")
        assert weight(mount.path).read_bytes() == BYTES
        status = view.parse((mount.path / ".bpkfs/status.json").read_bytes())
        assert status["pack"] == os.fspath(path)


def test_fsname_of_a_link_and_of_a_relative_path(pack, folder):
    (folder / "link").symlink_to("model.bpk")
    with mounted(folder / "link") as mount:
        assert table_entry(mount.path).source == os.fspath(pack)
    with mounted(os.path.relpath(pack)) as mount:
        assert table_entry(mount.path).source == os.fspath(pack)


def test_unknown_option(pack, folder):
    for option in (["-o", "nonsense"], ["--nonsense"], ["-o", "nonsense=1"]):
        result = run_bpkfs("-f", "-o", "ro", *option, pack, folder)
        assert result.status == 2, result
        assert result.out == b"" and "nonsense" in result.err
        assert table_entry(folder) is None


def test_wrong_number_of_arguments(pack, folder):
    for arguments in ([], [pack, folder, folder]):
        result = run_bpkfs("-f", "-o", "ro", *arguments)
        assert result.status == 2 and result.err.startswith("bpkfs: ") and result.err.count("\n") == 1


def test_help_and_version():
    for option in ("-h", "--help"):
        shown = run_bpkfs(option)
        assert (shown.status, shown.err) == (0, "") and b"usage: bpkfs" in shown.out and b"-o ro" in shown.out
    for option in ("-V", "--version"):
        shown = run_bpkfs(option)
        assert (shown.status, shown.err) == (0, "") and re.match(rb"bpkfs [0-9.]+", shown.out)


# --- Extended attributes ---


def libfuse_version():
    found = re.search(rb"libfuse (\d+)\.(\d+)", run_bpkfs("--version").out)
    return int(found[1]), int(found[2])


def test_xattrs(pack):
    with mounted(pack, "xattr") as mount:
        path, other = weight(mount.path), mount.path / "tensors/conv.bias"
        assert os.getxattr(path, "user.bpk.dtype") == b'"F32"'
        assert os.getxattr(path, "user.bpk.shape") == b"[64, 300]"
        assert os.getxattr(path, "user.bpk.param_id") == b"9505838338724798577"
        assert view.json.loads(os.getxattr(other, "user.bpk.dtype")) == {"Bool": "U8"}
        assert sorted(os.listxattr(path)) == ["user.bpk.dtype", "user.bpk.param_id", "user.bpk.shape"]
        assert sorted(os.listxattr(other)) == ["user.bpk.dtype", "user.bpk.shape"]
        assert code_of(os.getxattr, other, "user.bpk.param_id") == "ENODATA"
        for others, name in ((path, "user.other"), (f"{path}.json", "user.bpk.dtype"), (path.parent, "user.a")):
            assert code_of(os.getxattr, others, name) == "ENOTSUP"
        assert os.listxattr(mount.path / "metadata/k") == []
        assert code_of(os.setxattr, path, "user.bpk.dtype", b"x") == "EROFS"


def test_xattrs_of_edits(folder):
    """They are what is in force: as the sidecars say, in an edit and after its commit."""
    path = edit.make_pack(folder)

    def shown(file):
        names = os.listxattr(file)
        assert set(names) <= {f"user.bpk.{name}" for name in ("dtype", "shape", "param_id")}
        return {name[9:]: os.getxattr(file, name).decode() for name in names}

    with edit.edited(path, "xattr") as mount:
        tensors = mount.tensors
        assert shown(tensors / "fc.weight") == {"dtype": '"F32"', "shape": "[4, 4]", "param_id": "7"}
        edit.write_sidecar(mount, "fc.weight", "I32", [16], param_id=99)
        (tensors / "new").write_bytes(bytes(8))
        assert shown(tensors / "new") == {} and code_of(os.getxattr, tensors / "new", "user.bpk.dtype") == "ENODATA"
        edit.write_sidecar(mount, "new", "U8", [2, 4])
        (tensors / "text").rename(tensors / "renamed")
        for _ in range(2):
            assert shown(tensors / "fc.weight") == {"dtype": '"I32"', "shape": "[16]", "param_id": "99"}
            assert shown(tensors / "new") == {"dtype": '"U8"', "shape": "[2, 4]"}
            assert shown(tensors / "renamed")["param_id"] == "21"
            assert shown(tensors / "new.json") == shown(mount / "metadata/k") == shown(tensors) == {}
            edit.commit(mount)
        (mount / "metadata/pending~").write_text("x")
        assert shown(mount / "metadata/pending~") == {}


def test_getfattr_and_tar_with_xattrs(pack, folder):
    with mounted(pack, "xattr") as mount:
        made = run("tar", "--xattrs", "-C", mount.path, "-cf", folder / "x.tar", "tensors")
        assert (made.status, made.err) == (0, "")
        assert b"SCHILY.xattr.user.bpk.shape=[64, 300]" in (folder / "x.tar").read_bytes()
        need_tool("getfattr")
        shown = run("getfattr", "-n", "user.bpk.shape", "--only-values", "--absolute-names", weight(mount.path))
        assert (shown.status, shown.out) == (0, b"[64, 300]")


def test_no_xattrs_without_the_option(pack):
    if libfuse_version() >= (3, 17):
        pytest.skip("this libfuse may negotiate HANDLE_KILLPRIV_V2")
    with mounted(pack) as mount:
        for name in ("user.bpk.dtype", "user.other"):
            assert code_of(os.getxattr, weight(mount.path), name) == "ENOTSUP"


# --- Mount points ---


def test_missing_mount_point(pack, folder):
    result = run_bpkfs("-f", "-o", "ro", pack, folder / "nowhere")
    assert (result.status, result.out) == (1, b"")
    check_lines(result.err, [r"^bpkfs: .*nowhere.*No such file"])


def test_mount_point_that_is_a_file(pack):
    result = run_bpkfs("-f", "-o", "ro", pack, pack)
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert pack.read_bytes() == GOOD


@contextlib.contextmanager
def daemon(*arguments, cwd, at):
    """A bpkfs in the foreground with these arguments, known to be mounted AT; ended if the test did not."""
    need_fuse()
    with open(cwd / "log", "wb") as log:
        command = [BPKFS, "-f", "-o", "ro", *arguments]
        process = subprocess.Popen(command, cwd=cwd, stderr=log, stdout=log, env=ENVIRONMENT)
    try:
        wait_until(lambda: table_entry(at) or process.poll() is not None, f"{at} mounted")
        assert table_entry(at), (cwd / "log").read_text()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        while table_entry(at):
            subprocess.run(["umount", "-l", at], check=True)


@pytest.mark.parametrize("name, point", [("model.bpk", "model"), ("noext", "noext"), ("x.y.bpk", "x.y")])
def test_without_a_mount_point_one_is_made_and_removed(name, point, folder):
    need_root()
    (folder / "packs").mkdir()
    (folder / "packs" / name).write_bytes(GOOD)
    at = folder / point
    for present in (False, True):  # an empty folder is taken
        if present:
            at.mkdir()
        with daemon(f"packs/{name}", cwd=folder, at=at) as process:
            assert weight(at).read_bytes() == BYTES
            subprocess.run(["umount", at], check=True)
            assert (reap(process), (folder / "log").read_text()) == (0, "")
        assert not at.exists()


def test_the_made_mount_point_is_removed_after_a_signal(pack, folder):
    with daemon("model.bpk", cwd=folder, at=folder / "model") as process:
        process.send_signal(signal.SIGTERM)
        assert reap(process) == 0
    assert not (folder / "model").exists()


def test_what_is_in_the_way_of_the_made_mount_point(pack, folder):
    (folder / "model").mkdir()
    (folder / "model/file").write_bytes(b"x")
    result = run_bpkfs("-f", "-o", "ro", "model.bpk", cwd=folder)
    assert result.status == 1 and result.err.count("\n") == 1 and "model" in result.err
    assert (folder / "model/file").read_bytes() == b"x"
    (folder / "noext").write_bytes(GOOD)  # its own name is in the way
    result = run_bpkfs("-f", "-o", "ro", "noext", cwd=folder)
    assert result.status == 1 and result.err.count("\n") == 1
    assert (folder / "noext").read_bytes() == GOOD


def test_no_mount_point_is_made_for_a_bad_pack(folder):
    (folder / "bad.bpk").write_bytes(GOOD[:100])
    assert run_bpkfs("-f", "-o", "ro", "bad.bpk", cwd=folder).status == 1
    assert not (folder / "bad").exists()


@pytest.mark.parametrize("given", [True, False])
def test_a_dead_mount_is_cleaned_up(given, pack, folder):
    """kill -9 leaves a mount point that answers ENOTCONN; the next mount takes it over and says so."""
    need_root()
    at = folder / "model"
    if given:
        at.mkdir()
    arguments = ["model.bpk", "model"] if given else ["model.bpk"]
    with daemon(*arguments, cwd=folder, at=at) as first:
        first.kill()
        first.wait()
        assert code_of(os.stat, at) == "ENOTCONN"
        with open(folder / "second", "wb") as log:
            second = subprocess.Popen([BPKFS, "-f", "-o", "ro", *arguments], cwd=folder, stderr=log, env=ENVIRONMENT)
        try:
            wait_until(lambda: code_of(os.stat, weight(at)) == "done" or second.poll() is not None, "mounted again")
            assert weight(at).read_bytes() == BYTES
            subprocess.run(["umount", at], check=True)
            assert reap(second) == 0
        finally:
            if second.poll() is None:
                second.kill()
                second.wait()
        assert table_entry(at) is None
    check_lines((folder / "second").read_text(), [r"^bpkfs: .*model.*clean"])
    assert at.exists() == given


def test_two_read_only_mounts_of_one_pack(pack):
    with mounted(pack) as first, mounted(pack) as second:
        assert weight(first.path).read_bytes() == weight(second.path).read_bytes() == BYTES
        assert weight(first.path).stat().st_dev != weight(second.path).stat().st_dev


# --- In the background ---

PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def adopt():
    """Daemons that go to the background become children of this process, so that their exit status is seen."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def wait_for_adopted(pid):
    """The exit status of a daemon in the background."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return pytest.fail(f"daemon {pid} did not end")


def daemon_of(at):
    return view.parse((at / ".bpkfs/status.json").read_bytes())["pid"]


@pytest.mark.parametrize("relative", [False, True])
def test_background(relative, pack, folder, adopt):
    need_root()
    at = folder / "mnt"
    at.mkdir()
    arguments = ["model.bpk", "mnt"] if relative else [pack, at]
    result = run_bpkfs("-o", "ro", *arguments, cwd=folder)
    assert (result.status, result.out, result.err) == (0, b"", "")
    entry = table_entry(at)  # there once the parent has ended
    assert (entry.source, entry.type) == (os.fspath(pack), "fuse.bpkfs")
    pid = daemon_of(at)
    try:
        view.check_mount(at, read(pack), pack)
        assert os.getsid(pid) == pid  # the terminal's signals do not reach it
        streams = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)}
        assert SANITIZED or streams == {"/dev/null"}
    finally:
        subprocess.run(["umount", at], check=True)
        status = wait_for_adopted(pid)
    assert status == 0 and list(at.iterdir()) == []


def test_background_without_a_mount_point(pack, folder, adopt):
    need_root()
    result = run_bpkfs("-o", "ro", "model.bpk", cwd=folder)
    assert (result.status, result.err) == (0, "")
    pid = daemon_of(folder / "model")
    subprocess.run(["umount", folder / "model"], check=True)
    assert wait_for_adopted(pid) == 0
    assert not (folder / "model").exists()


def test_background_ends_at_a_signal(pack, folder, adopt):
    (folder / "mnt").mkdir()
    assert run_bpkfs("-o", "ro", pack, folder / "mnt").status == 0
    pid = daemon_of(folder / "mnt")
    os.kill(pid, signal.SIGTERM)
    assert wait_for_adopted(pid) == 0
    assert table_entry(folder / "mnt") is None


def test_background_of_a_bad_pack(folder):
    (folder / "bad.bpk").write_bytes(GOOD[:100])
    (folder / "mnt").mkdir()
    result = run_bpkfs("-o", "ro", "bad.bpk", "mnt", cwd=folder)
    assert (result.status, result.out) == (1, b"")
    check_lines(result.err, ["^bpkfs: bad.bpk: "])
    assert table_entry(folder / "mnt") is None


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(closed, pack, folder):
    """No file of the daemon may land on 0, 1 or 2, where somebody's printing would go."""
    need_root()
    need_fuse()
    at = folder / "mnt"
    at.mkdir()
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", BPKFS, "-f", "-o", "ro", pack, at],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    try:
        wait_until(lambda: table_entry(at) or process.poll() is not None, "mounted")
        assert weight(at).read_bytes() == BYTES
        streams = {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (0, 1, 2)}
        assert not any(target.endswith((".bpk", "/dev/fuse")) for target in streams)
        subprocess.run(["umount", at], check=True)
        assert reap(process) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        while table_entry(at):
            subprocess.run(["umount", "-l", at], check=True)


# --- Users without rights ---


def test_unprivileged_mount(pack, open_fuse):
    need_tool("fusermount3")
    with mounted(pack, user=NOBODY) as mount:
        entry = table_entry(mount.path)
        assert (entry.type, entry.source) == ("fuse.bpkfs", os.fspath(pack))
        assert f"user_id={NOBODY}" in entry.super_options
        shown = run(*as_nobody("cat", weight(mount.path)))
        assert (shown.status, shown.out) == (0, BYTES)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_unprivileged_mount_ends_at_a_signal(number, pack, open_fuse):
    need_tool("fusermount3")
    with mounted(pack, user=NOBODY) as mount:
        mount.send(number)
        assert mount.wait() == 0


def test_unprivileged_umount_says_what_fusermount3_says(pack, folder, open_fuse):
    """It is not always that something is in use: without /etc/mtab it unmounts nothing."""
    reason = "fusermount3: failed to open /etc/mtab: No such file or directory"
    (folder / "fusermount3").write_text(f"#!/bin/sh\necho '{reason}' >&2\nexit 1\n")
    (folder / "fusermount3").chmod(0o755)
    with mounted(pack, user=NOBODY) as mount:
        path = {**ENVIRONMENT, "PATH": f"{folder}:{os.environ['PATH']}"}
        result = run(*as_nobody(BPK, "umount", mount.path), env=path)
        assert (result.status, result.err) == (1, f"bpk: {mount.path}: cannot unmount: {reason}\n")
        assert run(*as_nobody(BPK, "umount", mount.path)).status == 0


def test_unprivileged_reader_of_a_closed_pack(pack, folder, open_fuse):
    pack.chmod(0o600)
    (folder / "mnt").mkdir()
    result = run(*as_nobody(BPKFS, "-f", "-o", "ro", pack, folder / "mnt"))
    assert result.status == 1
    check_lines(result.err, [rf"^bpkfs: {re.escape(os.fspath(pack))}: .*Permission denied"])
    assert run(*as_nobody(BPK, "verify", pack)).status == 2


# --- Signals ---

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_unmounts(number, pack):
    with mounted(pack) as mount:
        assert weight(mount.path).read_bytes() == BYTES
        mount.send(number)
        assert mount.wait() == 0
        assert not mount.is_mounted()


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_serves_open_files_to_their_close(number, pack):
    with mounted(pack, "grace=60") as mount:
        fd = os.open(weight(mount.path), os.O_RDONLY)
        mount.send(number)
        wait_until(lambda: not mount.is_mounted(), "detached")
        for at in range(0, len(BYTES), 10_000):
            assert os.pread(fd, 100, at) == BYTES[at : at + 100]
        assert mount.daemon.poll() is None
        os.close(fd)
        assert mount.wait() == 0


def test_signal_waits_no_longer_than_grace(pack):
    with mounted(pack, "grace=1", expect=["^bpkfs: .*open"]) as mount:
        fd = os.open(weight(mount.path), os.O_RDONLY)
        started = time.monotonic()
        mount.send(signal.SIGTERM)
        assert mount.wait() == 0
        assert time.monotonic() - started >= 0.9
        assert code_of(os.fstat, fd) in ("ENOTCONN", "done")
        assert code_of(os.pread, fd, 1, len(BYTES) - 1) in ("ENOTCONN", "done")  # from the kernel's pages
        assert code_of(os.close, fd) in ("ENOTCONN", "done")


def test_several_signals(pack):
    with mounted(pack, "grace=60") as mount:
        with open(weight(mount.path), "rb") as file:
            for number in SIGNALS * 2:
                mount.send(number)
            wait_until(lambda: not mount.is_mounted(), "detached")
            assert file.read() == BYTES
        assert mount.wait() == 0


def test_busy_unmount_is_refused_and_harmless(pack):
    need_root()
    with mounted(pack) as mount:
        with open(weight(mount.path), "rb") as file:
            assert run("umount", mount.path).status != 0
            assert file.read() == BYTES
        assert len(os.listdir(mount.path / "tensors")) == 6


def test_lazy_unmount_serves_to_the_last_close(pack):
    need_root()
    with mounted(pack) as mount:
        with open(weight(mount.path), "rb") as file:
            assert run("umount", "-l", mount.path).status == 0
            assert file.read() == BYTES and mount.daemon.poll() is None
        assert mount.wait() == 0


def test_bpk_usage():
    for arguments in ([], ["nonsense"], ["ls"], ["cat", "x"], ["verify", "--odd", "x"]):
        result = run_bpk(*arguments)
        assert (result.status, result.out) == (2, b"") and result.err
    assert run_bpk("--help").status == run_bpk("--version").status == 0
