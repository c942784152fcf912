"""Whole packs through a writable mount: nothing changes what nobody edited, and what is put back is as it was."""

import os
import threading

import pytest

import bpkedit as edit
import bpkref
from conftest import FIXTURES, NO_SHARED

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]


@pytest.fixture
def copied(folder):
    """A function that brings a fixture into a folder of our own."""

    def copy(name):
        path = folder / f"{name}.bpk"
        path.write_bytes((FIXTURES / f"{name}.bpk").read_bytes())
        os.utime(path, ns=(10**18, 10**18 + 1))
        return path

    return copy


def rebuilt(pack):
    """The pack that Burn's writer makes of the same tensors, aligned, with the bytes of their dtypes kept."""
    tensors = sorted(pack.tensors.values(), key=lambda t: (t.start, t.end, t.name))
    rows = [(t.name, t.dtype, t.shape, t.bytes(), t.param_id) for t in tensors]
    return bpkref.build(rows, pack.metadata, pack.scalars)


def looked_at(mount):
    """Reads every file, as a backup would."""
    for path in mount.tensors.iterdir():
        assert len(path.read_bytes()) == path.stat().st_size
    return edit.listing(mount)


@pytest.mark.parametrize("name", NAMES)
def test_no_edit_changes_nothing(copied, name):
    """Mounted, read, unmounted: the same inode, mtime and bytes. A commit of nothing does nothing either."""
    path = copied(name)
    before, data = path.stat(), path.read_bytes()
    with edit.edited(path) as mount:
        looked_at(mount)
        edit.commit(mount)
        assert edit.status(mount)["edits"] == []
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, path.read_bytes()) == (before.st_ino, before.st_mtime_ns, data)


@pytest.mark.parametrize("name", NAMES)
def test_edit_that_is_put_back(copied, name):
    """One key of the metadata is added and removed again, a commit after each."""
    path = copied(name)
    before, data = bpkref.read(path), path.read_bytes()
    tensors = {t.name: (t.dtype_cbor, t.shape, t.bytes(), t.param_id, t.extra) for t in before.tensors.values()}
    with edit.edited(path, log=None) as mount:
        shown = looked_at(mount)
        (mount / "metadata/added by a test").write_text("x" * 300)
        edit.commit(mount)
        now = bpkref.read(path)
        assert now.metadata == {**before.metadata, "added by a test": "x" * 300}
        assert now.layout == "aligned" and now.problems == []
        assert {
            t.name: (t.dtype_cbor, t.shape, t.bytes(), t.param_id, t.extra) for t in now.tensors.values()
        } == tensors
        (mount / "metadata/added by a test").unlink()
        edit.commit(mount)
        assert looked_at(mount) == shown
    if before.layout == "aligned":
        assert path.read_bytes() == data
    else:
        assert path.read_bytes() == rebuilt(before)


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_written_over_itself(copied, name):
    """cp of each file onto itself, through another name."""
    path = copied(name)
    before, data = bpkref.read(path), path.read_bytes()
    with edit.edited(path, log=None) as mount:
        for file in sorted(mount.tensors.iterdir())[:400]:
            copy = file.with_name(f".{file.name[:200]}")
            copy.write_bytes(file.read_bytes())
            copy.rename(file)
        edit.commit(mount)
    untouched = before.layout == "aligned" or not before.tensors
    assert path.read_bytes() == (data if untouched else rebuilt(before))


def test_many_edits(folder):
    """A thousand tensors, each third renamed, removed or written, in one commit."""
    tensors = [(f"t.{i:04}", "U8", [i % 7], bytes([i % 256]) * (i % 7), i + 1) for i in range(1000)]
    pack = edit.make_pack(folder, tensors=tensors)
    want = edit.book(pack)
    with edit.edited(pack, log=[]) as mount:
        for i in range(0, 1000, 3):
            name = f"t.{i:04}"
            file = mount.tensors / name
            if i % 9 == 0:
                file.unlink()
                want.drop(name)
            elif i % 9 == 3:
                file.rename(mount.tensors / f"u.{i:04}")
                want.change(name, name=f"u.{i:04}")
            else:
                file.write_bytes(b"\xff" * (i % 7))
                want.change(name, data=b"\xff" * (i % 7))
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


def test_partial_writes_of_a_large_tensor(folder):
    """A byte at a time costs a block at a time."""
    size = 200 << 20
    data = os.urandom(1 << 20) * (size >> 20)
    pack = edit.make_pack(folder, tensors=[("big", "U8", [size], data, 1), ("small", "U8", [1], b"x", 2)])
    places = [0, 4095, 4096, size // 2, size - 1]
    want = bytearray(data)
    with edit.edited(pack, log=[]) as mount:
        with open(mount.tensors / "big", "r+b", buffering=0) as file:
            for at in places:
                file.seek(at)
                file.write(b"!")
                want[at : at + 1] = b"!"
        used = sum(p.stat().st_blocks * 512 for p in edit.edits_folder(pack).iterdir())
        assert used < 2 << 20
        assert mount.peak() < 100 << 20 or "asan" in os.environ.get("BPK_BUILD", "")
        edit.commit(mount)
    assert bpkref.read(pack).tensors["big"].bytes() == bytes(want)


def test_writers_and_commits(folder):
    """Writers of tensors, of keys and of names go on while one commit after the other is made; nothing is lost."""
    size, rounds = 100_000, 60
    tensors = [(f"t{i}", "U8", [size], bytes([i]) * size, i + 1) for i in range(8)]
    pack = edit.make_pack(folder, tensors=tensors)
    want, failures, writing = edit.book(pack), [], threading.Event()
    writing.set()

    def guarded(function):
        def work():
            try:
                function()
            except Exception as error:  # pylint: disable=broad-exception-caught
                failures.append(error)

        return threading.Thread(target=work)

    with edit.edited(pack, log=None) as mount:

        def write_in_place():
            for i in range(rounds):
                with open(mount.tensors / "t0", "r+b") as file:
                    file.seek(1000 * i)
                    file.write(b"%04d" % i)

        def write_anew():
            for i in range(rounds):
                (mount.tensors / "t1").write_bytes(bytes([i]) * size)

        def replace():
            for i in range(rounds):
                (mount.tensors / ".t2").write_bytes(bytes([i]) * size)
                (mount.tensors / ".t2").rename(mount.tensors / "t2")

        def rename():
            for i in range(rounds):
                names = ("t3", "moved") if i % 2 == 0 else ("moved", "t3")
                (mount.tensors / names[0]).rename(mount.tensors / names[1])

        def write_key():
            for i in range(rounds):
                (mount / "metadata/k").write_text(f"{i}\n")

        def commit_again():
            while writing.is_set():
                edit.control(mount, "commit --valid")

        writers = [guarded(f) for f in (write_in_place, write_anew, replace, rename, write_key)]
        committer = guarded(commit_again)
        for thread in (*writers, committer):
            thread.start()
        for thread in writers:
            thread.join()
        writing.clear()
        committer.join()
        assert failures == []
        assert edit.problems(mount) == {}
    last = bytearray(tensors[0][3])
    for i in range(rounds):
        last[1000 * i : 1000 * i + 4] = b"%04d" % i
    want.change("t0", data=bytes(last)).change("t1", data=bytes([rounds - 1]) * size)
    want.change("t2", data=bytes([rounds - 1]) * size)
    want.metadata["k"] = str(rounds - 1)
    now = edit.book(pack)
    assert now.metadata == want.metadata
    assert {t[0]: t[1:] for t in now.tensors} == {t[0]: t[1:] for t in want.tensors}
