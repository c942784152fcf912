"""Proves the judge: bpkref and bpkwrite against Burn's own packs, Burn's verdicts on broken ones, and cbor2.

The shared packs are found through BPK_SHARED (by default ../shared beside the repository); without them the tests that
need them are skipped.
"""

import csv
import gzip
import hashlib
import json
import os
import pathlib
import re
import struct

import cbor2
import pytest

import bpkwrite as w
from bpkref import Refused, build, ceil256, raw_pack, read

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("BPK_SHARED", REPOSITORY.parent / "shared"))
FIXTURES, MALFORMED = SHARED / "fixtures", SHARED / "malformed"
NO_SHARED = pytest.mark.skip(reason=f"no shared packs at {SHARED}: set BPK_SHARED")

# Where we and Burn's newest reader differ, and why (the contract's section 5, the format notes 2.6).
READ_ALTHOUGH_BURN_REFUSES = {
    "dtype_bool_unit_legacy": 'text "Bool" of v0.19 to v0.21.0-pre.2 is read',
    "qfloat_v019_store_u32": 'the store "U32" of v0.19 is read',
    "unaligned_data_section_v019": "the v0.19 layout is read",
}
REFUSED_ALTHOUGH_BURN_READS = {
    "illformed_offsets_count_3_but_2_items": "Burn takes it by losing sync",
    "illformed_block_storage_count_6_but_5_items": "Burn takes it by losing sync",
    "scalar_illformed_text_Int_then_value": "Burn takes it by losing sync",
}
# The faults of what is accepted, by code; every other accepted case has none.
PROBLEMS = {
    "cbor_map_count_too_small": "after-cbor",
    "dup_metadata_key": "duplicate-key",
    "dup_tensor_names_diff": "duplicate-name padding a:overlap b:overlap",
    "empty_tensors_map": "after-data",
    "nonzero_padding_between_tensors": "padding",
    "off_in_padding": "padding a:start",
    "off_len_mismatch_short": "padding a:length",
    "off_overlap_b_partially": "padding a:length a:start a:overlap b:overlap",
    "off_unaligned_1": "a:start",
    "off_unaligned_8": "padding a:start",
    "off_zero_len_at_eof": "padding a:length a:start",
    "pad_trailing_spaces": "after-cbor",
    "pad_trailing_zero_then_text": "after-cbor",
    "shape_1000_dims": "a:length",
    "shape_dim_u64_max": "a:length",
    "shape_empty_vs_16_bytes": "a:length",
    "shape_product_overflow": "a:length",
    "shape_zero_dim_with_data": "a:length",
    "trail_in_meta_garbage": "after-cbor",
    "trail_in_meta_second_map": "after-cbor",
    "trailing_after_data_1": "after-data",
    "trailing_after_data_4096_ff": "after-data",
}


def fixture_names(*prefixes):
    """The names of the shared packs that start with one of PREFIXES."""
    names = sorted(p.stem for p in FIXTURES.glob("*.bpk") if p.stem.startswith(prefixes or ""))
    return names or [pytest.param("none", marks=NO_SHARED)]


