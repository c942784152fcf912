"""Arrays that are half written in views/npy/, and open, while names are moved and removed around them.

Each case takes the array or its tensor away from the place where they meet. Whatever it does, every tensor and its view
go on showing the same bytes, under numbers of their own, and both can be written.
"""

import json
import mmap
import os
import resource
import shutil
import threading

import numpy as np
import pytest

import bpkedit as edit
from conftest import code_of
from test_views_npy import HEADER, raw, saved, view

ARRAY = np.arange(1000, dtype="i4")
WHOLE = saved(ARRAY)
HALF = len(WHOLE) // 2


def moved_over(mount):
    part = mount / "views/npy/.part"
    part.write_bytes(saved(np.arange(640, dtype="u1")))
    os.rename(part, view(mount, "text"))


def removed_and_made_again(mount):
    os.unlink(mount.tensors / "text")
    (mount.tensors / "text").write_bytes(b"again")
    edit.write_sidecar(mount, "text", "U8", [5])


def renamed_and_back(mount):
    os.rename(mount.tensors / "text", mount.tensors / "other")
    os.rename(mount.tensors / "other", mount.tensors / "text")


# What happens -> whether the array is still in its place, to be finished
CASES = {
    "unlink": (lambda mount: os.unlink(view(mount, "text")), False),
    "discard": (lambda mount: edit.control(mount, "discard"), False),
    "moved over": (moved_over, False),
    "tensor renamed": (lambda mount: os.rename(mount.tensors / "text", mount.tensors / "other"), True),
    "tensor renamed over another": (lambda mount: os.rename(mount.tensors / "text", mount.tensors / "fc.weight"), True),
    "another renamed over the tensor": (
        lambda mount: os.rename(mount.tensors / "fc.weight", mount.tensors / "text"),
        True,
    ),
    "tensor removed": (lambda mount: os.unlink(mount.tensors / "text"), True),
    "tensor removed and made again": (removed_and_made_again, True),
    "tensor renamed and back": (renamed_and_back, True),
}


def tensors(mount):
    return sorted(name for name in os.listdir(mount.tensors) if not name.endswith(".json"))


def check_views(mount, arrays=()):
    """Every tensor but those an array is coming into the place of is its view's data; all numbers differ."""
    numbers = []
    for name in tensors(mount):
        numbers.append(os.stat(mount.tensors / name).st_ino)
        numbers.append(os.stat(view(mount, name)).st_ino)
        if name not in arrays:
            assert view(mount, name).read_bytes()[HEADER:] == (mount.tensors / name).read_bytes()
            assert np.load(view(mount, name)).nbytes == os.stat(mount.tensors / name).st_size
    assert len(numbers) == len(set(numbers))
    listed = {entry.name: entry.inode() for entry in os.scandir(mount / "views/npy")}
    for name in tensors(mount):
        assert listed[f"{name}.npy"] == os.stat(view(mount, name)).st_ino


@pytest.mark.parametrize("case", CASES)
def test_an_open_array_and_names_that_change(folder, case):
    happen, stays = CASES[case]
    pack = edit.make_pack(folder)
    with edit.edited(pack) as mount:
        for name in tensors(mount):
            view(mount, name).read_bytes()
        with open(view(mount, "text"), "wb", 0) as file:
            file.write(WHOLE[:HALF])
            happen(mount)
            arrays = {"text"} if stays else set()
            check_views(mount, arrays)
            kept = {name: (mount.tensors / name).read_bytes() for name in tensors(mount)}
            for turn, name in enumerate(sorted(set(kept) - arrays)):
                kept[name] = bytes([turn]) * 9
                np.save(view(mount, name), np.frombuffer(kept[name], "u1"))
                check_views(mount, arrays)
            assert {name: (mount.tensors / name).read_bytes() for name in tensors(mount)} == kept
            assert os.fstat(file.fileno()).st_size == HALF
            file.write(WHOLE[HALF:])
        if stays:
            kept["text"] = raw(ARRAY)
        check_views(mount)
        assert {name: (mount.tensors / name).read_bytes() for name in tensors(mount)} == kept
        assert edit.problems(mount).keys() <= {"tensors/text.json", "tensors/fc.weight.json"}
        edit.commit(mount)
        check_views(mount)
    assert {tensor[0]: tensor[3] for tensor in edit.book(pack).tensors if tensor[0] in kept} == {
        name: data for name, data in kept.items() if "%" not in name
    }


