"""The values of a tensor as float32 in plain NumPy, independently of the C code: the judge of `bpk cat --f32`.

`values(dtype, shape, raw)` gives an array, or raises Unsupported (what no version of Burn dequantises, or what cannot
be known) or Misfit (bytes, shape and scheme do not go together). It is written from the format notes, sections 3.2 to
3.6, value by value and with no thought of speed.
"""

import itertools
import math

import numpy as np

VALUE_BITS = {"Q8F": 8, "Q8S": 8, "E4M3": 8, "E5M2": 8, "Q4F": 4, "Q4S": 4, "E2M1": 4, "Q2F": 2, "Q2S": 2}
SCALE_SIZES = {"F32": 4, "F16": 2, "BF16": 2, "UE8M0": 1, "UE4M3": 1}
NUMPY = {"F64": "<f8", "F32": "<f4", "Flex32": "<f4", "F16": "<f2"}
NUMPY |= {kind + str(bits): f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)}
BOOLS = {"Native": "u1", "U8": "u1", "U32": "<u4"}


class Unsupported(Exception):
    pass


class Misfit(Exception):
    pass


def values(dtype, shape, raw):
    """DTYPE as in a sidecar, RAW the tensor's bytes."""
    if isinstance(dtype, dict) and "QFloat" in dtype:
        return dequantized(Scheme(dtype["QFloat"]), tuple(shape), raw)
    if dtype == "BF16":
        flat = (np.frombuffer(whole(raw, 2), "<u2").astype("<u4") << 16).view("<f4")
    elif dtype == "Bool" or isinstance(dtype, dict):
        store = "Native" if dtype == "Bool" else dtype["Bool"]
        size = np.dtype(BOOLS[store]).itemsize
        flat = (np.frombuffer(whole(raw, size), BOOLS[store]) != 0).astype("<f4")
    else:
        size = np.dtype(NUMPY[dtype]).itemsize
        with np.errstate(over="ignore", invalid="ignore"):
            flat = np.frombuffer(whole(raw, size), NUMPY[dtype]).astype("<f4")
    if flat.size != math.prod(shape):
        raise Misfit
    return flat.reshape(shape)


def whole(raw, size):
    if len(raw) % size:
        raise Misfit
    return raw


# --- Quantised ---


class Scheme:
    """A QuantScheme of any of its four forms (2.3), in the words of form D."""

    def __init__(self, fields):
        self.value, self.mode = fields["value"], fields["mode"]
        self.old = "level" in fields and ("block" not in fields and "tensor" not in fields or fields["store"] == "U32")
        store = fields["store"]
        self.store, self.packed_dim = next(iter(store.items())) if isinstance(store, dict) else (store, 0)
        if self.store == "U32":
            self.store = "PackedU32"
        if not self.old:
            block = fields.get("block")
            self.tensor = fields.get("tensor")
            self.block = block and block["dtype"]
            size = block and block["size"]
        else:
            level = fields["level"]
            if isinstance(level, dict) and "BlockTensor" in level:
                raise Unsupported("BlockTensor")
            size = None if level == "Tensor" else level["Block"]
            self.tensor, self.block = (None, fields["param"]) if size else (fields["param"], None)
        self.sizes = size and (size["len"], size["storage"])

    def scale(self):
        return self.block or self.tensor or "F32"

    def check(self):
        integer = self.value[0] == "Q"
        supported = {
            "Native": integer or self.value in ("E4M3", "E5M2"),
            "PackedU32": integer,
            "PackedNative": self.value == "E2M1",
        }
        if self.mode == "Lookup" or not supported[self.store]:
            raise Unsupported(f"{self.mode} {self.value} {self.store}")
        if self.block and self.tensor not in (None, "F32"):
            raise Unsupported("two levels")

    def blocks(self, shape):
        """The block's size along each dimension; without a block it is the whole tensor."""
        if self.block is None:
            return tuple(max(dim, 1) for dim in shape)
        length, storage = self.sizes
        if length > 5 or length > len(shape) or 0 in storage[:length]:
            raise Misfit
        return (1,) * (len(shape) - length) + tuple(storage[:length])