def burn_rows():
    """case -> (outcome, detail) of every row of Burn's verdicts."""
    if not MALFORMED.is_dir():
        return {}
    with open(MALFORMED / "burn_reader.tsv", newline="", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        return {case: (outcome, detail) for case, outcome, _stage, detail in rows}


ROWS = burn_rows()
ROWS_WITH_FILE = [c for c in ROWS if (MALFORMED / f"{c}.bpk").exists()] or [pytest.param("none", marks=NO_SHARED)]


def refused(pack, **options):
    with pytest.raises(Refused) as caught:
        read(pack, **options)
    return caught.value


def problems(pack):
    """The codes of all faults in one line, those of a tensor after its name."""
    codes = [p.code for p in pack.problems]
    codes += [f"{t.name}:{p.code}" for t in pack.tensors.values() for p in t.problems]
    return " ".join(codes)


def in_data_order(pack):
    return sorted(pack.tensors.values(), key=lambda t: (t.start, t.end))


def contents(pack):
    """What build() needs to make PACK again."""
    return [(t.name, t.dtype, t.shape, t.bytes(), t.param_id) for t in in_data_order(pack)]


# --- Burn's own packs ---


def dump_of(name):
    gz = FIXTURES / f"{name}.dump.json.gz"
    plain = FIXTURES / f"{name}.dump.json"
    return json.loads(gzip.decompress(gz.read_bytes()) if gz.exists() else plain.read_bytes())


def dumped_tensor(tensor):
    return {
        "byte_len": tensor.nbytes,
        "data_offsets": [tensor.start, tensor.end],
        "dtype": tensor.dtype,
        "name": tensor.name,
        "param_id": tensor.param_id,
        "sha256": hashlib.sha256(tensor.bytes()).hexdigest(),
        "shape": tensor.shape,
    }


def without_float_text(scalar):
    """{"Float": bits} of a dumped Float, whose text is not compared; any other scalar as it is."""
    return {"Float": int(scalar["bits"], 16)} if "Float" in scalar else scalar


@pytest.mark.parametrize("name", fixture_names())
def test_fixture_is_read_as_burn_reads_it(name):
    pack, dump = read(FIXTURES / f"{name}.bpk"), dump_of(name)
    assert [dumped_tensor(t) for t in pack.tensors.values()] == dump["tensors"]
    assert pack.metadata == dump["metadata"]
    assert {n: {k: v} for n, (k, v) in pack.scalars.items()} == {
        n: without_float_text(s) for n, s in dump["scalars"].items()
    }
    assert (pack.version, pack.metadata_end) == (dump["header"]["version"], 10 + dump["header"]["metadata_size"])
    assert pack.data_start == dump["data_offset"]
    assert (problems(pack), pack.extra) == ("", [])
    assert read((FIXTURES / f"{name}.bpk").read_bytes()).tensors.keys() == pack.tensors.keys()


@pytest.mark.parametrize("name", [n for n in fixture_names() if n != "legacy019_duplicate"])
def test_fixture_is_built_again_byte_for_byte(name):
    """All but one, which holds bytes that no tensor refers to."""
    path = FIXTURES / f"{name}.bpk"
    pack = read(path)
    assert build(contents(pack), pack.metadata, pack.scalars, pack.layout) == path.read_bytes()


@pytest.mark.parametrize("name", fixture_names("legacy019"))
def test_v019_fixture_has_the_legacy_layout(name):
    pack = read(FIXTURES / f"{name}.bpk")
    assert pack.data_start == pack.metadata_end
    assert pack.layout == ("aligned" if name == "legacy019_boundary_exact" else "legacy")  # there both are the same


# --- Burn's verdicts on odd and broken packs ---


def burn_dtype(dtype):
    """A dtype as Burn's newest reader prints it: without param and level, absent options as null, keys sorted."""
    if isinstance(dtype, str):
        return dtype
    if "QFloat" in dtype:
        scheme = {k: v for k, v in dtype["QFloat"].items() if k not in ("param", "level")}
        dtype = {"QFloat": {"tensor": None, "block": None, **scheme}}
    return json.dumps(dtype, sort_keys=True, separators=(",", ":"))


def burn_tensor(tensor):
    shape = tensor.shape if len(tensor.shape) < 1000 else None
    digest = hashlib.sha256(tensor.bytes()).hexdigest()[:8] if 0 <= tensor.nbytes < 1 << 20 else ""
    return (
        f"{tensor.name}:{burn_dtype(tensor.dtype)}{shape or ('<1000 dims>' if shape is None else '[]')}"
        f"@{[tensor.start, tensor.end]} len={tensor.nbytes} pid={tensor.param_id} sha={digest}"
    )


def burn_scalar(kind, value):
    return {"bits": f"0x{value:016x}"} if kind == "Float" else {kind: value}


def burn_detail(pack):
    """What the table of verdicts says of an accepted pack; of metadata it has the first 60 characters of the JSON."""
    scalars = {name: burn_scalar(*pack.scalars[name]) for name in sorted(pack.scalars)}
    return " ".join(
        [f"n={len(pack.tensors)}"]
        + [burn_tensor(t) for t in pack.tensors.values()]
        + [f"data_offset={pack.data_start}"]
        + [f"md={json.dumps(dict(sorted(pack.metadata.items())))[:60]}", f"sc={json.dumps(scalars)}"]
    )


def expected_detail(case):
    """The row's words without the text of floats: their bits are compared."""
    return re.sub(r'"Float": "[^"]*", ', "", ROWS[case][1])


@pytest.mark.parametrize("case", ROWS_WITH_FILE)
def test_odd_pack_is_judged_as_burn_judges_it(case):
    path = MALFORMED / f"{case}.bpk"
    accepted = ROWS[case][0] == "accepted"
    assert not (accepted and case in READ_ALTHOUGH_BURN_REFUSES)
    if case in REFUSED_ALTHOUGH_BURN_READS or not (accepted or case in READ_ALTHOUGH_BURN_REFUSES):
        refused(path)
        return
    pack = read(path)
    assert problems(pack) == PROBLEMS.get(case, "")
    if accepted:
        assert burn_detail(pack) == expected_detail(case)


def test_the_tables_of_exceptions_name_only_cases_that_exist():
    if not ROWS:
        pytest.skip(f"no shared packs at {SHARED}: set BPK_SHARED")
    assert {*READ_ALTHOUGH_BURN_REFUSES, *REFUSED_ALTHOUGH_BURN_READS, *PROBLEMS} <= set(ROWS)


# --- Burn's cases that are too large to keep ---

A = ("a", "F32", [2, 2], struct.pack("<4f", 1, 2, 3, 4), 7)
B = ("b", "U8", [5], bytes(range(1, 6)), None)
GOOD = {"metadata": {"k": "v"}, "scalars": {"s": ("Int", 1)}}


def good():
    return build([A, B], **GOOD)


def one_tensor(nbytes):
    return w.top({"a": w.descriptor("U8", [nbytes], 0, nbytes)})


def many(names):
    """The CBOR of a pack whose tensors have these NAMES and no bytes."""
    empty = w.descriptor("U8", [0], 0, 0)
    return w.mapping([(w.text("tensors"), w.mapping((w.text(name), empty) for name in names))])


def sparse(tmp_path, front, size):
    """A file of SIZE bytes that starts with FRONT and is a hole after it."""
    path = tmp_path / "sparse.bpk"
    path.write_bytes(front)
    os.truncate(path, size)
    return path


def test_good_pack_of_the_verdicts_is_ours():
    if not ROWS:
        pytest.skip(f"no shared packs at {SHARED}: set BPK_SHARED")
    metadata_end = read(good()).metadata_end
    assert good()[:metadata_end] == (MALFORMED / "good.bpk").read_bytes()[:metadata_end]


def test_metadata_of_100_mib_is_the_most(tmp_path):
    front = good()[: read(good()).metadata_end]
    for size in (100 << 20, (100 << 20) + 1):
        header = struct.pack("<4sHI", b"NRUB", 1, size)
        path = sparse(tmp_path, header + front[10:], ceil256(10 + size) + 261)
        if size == 100 << 20:
            assert (read(path).data_start, problems(read(path))) == (104857856, "")
        else:
            refused(path)


def test_a_100_000_tensors_are_the_most():
    assert len(read(raw_pack(many(f"t{i}" for i in range(100_000)))).tensors) == 100_000
    refused(raw_pack(many(f"t{i}" for i in range(100_001))))
    same = read(raw_pack(many(["t"] * 100_001)))
    assert (len(same.tensors), set(problems(same).split())) == (1, {"duplicate-name"})


def test_a_tensor_of_10_gib_is_the_largest(tmp_path):
    for nbytes in (10 << 30, (10 << 30) + 1):
        path = sparse(tmp_path, raw_pack(one_tensor(nbytes)), 256 + nbytes)
        if nbytes == 10 << 30:
            tensor = read(path).tensors["a"]
            assert (tensor.nbytes, tensor.position, tensor.problems) == (nbytes, 256, [])
        else:
            refused(path)


def test_a_file_of_100_gib_is_the_largest(tmp_path):
    front = raw_pack(one_tensor(16), bytes(16))
    pack = read(sparse(tmp_path, front, 100 << 30))
    assert (problems(pack), pack.tensors["a"].bytes()) == ("after-data", bytes(16))
    refused(sparse(tmp_path, front, (100 << 30) + 1))


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "missing.bpk", "/dev/null"):
        refused(path)
    (tmp_path / "good.bpk").write_bytes(good())
    refused(tmp_path / "good")  # no extension is appended


