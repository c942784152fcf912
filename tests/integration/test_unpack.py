"""bpk unpack and bpk pack: a pack as the files that a mount shows, and back."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import bpkcrash as crash
import bpkedit as edit
import bpkref
from bpkwrite import descriptor, integer, raw_pack, text, top
from conftest import BPK, ENVIRONMENT, FIXTURES, NO_SHARED, leftovers, mounted, need_root, run, run_bpk
from test_edit_packs import rebuilt

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]
LONG = "layers." * 50
TENSORS = [
    *edit.TENSORS,
    (LONG + "a", "U8", [2], b"ab", None),
    (LONG + "b", "U8", [0], b"", None),
    ("", "U8", [], b"x", 3),
]


def good(*arguments, err=""):
    result = run_bpk(*arguments)
    assert (result.status, result.out, result.err) == (0, b"", err), result
    return result


def refused(*arguments):
    """The one line that it says, without the name of the program."""
    result = run_bpk(*arguments)
    assert result.status == 1 and result.out == b"" and result.err.count("\n") == 1, result
    return result.err.removeprefix("bpk: ").rstrip("\n")


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder, TENSORS)


@pytest.fixture
def unpacked(folder, pack):
    good("unpack", pack, folder / "files")
    return folder / "files"


# --- There and back ---


@pytest.mark.parametrize("name", NAMES)
def test_fixture_there_and_back(folder, name):
    path = FIXTURES / f"{name}.bpk"
    pack = bpkref.read(path)
    result = run_bpk("unpack", path, folder / "files")
    assert result.status == 0
    if pack.layout == "aligned":
        assert result.err == ""
    else:
        assert "it has the layout of Burn 0.19" in result.err
    good("pack", folder / "files", folder / "made.bpk")
    made = (folder / "made.bpk").read_bytes()
    assert made == (path.read_bytes() if pack.layout == "aligned" else rebuilt(pack))


def test_files_are_those_of_the_mount(pack, unpacked):
    with mounted(pack) as mount:
        shown = files_of(mount.path)
    others = {name for name in shown if name.startswith("metadata/")} | {"index.tsv"}
    assert files_of(unpacked) == {name: data for name, data in shown.items() if name not in others}


def test_copy_of_a_mount_is_taken(folder, pack):
    with mounted(pack) as mount:
        shutil.copytree(mount.path, folder / "copy", symlinks=True)
    good("pack", folder / "copy", folder / "made.bpk")
    assert (folder / "made.bpk").read_bytes() == pack.read_bytes()


def test_order_of_the_data(folder, unpacked):
    """By data_offsets, then by name what has none."""
    for name, offsets in [("text", [0, 1]), ("norm.gamma", None), ("fc.weight", "none"), ("conv.bias", [5, 6])]:
        path = unpacked / f"tensors/{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "data_offsets": offsets}))
    good("pack", unpacked, folder / "made.bpk")
    order = [tensor[0] for tensor in edit.book(folder / "made.bpk").tensors]
    assert order.index("text") < order.index("conv.bias") < order.index("odd/na%me.json")
    assert order[-2:] == ["fc.weight", "norm.gamma"]


def test_what_was_edited_is_in_it(folder, pack, unpacked):
    want = edit.book(pack)
    (unpacked / "tensors/new").write_bytes(b"\1\2\3\4")
    (unpacked / "tensors/new.json").write_text('{"dtype": "U16", "shape": [2], "param_id": "18446744073709551615"}')
    (unpacked / "tensors/text").unlink()
    (unpacked / "tensors/text.json").unlink()
    (unpacked / "metadata.json").write_text('{"only": "this"}')
    (unpacked / "scalars.json").unlink()
    good("pack", unpacked, folder / "made.bpk")
    want.drop("text").add("new", "U16", [2], b"\1\2\3\4", (1 << 64) - 1)
    want.metadata, want.scalars = {"only": "this"}, {}
    edit.check_pack(folder / "made.bpk", want)


def test_holes_stay_holes(folder):
    size = 300 << 20
    path = folder / "sparse.bpk"
    cbor = top({"w": descriptor("U8", [size], 0, size), "x": descriptor("U8", [1], size, size + 1)})
    path.write_bytes(raw_pack(cbor, b""))
    os.truncate(path, bpkref.ceil256(10 + len(cbor)) + size + 1)
    good("unpack", path, folder / "files")
    assert (folder / "files/tensors/w").stat().st_size == size
    assert (folder / "files/tensors/w").stat().st_blocks < 100
    good("pack", folder / "files", folder / "made.bpk")
    assert (folder / "made.bpk").stat().st_blocks < 100
    assert (folder / "made.bpk").stat().st_size == path.stat().st_size


def test_modes_follow_the_pack(folder, pack):
    pack.chmod(0o600)
    good("unpack", pack, folder / "files")
    assert (folder / "files/tensors").stat().st_mode & 0o777 == 0o700
    assert (folder / "files/tensors/text").stat().st_mode & 0o777 == 0o600
    assert (folder / "files/metadata.json").stat().st_mode & 0o777 == 0o600


# --- What is not carried ---


def test_unknown_entries_and_nul_keys_are_named(folder):
    path = folder / "odd.bpk"
    row = descriptor("U8", [1], 0, 1, extra=[(text("more"), integer(1))])
    extra = [(text("later"), integer(1))]
    cbor = top({"w": row}, {"a\0b": "1", "k": "v"}, {"s\0": ("UInt", 1)}, extra)
    path.write_bytes(raw_pack(cbor, b"\7"))
    result = run_bpk("unpack", path, folder / "files")
    assert result.status == 1 and result.err.count("left out: ") == 4, result
    good("pack", folder / "files", folder / "made.bpk")
    now = bpkref.read(folder / "made.bpk")
    assert now.tensors["w"].bytes() == b"\7" and now.metadata == {"k": "v"} and now.scalars == {}


def test_what_only_the_bytes_have_is_named(folder, pack):
    with open(pack, "ab") as file:
        file.write(b"after the data")
    result = run_bpk("unpack", pack, folder / "files")
    assert result.status == 0 and "not carried over: 14 bytes follow the last tensor" in result.err
    assert result.err.count("\n") == 1


def test_another_spelling_is_named(folder):
    path = folder / "padded.bpk"
    data = bpkref.build([("w", "U8", [1], b"x", None)], {}, {})
    size = int.from_bytes(data[6:10], "little")
    path.write_bytes(data[:6] + (size + 1).to_bytes(4, "little") + data[10:])
    result = run_bpk("unpack", path, folder / "files")
    assert result.status == 0 and "its metadata is not spelled as Burn spells it now" in result.err


# --- Refusals of unpack ---


def test_folder_must_be_empty(folder, pack):
    (folder / "files").mkdir()
    good("unpack", pack, folder / "files")
    before = files_of(folder / "files")
    assert refused("unpack", pack, folder / "files") == f"{folder}/files: the folder is not empty"
    assert files_of(folder / "files") == before
    assert refused("unpack", pack, pack).endswith("Not a directory")
    assert refused("unpack", pack, folder / "no/folder").endswith("No such file or directory")


def test_full_disk_leaves_nothing(pack):
    big = [("big", "U8", [8 << 20], bytes(8 << 20).replace(b"\0", b"x"), None), *TENSORS]
    pack = edit.make_pack(pack.parent, big, name="big.bpk")
    with crash.tmpfs(6 << 20) as small:
        assert refused("unpack", pack, small / "files").endswith("big: No space left on device")
        (small / "empty").mkdir()
        refused("unpack", pack, small / "empty")
        assert [str(p) for p in small.rglob("*")] == [str(small / "empty")]


def killed_after(seconds, *arguments):
    process = subprocess.Popen([BPK, *arguments], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.kill()
    assert process.wait() in (0, -signal.SIGKILL)
    return process.returncode == 0


def test_kill_leaves_no_folder_that_looks_whole(folder):
    pack = edit.make_pack(folder, [(f"t{i}", "U8", [300], bytes(300), None) for i in range(5000)])
    for i in range(8):
        files = folder / f"files{i}"
        whole = killed_after(0.01 + i * 0.03, "unpack", pack, files)
        assert (files / "tensors").exists() or not whole
        if (files / "tensors").exists():
            assert len(list((files / "tensors").iterdir())) == 10000
            assert (files / "scalars.json").read_text() and (files / "metadata.json").read_text()
        else:
            assert "tensors" in refused("pack", files, folder / "made.bpk") or not files.exists()


# --- Refusals of pack ---


REFUSALS = [
    ("tensors/text.json", None, "tensors/text: there is no sidecar"),
    ("tensors/text", None, "tensors/text.json: there is no file of the tensor beside it"),
    ("tensors/text", b"short", "tensors/text: has 5 bytes, but its shape and dtype need 640"),
    ("tensors/text.json", b'{"dtype": "U8",\n "shape": 5}', 'text.json: "shape" must be a list of numbers, at line 2,'),
    ("tensors/text.json", b'{"dtype": "U8", "shape": [640], "paramid": 1}', 'unknown key "paramid"'),
    ("tensors/text.json", b"", "tensors/text.json: the text is empty"),
    ("tensors/new", b"1", "tensors/new: there is no sidecar"),
    ("metadata.json", b'{"k": 1}', 'metadata.json: the value of "k" must be a string, at line 1, column 2'),
    ("scalars.json", b'{"k": {"UInt": -1}}', 'scalars.json: the UInt "k" is out of range'),
    ("notes.txt", b"1", "notes.txt: this is no part of a pack"),
    ("metadata/k", b"other\n", "metadata/k: metadata.json says otherwise"),
    ("metadata/other", b"x\n", "metadata/other: the key is not in metadata.json"),
    ("metadata/50%", b"x\n", "metadata/50%: this is not how a key is spelled"),
    ("metadata/a%00b", b"\xff\n", "metadata/a%00b: the value is not UTF-8"),
]


@pytest.mark.parametrize("file, data, sentence", REFUSALS)
def test_pack_refuses(folder, unpacked, file, data, sentence):
    path = unpacked / file
    path.parent.mkdir(exist_ok=True)
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    said = refused("pack", unpacked, folder / "made.bpk")
    assert said.startswith(f"{unpacked}/") and sentence in said
    assert not (folder / "made.bpk").exists() and leftovers(folder / "made.bpk") == []


@pytest.mark.parametrize("name", ["%61", "a%2fb", "50%", LONG[:200]])
def test_names_that_a_mount_would_not_take(folder, unpacked, name):
    (unpacked / "tensors" / name).write_bytes(b"1")
    (unpacked / "tensors" / f"{name}.json").write_text('{"dtype": "U8", "shape": [1]}')
    if name == LONG[:200]:
        good("pack", unpacked, folder / "made.bpk")
    else:
        assert "this is not how the name of a tensor is spelled" in refused("pack", unpacked, folder / "made.bpk")


def test_cut_name_of_another_tensor(folder, unpacked):
    """A file name with a hash is the tensor that its sidecar names, if the hash is that name's."""
    file = next(p for p in (unpacked / "tensors").iterdir() if "%~" in p.name and p.suffix == ".json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "name": LONG + "z"}))
    assert "spelled" in refused("pack", unpacked, folder / "made.bpk")


def test_editors_files_are_left_out(folder, pack, unpacked):
    for name in ("tensors/.text.swp", "tensors/text~", "tensors/text.bak", "metadata.json~", ".hidden"):
        (unpacked / name).write_bytes(b"1")
    result = run_bpk("pack", unpacked, folder / "made.bpk")
    assert result.status == 0 and result.err.count(": left out: an editor's file or a backup\n") == 5
    assert (folder / "made.bpk").read_bytes() == pack.read_bytes()


def test_keys_that_only_metadata_can_hold(folder, unpacked):
    (unpacked / "metadata").mkdir()
    (unpacked / "metadata/a%00b").write_bytes(b"value\n")
    (unpacked / "metadata/k").write_bytes(b"v\n")
    good("pack", unpacked, folder / "made.bpk")
    assert bpkref.read(folder / "made.bpk").metadata == {**edit.METADATA, "a\0b": "value"}
    (unpacked / "metadata.json").unlink()
    good("pack", "--force", unpacked, folder / "made.bpk")
    assert bpkref.read(folder / "made.bpk").metadata == {"a\0b": "value", "k": "v"}


def test_no_tensors_folder(folder, unpacked):
    shutil.rmtree(unpacked / "tensors")
    assert "cannot read its folder 'tensors'" in refused("pack", unpacked, folder / "made.bpk")
    assert "cannot open: No such file" in refused("pack", folder / "nothing", folder / "made.bpk")
    assert "cannot open: Not a directory" in refused("pack", folder / "model.bpk", folder / "made.bpk")


@pytest.mark.parametrize("name", ["tensors/text", "tensors/text.json", "metadata.json", "scalars.json", "metadata/k"])
def test_special_files(folder, unpacked, name):
    file = unpacked / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    assert refused("pack", unpacked, folder / "made.bpk").endswith(f"{name}: it is no regular file")
    file.unlink()
    file.mkdir()
    assert refused("pack", unpacked, folder / "made.bpk").endswith(f"{name}: Is a directory")


# --- The file that is there already ---


def test_existing_file_needs_force(folder, pack, unpacked):
    old = pack.read_bytes()
    pack.chmod(0o640)
    (unpacked / "metadata.json").write_text("{}")
    assert refused("pack", unpacked, pack).endswith("'--force' replaces it") and pack.read_bytes() == old
    link = folder / "link.bpk"
    link.symlink_to(pack.name)
    good("pack", "--force", unpacked, link)
    assert bpkref.read(pack).metadata == {} and link.is_symlink() and pack.stat().st_mode & 0o777 == 0o640
    assert leftovers(pack) == []
    assert refused("pack", "--force", unpacked, folder).endswith("it is no regular file")


def test_busy_pack_is_not_replaced(pack, unpacked):
    old = pack.read_bytes()
    with edit.edited(pack) as mount:
        assert "it is mounted for writing or being written" in refused("pack", "--force", unpacked, pack)
        assert mount.is_mounted() and pack.read_bytes() == old
    edit.edits_folder(pack).mkdir(mode=0o700)
    assert "edits are waiting" in refused("pack", "--force", unpacked, pack)
    assert pack.read_bytes() == old


def test_full_disk_leaves_the_old_pack():
    with crash.tmpfs(6 << 20) as small:
        pack = edit.make_pack(small, [("big", "U8", [2 << 20], bytes(range(256)) * 8192, None), *edit.TENSORS])
        good("unpack", pack, small / "files")
        old = pack.read_bytes()
        assert "no room for the new pack" in refused("pack", "--force", small / "files", pack)
        assert pack.read_bytes() == old and leftovers(pack) == []


def test_kill_leaves_old_or_new(folder):
    tensors = [(f"t{i}", "U8", [1 << 20], bytes([i]) * (1 << 20), None) for i in range(64)]
    pack = edit.make_pack(folder, tensors)
    good("unpack", pack, folder / "files")
    new = pack.read_bytes()
    for i in range(8):
        pack.write_bytes(b"old")
        killed_after(0.005 + i * 0.03, "pack", "--force", folder / "files", pack)
        assert pack.read_bytes() in (b"old", new)


def test_unreadable_file(folder, pack):
    need_root()
    os.chown(pack, 65534, 65534)
    pack.chmod(0o600)
    result = run("setpriv", "--reuid=65533", "--clear-groups", BPK, "unpack", pack, folder / "files")
    assert result.status == 1 and "Permission denied" in result.err
