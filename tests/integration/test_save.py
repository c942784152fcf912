"""`bpk commit --to FILE`: where it writes, where it does not, and what it says then."""

import os
import re

import pytest

import bpkedit as edit
import conftest
from conftest import BPK, check_lines, run


@pytest.fixture(name="packs")
def _packs(folder):
    path = folder / "packs"
    path.mkdir()
    edit.make_pack(path)
    return path


def save(mount, to, *options, cwd=None):
    return run(BPK, "commit", *options, "--to", to, mount.path, cwd=cwd)


def check_saved(path):
    assert edit.book(path).metadata["k"] == "edited"


@pytest.fixture(name="mount", params=[(), ("-s",)], ids=["threads", "one-thread"])
def _mount(packs, request):
    """A mount with an edit; a refused or a saved file changes neither it nor the pack."""
    pack = packs / "model.bpk"
    old = pack.read_bytes()
    with edit.edited(pack, *request.param, log=[]) as mount:
        (mount / "metadata/k").write_text("edited\n")
        yield mount
        assert edit.status(mount)["edits"] == ["metadata/k"] and pack.read_bytes() == old
        edit.control(mount, "discard")


NAMES = ["copy.bpk", "a b", " x ", "line\nbreak", "newline\n", "two\n\n", "é", "--valid x", "x\\"]


@pytest.mark.parametrize("name", NAMES)
def test_names(name, mount, folder):
    for where in (folder / name, os.path.join(".", name)):
        assert save(mount, where, cwd=folder).status == 0
        assert sorted(os.listdir(folder)) == sorted([name, "packs"])
        check_saved(folder / name)
        (folder / name).unlink()


def test_the_control_file_alone(mount, folder):
    """As `echo save FILE > control` does it."""
    edit.control(mount, f"save {folder}/echo.bpk")
    check_saved(folder / "echo.bpk")
    assert edit.outcome(mount) == ""
    for command in ("save", "save x", "save --valid x", "nonsense", "save /" + "x" * 5000):
        assert conftest.code_of(edit.control, mount, command) == "EINVAL"
        assert edit.outcome(mount).count("\n") == 1
    edit.control(mount, f"save {folder}/other.bpk")
    assert edit.outcome(mount) == ""


def test_through_a_link(mount, folder):
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    assert save(mount, folder / "link/copy.bpk").status == 0
    check_saved(folder / "real/copy.bpk")


def test_refusals(mount, folder, packs):
    """Each with its reason, and nothing is left."""
    (folder / "here.bpk").write_bytes(b"here")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "sub").mkdir()
    (folder / "into").symlink_to(mount.tensors)
    edits = edit.edits_folder(packs / "model.bpk")
    before = {path: sorted(os.listdir(path)) for path in (folder, packs, edits, folder / "sub")}
    for to, reason in {
        folder / "here.bpk": "there is a file of that name already",
        folder / "dangling": "there is a link of that name, which leads nowhere, already",
        folder / "sub": "there is a folder of that name already",
        "/": "there is a folder of that name already",
        packs / "model.bpk": "there is a file of that name already",
        folder / "nowhere/x": "cannot open its folder: No such file or directory",
        folder / "here.bpk/x": "cannot open its folder: Not a directory",
        mount.path / "copy.bpk": "it would be in the mount",
        mount.tensors / "copy.bpk": "it would be in the mount",
        mount.path / "metadata.json": "it would be in the mount",
        folder / "into/copy.bpk": "it would be in the mount",
        edits / "copy.bpk": "it would be in the edits folder",
        folder / ("x" * 300): "File name too long",
    }.items():
        result = save(mount, to)
        assert (result.status, result.out) == (1, b"")
        shown = re.escape(str(to)[-100:])
        check_lines(result.err, [rf"^bpk: {re.escape(str(mount.path))}: (\.\.\.)?{shown}: .*{re.escape(reason)}$"])
    assert before == {path: sorted(os.listdir(path)) for path in before}
    assert (folder / "here.bpk").read_bytes() == b"here"


def test_where_nothing_can_be_made(packs):
    with edit.edited(packs / "model.bpk") as mount:
        result = save(mount, "/proc/copy.bpk")
        assert result.status == 1
        check_lines(result.err, ["cannot make a temporary file beside it: "])


def test_save_after_the_pack_was_replaced(packs, folder):
    """What it is for."""
    pack = packs / "model.bpk"
    with edit.edited(pack) as mount:
        (mount / "metadata/k").write_text("edited\n")
        os.rename(pack, folder / "old.bpk")
        edit.make_pack(packs)
        assert run(BPK, "commit", mount.path).status == 1
        assert save(mount, folder / "copy.bpk").status == 0
        edit.control(mount, "discard")
    check_saved(folder / "copy.bpk")
