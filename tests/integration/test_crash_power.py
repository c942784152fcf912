"""The power goes: what was acknowledged as lasting is on the disk, and the pack is the old or the new one."""

import contextlib
import io
import os
import random
import threading

import numpy as np
import pytest

import bpkcrash as crash
import bpkedit
import conftest

ROUNDS = 60 if crash.LONG else 20
KINDS = ["xfs", "ext4"]


def cut_and_come_back(loop, mount):
    """The power is lost, the machine starts again: the daemon is gone, and what the disk had is mounted."""
    loop.cut()
    crash.kill(mount)
    loop.unmount()
    loop.mount()


def settled(pack):
    """A pack whose mount follows: nothing of its making is lost with the power."""
    crash.sync(pack)
    return pack


@pytest.mark.parametrize("kind", KINDS)
def test_commit_is_kept(kind):
    """Every commit that was acknowledged is there."""
    with crash.loop_mounted(kind) as loop:
        pack = settled(bpkedit.make_pack(loop.path, crash.TENSORS))
        for round_number in range(5):
            text = f"round {round_number}\n"
            with crash.daemon(pack) as mount:
                crash.edit_bytes(mount)
                (mount / "metadata/k").write_text(text)
                assert crash.command(mount) == 0
                new = pack.read_bytes()
                cut_and_come_back(loop, mount)
            assert pack.read_bytes() == new
            assert bpkedit.book(pack).metadata["k"] == text[:-1]
            with crash.daemon(pack) as mount:
                assert bpkedit.status(mount)["edits"] == []
                assert crash.leave(mount) == 0
            assert crash.debris(pack) == []


@pytest.mark.parametrize("kind", KINDS)
def test_synced_edits_are_kept(kind):
    with crash.loop_mounted(kind) as loop:
        pack = settled(bpkedit.make_pack(loop.path, crash.TENSORS))
        old = pack.read_bytes()
        with crash.daemon(pack) as mount:
            with crash.opened(mount.tensors / "conv.weight") as fd:
                os.pwrite(fd, b"synced" * 1000, 70000)
                os.fsync(fd)
            with crash.opened(mount.tensors / "new", os.O_RDWR | os.O_CREAT) as fd:
                os.write(fd, bytes(64))
                os.fsync(fd)
                os.rename(mount.tensors / "text", mount.tensors / "moved")
                os.unlink(mount.tensors / "norm.gamma")
                with crash.opened(mount.tensors, os.O_RDONLY | os.O_DIRECTORY) as folder:
                    os.fsync(folder)
            bpkedit.write_sidecar(mount, "new", "F32", [16])
            with crash.opened(mount.tensors / "new.json") as fd:
                os.fsync(fd)
            shown = crash.view(mount)
            cut_and_come_back(loop, mount)
        assert pack.read_bytes() == old
        with crash.daemon(pack) as mount:
            now = crash.view(mount)
            assert now == shown, crash.differences(shown, now)
            assert crash.command(mount) == 0, bpkedit.status(mount)
            assert crash.leave(mount) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_synced_arrays_are_kept(kind, order):
    """Whether the array was whole when it was synced, became a tensor before, or was moved there after."""
    array = np.arange(60000, dtype="i4").reshape((200, 300), order=order)
    out = io.BytesIO()
    np.save(out, array)
    with crash.loop_mounted(kind) as loop:
        pack = settled(bpkedit.make_pack(loop.path, crash.TENSORS))
        with crash.daemon(pack) as mount:
            views = mount / "views/npy"
            with open(views / "synced.npy", "wb", 0) as file:
                file.write(out.getvalue())
                os.fsync(file.fileno())
            (views / "late.npy").write_bytes(out.getvalue())
            with crash.opened(views / "late.npy") as fd:
                os.fsync(fd)
            with open(views / ".part", "wb", 0) as file:
                file.write(out.getvalue())
                os.fsync(file.fileno())
            os.rename(views / ".part", views / "fc.weight.npy")
            with crash.opened(mount.tensors, os.O_RDONLY | os.O_DIRECTORY) as folder:
                os.fsync(folder)
            cut_and_come_back(loop, mount)
        with crash.daemon(pack) as mount:
            assert bpkedit.problems(mount) == {}
            for name in ("synced", "late", "fc.weight"):
                assert (mount.tensors / name).read_bytes() == array.tobytes("C")
            assert crash.command(mount) == 0, bpkedit.status(mount)
            assert crash.leave(mount) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_synced_file_outlives_what_came_after(kind):
    """A file that was synced and then replaced or removed, without a sync, is whole or gone, never empty."""
    for remove in (True, False):
        with crash.loop_mounted(kind) as loop:
            pack = settled(bpkedit.make_pack(loop.path, crash.TENSORS))
            data = b"synced" * 20000
            with crash.daemon(pack) as mount:
                with crash.opened(mount.tensors / "a.bak", os.O_RDWR | os.O_CREAT) as fd:
                    os.write(fd, data)
                    os.fsync(fd)
                if remove:
                    os.unlink(mount.tensors / "a.bak")
                else:
                    (mount.tensors / "b.bak").write_bytes(b"other")
                    os.rename(mount.tensors / "b.bak", mount.tensors / "a.bak")
                crash.pause()
                cut_and_come_back(loop, mount)
            with crash.daemon(pack) as mount:
                path = mount.tensors / "a.bak"
                if path.exists():
                    assert path.read_bytes() in (data, b"other")
                bpkedit.control(mount, "discard")
                assert crash.leave(mount) == 0


