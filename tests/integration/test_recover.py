"""bpk recover: edits that a mount left, and packs that are not the one that they were made on."""

import json

import pytest

import bpkedit as edit
import bpkref
from conftest import BPK, run


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


def leave_edits(pack, change):
    """CHANGE(mount), and then the daemon is killed."""
    mount = edit.WritableMount(pack, ())
    try:
        mount.wait_for_mount()
        change(mount)
        mount.daemon.kill()
        mount.wait()
    finally:
        mount.clear()


def test_force_takes_all_that_goes_with_the_new_pack(folder, pack):
    def change(mount):
        with open(mount.tensors / "conv.weight", "r+b") as file:
            file.seek(70000)
            file.write(b"own bytes")
        (mount.tensors / "text").rename(mount.tensors / "text2")
        (mount.tensors / "norm.gamma").rename(mount.tensors / "norm.beta")
        (mount.tensors / "fc.weight").write_bytes(b"\7" * 64)
        (mount / "metadata/k").write_text("edited\n")

    leave_edits(pack, change)
    kept = [t for t in edit.TENSORS if t[0] not in ("conv.weight", "text")]
    other = edit.make_pack(folder, kept, name="other.bpk")
    other.rename(pack)
    refused = run(BPK, "recover", "--commit", pack)
    assert refused.status == 1 and "--force" in refused.err
    shown = run(BPK, "recover", "--force", pack)
    assert shown.status == 0, shown
    result = run(BPK, "recover", "--force", "--commit", pack)
    assert result.status == 3, result
    lines = result.out.decode().splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith("edited   tensors/conv.weight: changed  ! its base tensor \"conv.weight\" is not in this pack")
    assert lines[1].startswith("edited   tensors/text2: renamed from tensors/text  ! its base tensor \"text\" is not in this pack")
    want = edit.book(folder / "model.bpk")
    assert {t[0] for t in want.tensors} == {"conv.bias", "fc.weight", "odd/na%me.json", "norm.beta"}
    assert want.tensor("fc.weight")[3] == b"\7" * 64 and want.metadata["k"] == "edited"
    assert want.tensor("norm.beta")[3:] == edit.TENSORS[5][3:]

    with edit.edited(pack, status=3) as mount:
        assert sorted(edit.problems(mount)) == ["tensors/conv.weight", "tensors/text2"]
        assert "is not in this pack" in edit.problems(mount)["tensors/text2"]
        with open(mount.tensors / "conv.weight", "rb") as file:
            file.seek(70000)
            assert file.read(9) == b"own bytes"
        refused = run(BPK, "commit", mount.path)
        assert refused.status == 1 and "is not in this pack" in refused.err
        (mount.tensors / "new").write_bytes(b"1")
        edit.write_sidecar(mount, "new", "U8", [1])
        assert run(BPK, "commit", "--valid", mount.path).status == 0
    assert "new" in bpkref.read(pack).tensors

    with edit.edited(pack) as mount:  # mended
        (mount.tensors / "conv.weight").write_bytes(b"all")
        edit.write_sidecar(mount, "conv.weight", "U8", [3])
        (mount.tensors / "text2").unlink()
        assert json.loads(run(BPK, "status", "--json", mount.path).out)["problems"] == []
    assert bpkref.read(pack).tensors["conv.weight"].bytes() == b"all"


def test_force_with_a_tensor_of_another_length(folder, pack):
    """Neither bytes of its neighbour nor a part of it come in."""
    leave_edits(pack, lambda mount: (mount.tensors / "text").rename(mount.tensors / "text2"))
    tensors = [("text", "U8", [5], b"short", 21), *(t for t in edit.TENSORS if t[0] != "text")]
    other = edit.make_pack(folder, tensors, name="other.bpk")
    other.rename(pack)
    before = edit.book(pack)
    result = run(BPK, "recover", "--force", "--commit", pack)
    assert result.status == 3 and b"had 640 bytes, and has 5 in this pack" in result.out, result
    assert edit.book(pack) == before


def test_a_look_with_force_leaves_all_as_it_is(folder, pack):
    """Edits of another pack are taken by --commit, or a mount that is told so, and by nothing else."""
    leave_edits(pack, lambda mount: (mount.tensors / "fc.weight").unlink())
    edit.make_pack(folder, metadata={"other": "pack"}, name="other.bpk").rename(pack)
    before = {path.name: path.read_bytes() for path in edit.edits_folder(pack).iterdir()}
    whole = pack.read_bytes()
    for _ in range(2):
        shown = run(BPK, "recover", "--force", pack)
        assert shown.status == 0 and b"tensors/fc.weight: removed" in shown.out
        assert {path.name: path.read_bytes() for path in edit.edits_folder(pack).iterdir()} == before
    for command in (["recover", pack], ["recover", "--commit", pack], ["set", pack, "k=v"]):
        assert run(BPK, *command).status == 1 and pack.read_bytes() == whole
    assert run(BPK, "recover", "--force", "--commit", pack).status == 0
    assert "fc.weight" not in {t[0] for t in edit.book(pack).tensors}


def test_each_edit_is_shown_with_what_it_does(pack):
    def change(mount):
        (mount.tensors / "fc.weight").unlink()
        (mount.tensors / "text").rename(mount.tensors / "text2")
        (mount.tensors / "norm.gamma").write_bytes((mount.tensors / "norm.gamma").read_bytes()[::-1])
        (mount / "metadata/new").write_text("x\n")

    leave_edits(pack, change)
    lines = run(BPK, "recover", pack).out.decode().splitlines()
    assert sorted(lines[:-1]) == [
        "edited   metadata/new: new",
        "edited   tensors/fc.weight: removed",
        "edited   tensors/norm.gamma: changed",
        "edited   tensors/text2: renamed from tensors/text",
        "edited   tensors/text: removed",
    ]
    assert "'bpk recover --commit' writes the edits into the pack" in lines[-1]
    dropped = run(BPK, "recover", "--discard", pack)
    assert (dropped.status, dropped.out) == (0, b"the edits that were waiting are dropped\n")
    assert run(BPK, "recover", "--discard", pack).out == b"no edits\n"
