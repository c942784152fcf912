"""Texts of a mount that are broken, half written, or go through another name; and what a commit makes of them."""

import json
import os
import shutil
import subprocess

import pytest

import bpkedit as edit
from bpkwrite import build
from conftest import code_of, need_tool, run_bpk, wait_until

TEXTS = ["metadata.json", "scalars.json", "tensors/fc.weight.json"]
BAD = b'{\n  "producer": oops\n}\n'


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


@pytest.fixture
def bad(folder):
    path = folder / "bad.json"
    path.write_bytes(BAD)
    return path


def shell(script, *arguments):
    """stderr and status of a shell script."""
    command = ["sh", "-c", script, "sh", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    return result.returncode, result.stderr


def write(path, data, *, sync=False):
    """Writes in place; returns the name of the error of fsync or close, or "done"."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, data)
    if sync:
        result = code_of(os.fsync, fd)
        code_of(os.close, fd)
        return result
    return code_of(os.close, fd)


# --- Broken texts ---


@pytest.mark.parametrize("path", TEXTS)
def test_refused_at_the_rename(pack, path):
    """sed -i that breaks it: the message names the reason, the old text is there, nothing is left behind."""
    want = edit.book(pack)
    with edit.edited(pack, log=[]) as mount:
        before = (mount / path).read_bytes()
        status, message = shell('sed -i "s/{/{ oops/" "$1"', mount / path)
        assert status != 0 and "Bad message" in message
        assert (mount / path).read_bytes() == before
        for name in list(os.listdir((mount / path).parent)):
            if name.startswith("sed"):
                (mount / path).parent.joinpath(name).unlink()
        assert edit.status(mount)["problems"] == []
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


@pytest.mark.parametrize("path", TEXTS)
def test_mv_of_a_bad_text(pack, bad, path):
    want = edit.book(pack)
    with edit.edited(pack, log=None) as mount:
        before = (mount / path).read_bytes()
        shutil.copy(bad, (mount / path).parent / ".new")
        assert code_of(os.rename, (mount / path).parent / ".new", mount / path) == "EBADMSG"
        assert (mount / path).read_bytes() == before
        assert ((mount / path).parent / ".new").read_bytes() == BAD
    edit.check_pack(pack, want)


@pytest.mark.parametrize("path", TEXTS)
def test_cp_of_a_bad_text(pack, bad, path):
    """cp says so, the text stays to be mended, and the last good value stays in force meanwhile."""
    want = edit.book(pack)
    with edit.edited(pack, log=None) as mount:
        status, message = shell('cp "$1" "$2"', bad, mount / path)
        assert status == 1 and "Bad message" in message
        assert (mount / path).read_bytes() == BAD
        assert (mount / "metadata/producer").read_text() == "pytest\n"
        assert len(edit.problems(mount)) == 1
        (file, reason), *_ = edit.problems(mount).items()
        assert file == path.removesuffix(".json") or file == path
        assert "line 2" in reason
        assert code_of(edit.commit, mount) == "EBADMSG"
        assert path.removesuffix(".json") in edit.outcome(mount)
        edit.check_pack(pack, want)
        assert (mount / path).read_bytes() == BAD
        mend(mount, path)
        assert edit.problems(mount) == {}
        edit.commit(mount)
    edit.check_pack(pack, want)


def mend(mount, path):
    """Writes what the text was at first."""
    texts = {
        "metadata.json": edit.METADATA,
        "scalars.json": {"epoch": {"UInt": 3}, "lr": {"Float": 0.001}},
        "tensors/fc.weight.json": {"dtype": "F32", "shape": [4, 4], "param_id": 7},
    }
    (mount / path).write_text(json.dumps(texts[path]))


@pytest.mark.parametrize("path", TEXTS)
def test_fsync_tells(pack, path):
    """A text that ends too early as well, which close does not complain about: more may be on its way."""
    with edit.edited(pack, log=None) as mount:
        assert write(mount / path, BAD, sync=True) == "EBADMSG"
        assert write(mount / path, b'{"a": ', sync=True) == "EBADMSG"
        assert write(mount / path, b"", sync=True) == "EBADMSG"
        assert write(mount / path, BAD) == "EBADMSG"
        assert write(mount / path, b'{"a": ') == "done"
        assert write(mount / path, b"") == "done"
        assert len(edit.problems(mount)) == 1
        assert code_of(edit.commit, mount) == "EBADMSG"
        mend(mount, path)


def test_vim_is_told(pack, folder):
    """With fsync, which is its default, vim does not take the write for done."""
    need_tool("vim")
    script = folder / "script.vim"
    script.write_text("set fsync\n%s/pytest\"/oops/\nredir! > " + str(folder / "messages") + "\nw\nredir END\nqa!\n")
    with edit.edited(pack, log=None) as mount:
        subprocess.run(
            ["vim", "-u", "NONE", "-N", "-es", "-S", script, mount / "metadata.json"],
            check=False,
            timeout=20,
            stdin=subprocess.DEVNULL,
        )
        assert "E667" in (folder / "messages").read_text()  # "Fsync failed"
        mend(mount, "metadata.json")


def test_valid_edits_are_committed(pack):
    """By `commit --valid` and by an unmount; what is left out stays, and comes back."""
    want = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        write(mount / "tensors/fc.weight.json", BAD)
        (mount.tensors / "text").write_bytes(edit.TEXT.upper())
        edit.control(mount, "commit --valid")
        edit.check_pack(pack, want.change("text", data=edit.TEXT.upper()))
        assert list(edit.problems(mount)) == ["tensors/fc.weight"]
        write(mount / "metadata.json", b'{"producer": 1}')
        (mount.tensors / "norm.gamma").write_bytes(bytes(16))
        (mount / "metadata/k").write_text("not while metadata.json is bad\n")
    edit.check_pack(pack, want.change("norm.gamma", data=bytes(16)))
    with edit.edited(pack, log=None) as mount:
        assert sorted(edit.problems(mount)) == ["metadata.json", "tensors/fc.weight"]
        assert (mount / "tensors/fc.weight.json").read_bytes() == BAD
        assert (mount / "metadata.json").read_bytes() == b'{"producer": 1}'
        mend(mount, "tensors/fc.weight.json")
        (mount / "metadata.json").write_text('{"a": "b"}')
    want.metadata = {"a": "b"}
    edit.check_pack(pack, want)


@pytest.mark.parametrize("bad_map", ["metadata.json", "scalars.json"])
def test_a_bad_map_does_not_hold_up_the_other(pack, bad_map):
    want = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        write(mount / bad_map, b'{"a": "b",}')
        if bad_map == "metadata.json":
            (mount / "scalars.json").write_text('{"x": {"Bool": true}}')
            want.scalars = {"x": ("Bool", True)}
        else:
            (mount / "metadata/k").write_text("w")
            want.metadata["k"] = "w"
    edit.check_pack(pack, want)
    with edit.edited(pack, log=None) as mount:
        assert list(edit.problems(mount)) == [bad_map]
        assert edit.status(mount)["edits"] == [bad_map]
        (mount / bad_map).write_text("{}")
    if bad_map == "metadata.json":
        want.metadata = {}
    else:
        want.scalars = {}
    edit.check_pack(pack, want)


def test_bytes_are_left_out_with_their_sidecar(pack):
    want = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / "fc.weight").write_bytes(bytes(64))
        write(mount / "tensors/fc.weight.json", BAD)
    edit.check_pack(pack, want)
    with edit.edited(pack, log=None) as mount:
        assert (mount.tensors / "fc.weight").read_bytes() == bytes(64)
        mend(mount, "tensors/fc.weight.json")
    edit.check_pack(pack, want.change("fc.weight", data=bytes(64)))


def test_left_out_edits_do_not_hide_others(pack):
    """What an edit is kept of keeps its place, whatever numbers the tensors have in the new pack."""
    want = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        os.truncate(mount.tensors / "norm.gamma", 3)
        (mount.tensors / "conv.bias").unlink()
        (mount.tensors / "fc.weight").rename(mount.tensors / "fc.weight.bak")
        (mount.tensors / "fc.weight").write_bytes(bytes(64))
    edit.check_pack(pack, want.drop("conv.bias").change("fc.weight", data=bytes(64)))
    with edit.edited(pack, status=3) as mount:
        for name, *_, data, _ in want.tensors:
            data = data[:3] if name == "norm.gamma" else data
            assert (mount.tensors / edit.bpkref.encode_name(name)).read_bytes() == data
        assert (mount.tensors / "fc.weight.bak").read_bytes() == bytes(range(64))
        numbers = [(mount.tensors / name).stat().st_ino for name in os.listdir(mount.tensors)]
        assert len(numbers) == len(set(numbers))


def test_unknown_key_of_a_sidecar(pack):
    with edit.edited(pack, log=None) as mount:
        file = mount / "tensors/fc.weight.json"
        assert write(file, b'{"dtype": "F32", "shape": [4, 4], "parm_id": 7}') == "EBADMSG"
        assert "parm_id" in edit.problems(mount)["tensors/fc.weight"]
        mend(mount, "tensors/fc.weight.json")


@pytest.mark.parametrize(
    "text, word",
    [
        ('{"a": "1", "a": "2"}', "a"),
        ('{"a": 1}', "a"),
        ("[]", ""),
        ('{"a": "1"} x', ""),
        ('{"a": "\\ud800"}', ""),
    ],
)
def test_metadata_that_is_refused(pack, text, word):
    want = edit.book(pack)
    with edit.edited(pack, log=None) as mount:
        assert write(mount / "metadata.json", text.encode()) == "EBADMSG"
        assert word in edit.problems(mount)["metadata.json"]
        assert code_of(edit.commit, mount) == "EBADMSG"
        edit.control(mount, "discard")
        assert json.loads((mount / "metadata.json").read_text()) == want.metadata
    edit.check_pack(pack, want)


# --- Keys and the map ---


def test_key_and_map_follow_each_other(pack):
    want = edit.book(pack)
    with edit.edited(pack, log=[]) as mount:
        (mount / "metadata/k").write_text("one\n")
        assert json.loads((mount / "metadata.json").read_text())["k"] == "one"
        size = (mount / "metadata.json").stat().st_size
        assert size == len((mount / "metadata.json").read_bytes())
        (mount / "metadata/k").write_text("a longer value, without a newline at the end")
        assert (mount / "metadata.json").stat().st_size == len((mount / "metadata.json").read_bytes()) > size
        (mount / "metadata.json").write_text(json.dumps({**want.metadata, "k": "two", "new": "x"}))
        assert (mount / "metadata/k").read_text() == "two\n"
        assert (mount / "metadata/new").read_text() == "x\n"
        (mount / "metadata/new").rename(mount / "metadata/newer")
        assert set(json.loads((mount / "metadata.json").read_text())) == {*want.metadata, "newer"}
        (mount / "metadata/lines").unlink()
        edit.commit(mount)
        edit.check_clean(mount)
        want.metadata = {"producer": "pytest", "k": "two", "newer": "x"}
        assert json.loads((mount / "metadata.json").read_text()) == want.metadata
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


@pytest.mark.parametrize(
    "value, text",
    [("", ""), ("", "\n"), ("\n", "\n\n"), ("a", "a"), ("a", "a\n"), ("a\n", "a\n\n"), ("é\0\u2028", "é\0\u2028\n")],
)
def test_values(pack, value, text):
    want = edit.book(pack)
    want.metadata["k"] = value
    with edit.edited(pack, log=[]) as mount:
        (mount / "metadata/k").write_text(text)
        edit.commit(mount)
        assert (mount / "metadata/k").read_text() == f"{value}\n"
    edit.check_pack(pack, want)


def test_append_to_a_key(pack):
    want = edit.book(pack)
    want.metadata["k"] = "v\nmore\nand more"
    with edit.edited(pack, log=[]) as mount:
        for line in ("more\n", "and more\n"):
            with open(mount / "metadata/k", "a", encoding="utf-8") as file:
                file.write(line)
    edit.check_pack(pack, want)


def test_value_that_is_not_utf8(pack):
    with edit.edited(pack, log=None) as mount:
        assert write(mount / "metadata/k", b"\xff\n") == "EBADMSG"
        assert list(edit.problems(mount)) == ["metadata/k"]
        assert write(mount / "metadata/k", b"v\n") == "done"
        assert edit.problems(mount) == {}


def test_key_with_a_nul(folder):
    """It is in metadata/ only, and a new metadata.json leaves it alone."""
    pack = edit.make_pack(folder, metadata={"a\0b": "1", "c": "2"})
    want = edit.book(pack)
    want.metadata = {"a\0b": "3", "d": "4"}
    with edit.edited(pack, log=[]) as mount:
        (mount / "metadata.json").write_text('{"d": "4"}')
        assert sorted(os.listdir(mount / "metadata")) == ["a%00b", "d"]
        (mount / "metadata/a%00b").write_text("3")
        edit.commit(mount)
    edit.check_pack(pack, want)
    want.metadata = {"a\0b": "3"}
    with edit.edited(pack, log=[]) as mount:
        (mount / "metadata.json").unlink()
        edit.commit(mount)
    edit.check_pack(pack, want)


# --- Scalars ---


def test_scalars(pack):
    want = edit.book(pack)
    want.scalars = {
        "big": ("UInt", (1 << 64) - 1),
        "small": ("Int", -(1 << 63)),
        "nan": ("Float", 0x7FF8000000000000),
        "payload": ("Float", 0x7FF0000000000001),
        "minus": ("Float", 0xFFF0000000000000),
        "zero": ("Float", 1 << 63),
        "tiny": ("Float", 1),
        "yes": ("Bool", True),
    }
    text = """{
        "big": {"UInt": "18446744073709551615"}, "small": {"Int": "-9223372036854775808"},
        "nan": {"Float": "NaN"}, "payload": {"Float": "0x7ff0000000000001"}, "minus": {"Float": "-Infinity"},
        "zero": {"Float": -0.0}, "tiny": {"Float": 5e-324}, "yes": {"Bool": true}
    }"""
    with edit.edited(pack, log=[]) as mount:
        (mount / "scalars.json").write_text(text)
        edit.commit(mount)
        edit.check_clean(mount)
        shown = (mount / "scalars.json").read_text()
        assert '"18446744073709551615"' in shown and '"0x7ff0000000000001"' in shown
        (mount / "scalars.json").write_text(shown)
        edit.commit(mount)
    edit.check_pack(pack, want)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"UInt": -1}}',
        '{"a": {"UInt": 18446744073709551615}}',
        '{"a": {"Float": NaN}}',
        '{"a": {"Int": 1.5}}',
        '{"a": {"Bool": 1}}',
        '{"a": {"What": 1}}',
        '{"a": 3}',
    ],
)
def test_scalars_that_are_refused(pack, text):
    with edit.edited(pack, log=None) as mount:
        assert write(mount / "scalars.json", text.encode()) == "EBADMSG"
        reason = edit.problems(mount)["scalars.json"]
        assert "line 1" in reason
        mend(mount, "scalars.json")


# --- Removing a whole map ---


@pytest.mark.parametrize("path", ["metadata.json", "scalars.json"])
def test_rm_and_unmount_puts_it_back(pack, path):
    """The end is a good one, and says what it did not do."""
    want = edit.book(pack)
    before = pack.stat()
    with edit.edited(pack, log=[f"{path}: was removed, .* it was put back$"]) as mount:
        (mount / path).unlink()
        assert path not in os.listdir(mount.path)
        assert "'bpk commit' empties it" in edit.problems(mount)[path]
    edit.check_pack(pack, want)
    assert pack.stat().st_ino == before.st_ino


@pytest.mark.parametrize("path", ["metadata.json", "scalars.json"])
def test_rm_and_bpk_umount_says_that_it_is_put_back(pack, path):
    want = edit.book(pack)
    with edit.edited(pack) as mount:
        (mount / path).unlink()
        held = open(mount / "index.tsv", "rb")
        result = run_bpk("umount", mount.path)
        assert result.status == 1 and f"{path}: was removed" in result.err, result
        held.close()
        assert json.loads((mount / path).read_text())
        assert "it was put back" in edit.problems(mount)[path]
        (mount / path).unlink()
        result = run_bpk("umount", mount.path)
        assert result.status == 0 and f"{path}: was removed" in result.err, result
    edit.check_pack(pack, want)


@pytest.mark.parametrize("path", ["metadata.json", "scalars.json"])
def test_rm_and_the_timer_says_that_it_is_put_back(pack, path):
    """In the status, too, until a commit by name."""
    with edit.edited(pack, "commit=1", log=[f"{path}: was removed"]) as mount:
        (mount / path).unlink()
        wait_until(lambda: path in mount.read_log(), "put back by the timer")
        assert "was put back" in edit.problems(mount)[path]
        assert json.loads((mount / path).read_text())
        assert edit.status(mount)["edits"] == []
        edit.commit(mount)
        assert edit.problems(mount) == {}


@pytest.mark.parametrize("path", ["metadata.json", "scalars.json"])
def test_rm_and_commit_empties_it(pack, path):
    want = edit.book(pack)
    if path == "metadata.json":
        want.metadata = {}
    else:
        want.scalars = {}
    with edit.edited(pack, log=[]) as mount:
        (mount / path).unlink()
        edit.commit(mount)
        edit.check_clean(mount)
        assert json.loads((mount / path).read_text()) == {}
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


def test_rm_and_write_again(pack):
    want = edit.book(pack)
    want.metadata = {"a": "b"}
    with edit.edited(pack, log=[]) as mount:
        (mount / "metadata.json").unlink()
        (mount / "metadata.json").write_text('{"a": "b"}')
        edit.commit(mount)
    edit.check_pack(pack, want)


# --- What is read back ---


def test_text_as_written_until_the_commit(pack):
    text = '{"shape":[4,4],"dtype":"F32","param_id":"7","name":"ignored","problem":"ignored","numpy":null}'
    with edit.edited(pack, log=[]) as mount:
        file = mount / "tensors/fc.weight.json"
        file.write_text(text)
        assert file.read_text() == text and file.stat().st_size == len(text)
        edit.commit(mount)
        assert file.read_text() != text
        assert json.loads(file.read_text())["param_id"] == 7
        assert file.stat().st_size == len(file.read_bytes())


def test_text_stays_while_it_is_open_for_writing(pack):
    with edit.edited(pack, log=[]) as mount:
        file = mount / "metadata.json"
        with open(file, "r+b", buffering=0) as opened:
            text = json.dumps({"k": "1", "x": "2"}).encode()
            opened.truncate(0)
            opened.write(text)
            os.fsync(opened.fileno())
            edit.commit(mount)
            assert file.read_bytes() == text
            opened.seek(text.index(b"2"))
            opened.write(b"3")
        assert json.loads(file.read_text()) == {"k": "1", "x": "3"}
        edit.commit(mount)
    assert edit.book(pack).metadata == {"k": "1", "x": "3"}


def test_dtype_keeps_its_own_bytes(folder):
    """A sidecar whose dtype means the same leaves the CBOR of the dtype as it was."""
    pack = folder / "old.bpk"
    pack.write_bytes(build([("flag", "Bool", [2], b"\1\0", 3), ("x", "U8", [1], b"x", None)]))
    with edit.edited(pack, log=[]) as mount:
        edit.change_sidecar(mount, "flag", param_id=4)
        (mount.tensors / "flag").write_bytes(b"\0\1")
    edit.check_pack(pack, edit.Book([("flag", "Bool", [2], b"\0\1", 4), ("x", "U8", [1], b"x", None)], {}, {}))
