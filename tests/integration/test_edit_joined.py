"""What renames join: names that were moved aside, over each other and back, and what a commit makes of them."""

import os
import threading
import time

import numpy as np
import pytest

import bpkcrash as crash
import bpkedit as edit
from conftest import BPK, run, run_bpk


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


def names_of(pack):
    return {t[0]: t[3] for t in edit.book(pack).tensors}


# --- A key and a tensor of one name ---


@pytest.mark.parametrize("change", ["new", "old", "map", "tensor"])
def test_a_key_with_a_tensors_name(folder, change):
    """Each is its own, after a commit too."""
    pack = edit.make_pack(folder, [("a", "U8", [5], b"AAAAA", None)], metadata={} if change == "new" else {"a": "x"})
    with edit.edited(pack, log=[]) as mount:
        if change == "map":
            (mount / "metadata.json").write_text('{"a": "text"}')
        elif change == "tensor":
            (mount.tensors / "a").write_bytes(b"BBBBB")
            (mount / "metadata/a").write_text("text\n")
        else:
            (mount / "metadata/a").write_text("text\n")
        edit.commit(mount)
        assert (mount / "metadata/a").read_bytes() == b"text\n"
        assert (mount.tensors / "a").read_bytes() == (b"BBBBB" if change == "tensor" else b"AAAAA")
        with open(mount / "metadata/a", "a", encoding="utf-8") as file:
            file.write("more")
        assert (mount / "metadata/a").read_bytes() == b"text\nmore"
        edit.commit(mount)
        assert (mount / "metadata/a").read_bytes() == b"text\nmore\n"
    assert edit.book(pack).metadata == {"a": "text\nmore"}


# --- Names that have no room for a sidecar's ---


@pytest.mark.parametrize("length", range(249, 256))
@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("last", ["fc.weight", "fc.weight.bak", ".w", "new"])
def test_bytes_survive_a_long_name(pack, length, edited, last):
    data = b"\7" * 64
    with edit.edited(pack, status=3 if last == "fc.weight.bak" else 0) as mount:
        file = mount.tensors / "fc.weight"
        if edited:
            file.write_bytes(data)
        data = file.read_bytes()
        file.rename(mount.tensors / ("q" * length))
        assert (mount.tensors / ("q" * length)).read_bytes() == data
        (mount.tensors / ("q" * length)).rename(mount.tensors / last)
        assert (mount.tensors / last).read_bytes() == data
        (mount.tensors / ("w" * length)).write_bytes(b"abc")
        assert (mount.tensors / ("w" * length)).read_bytes() == b"abc"
        (mount.tensors / ("w" * length)).unlink()
    assert data in names_of(pack).values()


# --- What is left out ---


@pytest.mark.parametrize("way", ["rename over", "array"])
@pytest.mark.parametrize("end", ["umount", "valid"])
def test_a_renamed_tensor_that_is_left_out_leaves_the_old_one(pack, way, end):
    """Its bytes are new, so that nothing borrows from the old one: the name is what joins them."""
    before = edit.book(pack)
    with crash.daemon(pack) as mount:
        if way == "array":
            np.save(mount / "views/npy/fc.weight.npy", np.ones(16, "f4"))
        else:
            (mount.tensors / "fc.weight~").write_bytes(b"n" * 64)
            (mount.tensors / "fc.weight~").rename(mount.tensors / "fc.weight")
        (mount.tensors / "fc.weight").rename(mount.tensors / "n1")
        (mount.tensors / "n1").rename(mount.tensors / "n2")
        os.truncate(mount.tensors / "n2", 5)
        if end == "valid":
            assert run_bpk("commit", "--valid", mount.path).status == 0
            edit.check_pack(pack, before)
        assert crash.leave(mount) == 3
    edit.check_pack(pack, before)
    with edit.edited(pack) as mount:
        (mount.tensors / "n2").write_bytes(b"m" * 64)
    assert names_of(pack)["n2"] == b"m" * 64 and "fc.weight" not in names_of(pack)


# --- Files that are renamed over what was moved aside ---


