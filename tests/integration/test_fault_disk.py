"""The disk is full, too small a limit is set, or nothing may be written any more; and what edits cost."""

import errno
import os
import resource
import subprocess

import pytest

import bpkcrash as crash
import bpkedit
import conftest
from bpkwrite import descriptor, raw_pack, top

BIG = ("big", "U8", [2 << 20], bytes(range(256)) * 8192, None)


def fill(folder):
    """A file that takes all the room there is."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    return path


def test_full_disk_at_commit():
    with crash.tmpfs(6 << 20) as folder:
        pack = bpkedit.make_pack(folder, [BIG, *bpkedit.TENSORS])
        old = pack.read_bytes()
        with crash.daemon(pack) as mount:
            crash.edit_bytes(mount)
            shown = crash.view(mount)
            filler = fill(folder)
            assert crash.command(mount) == errno.ENOSPC
            assert pack.read_bytes() == old and crash.view(mount) == shown
            assert [n for n in crash.debris(pack) if n.endswith(".tmp")] == []
            filler.unlink()
            (mount / "metadata/k").write_text("after\n")
            assert crash.command(mount) == 0
            assert crash.leave(mount) == 0
        assert bpkedit.book(pack).metadata["k"] == "after" and crash.debris(pack) == []


def test_full_disk_at_unmount():
    """The exit status says so, and the next mount has the edits."""
    with crash.tmpfs(6 << 20) as folder:
        pack = bpkedit.make_pack(folder, [BIG, *bpkedit.TENSORS])
        old = pack.read_bytes()
        with crash.daemon(pack) as mount:
            crash.edit_bytes(mount)
            shown = crash.view(mount)
            filler = fill(folder)
            assert crash.leave(mount) == 1
            assert pack.read_bytes() == old
        filler.unlink()
        with crash.daemon(pack) as mount:
            assert crash.view(mount) == shown
            assert crash.leave(mount) == 0
        assert pack.read_bytes() != old and crash.debris(pack) == []


def test_full_disk_at_write():
    """Whoever writes is told; what was acknowledged before is there."""
    with crash.tmpfs(9 << 20) as folder:
        pack = bpkedit.make_pack(folder, [BIG, *bpkedit.TENSORS])
        with crash.daemon(pack) as mount:
            crash.edit_bytes(mount)
            shown = crash.view(mount)
            filler = fill(folder)
            assert crash.error_of(crash.write_at, mount.tensors / "big", 0, bytes(1 << 20)) == "ENOSPC"
            (now := crash.view(mount)).pop("tensors/big")
            assert now == {name: text for name, text in shown.items() if name != "tensors/big"}
            filler.unlink()
            crash.write_at(mount.tensors / "big", 0, b"x" * (2 << 20))
            assert crash.command(mount) == 0
            assert crash.leave(mount) == 0
        assert bpkedit.book(pack).tensor("big")[3] == b"x" * (2 << 20)


def leave_free(folder, size):
    """Takes all the room but SIZE bytes."""
    filler = fill(folder)
    os.truncate(filler, filler.stat().st_size - size)
    return filler


@pytest.mark.parametrize("free", [48, 100])
def test_small_edits_on_a_small_disk(free):
    """What fits is taken, though less is free than a journal would like."""
    with crash.tmpfs(1 << 20) as folder:
        pack = bpkedit.make_pack(folder)
        want = bpkedit.book(pack)
        with crash.daemon(pack) as mount:
            filler = leave_free(folder, free << 10)
            (mount / "metadata/k").write_text("small\n")
            crash.write_at(mount.tensors / "text", 0, b"ALPHA")
            (mount.tensors / "fc.weight").rename(mount.tensors / "head")
            (mount / "metadata.json").write_text('{"k": "small", "new": "key"}')
            shown = crash.view(mount)
            crash.kill(mount)
        with crash.daemon(pack) as mount:
            assert crash.view(mount) == shown
            filler.unlink()
            assert crash.command(mount) == 0
            assert crash.leave(mount) == 0
        want.metadata = {"k": "small", "new": "key"}
        want.change("text", data=b"ALPHA" + bpkedit.TEXT[5:]).change("fc.weight", name="head")
        now = bpkedit.book(pack)
        assert (now.metadata, sorted(now.tensors, key=str)) == (want.metadata, sorted(want.tensors, key=str))


def small_edits(mount, i):
    """Each is one call that changes the mount wholly or not at all."""
    return [
        lambda: os.close(os.open(mount.tensors / f"n{i}", os.O_CREAT | os.O_WRONLY)),
        lambda: os.rename(mount.tensors / f"n{i}", mount.tensors / f"m{i}"),
        lambda: os.rename(mount.tensors / "fc.weight", mount.tensors / "fc.bias"),
        lambda: os.rename(mount.tensors / "fc.bias", mount.tensors / "fc.weight"),
        lambda: os.truncate(mount.tensors / "text", 600 + i),
        lambda: os.rename(mount / "metadata/k", mount / f"metadata/k{i}"),
        lambda: os.rename(mount / f"metadata/k{i}", mount / "metadata/k"),
        lambda: os.unlink(mount.tensors / f"m{i}"),
    ]


def test_a_full_disk_stops_an_edit_before_it_begins():
    """The first call that does not fit has changed nothing, and the next mount shows what the last one did."""
    with crash.tmpfs(1 << 20) as folder:
        pack = bpkedit.make_pack(folder)
        with crash.daemon(pack) as mount:
            os.rename(mount / "metadata/k", mount / "metadata/k0")
            os.rename(mount / "metadata/k0", mount / "metadata/k")
            leave_free(folder, 60 << 10)
            shown, failed = crash.view(mount), None
            for i in range(1000):
                for change in small_edits(mount, i):
                    failed = crash.error_of(change)
                    if failed:
                        break
                    shown = crash.view(mount)
                if failed:
                    break
            assert failed == "ENOSPC"
            assert crash.view(mount) == shown
            crash.kill(mount)
        with crash.daemon(pack) as mount:
            assert crash.view(mount) == shown
            crash.kill(mount)


def test_limit_of_file_size(folder):
    """RLIMIT_FSIZE: EFBIG, not the end of the daemon by SIGXFSZ."""
    pack = bpkedit.make_pack(folder, [BIG, *bpkedit.TENSORS])
    old = pack.read_bytes()
    with crash.daemon(pack) as mount:
        crash.edit_bytes(mount)
        shown = crash.view(mount)
        resource.prlimit(mount.daemon.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        assert crash.command(mount) == errno.EFBIG
        assert pack.read_bytes() == old and crash.view(mount) == shown
        assert crash.error_of(crash.write_at, mount.tensors / "big", 1 << 20, b"y" * 100) == "EFBIG"
        resource.prlimit(mount.daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0


def test_folder_that_takes_no_files(folder):
    """An immutable folder: the commit fails, and works once it is an ordinary one again."""
    crash.need("chattr")
    (folder / "packs").mkdir()
    pack = bpkedit.make_pack(folder / "packs")
    old = pack.read_bytes()
    with crash.daemon(pack) as mount:
        crash.edit_metadata(mount)
        shown = crash.view(mount)
        if subprocess.run(["chattr", "+i", pack.parent], capture_output=True, check=False).returncode != 0:
            conftest.missing("no immutable folders here")
        try:
            assert crash.command(mount) in (errno.EPERM, errno.EACCES)
            assert crash.view(mount) == shown and pack.read_bytes() == old
        finally:
            subprocess.run(["chattr", "-i", pack.parent], check=True)
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0


# --- what it costs ---


@pytest.fixture(name="gigabyte", scope="module")
def _gigabyte():
    """A pack with a tensor of 1 GiB on an xfs that can share blocks."""
    with crash.loop_mounted("xfs", 4 << 30) as loop:
        pack, size = loop.path / "model.bpk", 1 << 30
        pack.write_bytes(raw_pack(top({"big": descriptor("U8", [size], 0, size)}, {"k": "v"})))
        with open(pack, "r+b") as file:
            file.seek(0, os.SEEK_END)
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 10) * 1024)
        yield pack


def used(path):
    figures = os.statvfs(path)
    return (figures.f_blocks - figures.f_bfree) * figures.f_frsize


def test_cost_of_edits(gigabyte):
    before = used(gigabyte.parent)
    with crash.daemon(gigabyte) as mount:
        resident = mount.peak()
        (mount / "metadata/k").write_text("shared\n")
        assert crash.command(mount) == 0
        crash.sync(gigabyte)
        assert used(gigabyte.parent) - before < 64 << 20, "a commit of metadata copied the data"
        crash.write_at(mount.tensors / "big", 123456789, bytes(4096))
        edits = bpkedit.edits_folder(gigabyte)
        assert sum(file.stat().st_blocks * 512 for file in edits.iterdir()) < 1 << 20
        assert crash.command(mount) == 0
        crash.sync(gigabyte)
        assert used(gigabyte.parent) - before < 64 << 20, "a commit of 4 KiB copied the data"
        if not conftest.SANITIZED:
            assert mount.peak() - resident < 24 << 20
        assert crash.leave(mount) == 0
