"""`bpk cat --f32`: the values of every fixture's tensors, bit for bit what a plain reference makes of them."""

import io
import random
import struct

import numpy as np
import pytest

import bpkf32
from bpkref import build, file_names, read
from conftest import FIXTURES, NO_SHARED, run_bpk

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]
SOME = 40  # tensors, of a pack that has very many


def judged(tensor):
    """What the reference makes of a tensor of bpkref; None if it refuses."""
    try:
        return bpkf32.values(tensor.dtype, tensor.shape, tensor.bytes())
    except (bpkf32.Unsupported, bpkf32.Misfit):
        return None


def assert_same(array, expected):
    """Bit for bit, but for NaNs."""
    assert (array.dtype, array.shape) == (np.dtype("<f4"), expected.shape)
    array, expected = np.atleast_1d(array), np.atleast_1d(expected)
    differs = (array.view("<u4") != expected.view("<u4")) & ~(np.isnan(array) & np.isnan(expected))
    assert not differs.any(), (array[differs][:5], expected[differs][:5])


def check_refused(path, name, words=""):
    result = run_bpk("cat", "--f32", "--", path, name)
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith(f"bpk: {path}: '") and result.err.count("\n") == 1
    assert words in result.err


def check_pack(path):
    """Compares the tensors of a pack, and returns how many have values."""
    pack = read(path)
    files = file_names(pack.tensors)
    expected = {files[name]: judged(pack.tensors[name]) for name in sorted(pack.tensors)[:SOME]}
    for file in [file for file in expected if expected[file] is None]:
        check_refused(path, file)
        del expected[file]
    if expected:
        result = run_bpk("cat", "--f32", "--", path, *expected)
        assert (result.status, result.err) == (0, "")
        stream = io.BytesIO(result.out)
        for file in expected:
            assert_same(np.load(stream), expected[file])
        assert stream.read() == b""
    return len(expected)


@pytest.mark.parametrize("name", NAMES)
def test_values_of_fixtures(name):
    check_pack(FIXTURES / f"{name}.bpk")


# --- Generated ---


PLAIN = [*bpkf32.NUMPY, "BF16", {"Bool": "Native"}, {"Bool": "U8"}, {"Bool": "U32"}]
STORES = [("Native", 1), ("PackedNative", 2), ("PackedU32", 4)]


def plain_size(dtype):
    if dtype == "BF16":
        return 2
    return np.dtype(bpkf32.BOOLS[dtype["Bool"]] if isinstance(dtype, dict) else bpkf32.NUMPY[dtype]).itemsize


def random_shape(rng):
    return [rng.choice([1, 2, 3, 4, 5, 8, 16, 17, 32]) for _ in range(rng.randrange(4))]


def random_scheme(rng, rank, old):
    """A scheme that fits the rank: mostly one that Burn dequantises, now and then any other."""
    value = rng.choice(list(bpkf32.VALUE_BITS))
    packed = rng.randrange(max(rank, 1))
    if value in ("E4M3", "E5M2"):
        store = "Native"
    elif value == "E2M1":
        store = {"PackedNative": packed}
    else:
        store = rng.choice(["Native", {"PackedU32": packed}, "U32" if old else "Native"])
    if rng.randrange(12) == 0:
        store = rng.choice(["Native", {"PackedNative": packed}, {"PackedU32": packed}])
    length = rng.randrange(rank + 1)
    storage = [rng.choice([1, 2, 4, 8, 16]) for _ in range(length)]
    size = {"storage": storage + [1] * (5 - length), "len": length}
    scale = rng.choice(list(bpkf32.SCALE_SIZES))
    blocks = rng.randrange(3) > 0
    if old:
        level = {"Block": size} if blocks else "Tensor"
        return {"value": value, "param": scale, "store": store, "level": level, "mode": "Symmetric"}
    block = {"size": size, "dtype": scale} if blocks else None
    tensor = rng.choice([None, "F32"]) if blocks else rng.choice([None, scale])
    mode = "Lookup" if rng.randrange(20) == 0 else "Symmetric"
    return {"value": value, "store": store, "mode": mode, "tensor": tensor, "block": block}