def test_unsynced_bytes_are_not_committed_unseen():
    """What was not synced may be lost with the power; the journal may tell of it all the same: then it is a problem."""
    with crash.loop_mounted("xfs") as loop:
        pack = settled(bpkedit.make_pack(loop.path, crash.TENSORS))
        with crash.daemon(pack) as mount:
            with crash.opened(mount.tensors / "conv.weight") as fd:
                os.pwrite(fd, b"lost" * 2000, 0)
            with crash.opened(mount.tensors, os.O_RDONLY | os.O_DIRECTORY) as folder:
                os.fsync(folder)  # the journal's records, not the bytes
            cut_and_come_back(loop, mount)
        # The journal was written by this boot, so that bytes are trusted: as after a start of the machine it is another.
        journal = pack.parent / f".{pack.name}.edits/journal"
        boot = open("/proc/sys/kernel/random/boot_id", "rb").read().strip()
        raw = journal.read_bytes()
        assert raw.count(boot) == 1
        journal.write_bytes(raw.replace(boot, boot[::-1]))
        for _ in range(2):  # the second mount knows it from the journal that the first one wrote anew
            with crash.daemon(pack) as mount:
                assert "power" in bpkedit.problems(mount)["tensors/conv.weight"]
                assert crash.command(mount) != 0
                crash.kill(mount)
        with crash.daemon(pack) as mount:
            (mount.tensors / "conv.weight").write_bytes(bpkedit.WEIGHT[::-1])
            assert crash.command(mount) == 0, bpkedit.status(mount)
            assert crash.leave(mount) == 0
        assert bpkedit.book(pack).tensor("conv.weight")[3] == bpkedit.WEIGHT[::-1]


@pytest.mark.parametrize("kind", KINDS)
def test_power_goes_at_any_moment_of_a_commit(kind):
    dice = random.Random(crash.SEED)
    case = crash.Case(crash.edit_all).prepare()
    outcomes = []
    with crash.loop_mounted(kind) as loop:
        reference = crash.Case(crash.edit_all, folder=loop.path).prepare()
        for round_number in range(ROUNDS):
            folder = loop.path / f"round-{round_number}"
            pack = settled(case.make(folder))
            with crash.daemon(pack) as mount:
                case.edit(mount)
                committer = threading.Thread(target=crash.command, args=(mount,))
                committer.start()
                threading.Event().wait(dice.random() * 0.03)
                cut_and_come_back(loop, mount)
                committer.join(20)
            now = pack.read_bytes()
            assert now in (reference.old, reference.new), f"{kind}, round {round_number}"
            outcomes.append(now == reference.new)
            with crash.daemon(pack) as mount:
                assert crash.command(mount, "commit --valid") == 0, bpkedit.status(mount)
                bpkedit.control(mount, "discard")
                assert crash.leave(mount) == 0
            assert crash.debris(pack) == []
    print(f"{kind}: {sum(outcomes)} of {ROUNDS} new, the others old")


# What libeatmydata does, for a machine that does not have it.
EATMYDATA = """
int fsync(int fd) { return 0; }
int fdatasync(int fd) { return 0; }
int sync_file_range(int fd, long offset, long size, unsigned flags) { return 0; }
int syncfs(int fd) { return 0; }
void sync(void) { }
"""


def test_the_tests_can_fail(folder, monkeypatch):
    """Without its syncs the daemon loses what it acknowledged, so the tests above see something."""
    shim = crash.compile_shim(folder, EATMYDATA)
    with crash.loop_mounted("xfs") as loop:
        pack = settled(bpkedit.make_pack(loop.path, crash.TENSORS))
        old = pack.read_bytes()
        monkeypatch.setitem(conftest.ENVIRONMENT, "LD_PRELOAD", str(shim))
        with crash.daemon(pack) as mount:
            crash.edit_bytes(mount)
            assert crash.command(mount) == 0
            new = pack.read_bytes()
            cut_and_come_back(loop, mount)
        with contextlib.suppress(OSError):
            assert pack.read_bytes() != new
        assert new != old
