"""Proves the writer: CBOR as Burn emits it (examples of the format notes), file names, and XXH3 against libxxhash."""

import ctypes
import random
import struct

import pytest

import bpkwrite as w
from bpkref import build, decode_name, encode_name, file_names, read


def bits(value):
    """The 64-bit pattern of a float."""
    return int.from_bytes(struct.pack(">d", value), "big")


@pytest.mark.parametrize(
    "pattern, expected",
    [
        (bits(0.5), "f93800"),
        (0x3FB99999A0000000, "fa3dcccccd"),
        (bits(0.001), "fb3f50624dd2f1a9fc"),
        (bits(65504.0), "f97bff"),
        (bits(65505.0), "fa477fe100"),
        (bits(-0.0), "f98000"),
        (bits(float("inf")), "f97c00"),
        (0x7FF8 << 48, "f97e00"),
        (0xFFF8 << 48, "f9fe00"),
        (0x7FF8 << 48 | 1, "fb7ff8000000000001"),
        (0x7FF8 << 48 | 1 << 42, "f97e01"),
        (0x7FF8 << 48 | 1 << 29, "fa7fc00001"),
        (0x7FF4 << 48, "fb7ff4000000000000"),
        (bits(2.0**-24), "f90001"),
        (1, "fb0000000000000001"),
    ],
)
def test_floats_shrink_only_bit_exactly(pattern, expected):
    assert w.floating(pattern).hex() == expected
    assert read(build(scalars={"s": ("Float", pattern)})).scalars == {"s": ("Float", pattern)}


def scheme(**fields):
    return {"QFloat": {"mode": "Symmetric", "store": "Native", "value": "Q8S", **fields}}


def block(size):
    return {"len": 1, "storage": [size, 1, 1, 1, 1]}


@pytest.mark.parametrize(
    "dtype, expected",
    [
        ("Flex32", "66466c65783332"),
        ({"Bool": "Native"}, "a164426f6f6c664e6174697665"),
        (
            scheme(param="F32", level={"Block": block(32)}),
            "a16651466c6f6174a56576616c75656351385365706172616d634633326573746f7265664e6174697665656c6576656ca165426c"
            "6f636ba26773746f7261676585182001010101636c656e01646d6f64656953796d6d6574726963",
        ),
        (
            scheme(param="UE4M3", level={"BlockTensor": {"global": "F32", "block": block(16)}}),
            "a16651466c6f6174a56576616c75656351385365706172616d655545344d336573746f7265664e6174697665656c6576656ca16b"
            "426c6f636b54656e736f72a265626c6f636ba26773746f72616765851001010101636c656e0166676c6f62616c63463332646d6f"
            "64656953796d6d6574726963",
        ),
        (
            scheme(value="Q8F", store={"PackedU32": 0}),
            "a16651466c6f6174a56576616c7565635138466573746f7265a1695061636b656455333200646d6f64656953796d6d6574726963"
            "6674656e736f72f665626c6f636bf6",
        ),
        (
            scheme(tensor="F32", block={"dtype": "UE4M3", "size": block(16)}),
            "a16651466c6f6174a56576616c7565635138536573746f7265664e6174697665646d6f64656953796d6d65747269636674656e73"
            "6f726346333265626c6f636ba26473697a65a26773746f72616765851001010101636c656e01656474797065655545344d33",
        ),
    ],
)
def test_dtypes_are_emitted_and_read_back(dtype, expected):
    assert w.item(w.ordered_dtype(dtype)).hex() == expected
    tensor = read(build([("a", dtype, [0], b"", None)])).tensors["a"]
    assert (tensor.dtype, tensor.dtype_cbor.hex()) == (w.ordered_dtype(dtype), expected)


def test_sample_of_the_format_notes():
    tensors = [("w", "U8", [0], b"", 7), ("", {"Bool": "Native"}, [], b"\1", None)]
    pack = build(tensors, {"k": "v"}, {"step": ("UInt", 1)})
    assert pack[10:].startswith(bytes.fromhex("a36774656e736f7273a260a3656474797065a164426f6f6c664e6174697665"))
    rest = "68706172616d5f696407686d65746164617461a1616b6176677363616c617273a16473746570a16455496e7401"
    assert bytes.fromhex(rest) in pack
    assert build() == b"NRUB\1\0\x0a\0\0\0\xa1\x67tensors\xa0" + bytes(236)
    with pytest.raises(ValueError):
        build([tensors[0], tensors[0]])


