#!/usr/bin/env python3
"""Writes a small burnpack: the model of Burn's MNIST example in miniature, with random weights.

    make-demo.py FILE [EPOCH]

The same EPOCH (1 if none is given) gives the same bytes. From one epoch to the next the fc layers
change and the conv layers stay, as if they were frozen. Needs nothing but Python.
"""

import array
import math
import random
import struct
import sys

MAGIC = 0x4255524E
ALIGNMENT = 256

# Name, shape and fan-in of the layers, in the order in which their bytes are written.
LAYERS = [
    ("conv1.conv.weight", [8, 1, 3, 3], 9),
    ("conv1.conv.bias", [8], 9),
    ("conv1.norm.gamma", [8], None),
    ("conv1.norm.beta", [8], None),
    ("conv1.norm.running_mean", [8], None),
    ("conv1.norm.running_var", [8], None),
    ("conv2.conv.weight", [16, 8, 3, 3], 72),
    ("conv2.conv.bias", [16], 72),
    ("conv2.norm.gamma", [16], None),
    ("conv2.norm.beta", [16], None),
    ("conv2.norm.running_mean", [16], None),
    ("conv2.norm.running_var", [16], None),
    ("fc1.weight", [400, 64], 400),
    ("fc1.bias", [64], 400),
    ("fc2.weight", [64, 32], 64),
    ("fc2.bias", [32], 64),
    ("fc3.weight", [32, 10], 32),
    ("fc3.bias", [10], 32),
]


def head(major, number):
    """The first bytes of a CBOR item: its major type and a number, as short as it goes."""
    if number < 24:
        return bytes([major << 5 | number])
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes([major << 5 | info]) + number.to_bytes(size, "big")
    raise ValueError(number)


def real(value):
    """A float in the fewest bytes that keep it."""
    for initial, code in ((0xF9, ">e"), (0xFA, ">f"), (0xFB, ">d")):
        try:
            raw = struct.pack(code, value)
        except OverflowError:
            continue
        if struct.unpack(code, raw)[0] == value:
            return bytes([initial]) + raw
    raise ValueError(value)


def cbor(value):
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, float):
        return real(value)
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())


def in_order(entries):
    """Burn sorts its maps by the bytes of the keys."""
    return dict(sorted(entries.items(), key=lambda entry: entry[0].encode()))


def weights(name, shape, fan_in, epoch):
    count = math.prod(shape)
    if fan_in is None:
        return [1.0 if name.endswith(("gamma", "running_var")) else 0.0] * count
    frozen = name.startswith("conv")
    chance = random.Random(name if frozen else f"{name} {epoch}")
    bound = 1 / math.sqrt(fan_in)
    return [bound * (2 * chance.random() - 1) for _ in range(count)]


def build(epoch):
    data = bytearray()
    tensors = {}
    for name, shape, fan_in in LAYERS:
        data.extend(bytes(-len(data) % ALIGNMENT))
        start = len(data)
        floats = array.array("f", weights(name, shape, fan_in, epoch))
        if sys.byteorder == "big":
            floats.byteswap()
        data.extend(floats.tobytes())
        tensors[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [start, len(data)],
            "param_id": random.Random("param " + name).getrandbits(64),
        }
    metadata = {"model": "mnist-mini", "note": "random weights", "producer": "make-demo.py"}
    scalars = {
        "epoch": {"UInt": epoch},
        "learning_rate": {"Float": 0.001},
        "train_loss": {"Float": round(2.303 / math.sqrt(epoch), 4)},
        "early_stopped": {"Bool": False},
    }
    maps = {
        "tensors": in_order(tensors),
        "metadata": in_order(metadata),
        "scalars": in_order(scalars),
    }
    body = cbor(maps)
    header = struct.pack("<IHI", MAGIC, 1, len(body))
    padding = bytes(-(len(header) + len(body)) % ALIGNMENT)
    return header + body + padding + bytes(data)


def main(arguments):
    if len(arguments) not in (1, 2):
        sys.exit("usage: make-demo.py FILE [EPOCH]")
    try:
        epoch = int(arguments[1]) if len(arguments) == 2 else 1
        if epoch < 1:
            raise ValueError
    except ValueError:
        sys.exit("make-demo.py: EPOCH is a number from 1")
    try:
        with open(arguments[0], "wb") as file:
            file.write(build(epoch))
    except OSError as error:
        sys.exit(f"make-demo.py: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
