"""Headers and orders of .npy files, as NumPy has them, and the files that `bpk cat --npy` writes.

`npytool` (tests/unit) says what the program makes of a file of NumPy's.
"""

import io
import random
import struct
import warnings

import numpy
import pytest
from numpy.lib import format as npy

from bpkref import build, file_names, read
from bpkview import numpy_string
from conftest import BUILD, FIXTURES, missing, run, run_bpk
from test_fixtures import NAMES

TOOL = BUILD / "tests/unit/npytool"


def run_tool(*arguments, **options):
    if not TOOL.exists():
        missing(f"no program at {TOOL}: build it, or set BPK_BUILD")
    result = run(TOOL, *arguments, **options)
    assert (result.status, result.err) == (0, "")
    return result.out


# --- Headers ---


def ours(headers, folder):
    """What the program says of each header: (shape, order is Fortran's, dtype, size), or None for a refusal."""
    records = folder / "records"
    records.write_bytes(b"".join(struct.pack("<I", len(header)) + header for header in headers))
    with open(records, "rb") as file:
        lines = run_tool("headers", stdin=file).decode("ascii").splitlines()
    answers = []
    for line in lines:
        if line in ("refused", "more"):
            answers.append(None)
            continue
        descr, order, size, *dims = line.split()
        answers.append((tuple(map(int, dims)), order == "F", numpy.dtype(descr), int(size)))
    assert len(answers) == len(headers)
    return answers


def numpys(header):
    """The same by NumPy, which fails in many ways."""
    file = io.BytesIO(header)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = npy.read_magic(file)
            if version == (1, 0):
                answer = npy.read_array_header_1_0(file)
            elif version == (2, 0):
                answer = npy.read_array_header_2_0(file)
            else:
                answer = npy._read_array_header(file, version)
    except Exception:
        return None
    return *answer, file.tell()


def compare(headers, folder):
    """Nothing is taken that NumPy refuses, and what both take is the same. How many both take."""
    both = 0
    for header, answer in zip(headers, ours(headers, folder), strict=True):
        if answer is None:
            continue
        assert answer == numpys(header), header
        both += 1
    return both


def header(descr, shape, fortran=False, version=(1, 0)):
    file = io.BytesIO()
    npy._write_array_header(file, {"descr": descr, "fortran_order": fortran, "shape": shape}, version)
    return file.getvalue()


def wrapped(text, major):
    return b"\x93NUMPY" + bytes([major, 0]) + struct.pack("<H" if major == 1 else "<I", len(text)) + text


BASES = [
    header("<f4", (3, 4)),
    header(">i2", (64, 1, 3, 3), True),
    header("|V2", (), version=(2, 0)),
    header("|b1", (7,), True, version=(3, 0)),
    wrapped(b"{\"shape\":(12L,),'fortran_order':True,\n 'descr' : '=f8'}", 1),
    wrapped(b"{'descr':'u4','fortran_order':False,'shape':( 10,\t20 ),}  \n\n", 3),
]


def test_headers_that_numpy_writes(folder):
    kinds = ("<f8", "<f4", "<f2", "|V2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1", ">f8", ">f4")
    shapes = ((), (0,), (1,), (5,), (10**9,), (2, 3), (0, 7, 5), (64, 1, 3, 3), (2,) * 30)
    headers = [
        header(kind, shape, fortran, version)
        for kind in kinds
        for shape in shapes
        for fortran in (False, True)
        for version in ((1, 0), (2, 0), (3, 0))
    ]
    assert compare(headers, folder) == len(headers)
    assert compare(BASES, folder) == len(BASES)


@pytest.mark.parametrize("base", BASES, ids=range(len(BASES)))
def test_headers_with_one_byte_changed(base, folder):
    headers = [base[:at] + bytes([new]) + base[at + 1 :] for at in range(len(base)) for new in range(256)]
    assert compare(headers, folder) > 30


def test_headers_cut_or_with_a_byte_more(folder):
    for base in BASES:
        headers = [base[:size] for size in range(len(base))]
        assert compare(headers, folder) == 0
        assert compare([base + b"\0more"], folder) == 1
        start = 10 if base[6] == 1 else 12
        texts = [base[start:size] for size in range(start, len(base))]
        compare([wrapped(text, base[6]) for text in texts], folder)


