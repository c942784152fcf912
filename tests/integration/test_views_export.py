"""views/export/: the whole pack, and the whole model as a safetensors file, read without being built."""

import json
import os
import shutil

import numpy as np
import pytest

import bpkedit as edit
import bpkref
import bpksafetensors
from conftest import FIXTURES, NO_SHARED, code_of, mounted, run_bpk

PACKS = sorted(FIXTURES.glob("*.bpk")) or [pytest.param(FIXTURES, marks=NO_SHARED)]
DTYPES = {"Flex32": "F32", "Bool": "BOOL"}


def pack_view(mount):
    return mount / "views/export/model.bpk"


def model_view(mount):
    return mount / "views/export/model.safetensors"


def expected_dtype(dtype):
    if isinstance(dtype, str):
        return DTYPES.get(dtype, dtype)
    return "U8" if "QFloat" in dtype else "U32" if dtype == {"Bool": "U32"} else "BOOL"


def check_model(content, pack):
    """CONTENT is a safetensors file of all that PACK (of bpkref) has."""
    model = bpksafetensors.read(content)
    assert model.is_aligned()
    assert set(model.tensors) == set(pack.tensors)
    for name, tensor in pack.tensors.items():
        found = model.tensors[name]
        assert found.dtype == expected_dtype(tensor.dtype)
        is_quantised = isinstance(tensor.dtype, dict) and "QFloat" in tensor.dtype
        assert found.shape == ([len(tensor.bytes())] if is_quantised else list(tensor.shape))
        assert bytes(found.data) == tensor.bytes()
        if is_quantised:
            said = json.loads(model.metadata[f"qfloat:{name}"])
            assert said["shape"] == list(tensor.shape)
            assert said["dtype"]["QFloat"]["value"] == tensor.dtype["QFloat"]["value"]
    for key, value in pack.metadata.items():
        assert model.metadata[key] == value
    for name, (kind, _) in pack.scalars.items():
        if f"scalar:{name}" not in pack.metadata:
            assert list(json.loads(model.metadata[f"scalar:{name}"])) == [kind]


def read_backwards(path, step):
    """The file, in pieces of STEP bytes from its end to its begin."""
    size = path.stat().st_size
    parts = []
    fd = os.open(path, os.O_RDONLY)
    while size > 0:
        start = max(0, size - step)
        parts.append(os.pread(fd, size - start, start))
        size = start
    os.close(fd)
    return b"".join(reversed(parts))


# --- Without edits ---


@pytest.mark.parametrize("path", PACKS, ids=lambda p: p.stem)
def test_every_fixture(path):
    pack = bpkref.read(path)
    with mounted(path) as mount:
        assert pack_view(mount.path).read_bytes() == path.read_bytes()
        content = model_view(mount.path).read_bytes()
        assert model_view(mount.path).stat().st_size == len(content)
        check_model(content, pack)


def test_any_way_of_reading_gives_the_same_bytes(folder):
    pack = edit.make_pack(folder)
    with mounted(pack) as mount:
        for view in (pack_view(mount.path), model_view(mount.path)):
            whole = view.read_bytes()
            assert len(whole) == view.stat().st_size
    for view, step in ((pack_view, 1), (model_view, 1), (pack_view, 333), (model_view, 4097)):
        with mounted(pack) as mount:  # with nothing cached
            assert len(read_backwards(view(mount.path), step)) == view(mount.path).stat().st_size
            assert read_backwards(view(mount.path), step) == view(mount.path).read_bytes()


def test_cp_of_the_pack_is_a_pack(folder):
    pack = edit.make_pack(folder)
    with mounted(pack) as mount:
        shutil.copy(pack_view(mount.path), folder / "copy.bpk")
    assert (folder / "copy.bpk").read_bytes() == pack.read_bytes()


# --- With edits ---


def change_much(mount):
    (mount.tensors / "text").write_bytes(b"short")
    edit.write_sidecar(mount, "text", "U8", [5])
    with open(mount.tensors / "conv.weight", "r+b") as file:
        file.seek(5000)
        file.write(b"in the middle")
    os.rename(mount.tensors / "fc.weight", mount.tensors / "fc2.weight")
    os.unlink(mount.tensors / "conv.bias")
    np.save(mount / "views/npy/added.npy", np.arange(10, dtype="f8"))
    (mount / "metadata/note").write_text("made by a test\n")


def test_edits_are_in_it_as_the_commit_then_writes_them(folder):
    pack = edit.make_pack(folder)
    before = pack.read_bytes()
    with edit.edited(pack) as mount:
        change_much(mount)
        exported, model = pack_view(mount).read_bytes(), model_view(mount).read_bytes()
        assert read_backwards(pack_view(mount), 77) == exported
        assert pack.read_bytes() == before != exported
        edit.commit(mount)
        assert pack.read_bytes() == exported
        assert pack_view(mount).read_bytes() == exported
    check_model(model, bpkref.read(pack))


