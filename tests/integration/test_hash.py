"""`bpk ls --hash`: the XXH3-64 of each tensor's bytes, in the table and in JSON."""

import errno
import os

import pytest

import bpkcrash as crash
import bpkview as view
from bpkref import build, read
from bpkwrite import xxh3_64
from conftest import BPK, FIXTURES, NO_SHARED, need_programs, need_tool, run, run_bpk

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]
HEAD = "DTYPE     SHAPE                  BYTES  XXH3              NAME"
LONG_HEAD = "DTYPE     SHAPE                  BYTES          OFFSET  PARAM_ID              XXH3              NAME"


def hash_of(tensor):
    return f"{xxh3_64(tensor.bytes()):016x}"


def without_hash(sidecars):
    return [{key: value for key, value in sidecar.items() if key != "xxh3"} for sidecar in sidecars]


@pytest.mark.parametrize("name", NAMES)
def test_hashes_of_fixtures(name):
    path = FIXTURES / f"{name}.bpk"
    tensors = read(path).tensors.values()
    plain, hashed = run_bpk("ls", "--json", path), run_bpk("ls", "--hash", "--json", path)
    assert (hashed.status, hashed.err) == (0, "")
    shown = view.parse(hashed.out)
    assert [sidecar["xxh3"] for sidecar in shown] == [hash_of(tensor) for tensor in tensors]
    assert without_hash(shown) == view.parse(plain.out)


def columns(line):
    """What stands before and after the column of the hash, and the hash."""
    at = HEAD.index("XXH3")
    return line[:at] + line[at + 18 :], line[at : at + 18]


@pytest.fixture
def varied(folder):
    tensors = [(f"t.{size}", "U8", [size], os.urandom(size), size) for size in (0, 1, 16, 240, 241, 1 << 18, 300_000)]
    tensors += [("twice", "U8", [16], tensors[2][3], None), ("a/b\x1b", "U8", [1], b"x", None)]
    path = folder / "varied.bpk"
    path.write_bytes(build(tensors))
    return path


def test_table(varied):
    plain, hashed = run_bpk("ls", varied), run_bpk("ls", "--hash", varied)
    assert (hashed.status, hashed.err) == (0, "")
    lines = hashed.out.decode().splitlines()
    assert lines[0] == HEAD
    rows = [columns(line) for line in lines]
    assert [row for row, _ in rows] == plain.out.decode().splitlines()
    assert [column for _, column in rows[1:]] == [f"{hash_of(tensor)}  " for tensor in read(varied).tensors.values()]
    long = run_bpk("ls", "-l", "--hash", varied, "t.16", "twice").out.decode().splitlines()
    assert long[0] == LONG_HEAD
    assert [line.split()[-2] for line in long[1:]] == [hash_of(read(varied).tensors["twice"])] * 2


def test_patterns(varied):
    shown = view.parse(run_bpk("ls", "--hash", "--json", varied, "t.2*").out)
    assert [sidecar["name"] for sidecar in shown] == ["t.240", "t.241", "t.262144"]
    tensors = read(varied).tensors
    assert [sidecar["xxh3"] for sidecar in shown] == [hash_of(tensors[sidecar["name"]]) for sidecar in shown]
    nothing = run_bpk("ls", "--hash", "--json", varied, "none")
    assert (nothing.status, nothing.out) == (1, b"[]\n") and "no tensor matches" in nothing.err


def test_what_is_printed_is_a_sidecar(varied):
    """Its keys are those that a sidecar may have, so that it can be written to one."""
    (shown,) = view.parse(run_bpk("ls", "--hash", "--json", varied, "twice").out)
    assert list(shown) == [*view.SIDECAR_KEYS, "xxh3"]




def test_tensor_that_cannot_be_read(varied, folder):
    """The others have their hashes, the exit status is 1, and one line tells of it."""
    need_programs()
    need_tool("strace")
    need_tool("taskset")
    command = ["taskset", "-c", min(os.sched_getaffinity(0)), "strace", "-f", "-e", "trace=pread64"]
    command = [str(word) for word in command]
    listing = [BPK, "ls", "--hash", "--json", varied]
    calls = folder / "calls"
    if run(*command, "-o", calls, *listing, env=crash.no_leaks()).status != 0:
        pytest.skip("strace cannot trace here")
    lines = calls.read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if line.endswith(" = 241")]
    result = run(*command, "-o", calls, "-e", f"inject=pread64:error=EIO:when={number}", *listing, env=crash.no_leaks())
    assert result.status == 1
    assert result.err == f"bpk: {varied}: tensor 't.241': cannot read: {os.strerror(errno.EIO)}\n"
    shown = {sidecar["name"]: sidecar.get("xxh3") for sidecar in view.parse(result.out)}
    expected = {name: hash_of(tensor) for name, tensor in read(varied).tensors.items()}
    assert shown == {**expected, "t.241": None}
