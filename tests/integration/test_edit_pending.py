"""Names under which nothing can be in the pack: what was moved there stays in the pack under its own name."""

import os
import shutil

import pytest

import bpkcrash as crash
import bpkedit as edit
from conftest import run_bpk


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


LONG = "q" * 251

MOVES = [
    ["tensors/fc.weight", "tensors/50%"],
    ["tensors/fc.weight", "tensors/%2f"],
    ["tensors/fc.weight", f"tensors/{LONG}"],
    ["tensors/fc.weight", f"tensors/{'q' * 255}"],
    ["tensors/fc.weight", "tensors/.tmp", "tensors/waits"],
    ["tensors/fc.weight", "tensors/.tmp", "tensors/50%"],
    ["tensors/fc.weight", "tensors/x.bak", "tensors/waits"],
    ["tensors/fc.weight", "tensors/.tmp", "waits"],
    ["metadata/k", "metadata/50%"],
    ["metadata/k", f"metadata/{LONG}"],
    ["metadata.json", "x.json"],
    ["scalars.json", "waits"],
    ["scalars.json", ".tmp", "waits"],
]


def move(mount, names):
    for source, target in zip(names, names[1:]):
        (mount / source).rename(mount / target)


@pytest.mark.parametrize("names", MOVES, ids=lambda names: "-".join(name[:20] for name in names))
@pytest.mark.parametrize("end", ["umount", "bpk umount", "commit", "kill"])
def test_a_move_to_where_nothing_can_be(pack, names, end):
    """Only an unlink removes: the pack is as it was, the file waits, and moved back all is as before."""
    want, data = edit.book(pack), None
    with crash.daemon(pack) as mount:
        data = (mount / names[0]).read_bytes()
        move(mount, names)
        assert (mount / names[-1]).read_bytes() == data
        if end == "commit":
            assert run_bpk("commit", mount.path).status == 0
            edit.check_pack(pack, want)
        if end == "kill":
            crash.kill(mount)
        elif end == "bpk umount":
            assert run_bpk("umount", mount.path).status == 3 and mount.wait() == 3
        else:
            assert crash.leave(mount) == 3
    edit.check_pack(pack, want)
    with edit.edited(pack, log=None) as mount:
        assert (mount / names[-1]).read_bytes() == data
        (mount / names[-1]).rename(mount / names[0])
        assert (mount / names[0]).read_bytes() == data
        assert edit.problems(mount) == {}
    edit.check_pack(pack, want)
    assert not edit.edits_folder(pack).exists()


@pytest.mark.parametrize("names", MOVES, ids=lambda names: "-".join(name[:20] for name in names))
def test_what_was_moved_there_and_removed_is_removed(pack, names):
    want = edit.book(pack)
    with edit.edited(pack) as mount:
        move(mount, names)
        (mount / names[-1]).unlink()
        edit.commit(mount)
        edit.check_clean(mount)
    if names[0] == "tensors/fc.weight":
        want.tensors = [t for t in want.tensors if t[0] != "fc.weight"]
    elif names[0] == "metadata/k":
        del want.metadata["k"]
    elif names[0] == "metadata.json":
        want.metadata = {}
    else:
        want.scalars = {}
    edit.check_pack(pack, want)


@pytest.mark.parametrize("scratch", ["tensors/.tmp", "tensors/x.bak"])
def test_a_pending_file_becomes_a_tensor(pack, scratch):
    """Given a sidecar it is one: the name that it was moved from is free."""
    want = edit.book(pack)
    bytes_of = next(t for t in want.tensors if t[0] == "fc.weight")
    with edit.edited(pack) as mount:
        move(mount, ["tensors/fc.weight", scratch, "tensors/new"])
        assert "tensors/new" in edit.problems(mount)
        edit.write_sidecar(mount, "new", bytes_of[1], list(bytes_of[2]))
        assert edit.problems(mount) == {}
        edit.commit(mount)
        edit.check_clean(mount)
        assert not (mount.tensors / "fc.weight").exists()
    now = {t[0]: t[3] for t in edit.book(pack).tensors}
    assert now["new"] == bytes_of[3] and "fc.weight" not in now and len(now) == len(want.tensors)


@pytest.mark.parametrize("folder_name", ["", "tensors/"])
def test_an_empty_file_that_was_moved_is_kept(pack, folder_name):
    with edit.edited(pack, status=3) as mount:
        (mount / f"{folder_name}a").touch()
        assert edit.status(mount)["scratch"] == [f"{folder_name}a"]
        (mount / f"{folder_name}a").rename(mount / f"{folder_name}b")
        assert edit.status(mount)["scratch"] == []
    with edit.edited(pack) as mount:
        assert (mount / f"{folder_name}b").read_bytes() == b""
        (mount / f"{folder_name}b").unlink()


@pytest.mark.parametrize("length", range(249, 256))
def test_long_names_have_no_cut_sidecar(pack, length):
    """There is no room for the end of its name: neither for a file made there nor for one moved there."""
    name = "q" * length
    with edit.edited(pack, status=3 if length > 250 else 0) as mount:
        before = set(os.listdir(mount.tensors))
        (mount.tensors / "fc.weight").rename(mount.tensors / name)
        sidecar = {f"{name}.json"} if length <= 250 else set()
        assert set(os.listdir(mount.tensors)) - before == {name} | sidecar
        (mount.tensors / name).rename(mount.tensors / "fc.weight")
        assert set(os.listdir(mount.tensors)) - before - {f"{name}.json"} == set()
        edit.commit(mount)
        assert set(os.listdir(mount.tensors)) == before
        shutil.copy(mount.tensors / "fc.weight", mount.tensors / name)
        assert set(os.listdir(mount.tensors)) - before == {name}
        if length <= 250:
            (mount.tensors / name).unlink()


@pytest.mark.parametrize(
    "path, reason",
    [
        ("tensors/50%", "'%' is written as '%25'"),
        ("metadata/50%", "'%' is written as '%25'"),
        ("metadata/a\nb", "'%' is written as '%25'"),
        ("views/npy/50%.npy", "'%' is written as '%25'"),
        (f"tensors/{LONG}", "its name is too long"),
        (f"metadata/{LONG}", "its name is too long"),
        ("views/npy/x", "move it to a name that ends in .npy"),
        ("tensors/x", "give it a sidecar"),
        ("x", "is no part of a pack"),
        ("50%", "is no part of a pack"),
    ],
)
def test_what_is_said_of_a_pending_file(pack, path, reason):
    with edit.edited(pack, status=3) as mount:
        (mount / path).write_bytes(b"1")
        assert reason in edit.problems(mount)[path]
