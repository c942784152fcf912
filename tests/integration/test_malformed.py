"""Odd and broken packs, each mounted or refused as the contract's section 5 says, through bpkfs and through bpk.

The cases are Burn's verdicts (malformed/burn_reader.tsv) and those that are too large to keep, made here. Which of them
we judge otherwise than Burn, and why, is listed in test_bpkref; what is accepted must show what bpkref reads.
"""

import os
import re
import struct

import pytest

import bpkview as view
import bpkwrite as w
from bpkref import HEADER, MAGIC, MAX_METADATA, Refused, build, ceil256, file_names, raw_pack, read
from conftest import MALFORMED, NO_SHARED, SANITIZED, mounted, run_bpk, run_bpkfs, table_entry
from test_bpkref import READ_ALTHOUGH_BURN_REFUSES, REFUSED_ALTHOUGH_BURN_READS, ROWS

MEMORY = 64 << 20
REFUSED, NOT_OPENED = 1, 2  # exit statuses of `bpk verify`

# --- Cases without a file ---

GOOD = build(
    [("a", "F32", [2, 2], struct.pack("<4f", 1, 2, 3, 4), 7), ("b", "U8", [5], bytes(range(1, 6)), None)],
    {"k": "v"},
    {"s": ("Int", 1)},
)
FRONT = GOOD[HEADER.size : read(GOOD).metadata_end]  # its CBOR
KNOWN = bytes([FRONT[0] + 1]) + FRONT[1:]  # the same map, open for one more entry


def sparse(path, front, size):
    path.write_bytes(front)
    os.truncate(path, size)


def large_metadata(path, size):
    sparse(path, HEADER.pack(MAGIC, 1, size) + FRONT, ceil256(HEADER.size + size))
    with open(path, "ab") as file:
        file.write(GOOD[256:])


def one_tensor(nbytes):
    return raw_pack(w.top({"a": w.descriptor("U8", [nbytes], 0, nbytes)}))


def large_tensor(path, nbytes):
    sparse(path, one_tensor(nbytes), 256 + nbytes)


def many_tensors(path, names, nbytes=1):
    """Tensors of a byte each, 256 apart; the names need not differ."""
    pairs = [(w.text(n), w.descriptor("U8", [nbytes], 256 * i * nbytes, 256 * i * nbytes + nbytes)) for i, n in names]
    front = raw_pack(w.mapping([(w.text("tensors"), w.mapping(pairs))]))
    sparse(path, front, len(front) + 256 * len(pairs) * nbytes)


def with_cbor(path, cbor):
    path.write_bytes(raw_pack(cbor, GOOD[256:]))


def under_unknown_key(path, value):
    with_cbor(path, KNOWN + w.text("zz") + value)


def numbered(count):
    return [(i, f"layer.{i:06}.weight") for i in range(count)]


MADE = {
    "metasize_100MiB_exact_zero_padded_sparse": lambda path: large_metadata(path, MAX_METADATA),
    "metasize_100MiB_plus_1_sparse": lambda path: large_metadata(path, MAX_METADATA + 1),
    "count_100000": lambda path: many_tensors(path, numbered(100_000)),
    "count_100001": lambda path: many_tensors(path, numbered(100_001)),
    "count_100001_all_same_name": lambda path: many_tensors(path, [(0, "t")] * 100_001, nbytes=0),
    "tensor_10GiB_exact_sparse": lambda path: large_tensor(path, 10 << 30),
    "tensor_10GiB_plus_1_sparse": lambda path: large_tensor(path, (10 << 30) + 1),
    "file_100GiB_exact_sparse": lambda path: sparse(path, one_tensor(16), 100 << 30),
    "file_100GiB_plus_1_sparse": lambda path: sparse(path, one_tensor(16), (100 << 30) + 1),
    "nest_tags_1000000_at_top": lambda path: with_cbor(path, b"\xc6" * 1_000_000 + FRONT),
    "nest_tags_1000000_in_unknown_key": lambda path: under_unknown_key(path, b"\xc6" * 1_000_000 + b"\0"),
    "nest_maps_100000_in_unknown_key": lambda path: under_unknown_key(path, b"\xa1\0" * 100_000 + b"\0"),
    "path_directory": lambda path: path.mkdir(),
    "path_missing": lambda path: None,
    "path_fifo_none": os.mkfifo,
    "path_without_extension": lambda path: path.with_suffix(".bpk").write_bytes(GOOD),
}
MADE_ACCEPTED = [
    "metasize_100MiB_exact_zero_padded_sparse",
    "count_100000",
    "count_100001_all_same_name",
    "tensor_10GiB_exact_sparse",
    "file_100GiB_exact_sparse",
]
OTHERWISE_THAN_BURN = ["path_without_extension"]  # Burn appends .bpk
UNOPENED = ["path_directory", "path_missing", "path_fifo_none", "path_without_extension"]
# Not read tensor by tensor, which would take too long: test_scale does more.
LISTED_ONLY = ["count_100000"]