# --- CBOR, rule by rule (format notes 2.6) ---


def with_unknown(value):
    """A good pack with an unknown key at the top, whose value is this CBOR."""
    return raw_pack(w.top({}, extra=[(w.text("zz"), value)]))


def with_descriptor(**changes):
    """A pack of one empty tensor, fields of its descriptor replaced by CBOR."""
    fields = {"dtype": w.text("U8"), "shape": w.array([w.integer(0)]), "data_offsets": b"\x82\0\0", **changes}
    return raw_pack(w.top({"a": w.mapping((w.text(k), v) for k, v in fields.items())}))


def with_scalar(value):
    return raw_pack(w.mapping([(w.text("tensors"), b"\xa0"), (w.text("scalars"), b"\xa1\x61s" + value)]))


def test_levels_below_the_top_map():
    for opening, closing in ((b"\x81", b""), (b"\x9f", b"\xff"), (b"\xc6", b""), (b"\xa1\0", b"")):
        read(with_unknown(opening * 127 + b"\0" + closing * 127))
        refused(with_unknown(opening * 128 + b"\0" + closing * 128))
        refused(with_unknown(opening * 100_000))


def test_levels_count_enums():
    """An unknown key of a scheme: top map, tensors, descriptor, enum, scheme are open."""
    scheme = {"value": "Q8S", "store": "Native", "mode": "Symmetric"}
    for depth, judge in ((123, read), (124, refused)):
        pairs = [(w.text(k), w.text(v)) for k, v in scheme.items()] + [(w.text("x"), b"\x81" * depth + b"\0")]
        judge(with_descriptor(dtype=w.mapping([(w.text("QFloat"), w.mapping(pairs))])))


