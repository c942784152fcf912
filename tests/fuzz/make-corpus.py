#!/usr/bin/python3
"""Writes the seeds of the fuzz targets into tests/fuzz/corpus/KIND/, named for what they are.

What a run of libFuzzer found besides stands there too, named for its content. Nothing is from elsewhere: packs are made
by the tests' own writer.
"""

import io
import json
import pathlib
import random
import struct
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import bpkwrite as w  # noqa: E402
from bpkmutate import SCHEME_A, SCHEME_B, SCHEME_D, rich_pack, small_pack  # noqa: E402
from bpkref import build, raw_pack  # noqa: E402


def packs():
    tensors = [("a", "U8", [3], b"abc", None), ("a.b", "F16", [2, 2], bytes(8), 7), ("b/%.json", "I64", [], bytes(8), 1)]
    legacy = build(tensors, {"version": "0.19.0", "producer": "burn"}, layout="legacy")
    small = small_pack()
    overlapping = [w.descriptor("U8", [n], 0, n) for n in (4, 8)]
    odd = w.mapping([(w.text("x"), overlapping[0]), (w.text("x"), overlapping[1]), (w.text("y"), overlapping[1])])
    chunks = bytes.fromhex("bf 7f6374656e64736f7273ff bf 7f6161ff".replace("74656e64736f7273", "74656e"))
    return {
        "empty": b"",
        "small": small,
        "rich": rich_pack(),
        "legacy": legacy,
        "none": build(),
        "long-name": build([("n" * 260 + ".json", "F32", [1], bytes(4), None)], {"k" * 300: "\0"}),
        "cut": small[:-3],
        "trailing": small + b"more",
        "overlapping": raw_pack(w.mapping([(w.text("tensors"), odd), (w.text("metadata"), w.mapping([]))]), bytes(8)),
        "chunks": raw_pack(chunks, bytes(8)),
    }


def texts():
    shape = {"shape": [2, 3], "param_id": "9505838338724798577"}
    dtypes = ["F32", {"Bool": "U8"}, "Bool", *({"QFloat": scheme} for scheme in (SCHEME_A, SCHEME_B, SCHEME_D))]
    made = {f"sidecar-{i}": json.dumps({"dtype": dtype, **shape}) for i, dtype in enumerate(dtypes)}
    made["sidecar-whole"] = json.dumps(
        {"name": "a", "dtype": "BF16", "nbytes": 12, "data_offsets": None, "numpy": "<V2", "problem": "x", **shape}, indent=2
    )
    made["metadata"] = json.dumps({"producer": "burn", "": "\u00e9\n\x1b", "k": "日本", "\U0001f525": "\\"})
    made["metadata-utf8"] = json.dumps({"é": "日本\U0001f525"}, ensure_ascii=False)
    made["scalars"] = json.dumps(
        {"i": {"Int": -3}, "u": {"UInt": "18446744073709551615"}, "f": {"Float": 1e-3}, "b": {"Bool": True}}
    )
    made["scalars-odd"] = json.dumps({n: {"Float": n} for n in ("NaN", "-Infinity", "0x7ff8000000000001")})
    made["twice"] = '{"a": "b", "a": "c"}'
    made["big"] = '{"e": {"UInt": 18446744073709551615}}'
    made["cut"] = '{"a": "\\u00'
    made["array"] = "[]"
    made["status"] = json.dumps(
        {
            **{"pack": "/p.bpk", "mode": "rw", "layout": "aligned", "tensors": 3, "scratch": [], "last_commit": None},
            **{"edits": [{"path": "tensors/a", "change": "renamed", "from": "tensors/b"}], "pid": 7},
            **{"problems": [{"file": "tensors/a", "reason": "too long"}]},
        }
    )
    return {name: text.encode() for name, text in made.items()}


def arrays():
    def save(array, version=None):
        out = io.BytesIO()
        numpy.lib.format.write_array(out, array, version)
        return out.getvalue()

    square = numpy.arange(12, dtype="<f4").reshape(3, 4)
    made = {
        "f4": save(square),
        "fortran": save(numpy.asfortranarray(square)),
        "big-endian": save(square.astype(">i2"), (2, 0)),
        "bool": save(numpy.array(True), (3, 0)),
        "empty": save(numpy.zeros((0, 3), dtype="<u8")),
        "bf16": save(numpy.zeros(3, dtype="V2")),
        "complex": save(numpy.zeros(1, dtype="<c8")),
        "structured": save(numpy.zeros(1, dtype=[("a", "<i4")])),
        "cube": save(numpy.asfortranarray(numpy.zeros((2, 3, 4), dtype=">f8"))),
    }
    made["cut"] = made["f4"][:30]
    text = b"{'descr':'|u1','fortran_order':True,'shape':(2L,3,),}\n"
    made["tight"] = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text
    return made


def operations():
    chance = random.Random(1)
    return {f"random-{size}": chance.randbytes(size) for size in (2, 30, 100, 300, 600, 1000)}


def main():
    made = {"json": texts(), "npy": arrays(), "ops": operations(), "pack": packs()}
    for kind, seeds in made.items():
        folder = HERE / "corpus" / kind
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (folder / name).write_bytes(data)


main()