WITH_FILE = [case for case in ROWS if (MALFORMED / f"{case}.bpk").exists()] or [pytest.param("none", marks=NO_SHARED)]
CASES = [*WITH_FILE, *MADE]


def pack_of(case, folder):
    """The pack of a case, made in FOLDER if there is no file; its name has no suffix if that is the case's point."""
    if case not in MADE:
        return MALFORMED / f"{case}.bpk"
    path = folder / (case if case == "path_without_extension" else f"{case}.bpk")
    MADE[case](path)
    return path


def is_accepted(case):
    if case in MADE:
        return case in MADE_ACCEPTED
    if case in REFUSED_ALTHOUGH_BURN_READS:
        return False
    return case in READ_ALTHOUGH_BURN_REFUSES or ROWS[case][0] == "accepted"


def memory_limit(path):
    """What a program may have resident: 64 MiB and 3 × metadata_size, where that many bytes are there and allowed."""
    if not path.is_file():
        return MEMORY
    with open(path, "rb") as file:
        front = file.read(HEADER.size)
    size = HEADER.unpack(front)[2] if len(front) == HEADER.size else 0
    return MEMORY + 3 * size if size <= min(MAX_METADATA, path.stat().st_size) else MEMORY


def check_memory(peak, path):
    assert SANITIZED or 1 << 20 < peak <= memory_limit(path), f"{peak >> 20} MiB resident"


def check_refusal(result, program, path, status=1):
    """One line on stderr that names the file, nothing on stdout."""
    assert (result.status, result.out) == (status, b""), result.err
    line = rf"{program}: {re.escape(os.fspath(path))}: (at byte [0-9]+: )?[^\n]{{5,}}\n"
    assert re.fullmatch(line, result.err), result.err


# --- The cases ---


def test_every_verdict_of_burn_is_a_case():
    if not ROWS:
        pytest.skip(f"no shared packs at {MALFORMED}: set BPK_SHARED")
    assert set(ROWS) <= set(CASES)
    for case in set(MADE) & set(ROWS) - set(OTHERWISE_THAN_BURN):
        assert is_accepted(case) == (ROWS[case][0] == "accepted")
    assert sum(map(is_accepted, CASES)) > 100 and sum(not is_accepted(case) for case in CASES) > 100


@pytest.mark.parametrize("case", CASES)
def test_bpkref_judges_alike(case, folder):
    """The judge of what is shown agrees with the table of what is accepted."""
    path = pack_of(case, folder)
    if is_accepted(case):
        read(path)
    else:
        with pytest.raises(Refused):
            read(path)


@pytest.mark.parametrize("case", [case for case in CASES if not isinstance(case, str) or is_accepted(case)])
def test_accepted_pack_is_mounted(case, folder):
    path = pack_of(case, folder)
    pack = read(path)
    with mounted(path) as mount:
        if case in LISTED_ONLY:
            names = file_names(pack.tensors)
            assert len(os.listdir(mount.path / "tensors")) == 2 * len(names)
            view.check_index(mount.path / "index.tsv", pack, names)
        else:
            view.check_mount(mount.path, pack, path)
        check_memory(mount.peak(), path)


@pytest.mark.parametrize("case", [case for case in CASES if not isinstance(case, str) or not is_accepted(case)])
def test_refused_pack_is_not_mounted(case, folder):
    path, mnt = pack_of(case, folder), folder / "mnt"
    mnt.mkdir()
    for options in (["-f", "-o", "ro"], ["-o", "ro"]):  # refused before it goes to the background
        result = run_bpkfs(*options, path, mnt, measure=True)
        check_refusal(result, "bpkfs", path)
        check_memory(result.peak, path)
        assert table_entry(mnt) is None and list(mnt.iterdir()) == []


@pytest.mark.parametrize("case", CASES)
def test_bpk_judges_alike(case, folder):
    path = pack_of(case, folder)
    if not is_accepted(case):
        for arguments in (["info"], ["info", "--json"], ["ls"], ["ls", "--json"], ["verify"]):
            result = run_bpk(*arguments, path, measure=True)
            check_refusal(result, "bpk", path, NOT_OPENED if arguments == ["verify"] and case in UNOPENED else REFUSED)
            check_memory(result.peak, path)
        check_refusal(run_bpk("cat", path, "a"), "bpk", path)
        return
    pack = read(path)
    results = {}
    for arguments in (["verify"], ["info", "--json"], ["ls", "--json"]):
        results[arguments[0]] = result = run_bpk(*arguments, path, measure=True)
        assert result.err == ""
        check_memory(result.peak, path)
    assert results["verify"].status == view.has_problems(pack), results["verify"].out
    assert results["info"].status == results["ls"].status == 0
    view.check_info(view.parse(results["info"].out), pack, path)
    view.check_list(view.parse(results["ls"].out), pack)


