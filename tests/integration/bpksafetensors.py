"""Reads safetensors files in plain Python, from the specification (README of github.com/huggingface/safetensors) alone.

`read()` gives a File or raises Refused with the rule that is broken. It is stricter than the library in one thing:
the header's length must be a multiple of 8, as the library writes it, so that data begins aligned. Only the standard
library is used.
"""

import dataclasses
import json
import math
import struct

MAX_HEADER = 100_000_000  # bytes
SIZES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E5M2", "F8_E4M3"), 1),
}
KEYS = {"dtype", "shape", "data_offsets"}


class Refused(Exception):
    pass


def demand(condition, rule):
    if not condition:
        raise Refused(rule)


@dataclasses.dataclass
class Tensor:
    dtype: str
    shape: list
    data_offsets: list  # [begin, end), relative to the first byte of data
    data: memoryview


@dataclasses.dataclass
class File:
    metadata: dict  # of strings; empty if there is none
    tensors: dict  # by name, in the header's order
    header: bytes  # as it is, with its padding

    def is_aligned(self):
        """Whether each tensor starts on a multiple of its items' size, as the library has it."""
        return all(t.data_offsets[0] % SIZES[t.dtype] == 0 for t in self.tensors.values())


def unique(pairs):
    result = dict(pairs)
    demand(len(result) == len(pairs), "duplicate keys")
    return result


def refuse_constant(name):
    raise Refused(f"{name} is no JSON")


def parse(header):
    demand(header[:1] == b"{", "the header begins with {")
    try:
        text = header.decode("utf-8")
        fields = json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)
    except ValueError as error:
        raise Refused("the header is JSON in UTF-8") from error
    end = text.rindex("}") + 1
    demand(set(text[end:]) <= {" "}, "the header is padded with spaces")
    return fields


def is_size(number):
    return type(number) is int and 0 <= number < 1 << 64


def sizes(value, rule, count=None):
    demand(isinstance(value, list) and all(map(is_size, value)), rule)
    demand(count is None or len(value) == count, rule)
    return value


def read_tensor(info, data):
    demand(isinstance(info, dict) and set(info) == KEYS, "a tensor has dtype, shape and data_offsets")
    dtype = info["dtype"]
    demand(isinstance(dtype, str) and dtype in SIZES, "a known dtype")
    shape = sizes(info["shape"], "a shape is an array of sizes")
    begin, end = offsets = sizes(info["data_offsets"], "data_offsets are two sizes", 2)
    demand(begin <= end <= len(data), "data_offsets are inside the data")
    demand(end - begin == math.prod(shape) * SIZES[dtype], "the length is that of shape and dtype")
    return Tensor(dtype, shape, offsets, data[begin:end])


def read(content):
    content = memoryview(content)
    demand(len(content) >= 8, "the header's length is there")
    (length,) = struct.unpack("<Q", content[:8])
    demand(length <= MAX_HEADER, "the header has at most 100 MB")
    demand(length <= len(content) - 8, "the header is there")
    demand(length % 8 == 0, "the header's length is a multiple of 8")
    header, data = bytes(content[8 : 8 + length]), content[8 + length :]
    fields = parse(header)
    metadata = fields.pop("__metadata__", {})
    demand(isinstance(metadata, dict), "__metadata__ is an object")
    demand(all(isinstance(value, str) for value in metadata.values()), "__metadata__ has strings")
    tensors = {name: read_tensor(info, data) for name, info in fields.items()}
    at = 0
    for begin, end in sorted(tensor.data_offsets for tensor in tensors.values()):
        demand(begin >= at, "tensors do not overlap")
        demand(begin == at, "there are no holes")
        at = end
    demand(at == len(data), "there are no bytes behind the tensors")
    return File(metadata, tensors, header)
