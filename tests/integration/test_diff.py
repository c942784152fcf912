"""bpk diff: what one pack has and another has not, or has otherwise."""

import json
import os
import struct

import pytest

import bpkedit as edit
import bpkref
from conftest import FIXTURES, NO_SHARED, run_bpk

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]
NAN = struct.unpack("<Q", struct.pack("<d", float("nan")))[0]


@pytest.fixture
def pair(folder):
    """A function that makes two packs, the second as CHANGE(book) leaves it."""

    def make(change=lambda book: None, **options):
        first = edit.make_pack(folder, **options)
        book = edit.book(first)
        change(book)
        second = edit.make_pack(folder, book.tensors, book.metadata, book.scalars, name="second.bpk")
        return first, second

    return make


def differences(first, second):
    """The lines, each without spaces at its ends; -q and --json must agree."""
    plain, quiet = run_bpk("diff", first, second), run_bpk("diff", "-q", first, second)
    as_json = run_bpk("diff", "--json", first, second)
    assert plain.err == quiet.err == as_json.err == "" and quiet.out == b""
    assert plain.status == quiet.status == as_json.status == (1 if plain.out else 0)
    lines = plain.out.decode().splitlines()
    said = json.loads(as_json.out)
    marks = {"-": "removed", "+": "added", "!": "changed"}
    for mark, word in marks.items():
        count = sum(len(said[section][word]) for section in ("tensors", "metadata", "scalars"))
        assert count == len([line for line in lines if line[0] == mark])
    return lines, said


@pytest.mark.parametrize("name", NAMES)
def test_fixture_is_the_same_as_itself(folder, name):
    """And as its tensors in another order and layout."""
    path = FIXTURES / f"{name}.bpk"
    assert differences(path, path)[0] == []
    book = edit.book(path)
    other = folder / "other.bpk"
    other.write_bytes(bpkref.build(book.tensors[::-1], book.metadata, book.scalars))
    assert differences(path, other)[0] == []


def test_everything_at_once(pair):
    def change(book):
        book.change("conv.weight", data=edit.WEIGHT[:-1] + b"x").change("fc.weight", shape=[16], param_id=None)
        book.change("norm.gamma", dtype="F16").change("text", shape=[1], data=b"1", param_id=5)
        book.change("odd/na%me.json", name="odd/other").add("s", "U8", [], b"1")
        book.metadata.update(k="w", new="1")
        del book.metadata["producer"]
        book.scalars.update(epoch=("Int", 3), n=("Bool", True))
        del book.scalars["lr"]

    lines, said = differences(*pair(change))
    assert lines == [
        "! tensors/conv.weight  bytes",
        "! tensors/fc.weight  shape 4x4 -> 16, param_id 7 -> none",
        '! tensors/norm.gamma  dtype "BF16" -> "F16"',
        '- tensors/odd%2Fna%25me%2Ejson  "U8" 5',
        '+ tensors/odd%2Fother  "U8" 5',
        '+ tensors/s  "U8" scalar',
        "! tensors/text  shape 640 -> 1, param_id 21 -> 5, bytes",
        '! metadata.json  "k": "v" -> "w"',
        '+ metadata.json  "new": "1"',
        '- metadata.json  "producer": "pytest"',
        '! scalars.json  "epoch": {"UInt": 3} -> {"Int": 3}',
        '- scalars.json  "lr": {"Float": 0.001}',
        '+ scalars.json  "n": {"Bool": true}',
    ]
    flags = {"dtype": False, "shape": False, "param_id": False, "bytes": False}
    assert said["tensors"]["changed"] == [
        {"name": "conv.weight", **flags, "bytes": True},
        {"name": "fc.weight", **flags, "shape": True, "param_id": True},
        {"name": "norm.gamma", **flags, "dtype": True},
        {"name": "text", **flags, "shape": True, "param_id": True, "bytes": True},
    ]
    assert said["tensors"]["removed"] == ["odd/na%me.json"] and said["tensors"]["added"] == ["odd/other", "s"]
    assert said["metadata"] == {"removed": ["producer"], "added": ["new"], "changed": ["k"]}
    assert said["scalars"] == {"removed": ["lr"], "added": ["n"], "changed": ["epoch"]}


