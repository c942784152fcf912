"""Reads Burn packs in plain Python, independently of the C code: the judge of what it accepts, refuses and shows.

`read()` gives a Pack or raises Refused. It follows the format notes (what Burn's newest reader takes) and the
contract's section 5 (what we read besides, and what we refuse although Burn takes it by losing sync). Offsets and
lengths are in bytes; M is metadata_size, U = 10 + M the first byte after the metadata, A the next multiple of 256, X
the largest end of a tensor's range, L the file's length. Only header, metadata and padding are read at once.

CBOR is read by `bpkcbor`; the writer's half, `bpkwrite`, is re-exported here.
"""

import collections
import os
import re
import stat
import weakref

from bpkcbor import Cbor, Refused
from bpkwrite import (  # noqa: F401  (re-exported)
    ALIGNMENT,
    HEADER,
    MAGIC,
    build,
    ceil256,
    decode_name,
    encode_name,
    file_names,
    raw_pack,
)

# Limits of the format (format notes 1.1).
MAX_METADATA = 100 << 20
MAX_TENSOR = 10 << 30
MAX_TENSORS = 100_000
MAX_FILE = 100 << 30

DTYPE_SIZES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "Flex32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "Bool"), 1),  # "Bool" as text: up to v0.21.0-pre.2
}
BOOL_SIZES = {"Native": 1, "U8": 1, "U32": 4}
QUANT_VALUES = ("Q8F", "E5M2", "E4M3", "Q4F", "E2M1", "Q2F", "Q8S", "Q4S", "Q2S")
SCALE_DTYPES = ("F32", "F16", "BF16", "UE8M0", "UE4M3")

Problem = collections.namedtuple("Problem", "code text")


# --- The metadata map ---


class Metadata:
    """The metadata map of a pack (format notes 2.1 to 2.3), read from its CBOR."""

    def __init__(self, cbor):
        self.cbor = cbor
        self.twice = []  # a Problem for each name or key that stands twice
        values, self.extra = cbor.struct(
            "the metadata map",
            {"tensors": self._tensors, "metadata": self._metadata, "scalars": self._scalars},
            optional=("metadata", "scalars"),
        )
        self.tensors = values["tensors"]
        self.metadata = values.get("metadata", {})
        self.scalars = values.get("scalars", {})

    def _map(self, what, code, reader):
        values, twice = self.cbor.text_map(what, reader)
        self.twice += [Problem(code, f"{key!r} stands twice in {what}; the last one counts") for key in twice]
        return values

    def _tensors(self):
        return self._map("the map of tensors", "duplicate-name", self._descriptor)

    def _metadata(self):
        return self._map("the user's metadata", "duplicate-key", self.cbor.text)

    def _scalars(self):
        return self._map("the map of scalars", "duplicate-key", self._scalar)

    def _scalar(self):
        cbor = self.cbor
        variants = {
            "Int": lambda: cbor.integer(-(1 << 63), (1 << 63) - 1),
            "UInt": cbor.integer,
            "Float": cbor.floating,
            "Bool": cbor.boolean,
        }
        return next(iter(cbor.enum("a scalar", newtypes=variants).items()))

    def _descriptor(self):
        fields = {
            "dtype": self._dtype_and_cbor,
            "shape": self.cbor.integers,
            "data_offsets": lambda: self.cbor.integers(count=2),
            "param_id": lambda: self.cbor.option(self.cbor.integer),
        }
        return self.cbor.struct("a tensor's descriptor", fields, optional=("param_id",))

    def _dtype_and_cbor(self):
        at = self.cbor.pos
        return self._dtype(), self.cbor.data[at : self.cbor.pos]

    def _dtype(self):
        newtypes = {"Bool": lambda: self.cbor.enum("a Bool's store", BOOL_SIZES), "QFloat": self._scheme}
        return self.cbor.enum("a dtype", DTYPE_SIZES, newtypes)

    def _scheme(self):
        """A quantisation scheme: form D as Burn reads it; `param` and `level` of forms A to C are shown too."""
        cbor = self.cbor
        packed = {"PackedNative": cbor.integer, "PackedU32": cbor.integer}
        fields = {
            "value": lambda: cbor.enum("a quantised value", QUANT_VALUES),
            "store": lambda: cbor.enum("a store", ("Native", "U32"), packed),
            "mode": lambda: cbor.enum("a mode", ("Symmetric", "Lookup")),
            "tensor": lambda: cbor.option(self._scale_dtype),
            "block": lambda: cbor.option(self._block_scale),
        }
        older = {"param": self._scale_dtype, "level": self._level}
        return cbor.struct("a quantisation scheme", fields, ("tensor", "block"), older)[0]

    def _scale_dtype(self):
        return self.cbor.enum("a scale's dtype", SCALE_DTYPES)

    def _block_scale(self):
        return self.cbor.struct("a block", {"size": self._block_size, "dtype": self._scale_dtype})[0]

    def _block_size(self):
        fields = {"storage": lambda: self.cbor.integers(5, high=255), "len": lambda: self.cbor.integer(high=255)}
        return self.cbor.struct("a block's size", fields)[0]

    def _level(self):
        two = {"block": self._block_size, "global": self._scale_dtype}
        newtypes = {"Block": self._block_size, "BlockTensor": lambda: self.cbor.struct("a level", two)[0]}
        return self.cbor.enum("a level", ("Tensor",), newtypes)