def test_tags_before_a_known_value():
    for tags in (0, 1, 1024, 1025):
        judge = read if tags <= 1024 else refused
        judge(raw_pack(b"\xc6" * tags + w.top({})))
        judge(with_descriptor(shape=b"\x81" + b"\xc6" * tags + b"\0"))
        judge(with_scalar(b"\xa1" + b"\xc6" * tags + w.text("Bool") + b"\xf5"))
    assert read(with_descriptor(param_id=b"\xc6\xc2\x41\x07")).tensors["a"].param_id == 7


ILL_FORMED = """f0 f3 f8ff f814 f81f fc fd fe ff 1c 1f 3f df 9f a1 bf00ff 9b7fffffffffffffff
    61ff 62c3 7f61ffff 7f417800ff 7f7f6161ffff 5f5f4100ffff 5f6161ff"""
NO_BIGNUM = "c201 c3f4 c2c24107 c35080000000000000000000000000000000"
WELL_FORMED = """f4 f6 f7 f97e00 fb7ff0000000000001 3bffffffffffffffff 9fff bfff 5fff 7f60ff a1f600 c240 c35f41ff41ffff
    c249010000000000000000 c34f800000000000000000000000000000 c3510100000000000000000000000000000000
    c250ffffffffffffffffffffffffffffffff d9d9f700"""


@pytest.mark.parametrize("hexadecimal", f"{ILL_FORMED} {NO_BIGNUM}".split())
def test_ill_formed_under_an_unknown_key(hexadecimal):
    refused(with_unknown(bytes.fromhex(hexadecimal)))


