"""Makes broken and odd packs from good ones, by chance that a seed fixes: CBOR items replaced, re-encoded, cut; and
ranges, lengths and layouts moved about. Nothing is judged here."""

import bpkwrite as w
from bpkref import build, ceil256, raw_pack, read

SCHEME_D = {
    "value": "Q8S",
    "store": {"PackedU32": 0},
    "mode": "Symmetric",
    "tensor": "F32",
    "block": {"size": {"storage": [4, 1, 1, 1, 1], "len": 1}, "dtype": "UE4M3"},
}
SCHEME_B = {
    "value": "Q4F",
    "param": "F16",
    "store": {"PackedNative": 1},
    "level": {"BlockTensor": {"block": {"storage": [2, 2, 1, 1, 1], "len": 2}, "global": "F32"}},
    "mode": "Symmetric",
}
SCHEME_A = {"value": "Q8F", "param": "F32", "store": "U32", "level": "Tensor", "mode": "Symmetric"}


def small_pack():
    """Some 300 bytes of metadata and data with a bit of everything."""
    tensors = [
        ("a", "F32", [2, 1], bytes(range(8)), 300),
        ("b.c", {"Bool": "U8"}, [3], b"\1\0\1", None),
    ]
    return build(tensors, {"k": "v"}, {"s": ("Float", 0x3FF << 52), "t": ("Int", -7)})


def rich_pack():
    """Every form of dtype, of scalar and of descriptor."""
    schemes = {"d": SCHEME_D, "b": SCHEME_B, "e": SCHEME_A}
    tensors = [(f"q.{n}", {"QFloat": scheme}, [4, 4], bytes(24), i) for i, (n, scheme) in enumerate(schemes.items())]
    tensors += [("w", "F32", [2, 2], bytes(range(16)), 1 << 60), ("n", {"Bool": "Native"}, [], b"\1", None)]
    tensors += [("t", "Bool", [2], b"\1\0", None), ("", "BF16", [0, 7], b"", None)]
    scalars = {"i": ("Int", -3), "u": ("UInt", 1 << 63), "f": ("Float", 0x3FB999999999999A), "o": ("Bool", True)}
    return build(tensors, {"format": "burnpack", "": "x" * 30, "é": "日本"}, scalars)


# --- CBOR ---


def spans(cbor):
    """(start, end) of every item of well-formed definite CBOR, the outer ones first."""
    found = []

    def walk(at):
        mine = len(found)
        found.append(None)
        major, info, end = cbor[at] >> 5, cbor[at] & 31, at + 1
        size = 1 << info - 24 if 24 <= info <= 27 else 0
        number = int.from_bytes(cbor[end : end + size], "big") if size else info
        end += size
        if major in (2, 3):
            end += number
        elif major in (4, 5, 6):
            for _ in range({4: number, 5: 2 * number, 6: 1}[major]):
                end = walk(end)
        found[mine] = (at, end)
        return end

    walk(0)
    return found


ODDITIES = """00 17 1818 190100 1b7fffffffffffffff 1bffffffffffffffff 20 37 3bffffffffffffffff
    40 4107 44deadbeef 60 6161 62c3a9 62c328 7f616161ff 7f6161ff 7f60ff 5f4107ff 5fff 80 820102 9fff 9f01ff a0 a10101
    bfff bf0102ff c101 c24107 c3410f d9d9f700 f4 f5 f6 f7 f800 f8ff f93c00 fa7f800001 fb3ff0000000000000 ff 1c e0
    634e6174 63463332 6455496e74 63496e74"""
ODDITIES = [bytes.fromhex(item) for item in ODDITIES.split()]


def longer_head(chance, item):
    """The same item with a head that is not the shortest."""
    info = item[0] & 31
    if info > 26 or item[0] >> 5 == 7:
        return item
    old = 1 << info - 24 if info >= 24 else 0
    number = int.from_bytes(item[1 : 1 + old], "big") if old else info
    wider = chance.choice([i for i in (24, 25, 26, 27) if 1 << i - 24 > old])
    return bytes([item[0] & 0xE0 | wider]) + number.to_bytes(1 << wider - 24, "big") + item[1 + old :]


