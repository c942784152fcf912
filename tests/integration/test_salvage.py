"""bpk salvage: a new pack of what is whole in a truncated one."""

import os
import shutil

import pytest

import bpkcrash as crash
import bpkedit as edit
import bpkref
from conftest import leftovers, mounted, run_bpk


@pytest.fixture
def pack(folder):
    path = edit.make_pack(folder)
    path.chmod(0o640)
    return path


def salvage(pack, status=0):
    result = run_bpk("salvage", pack, pack.parent / "out.bpk")
    assert (result.status, result.out) == (status, b""), result
    assert leftovers(pack.parent / "out.bpk") == []
    return result.err.splitlines()


def test_whole_pack_comes_as_it_is(pack):
    before = pack.read_bytes()
    assert salvage(pack) == []
    out = pack.parent / "out.bpk"
    assert out.read_bytes() == before == pack.read_bytes() and out.stat().st_mode & 0o777 == 0o640


def test_cut_tensors_are_named(folder, pack):
    want, lost = edit.book(pack), []
    ends = {t.name: t.position + len(t.bytes()) for t in bpkref.read(pack).tensors.values()}
    for name in sorted(ends, key=ends.get, reverse=True):
        os.truncate(pack, ends[name] - 1)
        lost.append(name)
        lines = salvage(pack, status=1)
        assert len(lines) == len(lost), lines
        assert all(any(f"tensor '{name}' is left out: the file has" in line for line in lines) for name in lost)
        want.drop(name)
        edit.check_pack(folder / "out.bpk", want)
        (folder / "out.bpk").unlink()


def test_what_is_dropped_is_said(pack):
    want = edit.book(pack)
    with open(pack, "ab") as file:
        file.write(b"behind")
    assert len(salvage(pack)) == 1
    edit.check_pack(pack.parent / "out.bpk", want)


def test_refusals(folder, pack):
    before = pack.read_bytes()
    result = run_bpk("salvage", pack, pack)
    assert result.status == 1 and "there is a file of that name already" in result.err
    assert pack.read_bytes() == before
    os.truncate(pack, 40)
    result = run_bpk("salvage", pack, folder / "out.bpk")
    assert result.status == 1 and result.err.count("\n") == 1 and not (folder / "out.bpk").exists()
    assert run_bpk("salvage", pack).status == 2


def test_full_disk_leaves_nothing():
    with crash.tmpfs(6 << 20) as folder:
        pack = edit.make_pack(folder, [("big", "U8", [4 << 20], bytes([1]) * (4 << 20), None), *edit.TENSORS])
        os.truncate(pack, pack.stat().st_size - 1)
        result = run_bpk("salvage", pack, folder / "out.bpk")
        assert result.status == 1 and "no room for the new pack" in result.err
        assert sorted(os.listdir(folder)) == [pack.name]


def test_the_export_of_a_salvaged_mount_is_what_salvage_makes(folder, pack):
    want, whole = edit.book(pack), pack.read_bytes()
    last = max(bpkref.read(pack).tensors.values(), key=lambda tensor: tensor.end)
    os.truncate(pack, len(whole) - 1)
    want.drop(last.name)
    with mounted(pack, "salvage", expect=None) as mount:
        shutil.copy(mount.path / "views/export/model.bpk", folder / "copy.bpk")
    edit.check_pack(folder / "copy.bpk", want)