def length_of(fields, shape):
    """Bytes of a quantised tensor by format notes 3.2; old CPU back ends had scales of four."""
    scheme = bpkf32.Scheme(fields)
    bits = bpkf32.VALUE_BITS[scheme.value]
    element = {"Native": bits, "PackedNative": 2 * bits if scheme.value == "E2M1" else bits, "PackedU32": 32}
    lanes, size = element[scheme.store] // bits, -(-element[scheme.store] // 8)
    storage = list(shape)
    if lanes > 1 and shape:
        axis = len(shape) - 1 - scheme.packed_dim
        storage[axis] = -(-storage[axis] // lanes)
    grid = [-(-dim // block) for dim, block in zip(shape, scheme.blocks(shape))]
    count = int(np.prod(grid)) if scheme.block else 1
    total = int(np.prod(storage)) * size
    return total + (4 if scheme.block and scheme.tensor else 0), count, bpkf32.SCALE_SIZES[scheme.scale()]


@pytest.mark.parametrize("old", [False, True], ids=["newest", "older"])
def test_values_of_random_schemes(folder, old):
    rng = random.Random(7)
    good = 0
    for k in range(12):
        tensors = []
        for i in range(SOME):
            shape = random_shape(rng)
            fields = random_scheme(rng, len(shape), old)
            rest, count, size = length_of(fields, shape)
            size = rng.choice([size, 4]) if old else size
            raw = rng.randbytes(rest + count * size)
            tensors.append((f"{i}", {"QFloat": fields}, shape, raw, None))
        path = folder / f"{k}.bpk"
        path.write_bytes(build(tensors))
        good += check_pack(path)
    assert good > 100


def test_values_of_plain_dtypes(folder):
    rng = random.Random(8)
    tensors = []
    for i, dtype in enumerate(PLAIN):
        for k, shape in enumerate(([], [0, 3], [3, 1, 7], [70001])):
            raw = rng.randbytes(int(np.prod(shape)) * plain_size(dtype))
            tensors.append((f"{i}.{k}", dtype, shape, raw, None))
    for k in range(0, len(tensors), SOME):
        path = folder / f"{k}.bpk"
        path.write_bytes(build(tensors[k : k + SOME]))
        assert check_pack(path) == len(tensors[k : k + SOME])


def test_values_of_larger_tensors(folder):
    """Beyond every buffer: bpk writes 1 MiB at a time."""
    rng = random.Random(9)
    block = {"size": {"storage": [32, 1, 1, 1, 1], "len": 1}, "dtype": "F16"}
    scheme = {"value": "Q4S", "store": {"PackedU32": 0}, "mode": "Symmetric", "tensor": None, "block": block}
    wide = {**block, "size": {"storage": [3, 32, 1, 1, 1], "len": 2}}
    other = {**scheme, "store": {"PackedU32": 1}, "block": wide, "tensor": "F32"}
    path = folder / "large.bpk"
    tensors = [
        ("f16", "F16", [3, 200_001], rng.randbytes(1_200_006), None),
        ("q4", {"QFloat": scheme}, [600, 512], rng.randbytes(600 * 256 + 600 * 16 * 2), None),
        ("q4.1", {"QFloat": other}, [600, 512], rng.randbytes(75 * 512 * 4 + 200 * 16 * 2 + 4), None),
    ]
    path.write_bytes(build(tensors))
    assert check_pack(path) == 3


# --- The file, and what is refused ---


def test_file_is_what_numpy_writes(folder):
    array = np.linspace(-3, 3, 40, dtype="<f2").reshape(5, 8)
    path = folder / "a.bpk"
    path.write_bytes(build([("w", "F16", [5, 8], array.tobytes(), None), ("s", "F32", [], struct.pack("<f", 2), None)]))
    for name, expected in (("w", array.astype("<f4")), ("s", np.float32(2))):
        saved = io.BytesIO()
        np.save(saved, expected)
        result = run_bpk("cat", "--f32", "--", path, name)
        assert (result.status, result.out, result.err) == (0, saved.getvalue(), "")


def test_nothing_is_written_if_one_tensor_is_refused(folder):
    path = folder / "a.bpk"
    lookup = {"value": "Q8S", "store": "Native", "mode": "Lookup", "tensor": None, "block": None}
    tensors = [
        ("good", "U8", [3], b"abc", None),
        ("lookup", {"QFloat": lookup}, [4], bytes(8), None),
        ("long", "F16", [3], bytes(8), None),
        ("deep", "U8", [1] * 65, b"a", None),
        ("64", "U8", [1] * 64, b"a", None),
    ]
    path.write_bytes(build(tensors))
    refused = [
        (["good", "lookup"], "'lookup' is quantised with the mode Lookup, whose table is in no pack"),
        (["good", "long"], "'long' has 8 bytes, but shape [3] of F16 needs 6"),
        (["deep", "good"], "'deep' has 65 dimensions, an array of NumPy has at most 64"),
        (["good", "none"], "there is no tensor 'none'; 'bpk ls' lists them"),
    ]
    for names, sentence in refused:
        result = run_bpk("cat", "--f32", path, *names)
        assert (result.status, result.out, result.err) == (1, b"", f"bpk: {path}: {sentence}\n")
    assert run_bpk("cat", "--f32", path, "good", "64").status == 0
    assert run_bpk("cat", path, "lookup").out == bytes(8)  # the bytes are there all the same


def test_a_full_disk_is_told(folder):
    path = folder / "a.bpk"
    path.write_bytes(build([("w", "U8", [3], b"abc", None)]))
    with open("/dev/full", "wb") as full:
        result = run_bpk("cat", "--f32", path, "w", stdout=full)
    assert (result.status, result.err) == (1, "bpk: cannot write: No space left on device\n")