def test_a_whole_array_that_is_moved_while_it_is_open(folder):
    pack = edit.make_pack(folder)
    expected = edit.book(pack).change("fc.weight", dtype="I32", shape=[1000], data=raw(ARRAY))
    changed = ARRAY.copy()
    changed[0] = -1
    expected.add("new", "I32", [1000], raw(changed))
    with edit.edited(pack) as mount:
        for name in ("new", "fc.weight"):
            with open(view(mount, "text"), "wb", 0) as file:
                file.write(WHOLE)
                os.rename(view(mount, "text"), view(mount, name))
                check_views(mount)
                assert (mount.tensors / "text").read_bytes() == edit.TEXT
                if name == "new":  # the handle went along
                    assert os.pwrite(file.fileno(), changed[:1].tobytes(), HEADER) == 4
            check_views(mount)
        assert (mount.tensors / "new").read_bytes() == raw(changed)
    edit.check_pack(pack, expected)


def test_scratch_that_becomes_a_view_while_it_is_open(folder):
    pack = edit.make_pack(folder)
    changed = ARRAY.copy()
    changed[0] = -1
    expected = edit.book(pack).add("new", "I32", [1000], raw(changed))
    with edit.edited(pack) as mount:
        with open(mount / "views/npy/.part", "wb", 0) as file:
            file.write(WHOLE)
            os.rename(mount / "views/npy/.part", view(mount, "new"))
            assert os.pwrite(file.fileno(), changed[:1].tobytes(), HEADER) == 4
            os.fsync(file.fileno())
            assert os.fstat(file.fileno()).st_size == len(WHOLE)
        check_views(mount)
    edit.check_pack(pack, expected)