# --- Where the bytes are ---


class Source:
    """The bytes of a pack: a buffer, or a regular file that stays open as long as something refers to this."""

    def __init__(self, origin):
        self.data = bytes(origin) if isinstance(origin, (bytes, bytearray, memoryview)) else None
        if self.data is not None:
            self.size = len(self.data)
            return
        try:
            self.fd = os.open(origin, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(f"cannot be opened: {error.strerror}") from error
        weakref.finalize(self, os.close, self.fd)
        status = os.fstat(self.fd)
        if not stat.S_ISREG(status.st_mode):
            raise Refused("not a regular file")
        self.size = status.st_size
        if self.size > MAX_FILE:
            raise Refused(f"{self.size} bytes, over the limit of {MAX_FILE}")

    def read(self, offset, size):
        if self.data is not None:
            return self.data[offset : offset + size]
        parts, left = [], size
        while left:
            part = os.pread(self.fd, left, offset + size - left)
            if not part:
                raise Refused("the file became shorter", offset + size - left)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def first_nonzero(self, start, end):
        """The offset of the first byte in [start, end) that is not zero, or None; holes are not read."""
        while (start := self._next_data(start, end)) < end:
            chunk = self.read(start, min(1 << 20, end - start))
            rest = chunk.lstrip(b"\0")
            if rest:
                return start + len(chunk) - len(rest)
            start += len(chunk)
        return None

    def _next_data(self, start, end):
        if self.data is not None or end - start < 1 << 16:
            return start
        try:
            return os.lseek(self.fd, start, os.SEEK_DATA)
        except OSError:  # no data up to the end of the file
            return end


class Tensor:
    """One tensor; `start` and `end` count from the data start, `position` is the absolute offset of its bytes.

    `dtype` is spelled as in the pack and `dtype_cbor` are its own bytes; `extra` holds the descriptor's unknown entries
    as (key, value) CBOR.
    """

    def __init__(self, name, fields, extra, source):
        self.name = name
        self.dtype, self.dtype_cbor = fields["dtype"]
        self.shape = fields["shape"]
        self.start, self.end = fields["data_offsets"]
        self.param_id = fields.get("param_id")
        self.extra, self.problems = extra, []
        self.position, self._source = None, source

    @property
    def nbytes(self):
        return self.end - self.start

    def bytes(self):
        """The tensor's bytes, read now."""
        return self._source.read(self.position, self.nbytes)

    def expected_nbytes(self):
        """elements(shape) × size(dtype), or None for QFloat, whose range is authoritative (format notes 3.4)."""
        if isinstance(self.dtype, str):
            count = DTYPE_SIZES[self.dtype]
        elif "Bool" in self.dtype:
            count = BOOL_SIZES[self.dtype["Bool"]]
        else:
            return None
        for dimension in self.shape:
            count *= dimension
        return count


class Pack:
    """A pack that was read. `scalars`: name -> (kind, value), a Float's value being its 64-bit pattern.

    `layout` is "aligned" or "legacy" (v0.19), `data_start` an absolute offset, `extra` the unknown top-level entries as
    (key, value) CBOR, `problems` the faults of the pack; those of a tensor are in its own `problems`.
    """

    def __init__(self, source, layout):
        self._source = source
        self.version, size = read_header(source)
        self.metadata_end = HEADER.size + size
        cbor = Cbor(source.read(HEADER.size, size), HEADER.size)
        parsed = Metadata(cbor)
        self.metadata, self.scalars, self.extra = parsed.metadata, parsed.scalars, parsed.extra
        self.tensors = {name: Tensor(name, *parsed.tensors[name], source) for name in sorted(parsed.tensors)}
        if len(self.tensors) > MAX_TENSORS:
            raise Refused(f"{len(self.tensors)} tensors, over the limit of {MAX_TENSORS}")
        self.data_size = max((t.end for t in self.tensors.values()), default=0)
        item_end = HEADER.size + cbor.pos
        self.has_zero_tail = item_end < self.metadata_end and source.first_nonzero(item_end, self.metadata_end) is None
        self.layout = find_layout(self, source, layout)
        self.data_start = self.metadata_end if self.layout == "legacy" else ceil256(self.metadata_end)
        self._place_tensors()
        self.problems = [*parsed.twice, *self._pack_problems(item_end)]
        for tensor in self.tensors.values():
            tensor.problems += self._tensor_problems(tensor)
        flag_overlaps(self.tensors.values())

    def _place_tensors(self):
        """Refuses the ranges of which Burn's reader takes no bytes (format notes 6.2)."""
        for tensor in self.tensors.values():
            tensor.position = self.data_start + tensor.start
            if tensor.nbytes < 0:
                raise Refused(f"tensor {tensor.name!r} ends at {tensor.end}, before its start {tensor.start}")
            if tensor.nbytes > MAX_TENSOR:
                raise Refused(f"tensor {tensor.name!r} has {tensor.nbytes} bytes, over the limit of {MAX_TENSOR}")
            if tensor.nbytes and tensor.position + tensor.nbytes > self._source.size:
                raise Refused(f"tensor {tensor.name!r} reaches beyond the end of the file", tensor.position)

    def _pack_problems(self, item_end):
        if self.version == 0:
            yield Problem("version", "the version is 0")
        at = self._source.first_nonzero(item_end, self.metadata_end)
        if at is not None:
            yield Problem("after-cbor", f"not zero after the CBOR, byte {at}")
        data_end = self.data_start + self.data_size
        if self._source.size > data_end:
            yield Problem("after-data", f"bytes after the last tensor, from byte {data_end}")
        for start, end in self._padding():
            at = self._source.first_nonzero(start, end)
            if at is not None:
                yield Problem("padding", f"padding is not zero, byte {at}")

    def _padding(self):
        """Ranges between metadata and the end of the data that belong to no tensor; the legacy layout has none."""
        if self.layout == "legacy":
            return
        cursor = self.metadata_end
        for tensor in sorted((t for t in self.tensors.values() if t.nbytes), key=lambda t: t.start):
            if tensor.position > cursor:
                yield cursor, tensor.position
            cursor = max(cursor, tensor.position + tensor.nbytes)
        end = min(self.data_start + self.data_size, self._source.size)
        if cursor < end:
            yield cursor, end

    def _tensor_problems(self, tensor):
        expected = tensor.expected_nbytes()
        if expected not in (None, tensor.nbytes):
            yield Problem("length", f"{tensor.nbytes} bytes, but dtype and shape need {expected}")
        if self.layout == "aligned" and tensor.start % ALIGNMENT:
            yield Problem("start", f"starts at {tensor.start}, not a multiple of {ALIGNMENT}")


def flag_overlaps(tensors):
    """Gives each tensor that shares a byte with another one the problem."""
    ranges = sorted((t for t in tensors if t.nbytes), key=lambda t: (t.start, t.end))
    flagged, reach = {}, None
    for tensor in ranges:
        if reach is not None and tensor.start < reach.end:
            flagged.setdefault(tensor.name, (tensor, reach))
            flagged.setdefault(reach.name, (reach, tensor))
        if reach is None or tensor.end > reach.end:
            reach = tensor
    for tensor, other in flagged.values():
        tensor.problems.append(Problem("overlap", f"overlaps with {other.name!r}"))


def read_header(source):
    """(version, metadata_size), checked against the bytes that are there."""
    if source.size < HEADER.size:
        raise Refused("shorter than a pack's header", source.size)
    magic, version, size = HEADER.unpack(source.read(0, HEADER.size))
    if magic != MAGIC:
        raise Refused("not a Burn pack", 0)
    if version > 1:
        raise Refused(f"version {version} is not known", 4)
    if size > MAX_METADATA:
        raise Refused(f"{size} bytes of metadata, over the limit of {MAX_METADATA}", 6)
    if source.size < HEADER.size + size:
        raise Refused("the file ends inside the metadata", source.size)
    return version, size


# --- Telling the legacy layout from the aligned one (format notes 1.5) ---


def find_layout(pack, source, wanted):
    """ "aligned" or "legacy", or Refused; WANTED, the user's word, overrules rules 4 to 7."""
    unaligned, aligned, size = pack.metadata_end, ceil256(pack.metadata_end), source.size
    if pack.data_size == 0:  # rule 1
        return wanted or ("legacy" if size == unaligned < aligned else "aligned")
    if size < unaligned + pack.data_size:  # rule 2
        raise Refused("the file ends inside the data", size)
    odd_start = any(tensor.start % ALIGNMENT for tensor in pack.tensors.values())
    if aligned == unaligned:  # rule 3
        return wanted or ("legacy" if odd_start and not pack.has_zero_tail else "aligned")
    if wanted == "legacy":
        return wanted
    if wanted == "aligned":
        if size < aligned + pack.data_size:
            raise Refused("the file ends inside the data of the aligned layout", size)
        return wanted
    filled = source.first_nonzero(unaligned, min(aligned, size)) is not None
    if size == unaligned + pack.data_size:  # rule 4
        return _exact_legacy_length(pack, odd_start or filled, size)
    if size < aligned + pack.data_size:  # rule 5
        raise Refused("the file ends inside the data, or more follows it than a legacy pack has", size)
    return "legacy" if filled and odd_start else "aligned"  # rules 6 and 7


def _exact_legacy_length(pack, cannot_be_aligned, size):
    """Rule 4: legacy, unless nothing tells it from an aligned pack that lost its last bytes.

    Every other tie-breaker of the format notes says aligned, which means truncated, and undecided is refused as well.
    """
    if cannot_be_aligned or re.match(r"0\.19\.|0\.20\.0-pre\.[1-4]$", pack.metadata.get("version", "")):
        return "legacy"
    raise Refused("either a truncated pack or one of the v0.19 layout: say which with layout=", size)


def read(path_or_bytes, *, layout=None):
    """The Pack in a file or a bytes object. LAYOUT overrules what the length says: "aligned" or "legacy"."""
    if layout not in (None, "aligned", "legacy"):
        raise ValueError(f"no layout is called {layout!r}")
    return Pack(Source(path_or_bytes), layout)
