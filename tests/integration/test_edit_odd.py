"""Commits into odd packs: what is mended, dropped and carried over (contract, section 4), and the lines that say so.

Every pack that mounts is given one edit of its metadata, and one of a tensor. What must come of it, and what must be
said, is computed from bpkref's reading of the pack before.
"""

import errno
import fcntl
import os
import re
import signal

import pytest

import bpkedit as edit
import bpkref
import bpkview as view
import bpkwrite as w
from conftest import FIXTURES, MALFORMED, NO_SHARED, run_bpk, wait_until

FICLONE = 0x40049409
KEY = "added by a test"
NAMES_SHOWN = 5

# --- Packs ---


def u8(start, end):
    return w.descriptor("U8", [end - start], start, end)


def odd(tensors, data, more=(), **options):
    """A pack of (name, start, end), names maybe twice."""
    pairs = [(w.text(name), u8(start, end)) for name, start, end in tensors]
    return w.raw_pack(w.mapping([(w.text("tensors"), w.mapping(pairs)), *more]), data, **options)


def pattern(size):
    return bytes(i % 255 + 1 for i in range(size))


def twice(key, first, second):
    return w.text(key), w.mapping([(w.text("k"), first), (w.text("k"), second)])


VERSION = (w.text("metadata"), w.mapping([(w.text("version"), w.text("0.19.0"))]))
GAPS = b"a" * 3 + bytes(253) + b"b" * 300

MADE = {
    "hidden_in_a_gap": odd([("a", 0, 3), ("b", 256, 500), ("b", 512, 520)], pattern(520)),
    "hidden_in_padding": odd([("a", 0, 3), ("b", 3, 9), ("b", 256, 300)], pattern(9) + bytes(247) + pattern(44)),
    "hidden_zeros": odd([("a", 0, 3), ("b", 256, 259), ("b", 512, 520)], b"abc" + bytes(509) + b"12345678"),
    "hidden_at_the_end": odd([("b", 256, 300), ("a", 0, 3), ("b", 0, 3)], GAPS[:300]),
    "three_of_a_name": odd([("b", 0, 1), ("b", 0, 2), ("b", 0, 3)], b"abc"),
    "keys_twice": odd(
        [("a", 0, 3)],
        b"abc",
        [twice("metadata", w.text("1"), w.text("2")), twice("scalars", w.scalar("Int", 1), w.scalar("Int", 2))],
    ),
    "all_off_256": odd([(f"t{i}\n\033[31m\u202e", 8 * i, 8 * i + 8) for i in range(9)], pattern(72)),
    "all_over_each_other": odd([(f"t{i}", 0, 100 + i) for i in range(NAMES_SHOWN)], pattern(110)),
    "zeros_in_a_large_gap": odd([("a", 0, 3), ("b", 4096, 4100)], b"abc" + bytes(4093) + b"abcd"),
    "one_byte_of_padding": odd([("a", 0, 3), ("b", 256, 556)], b"abc\x01" + GAPS[4:]),
    "padding_of_a_large_pack": odd([("a", 0, 3), ("b", 256, 9000)], pattern(9000)),
    "gap_of_a_large_pack": odd([("a", 0, 3), ("b", 512, 9000)], pattern(9000)),
    "last_byte_of_a_gap": odd([("a", 0, 3), ("b", 768, 769)], b"abc" + bytes(764) + b"\x01b"),
    "legacy_overlap": odd([("a", 0, 5), ("b", 3, 9)], pattern(9), [VERSION], align=False),
    "legacy_gap": odd([("a", 0, 3), ("b", 256, 259)], pattern(259), [VERSION], align=False),
    "off_256_between": odd([("a", 0, 3), ("gone", 100, 104), ("b", 256, 259)], GAPS[:100] + b"gone" + GAPS[104:259]),
    "after_the_data": odd([("a", 0, 3)], pattern(1000)),
    "after_the_cbor": odd([], b"", metadata_size=100).ljust(100, b"!") + bytes(156),
    "everything": odd(
        [("a", 0, 300), ("b", 256, 400), ("c", 401, 500), ("c", 512, 515), ("d", 768, 770)],
        pattern(900),
        [twice("metadata", w.text("1"), w.text("2"))],
    ),
}


def is_read(path):
    try:
        return bool(bpkref.read(path))
    except bpkref.Refused:
        return False


SHARED_PACKS = [path for folder in (FIXTURES, MALFORMED) for path in sorted(folder.glob("*.bpk")) if is_read(path)]
CASES = [*MADE, *SHARED_PACKS] if SHARED_PACKS else [*MADE, pytest.param("none", marks=NO_SHARED)]


