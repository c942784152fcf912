"""views/stats/: statistics of tensors, computed when they are read."""

import json
import os

import numpy as np
import pytest

import bpkedit as edit
import bpkref
import bpkstats
from conftest import FIXTURES, NO_SHARED, SANITIZED, code_of, mounted

PACKS = sorted(FIXTURES.glob("*.bpk")) or [pytest.param(FIXTURES, marks=NO_SHARED)]


def view(mount, name):
    return mount / f"views/stats/{name}.json"


@pytest.mark.parametrize("path", PACKS, ids=lambda p: p.stem)
def test_every_tensor_of_every_fixture(path):
    pack = bpkref.read(path)
    names = bpkref.file_names(pack.tensors)
    with mounted(path) as mount:
        assert sorted(os.listdir(mount.path / "views/stats")) == sorted(f"{name}.json" for name in names.values())
        for name, tensor in list(pack.tensors.items())[:100]:
            file = view(mount.path, names[name])
            if bpkstats.stats(tensor) is None:
                assert code_of(file.read_bytes) == "ENOTSUP"
                continue
            size = file.stat().st_size  # known before it is computed
            content = file.read_bytes()
            assert len(content) == size
            bpkstats.check(json.loads(content), tensor)


def test_an_edit_shows_at_the_next_open(folder):
    pack = edit.make_pack(folder, [("w", "F32", [4], np.zeros(4, "f4").tobytes(), None)])
    with edit.edited(pack) as mount:
        assert json.loads(view(mount, "w").read_text())["zeros"] == 4
        assert json.loads(view(mount, "w").read_text())["zeros"] == 4
        with open(mount.tensors / "w", "r+b") as file:
            file.write(np.array([np.nan], "f4").tobytes())
        now = json.loads(view(mount, "w").read_text())
        assert (now["nan"], now["zeros"]) == (1, 3)
        np.save(mount / "views/npy/w.npy", np.arange(10, dtype="i8"))
        now = json.loads(view(mount, "w").read_text())
        assert (now["count"], now["max"]) == (10, 9)
        edit.commit(mount)
        assert json.loads(view(mount, "w").read_text()) == now
        assert not os.path.exists(view(mount, "absent"))


def test_a_whole_tensor_is_never_in_memory(folder):
    size = 200 << 20
    pack = folder / "large.bpk"
    pack.write_bytes(bpkref.build([("w", "F32", [size // 4], bytes(size), None)], {}, {}))
    with mounted(pack) as mount:
        assert json.loads(view(mount.path, "w").read_text())["zeros"] == size // 4
        assert SANITIZED or mount.peak() < 64 << 20
