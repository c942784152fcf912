"""`bpk stats` against NumPy: every fixture, every dtype, values that are hard to count or to add."""

import os
import random
import re

import numpy as np
import pytest

import bpkstats
import bpkview as view
from bpkref import build, file_names, read
from conftest import BPK, FIXTURES, NO_SHARED, SANITIZED, need_programs, need_tool, run, run_bpk

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]
SOME = 60  # tensors, of a pack that has very many

FLOATS = {"F64": "<f8", "F32": "<f4", "Flex32": "<f4", "F16": "<f2"}
INTEGERS = {kind + str(bits): f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)}
DTYPES = [*FLOATS, "BF16", *INTEGERS, {"Bool": "Native"}, {"Bool": "U32"}]
IDS = [str(dtype) for dtype in DTYPES]


def stats_json(path, *patterns):
    result = run_bpk("stats", "--json", "--", path, *patterns)
    return result, view.parse(result.out)


def check_pack(path):
    """Compares the tensors of a pack; returns how many have values."""
    pack = read(path)
    files = file_names(pack.tensors)
    names = sorted(pack.tensors)[:SOME]
    bad = [name for name in names if bpkstats.stats(pack.tensors[name]) is None]
    result, shown = stats_json(path, *(glob_of(files[name]) for name in names))
    assert result.status == (1 if bad else 0)
    lines = result.err.splitlines()
    assert len(lines) == len(bad), result.err
    for line in lines:
        assert re.match(rf"bpk: {re.escape(str(path))}: tensor '.*': \w", line)
    good = [name for name in names if name not in bad]
    assert [one["name"] for one in shown] == good
    for one in shown:
        bpkstats.check(one, pack.tensors[one["name"]])
    return len(good)


def glob_of(file):
    """A pattern that matches this file name."""
    return re.sub(r"([\\*?\[])", r"\\\1", file)


@pytest.mark.parametrize("name", NAMES)
def test_fixtures(name):
    path = FIXTURES / f"{name}.bpk"
    if read(path).tensors:
        check_pack(path)
    else:
        assert stats_json(path)[1] == []


# --- Values ---


