"""Packs broken by rule and by chance: the C code accepts what bpkref accepts, and shows the same of it.

Every truncation and every flipped bit of a small pack, and some thousand packs with their CBOR or their ranges changed;
the seed is fixed. Each is read by `bpk info --json`, `bpk ls --json` and `bpk cat`, many to one shell.
"""

import concurrent.futures
import os
import random
import re

import pytest

import bpkview as view
import bpkwrite as w
from bpkmutate import moved_pack, mutate_cbor, rich_pack, small_pack
from bpkref import Refused, build, file_names, raw_pack, read
from conftest import BPK, ENVIRONMENT, SANITIZED, mounted, need_programs, run, run_bpk

# For each file: F.info and F.ls if it is accepted, F.err, F.rc; the status of a crash is no 0 and no 1.
SCRIPT = """
for f; do
    "$BPK" info --json "$f" >"$f.info" 2>"$f.err"
    r=$?
    [ $r -eq 0 ] && { "$BPK" ls --json "$f" >"$f.ls" 2>>"$f.err"; r=$?; }
    echo $r >"$f.rc"
done
"""
CHUNK = 100
STEP = 5 if SANITIZED else 1  # only one case in so many where each takes long


def run_chunk(paths):
    result = run("sh", "-c", SCRIPT, "sh", *paths, env={**ENVIRONMENT, "BPK": os.fspath(BPK)})
    assert (result.status, result.err) == (0, "")


def judge(path_or_bytes):
    """bpkref's Pack, or None if it refuses."""
    try:
        return read(path_or_bytes)
    except Refused:
        return None


def has_doubtful_scheme(pack):
    """The store "U32" without param and level: Burn 0.19 demands both, newer ones refuse it; bpkref is lenient."""
    dtypes = [tensor.dtype for tensor in pack.tensors.values()]
    schemes = [dtype["QFloat"] for dtype in dtypes if isinstance(dtype, dict) and "QFloat" in dtype]
    return any(s["store"] == "U32" and not {"param", "level"} <= s.keys() for s in schemes)


def check_one(path):
    """What the C code said of a pack against bpkref; true if it is accepted."""
    status, err = int(path.with_suffix(".rc").read_text()), path.with_suffix(".err").read_text()
    pack = judge(path)
    if pack is None:
        assert status == 1, f"bpkref refuses it, bpk answers {status}: {err}"
        assert err.startswith(f"bpk: {path}: ") and err.count("\n") == 1
        return False
    if has_doubtful_scheme(pack):
        assert status == 1 and re.search('without the field "(param|level)"', err), f"{status}: {err}"
        return False
    assert (status, err) == (0, ""), f"bpkref accepts it, bpk answers {status}: {err}"
    view.check_info(view.parse(path.with_suffix(".info").read_bytes()), pack, path)
    view.check_list(view.parse(path.with_suffix(".ls").read_bytes()), pack)
    return True


def check_all(folder, packs):
    """Compares all PACKS; returns how many of them are accepted. Each that differs is kept for the report as hex."""
    need_programs()
    paths = []
    for i, pack in enumerate(packs):
        paths.append(folder / f"{i:05}")
        paths[-1].write_bytes(pack)
    chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run_chunk, chunks))
    accepted, wrong = 0, []
    for path in paths:
        try:
            accepted += check_one(path)
        except AssertionError as error:
            wrong.append(f"{error}\npack {path.read_bytes().rstrip(bytes(1)).hex()}")
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(paths)} differ, the first:\n" + "\n".join(wrong[:5]))
    return accepted


def test_every_truncation(folder):
    for pack in (small_pack(), rich_pack()):
        inner = folder / str(len(pack))
        inner.mkdir()
        assert check_all(inner, [pack[:size] for size in range(len(pack), -1, -STEP)]) == 1


def flipped(pack, bit):
    damaged = bytearray(pack)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_every_flipped_bit(folder):
    pack = small_pack()
    bits = range(0, 8 * len(pack), STEP)
    accepted = check_all(folder, (flipped(pack, bit) for bit in bits))
    assert 0.3 * len(bits) < accepted < 0.95 * len(bits)


def test_every_flipped_bit_of_the_rich_metadata(folder):
    """One bit of each byte, by chance."""
    pack, chance = rich_pack(), random.Random(11)
    accepted = check_all(folder, (flipped(pack, 8 * at + chance.randrange(8)) for at in range(read(pack).metadata_end)))
    assert accepted > 100


