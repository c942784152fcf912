"""bpk import: packs of safetensors files and of folders of .npy files."""

import json
import os
import struct

import pytest

import bpkcrash as crash
import bpkedit as edit
import bpkref
from conftest import FIXTURES, NO_SHARED, leftovers, run_bpk

np = pytest.importorskip("numpy")

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]


def good(*arguments, err=""):
    result = run_bpk(*arguments)
    assert (result.status, result.out, result.err) == (0, b"", err), result


def refused(folder, *arguments):
    before = sorted(os.listdir(folder))
    result = run_bpk(*arguments)
    assert result.status == 1 and result.out == b"" and result.err.count("\n") == 1, result
    assert sorted(os.listdir(folder)) == before
    return result.err


# --- safetensors ---


def wrap(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def info(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8"]


def test_every_dtype(folder):
    header, data, rows = {}, b"", []
    for i, dtype in enumerate([*DTYPES, "BOOL"]):
        burn = {"Bool": "Native"} if dtype == "BOOL" else dtype
        size = 1 if dtype == "BOOL" else bpkref.DTYPE_SIZES[dtype]
        raw = bytes(range(i, i + 6)) * size
        header[f"t/{dtype}"] = info(dtype, [2, 3], len(data), len(data) + len(raw))
        rows.append((f"t/{dtype}", burn, [2, 3], raw, None))
        data += raw
    header["scalar"] = info("U8", [], len(data), len(data) + 1)
    header["empty"] = info("F32", [0, 7], 0, 0)
    header["__metadata__"] = {"format": "pt", "note": "line\nline"}
    (folder / "a.safetensors").write_bytes(wrap(header, data + b"\7"))
    good("import", "--safetensors", folder / "a.safetensors", folder / "a.bpk")
    rows = [("empty", "F32", [0, 7], b"", None), *rows, ("scalar", "U8", [], b"\7", None)]
    assert (folder / "a.bpk").read_bytes() == bpkref.build(rows, header["__metadata__"], {})


@pytest.mark.parametrize("name", NAMES)
def test_exported_fixture_comes_back(folder, name):
    """But for what an export does not have: param_ids, Flex32, the stores of Bool."""
    pack = FIXTURES / f"{name}.bpk"
    if run_bpk("export", "--safetensors", pack, folder / "a.safetensors").status != 0:
        pytest.skip("not all of it can be exported")
    if any("\0" in tensor[0] for tensor in edit.book(pack).tensors):
        assert "NUL" in refused(folder, "import", "--safetensors", folder / "a.safetensors", folder / "a.bpk")
        return
    good("import", "--safetensors", folder / "a.safetensors", folder / "a.bpk")
    want, now = edit.book(pack), edit.book(folder / "a.bpk")
    assert (now.metadata, now.scalars) == (want.metadata, want.scalars)
    others = {"Flex32": "F32", "Bool": {"Bool": "Native"}}

    def dtype(tensor):
        if isinstance(tensor[1], dict) and "Bool" in tensor[1]:
            return "U32" if tensor[1]["Bool"] == "U32" else {"Bool": "Native"}
        return others.get(tensor[1], tensor[1]) if isinstance(tensor[1], str) else tensor[1]

    rows = {t[0]: (dtype(t), list(t[2]), t[3]) for t in want.tensors}
    assert {t[0]: (t[1], list(t[2]), t[3]) for t in now.tensors} == rows
    assert bpkref.read(folder / "a.bpk").problems == []


def test_words_that_are_not_ours_stay(folder):
    """What looks like a scalar or a quantised tensor and is none is metadata."""
    words = {
        "scalar:a": "1",
        "scalar:b": '{"UInt": 1}, "c": {"UInt": 2}',
        "scalar:d": '{"UInt": 3}',
        "qfloat:w": '{"dtype": "F32", "shape": [1]}',
        "qfloat:none": "{}",
    }
    (folder / "a").write_bytes(wrap({"__metadata__": words, "w": info("U8", [4], 0, 4)}, b"1234"))
    good("import", "--safetensors", folder / "a", folder / "a.bpk")
    now = edit.book(folder / "a.bpk")
    assert now.scalars == {"d": ("UInt", 3)} and now.metadata == {k: v for k, v in words.items() if k != "scalar:d"}
    assert now.tensors == [("w", "U8", [4], b"1234", None)]


REFUSALS = [
    (b"", "it ends before its header does"),
    (b"\0" * 7, "it ends before its header does"),
    (struct.pack("<Q", 100) + b"{}", "it ends before its header does"),
    (struct.pack("<Q", 1 << 63) + b"{}", "it ends before its header does"),
    (wrap(b"[]"), "must be an object"),
    (wrap(b"{"), "ends too early"),
    (wrap(b'{"a": {}, "a": {}}'), 'the key "a" is there twice'),
    (wrap({"a": info("F8_E4M3", [1], 0, 1)}, b"1"), 'the tensor "a" has the dtype F8_E4M3, which Burn has not'),
    (wrap({"a": info("Flex32", [1], 0, 4)}, b"1234"), "which Burn has not"),
    (wrap({"a": {}}), "has no dtype"),
    (wrap({"a": 5}), "has no dtype"),
    (wrap({"a": {"dtype": "U8"}}), "has no shape"),
    (wrap({"a": {"dtype": "U8", "shape": []}}), "has no data_offsets"),
    (wrap({"a": info("U8", [-1], 0, 1)}, b"1"), "has a shape that is no list of numbers"),
    (wrap({"a": info("U8", [2], 0, 2)}, b"1"), "beyond the file's end"),
    (wrap({"a": info("U8", [2], 2, 0)}, b"12"), "beyond the file's end, or that are no range"),
    (wrap({"a": info("U16", [2], 0, 2)}, b"12"), "another length than its shape and dtype need"),
    (wrap({"a": info("U8", [1 << 62, 4], 0, 0)}), "another length than its shape and dtype need"),
    (wrap({"a": info("U8", [1], 0, 1)}, b"12"), "1 byte comes after the last tensor"),
    (wrap({}, b"12"), "2 bytes come after the last tensor"),
    (wrap({"a": info("U8", [1], 1, 2)}, b"12"), '"a" starts at byte 1, after bytes of no tensor'),
    (wrap({"a": info("U8", [2], 0, 2), "b": info("U8", [2], 1, 3)}, b"123"), '"b" starts at byte 1, inside another'),
    (wrap({"a": info("U8", [1], 0, 1), "b": info("U8", [1], 2, 3)}, b"123"), '"b" starts at byte 2, after bytes of no'),
    (wrap({"__metadata__": 5}), "__metadata__ is no object"),
    (wrap({"__metadata__": {"a": 5}}), 'the value of "a" must be a string'),
]


@pytest.mark.parametrize("data, sentence", REFUSALS)
def test_safetensors_refused(folder, data, sentence):
    (folder / "a.safetensors").write_bytes(data)
    said = refused(folder, "import", "--safetensors", folder / "a.safetensors", folder / "a.bpk")
    assert said.startswith(f"bpk: {folder}/a.safetensors: ") and sentence in said


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_cut_and_damaged_headers(folder, cut):
    header = {"__metadata__": {"scalar:a": '{"UInt": 1}'}, "a": info("F32", [2], 0, 8), "b": info("U8", [1], 8, 9)}
    data = wrap(header, bytes(9))
    (folder / "cut").write_bytes(data[:cut])
    assert cut >= len(data) or refused(folder, "import", "--safetensors", folder / "cut", folder / "a.bpk")
    (folder / "damaged").write_bytes(data[:cut] + b"\xff" + data[cut + 1 :])
    result = run_bpk("import", "--safetensors", folder / "damaged", folder / "a.bpk")
    assert result.status in (0, 1) and (result.status == 0) == (folder / "a.bpk").exists()


# --- .npy files ---


def test_folder_of_arrays(folder):
    source = folder / "arrays"
    source.mkdir()
    arrays = {
        "b.weight": np.arange(12, dtype="<f4").reshape(3, 4),
        "a/x": np.asfortranarray(np.arange(24, dtype="<f8").reshape(2, 3, 4)),
        "big": np.arange(5, dtype=">i2"),
        "empty": np.zeros((0, 3), "<u8"),
        "bool": np.array([True, False]),
        "scalar": np.array(7, "i8"),
        "half": np.array([[1.5, 2.5]], "<f2").T.copy("F"),
        "fortran": np.asfortranarray(np.arange(60000, dtype=">u4").reshape(200, 300)),
    }
    for name, array in arrays.items():
        np.save(source / f"{bpkref.encode_name(name)}.npy", array)
    (source / "notes.txt").write_text("1")
    result = run_bpk("import", "--npy", source, folder / "a.bpk")
    assert result.status == 0 and result.err == f"bpk: {source}/notes.txt: left out: it is no .npy file\n"
    names = {"f4": "F32", "f8": "F64", "i2": "I16", "u8": "U64", "i8": "I64", "f2": "F16", "u4": "U32"}
    rows = []
    for name in sorted(arrays):
        array = arrays[name]
        kind = {"Bool": "Native"} if array.dtype == bool else names[array.dtype.str[1:]]
        rows.append((name, kind, list(array.shape), array.astype(array.dtype.newbyteorder("<")).tobytes("C"), None))
    assert (folder / "a.bpk").read_bytes() == bpkref.build(rows, {}, {})
    assert leftovers(folder / "a.bpk") == []


def test_arrays_refused(folder):
    source = folder / "arrays"
    source.mkdir()
    out = folder / "a.bpk"
    assert "there is no .npy file in it" in refused(folder, "import", "--npy", source, out)
    assert "cannot read: No such file" in refused(folder, "import", "--npy", folder / "none", out)
    np.save(source / "c.npy", np.zeros(3, "c8"))
    assert "c.npy: " in (said := refused(folder, "import", "--npy", source, out)) and "<c8" in said
    np.save(source / "c.npy", np.zeros(3, "f8"))
    os.truncate(source / "c.npy", (source / "c.npy").stat().st_size - 1)
    assert "c.npy: has 23 bytes of data, its header says 24" in refused(folder, "import", "--npy", source, out)
    os.truncate(source / "c.npy", 20)
    assert "c.npy: the header is not whole" in refused(folder, "import", "--npy", source, out)
    (source / "c.npy").rename(source / "50%.npy")
    assert "50%.npy: this is not how the name of a tensor is spelled" in refused(folder, "import", "--npy", source, out)


# --- Both ---


def test_existing_file_needs_force(folder):
    (folder / "a").write_bytes(wrap({"w": info("U8", [4], 0, 4)}, b"1234"))
    pack = edit.make_pack(folder)
    assert "'--force' replaces it" in refused(folder, "import", "--safetensors", folder / "a", pack)
    good("import", "--force", "--safetensors", folder / "a", pack)
    assert edit.book(pack).tensors == [("w", "U8", [4], b"1234", None)]
    with edit.edited(pack):
        said = run_bpk("import", "--force", "--safetensors", folder / "a", pack)
        assert said.status == 1 and "mounted for writing" in said.err


def test_full_disk_leaves_nothing():
    with crash.tmpfs(6 << 20) as folder:
        np.save(folder / "w.npy", np.asfortranarray(np.ones((1 << 10, 1 << 9), "f8")))
        assert "No space left on device" in refused(folder, "import", "--npy", folder, folder / "a.bpk")
        (folder / "w.npy").unlink()
        (folder / "a").write_bytes(wrap({"w": info("U8", [4 << 20], 0, 4 << 20)}, bytes([1]) * (4 << 20)))
        assert "no room for the new pack" in refused(folder, "import", "--safetensors", folder / "a", folder / "a.bpk")


def test_usage(folder):
    for arguments in ([], ["--npy"], ["--npy", "a"], ["a", "b"], ["--npy", "--safetensors", "a", "b"]):
        assert run_bpk("import", *arguments).status == 2
