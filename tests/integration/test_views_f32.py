"""views/f32/: the values of tensors as float32, converted as they are read."""

import json
import os

import numpy as np
import pytest

import bpkedit as edit
import bpkf32
import bpkref
from conftest import FIXTURES, NO_SHARED, code_of, mounted

PACKS = sorted(FIXTURES.glob("*.bpk")) or [pytest.param(FIXTURES, marks=NO_SHARED)]


def view(mount, name):
    return mount / f"views/f32/{name}.npy"


def assert_same(array, expected):
    """Bit for bit, but for NaNs."""
    assert (array.dtype, array.shape) == (np.dtype("<f4"), expected.shape)
    a, b = np.atleast_1d(array), np.atleast_1d(expected)
    assert not ((a.view("<u4") != b.view("<u4")) & ~(np.isnan(a) & np.isnan(b))).any()


@pytest.mark.parametrize("path", PACKS, ids=lambda p: p.stem)
def test_every_tensor_of_every_fixture(path):
    pack = bpkref.read(path)
    names = bpkref.file_names(pack.tensors)
    with mounted(path) as mount:
        refused = []
        for name, tensor in pack.tensors.items():
            file = view(mount.path, names[name])
            try:
                expected = bpkf32.values(tensor.dtype, tensor.shape, tensor.bytes())
            except (bpkf32.Unsupported, bpkf32.Misfit):
                assert code_of(file.read_bytes) == "ENOTSUP"
                refused.append(f"views/f32/{names[name]}.npy")
                continue
            assert_same(np.load(file), expected)
            assert file.stat().st_size == len(file.read_bytes())
            if expected.size:
                assert_same(np.array(np.load(file, mmap_mode="r")), expected)
        said = json.loads((mount.path / ".bpkfs/status.json").read_text())["problems"]
        assert {p["file"] for p in said if "/f32/" in p["file"]} == set(refused)


def test_any_range_is_that_part_of_it(folder):
    raw = np.random.default_rng(3).integers(0, 256, 2000, dtype="u1").tobytes()
    tensors = [("half", "F16", [1000], raw, None), ("int", "I64", [250], raw, None)]
    pack = edit.make_pack(folder, tensors)
    for name in ("half", "int"):
        with mounted(pack) as mount:
            whole = view(mount.path, name).read_bytes()
        with mounted(pack) as mount:  # with nothing cached
            fd = os.open(view(mount.path, name), os.O_RDONLY)
            for start in range(0, len(whole) + 5, 97):
                for size in (1, 3, 4, 5, 130):
                    assert os.pread(fd, size, start) == whole[start : start + size]
            os.close(fd)


def test_edits_show_at_the_next_open(folder):
    tensors = [("w", "BF16", [4], bytes(8), None)]
    pack = edit.make_pack(folder, tensors)
    with edit.edited(pack) as mount:
        assert np.load(view(mount, "w")).tolist() == [0, 0, 0, 0]
        (mount.tensors / "w").write_bytes(b"\x80\x3f" * 4)
        assert np.load(view(mount, "w")).tolist() == [1, 1, 1, 1]
        np.save(mount / "views/npy/w.npy", np.arange(3, dtype="f8"))
        assert np.load(view(mount, "w")).tolist() == [0, 1, 2]
        edit.commit(mount)
        assert np.load(view(mount, "w")).tolist() == [0, 1, 2]
        os.truncate(mount.tensors / "w", 20)  # bytes and shape that do not go together
        assert code_of(view(mount, "w").read_bytes) == "ENOTSUP"
        assert "views/f32/w.npy" in edit.problems(mount)
        os.truncate(mount.tensors / "w", 24)
        assert len(np.load(view(mount, "w"))) == 3
        assert edit.problems(mount) == {}


def test_it_cannot_be_written(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack) as mount:
        assert code_of(view(mount, "fc.weight").write_bytes, b"x") in ("EACCES", "EPERM")
        assert code_of(os.truncate, view(mount, "fc.weight"), 0) in ("EACCES", "EPERM")
        assert code_of(os.unlink, view(mount, "fc.weight")) == "EPERM"