@pytest.mark.parametrize("case", [case for case in CASES if not isinstance(case, str) or is_accepted(case)])
def test_bpk_cat_gives_the_bytes(case, folder):
    path = pack_of(case, folder)
    pack = read(path)
    small = [name for name, tensor in pack.tensors.items() if tensor.nbytes < 1 << 26][:50]
    names = file_names(pack.tensors)
    if small:
        result = run_bpk("cat", "--", path, *(names[name] for name in small))
        assert (result.status, result.err) == (0, "")
        assert result.out == b"".join(pack.tensors[name].bytes() for name in small)


# --- More places and names ---


@pytest.mark.parametrize("place", ["/dev/null", "/dev/zero", "loop"])
def test_what_is_no_regular_file_is_refused(place, folder):
    path = folder / place
    if place == "loop":
        path.symlink_to("loop")
    check_refusal(run_bpkfs("-f", "-o", "ro", path, folder), "bpkfs", path)
    check_refusal(run_bpk("verify", path), "bpk", path, NOT_OPENED)


def test_the_file_s_name_is_shown_escaped(folder):
    odd = "esc\033[31m new\nline \u202e \u0085.bpk"
    (folder / odd).write_bytes(GOOD[:100])
    for result in (run_bpkfs("-f", "-o", "ro", folder / odd, folder), run_bpk("ls", folder / odd)):
        assert result.status == 1 and result.err.count("\n") == 1
        assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", result.err)


def test_names_from_the_pack_are_shown_escaped(folder):
    """The refusal names a tensor; so does a problem in the plain listings."""
    odd, path = "esc\033[31m new\nline \u202e", folder / "odd.bpk"
    beyond = w.top({odd: w.descriptor("U8", [9], 0, 9)})
    path.write_bytes(raw_pack(beyond, b"short"))
    check_refusal(run_bpkfs("-f", "-o", "ro", path, folder), "bpkfs", path)
    path.write_bytes(raw_pack(w.top({odd: w.descriptor("U8", [9], 0, 5)}), b"short"))
    for verb in ("ls", "info", "verify"):
        text = run_bpk(verb, path).out.decode()
        assert "esc" in text and not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_a_name_of_a_megabyte(folder):
    path = folder / "long.bpk"
    path.write_bytes(build([("n" * 1_000_000, "U8", [1], b"x", None)], {"k" * 1_000_000: "v" * 1_000_000}))
    with mounted(path) as mount:
        view.check_mount(mount.path, read(path), path)
    assert run_bpk("verify", path).status == 0


def test_a_million_keys(folder):
    """Of metadata, and of a map under an unknown key."""
    keys = w.mapping((w.text(f"{i:07}"), w.text("")) for i in range(1_000_000))
    path = folder / "keys.bpk"
    path.write_bytes(raw_pack(w.mapping([(w.text("tensors"), b"\xa0"), (w.text("metadata"), keys)])))
    result = run_bpk("verify", path, measure=True)
    assert (result.status, result.err) == (0, "")
    check_memory(result.peak, path)
    path.write_bytes(raw_pack(w.top({}, extra=[(w.text("zz"), keys)])))
    result = run_bpk("verify", path, measure=True)
    assert (result.status, result.err) == (0, "")
    check_memory(result.peak, path)


HOSTILE = """9a10000000 9b8000000000000000 bb8000000000000001 5b00000000ffffffff 7b7fffffffffffffff 9bffffffffffffffff
    bbffffffffffffffff c249ffffffffffffffffff 3bffffffffffffffff"""


@pytest.mark.parametrize("item", HOSTILE.split())
@pytest.mark.parametrize("place", ["top", "tensors", "unknown", "shape", "name", "metadata"])
def test_declared_lengths_cost_no_memory(item, place, folder):
    raw, path = bytes.fromhex(item), folder / "hostile.bpk"
    descriptor = {"dtype": w.text("U8"), "shape": raw, "data_offsets": b"\x82\0\0"}
    cbor = {
        "top": raw,
        "tensors": b"\xa1" + w.text("tensors") + raw,
        "unknown": b"\xa2" + w.text("tensors") + b"\xa0" + w.text("zz") + raw,
        "shape": w.top({"a": w.mapping((w.text(k), v) for k, v in descriptor.items())}),
        "name": b"\xa1" + w.text("tensors") + b"\xa1" + raw,
        "metadata": b"\xa2" + w.text("tensors") + b"\xa0" + w.text("metadata") + b"\xa1\x61k" + raw,
    }[place]
    path.write_bytes(raw_pack(cbor))
    result = run_bpk("verify", path, measure=True)
    check_memory(result.peak, path)
    try:
        assert result.status == view.has_problems(read(path))
    except Refused:
        check_refusal(result, "bpk", path)