def indefinite(chance, item):
    """The same text, bytes, array or map without a length."""
    major, info = item[0] >> 5, item[0] & 31
    if major not in (2, 3, 4, 5) or info > 26:
        return item
    head = 1 + (1 << info - 24 if info >= 24 else 0)
    if major in (4, 5):
        return bytes([major << 5 | 31]) + item[head:] + b"\xff"
    text = item[head:]
    cut = chance.randint(0, len(text))
    chunks = w.head(major, cut) + text[:cut] + w.head(major, len(text) - cut) + text[cut:]
    return bytes([major << 5 | 31]) + chunks + b"\xff"


def tagged(chance, item):
    return w.head(6, chance.choice([0, 1, 4, 6, 20, 23, 24, 55799, 1 << 40])) * chance.choice([1, 1, 2]) + item


def mutate_item(chance, cbor):
    """CBOR with one of its items changed, or some bytes of it."""
    places = spans(cbor)
    start, end = chance.choice(places)
    item = cbor[start:end]
    other_start, other_end = chance.choice(places)
    ways = [
        lambda: longer_head(chance, item),
        lambda: indefinite(chance, item),
        lambda: tagged(chance, item),
        lambda: chance.choice(ODDITIES),
        lambda: cbor[other_start:other_end],
        lambda: b"",
        lambda: item + item,
        lambda: bytes([item[0] ^ 1 << chance.randrange(8)]) + item[1:],
        lambda: bytes([item[0] + chance.choice([-1, 1]) & 255]) + item[1:],
        lambda: item[:-1] + bytes([chance.randrange(256)]),
        lambda: item[: chance.randint(0, len(item))] + chance.randbytes(2) + item[chance.randint(0, len(item)) :],
    ]
    return cbor[:start] + chance.choice(ways[:3] * 2 + ways)() + cbor[end:]


def mutate_cbor(chance, pack):
    """PACK with its CBOR changed once or twice and its data where the new metadata_size wants them."""
    parsed = read(pack)
    cbor = mutate_item(chance, pack[10 : parsed.metadata_end])
    if chance.random() < 0.3:
        try:
            cbor = mutate_item(chance, cbor)
        except (IndexError, KeyError, RecursionError):
            pass  # no longer well-formed
    return raw_pack(cbor, pack[parsed.data_start :])


# --- Ranges and layouts ---

VERSIONS = [None, "0.18.0", "0.19.0", "0.19.1", "0.20.0-pre.1", "0.20.0-pre.4", "0.20.0-pre.5", "0.20.0", "1.0.0"]


def moved_pack(chance):
    """Tensors of odd starts and lengths, data after the CBOR at once or aligned, cut, longer, with zeros or without."""
    layout = chance.choice(["aligned", "legacy"])
    step = chance.choice([1, 256]) if layout == "legacy" else 256
    at, descriptors = 0, {}
    for name in "abc"[: chance.randint(0, 3)]:
        length = chance.choice([0, 1, 8, 255, 256, 300])
        start = at + chance.choice([0, 0, 0, 0, 1, 256, -1 if at else 0])
        extra = chance.choice([0] * 8 + [1, -1])
        descriptors[name] = w.descriptor("U8", [length], start, max(0, start + length + extra))
        at = -(-(start + length) // step) * step
    version = chance.choice(VERSIONS)
    metadata = {"version": version} if version else chance.choice([{}, {"producer": "x"}])
    cbor = w.top(descriptors, metadata)
    front = len(cbor) + 10
    if chance.random() < 0.2:  # so that the CBOR ends on 256
        filler = w.byte_string(bytes(max(0, ceil256(front + 5) - front - 5)))
        cbor = w.top(descriptors, metadata, extra=[(w.text("zz"), filler)])
    filler = chance.choice([bytes(2000), chance.randbytes(2000)])
    padding = ceil256(front) - front
    data = filler[: max(0, at + chance.choice([0, 0, 0, 0, -1, 1, 50, -padding, padding]))]
    pack = bytearray(raw_pack(cbor, data, align=layout == "aligned"))
    if chance.random() < 0.2:
        pack[chance.randrange(len(cbor) + 10, len(pack)) if len(pack) > len(cbor) + 10 else 4] ^= 1
    return bytes(pack)