PIECES = [b"'", b'"', b"(", b")", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\t", b"\f", b"\\\n", b"#", b"\0"]
PIECES += [b"0", b"00", b"7", b"-", b"+", b"1_0", b"0x1", b"L", b"l", b"j", b"3 L", b"1e3", b"True", b"False", b"None"]
PIECES += [b"''", b'""', b"'''", b"b'", b"u'", b"r'", b"f'", b"'<f4'", b"'descr'", b"'shape'", b"()", b"(3)", b"(3,)"]
PIECES += [b"'descr': '<f4', ", b"'shape': (3,), ", b"'fortran_order': True, ", b"'x': 1, ", b"**", b" if ", b"lambda"]


def test_headers_with_pieces_of_python(folder):
    """Inserted, put over others and swapped at random, with the length right."""
    source = random.Random(11)
    headers = []
    for _ in range(40000):
        base = source.choice(BASES)
        text = bytearray(base[10 if base[6] == 1 else 12 :])
        for _ in range(source.randint(1, 3)):
            at, piece = source.randrange(len(text) + 1), source.choice(PIECES)
            text[at : at + source.choice((0, 0, 1, len(piece)))] = piece
        headers.append(wrapped(bytes(text), base[6]))
    assert compare(headers, folder) > 400


# --- Order ---


def reordered(array, folder):
    numpy.save(folder / "a.npy", array)
    assert run_tool("reorder", folder / "a.npy", folder / "out") == b""
    return (folder / "out").read_bytes()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", ">i4", "<f2", ">u2", "|b1", "|V2"])
def test_arrays_are_put_in_order(kind, order, folder):
    for shape in ((), (1,), (0, 3), (77,), (13, 29), (64, 3, 5, 7), (1, 9, 1, 8), (2100, 2300)):
        count = int(numpy.prod(shape)) * numpy.dtype(kind).itemsize
        data = random.Random(count).randbytes(count)
        array = numpy.frombuffer(data, kind).reshape(shape, order=order)
        assert reordered(array, folder) == array.astype(array.dtype.newbyteorder("<")).tobytes("C"), shape


# --- bpk cat --npy ---


@pytest.mark.parametrize("name", NAMES)
def test_numpy_loads_every_tensor(name):
    """All of a pack in one stream."""
    path = FIXTURES / f"{name}.bpk"
    pack = read(path)
    names = file_names(list(pack.tensors))
    if not names:
        return
    result = run_bpk("cat", "--npy", "--", path, *names.values())
    assert (result.status, result.err) == (0, "")
    stream = io.BytesIO(result.out)
    for key in names:
        tensor, array = pack.tensors[key], numpy.load(stream)
        shape = (tensor.nbytes,) if "QFloat" in tensor.dtype else tuple(tensor.shape)
        assert (array.dtype, array.shape) == (numpy.dtype(numpy_string(tensor.dtype)), shape)
        assert array.tobytes() == tensor.bytes()
    assert stream.read() == b""


def test_files_are_those_that_numpy_saves(folder):
    source = random.Random(3)
    tensors, saved = [], b""
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I32": "<i4", "I8": "|i1", "U64": "<u8", "U8": "|u1"}
    for dtype, kind in [*kinds.items(), ({"Bool": "Native"}, "|b1"), ({"Bool": "U32"}, "<u4")]:
        for shape in ([], [0], [3], [64, 1, 3, 3], [2] * 14, [1] * 20 + [12345]):
            count = int(numpy.prod(shape)) * numpy.dtype(kind).itemsize
            data, file = source.randbytes(count), io.BytesIO()
            numpy.save(file, numpy.frombuffer(data, kind).reshape(shape))
            saved += file.getvalue()
            tensors.append((f"t{len(tensors)}", dtype, shape, data, None))
    (folder / "x.bpk").write_bytes(build(tensors, {}, {}))
    result = run_bpk("cat", "--npy", folder / "x.bpk", *(name for name, *_ in tensors))
    assert (result.status, result.err) == (0, "")
    assert result.out == saved


def test_what_numpy_could_not_load_is_refused(folder):
    """Before a byte of the others is written. Without --npy there is nothing against it."""
    tensors = [
        ("good", "U8", [3], b"abc", None),
        ("short", "F32", [3], bytes(11), None),
        ("deep", "U8", [1] * 65, b"x", None),
        ("deepest", "U8", [1] * 64, b"x", None),
    ]
    path = folder / "x.bpk"
    path.write_bytes(build(tensors, {}, {}))
    for name, said in (
        ("short", "'short' has another length than its shape and dtype need"),
        ("deep", "'deep' has 65 dimensions, an array of NumPy has at most 64"),
        ("gone", "there is no tensor 'gone'; 'bpk ls' lists them"),
    ):
        result = run_bpk("cat", "--npy", path, "good", name)
        assert (result.status, result.out, result.err) == (1, b"", f"bpk: {path}: {said}\n")
    assert run_bpk("cat", path, "good", "short", "deep").out == b"abc" + bytes(11) + b"x"
    assert run_bpk("cat", "--npy", path, "deepest").out.endswith(b"\nx")