def pack_of(case, folder):
    path = folder / "model.bpk"
    path.write_bytes(MADE[case] if case in MADE else case.read_bytes())
    return path


# --- What must come of a commit ---


def can_clone(path):
    """Whether the pack has a whole block that its filesystem can share."""
    other = path.with_name("clone")
    if path.stat().st_size < 4096:
        return False
    with open(path, "rb") as source, open(other, "wb") as target:
        try:
            fcntl.ioctl(target, FICLONE, source.fileno())
            return True
        except OSError as error:
            assert error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV)
            return False
        finally:
            other.unlink()


def first_stray(pack, path, with_padding):
    """The first byte of the data section that is not zero and no tensor's, in the gaps that are looked at."""
    data, cursor = path.read_bytes(), 0
    for tensor in sorted(pack.tensors.values(), key=lambda t: (t.start, t.end)):
        if tensor.start > (cursor if with_padding else w.ceil256(cursor)):
            gap = data[pack.data_start + cursor : pack.data_start + tensor.start]
            if gap.strip(b"\0"):
                return pack.data_start + cursor + len(gap) - len(gap.lstrip(b"\0"))
        cursor = max(cursor, tensor.end)
    return None


def codes(problems):
    return {problem.code for problem in problems}


class Expected:
    """What a commit of an edit must make of a pack, and say. EDITED: the tensor that was written, or None."""

    def __init__(self, path, before, edited):
        clones = can_clone(path)
        hides = any(p.code == "duplicate-name" for p in before.problems)
        looks_everywhere = not clones or hides or before.layout == "legacy"
        stray = first_stray(before, path, looks_everywhere)
        moves = edited is not None or stray is not None or before.layout == "legacy"
        misplaced = sorted(
            (t for t in before.tensors.values() if codes(t.problems) & {"start", "overlap"}),
            key=lambda t: (t.start, t.end, t.name),
        )
        self.lines = []
        if misplaced and moves:
            names = ", ".join(f"'{shown(t.name)}'" for t in misplaced[:NAMES_SHOWN])
            more = len(misplaced) - NAMES_SHOWN
            self.lines.append(f"mended: .*: {re.escape(names)}{f' and {more} more' if more > 0 else ''}")
        for what, code, where in (
            ("tensor names", "duplicate-name", ""),
            ("metadata keys", "duplicate-key", "metadata"),
            ("scalar names", "duplicate-key", "scalars"),
        ):
            count = sum(p.code == code and where in p.text for p in before.problems)
            if count:
                self.lines.append(f"dropped: duplicate {what}, {count} that later ones hid")
        if "after-cbor" in codes(before.problems):
            self.lines.append("dropped: [0-9]+ bytes after the metadata, inside metadata_size")
        if stray is not None:
            self.lines.append(f"dropped: bytes between the tensors that belonged to none, the first at byte {stray}")
        if "after-data" in codes(before.problems):
            excess = path.stat().st_size - before.data_start - before.data_size
            self.lines.append(f"dropped: {excess} bytes after the last tensor")
        self.carried = {
            name: codes(t.problems) - ({"start", "overlap"} if moves else set()) for name, t in before.tensors.items()
        }
        self.may_have_padding = not looks_everywhere and stray is None

    def check_said(self, lines, program, file):
        patterns = [f"{program}: {re.escape(str(file))}: {line}" for line in self.lines]
        assert len(lines) == len(patterns), f"{lines} instead of {patterns}"
        for line, said in zip(patterns, lines):
            assert re.fullmatch(line, said), f"{said} instead of {line}"


def shown(name):
    return re.sub(
        "[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]",
        lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{{{ord(m[0]):x}}}",
        name,
    )


def content(tensor):
    return tensor.dtype, tensor.shape, tensor.bytes(), tensor.param_id, tensor.extra


def contents(pack):
    return {name: content(tensor) for name, tensor in pack.tensors.items()}


# --- One edit ---


def edit_metadata(mount):
    (mount / "metadata" / KEY).write_text("x" * 300)


def edit_tensor(mount, before):
    """Flips a bit of a tensor that has bytes and the right length; its name, or None if there is no such tensor."""
    for name, tensor in before.tensors.items():
        if tensor.nbytes and "length" not in codes(tensor.problems):
            with open(mount.tensors / bpkref.file_names(before.tensors)[name], "r+b") as file:
                byte = file.read(1)
                file.seek(0)
                file.write(bytes([byte[0] ^ 1]))
            return name
    return None


