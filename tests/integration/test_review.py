"""Places where a mount or bpk once broke: each is a test of its kind."""

import ctypes
import json
import mmap
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import threading
import time

import pytest

import bpkcrash as crash
import bpkedit as edit
import bpkref
from conftest import BPK, BPKFS, mounted, run

LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


def names_from(path, offset):
    """What getdents64 gives after a seek to OFFSET."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.lseek(fd, offset, os.SEEK_SET)
        buffer = ctypes.create_string_buffer(65536)
        size = LIBC.syscall(217, fd, buffer, len(buffer))  # getdents64, on x86_64
        assert size >= 0, os.strerror(ctypes.get_errno())
        found, at = [], 0
        while at < size:
            (length,) = struct.unpack_from("<H", buffer.raw, at + 16)
            found.append(buffer.raw[at + 19 : at + length].split(b"\0")[0].decode())
            at += length
        return found
    finally:
        os.close(fd)


@pytest.mark.parametrize("options", [("ro",), ()], ids=["ro", "rw"])
@pytest.mark.parametrize("place", ["", ".bpkfs", "tensors", "metadata", "tree"])
def test_seek_anywhere_in_a_listing(pack, place, options):
    with mounted(pack, *options) as mount:
        listed = set(os.listdir(mount.path / place)) | {".", ".."}
        for offset in [*range(0, 20), 1000, 10**6, 2**32, 2**40 - 1, 2**40, 2**40 + 5, 2**62]:
            assert set(names_from(mount.path / place, offset)) <= listed, offset
        assert (mount.path / "scalars.json").read_text()


def test_commit_over_the_packs_own_folder(folder):
    """The path of the pack leads into the mount: the folder that was open before does not."""
    home = folder / "home"
    home.mkdir()
    pack = edit.make_pack(home)
    result = run(BPKFS, pack, home)
    assert result.status == 0, result.err
    (home / "metadata/note").write_text("x")
    assert run(BPK, "commit", home).status == 0
    assert run(BPK, "umount", home).status == 0
    assert bpkref.read(pack).metadata["note"] == "x"
    assert sorted(path.name for path in home.iterdir()) == [pack.name]


@pytest.mark.parametrize("name", [b"b\xc2", b"b\xf0", b"a\xff\xc2.bpk", b"\xe2\x82.bpk"])
def test_info_of_a_path_that_is_not_utf8(folder, pack, name):
    odd = os.path.join(os.fsencode(folder), name)
    pathlib.Path(os.fsdecode(odd)).write_bytes(pack.read_bytes())
    result = run(BPK, "info", "--json", os.fsdecode(odd))
    assert result.status == 0 and result.err == ""
    assert json.loads(result.out)["tensors"] == len(bpkref.read(pack).tensors)


def test_names_as_shown_are_taken(folder):
    """Of a name that is cut and holds what must not reach a terminal, too."""
    odd = "\u202e" * 100
    pack = folder / "p.bpk"
    pack.write_bytes(bpkref.build([(odd, "U8", [2], b"hi", None), ("plain", "U8", [1], b"x", None)], {}, {}))
    shown = [line.split()[-1] for line in run(BPK, "ls", pack).out.decode().splitlines()[1:]]
    assert len(shown) == 2 and all(text.isascii() for text in shown)
    assert [run(BPK, "cat", pack, text).out for text in shown] in ([b"hi", b"x"], [b"x", b"hi"])
    assert [run(BPK, "ls", pack, text).status for text in shown] == [0, 0]


def test_scalar_with_a_nul_survives_a_write(folder):
    pack = folder / "p.bpk"
    scalars = {"a": ("UInt", 1), "z\0": ("Bool", True)}
    pack.write_bytes(bpkref.build([("w", "U8", [1], b"x", None)], {}, scalars))
    with edit.edited(pack) as mount:
        text = (mount / "scalars.json").read_text()
        assert json.loads(text) == {"a": {"UInt": 1}}
        (mount / "scalars.json").write_text(text.replace("1", "2"))
        edit.commit(mount)
    assert bpkref.read(pack).scalars == {"a": ("UInt", 2), "z\0": ("Bool", True)}


@pytest.mark.parametrize(
    "command", [(BPK, "verify"), (BPK, "info"), (BPK, "ls"), (BPK, "--help"), (BPK, "--version"), (BPKFS, "--help")]
)
def test_output_that_cannot_be_written(pack, command):
    arguments = [] if str(command[-1]).startswith("--") else [pack]
    with open("/dev/full", "wb") as full:
        result = run(*command, *arguments, stdout=full)
    assert result.status == 1
    assert result.err.count("\n") == 1 and "cannot write" in result.err


def test_unknown_option_is_one_line(pack, folder):
    (folder / "mnt").mkdir()
    result = run(BPKFS, "-o", "nonsense", pack, folder / "mnt")
    assert result.status == 2
    assert result.err.startswith("bpkfs: ") and result.err.count("\n") == 1 and "nonsense" in result.err


@pytest.mark.parametrize("option", ["grace=-1", "commit=-1", "grace=99999999999"])
def test_seconds_out_of_range(pack, folder, option):
    (folder / "mnt").mkdir()
    result = run(BPKFS, "-o", option, pack, folder / "mnt")
    assert result.status == 2 and result.err.count("\n") == 1


def test_status_tells_of_a_pack_changed_underneath(pack):
    with mounted(pack, "ro") as mount:
        assert edit.status(mount)["problems"] == []
        with open(pack, "ab") as file:
            file.write(b"x")
        problems = edit.status(mount)["problems"]
        assert len(problems) == 1 and "changed" in problems[0]["reason"]


def test_runs_of_equal_keys_take_one_place(folder):
    """Millions of equal keys: the last one counts, and memory stays small."""
    from bpkwrite import head, raw_pack, text  # pylint: disable=import-outside-toplevel

    count = 3_000_000
    cbor = head(5, 2) + text("tensors") + head(5, 0) + text("metadata") + head(5, count)
    cbor += b"\x60\x60" * (count - 1) + b"\x60\x61z"
    pack = folder / "p.bpk"
    pack.write_bytes(raw_pack(cbor, b""))
    result = run(BPK, "info", "--json", pack)
    assert result.status == 0
    about = json.loads(result.out)
    assert about["metadata"] == {"": "z"}
    assert any(f"{count - 1}" in problem for problem in about["problems"])
    if not os.environ.get("ASAN_OPTIONS"):
        assert result.peak <= (64 << 20) + 3 * len(cbor)


def test_many_handles_of_one_text(folder):
    """A large text that many have open is there once."""
    pack = folder / "p.bpk"
    pack.write_bytes(bpkref.build([("w", "U8", [1], b"x", None)], {"k": "v" * 5_000_000}, {}))
    with mounted(pack, "ro") as mount:
        files = [open(mount.path / "metadata.json", "rb") for _ in range(40)]
        resident = pathlib.Path(f"/proc/{mount.daemon.pid}/status").read_text()
        for file in files:
            file.close()
    kilobytes = int(resident.split("VmRSS:")[1].split()[0])
    if not os.environ.get("ASAN_OPTIONS"):
        assert kilobytes < 60_000


def test_umount_does_not_empty_a_checkpoint(folder, pack):
    """An `rm` one folder too high, and the unmount after it: it refuses, `bpk commit` says yes."""
    mnt = folder / "mnt"
    mnt.mkdir()
    before = pack.read_bytes()
    assert run(BPKFS, pack, mnt).status == 0
    for path in (mnt / "tensors").iterdir():
        if not path.name.endswith(".json"):
            path.unlink()
    result = run(BPK, "umount", mnt)
    assert result.status == 1 and "0 of its 6 tensors" in result.err
    assert os.path.ismount(mnt) and pack.read_bytes() == before
    assert run(BPK, "commit", mnt).status == 0
    assert run(BPK, "umount", mnt).status == 0
    assert not bpkref.read(pack).tensors


def test_minus_r_mounts_read_only(folder, pack):
    mnt = folder / "mnt"
    mnt.mkdir()
    assert run(BPKFS, "-r", pack, mnt).status == 0
    try:
        assert json.loads((mnt / ".bpkfs/status.json").read_text())["mode"] == "ro"
        with pytest.raises(OSError):
            (mnt / "metadata/note").write_text("x")
    finally:
        assert run(BPK, "umount", mnt).status == 0


def test_mount_point_is_taken_once(folder, pack):
    other = edit.make_pack(folder, name="other.bpk")
    with edit.edited(pack) as mount:
        result = run(BPKFS, other, mount.path)
        assert result.status == 1 and "mounted there already" in result.err
        assert edit.status(mount)["problems"] == []


@pytest.mark.parametrize("options", [("ro",), ()], ids=["ro", "rw"])
def test_status_tells_of_a_pack_replaced(folder, pack, options):
    other = edit.make_pack(folder, name="other.bpk")
    with mounted(pack, *options) as mount:
        os.rename(other, pack)
        problems = edit.status(mount)["problems"]
        assert len(problems) == 1 and "replaced" in problems[0]["reason"]


@pytest.mark.parametrize("options", [(), ("-s",)], ids=["threads", "one-thread"])
@pytest.mark.parametrize("name", ["tensors/text", "tensors/text.json", "tensors/new", "scalars.json", "metadata/k"])
def test_write_after_a_discard_counts(pack, name, options):
    """Somebody has the file open whose edit is discarded: its name leads to one that counts."""
    with edit.edited(pack, *options) as mount:
        path = mount.path / name
        before = path.read_bytes() if path.exists() else None
        with open(path, "r+b" if before is not None else "w+b", buffering=0) as held:
            held.write(b" " * 4)
            edit.control(mount, "discard")
            assert (path.read_bytes() if path.exists() else None) == before
            after = before.replace(b"2", b"3").replace(b"0.001", b"0.5") + b"\n" if before else b"#" * 7
            path.write_bytes(after)
            assert path.read_bytes() == after
            assert edit.status(mount)["edits"]
        assert path.read_bytes() == after
        edit.control(mount, "discard")


def test_pending_name_that_is_not_utf8(folder, pack):
    mnt = folder / "mnt"
    mnt.mkdir()
    assert run(BPKFS, pack, mnt).status == 0
    with open(os.fsencode(mnt) + b"/tensors/\xff\x1b[31m\xfe", "wb") as file:
        file.write(b"x")
    for verb in ("status", "commit"):
        result = run(BPK, verb, mnt)
        assert result.status == 0 and b"\\xff\\x1b[31m\\xfe" in result.out, result
    assert run(BPK, "umount", mnt).status == 3
    result = run(BPK, "recover", pack)
    assert b"\\xff\\x1b[31m\\xfe" in result.out
    assert run(BPK, "recover", "--discard", pack).status == 0


def test_what_a_daemon_says_is_printable(pack):
    with edit.edited(pack, status=3) as mount:
        with open(os.fsencode(mount.path) + b"/tensors/a\x1b[31mb\nX: forged\xff", "wb") as file:
            file.write(b"x")
        mount.unmount()
        mount.wait()
        said = mount.read_log()
    assert "a\\x1b[31mb\\x0aX: forged\\xff" in said and said.count("\n") == 1


def test_failed_commit_of_the_timer_is_told(folder, pack):
    with edit.edited(pack, "commit=1") as mount:
        os.rename(pack, folder / "away.bpk")
        (mount.path / "metadata/k").write_text("x")
        deadline = time.monotonic() + 20
        while "could not be committed" not in mount.read_log():
            assert time.monotonic() < deadline, mount.read_log()
            time.sleep(0.1)
        assert any(problem["file"] == pack.name for problem in edit.status(mount)["problems"])
        os.rename(folder / "away.bpk", pack)


def test_valid_edits_are_saved_elsewhere(folder, pack):
    copy = folder / "copy.bpk"
    with edit.edited(pack) as mount:
        (mount.path / "metadata/k").write_text("good\n")
        (mount.path / "tensors/text.json").write_text("{")
        assert run(BPK, "commit", "--to", copy, mount.path).status == 1 and not copy.exists()
        assert run(BPK, "commit", "--valid", "--to", copy, mount.path).status == 0
        assert bpkref.read(copy).metadata["k"] == "good"
        edit.control(mount, "discard")


def test_create_of_a_name_that_comes_back(pack):
    """What editors do, beside commits that put back what was moved aside."""
    with edit.edited(pack) as mount:
        stop = threading.Event()

        def commits():
            while not stop.is_set():
                edit.control(mount, "commit --valid")

        thread = threading.Thread(target=commits)
        thread.start()
        try:
            path = mount.path / "tensors/text"
            size = path.stat().st_size
            for _ in range(1500):
                os.rename(path, mount.path / "tensors/text~")
                with open(path, "wb") as file:
                    file.write(b"Q" * size)
        finally:
            stop.set()
            thread.join()
        edit.control(mount, "discard")


@pytest.mark.parametrize("how", ["valid", "unmount"])
def test_names_joined_by_a_rename_fall_together(pack, how):
    """The new content of the name that was moved away is not valid: the pack loses neither tensor."""
    before = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        tensors = mount.path / "tensors"
        os.rename(tensors / "text", tensors / "norm.gamma")
        (tensors / "text").write_bytes(b"1")
        if how == "valid":
            edit.control(mount, "commit --valid")
            assert edit.book(pack) == before
    assert edit.book(pack) == before
    with edit.edited(pack) as mount:
        tensors = mount.path / "tensors"
        assert (tensors / "text").read_bytes() == b"1"
        assert (tensors / "norm.gamma").read_bytes() == edit.TEXT
        (tensors / "text").write_bytes(b"2" * len(edit.TEXT))
    after = {tensor[0]: tensor for tensor in edit.book(pack).tensors}
    assert after["norm.gamma"][3] == edit.TEXT and after["text"][3] == b"2" * len(edit.TEXT)


@pytest.mark.parametrize("reader", ["recover", "recover --commit", "mount"])
def test_damage_in_the_middle_of_the_journal_is_told(folder, pack, reader):
    """Edits that were synced and cannot be read back are not dropped without a word."""
    mnt = folder / "mnt"
    mnt.mkdir()
    assert run(BPKFS, pack, mnt).status == 0
    for i in range(6):
        with open(mnt / f"metadata/z{i}", "w") as file:
            file.write("value")
            file.flush()
            os.fsync(file.fileno())
    pid = json.loads((mnt / ".bpkfs/status.json").read_text())["pid"]
    os.kill(pid, 9)
    while os.path.exists(f"/proc/{pid}") and "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.01)
    run("fusermount3", "-u", "-z", mnt)
    journal = pack.parent / f".{pack.name}.edits/journal"
    whole = bytearray(journal.read_bytes())
    at = whole.rindex(b"z3")
    whole[at] ^= 1
    journal.write_bytes(whole)
    if reader == "mount":
        result = run(BPKFS, pack, mnt)
        assert run(BPK, "umount", mnt).status == 0
    else:
        result = run(BPK, *reader.split(), pack)
    assert result.status == 0 and result.err.count("damaged") == 1, result
    if reader != "recover":
        assert {f"z{i}" for i in range(3)} <= set(bpkref.read(pack).metadata)


def test_umount_waits_for_who_is_gone_in_a_moment(folder, pack):
    mnt = folder / "mnt"
    mnt.mkdir()
    assert run(BPKFS, pack, mnt).status == 0
    held = open(mnt / "tensors/text", "rb")
    timer = threading.Timer(0.3, held.close)
    timer.start()
    assert run(BPK, "umount", mnt).status == 0
    timer.join()
    assert not os.path.ismount(mnt)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_progress_of_a_long_commit(folder, terminal):
    """A line on a terminal after a second, gone at the end; nothing elsewhere."""
    crash.need("strace")
    size = 6 << 20
    pack = edit.make_pack(folder, [("w", "U8", [size], os.urandom(size), None)])
    with edit.edited(pack) as mount:
        with open(mount.path / "tensors/w", "r+b") as file:
            file.write(b"x")
        ours, theirs = pty.openpty() if terminal else os.pipe()
        slow = "inject=pwrite64:delay_exit=80000"
        with crash.Strace(mount.daemon.pid, "-etrace=pwrite64", f"-e{slow}"):
            process = subprocess.Popen([BPK, "commit", mount.path], stderr=theirs)
            os.close(theirs)
            said = b""
            try:
                while chunk := os.read(ours, 65536):
                    said += chunk
            except OSError:  # a terminal that nobody has open any more
                pass
            assert process.wait() == 0
        os.close(ours)
        edit.check_clean(mount)
    if not terminal:
        assert said == b""
        return
    shown = [int(number) for number in re.findall(rb"\rbpk: committing: +(\d+) %", said)]
    assert len(shown) > 1 and shown == sorted(shown) and 0 <= shown[0] < shown[-1] <= 100, said
    assert said.endswith(b"\r\x1b[K")


def test_second_writable_mount_by_a_hard_link(folder, pack):
    other = folder / "other.bpk"
    os.link(pack, other)
    (folder / "mnt").mkdir()
    with edit.edited(pack) as mount:
        result = run(BPKFS, other, folder / "mnt")
        assert result.status == 1 and str(mount.path) in result.err and "waiting" not in result.err


def test_last_close_of_a_detached_mount(folder, pack):
    """The kernel may end the connection while a request is being read: that is an orderly end, too."""
    for i in range(60):
        with crash.daemon(pack) as mount:
            with crash.opened(mount.tensors / "conv.weight") as fd:
                mapped = mmap.mmap(fd, 4096)
            mapped[:1] = bytes([i + 1])
            mount.send(signal.SIGTERM)
            crash.wait_until(lambda now=mount: not now.is_mounted(), "detached")
            mapped.close()
            assert mount.wait() == 0, mount.read_log()
        assert edit.book(pack).tensor("conv.weight")[3][0] == i + 1