@pytest.mark.parametrize("hexadecimal", WELL_FORMED.split())
def test_well_formed_under_an_unknown_key(hexadecimal):
    raw = bytes.fromhex(hexadecimal)
    assert read(with_unknown(raw)).extra == [(w.text("zz"), raw)]


def test_nothing_is_judged_after_the_top_map():
    assert problems(read(raw_pack(w.top({}) + b"\xff"))) == "after-cbor"


def test_options_are_none_only_without_a_tag():
    assert read(with_descriptor(param_id=b"\xf7")).tensors["a"].param_id is None
    refused(with_descriptor(param_id=b"\xc6\xf6"))
    scheme = [(w.text(k), w.text(v)) for k, v in (("value", "Q8S"), ("store", "Native"), ("mode", "Lookup"))]
    for option, judge in ((b"\xf6", read), (b"\xc6\xf6", refused)):
        dtype = w.mapping([(w.text("QFloat"), w.mapping([*scheme, (w.text("block"), option)]))])
        judge(with_descriptor(dtype=dtype))


def test_bignums_that_fit():
    long = "c254" + "00" * 19 + "07"
    for number, raw in ((2**64 - 1, "c248" + "ff" * 8), (7, "c25f4100410740ff"), (7, long), (0, "c240")):
        assert read(with_descriptor(param_id=bytes.fromhex(raw))).tensors["a"].param_id == number
    for raw in ("c249010000000000000000", "c340", "c2c24107", "c207", "c25f5f4107ffff"):
        refused(with_descriptor(param_id=bytes.fromhex(raw)))
    assert read(with_scalar(w.mapping([(w.text("Int"), b"\xc3\x41\x02")]))).scalars == {"s": ("Int", -3)}


def test_short_signalling_nans_become_quiet():
    for raw, pattern in ((b"\xf9\xfc\x01", 0xFFF8_0400_0000_0000), (b"\xfa\x7f\x80\0\1", 0x7FF8_0000_2000_0000)):
        assert read(with_scalar(w.mapping([(w.text("Float"), raw)]))).scalars == {"s": ("Float", pattern)}


def test_byte_strings_as_lists():
    tensor = read(with_descriptor(shape=b"\x43\0\2\3", data_offsets=b"\x5f\x41\0\x42\0\x09\xff")).tensors["a"]
    assert (tensor.shape, tensor.start, tensor.end) == ([0, 2, 3], 0, 0)
    refused(with_descriptor(data_offsets=b"\x41\0"))
    for offsets in (b"\x83\0\0\0", b"\x81\0", b"\x9f\0\0\xff"):
        refused(with_descriptor(data_offsets=offsets))


def test_enums():
    assert read(with_descriptor(dtype=b"\xa1\x44Bool" + w.text("U8"))).tensors["a"].dtype == {"Bool": "U8"}
    refused_dtypes = [
        b"\x42U8",  # a byte string only as the key of the map
        b"\xa1" + w.text("U8") + b"\xf6",
        b"\xbf" + w.text("Bool") + w.text("U8") + b"\xff",
        b"\x7f\x62U8\xff",
        w.mapping([(w.text("Bool"), w.mapping([(w.text("U8"), b"\xf6")]))]),
        w.text("QFloat"),
        w.text("u8"),
    ]
    for dtype in refused_dtypes:
        refused(with_descriptor(dtype=dtype))
    for scalar in (w.text("Int"), w.mapping([(w.text("Float"), b"\1")]), w.mapping([(w.text("Bool"), b"\1")])):
        refused(with_scalar(scalar))


def test_older_keys_of_a_scheme_are_shown_where_they_read():
    scheme = {"value": "Q8S", "param": "F16", "store": "U32", "level": "Tensor", "mode": "Symmetric"}
    assert read(with_descriptor(dtype=w.item({"QFloat": scheme}))).tensors["a"].dtype == {"QFloat": scheme}
    odd = {**scheme, "level": {"Rows": 3}}
    del scheme["level"]
    assert read(with_descriptor(dtype=w.item({"QFloat": odd}))).tensors["a"].dtype == {"QFloat": scheme}


