"""What comes to what the pack has already: no edit, and no reason to write."""

import os

import pytest

import bpkcrash as crash
import bpkedit as edit
from conftest import run_bpk


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


SWAP = [("text", "t"), ("fc.weight", "text"), ("t", "fc.weight")]


def rename(mount, *moves):
    for source, target in moves:
        (mount.tensors / source).rename(mount.tensors / target)


def write_again(mount, name):
    (mount / name).write_text((mount / name).read_text())


def write_value(mount, value):
    (mount / "metadata/k").write_text(f"{value}\n")


def make_and_remove(mount, *names):
    for name in names:
        (mount / name).write_text('{"dtype": "U8", "shape": [1]}' if name.endswith(".json") else "1")
    for name in names:
        (mount / name).unlink()


UNDONE = {
    "a key": lambda m: make_and_remove(m, "metadata/new"),
    "a value": lambda m: (write_value(m, "x"), write_value(m, edit.METADATA["k"])),
    "a removed key": lambda m: ((m / "metadata/k").unlink(), write_value(m, edit.METADATA["k"])),
    "metadata.json": lambda m: write_again(m, "metadata.json"),
    "scalars.json": lambda m: write_again(m, "scalars.json"),
    "a sidecar": lambda m: write_again(m, "tensors/text.json"),
    "a name": lambda m: rename(m, ("text", "t"), ("t", "text")),
    "a scratch name": lambda m: rename(m, ("text", ".t"), (".t", "text")),
    "two names": lambda m: rename(m, *SWAP, *SWAP),
    "a new tensor": lambda m: make_and_remove(m, "tensors/n", "tensors/n.json"),
    "a mode": lambda m: [(m / name).chmod(0o600) for name in ("tensors/text", "metadata/k", "metadata.json")],
    "a time": lambda m: [os.utime(m / name, (1, 1)) for name in ("tensors/text", "tensors/text.json", "scalars.json")],
    "scratch": lambda m: make_and_remove(m, "tensors/.s", ".t"),
}


def check_no_edit(mount):
    now = edit.status(mount)
    assert (now["edits"], now["problems"], now.get("changes")) == ([], [], None)


@pytest.mark.parametrize("what", UNDONE)
@pytest.mark.parametrize("end", ["commit", "umount", "kill"])
def test_what_was_undone_is_no_edit(pack, what, end):
    """It is not listed, and the pack stays the file that it is."""
    before = pack.stat()
    with crash.daemon(pack) as mount:
        UNDONE[what](mount)
        check_no_edit(mount)
        if end == "commit":
            edit.commit(mount)
            assert not edit.edits_folder(pack).exists()
        if end == "kill":
            crash.kill(mount)
        else:
            assert crash.leave(mount) == 0
    if end == "kill":
        with edit.edited(pack) as mount:
            check_no_edit(mount)
    after = pack.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not edit.edits_folder(pack).exists()


@pytest.mark.parametrize("path", ["metadata/k", "metadata/new", "metadata.json", "scalars.json", "tensors/fc.weight.json"])
def test_a_text_that_is_open_and_committed_is_no_edit(pack, path):
    """A commit says nothing of it, for it took it in; what is written on after it is an edit again."""
    text = {
        "metadata.json": '{"k": "held"}',
        "scalars.json": "{}",
        "tensors/fc.weight.json": '{"dtype": "F32", "shape": [16]}',
    }
    with edit.edited(pack) as mount:
        with open(mount / path, "w", encoding="utf-8") as file:
            file.write(text.get(path, "held"))
            file.flush()
            result = run_bpk("commit", mount.path)
            assert (result.status, result.out, result.err) == (0, b"", "")
            assert edit.status(mount)["edits"] == []
            file.write("  ")
            file.flush()
            os.fsync(file.fileno())
        edit.commit(mount)
        edit.check_clean(mount)
    now = edit.book(pack)
    assert path != "metadata/new" or now.metadata["new"] == "held  "
    assert path != "tensors/fc.weight.json" or now.tensor("fc.weight")[2] == [16]


def test_a_text_that_is_being_written_is_not_said_to_be_empty(pack):
    with edit.edited(pack) as mount:
        with open(mount / "metadata/k", "w", encoding="utf-8") as file:
            assert edit.problems(mount)["metadata/k"] == "is empty: write it or remove it"
            file.write("x")
            file.flush()
            assert edit.problems(mount) == {"metadata/k": "is still being written"}
        assert edit.problems(mount) == {}
