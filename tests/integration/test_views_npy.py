"""views/npy/: every tensor as a .npy file, read, mapped and written by NumPy itself."""

import io
import os
import shutil
import subprocess
import threading

import numpy as np
import pytest

import bpkedit as edit
import bpkref
import bpkview
from conftest import FIXTURES, NO_SHARED, code_of, mounted, run_bpk

PACKS = sorted(FIXTURES.glob("*.bpk")) or [pytest.param(FIXTURES, marks=NO_SHARED)]
HEADER = 128  # bytes of it for arrays of few dimensions


def view(mount, name):
    return mount / f"views/npy/{name}.npy"


def raw(array):
    """The bytes of an array in C order, little-endian."""
    array = np.ascontiguousarray(array)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def saved(array):
    """What numpy.save writes of an array in C order."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


# --- Reading ---


@pytest.mark.parametrize("path", PACKS, ids=lambda p: p.stem)
def test_every_tensor_of_every_fixture(path):
    pack = bpkref.read(path)
    with mounted(path) as mount:
        names = bpkref.file_names(pack.tensors)
        folder = mount.path / "views/npy"
        assert sorted(os.listdir(folder)) == sorted(f"{name}.npy" for name in names.values())
        for name, tensor in pack.tensors.items():
            file = folder / f"{names[name]}.npy"
            array = np.load(file)
            shape = tuple(tensor.shape)
            if isinstance(tensor.dtype, dict) and "QFloat" in tensor.dtype:
                shape = (len(tensor.bytes()),)
            assert array.shape == shape
            assert array.dtype == np.dtype(bpkview.numpy_string(tensor.dtype))
            assert array.tobytes() == tensor.bytes()
            assert file.stat().st_size == len(file.read_bytes())
            if array.size:
                assert np.load(file, mmap_mode="r").tobytes() == tensor.bytes()


def test_an_array_that_numpy_saved_is_the_view_byte_for_byte(folder):
    array = np.arange(24, dtype="f4").reshape(2, 3, 4)
    pack = edit.make_pack(folder, [("w", "F32", [2, 3, 4], array.tobytes(), None)])
    with mounted(pack) as mount:
        assert view(mount.path, "w").read_bytes() == saved(array)


def test_views_answer_to_their_names_without_being_listed(folder):
    pack = edit.make_pack(folder)
    with mounted(pack) as mount:
        assert not {"views", ".bpkfs"} & set(os.listdir(mount.path))
        assert sorted(os.listdir(mount.path / "views")) == ["export", "f32", "npy", "stats"]
        assert sorted(os.listdir(mount.path / "views/export")) == ["model.bpk", "model.safetensors"]
        assert code_of(os.stat, mount.path / "views/npy/absent.npy") == "ENOENT"
        assert code_of(os.stat, mount.path / "views/npy/text") == "ENOENT"
        assert code_of(os.stat, mount.path / "views/npy/text.json.npy") == "ENOENT"
        assert code_of(os.stat, mount.path / "views/other") == "ENOENT"
    with mounted(pack, "views=listed") as mount:
        assert {"views", ".bpkfs"} <= set(os.listdir(mount.path))


def test_every_range_of_a_view_is_that_part_of_it(folder):
    pack = edit.make_pack(folder)
    with mounted(pack) as mount:
        file = view(mount.path, "text")
        whole = file.read_bytes()
        fd = os.open(file, os.O_RDONLY)
        for start in (0, 1, HEADER - 1, HEADER, HEADER + 1, len(whole) - 1, len(whole), len(whole) + 9):
            for size in (1, 2, 127, 4096):
                assert os.pread(fd, size, start) == whole[start : start + size]
        os.close(fd)


def test_a_read_only_mount_takes_no_arrays(folder):
    pack = edit.make_pack(folder)
    with mounted(pack) as mount:
        assert code_of(np.save, mount.path / "views/npy/new.npy", np.zeros(3)) == "EROFS"
        assert code_of(os.unlink, view(mount.path, "text")) == "EROFS"


# --- Saving ---

ARRAYS = {
    "c": (np.arange(12, dtype="f4").reshape(3, 4), "F32"),
    "fortran": (np.asfortranarray(np.arange(24, dtype="f8").reshape(2, 3, 4)), "F64"),
    "transposed": (np.arange(6000, dtype="i2").reshape(60, 100).T, "I16"),
    "scalar": (np.array(3.5, "f4"), "F32"),
    "empty": (np.zeros((0, 3), "i4"), "I32"),
    "big_endian": (np.arange(5, dtype=">i4"), "I32"),
    "big_fortran": (np.asfortranarray(np.arange(15, dtype=">u8").reshape(3, 5)), "U64"),
    "half": (np.arange(7, dtype="f2"), "F16"),
    "bool": (np.array([[True], [False]]), {"Bool": "Native"}),
    "int8": (np.array([-128, 127], "i1"), "I8"),
    "uint8": (np.arange(256, dtype="u1"), "U8"),
    "uint16": (np.arange(3, dtype="u2"), "U16"),
    "uint32": (np.arange(3, dtype="u4"), "U32"),
    "int64": (np.array([-(2**63)], "i8"), "I64"),
    "bfloat16": (np.frombuffer(b"\x80\x3f\0\0", "V2"), "BF16"),
    "large": (np.arange(1 << 20, dtype="f4").reshape(4, -1), "F32"),
    "large_fortran": (np.asfortranarray(np.arange(1 << 20, dtype="f4").reshape(1024, -1)), "F32"),
}


def test_saved_arrays_are_tensors(folder):
    pack = edit.make_pack(folder)
    expected = edit.book(pack)
    with edit.edited(pack) as mount:
        for name, (array, _) in ARRAYS.items():
            np.save(view(mount, name), array)
        for name, (array, dtype) in ARRAYS.items():
            assert (mount.tensors / name).read_bytes() == raw(array)
            assert edit.sidecar(mount, name)["dtype"] == dtype
            assert edit.sidecar(mount, name)["shape"] == list(array.shape)
            again = np.load(view(mount, name))
            assert again.shape == array.shape and again.tobytes() == raw(array)
        assert edit.problems(mount) == {}
        edit.commit(mount)
        for name, (array, _) in ARRAYS.items():
            assert np.load(view(mount, name)).tobytes() == raw(array)
    for name, (array, dtype) in sorted(ARRAYS.items()):
        expected.add(name, dtype, list(array.shape), raw(array))
    edit.check_pack(pack, expected)


REFUSED = {
    "complex": np.zeros(3, "c8"),
    "object": np.array([{}], dtype=object),
    "text": np.array(["a"]),
    "bytes": np.array([b"a"]),
    "structured": np.zeros(2, dtype=[("a", "f4")]),
    "long_double": np.zeros(2, np.longdouble),
    "date": np.array(["2020-01-01"], "M8[D]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_burn_cannot_hold_is_refused_by_name(folder, name):
    pack = edit.make_pack(folder)
    before = pack.read_bytes()
    with edit.edited(pack, status=3) as mount:
        assert code_of(np.save, view(mount, "new"), REFUSED[name]) == "EINVAL"
        reason = edit.problems(mount)["views/npy/new.npy"]
        assert REFUSED[name].dtype.descr[0][1][-2:] in reason or "structured" in reason
        assert not (mount.tensors / "new").exists()
        assert code_of(edit.commit, mount) == "EBADMSG"
        assert "views/npy/new.npy" in edit.outcome(mount)
        # Over a tensor: what that was stays in force.
        assert code_of(np.save, view(mount, "fc.weight"), REFUSED[name]) == "EINVAL"
        assert (mount.tensors / "fc.weight").read_bytes() == bytes(range(64))
        os.unlink(view(mount, "fc.weight"))
        assert np.load(view(mount, "fc.weight")).tobytes() == bytes(range(64))
    assert pack.read_bytes() == before
    with edit.edited(pack) as mount:  # it is still there, and can be removed
        assert list(edit.problems(mount)) == ["views/npy/new.npy"]
        os.unlink(view(mount, "new"))
        assert edit.problems(mount) == {}
    assert pack.read_bytes() == before


OVER = {
    "same": (np.ones((4, 4), "f4"), "fc.weight", "F32"),
    "shape": (np.ones((2, 3), "f4"), "fc.weight", "F32"),
    "dtype": (np.ones((4, 4), "i8"), "fc.weight", "I64"),
    "bfloat": (np.frombuffer(b"12345678", "V2"), "norm.gamma", "BF16"),
    "bool": (np.array([False, True]), "conv.bias", {"Bool": "U8"}),
    "fortran": (np.asfortranarray(np.arange(16, dtype="f4").reshape(4, 4)), "fc.weight", "F32"),
}


@pytest.mark.parametrize("case", OVER)
def test_over_a_tensor_the_header_decides(folder, case):
    array, name, dtype = OVER[case]
    pack = edit.make_pack(folder)
    expected = edit.book(pack)
    expected.change(name, dtype=dtype, shape=list(array.shape), data=raw(array))
    with edit.edited(pack) as mount:
        number = os.stat(mount.tensors / name).st_ino
        np.save(view(mount, name), array)
        assert os.stat(mount.tensors / name).st_ino == number
        assert os.stat(mount.tensors / name).st_size == len(raw(array))
        assert (mount.tensors / name).read_bytes() == raw(array)
    edit.check_pack(pack, expected)


def test_spellings_of_the_dtype_stay_where_they_mean_the_same(folder):
    tensors = [
        ("flex", "Flex32", [2], bytes(8), 1),
        ("bool", {"Bool": "U32"}, [2], bytes(8), 2),
        ("u32", "U32", [2], bytes(8), 3),
    ]
    pack = edit.make_pack(folder, tensors)
    expected = edit.book(pack)
    with edit.edited(pack) as mount:
        np.save(view(mount, "flex"), np.ones(3, "f4"))
        np.save(view(mount, "bool"), np.ones(3, "u4"))
        np.save(view(mount, "u32"), np.ones(3, "u4"))
    one = np.ones(3, "u4").tobytes()
    expected.change("flex", shape=[3], data=np.ones(3, "f4").tobytes())
    expected.change("bool", shape=[3], data=one).change("u32", shape=[3], data=one)
    edit.check_pack(pack, expected)


def test_an_array_that_comes_in_pieces(folder):
    pack = edit.make_pack(folder)
    array = np.arange(10, dtype="i4")
    expected = edit.book(pack).add("new", "I32", [10], raw(array))
    with edit.edited(pack) as mount:
        whole = saved(array)
        for i in range(len(whole)):
            with open(view(mount, "new"), "ab") as file:
                file.write(whole[i : i + 1])
            if i + 1 < len(whole):
                assert "views/npy/new.npy" in edit.problems(mount)
                assert not (mount.tensors / "new").exists()
        assert edit.problems(mount) == {}
    edit.check_pack(pack, expected)


def test_a_part_of_an_array_stays_until_it_is_whole(folder):
    pack = edit.make_pack(folder)
    before = pack.read_bytes()
    whole = saved(np.arange(1000, dtype="i4"))
    with edit.edited(pack, status=3) as mount:
        view(mount, "fc.weight").write_bytes(whole[:2000])
        assert "4000" in edit.problems(mount)["views/npy/fc.weight.npy"]
        assert view(mount, "fc.weight").read_bytes() == whole[:2000]
    assert pack.read_bytes() == before
    expected = edit.book(pack).change("fc.weight", dtype="I32", shape=[1000], data=whole[HEADER:])
    with edit.edited(pack) as mount:
        assert view(mount, "fc.weight").read_bytes() == whole[:2000]
        assert (mount.tensors / "fc.weight").read_bytes() == bytes(range(64))
        with open(view(mount, "fc.weight"), "ab") as file:
            file.write(whole[2000:])
    edit.check_pack(pack, expected)


def test_bytes_behind_the_data_are_no_array(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack, status=3) as mount:
        assert code_of(view(mount, "new").write_bytes, saved(np.zeros(3)) + b"x") == "EINVAL"
        assert "25" in edit.problems(mount)["views/npy/new.npy"]


# --- In place ---


def test_a_writable_map_writes_the_tensor(folder):
    pack = edit.make_pack(folder)
    data = np.arange(16, dtype="f4").reshape(4, 4)
    expected = edit.book(pack).change("fc.weight", data=data.tobytes())
    with edit.edited(pack) as mount:
        array = np.load(view(mount, "fc.weight"), mmap_mode="r+")
        array[:] = data
        array.flush()
        assert (mount.tensors / "fc.weight").read_bytes() == data.tobytes()
        del array
        assert np.load(view(mount, "fc.weight")).tobytes() == data.tobytes()
    edit.check_pack(pack, expected)


def test_a_map_of_a_new_file(folder):
    pack = edit.make_pack(folder)
    data = np.arange(30, dtype="i2").reshape(5, 6)
    expected = edit.book(pack).add("new", "I16", [5, 6], data.tobytes())
    with edit.edited(pack) as mount:
        array = np.lib.format.open_memmap(view(mount, "new"), mode="w+", dtype="i2", shape=(5, 6))
        array[:] = data
        del array
    edit.check_pack(pack, expected)


def test_a_write_in_place_keeps_header_and_size(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack, status=0) as mount:
        file = view(mount, "fc.weight")
        whole = file.read_bytes()
        fd = os.open(file, os.O_RDWR)
        assert os.pwrite(fd, whole[:HEADER] + b"abcd", 0) == HEADER + 4
        assert os.pwrite(fd, b"yz", len(whole) - 2) == 2
        assert code_of(os.pwrite, fd, b"x", len(whole)) == "EINVAL"
        assert code_of(os.pwrite, fd, b"X", 20) == "EINVAL"
        assert code_of(os.ftruncate, fd, len(whole) - 1) == "EINVAL"
        os.ftruncate(fd, len(whole))
        os.fsync(fd)
        os.close(fd)
        assert (mount.tensors / "fc.weight").read_bytes() == b"abcd" + bytes(range(4, 62)) + b"yz"
        assert edit.problems(mount) == {}


def test_what_another_name_changed_is_seen_at_the_next_open(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack) as mount:
        tensor, array = mount.tensors / "fc.weight", view(mount, "fc.weight")
        for turn in range(4):
            data = bytes([turn]) * 64
            assert len(array.read_bytes()) == HEADER + 64 and len(tensor.read_bytes()) == 64
            if turn % 2:
                with open(tensor, "r+b") as file:
                    file.write(data)
            else:
                with open(array, "r+b") as file:
                    file.seek(HEADER)
                    file.write(data)
            assert array.read_bytes()[HEADER:] == data
            assert tensor.read_bytes() == data
        edit.change_sidecar(mount, "fc.weight", shape=[2, 8])
        assert np.load(array).shape == (2, 8)


# --- Names ---


def test_names_of_views_stand_for_their_tensors(folder):
    pack = edit.make_pack(folder)
    expected = edit.book(pack).drop("text").change("fc.weight", name="other")
    with edit.edited(pack) as mount:
        os.unlink(view(mount, "text"))
        assert not (mount.tensors / "text").exists()
        os.rename(view(mount, "fc.weight"), view(mount, "other"))
        assert (mount.tensors / "other").read_bytes() == bytes(range(64))
        assert not view(mount, "fc.weight").exists()
        assert code_of(os.rename, view(mount, "other"), mount / "views/npy/other.bak") == "EXDEV"
        assert code_of(os.mkdir, mount / "views/npy/d") == "EPERM"
        assert code_of(os.mkdir, mount / "views/d") == "EPERM"
        assert code_of((mount / "views/f32/new.npy").write_bytes, b"") == "EPERM"
        assert code_of((mount / "views/stats/text.json").write_bytes, b"") in ("EACCES", "EPERM", "ENOENT")
        names = {p.name for p in (mount / "views/npy").iterdir()}
        assert names == {f"{n}.npy" for n in bpkref.file_names(t[0] for t in expected.tensors).values()}
    edit.check_pack(pack, expected)


def test_names_that_look_like_an_editors(folder):
    """What the base has is the base's; a new name with a leading # stays scratch."""
    odd = ("#x#", "#part", "w.bak", "4913")
    pack = edit.make_pack(folder, [(name, "F32", [2], bytes(8), 7) for name in odd])
    array = np.array([1, 2, 3], dtype="f4")
    whole = saved(array)
    with edit.edited(pack, status=3) as mount:
        for name in ("#x#", "w.bak", "4913", "#new"):
            np.save(view(mount, name), array)
        view(mount, "#part").write_bytes(whole[:-1])
        assert edit.status(mount)["scratch"] == ["views/npy/#new.npy"]
        assert list(edit.problems(mount)) == ["views/npy/#part.npy"]
    with edit.edited(pack) as mount:
        assert not view(mount, "#new").exists()
        with open(view(mount, "#part"), "ab") as file:
            file.write(whole[-1:])
    expected = edit.book(pack)
    assert sorted(expected.tensors) == sorted((name, "F32", [3], raw(array), 7) for name in odd)