@pytest.mark.parametrize("seed", range(4))
def test_changed_cbor(seed, folder):
    chance = random.Random(f"cbor {seed}")
    bases = [small_pack(), rich_pack(), rich_pack()]
    count = 1000 // STEP
    accepted = check_all(folder, (mutate_cbor(chance, chance.choice(bases)) for _ in range(count)))
    assert 0.1 * count < accepted < 0.9 * count


@pytest.mark.parametrize("seed", range(2))
def test_moved_ranges_and_layouts(seed, folder):
    chance = random.Random(f"ranges {seed}")
    count = 1000 // STEP
    accepted = check_all(folder, (moved_pack(chance) for _ in range(count)))
    assert 0.1 * count < accepted < 0.9 * count


TAGGED = {
    "top": lambda tags: tags + w.top({}),
    "top_unknown": lambda tags: w.top({}, extra=[(w.text("zz"), tags + b"\0")]),
    "unknown_key": lambda tags: w.top({}, extra=[(tags + w.text("zz"), b"\0")]),
    "descriptor_unknown": lambda tags: with_entry("zz", tags + b"\0"),
    "param_id": lambda tags: with_entry("param_id", tags + b"\1"),
    "scheme": lambda tags: with_scheme({}, tags),
    "scheme_unknown": lambda tags: with_scheme({"zz": tags + b"\0"}),
    "param": lambda tags: with_scheme({"param": tags + w.text("F32"), "level": w.text("Tensor")}),
    "level": lambda tags: with_scheme({"param": w.text("F32"), "level": tags + w.text("Tensor")}),
    "tensor": lambda tags: with_scheme({"tensor": tags + w.text("F32")}),
}


def with_entry(key, value):
    """A pack's CBOR with one tensor that has one more entry."""
    return w.top({"a": w.descriptor("U8", [0], 0, 0, extra=[(w.text(key), value)])})


def with_scheme(fields, tags=b""):
    """A pack's CBOR with one quantised tensor; FIELDS of its scheme are CBOR."""
    plain = {"value": "Q8S", "store": "Native", "mode": "Symmetric"}
    scheme = w.mapping((w.text(k), v) for k, v in {**{k: w.text(v) for k, v in plain.items()}, **fields}.items())
    dtype = w.mapping([(w.text("QFloat"), tags + scheme)])
    fields = {"dtype": dtype, "shape": w.array([w.integer(0)]), "data_offsets": b"\x82\0\0"}
    return w.top({"a": w.mapping((w.text(k), v) for k, v in fields.items())})


@pytest.mark.parametrize("place", TAGGED)
def test_many_tags(place, folder):
    """Before a known value 1,024 are skipped; under a key that Burn ignores each is a level, and 128 are the most."""
    counts = [0, 1, *range(120, 130), 1023, 1024, 1025]
    packs = [raw_pack(TAGGED[place](w.head(6, tag) * n)) for n in counts for tag in (0, 6, 55799)]
    assert 0 < check_all(folder, packs) < len(packs)


def test_padding_of_a_pack_without_tensors(folder):
    pack = bytearray(build())
    pack[200] = 1
    assert check_all(folder, [bytes(pack)]) == 1


def test_some_of_them_mounted(folder):
    """Everything of the mount, for thirty accepted packs of each kind."""
    chance, packs = random.Random("mounted"), []
    small, rich = small_pack(), rich_pack()
    kinds = (
        lambda: flipped(small, chance.randrange(8 * len(small))),
        lambda: mutate_cbor(chance, rich),
        lambda: moved_pack(chance),
    )
    for kind in kinds:
        found = 0
        while found < 30:
            pack = kind()
            parsed = judge(pack)
            if parsed and not has_doubtful_scheme(parsed):
                packs.append(pack)
                found += 1
    for i, pack in enumerate(packs):
        path = folder / f"{i}.bpk"
        path.write_bytes(pack)
        with mounted(path) as mount:
            view.check_mount(mount.path, read(path), path)


def test_bpk_cat_of_some_of_them(folder):
    chance, path = random.Random("cat"), folder / "x.bpk"
    compared = 0
    for _ in range(300):
        path.write_bytes(chance.choice([moved_pack(chance), mutate_cbor(chance, rich_pack())]))
        pack = judge(path)
        if pack is None or not pack.tensors or has_doubtful_scheme(pack):
            continue
        names = file_names(pack.tensors)
        result = run_bpk("cat", "--", path, *names.values())
        assert (result.status, result.err) == (0, "")
        assert result.out == b"".join(tensor.bytes() for tensor in pack.tensors.values())
        compared += 1
    assert compared > 60
