"""Others at the same pack: second mounts, packs replaced, cut, removed, linked; unmounts and signals at a bad time."""

import errno
import mmap
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

import bpkcrash as crash
import bpkedit
from conftest import BPKFS, mounted, run, wait_until
def test_second_mount(folder):
    """Refused for writing, and told who has it; welcome for reading."""
    pack = bpkedit.make_pack(folder)
    (folder / "other").mkdir()
    with crash.daemon(pack) as mount:
        crash.edit_metadata(mount)
        result = run(BPKFS, "-f", pack, folder / "other")
        assert result.status == 1 and str(mount.path) in result.err, result.err
        with mounted(pack, expect=None) as reader:
            assert (reader.path / "metadata/k").read_text() == "v\n"
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0
    assert bpkedit.book(pack).metadata["k"] == "another value"


def replace(pack):
    other = pack.with_name("other")
    other.write_bytes(bpkedit.bpkref.build([("x", "U8", [1], b"x", None)]))
    other.rename(pack)


def change(pack):
    with open(pack, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")


def cut(pack):
    os.truncate(pack, 3000)


@pytest.mark.parametrize("fault", [replace, change, cut, os.unlink])
def test_changed_underneath(folder, fault):
    """The commit refuses, the edits stay, and nobody's file is written over."""
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        crash.edit_bytes(mount)
        crash.write_at(mount.tensors / "text", 0, b"whole" * 128)
        crash.pause()
        fault(pack)
        now = pack.read_bytes() if pack.exists() else None
        assert crash.command(mount) in (errno.ESTALE, errno.ENOENT, errno.EIO)
        assert (pack.read_bytes() if pack.exists() else None) == now
        assert (mount.tensors / "text").read_bytes() == b"whole" * 128
        if fault in (change, cut):
            fd = os.open(mount.tensors / "fc.weight", os.O_RDONLY)
            assert crash.error_of(os.pread, fd, 64, 0) == "EIO"
            os.close(fd)
        assert mount.daemon.poll() is None
        assert crash.leave(mount) != 0
    assert (pack.read_bytes() if pack.exists() else None) == now
    assert crash.debris(pack) == [f".{pack.name}.edits"]


def test_symbolic_link_and_attributes(folder):
    """The link stays, its target is replaced, and keeps owner, mode, attributes and ACL."""
    (folder / "real").mkdir()
    (folder / "links").mkdir()
    pack = bpkedit.make_pack(folder / "real")
    link = folder / "links/model.bpk"
    link.symlink_to("../real/model.bpk")
    os.setxattr(pack, "user.x", b"note")
    pack.chmod(0o640)
    crash.need("setfacl")
    subprocess.run(["setfacl", "-m", "u:1234:rw", pack], check=True)
    if os.geteuid() == 0:
        os.chown(pack, 1234, 5678)
    before, acl = pack.stat(), os.getxattr(pack, "system.posix_acl_access")
    with crash.daemon(link) as mount:
        crash.edit_metadata(mount)
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0
    after = pack.stat()
    assert link.is_symlink() and os.readlink(link) == "../real/model.bpk"
    assert after.st_ino != before.st_ino and bpkedit.book(pack).metadata["k"] == "another value"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert os.getxattr(pack, "user.x") == b"note" and os.getxattr(pack, "system.posix_acl_access") == acl
    assert crash.debris(pack) == [] and crash.debris(link) == []


def test_hard_link(folder):
    """The other name keeps the old pack."""
    pack = bpkedit.make_pack(folder)
    old = pack.read_bytes()
    os.link(pack, folder / "same")
    with crash.daemon(pack) as mount:
        crash.edit_metadata(mount)
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0
    assert (folder / "same").read_bytes() == old and pack.read_bytes() != old


def test_open_reader_keeps_the_old_pack(folder):
    pack = bpkedit.make_pack(folder)
    old = pack.read_bytes()
    with open(pack, "rb") as reader, crash.daemon(pack) as mount:
        with mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            crash.edit_bytes(mount)
            assert crash.command(mount) == 0
            assert reader.read() == old and bytes(mapped) == old
        assert crash.leave(mount) == 0


@pytest.mark.parametrize("how", ["lazy", "signal"])
def test_open_writer(folder, how):
    """A writer that is still there when the mount goes: what it writes until its close is committed."""
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        with crash.opened(mount.tensors / "conv.weight") as fd:
            os.pwrite(fd, b"before", 0)
            if how == "lazy":
                subprocess.run(["umount", "-l", mount.path], check=True)
            else:
                mount.send(signal.SIGTERM)
                crash.wait_until(lambda: not mount.is_mounted(), "detached")
            os.pwrite(fd, b"after", 100)
        assert mount.wait() == 0, mount.read_log()
    data = bpkedit.book(pack).tensor("conv.weight")[3]
    assert (data[:6], data[100:105]) == (b"before", b"after")
    assert crash.debris(pack) == []


def test_signal_with_a_dirty_map(folder):
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        with crash.opened(mount.tensors / "conv.weight") as fd:
            mapped = mmap.mmap(fd, 4096)
        mapped[:6] = b"mapped"
        mount.send(signal.SIGTERM)
        crash.wait_until(lambda: not mount.is_mounted(), "detached")
        mapped.close()
        assert mount.wait() == 0, mount.read_log()
    assert bpkedit.book(pack).tensor("conv.weight")[3][:6] == b"mapped"


def slow_commit(mount):
    """strace that makes the commit's first fsync of the new pack take a second."""
    return crash.injected(mount, "fchmod", "delay_enter=1000000", 1)


def test_edits_during_a_commit(folder):
    """They do not wait, are not in the commit, and are there after it, a crash or not."""
    crash.need("strace")
    pack = bpkedit.make_pack(folder, crash.TENSORS)
    with crash.daemon(pack) as mount:
        crash.write_at(mount.tensors / "conv.weight", 0, b"first!")
        with slow_commit(mount):
            committer = threading.Thread(target=crash.command, args=(mount,))
            committer.start()
            time.sleep(0.2)
            begun = time.monotonic()
            crash.write_at(mount.tensors / "conv.weight", 0, b"second")
            crash.write_at(mount.tensors / "long", 5, b"other")
            (mount.tensors / "text").rename(mount.tensors / "text.bak")
            (mount / "metadata/k").write_text("later\n")
            assert time.monotonic() - begun < 0.5 and committer.is_alive()
            committer.join(20)
        made = bpkedit.book(pack)
        assert made.tensor("conv.weight")[3][:6] == b"first!" and made.metadata["k"] == "v"
        assert b"other" not in made.tensor("long")[3][:20]
        shown = crash.view(mount)
        assert (mount.tensors / "conv.weight").read_bytes()[:6] == b"second"
        crash.kill(mount)
    with crash.daemon(pack) as mount:
        now = crash.view(mount)
        assert now == shown, crash.differences(shown, now)
        (mount.tensors / "text.bak").rename(mount.tensors / "text")
        assert crash.command(mount) == 0, bpkedit.status(mount)
        assert crash.leave(mount) == 0
    made = bpkedit.book(pack)
    assert made.tensor("conv.weight")[3][:6] == b"second" and made.metadata["k"] == "later"
    assert made.tensor("long")[3][5:10] == b"other"


def test_edits_while_a_commit_keeps_a_backup(folder):
    """The bytes that a backup has from the old pack are copied without anybody waiting for it."""
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        (mount.tensors / "conv.weight").rename(mount.tensors / "conv.weight.bak")
        (mount.tensors / "conv.weight").write_bytes(bytes(len(bpkedit.WEIGHT)))
        crash.write_at(mount.tensors / "conv.weight.bak", 4096, b"own")
        with crash.injected(mount, "fdatasync", "delay_enter=2000000", 1):
            committer = threading.Thread(target=crash.command, args=(mount,))
            committer.start()
            time.sleep(0.5)
            crash.write_at(mount.tensors / "conv.weight.bak", 8192, b"later")
            crash.write_at(mount.tensors / "text", 0, b"other")
            (mount / "metadata/k").write_text("later\n")
            assert committer.is_alive()
            committer.join(20)
        kept = bpkedit.WEIGHT[:4096] + b"own" + bpkedit.WEIGHT[4099:8192] + b"later" + bpkedit.WEIGHT[8197:]
        assert (mount.tensors / "conv.weight.bak").read_bytes() == kept
        made = bpkedit.book(pack)
        assert made.tensor("conv.weight")[3] == bytes(len(bpkedit.WEIGHT)) and made.metadata["k"] == "v"
        shown = crash.view(mount)
        crash.kill(mount)
    with crash.daemon(pack) as mount:
        now = crash.view(mount)
        assert now == shown, crash.differences(shown, now)
        assert (mount.tensors / "conv.weight.bak").read_bytes() == kept
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 3
    data = list(bpkedit.edits_folder(pack).glob("c*"))
    assert len(data) == 2, f"the copy, and what was written above it: {data}"


def test_unmount_during_a_commit(folder):
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        crash.edit_metadata(mount)
        with slow_commit(mount):
            committer = threading.Thread(target=crash.command, args=(mount,))
            committer.start()
            time.sleep(0.2)
            subprocess.run(["umount", "-l", mount.path], check=True)
            committer.join(20)
            # Within: strace, when it lets go, can lose the signal that ends a thread of libfuse's.
            assert mount.wait() == 0, mount.read_log()
    assert bpkedit.book(pack).metadata["k"] == "another value" and crash.debris(pack) == []


def test_signal_during_a_commit(folder):
    """Time is up while it still writes: it is waited for."""
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack, "grace=1") as mount:
        crash.edit_metadata(mount)
        with crash.injected(mount, "fchmod", "delay_enter=3000000", 1):
            committer = threading.Thread(target=crash.command, args=(mount,))
            committer.start()
            time.sleep(0.2)
            mount.send(signal.SIGTERM)
            assert mount.wait() == 0, mount.read_log()
            committer.join(20)
    assert bpkedit.book(pack).metadata["k"] == "another value" and crash.debris(pack) == []


