"""Tensors whose names are too long for a file's: their file names are cut, and stand for them as long as the mount."""

import json
import os

import numpy as np
import pytest

import bpkedit as edit

LONG_NAME = "layer." * 60 + "weight"


@pytest.fixture
def long_pack(folder):
    return edit.make_pack(folder, [(LONG_NAME, "U8", [4], b"1234", 9), *edit.TENSORS])


def cut_name(mount):
    return next(name for name in os.listdir(mount.tensors) if "%~" in name and not name.endswith(".json"))


def test_a_cut_name_stands_for_its_tensor_as_long_as_the_mount(long_pack):
    want = edit.book(long_pack)
    with edit.edited(long_pack, log=[]) as mount:
        cut = mount.tensors / cut_name(mount)
        cut.rename(mount.tensors / "short")
        edit.commit(mount)
        edit.check_clean(mount)
        assert not cut.exists()
        (mount.tensors / "short").rename(cut)
        assert edit.problems(mount) == {} and json.loads((cut.parent / f"{cut.name}.json").read_text())["name"] == LONG_NAME
        assert np.load(mount / "views/npy" / f"{cut.name}.npy").tobytes() == b"1234"
        edit.commit(mount)
        edit.check_clean(mount)
    assert {t[0]: t[1:] for t in edit.book(long_pack).tensors} == {t[0]: t[1:] for t in want.tensors}


def test_a_cut_name_is_free_for_its_tensor_after_it_was_removed(long_pack):
    with edit.edited(long_pack, log=[]) as mount:
        cut = mount.tensors / cut_name(mount)
        cut.unlink()
        edit.commit(mount)
        cut.write_bytes(b"abcdef")
        edit.write_sidecar(mount, cut.name, "U8", [6])
        assert edit.problems(mount) == {}
        edit.commit(mount)
        edit.check_clean(mount)
    assert edit.book(long_pack).tensor(LONG_NAME)[3] == b"abcdef"
    with edit.edited(long_pack, status=3) as mount:
        (mount.tensors / f"{cut.name[:-1]}x").write_bytes(b"1")
        edit.write_sidecar(mount, f"{cut.name[:-1]}x", "U8", [1])
        assert len(edit.problems(mount)) == 1


def test_an_edited_tensor_with_a_cut_name_is_in_the_index(long_pack):
    with edit.edited(long_pack) as mount:
        cut = mount.tensors / cut_name(mount)
        cut.write_bytes(b"5678")
        rows = [line.split("\t") for line in (mount / "index.tsv").read_text().splitlines()]
        assert [row[1:] for row in rows if row[0] == cut.name] == [['"U8"', "4", "4", "-"]]