def stored(dtype, wide):
    """WIDE, float64 values, as bytes of DTYPE."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "BF16":
            return (wide.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        if isinstance(dtype, dict):
            return (wide > 0).astype("<u4" if dtype["Bool"] == "U32" else "u1").tobytes()
        if dtype in INTEGERS:
            limits = np.iinfo(INTEGERS[dtype])
            half = float(limits.max // 2)
            scaled = np.clip(wide, -1, 1) * half + (0 if limits.min else half)
            return np.nan_to_num(scaled).astype(INTEGERS[dtype]).tobytes()
        return wide.astype(FLOATS[dtype]).tobytes()


def size_of(dtype):
    return len(stored(dtype, np.zeros(1)))


def random_bits(dtype, count, seed):
    return random.Random(seed).randbytes(count * size_of(dtype))


def sprinkled(chance, count):
    wide = chance.standard_normal(count)
    for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
        wide[chance.integers(0, count, max(count // 50, 1))] = value
    return wide


def cases(dtype):
    """name -> bytes"""
    chance = np.random.default_rng(7)
    found = {}
    for count in (0, 1, 2, 3, 15, 16, 17, 31, 2047, 2048, 2049, 4099):
        found[f"normal.{count}"] = stored(dtype, chance.standard_normal(count) * 0.3)
    # Around a chunk and where another way of counting begins, and well over.
    most = (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1_700_001
    for count in (8191, 8192, 8193, 32767, 32768, 65535, 65536, 65537, 131073, *(most if size_of(dtype) < 3 else ())):
        found[f"many.{count}"] = stored(dtype, chance.standard_normal(count) * 0.3 + 0.1)
    found["uniform"] = stored(dtype, chance.uniform(-1, 1, 50_000))
    found["ones"] = stored(dtype, np.ones(40_000))
    found["zeros"] = stored(dtype, np.zeros(70_000))
    found["negative zeros"] = stored(dtype, -np.zeros(5))
    found["edges"] = stored(dtype, np.tile(np.linspace(-1, 1, 33), 300))
    found["sparse"] = stored(dtype, np.where(chance.random(60_000) < 0.95, 0, chance.choice([-1.0, 1.0], 60_000)))
    found["all negative"] = stored(dtype, -chance.random(3000) - 0.25)
    found["far from zero"] = stored(dtype, 0.75 + chance.random(40_000) / 64)
    found["bits"] = random_bits(dtype, 3000, 3)
    found["many bits"] = random_bits(dtype, 90_001, 4)
    found["sprinkled"] = stored(dtype, sprinkled(chance, 3001))
    found["many sprinkled"] = stored(dtype, sprinkled(chance, 300_001))
    if size_of(dtype) < 3:
        found["most bits"] = random_bits(dtype, 1_300_001, 5)
        found["most sprinkled"] = stored(dtype, sprinkled(chance, 1_100_001))
        found["most zeros"] = stored(dtype, np.zeros(1_100_000))
    found["nan"] = stored(dtype, np.full(3000, np.nan))
    found["infinite"] = stored(dtype, np.repeat([np.inf, -np.inf], 20_000))
    found["nan and one"] = stored(dtype, np.r_[np.full(5000, np.nan), 0.5, np.full(40_000, np.nan)])
    return found


def write_pack(path, rows):
    """ROWS: (name, dtype, bytes)."""
    path.write_bytes(build([(name, dtype, [len(raw) // size_of(dtype)], raw, None) for name, dtype, raw in rows]))


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_values(dtype, folder):
    """Random bits of F64 are beyond all bounds, which the next test has."""
    rows = [(name, dtype, raw) for name, raw in cases(dtype).items() if dtype != "F64" or "bits" not in name]
    write_pack(folder / "values.bpk", rows)
    assert check_pack(folder / "values.bpk") == len(rows)


def test_random_bits_of_f64(folder):
    """Everything but mean and deviation, which NumPy cannot add up there."""
    write_pack(folder / "bits.bpk", [("bits", "F64", random_bits("F64", 300_000, 5))])
    ((one,), tensor) = stats_json(folder / "bits.bpk")[1], read(folder / "bits.bpk").tensors["bits"]
    x = bpkstats.values(tensor)
    finite = x[np.isfinite(x)]
    assert (one["nan"], one["inf"] + one["neg_inf"]) == (np.isnan(x).sum(), np.isinf(x).sum())
    assert (one["min"], one["max"]) == (finite.min(), finite.max())
    scaled = (finite / 2.0**600).astype(np.longdouble)
    assert one["mean"] == pytest.approx(float(scaled.mean()) * 2.0**600, rel=1e-12, abs=one["abs_max"] * 1e-13)
    assert one["std"] == pytest.approx(float(scaled.std()) * 2.0**600, rel=1e-12)
    assert one["histogram"]["counts"] == bpkstats.histogram(finite / 2)["counts"]


SPANS = [(1e-30, 2e-30), (-1e30, 1e30), (1000, 1000.01), (1e-40, 1e-39)]  # not of F16
SPANS += [(0, 1), (-1, 1), (-3, 5), (0.1, 0.3), (-7e-5, 1 / 3), (-0.2, 0), (1e-6, 2e-5)]


@pytest.mark.parametrize("dtype", ["F32", "F64", "F16"])
def test_values_beside_the_edges_of_bins(dtype, folder):
    """The edges of the very bins that come out, and their neighbours."""
    rows = []
    for low, high in SPANS if dtype != "F16" else SPANS[4:]:
        low, high = (float(np.array(x).astype(FLOATS[dtype])) for x in (low, high))
        edges = np.linspace(low, high, 33).astype(FLOATS[dtype])
        around = [edges, np.nextafter(edges, low, dtype=edges.dtype), np.nextafter(edges, high, dtype=edges.dtype)]
        inside = np.clip(np.concatenate(around), edges[0], edges[-1])
        if low < high:
            rows.append((f"{low} {high}", dtype, inside.tobytes()))
            rows.append((f"{low} {high} x", dtype, np.tile(inside, 600).tobytes()))
    write_pack(folder / "edges.bpk", rows)
    assert check_pack(folder / "edges.bpk") == len(rows) > 10


@pytest.mark.parametrize("name", ["I64", "U64"])
def test_large_integers(name, folder):
    """Exact extremes, and bins of their float64 values."""
    limits = np.iinfo(INTEGERS[name])
    chance = random.Random(8)
    rows = [
        ("limits", [limits.min, limits.max, 0, 1]),
        ("near", [limits.max - i for i in range(5)]),
        ("beyond 2^53", [2**53 + i for i in range(100)]),
        ("random", [chance.randint(limits.min, limits.max) for _ in range(200_000)]),
    ]
    rows = [(label, name, np.array(x, INTEGERS[name]).tobytes()) for label, x in rows]
    write_pack(folder / "large.bpk", [row for row in rows if row[0] != "near"])
    assert check_pack(folder / "large.bpk") == 3
    write_pack(folder / "near.bpk", rows[1:2])  # one and the same float64: NumPy has no bins for that
    (one,) = stats_json(folder / "near.bpk")[1]
    assert (int(one["min"]), int(one["max"])) == (limits.max - 4, limits.max)
    assert sum(one["histogram"]["counts"]) == 5


# --- The table ---


@pytest.fixture
def mixed(folder):
    wide = np.linspace(-1, 2, 1000)
    bad = wide.copy()
    bad[5], bad[6], bad[7] = np.nan, np.inf, -np.inf
    tensors = [
        ("good", "F32", [10, 100], stored("F32", wide), None),
        ("bad/one\x1b", "F32", [1000], stored("F32", bad), None),
        ("mask", {"Bool": "U8"}, [4], b"\0\1\0\0", None),
        ("none", "F32", [0], b"", None),
        ("short", "F32", [3], b"\0" * 8, None),
        ("number", "F64", [], stored("F64", np.array([0.25])), None),
    ]
    path = folder / "mixed.bpk"
    path.write_bytes(build(tensors))
    return path


def test_table(mixed):
    result = run_bpk("stats", mixed)
    assert result.status == 1
    assert result.err == f"bpk: {mixed}: tensor 'short': has 8 bytes, but shape [3] of F32 needs 12\n"
    head, *lines = result.out.decode().splitlines()
    assert head.split() == "DTYPE SHAPE NAN INF ZEROS MIN MAX MEAN STD NAME".split()
    rows = [line.split() for line in lines]
    assert rows == [
        "! F32 1000 1 2 0.1% -1 2 0.504459 0.864369 bad%2Fone%1B".split(),
        "F32 10x100 - - 0.1% -1 2 0.5 0.866892 good".split(),
        "Bool 4 - - 75.0% 0 1 0.25 0.433013 mask".split(),
        "F32 0 - - - - - - - none".split(),
        "F64 scalar - - - 0.25 0.25 0.25 0 number".split(),
    ]
    # Columns of numbers end where their heads end.
    for name in ("NAN", "INF", "ZEROS", "MIN", "MAX", "MEAN", "STD"):
        end = head.index(f" {name} ") + 1 + len(name)
        assert all(line[end - 1] != " " and line[end] == " " for line in lines), name


def test_shares_of_zeros(folder):
    """Neither none nor all are the effect of rounding."""
    wide = {zeros: np.r_[np.zeros(zeros), np.ones(10_000 - zeros)] for zeros in (0, 1, 5000, 9999, 10_000)}
    write_pack(folder / "zeros.bpk", [(f"z{zeros}", "F32", stored("F32", x)) for zeros, x in wide.items()])
    lines = run_bpk("stats", folder / "zeros.bpk").out.decode().splitlines()[1:]
    assert [line.split()[4] for line in lines] == ["-", "<0.1%", "100%", "50.0%", ">99.9%"]


def test_patterns(mixed):
    assert [one["name"] for one in stats_json(mixed, "goo*", "m?sk")[1]] == ["good", "mask"]
    result, shown = stats_json(mixed, "bad%2Fone%1b")
    assert result.status == 0 and [one["name"] for one in shown] == ["bad/one\x1b"]
    result, shown = stats_json(mixed, "nothing")
    assert (result.status, shown) == (1, []) and result.err == f"bpk: {mixed}: no tensor matches\n"


def test_usage(mixed):
    for arguments in ([], ["--jsn", mixed], ["-o", "layout=odd", mixed]):
        assert run_bpk("stats", *arguments).status == 2
    missing = run_bpk("stats", mixed.with_name("missing.bpk"))
    assert missing.status == 1 and missing.err.count("\n") == 1


def test_many_tensors(folder):
    """More than are shown at once, some of them for all threads."""
    chance = np.random.default_rng(9)
    rows = [(f"t{i:03}", "F32", stored("F32", chance.standard_normal(50 + i))) for i in range(200)]
    rows[77] = ("t077", "F32", stored("F32", chance.standard_normal(5 << 20)))
    path = folder / "many.bpk"
    write_pack(path, rows)
    result, shown = stats_json(path)
    assert (result.status, result.err) == (0, "")
    assert [one["name"] for one in shown] == [name for name, _, _ in rows]
    tensors = read(path).tensors
    for one in shown[70:80]:
        bpkstats.check(one, tensors[one["name"]])


def test_number_of_processors_does_not_matter(folder):
    need_tool("taskset")
    need_programs()
    path = folder / "large.bpk"
    write_pack(path, [("t", "F32", stored("F32", np.random.default_rng(10).standard_normal(5 << 20)))])
    one = run("taskset", "-c", str(min(os.sched_getaffinity(0))), BPK, "stats", "--json", path)
    assert one.status == 0 and one.out == run_bpk("stats", "--json", path).out


@pytest.mark.skipif(SANITIZED, reason="sanitizers take memory of their own")
def test_memory_is_flat(folder):
    path = folder / "large.bpk"
    write_pack(path, [("t", "F32", bytes(48 << 20)), ("u", "U8", bytes(48 << 20))])
    result = run_bpk("stats", path, measure=True)
    assert result.status == 0 and result.peak < 16 << 20, result.peak