def check_result(path, before, expected, metadata, tensors):
    now = bpkref.read(path)
    assert (now.layout, now.metadata, now.scalars, now.extra) == ("aligned", metadata, before.scalars, before.extra)
    assert contents(now) == tensors
    left = codes(now.problems)
    assert left == set() or (left == {"padding"} and expected.may_have_padding)
    assert {name: codes(t.problems) for name, t in now.tensors.items()} == expected.carried
    verify = run_bpk("verify", path)
    assert verify.status == view.has_problems(now), verify.out


def case_name(case):
    return case if isinstance(case, str) else case.stem


@pytest.mark.parametrize("case", CASES, ids=case_name)
@pytest.mark.parametrize("kind", ["metadata", "tensor"])
def test_commit_into_any_pack(case, kind, folder):
    path = pack_of(case, folder)
    before = bpkref.read(path)
    metadata, tensors, edited = dict(before.metadata), contents(before), None
    with edit.edited(path, log=[]) as mount:
        if kind == "tensor":
            edited = edit_tensor(mount, before)
        if edited is None:
            edit_metadata(mount)
            metadata[KEY] = "x" * 300
        else:
            dtype, shape, data, *rest = tensors[edited]
            tensors[edited] = (dtype, shape, bytes([data[0] ^ 1]) + data[1:], *rest)
        expected = Expected(path, before, edited)
        result = run_bpk("commit", mount.path)
        assert (result.status, result.out) == (0, b"")
        expected.check_said(result.err.splitlines(), "bpk", mount.path)
        said = [line.removeprefix(f"bpk: {mount.path}: ") for line in result.err.splitlines()]
        assert edit.outcome(mount).splitlines() == said
    check_result(path, before, expected, metadata, tensors)


# --- Who is told ---

TOLD = "everything"


def begin(folder):
    """The path, what is expected of the edit that `change` makes, and how to judge the result."""
    path = pack_of(TOLD, folder)
    before = bpkref.read(path)
    metadata, tensors = {**before.metadata, KEY: "x" * 300}, contents(before)
    expected = Expected(path, before, None)
    assert len(expected.lines) > 3
    return path, expected, lambda at=path: check_result(at, before, expected, metadata, tensors)


@pytest.mark.parametrize("how", ["umount", "signal"])
def test_daemon_says_it_at_the_end(how, folder):
    path, expected, check = begin(folder)
    with edit.edited(path, log=None) as mount:
        edit_metadata(mount)
        if how == "signal":
            mount.send(signal.SIGTERM)
        else:
            mount.unmount()
        assert mount.wait() == 0
        expected.check_said(mount.read_log().splitlines(), "bpkfs", path)
    check()


def test_daemon_says_it_of_the_timer(folder):
    path, expected, check = begin(folder)
    with edit.edited(path, "commit=1", log=None) as mount:
        edit_metadata(mount)
        wait_until(lambda: edit.status(mount)["last_commit"], "committed")
        mount.unmount()
        assert mount.wait() == 0
        expected.check_said(mount.read_log().splitlines(), "bpkfs", path)
    check()


def test_bpk_umount_says_it(folder):
    path, expected, check = begin(folder)
    with edit.edited(path, log=[]) as mount:
        edit_metadata(mount)
        result = run_bpk("umount", mount.path)
        assert (result.status, result.out) == (0, b"")
        expected.check_said(result.err.splitlines(), "bpk", mount.path)
    check()


def test_bpk_recover_says_it(folder):
    path, expected, check = begin(folder)
    mount = edit.WritableMount(path, [])
    try:
        mount.wait_for_mount()
        edit_metadata(mount)
        mount.daemon.kill()
        mount.wait()
    finally:
        mount.clear()
    result = run_bpk("recover", "--commit", path)
    assert (result.status, result.out) == (0, b"")
    expected.check_said(result.err.splitlines(), "bpk", path)
    check()


def test_saving_elsewhere_says_it_and_the_next_command_is_silent(folder):
    path, expected, check = begin(folder)
    other = folder / "other.bpk"
    with edit.edited(path, log=[]) as mount:
        edit_metadata(mount)
        result = run_bpk("commit", "--to", other, mount.path)
        expected.check_said(result.err.splitlines(), "bpk", mount.path)
        check(other)
        assert run_bpk("discard", mount.path).err == ""
        assert edit.outcome(mount) == ""
        edit_metadata(mount)
        assert len(run_bpk("commit", mount.path).err.splitlines()) == len(expected.lines)
        (mount / "metadata/more").write_text("x")
        assert run_bpk("commit", mount.path).err == ""  # there is nothing odd any more
    assert bpkref.read(path).problems == []