def test_an_edit_while_it_is_open_is_estale(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack) as mount:
        for view in (pack_view(mount), model_view(mount)):
            fd = os.open(view, os.O_RDONLY)
            assert os.pread(fd, 10, 0)
            number = os.fstat(fd).st_ino
            with open(mount.tensors / "text", "r+b") as file:
                file.write(b"other")
            assert code_of(os.pread, fd, 10, 70000) == "ESTALE"
            os.close(fd)
            assert view.stat().st_ino != number
            assert view.read_bytes()
        fd = os.open(pack_view(mount), os.O_RDONLY)
        edit.commit(mount)
        assert code_of(os.pread, fd, 10, 70000) == "ESTALE"
        os.close(fd)


def test_an_invalid_edit_is_not_exported_in_silence(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack, status=3) as mount:
        os.truncate(mount.tensors / "fc.weight", 60)
        assert code_of(pack_view(mount).read_bytes) == "EBADMSG"
        model = bpksafetensors.read(model_view(mount).read_bytes())
        assert "fc.weight" not in model.tensors and "text" in model.tensors
        said = edit.problems(mount)["views/export/model.safetensors"]
        assert "fc.weight" in said
        os.truncate(mount.tensors / "fc.weight", 0)
        (mount.tensors / "fc.weight").write_bytes(bytes(64))
        assert pack_view(mount).read_bytes()
        (mount / "scalars.json").write_bytes(b"{")
        assert code_of(pack_view(mount).read_bytes) == "EBADMSG"
        assert bpksafetensors.read(model_view(mount).read_bytes()).metadata["scalar:epoch"]


def test_what_safetensors_cannot_hold_is_left_out_by_name(folder):
    tensors = [
        ("__metadata__", "U8", [3], b"abc", None),
        ("plain", "U8", [3], b"abc", None),
    ]
    pack = edit.make_pack(folder, tensors, {"scalar:epoch": "mine"})
    with mounted(pack) as mount:
        model = bpksafetensors.read(model_view(mount.path).read_bytes())
        assert set(model.tensors) == {"plain"}
        assert model.metadata["scalar:epoch"] == "mine"
        status = json.loads((mount.path / ".bpkfs/status.json").read_text())
        said = [p["reason"] for p in status["problems"] if p["file"].endswith("safetensors")]
        assert any("__metadata__" in reason for reason in said)
        assert any("scalar:epoch" in reason for reason in said)
        assert json.loads(model.metadata["scalar:lr"]) == {"Float": 0.001}


# --- bpk export ---


def test_bpk_export(folder):
    pack = edit.make_pack(folder)
    out = folder / "out.safetensors"
    result = run_bpk("export", "--safetensors", pack, out)
    assert (result.status, result.out, result.err) == (0, b"", "")
    check_model(out.read_bytes(), bpkref.read(pack))
    with mounted(pack) as mount:
        assert model_view(mount.path).read_bytes() == out.read_bytes()
    assert run_bpk("export", "--safetensors", pack, "-").out == out.read_bytes()
    before = out.read_bytes()
    refused = run_bpk("export", "--safetensors", pack, out)
    assert refused.status == 1 and "--force" in refused.err and out.read_bytes() == before
    assert run_bpk("export", "--safetensors", "--force", pack, out).status == 0
    assert sorted(p.name for p in folder.iterdir()) == ["model.bpk", "out.safetensors"]


def test_bpk_export_over_a_pack(folder):
    """Not over the pack itself, by whatever name, nor over one that is in use."""
    pack, other = edit.make_pack(folder), edit.make_pack(folder, name="other.bpk")
    whole = pack.read_bytes()
    (folder / "link").symlink_to("model.bpk")
    (folder / "hard").hardlink_to(pack)
    for name in ("model.bpk", "link", "hard"):
        result = run_bpk("export", "--safetensors", "--force", pack, folder / name)
        assert result.status == 1 and "it is the pack itself" in result.err, result
    with edit.edited(pack):
        result = run_bpk("export", "--safetensors", "--force", other, pack)
        assert result.status == 1 and "it is mounted for writing" in result.err, result
    assert pack.read_bytes() == whole and (folder / "link").is_symlink()


def test_bpk_export_names_what_is_left_out(folder):
    pack = edit.make_pack(folder, [("__metadata__", "U8", [3], b"abc", None), ("w", "U8", [1], b"a", None)])
    result = run_bpk("export", "--safetensors", pack, folder / "out")
    assert result.status == 1 and "__metadata__" in result.err
    assert set(bpksafetensors.read((folder / "out").read_bytes()).tensors) == {"w"}


def test_bpk_export_usage(folder):
    pack = edit.make_pack(folder)
    assert run_bpk("export", pack, folder / "out").status == 2
    assert run_bpk("export", "--safetensors", pack).status == 2
    assert run_bpk("export", "--safetensors", folder / "absent", folder / "out").status == 1
    assert not (folder / "out").exists()