def test_what_is_done_to_a_view_is_seen_at_the_name_that_the_kernel_knows(folder):
    pack = edit.make_pack(folder)
    expected = edit.book(pack).drop("text", "conv.bias").change("fc.weight", name="other")
    expected.drop("norm.gamma").change("conv.weight", name="norm.gamma")
    with edit.edited(pack) as mount:
        for path in mount.tensors.iterdir():
            path.read_bytes()
        os.unlink(view(mount, "text"))
        os.rename(view(mount, "fc.weight"), view(mount, "other"))
        os.rename(view(mount, "conv.weight"), view(mount, "norm.gamma"))
        for name in ("text", "fc.weight", "conv.weight"):
            assert code_of(os.stat, mount.tensors / name) == "ENOENT"
            assert code_of(os.open, mount.tensors / name, os.O_RDONLY) == "ENOENT"
        assert (mount.tensors / "norm.gamma").read_bytes() == edit.WEIGHT
        # Nor is it in the way of the next one.
        np.save(view(mount, "text"), np.arange(3, dtype="i2"))
        assert (mount.tensors / "text").read_bytes() == np.arange(3, dtype="i2").tobytes()
        os.unlink(view(mount, "text"))
        os.unlink(view(mount, "conv.bias"))
        assert code_of(os.stat, mount.tensors / "conv.bias") == "ENOENT"
    edit.check_pack(pack, expected)