def test_every_truncation_and_every_flipped_bit_agrees_with_cbor2():
    """What is accepted of a damaged pack is well-formed and means to cbor2 what it means to us."""
    pack = good()
    for size in range(len(pack)):
        refused(pack[:size])
    accepted = 0
    for bit in range(8 * 10, 8 * read(pack).metadata_end):
        damaged = bytearray(pack)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            parsed = read(bytes(damaged))
        except Refused:
            continue
        accepted += 1
        agree_with_cbor2(parsed, bytes(damaged))
    assert accepted > 100


# --- The same values as cbor2 reads ---


def plain(value, key=False):
    """A value of cbor2 without tags, undefined as None; a map's byte-string keys as text."""
    if isinstance(value, cbor2.CBORTag):
        return plain(value.value, key)
    if isinstance(value, dict):
        return {plain(k, key=True): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(x) for x in value]
    if key and isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if value is cbor2.undefined else value


def as_lists(value):
    """Byte strings that stand for lists of numbers as lists, all the way down."""
    if isinstance(value, dict):
        return {k: as_lists(v) for k, v in value.items()}
    return list(value) if isinstance(value, bytes) else value


def agree_with_cbor2(pack, data):
    document = plain(cbor2.loads(data[10 : pack.metadata_end]))
    assert document["tensors"].keys() == pack.tensors.keys()
    for name, tensor in pack.tensors.items():
        fields = as_lists(document["tensors"][name])
        assert fields["shape"] == tensor.shape
        assert fields["data_offsets"][:2] == [tensor.start, tensor.end]
        assert fields.get("param_id") == tensor.param_id
        assert contains(fields["dtype"], tensor.dtype)
        assert as_lists(plain(cbor2.loads(tensor.dtype_cbor))) == fields["dtype"]
    assert document.get("metadata", {}) == pack.metadata
    scalars = {n: (k, bits(v) if k == "Float" else v) for n, (k, v) in pairs(document.get("scalars", {}))}
    assert scalars.keys() == pack.scalars.keys()
    assert all(same_scalar(scalars[name], pack.scalars[name]) for name in scalars)


def contains(theirs, ours):
    """Ours leaves out a scheme's unknown keys and nothing else."""
    if not isinstance(ours, dict) or "QFloat" not in ours:
        return theirs == ours
    return all(theirs["QFloat"][key] == value for key, value in ours["QFloat"].items())


def pairs(scalars):
    return ((name, next(iter(scalar.items()))) for name, scalar in scalars.items())


def bits(value):
    """The 64-bit pattern of a float."""
    return int.from_bytes(struct.pack(">d", value), "big")


def same_scalar(theirs, ours):
    """cbor2 may change the payload of a NaN."""
    nan = 0x7FF0000000000000
    if ours[0] == theirs[0] == "Float" and ours[1] & U63 > nan:
        return theirs[1] & U63 > nan
    return theirs == ours


U63 = (1 << 63) - 1


def shared_packs_for_cbor2():
    """All of them but those with tag 1 before a value, which cbor2 takes for a date."""
    paths = [*sorted(FIXTURES.glob("*.bpk")), *sorted(MALFORMED.glob("*.bpk"))]
    params = [pytest.param(p, id=p.stem) for p in paths if "tag_on_" not in p.stem]
    return params or [pytest.param(None, marks=NO_SHARED)]


@pytest.mark.parametrize("path", shared_packs_for_cbor2())
def test_cbor2_reads_the_same(path):
    try:
        pack = read(path)
    except Refused:
        return  # judged above
    try:
        agree_with_cbor2(pack, path.read_bytes())
    except (cbor2.CBORDecodeError, RecursionError) as error:
        pytest.skip(f"cbor2 cannot read it: {error}")


