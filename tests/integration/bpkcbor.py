"""Reads CBOR strictly: the metadata of a Burn pack, item by item, and refuses what is not well-formed (RFC 8949).

What the reader takes where, and its limits, come from the format notes, 2.6, and from ciborium's sources. Offsets and
lengths are in bytes.
"""

import struct

from bpkwrite import U64

# ciborium's limits, and ours for tags before a known value.
MAX_LEVELS = 128
MAX_TAGS = 1024
MAX_IDENTIFIER = 4096


class Refused(Exception):
    """The pack must not be read. `offset` is the byte of the file where that shows, if it can be known."""

    def __init__(self, reason, offset=None):
        super().__init__(reason if offset is None else f"{reason} (byte {offset})")
        self.reason, self.offset = reason, offset


UINT, NINT, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE, FLOAT, BREAK = range(10)
KIND_NAMES = "integer", "negative integer", "bytes", "text", "array", "map", "tag", "simple value", "float", "break"
FALSE, TRUE, NULL, UNDEFINED = 20, 21, 22, 23
TAG_POSITIVE, TAG_NEGATIVE = 2, 3  # bignums


class Cbor:
    """A strict reader of one CBOR item in a buffer, with the shapes of value that serde asks ciborium 0.2.2 for.

    `pos` is the next byte, `head_at` where the last head began, `base` the buffer's offset in the file. `level` counts
    what is open: maps, arrays, enums, and tags under an unknown key; the top map is level 1.
    """

    def __init__(self, data, base=0):
        self.data, self.base = data, base
        self.pos = self.head_at = self.level = 0

    def refuse(self, reason, at=None):
        raise Refused(reason, self.base + (self.pos if at is None else at))

    def expected(self, what, kind, at):
        self.refuse(f"a {KIND_NAMES[kind]} where {what} must stand", at)

    def take(self, size):
        """The next SIZE bytes; no more than the buffer has are ever touched."""
        if size > len(self.data) - self.pos:
            self.refuse("the metadata ends inside a CBOR item")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def enter(self):
        self.level += 1
        if self.level > MAX_LEVELS:
            self.refuse(f"CBOR nested deeper than {MAX_LEVELS} levels")

    def leave(self):
        self.level -= 1

    def head(self):
        """(kind, argument): a number, a length or None if indefinite, a simple value, a float's 64-bit pattern."""
        at = self.head_at = self.pos
        first = self.take(1)[0]
        major, info = first >> 5, first & 31
        if 28 <= info <= 30:
            self.refuse("reserved CBOR head", at)
        if major == 7:
            return self._simple_or_float(info, at)
        if info < 24:
            return major, info
        if info < 28:
            return major, int.from_bytes(self.take(1 << info - 24), "big")
        if major in (UINT, NINT, TAG):
            self.refuse("an integer or tag without a number", at)
        return major, None

    def _simple_or_float(self, info, at):
        if info == 31:
            return BREAK, None
        if info >= 25:
            return FLOAT, widen(self.take(1 << info - 24))
        if info == 24:
            self.refuse(f"unassigned or ill-formed simple value {self.take(1)[0]}", at)
        if info < FALSE:
            self.refuse(f"unassigned simple value {info}", at)
        return SIMPLE, info

    def value_head(self, bignum=False):
        """The head of a known value; tags before it are skipped, but for those of a BIGNUM where one may stand."""
        for _ in range(MAX_TAGS + 1):
            kind, argument = self.head()
            if kind != TAG or (bignum and argument in (TAG_POSITIVE, TAG_NEGATIVE)):
                return kind, argument
        return self.refuse(f"more than {MAX_TAGS} tags before a value")

    def entries(self, count):
        """Steps COUNT times, or up to the break if it is None."""
        if count is not None:
            yield from range(count)
            return
        while self.take(1) != b"\xff":
            self.pos -= 1
            yield

    def chunks(self, kind, length):
        """The chunks of a string whose head was just read; those of an indefinite one are definite and of its kind."""
        if length is not None:
            return [self.take(length)]
        found = []
        for _ in self.entries(None):
            at = self.pos
            chunk_kind, size = self.head()
            if chunk_kind != kind or size is None:
                self.refuse("an indefinite string with something else than definite chunks of its kind", at)
            found.append(self.take(size))
        return found

    def decode(self, chunks):
        try:
            return "".join(chunk.decode() for chunk in chunks)
        except UnicodeDecodeError:
            return self.refuse("text that is not UTF-8")

    def text(self):
        at = self.pos
        kind, length = self.value_head()
        if kind != TEXT:
            self.expected("text", kind, at)
        return self.decode(self.chunks(TEXT, length))

    def identifier(self, what):
        """A struct's key or an enum's variant: definite text or bytes of at most 4,096 bytes."""
        at = self.pos
        kind, length = self.value_head()
        if kind not in (TEXT, BYTES) or length is None or length > MAX_IDENTIFIER:
            self.expected(f"{what} (definite, at most {MAX_IDENTIFIER} bytes)", kind, at)
        raw = self.take(length)
        return self.decode([raw]) if kind == TEXT else raw.decode(errors="replace")

    def bignum(self):
        """The significant bytes of the byte string after a bignum's tag."""
        at = self.pos
        kind, length = self.head()
        if kind != BYTES:
            self.expected("a bignum's byte string", kind, at)
        return b"".join(self.chunks(BYTES, length)).lstrip(b"\0")

    def integer(self, low=0, high=U64):
        at = self.pos
        kind, number = self.value_head(bignum=True)
        if kind == TAG:
            kind, raw = (UINT, NINT)[number == TAG_NEGATIVE], self.bignum()
            number = int.from_bytes(raw[:16], "big") if len(raw) <= 16 else 1 << 128
        if kind not in (UINT, NINT):
            self.expected("an integer", kind, at)
        value = number if kind == UINT else -1 - number
        if not low <= value <= high:
            self.refuse(f"an integer outside {low}..{high}", at)
        return value

    def boolean(self):
        at = self.pos
        kind, value = self.value_head()
        if kind != SIMPLE or value not in (FALSE, TRUE):
            self.expected("a boolean", kind, at)
        return value == TRUE

    def floating(self):
        """A float's 64-bit pattern."""
        at = self.pos
        kind, pattern = self.value_head()
        if kind != FLOAT:
            self.expected("a float", kind, at)
        return pattern

    def integers(self, count=None, high=U64):
        """A list of unsigned integers. With COUNT the array is definite and of that many.

        A byte string stands for a list of small integers, of which the first COUNT count.
        """
        at = self.pos
        kind, length = self.value_head()
        if kind == BYTES:
            raw = b"".join(self.chunks(BYTES, length))
            if count is not None and len(raw) < count:
                self.refuse(f"a list of {len(raw)} numbers where {count} must stand", at)
            return list(raw[:count])
        if kind != ARRAY:
            self.expected("an array", kind, at)
        if count is not None and length != count:
            self.refuse(f"an array that does not announce {count} numbers", at)
        self.enter()
        values = [self.integer(high=high) for _ in self.entries(length)]
        self.leave()
        return values

    def option(self, reader):
        """None for null or undefined with no tag before it."""
        if self.data[self.pos : self.pos + 1] in (b"\xf6", b"\xf7"):
            self.head()
            return None
        return reader()

    def enum(self, what, units=(), newtypes=()):
        """A unit variant as text, or {variant: value} from a definite map of one entry. NEWTYPES: variant -> reader."""
        at = self.pos
        kind, length = self.value_head()
        if kind == TEXT:
            self.pos = self.head_at
        elif (kind, length) != (MAP, 1):
            self.expected(f"{what} (text or a definite map of one entry)", kind, at)
        self.enter()
        name = self.identifier(what)
        if name not in (units if kind == TEXT else newtypes):
            self.refuse(f"unknown variant {name!r} of {what}", at)
        value = name if kind == TEXT else {name: newtypes[name]()}
        self.leave()
        return value

    def open_map(self, what):
        """Enters a map and gives its announced number of entries."""
        at = self.pos
        kind, count = self.value_head()
        if kind != MAP:
            self.expected(what, kind, at)
        self.enter()
        return count

    def struct(self, what, fields, optional=(), older=()):
        """A map with known keys: (values in the order of the pack, unknown entries as (key, value) CBOR).

        FIELDS: key -> reader; all but the OPTIONAL ones must be there and none may be there twice. OLDER: key -> reader
        of keys that Burn now ignores; they are shown if they read well and count as unknown otherwise.
        """
        at, values, unknown = self.pos, {}, []
        for _ in self.entries(self.open_map(what)):
            key_at = self.pos
            key = self.identifier("a key")
            value_at = self.pos
            if key in fields:
                if key in values:
                    self.refuse(f"{key!r} stands twice in {what}", key_at)
                values[key] = fields[key]()
                continue
            self.skip()
            unknown.append((self.data[key_at:value_at], self.data[value_at : self.pos]))
            if key in older:
                self._show_older(values, key, older[key], value_at)
        self.leave()
        for key in fields:
            if key not in values and key not in optional:
                self.refuse(f"{what} has no {key!r}", at)
        return values, unknown

    def _show_older(self, values, key, reader, value_at):
        """Reads a skipped value once more with READER; what does not read is left out."""
        end, level = self.pos, self.level
        values.pop(key, None)
        self.pos = value_at
        try:
            values[key] = reader()
        except Refused:
            pass
        self.pos, self.level = end, level

    def text_map(self, what, reader):
        """A map with text keys: (dict, keys that stand twice); of two the last counts."""
        values, twice = {}, []
        for _ in self.entries(self.open_map(what)):
            key = self.text()
            if key in values:
                twice.append(key)
            values[key] = reader()
        self.leave()
        return values, twice

    def skip(self):
        """Any one well-formed item, under an unknown key; here a tag is a level."""
        at = self.pos
        kind, argument = self.head()
        if kind == BREAK:
            self.refuse("a break where no indefinite item ends", at)
        if kind == TEXT:
            self.decode(self.chunks(TEXT, argument))
        elif kind == BYTES:
            self.chunks(BYTES, argument)
        elif kind == TAG and argument in (TAG_POSITIVE, TAG_NEGATIVE):
            raw = self.bignum()
            if argument == TAG_NEGATIVE and len(raw) == 16 and raw[0] > 0x7F:
                self.refuse("a negative bignum that Burn's reader cannot hold", at)
        elif kind in (ARRAY, MAP, TAG):
            self.enter()
            for _ in self.entries(1 if kind == TAG else argument):
                self.skip()
                if kind == MAP:
                    self.skip()
            self.leave()


def widen(raw):
    """The 64-bit pattern of a big-endian float of 2, 4 or 8 bytes; a short NaN keeps its payload and becomes quiet."""
    if len(raw) == 8:
        return int.from_bytes(raw, "big")
    value = struct.unpack(">e" if len(raw) == 2 else ">f", raw)[0]
    if value == value:
        return int.from_bytes(struct.pack(">d", value), "big")
    bits, mantissa_bits = int.from_bytes(raw, "big"), 10 if len(raw) == 2 else 23
    mantissa = bits & (1 << mantissa_bits) - 1
    return (bits >> 8 * len(raw) - 1) << 63 | 0x7FF8 << 48 | mantissa << 52 - mantissa_bits
