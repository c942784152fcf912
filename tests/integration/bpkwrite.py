"""Writes Burn packs in plain Python, independently of the C code: CBOR pieces, whole packs, file names of tensors.

All lengths and offsets are in bytes. Facts of the format come from the format notes (chapters 1 and 2), file names
from the contract's section 1. Only the standard library is used.
"""

import re
import struct

MAGIC = b"NRUB"
HEADER = struct.Struct("<4sHI")  # magic, version, metadata_size: 10 bytes
ALIGNMENT = 256
U64 = (1 << 64) - 1

# The order in which Burn's writers emit the keys of a struct (format notes 2.1 and 2.3).
KEYS_FORM_D = ("value", "store", "mode", "tensor", "block")
KEYS_FORMS_ABC = ("value", "param", "store", "level", "mode")
KEYS_BLOCK_SCALE = ("size", "dtype")
KEYS_BLOCK_SIZE = ("storage", "len")
KEYS_BLOCK_TENSOR = ("block", "global")


def ceil256(offset):
    """The next multiple of 256 bytes at or after OFFSET."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


# --- CBOR pieces: each returns the bytes of one item, heads as short as can be ---


def head(major, number):
    """The head of an item: major type 0..7 and its unsigned number, in the shortest form."""
    if number < 24:
        return bytes([major << 5 | number])
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes([major << 5 | info]) + number.to_bytes(size, "big")
    raise ValueError(f"{number} does not fit a CBOR head")


def integer(number):
    return head(0, number) if number >= 0 else head(1, -1 - number)


def text(string):
    raw = string.encode()
    return head(3, len(raw)) + raw


def byte_string(raw):
    return head(2, len(raw)) + raw


def array(items):
    """A definite array of items that are already CBOR."""
    items = list(items)
    return head(4, len(items)) + b"".join(items)


def mapping(pairs):
    """A definite map of (key, value) pairs that are already CBOR, in the order given."""
    pairs = list(pairs)
    return head(5, len(pairs)) + b"".join(key + value for key, value in pairs)


def tag(number, item):
    return head(6, number) + item


def floating(pattern):
    """A float given as its 64-bit pattern, shrunk to f16 or f32 only where every bit survives (format notes 2.5)."""
    for info, size in ((0xF9, 2), (0xFA, 4)):
        short = _shrink(pattern, size)
        if short is not None:
            return bytes([info]) + short
    return b"\xfb" + pattern.to_bytes(8, "big")


def _shrink(pattern, size):
    """The SIZE bytes (2 or 4) of a float that widens back to PATTERN, or None."""
    sign, exponent, mantissa = pattern >> 63, pattern >> 52 & 0x7FF, pattern & (1 << 52) - 1
    if exponent == 0x7FF and mantissa:
        return _shrink_nan(sign, mantissa, size)
    value = struct.unpack(">d", pattern.to_bytes(8, "big"))[0]
    code = ">e" if size == 2 else ">f"
    try:
        short = struct.pack(code, value)
    except OverflowError:
        return None
    back = struct.pack(">d", struct.unpack(code, short)[0])
    return short if back == pattern.to_bytes(8, "big") else None


def _shrink_nan(sign, mantissa, size):
    """A NaN keeps its payload only if it is a quiet one and the bits that go are zero."""
    exponent_bits, mantissa_bits = (5, 10) if size == 2 else (8, 23)
    dropped = 52 - mantissa_bits
    if not mantissa >> 51 or mantissa & (1 << dropped) - 1:
        return None
    exponent = (1 << exponent_bits) - 1
    bits = (sign << exponent_bits | exponent) << mantissa_bits | mantissa >> dropped
    return bits.to_bytes(size, "big")


def item(value):
    """Any of None, bool, int, str, bytes, list and dict as CBOR; a dict keeps its order."""
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[value]
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return byte_string(value)
    if isinstance(value, (list, tuple)):
        return array(item(x) for x in value)
    return mapping((item(k), item(v)) for k, v in value.items())


# --- Packs ---


def ordered_dtype(dtype):
    """DTYPE with the keys of a quantisation scheme in Burn's order; form D always has `tensor` and `block`."""
    if not isinstance(dtype, dict) or "QFloat" not in dtype:
        return dtype
    scheme = dict(dtype["QFloat"])
    if "param" in scheme or "level" in scheme:
        if isinstance(scheme["level"], dict):
            scheme["level"] = {kind: _ordered_level(kind, v) for kind, v in scheme["level"].items()}
        return {"QFloat": _pick(scheme, KEYS_FORMS_ABC)}
    block = scheme.setdefault("block", None)
    scheme.setdefault("tensor", None)
    if block is not None:
        block = _pick(block, KEYS_BLOCK_SCALE)
        scheme["block"] = {**block, "size": _pick(block["size"], KEYS_BLOCK_SIZE)}
    return {"QFloat": _pick(scheme, KEYS_FORM_D)}