def test_files_moved_over_a_view(folder):
    pack = edit.make_pack(folder)
    array = np.arange(6, dtype="f8")
    expected = edit.book(pack).change("fc.weight", dtype="F64", shape=[6], data=raw(array))
    expected.add("new", "F64", [6], raw(array))
    with edit.edited(pack) as mount:
        for name in ("fc.weight", "new"):
            part = mount / "views/npy/.part"
            part.write_bytes(saved(array))
            os.rename(part, view(mount, name))
        bad = mount / "views/npy/.bad"
        bad.write_bytes(b"no array")
        assert code_of(os.rename, bad, view(mount, "new")) == "EINVAL"
        assert bad.read_bytes() == b"no array"
        assert np.load(view(mount, "new")).tobytes() == raw(array)
    edit.check_pack(pack, expected)


def test_ordinary_tools_copy_arrays(folder):
    pack = edit.make_pack(folder)
    array = np.arange(1000, dtype="f4").reshape(10, 100)
    source = folder / "source.npy"
    source.write_bytes(saved(array))
    expected = edit.book(pack).change("fc.weight", shape=[10, 100], data=raw(array))
    with edit.edited(pack) as mount:
        for name, command in enumerate(("cp", "cp -p", "install", "rsync -a", "rsync --inplace")):
            subprocess.run([*command.split(), source, view(mount, "fc.weight")], check=True)
            subprocess.run([*command.split(), source, view(mount, f"new{name}")], check=True)
            expected.add(f"new{name}", "F32", [10, 100], raw(array))
        shutil.copyfile(view(mount, "text"), folder / "text.npy")
        assert np.load(folder / "text.npy").tobytes() == edit.TEXT
    edit.check_pack(pack, expected)