@pytest.mark.parametrize("aside", [".x", "x.bak", ".y waits", "50%"])
@pytest.mark.parametrize("over", ["text", "new"])
@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_what_is_renamed_over_is_put_back(pack, aside, over, edited, held):
    want = edit.book(pack)
    with crash.daemon(pack) as mount:
        file = mount.tensors / "fc.weight"
        if edited:
            file.write_bytes(b"e" * 64)
            want.change("fc.weight", data=b"e" * 64)
        data = file.read_bytes()
        *ways, aside = aside.split()
        for source, target in zip(["fc.weight", *ways], [*ways, aside]):
            (mount.tensors / source).rename(mount.tensors / target)
        if over == "new":
            (mount.tensors / "new").write_bytes(b"new")
        with open(mount.tensors / aside, "r+b") as handle:
            if not held:
                handle.close()
            (mount.tensors / over).rename(mount.tensors / aside)
            assert file.read_bytes() == data
            if held:
                handle.write(b"nobody's")
                handle.flush()
                assert file.read_bytes() == data
        if (aside, over) == ("waits", "text"):  # a name that a tensor can have
            want.tensors = [(aside, *t[1:]) if t[0] == over else t for t in want.tensors]
        edit.commit(mount)
        edit.check_pack(pack, want)
        assert file.read_bytes() == data and (mount.tensors / "fc.weight.json").exists()
        crash.leave(mount)
    edit.check_pack(pack, want)


@pytest.mark.parametrize("name", ["metadata.json", "scalars.json", "metadata/k", "tensors/text.json"])
def test_a_text_that_is_renamed_over_is_put_back(pack, name):
    want = edit.book(pack)
    folder = name.rpartition("/")[0]
    with edit.edited(pack, status=3, log=None) as mount:
        text = (mount / name).read_text()
        (mount / name).rename(mount / folder / "x.bak")
        (mount / folder / "y.bak").write_text("other")
        (mount / folder / "y.bak").rename(mount / folder / "x.bak")
        assert (mount / name).read_text() == text and (mount / folder / "x.bak").read_text() == "other"
        edit.commit(mount)
    edit.check_pack(pack, want)


# --- Keys ---


@pytest.mark.parametrize("aside", [".x", "new.bak", "50%", "q" * 251])
def test_a_new_key_that_was_moved_aside_is_named_and_put_back(pack, aside):
    want = edit.book(pack)
    want.metadata["new"] = "v"
    for kill in (True, False):
        with crash.daemon(pack) as mount:
            if kill:
                (mount / "metadata/new").write_text("v\n")
                (mount / "metadata/new").rename(mount / "metadata" / aside)
            assert "put back" in edit.problems(mount)["metadata/new"]
            assert "metadata/new" in edit.status(mount)["edits"]
            if kill:
                crash.kill(mount)
            else:
                edit.commit(mount)
                assert (mount / "metadata/new").read_text() == "v\n"
                crash.leave(mount)
    edit.check_pack(pack, want)


@pytest.mark.parametrize("way", [".x", "x.bak", "50%"])
@pytest.mark.parametrize("target", ["k2", "producer"])
def test_a_key_is_renamed_by_way_of_another_name(pack, way, target):
    want = edit.book(pack)
    want.metadata[target] = want.metadata.pop("k")
    with edit.edited(pack, log=[]) as mount:
        keys = mount / "metadata"
        (keys / "k").rename(keys / way)
        (keys / way).rename(keys / target)
        assert sorted(os.listdir(keys)) == sorted(want.metadata)
        edit.commit(mount)
        edit.check_clean(mount)
        assert sorted(os.listdir(keys)) == sorted(want.metadata)
    edit.check_pack(pack, want)


@pytest.mark.parametrize("path", ["metadata/k", "tensors/text"])
def test_what_was_put_back_can_be_renamed(pack, path):
    """The backup of before has nothing to do with that."""
    source, name = (path.rpartition("/")[0], path.rpartition("/")[2])
    with edit.edited(pack, status=3) as mount:
        (mount / path).rename(mount / source / f"{name}.bak")
        edit.commit(mount)
        (mount / path).rename(mount / source / "u")
        assert "was moved aside" not in str(edit.problems(mount))
        edit.commit(mount)
    book = edit.book(pack)
    assert ("k" in book.metadata) == (source != "metadata") and ("text" in names_of(pack)) == (source != "tensors")
    assert "u" in book.metadata or "u" in names_of(pack)


def test_a_map_that_is_written_without_a_key_removes_one_that_is_aside(pack):
    with edit.edited(pack, status=3) as mount:
        (mount / "metadata/k").rename(mount / "metadata/x.bak")
        (mount / "metadata.json").write_text("{}")
        assert "metadata/k" not in edit.problems(mount)
        edit.commit(mount)
    assert edit.book(pack).metadata == {}