def _ordered_level(kind, value):
    if kind == "Block":
        return _pick(value, KEYS_BLOCK_SIZE)
    value = _pick(value, KEYS_BLOCK_TENSOR)
    return {**value, "block": _pick(value["block"], KEYS_BLOCK_SIZE)}


def _pick(fields, keys):
    if set(fields) != set(keys):
        raise ValueError(f"the keys are {sorted(fields)}, not {sorted(keys)}")
    return {key: fields[key] for key in keys}


def scalar(kind, value):
    """{kind: value}; the value of a Float is its 64-bit pattern as an int, or a Python float."""
    if kind == "Float" and isinstance(value, float):
        value = int.from_bytes(struct.pack(">d", value), "big")
    return mapping([(text(kind), floating(value) if kind == "Float" else item(value))])


def descriptor(dtype, shape, start, end, param_id=None, extra=()):
    """One tensor's map. EXTRA are further (key, value) pairs that are already CBOR."""
    pairs = [
        (text("dtype"), item(ordered_dtype(dtype))),
        (text("shape"), item(list(shape))),
        (text("data_offsets"), item([start, end])),
    ]
    if param_id is not None:
        pairs.append((text("param_id"), integer(param_id)))
    return mapping([*pairs, *extra])


def top(descriptors, metadata=None, scalars=None, extra=()):
    """The whole metadata map. DESCRIPTORS: name -> CBOR of its map; SCALARS: name -> (kind, value)."""
    pairs = [(text("tensors"), _sorted_map(descriptors, lambda cbor: cbor))]
    if metadata:
        pairs.append((text("metadata"), _sorted_map(metadata, text)))
    if scalars:
        pairs.append((text("scalars"), _sorted_map(scalars, lambda pair: scalar(*pair))))
    return mapping([*pairs, *extra])


def _sorted_map(entries, encode):
    """A map with its names in byte order (which for UTF-8 is the order of code points)."""
    return mapping((text(name), encode(entries[name])) for name in sorted(entries))


def raw_pack(cbor, data=b"", version=1, metadata_size=None, align=True):
    """A pack of hand-made parts. METADATA_SIZE is what the header says, by default the length of CBOR.

    With ALIGN zero bytes follow up to the data start, the next multiple of 256 after the metadata; without it DATA
    comes directly after CBOR, whatever the header says.
    """
    size = len(cbor) if metadata_size is None else metadata_size
    front = HEADER.pack(MAGIC, version, size) + cbor
    if align:
        front = front.ljust(ceil256(max(len(front), HEADER.size + size)), b"\0")
    return front + data


def build(tensors=(), metadata=None, scalars=None, layout="aligned"):
    """The pack that Burn's writer makes of TENSORS, (name, dtype, shape, bytes, param_id) in the order of the data."""
    aligned = {"aligned": True, "legacy": False}[layout]
    descriptors, data = {}, bytearray()
    for name, dtype, shape, raw, param_id in tensors:
        if name in descriptors:
            raise ValueError(f"two tensors are named {name!r}")
        if aligned:
            data.extend(bytes(ceil256(len(data)) - len(data)))
        descriptors[name] = descriptor(dtype, shape, len(data), len(data) + len(raw), param_id)
        data += raw
    return raw_pack(top(descriptors, metadata, scalars), bytes(data), align=aligned)


# --- File names (the contract's section 1) ---

NAME_LIMIT = 250  # bytes of an encoded name; longer ones are cut and get a hash
HASH_MARK = "%~"


def encode_name(name, clash=0):
    """The file name of a tensor or key. CLASH is added to the hash of a name that had to be cut."""
    if name == "":
        return "%"
    units = [_unit(name, i) for i in range(len(name))]
    if sum(len(u.encode()) for u in units) <= NAME_LIMIT:
        return "".join(units)
    mark = f"{HASH_MARK}{(xxh3_64(name.encode()) + clash) & U64:016x}"
    return _cut(units, NAME_LIMIT - len(mark)) + mark


def _unit(name, i):
    """What the character at I becomes: itself or one escape."""
    char, last = name[i], len(name) - 1
    plain = not (
        char in "/%\x7f"
        or char < " "
        or (char == "." and (i == 0 or name[i:] == ".json"))
        or (char == "~" and i == last)
    )
    return char if plain else f"%{ord(char):02X}"


def _cut(units, room):
    """The longest run of whole UNITS from the front that takes at most ROOM bytes."""
    used = 0
    for count, unit in enumerate(units):
        used += len(unit.encode())
        if used > room:
            return "".join(units[:count])
    return "".join(units)