def test_an_emptied_view_is_a_problem(folder):
    """The tensor is as it was, and whoever emptied its view learns that."""
    pack = edit.make_pack(folder)
    before = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        view(mount, "fc.weight").write_bytes(b"")
        assert edit.problems(mount) == {"views/npy/fc.weight.npy": "is empty: write it again, or remove it"}
        assert edit.status(mount)["scratch"] == []
        assert run_bpk("commit", mount.path).status == 1
    edit.check_pack(pack, before)
    with edit.edited(pack) as mount:
        assert list(edit.problems(mount)) == ["views/npy/fc.weight.npy"]
        view(mount, "fc.weight").unlink()
        assert edit.problems(mount) == {}
        assert np.load(view(mount, "fc.weight")).tobytes() == before.tensor("fc.weight")[3]
    edit.check_pack(pack, before)


def test_pending_files_stay_and_scratch_goes(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack, status=3) as mount:
        (mount / "views/npy/.scratch").write_bytes(b"x")
        (mount / "views/npy/notes").write_bytes(b"kept")
        (mount / "views/npy/empty.npy").write_bytes(b"")
        edit.commit(mount)
    with edit.edited(pack) as mount:
        assert (mount / "views/npy/notes").read_bytes() == b"kept"
        assert not (mount / "views/npy/.scratch").exists() and not view(mount, "empty").exists()
        os.unlink(mount / "views/npy/notes")