def test_data_keeps_the_order_given_and_starts_on_256():
    pack = read(build([("z", "U8", [1], b"z", None), ("e", "U8", [0], b"", None), ("a", "U8", [2], b"aa", None)]))
    assert {t.name: (t.start, t.end) for t in pack.tensors.values()} == {"a": (256, 258), "e": (256, 256), "z": (0, 1)}
    assert len(build([("z", "U8", [1], b"z", None), ("e", "U8", [0], b"", None)])) == pack.data_start + 256


# --- File names ---


@pytest.mark.parametrize(
    "name, file_name",
    [
        ("", "%"),
        ("conv1.conv.weight", "conv1.conv.weight"),
        ("a/b", "a%2Fb"),
        ("..", "%2E."),
        (".", "%2E"),
        ("a.json", "a%2Ejson"),
        (".json", "%2Ejson"),
        ("a.json.b", "a.json.b"),
        ("a.JSON", "a.JSON"),
        ("~", "%7E"),
        ("~a~", "~a%7E"),
        ("a\0\n\x7f%", "a%00%0A%7F%25"),
        ("日本 é\x80", "日本 é\x80"),
    ],
)
def test_file_name_and_back(name, file_name):
    assert encode_name(name) == file_name
    assert decode_name(file_name) == decode_name(file_name.encode()) == name


def test_file_names_that_stand_for_nothing():
    odd = ("50%", "%2f", "%61", "%C3%A9", ".a", "a~", "a.json", "a/b", "x" * 251, f"x%~{0:016x}", b"\xff", "")
    for file_name in odd:
        assert decode_name(file_name) is None


def test_long_file_names_are_cut_at_a_whole_unit():
    assert encode_name("x" * 250) == "x" * 250
    assert encode_name("x" * 251) == "x" * 232 + f"%~{w.xxh3_64(b'x' * 251):016x}"
    cut = {"é" * 200: "é" * 116, "x" + "é" * 200: "x" + "é" * 115, "/" * 90: "%2F" * 77}
    cut["x" * 231 + "/" * 9] = "x" * 231
    for name, kept in cut.items():
        assert encode_name(name) == kept + f"%~{w.xxh3_64(name.encode()):016x}"
        assert decode_name(encode_name(name)) is None


def test_clashing_file_names(monkeypatch):
    monkeypatch.setattr(w, "xxh3_64", lambda data: w.U64)
    names = ["x" * 300 + end for end in "bac"]
    marks = [file_names(names)[name][-18:] for name in sorted(names)]
    assert marks == ["%~" + "f" * 16, "%~" + "0" * 16, "%~" + "0" * 15 + "1"]


def test_xxh3_against_libxxhash():
    try:
        library = ctypes.CDLL("libxxhash.so.0")
    except OSError as error:
        pytest.skip(f"no libxxhash: {error}")
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    chance = random.Random(1)
    for size in [*range(600), *range(1020, 1100), 2048, 4096, 10_000]:
        data = chance.randbytes(size)
        assert w.xxh3_64(data) == library.XXH3_64bits(data, size), size


@pytest.mark.parametrize(
    "size, expected",
    [
        (0, 0x2D06800538D394C2),
        (1, 0xEAF06C6480B2CD11),
        (5, 0x6351934F6A1AA938),
        (12, 0x38D09D542189D4E2),
        (100, 0xC90984FFDF50CE42),
        (200, 0x50EF124FB1E4DE53),
        (300, 0xA5D1B4607DC83554),
        (5000, 0x8D8567CBC9EE3D90),
    ],
)
def test_xxh3_of_that_many_x(size, expected):
    """Values that libxxhash 0.8.1 gives."""
    assert w.xxh3_64(b"x" * size) == expected