# --- recover ---


def left_by(pack, change):
    with crash.daemon(pack) as mount:
        change(mount)
        crash.kill(mount)


def test_recover_with_arrays_that_are_not_whole(pack):
    def change(mount):
        for name in ("fc.weight", "text", "conv.bias"):
            (mount / f"views/npy/{name}.npy").write_bytes(b"\x93NUMPY")

    left_by(pack, change)
    shown = run(BPK, "recover", pack)
    assert shown.status == 0 and shown.out.count(b"views/npy/") == 3
    assert run(BPK, "recover", "--commit", pack).status == 1
    assert run(BPK, "recover", "--discard", pack).status == 0


SCRATCH = {
    "scratch": lambda m: (m.tensors / ".x").write_bytes(b"s"),
    "aside": lambda m: (m.tensors / "text").rename(m.tensors / ".x"),
    "map aside": lambda m: (m / "scalars.json").rename(m / ".x"),
    "empty": lambda m: (m.tensors / "empty").touch(),
}


@pytest.mark.parametrize("what", SCRATCH)
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_recover_with_scratch_alone(pack, what, force):
    """As at an unmount, nothing of it is left."""
    before = edit.book(pack)
    left_by(pack, SCRATCH[what])
    assert run(BPK, "recover", "--commit", *force, pack).status == 0
    assert not edit.edits_folder(pack).exists()
    edit.check_pack(pack, before)
    assert run_bpk("set", pack, "x=y").status == 0


# --- Small ---


@pytest.mark.parametrize("end", ["kill", "leave"])
def test_an_empty_file_that_was_moved_is_pending_in_the_next_mount_too(pack, end):
    with crash.daemon(pack) as mount:
        (mount.tensors / "w").touch()
        (mount.tensors / "w").rename(mount.tensors / "v")
        getattr(crash, end)(mount)
    for _ in range(2):
        with edit.edited(pack, status=3) as mount:
            assert (mount.tensors / "v").exists()


def test_a_text_that_is_cut_by_its_name_is_whole(pack):
    with edit.edited(pack, log=[]) as mount:
        (mount / "metadata/k").write_text("value")
        os.truncate(mount / "metadata/k", 3)
        assert edit.problems(mount) == {}
        edit.commit(mount)
        edit.check_clean(mount)
    assert edit.book(pack).metadata["k"] == "val"


@pytest.mark.parametrize(
    "name, aside", [("metadata.json", "x.json"), ("metadata/k", "metadata/x.bak"), ("tensors/text.json", "tensors/x.bak")]
)
def test_a_text_that_is_moved_says_what_it_said(pack, name, aside):
    """Not what the kernel has kept of the last time that it was read."""
    change = {
        "metadata.json": lambda m: (m / "metadata/k").write_text("w\n"),
        "metadata/k": lambda m: (m / "metadata.json").write_text('{"k": "w"}'),
        "tensors/text.json": lambda m: np.save(m / "views/npy/text.npy", np.frombuffer(edit.TEXT, "i1")),
    }
    with edit.edited(pack, status=3) as mount:
        before = (mount / name).read_bytes()
        change[name](mount)
        now = (mount / name).stat().st_size
        (mount / name).rename(mount / aside)
        shown = (mount / aside).read_bytes()
        assert len(shown) == now and shown != before
        aside_again = mount / f"{aside}.orig"
        (mount / aside).rename(aside_again)
        assert aside_again.read_bytes() == shown
        aside_again.unlink()
        (mount / "keep.bak").write_bytes(b"")


def test_reads_of_a_text_beside_commits(pack):
    """A snapshot that was composed for a read outlives the handle that it was read by."""
    with edit.edited(pack, log=None) as mount:
        stop = time.monotonic() + 3

        def read():
            while time.monotonic() < stop and mount.daemon.poll() is None:
                (mount / "metadata/k").read_bytes()

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        number = 0
        while time.monotonic() < stop and mount.daemon.poll() is None:
            number += 1
            (mount / "metadata/k").write_text(f"v{number}\n")
            edit.commit(mount)
        for reader in readers:
            reader.join()
        assert mount.daemon.poll() is None
    assert edit.book(pack).metadata["k"] == f"v{number}"