def test_many_who_save_the_same_name(folder):
    pack = edit.make_pack(folder)
    arrays = [np.full(700, i, "i4") for i in range(6)]
    said = []

    def save(array):
        for _ in range(40):
            said.append(code_of(view(mount, "text").write_bytes, saved(array)))

    with edit.edited(pack) as mount:
        threads = [threading.Thread(target=save, args=(array,)) for array in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Who is cut off by another's open may be told so; nobody finds the file there or gone.
        assert set(said) <= {"done", "EINVAL"} and len(said) == 240, set(said)
        np.save(view(mount, "text"), arrays[3])
        check_views(mount)
    assert edit.book(pack).tensor("text")[3] == raw(arrays[3])


# --- Listings ---


def touch_all(mount, names):
    """Edits in every way what goes on having its name."""
    for turn, name in enumerate(names):
        if turn % 4 == 0:
            np.save(view(mount, name), np.arange(3, dtype="i2"))
        elif turn % 4 == 1:
            view(mount, name).write_bytes(WHOLE[:HALF])
        elif turn % 4 == 2:
            with open(mount.tensors / name, "r+b") as file:
                file.write(b"x")
        else:
            edit.change_sidecar(mount, name, param_id=turn)


@pytest.mark.parametrize("where", ["tensors", "views/npy", "views/f32", "views/stats"])
def test_what_is_edited_while_it_is_listed_comes_once(folder, where):
    names = [f"layer.{i:04}.{'w' * 60}" for i in range(2000)]
    pack = edit.make_pack(folder, [(name, "F32", [1], bytes(4), None) for name in names])
    with edit.edited(pack) as mount:
        arrays = names[1501::100]
        for name in arrays:
            view(mount, name).write_bytes(WHOLE[:HALF])
        before = sorted(os.listdir(mount / where))
        with os.scandir(mount / where) as entries:
            listed = [next(entries).name]
            touch_all(mount, names[::10])
            for name in arrays:
                with open(view(mount, name), "ab") as file:
                    file.write(WHOLE[HALF:])
            listed += [entry.name for entry in entries]
        assert sorted(listed) == before == sorted(os.listdir(mount / where))
        edit.control(mount, "discard")
        assert sorted(os.listdir(mount / where)) == before


# --- What is composed, and open while it changes ---


def test_what_is_composed_is_read_whole_however_long_it_is_by_then(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack) as mount:
        np.save(view(mount, "w" * 200), np.zeros(3))
        edit.change_sidecar(mount, "text", shape=[1, 1, 1, 1, 1, len(edit.TEXT)])
        files = [mount / ".bpkfs/status.json", mount / "index.tsv", mount / "views/stats/text.json"]
        texts = [file.read_bytes() for file in files]
        handles = [os.open(file, os.O_RDONLY) for file in files]
        os.unlink(mount.tensors / ("w" * 200))
        edit.change_sidecar(mount, "text", shape=[len(edit.TEXT)])
        edit.commit(mount)
        for file, handle, text in zip(files, handles, texts):
            assert os.stat(file).st_size < len(text)
            assert os.pread(handle, 1 << 20, 0) == text
            assert os.pread(handle, 1 << 20, len(text) - 7) == text[-7:]
            assert file.read_bytes() != text
            os.close(handle)
            shutil.copyfile(file, folder / "copy")
            assert (folder / "copy").read_bytes() == file.read_bytes()
            with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
                assert mapped[:] == file.read_bytes()


def test_a_tensor_that_is_cut_is_no_fault_of_the_pack(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack, log=[]) as mount:
        np.save(view(mount, "text"), ARRAY)
        handle = os.open(mount / "views/stats/text.json", os.O_RDONLY)
        os.truncate(mount.tensors / "text", 3)
        assert code_of(os.pread, handle, 100, 0) == "ESTALE"
        os.close(handle)
        edit.control(mount, "discard")


def test_an_open_view_goes_on_showing_what_was_discarded(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack, log=[]) as mount:
        np.save(view(mount, "text"), ARRAY)
        handles = [os.open(mount / name, os.O_RDONLY) for name in ("views/stats/text.json", "views/f32/text.npy")]
        edit.control(mount, "discard")
        assert json.loads(os.pread(handles[0], 1 << 16, 0))["count"] == ARRAY.size
        assert os.pread(handles[1], 1 << 20, 128) == raw(ARRAY.astype("f4"))
        for handle in handles:
            os.close(handle)


# --- What the daemon keeps open ---


def test_arrays_and_views_leave_no_file_open(folder):
    """Fewer files may be open than tensors are written and read."""
    names = [f"t{i}" for i in range(300)]
    pack = edit.make_pack(folder, [(name, "F32", [2], bytes(8), None) for name in names])
    with edit.edited(pack) as mount:
        resource.prlimit(mount.daemon.pid, resource.RLIMIT_NOFILE, (60, 60))
        for turn, name in enumerate(names):
            array = np.arange(6, dtype="f4").reshape(2, 3)
            if turn % 3 == 0:
                np.save(view(mount, name), np.asfortranarray(array))
            elif turn % 3 == 1:
                np.save(view(mount, name), array)
                np.load(view(mount, name), mmap_mode="r+")[:] = 1
            else:
                (mount / "views/npy/.part").write_bytes(saved(array))
                os.rename(mount / "views/npy/.part", view(mount, name))
        for name in names:
            for file in (f"npy/{name}.npy", f"f32/{name}.npy", f"stats/{name}.json"):
                (mount / "views" / file).read_bytes()
        assert len((mount / "views/export/model.safetensors").read_bytes()) > 300 * 24
        edit.commit(mount)
        assert len(os.listdir(f"/proc/{mount.daemon.pid}/fd")) < 30


@pytest.mark.parametrize("edited", [False, True], ids=["of-the-pack", "edited"])
@pytest.mark.parametrize("how", ["unlink", "replace"])
def test_an_open_view_goes_on_showing_a_tensor_that_lost_its_name(folder, how, edited):
    data = bytes(range(256)) * 4096
    pack = edit.make_pack(folder, [("w", "U8", [len(data)], data, None), ("other", "U8", [4], b"1234", None)])
    with edit.edited(pack) as mount:
        if edited:
            with open(mount.tensors / "w", "r+b") as file:
                file.write(data[:1])
        file = open(view(mount, "w"), "rb", buffering=0)
        assert file.read(10)
        mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
        if how == "unlink":
            os.unlink(mount.tensors / "w")
        else:
            os.rename(mount.tensors / "other", mount.tensors / "w")
        assert os.pread(file.fileno(), 1 << 21, 128 + 500_000) == data[500_000:]
        assert mapped[128:] == data
        edit.commit(mount)
        assert os.pread(file.fileno(), 1 << 21, 128 + 700_000) == data[700_000:]
        mapped.close()
        file.close()