def ceil_div(a, b):
    return -(-a // b)


def dequantized(scheme, shape, raw):
    scheme.check()
    bits = VALUE_BITS[scheme.value]
    element_bits = {"Native": bits, "PackedNative": 8, "PackedU32": 32}[scheme.store]
    lanes, element_size = element_bits // bits, ceil_div(element_bits, 8)
    storage = list(shape)
    axis = None
    if lanes > 1 and shape:
        axis = len(shape) - 1 - scheme.packed_dim
        if axis < 0:
            raise Misfit
        storage[axis] = ceil_div(shape[axis], lanes)
    blocks = scheme.blocks(shape)
    grid = [ceil_div(dim, block) for dim, block in zip(shape, blocks)]
    scales_count = 1 if scheme.block is None else math.prod(grid)
    value_bytes = math.prod(storage) * element_size
    scale = scale_of(scheme, len(raw), value_bytes, scales_count)
    check_old_blocks(scheme, shape, blocks)
    scale_bytes = raw[value_bytes : value_bytes + scales_count * SCALE_SIZES[scale]]
    scales = np.array([decode_scale(scale, scale_bytes, i) for i in range(scales_count)], "<f4")
    with np.errstate(all="ignore"):
        if scheme.block and scheme.tensor:
            scales = np.frombuffer(raw[-4:], "<f4")[0] * scales
        result = np.empty(shape, "<f4")
        for coords in itertools.product(*map(range, shape)):
            at, lane = list(coords), 0
            if axis is not None:
                at[axis], lane = divmod(coords[axis], lanes)
            element = row_major(at, storage) * element_size
            word = int.from_bytes(raw[element : element + element_size], "little")
            # Native: the whole byte, however few bits the value has.
            q = decode_value(scheme.value, word >> lane * bits, 8 if scheme.store == "Native" else bits)
            block = row_major([c // b for c, b in zip(coords, blocks)], grid) if scheme.block else 0
            result[coords] = scales[block] * np.float32(q)
    return result


def row_major(coords, shape):
    index = 0
    for c, dim in zip(coords, shape):
        index = index * dim + c
    return index


def scale_of(scheme, size, value_bytes, count):
    """The dtype that the scales have, by the length (3.6, "Older forms")."""
    needed = value_bytes + count * SCALE_SIZES[scheme.scale()]
    if scheme.block and scheme.tensor:
        needed += 4
    if size == needed:
        return scheme.scale()
    if scheme.old and size == value_bytes + 4 * count:
        return "F32"
    raise Unsupported(f"{size} bytes, not {needed}")


def check_old_blocks(scheme, shape, blocks):
    """Old back ends cut blocks as rectangles or as runs of the flat values: is each element's block the same?"""
    if not scheme.old or scheme.block is None:
        return
    length, storage = scheme.sizes
    run = math.prod(storage[:length])
    grid = [ceil_div(dim, block) for dim, block in zip(shape, blocks)]
    for i, coords in enumerate(itertools.product(*map(range, shape))):
        if row_major([c // b for c, b in zip(coords, blocks)], grid) != i // run:
            raise Unsupported("the blocks may be rectangles or runs")


def decode_scale(scale, raw, index):
    size = SCALE_SIZES[scale]
    one = raw[index * size : (index + 1) * size]
    if scale == "UE8M0":
        return math.nan if one[0] == 255 else math.ldexp(1, one[0] - 127)
    if scale == "UE4M3":
        return decode_value("E4M3", one[0], 8)
    if scale == "BF16":
        one, scale = b"\0\0" + one, "F32"
    return np.frombuffer(one, NUMPY[scale])[0]


E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def decode_value(value, word, bits):
    code = word & (1 << bits) - 1
    if value[0] == "Q":
        return code - (1 << bits) if code >> bits - 1 else code
    if value == "E2M1":
        return math.copysign(E2M1[code & 7], -1 if code & 8 else 1)
    sign, mantissa_bits, bias = -1 if code & 128 else 1, {"E4M3": 3, "E5M2": 2}[value], {"E4M3": 7, "E5M2": 15}[value]
    exponent, mantissa = (code & 127) >> mantissa_bits, code & (1 << mantissa_bits) - 1
    if value == "E4M3" and code & 127 == 127:
        return math.nan
    if value == "E5M2" and exponent == 31:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return math.copysign(math.ldexp(mantissa, 1 - bias - mantissa_bits), sign)
    return sign * math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