# --- Crashes ---


def test_arrays_outlive_a_killed_daemon(folder):
    pack = edit.make_pack(folder)
    whole = saved(np.arange(5000, dtype="i4"))
    mount = edit.WritableMount(pack, ())
    try:
        mount.wait_for_mount()
        np.save(view(mount, "new"), np.arange(4000, dtype="i8"))
        np.save(view(mount, "turned"), np.asfortranarray(np.arange(4000, dtype="i8").reshape(50, 80)))
        np.save(view(mount, "fc.weight"), np.arange(3000, dtype="f4"))
        view(mount, "part").write_bytes(whole[:3000])
        view(mount, "text").write_bytes(whole[:3000])
        array = np.load(view(mount, "new"), mmap_mode="r+")
        array[7] = -1
        array.flush()
        del array
    finally:
        mount.clear()
    with edit.edited(pack) as mount:
        data = np.arange(4000, dtype="i8")
        data[7] = -1
        assert np.load(view(mount, "new")).tobytes() == data.tobytes()
        assert np.load(view(mount, "turned")).tobytes() == np.arange(4000, dtype="i8").tobytes()
        assert np.load(view(mount, "fc.weight")).tobytes() == np.arange(3000, dtype="f4").tobytes()
        assert sorted(edit.problems(mount)) == ["views/npy/part.npy", "views/npy/text.npy"]
        assert (mount.tensors / "text").read_bytes() == edit.TEXT
        for name in ("part", "text"):
            with open(view(mount, name), "ab") as file:
                file.write(whole[3000:])
    expected = edit.book(pack)
    assert expected.tensor("part")[3] == expected.tensor("text")[3] == whole[HEADER:]
    assert expected.tensor("new")[1:4] == ("I64", [4000], data.tobytes())
    assert expected.tensor("text")[4] == 21  # the param_id


def test_others_go_on_while_a_large_array_is_put_in_order(folder):
    """... and what is written to it meanwhile counts."""
    pack = edit.make_pack(folder)
    array = np.asfortranarray(np.arange(1 << 23, dtype="f4").reshape(2048, -1))
    with edit.edited(pack) as mount:
        done = []

        def save():
            np.save(view(mount, "large"), array)
            done.append(True)

        thread = threading.Thread(target=save)
        thread.start()
        turns = 0
        while thread.is_alive():
            with open(mount.tensors / "text", "r+b") as file:
                file.write(b"%d" % turns)
            turns += 1
        thread.join()
        assert done and turns > 10
        assert np.array_equal(np.load(view(mount, "large"), mmap_mode="r"), array)
        assert edit.problems(mount) == {}