@pytest.mark.parametrize("at", [0, 1, (256 << 10) - 1, 256 << 10, (16 << 20) - 1, 16 << 20, (40 << 20) - 1])
def test_one_byte_of_many(pair, at):
    data = bytes(40 << 20)
    tensors = [("a", "U8", [3], b"abc", 1), ("big", "U8", [len(data)], data, 2)]
    other = data[:at] + b"\1" + data[at + 1 :]
    lines, _ = differences(*pair(lambda book: book.change("big", data=other), tensors=tensors))
    assert lines == ["! tensors/big  bytes"]


@pytest.mark.parametrize("seed", range(5))
def test_random_packs(pair, seed):
    """Which of 300 tensors differ is found, whatever thread has them."""
    state = bytes((seed * 7 + i * i) % 251 for i in range(300))
    tensors = [(f"t{i:03}", "U8", [i], bytes([i % 256]) * i, i) for i in range(1, 300)]

    def change(book):
        for i in range(1, 300):
            if state[i] % 3 == 0:
                book.change(f"t{i:03}", data=bytes([i % 256]) * (i - 1) + b"\xff" if i != 255 else bytes(255))

    lines, _ = differences(*pair(change, tensors=tensors))
    assert lines == [f"! tensors/t{i:03}  bytes" for i in range(1, 300) if state[i] % 3 == 0]


def test_dtypes_and_floats(pair):
    """A Bool's store counts, and every bit of a NaN."""
    nans = {"a": ("Float", NAN), "b": ("Float", NAN)}

    def change(book):
        book.change("conv.bias", dtype={"Bool": "Native"})
        book.scalars["b"] = ("Float", NAN | 1)

    lines, _ = differences(*pair(change, scalars=nans))
    assert lines == [
        '! tensors/conv.bias  dtype {"Bool": "U8"} -> {"Bool": "Native"}',
        '! scalars.json  "b": {"Float": "NaN"} -> {"Float": "0x7ff8000000000001"}',
    ]


def test_what_must_not_reach_a_terminal(pair):
    def change(book):
        book.add("\x1b[31m\u202e", "U8", [1], b"1")
        book.metadata.update({"\x1b": "\x1b]0;x\x07" + "long " * 100})

    lines, _ = differences(*pair(change))
    assert lines[0] == '+ tensors/%1B[31m%E2%80%AE  "U8" 1'
    assert lines[1].startswith('+ metadata.json  "\\u001b": "\\u001b]0;x\\u0007long') and len(lines[1]) < 150


def test_keys_with_a_nul(pair):
    lines, _ = differences(*pair(lambda book: book.metadata.update({"a\0": "2"}), metadata={"a\0": "1", "a": "1"}))
    assert lines == ['! metadata.json  "a\\u0000": "1" -> "2"']


def test_trouble(folder, pair):
    first, second = pair()
    (folder / "bad").write_bytes(b"no pack")
    for arguments in ([first, folder / "none"], [folder / "none", first], [first, folder / "bad"]):
        result = run_bpk("diff", *arguments)
        assert (result.status, result.out) == (2, b"") and result.err.count("\n") == 1
    assert run_bpk("diff", first).status == 2 and run_bpk("diff", "-q", "--json", first, second).status == 2
    with open("/dev/full", "wb") as full:
        edit.make_pack(folder, edit.TENSORS[1:])
        assert run_bpk("diff", first, second, stdout=full).status == 2


def test_cut_file_is_trouble(folder):
    """No difference is claimed of bytes that could not be read."""
    size = 1 << 20
    first = edit.make_pack(folder, [("w", "U8", [size], bytes(size), 1)])
    second = edit.make_pack(folder, [("w", "U8", [size], bytes(size), 1)], name="second.bpk")
    os.truncate(second, size // 2)
    result = run_bpk("diff", first, second)
    assert (result.status, result.out) == (2, b"") and "second.bpk: " in result.err