def decode_name(file_name):
    """The name that a file name (str or bytes) stands for, or None if it is no tensor's: encode(decode(x)) != x."""
    if isinstance(file_name, bytes):
        try:
            file_name = file_name.decode()
        except UnicodeDecodeError:
            return None
    if file_name == "%":
        return ""
    name = re.sub("%([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), file_name)
    return name if name and encode_name(name) == file_name else None


def file_names(names):
    """name -> file name for all tensors of a pack; of two that clash the later in byte order takes hash + 1."""
    taken, result = set(), {}
    for name in sorted(names):
        clash = 0
        while encode_name(name, clash) in taken:
            clash += 1
        result[name] = encode_name(name, clash)
        taken.add(result[name])
    return result


# --- XXH3-64 with seed 0, after the specification in xxHash's repository ---

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_STRIPE, _STRIPES_PER_BLOCK = 64, 16


def xxh3_64(data):
    """XXH3-64 of DATA as an int."""
    size = len(data)
    if size <= 16:
        return _xxh3_short(data, size)
    if size <= 128:
        return _xxh3_medium(data, size)
    return _xxh3_midsize(data, size) if size <= 240 else _xxh3_long(data, size)


def _u32(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def _rotate(x, bits):
    return (x << bits | x >> 64 - bits) & U64


def _fold(a, b):
    product = a * b
    return (product ^ product >> 64) & U64


def _avalanche(h):
    h = (h ^ h >> 37) * 0x165667919E3779F9 & U64
    return h ^ h >> 32


def _avalanche_xxh64(h):
    h = (h ^ h >> 33) * _P64[1] & U64
    h = (h ^ h >> 29) * _P64[2] & U64
    return h ^ h >> 32


def _xxh3_short(data, size):
    """0 to 16 bytes."""
    flip = lambda at: _u64(_SECRET, at) ^ _u64(_SECRET, at + 8)  # noqa: E731
    if size > 8:
        low, high = _u64(data, 0) ^ flip(24), _u64(data, size - 8) ^ flip(40)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high) & U64)
    if size > 3:
        h = (_u32(data, size - 4) + (_u32(data, 0) << 32)) ^ flip(8)
        h = (h ^ _rotate(h, 49) ^ _rotate(h, 24)) * 0x9FB21C651E98DF25 & U64
        h = (h ^ (h >> 35) + size) * 0x9FB21C651E98DF25 & U64
        return h ^ h >> 28
    if size > 0:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_xxh64(mixed ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche_xxh64(flip(56))


def _mix16(data, at, secret_at):
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _xxh3_medium(data, size):
    """17 to 128 bytes: pairs of 16 bytes from both ends."""
    h = size * _P64[0]
    for i in range((size - 1) // 32 + 1):
        h += _mix16(data, 16 * i, 32 * i) + _mix16(data, size - 16 * (i + 1), 32 * i + 16)
    return _avalanche(h & U64)


def _xxh3_midsize(data, size):
    """129 to 240 bytes."""
    h = size * _P64[0] + sum(_mix16(data, 16 * i, 16 * i) for i in range(8))
    h = _avalanche(h & U64)
    h += sum(_mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, size // 16))
    return _avalanche(h + _mix16(data, size - 16, 136 - 17) & U64)


def _xxh3_long(data, size):
    """Over 240 bytes: eight lanes over stripes of 64 bytes, mixed after each block of 16 stripes."""
    lanes = [_P32[2], _P64[0], _P64[1], _P64[2], _P64[3], _P32[1], _P64[4], _P32[0]]
    for stripe in range((size - 1) // _STRIPE):
        at = stripe % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, 8 * at)
        if at == _STRIPES_PER_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    h = size * _P64[0]
    for i in range(0, 8, 2):
        h += _fold(lanes[i] ^ _u64(_SECRET, 11 + 8 * i), lanes[i + 1] ^ _u64(_SECRET, 19 + 8 * i))
    return _avalanche(h & U64)


def _accumulate(lanes, data, at, secret_at):
    for i in range(8):
        value = _u64(data, at + 8 * i)
        key = value ^ _u64(_SECRET, secret_at + 8 * i)
        lanes[i ^ 1] = lanes[i ^ 1] + value & U64
        lanes[i] = lanes[i] + (key & 0xFFFFFFFF) * (key >> 32) & U64


def _scramble(lanes):
    for i in range(8):
        mixed = lanes[i] ^ lanes[i] >> 47 ^ _u64(_SECRET, len(_SECRET) - _STRIPE + 8 * i)
        lanes[i] = mixed * _P32[0] & U64