def test_unmount_during_a_commit_of_the_timer(folder):
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack, "commit=1") as mount:
        with crash.injected(mount, "fchmod", "delay_enter=2000000", 1):
            crash.edit_metadata(mount)
            wait_until(lambda: crash.debris(pack)[1:], "the timer's commit has begun")
            subprocess.run(["umount", mount.path], check=True)
            assert mount.wait() == 0, mount.read_log()
    assert bpkedit.book(pack).metadata["k"] == "another value" and crash.debris(pack) == []


def test_the_timer_ends_before_what_it_looks_at(folder):
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack, "commit=1") as mount:
        with crash.injected(mount, "exit_group", "delay_enter=2500000", 1):
            subprocess.run(["umount", mount.path], check=True)
            assert mount.wait() == 0, mount.read_log()


def test_replaced_between_check_and_exchange(folder):
    """Somebody's file that an exchange brings out is put back."""
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        crash.edit_metadata(mount)
        with crash.injected(mount, "renameat2", "delay_enter=600000", 1):
            committer = threading.Thread(target=crash.command, args=(mount,))
            committer.start()
            time.sleep(0.3)
            replace(pack)
            theirs = pack.read_bytes()
            committer.join(20)
        assert pack.read_bytes() == theirs
        assert crash.leave(mount) != 0
    assert pack.read_bytes() == theirs
    assert crash.debris(pack) == [f".{pack.name}.edits"]
    shutil.rmtree(bpkedit.edits_folder(pack))