# --- Odd content that is read ---


def test_unknown_entries_and_the_last_duplicate():
    entry = (w.text("zz"), b"\x82\x01\xf6")
    descriptor = w.descriptor("U8", [0], 0, 0, extra=[entry])
    pack = read(raw_pack(w.top({"a": descriptor}, extra=[entry, entry])))
    assert (pack.extra, pack.tensors["a"].extra, problems(pack)) == ([entry, entry], [entry], "")
    twice = read(raw_pack(w.mapping([(w.text("tensors"), b"\xa0"), (w.text("metadata"), b"\xa2\x61k\x61a\x61k\x61b")])))
    assert (twice.metadata, problems(twice)) == ({"k": "b"}, "duplicate-key")


def test_faults_that_burn_takes():
    assert problems(read(raw_pack(w.top({}), version=0))) == "version"
    refused(raw_pack(w.top({}), version=2))
    ranges = {"a": (0, 600), "b": (256, 300), "c": (512, 700), "d": (768, 769)}
    overlapping = {name: w.descriptor("U8", [end - start], start, end) for name, (start, end) in ranges.items()}
    assert problems(read(raw_pack(w.top(overlapping), bytes(769)))) == "a:overlap b:overlap c:overlap"


# --- Legacy or aligned (format notes 1.5) ---

U32S = ("x", "U32", [3], b"\1\2\3\4" * 3, None)


def test_intact_packs_are_told_apart_by_their_length():
    assert read(build([A, B])).layout == "aligned"
    legacy = build([A, B], layout="legacy")
    assert (read(legacy).layout, read(legacy).tensors["b"].bytes()) == ("legacy", B[3])
    refused(legacy, layout="aligned")
    assert read(legacy + b"\0", layout="legacy").tensors["a"].bytes() == A[3]


def test_cut_or_longer_packs():
    aligned, legacy = build([U32S]), build([U32S, B], layout="legacy")
    padding = 256 - read(aligned).metadata_end
    for pack in (aligned, legacy):
        refused(pack[:-1])
    refused(aligned[:-padding])  # U + X bytes, zeros in the padding, starts of 256: undecidable
    assert read(aligned[:-padding], layout="legacy").layout == "legacy"
    refused(legacy + b"\0")
    for tail in (b"\0", bytes(padding), b"\1" * 1000):
        longer = read(aligned + tail)
        assert (longer.layout, problems(longer)) == ("aligned", "after-data")
    tail = bytes(256 - read(legacy).metadata_end)  # the length of an aligned pack, but data where padding must be
    assert problems(read(legacy + tail)) == "after-data"
    assert read(legacy + tail).layout == "legacy"


def test_padding_that_is_not_zero_before_data_on_256():
    for tail, faults in ((b"", "padding"), (b"tail", "after-data padding")):
        pack = bytearray(build([A, B]) + tail)
        pack[255] = 1
        assert (read(bytes(pack)).layout, problems(read(bytes(pack)))) == ("aligned", faults)


def test_metadata_decides_where_nothing_else_does():
    zeros = ("z", "U8", [8], bytes(8), None)
    for version in ("0.19.1", "0.20.0-pre.1", "0.20.0-pre.4"):
        assert read(build([zeros], {"version": version}, layout="legacy")).layout == "legacy"
    for metadata in ({"version": "0.20.0-pre.5"}, {"version": "0.21.0"}, {"format": "burnpack"}, {}):
        refused(build([zeros], metadata, layout="legacy"))


def test_packs_without_bytes():
    """Only the metadata must be there; a file that ends right after it came from the writer of the legacy layout."""
    for tensors in ([], [("e", "F32", [0, 3], b"", None)]):
        pack = build(tensors)
        assert read(pack).layout == read(pack[:-1]).layout == "aligned"
        legacy = build(tensors, layout="legacy")
        assert (read(legacy).layout, problems(read(legacy))) == ("legacy", "")
        refused(legacy[:-1])
    assert problems(read(build() + b"\0")) == "after-data"
