"""The reader of safetensors files that other tests judge by: what it takes, and each rule that it must refuse by."""

import json
import struct

import pytest

from bpksafetensors import MAX_HEADER, Refused, read


def wrap(header, data=b""):
    """A file with HEADER, JSON or bytes that are padded."""
    if not isinstance(header, bytes):
        header = json.dumps(header, ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def info(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


# As the library writes it (safetensors/src/tensor.rs).
LIBRARY = b'@\0\0\0\0\0\0\0{"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}}' + bytes(24)


def test_the_librarys_own():
    file = read(LIBRARY)
    (tensor,) = file.tensors.values()
    assert (list(file.tensors), file.metadata) == (["attn.0"], {})
    assert (tensor.dtype, tensor.shape, bytes(tensor.data)) == ("F32", [1, 2, 3], bytes(24))
    assert read(b"\x08\0\0\0\0\0\0\0{}      ").tensors == {}


def test_what_is_taken():
    data = bytes(range(15))
    tensors = {
        "é": info("U8", [3], 8, 11),
        "empty": info("F64", [0, 7], 8, 8),
        "": info("BF16", [], 11, 13),
        "first": info("U64", [1], 0, 8),
        "last": info("BOOL", [2, 1], 13, 15),
    }
    file = read(wrap({"a": tensors["first"], "__metadata__": {"k": "v\n"}}, data[:8]))
    assert file.metadata == {"k": "v\n"} and file.is_aligned()
    file = read(wrap(tensors, data))
    assert list(file.tensors) == list(tensors) and not file.is_aligned()
    assert bytes(file.tensors["é"].data) == data[8:11]
    assert file.tensors[""].shape == [] and len(file.tensors["empty"].data) == 0


A, B = info("U8", [4], 0, 4), info("U8", [4], 4, 8)
BAD = [
    ("the header's length is there", b"\0" * 7),
    ("the header has at most 100 MB", struct.pack("<Q", MAX_HEADER + 1) + b"{}"),
    ("the header is there", struct.pack("<Q", 16) + b"{}      "),
    ("the header's length is a multiple of 8", struct.pack("<Q", 2) + b"{}"),
    ("the header begins with {", wrap(b" {}")),
    ("the header is padded with spaces", wrap(b"{}\n")),
    ("the header is JSON in UTF-8", wrap(b'{"\xff":{}}')),
    ("the header is JSON in UTF-8", wrap(b"{} {}")),
    ("duplicate keys", wrap(b'{"__metadata__":{"a":"1","a":"2"}}')),
    ("NaN is no JSON", wrap(b'{"a":NaN}')),
    ("__metadata__ is an object", wrap({"__metadata__": []})),
    ("__metadata__ has strings", wrap({"__metadata__": {"a": 1}})),
    ("a tensor has dtype, shape and data_offsets", wrap({"a": {**A, "more": 1}}, bytes(4))),
    ("a tensor has dtype, shape and data_offsets", wrap({"a": []})),
    ("a known dtype", wrap({"a": info("Q8", [4], 0, 4)}, bytes(4))),
    ("a shape is an array of sizes", wrap({"a": info("U8", [-4], 0, 4)}, bytes(4))),
    ("a shape is an array of sizes", wrap({"a": info("U8", [True, 4], 0, 4)}, bytes(4))),
    ("a shape is an array of sizes", wrap({"a": info("U8", "4", 0, 4)}, bytes(4))),
    ("data_offsets are two sizes", wrap({"a": {**A, "data_offsets": [0, 4, 4]}}, bytes(4))),
    ("data_offsets are inside the data", wrap({"a": A}, bytes(3))),
    ("data_offsets are inside the data", wrap({"a": info("U8", [4], 4, 0)}, bytes(4))),
    ("the length is that of shape and dtype", wrap({"a": info("U16", [4], 0, 4)}, bytes(4))),
    ("tensors do not overlap", wrap({"a": A, "b": info("U8", [4], 3, 7)}, bytes(7))),
    ("tensors do not overlap", wrap({"a": A, "b": A}, bytes(4))),
    ("there are no holes", wrap({"a": A, "b": info("U8", [4], 5, 9)}, bytes(9))),
    ("there are no holes", wrap({"b": B}, bytes(8))),
    ("there are no bytes behind the tensors", wrap({"a": A, "b": B}, bytes(9))),
]


@pytest.mark.parametrize("rule, content", BAD)
def test_what_is_refused(rule, content):
    with pytest.raises(Refused) as refused:
        read(content)
    assert str(refused.value) == rule


def test_cut_anywhere():
    for size in range(len(LIBRARY)):
        with pytest.raises(Refused):
            read(LIBRARY[:size])
