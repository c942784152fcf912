"""The verbs of bpk that change a pack without a mount: set, unset, mv, rm, put."""

import io
import json
import os
import signal
import struct
import subprocess
import time

import pytest

import bpkcrash as crash
import bpkedit as edit
import bpkref
from bpkwrite import descriptor, integer, raw_pack, text, top
from conftest import BPK, ENVIRONMENT, leftovers, mounted, need_root, run_bpk

np = pytest.importorskip("numpy")


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


def good(*arguments, err="", **options):
    result = run_bpk(*arguments, **options)
    assert (result.status, result.out, result.err) == (0, b"", err), result


def refused(pack, *arguments, lines=1, **options):
    """The pack and its folder stay as they are; returns what is said."""
    before, names = pack.read_bytes(), sorted(os.listdir(pack.parent))
    inode, mtime = pack.stat().st_ino, pack.stat().st_mtime_ns
    result = run_bpk(*arguments, **options)
    assert result.status == 1 and result.out == b"" and result.err.count("\n") == lines, result
    assert pack.read_bytes() == before and sorted(os.listdir(pack.parent)) == names
    assert (pack.stat().st_ino, pack.stat().st_mtime_ns) == (inode, mtime)
    return result.err


@pytest.fixture
def check(pack):
    """A function that demands that the pack is what the Book says, and that nothing else is beside it."""
    want = edit.book(pack)

    def compare(change):
        change(want)
        edit.check_pack(pack, want)
        assert leftovers(pack) == []

    return compare


# --- set, unset ---


def test_set_metadata(pack, check):
    good("set", pack, "k=other", "new key=a=b=c", "empty=", "ünï/cödé%=☃", "twice=1", "twice=2", "l=a\nb\n")
    new = {"new key": "a=b=c", "empty": "", "ünï/cödé%": "☃", "twice": "2", "l": "a\nb\n"}
    check(lambda want: want.metadata.update({"k": "other", **new}))


@pytest.mark.parametrize("key", ["4913", "sed123456", ".hidden", "a~", "x.bak", "#a", "", "long" * 100])
def test_set_takes_any_key(pack, check, key):
    """Also those whose files would be editors' own in a mount."""
    good("set", pack, f"{key}=v")
    check(lambda want: want.metadata.update({key: "v"}))
    good("unset", pack, key)
    check(lambda want: want.metadata.pop(key))


SCALARS = [
    ("n=UInt:18446744073709551615", ("UInt", (1 << 64) - 1)),
    ("n=int:-9223372036854775808", ("Int", -(1 << 63))),
    ("n=Float:0.1", ("Float", 0.1)),
    ("n=Float:-1e300", ("Float", -1e300)),
    ("n=Float:.5", ("Float", 0.5)),
    ("n=Float:3", ("Float", 3.0)),
    ("n=Float:-Infinity", ("Float", float("-inf"))),
    ("n=Bool:true", ("Bool", True)),
    ('n={"UInt": 7}', ("UInt", 7)),
    ("epoch=4", ("UInt", 4)),
    ("lr=1e-5", ("Float", 1e-5)),
    ("epoch=Int:-4", ("Int", -4)),
    ("a:b=UInt:1", ("UInt", 1)),
]


@pytest.mark.parametrize("argument, scalar", SCALARS)
def test_set_scalar(pack, check, argument, scalar):
    good("set", "--scalar", argument, pack, "k=with it")
    name = argument.partition("=")[0]
    if scalar[0] == "Float":
        scalar = ("Float", struct.unpack("<Q", struct.pack("<d", scalar[1]))[0])
    check(lambda want: (want.scalars.update({name: scalar}), want.metadata.update(k="with it")))


def test_set_nan(pack):
    for value, bits in [("NaN", 0x7FF8 << 48), ("0xfff0000000000001", 0xFFF0000000000001)]:
        good("set", pack, "--scalar", f"lr={value}")
        shown = json.loads(run_bpk("info", "--json", pack).out)["scalars"]["lr"]["Float"]
        assert shown == (value if value == "NaN" else f"0x{bits:016x}")


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["k"], "'k': KEY=VALUE is wanted"),
        (["k=v", b"x=\xff"], "keys and values must be UTF-8"),
        (["k=v", "--scalar", "n=3"], "a new scalar needs its type"),
        (["--scalar", "n=Uint8:3"], "a type is Int, UInt, Float or Bool"),
        (["--scalar", "n=UInt:-3"], "'n=UInt:-3': the UInt \"n\" is out of range: it must not be negative\n"),
        (["--scalar", "n=UInt:18446744073709551616"], "does not fit 64 bits"),
        (["--scalar", "n=Float:1e999"], 'the Float "n" must be a number'),
        (["--scalar", "n=Float:0x10"], 'the Float "n" must be a number'),
        (["--scalar", "n=Float:"], 'the Float "n" must be a number'),
        (["--scalar", "n=Bool:1"], "must be true or false"),
        (["--scalar", "n"], "KEY=VALUE is wanted"),
        (["--scalar", 'n={"UInt": 1}, "m": {"UInt": 2}'], "this is not one value"),
    ],
)
def test_set_refuses(pack, arguments, sentence):
    assert sentence in refused(pack, "set", pack, *arguments)


def test_same_values_change_nothing(pack):
    before = pack.stat()
    good("set", pack, "k=v", "--scalar", "epoch=3", "--scalar", "lr=Float:1e-3")
    assert (pack.stat().st_ino, pack.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_unset(pack, check):
    good("unset", pack, "k", "lines", "k", "--scalar", "epoch")
    check(lambda want: (want.metadata.pop("k"), want.metadata.pop("lines"), want.scalars.pop("epoch")))
    assert "has no such key" in refused(pack, "unset", pack, "producer", "k")
    assert "there is no such scalar" in refused(pack, "unset", pack, "producer", "--scalar", "epoch")


def odd_pack(folder):
    path = folder / "odd.bpk"
    rows = {"w": descriptor("U8", [1], 0, 1, extra=[(text("more"), integer(1))])}
    keys, scalars = {"a\0b": "1", "k": "v", "": "empty"}, {"s\0": ("UInt", 1), "t": ("UInt", 2)}
    path.write_bytes(raw_pack(top(rows, keys, scalars, [(text("later"), integer(1))]), b"\7"))
    return path


def test_what_json_cannot_hold_stays(folder):
    """Keys with a NUL, and entries that nobody knows; the first can be removed by their file's name."""
    pack = odd_pack(folder)
    good("set", pack, "new=1", "--scalar", "u=UInt:3")
    now = bpkref.read(pack)
    assert now.metadata == {"a\0b": "1", "k": "v", "": "empty", "new": "1"}
    assert now.scalars == {"s\0": ("UInt", 1), "t": ("UInt", 2), "u": ("UInt", 3)}
    assert now.extra and now.tensors["w"].extra
    good("unset", pack, "a%00b", "a%00b", "")
    assert bpkref.read(pack).metadata == {"k": "v", "new": "1"}


# --- mv, rm ---


def test_mv(pack, check):
    good("mv", pack, "odd%2Fna%25me%2Ejson", "a/b.json")
    check(lambda want: want.change("odd/na%me.json", name="a/b.json"))
    good("mv", pack, "a%2Fb%2Ejson", "%2E%7E%25")
    check(lambda want: want.change("a/b.json", name=".~%"))
    good("mv", pack, "text", "text")
    assert "there is a tensor of the new name already" in refused(pack, "mv", pack, "text", "fc.weight")
    good("mv", "--force", pack, "text", "fc.weight")
    check(lambda want: want.drop("fc.weight").change("text", name="fc.weight"))


@pytest.mark.parametrize(
    "names, sentence",
    [
        (["none", "other"], "there is no tensor 'none'; 'bpk ls' lists them"),
        (["text", "50%"], "a '%' in a name is written as '%25'"),
        (["text", "x.bak"], "editors' files and backups have such names"),
        (["text", "4913"], "editors' files and backups have such names"),
        (["text", "n" * 251], "the name is too long for a file"),
        (["text", b"\xff"], "a name must be UTF-8"),
    ],
)
def test_mv_refuses(pack, names, sentence):
    assert sentence in refused(pack, "mv", pack, *names)


def test_rm(pack, check):
    good("rm", pack, "text", "odd%2Fna%25me%2Ejson", "text", "conv.weight", "conv.bias", "fc.weight")
    check(lambda want: want.drop("text", "odd/na%me.json", "conv.weight", "conv.bias", "fc.weight"))
    good("rm", pack, "norm.gamma")
    check(lambda want: want.drop("norm.gamma"))


def test_names_as_status_and_diff_say_them(folder):
    """A tensor whose own name begins so comes first."""
    pack = edit.make_pack(folder, [("a", "U8", [1], b"1", None), ("tensors/b", "U8", [1], b"2", None), ("b", "U8", [1], b"3", None)])
    for name, data in (("tensors/a", b"1"), ("tensors/b", b"2"), ("tensors/tensors%2Fb", b"2"), ("b", b"3")):
        assert run_bpk("cat", pack, name).out == data
    good("rm", pack, "tensors/a", "tensors/b")
    assert [t[0] for t in edit.book(pack).tensors] == ["b"]


def test_rm_looks_all_names_up_first(pack):
    said = refused(pack, "rm", pack, "text", "none", "conv.weight", "conv.*", lines=2)
    assert "'none'" in said and "'conv.*'" in said


def test_long_names(folder):
    name = "layers." * 60
    pack = edit.make_pack(folder, [(name, "U8", [2], b"ab", 5), ("w", "U8", [1], b"c", 6)])
    file = bpkref.file_names([name])[name]
    good("mv", pack, file, "short")
    assert bpkref.read(pack).tensors["short"].param_id == 5
    assert "too long" in refused(pack, "mv", pack, "short", name)


# --- put ---


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def test_put_bytes(folder, pack, check):
    (folder / "data").write_bytes(bytes(range(64))[::-1])
    good("put", pack, "fc.weight", folder / "data")
    check(lambda want: want.change("fc.weight", data=bytes(range(64))[::-1]))
    good("put", "--shape", "8x8", "--dtype", "U8", pack, "fc.weight", folder / "data")
    check(lambda want: want.change("fc.weight", dtype="U8", shape=[8, 8]))
    good("put", "--shape", "16,4", pack, "fc.weight", folder / "data")
    check(lambda want: want.change("fc.weight", shape=[16, 4]))
    good("put", "--shape", "[64]", "--dtype", '{"Bool": "U8"}', pack, "new/one", folder / "data")
    check(lambda want: want.add("new/one", {"Bool": "U8"}, [64], bytes(range(64))[::-1]))


def test_put_from_a_pipe(folder, pack, check):
    (folder / "data").write_bytes(b"\1" * 8)
    with open(folder / "data", "rb") as file:
        good("put", "--dtype", "F64", "--shape", "scalar", pack, "s", "-", stdin=file)
    check(lambda want: want.add("s", "F64", [], b"\1" * 8))
    (folder / "data").write_bytes(b"")
    good("put", "--dtype", "U8", "--shape", "0", pack, "none", folder / "data")
    check(lambda want: want.add("none", "U8", [0], b""))


def test_put_array(folder, pack, check):
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    (folder / "a.npy").write_bytes(npy(array))
    good("put", pack, "new", folder / "a.npy")
    check(lambda want: want.add("new", "F32", [3, 4], array.tobytes()))
    (folder / "a.npy").write_bytes(npy(np.asfortranarray(array * 2)))
    good("put", pack, "fc.weight", folder / "a.npy")
    check(lambda want: want.change("fc.weight", shape=[3, 4], data=(array * 2).tobytes()))
    (folder / "a.npy").write_bytes(npy(array.astype(">i8")))
    with open(folder / "a.npy", "rb") as file:
        good("put", pack, "text", "-", stdin=file)
    check(lambda want: want.change("text", dtype="I64", shape=[3, 4], data=array.astype("<i8").tobytes()))


def test_put_npy_as_bytes(folder, pack, check):
    """With a dtype or shape the data is what it is, whatever it looks like."""
    data = npy(np.arange(3, dtype="u1"))
    (folder / "a.npy").write_bytes(data)
    good("put", "--dtype", "U8", "--shape", str(len(data)), pack, "file", folder / "a.npy")
    check(lambda want: want.add("file", "U8", [len(data)], data))


def test_put_large(folder, pack, check):
    data = os.urandom(1 << 20) * 5 + b"tail"
    (folder / "data").write_bytes(data)
    good("put", "--dtype", "U8", "--shape", str(len(data)), pack, "large", folder / "data")
    check(lambda want: want.add("large", "U8", [len(data)], data))


NO_SHAPES = ["4x", "4,", "x4", "4xx3", "-4", "+4", " 4", "4 x4", "a", "4.5", "0x4g", "scalar,", "4]"]


@pytest.mark.parametrize(
    "data, arguments, sentence",
    [
        (b"1234", ["new"], "a new tensor needs '--dtype' and '--shape'"),
        (b"1234", ["new", "--dtype", "U8"], "a new tensor needs '--dtype' and '--shape'"),
        (b"1234", ["new", "--dtype", "U8", "--shape", "3"], "data: has more than the 3 bytes that dtype and shape need"),
        (b"1234", ["new", "--dtype", "U8", "--shape", "5"], "has 4 bytes, but shape [5] of U8 needs 5"),
        (b"1234", ["new", "--dtype", "U8", "--shape", "99999999999x9999999999"], "of that shape is too large"),
        (b"1234", ["text"], "has 4 bytes, but shape [640] of U8 needs 640"),
        (b"1234", ["text", "--dtype", "F33"], "'--dtype': unknown dtype \"F33\"\n"),
        *((b"1234", ["text", "--shape", shape], "'--shape': this is no shape") for shape in NO_SHAPES),
        *((b"1234", ["text", "--shape", f"2x{2**bits}"], "of that shape is too large") for bits in (63, 64, 99)),
        (b"1234", ["text", "--shape", ""], "'--shape': it is empty"),
        (b"1234", ["", "--dtype", "U8", "--shape", "4"], "the empty name is written as '%'"),
        (b"1234", ["x~.old", "--dtype", "U8", "--shape", "4"], "editors' files and backups"),
        (npy(np.arange(3, dtype="c8")), ["new"], "<c8"),
        (npy(np.arange(3, dtype="c8")), ["text"], "<c8"),
        (npy(np.arange(3))[:-1], ["new"], "has 23 bytes of data, its header says 24"),
        (npy(np.arange(3)) + b"1", ["text"], "has 25 bytes of data, its header says 24"),
        (npy(np.arange(3))[:20], ["new"], "the header is not whole"),
    ],
)
def test_put_refuses(folder, pack, data, arguments, sentence):
    (folder / "data").write_bytes(data)
    assert sentence in refused(pack, "put", pack, arguments[0], folder / "data", *arguments[1:])


@pytest.mark.parametrize("data", [b"", npy(np.arange(3))[:5], b"1234"])
@pytest.mark.parametrize("name", ["text", "new"])
def test_put_of_what_is_called_npy(folder, pack, name, data):
    """And is none: a download that failed, for one."""
    (folder / "a.npy").write_bytes(data)
    assert "a.npy: it does not begin as a .npy file does" in refused(pack, "put", pack, name, folder / "a.npy")


@pytest.mark.parametrize("name", ["text", "new"])
def test_put_of_an_endless_source(pack, name):
    """It ends at once, and nothing of it stays beside the pack."""
    options = ["--dtype", "U8", "--shape", "2000000"] if name == "new" else []
    said = refused(pack, "put", *options, pack, name, "/dev/zero")
    assert said.startswith("bpk: /dev/zero: has more than the ")


def test_the_empty_name(folder, pack):
    """A variable that is not set names no tensor."""
    assert "the empty name is written as '%'" in refused(pack, "mv", pack, "text", "")
    good("mv", pack, "text", "%")
    assert "" in bpkref.read(pack).tensors


def test_put_without_data(folder, pack):
    assert "none: cannot read: No such file or directory" in refused(pack, "put", pack, "text", folder / "none")
    assert "cannot read: Is a directory" in refused(pack, "put", pack, "text", folder)


# --- All of them ---


CHANGES = [
    ["set", "k=changed"],
    ["unset", "k"],
    ["mv", "text", "text2"],
    ["rm", "text"],
    ["put", "fc.weight", "/dev/zero.none"],
]


def arguments_for(pack, change):
    if change[0] == "put":
        (pack.parent / "data").write_bytes(bytes(64))
        change = [*change[:2], pack.parent / "data"]
    return [change[0], pack, *change[1:]]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0])
class TestEveryVerb:
    def test_owner_mode_and_link_stay(self, folder, pack, change):
        need_root()
        os.chown(pack, 1234, 5678)
        pack.chmod(0o604)
        os.setxattr(pack, "user.test", b"value")
        link = folder / "link.bpk"
        link.symlink_to(pack.name)
        command = arguments_for(pack, change)
        command[1] = link
        good(*command)
        now = pack.stat()
        assert link.is_symlink() and (now.st_uid, now.st_gid, now.st_mode & 0o7777) == (1234, 5678, 0o604)
        assert os.getxattr(pack, "user.test") == b"value" and leftovers(pack) == []

    def test_busy_pack(self, pack, change):
        command = arguments_for(pack, change)
        with edit.edited(pack) as mount:
            said = refused(pack, *command)
            assert "it is mounted for writing or being written" in said and "bpk umount" in said
            assert mount.is_mounted()
        with mounted(pack, expect=None):
            good(*command)

    def test_edits_beside_it(self, pack, change):
        command = arguments_for(pack, change)
        mount = edit.WritableMount(pack, ())
        try:
            mount.wait_for_mount()
            (mount / "metadata/k").write_text("waiting\n")
            mount.daemon.kill()
            mount.wait()
        finally:
            mount.clear()
        said = refused(pack, *command)
        assert "edits are waiting beside it" in said and "bpk recover --discard" in said
        assert run_bpk("recover", pack).out.startswith(b"edited   metadata/k")

    def test_full_disk(self, change):
        big = ("big", "U8", [3 << 20], bytes(range(256)) * (3 << 12), None)
        with crash.tmpfs(6 << 20) as folder:
            pack = edit.make_pack(folder, [big, *edit.TENSORS])
            assert "no room for the new pack" in refused(pack, *arguments_for(pack, change))

    def test_disk_too_full_for_an_edit(self, change):
        with crash.tmpfs(1 << 20) as folder:
            pack = edit.make_pack(folder)
            command = arguments_for(pack, change)
            with open(folder / "filler", "wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            assert "No space left on device" in refused(pack, *command)

    def test_kill_leaves_old_or_new(self, folder, change):
        tensors = [("big", "U8", [48 << 20], bytes(48 << 20), None), *edit.TENSORS]
        pack = edit.make_pack(folder, tensors)
        command = arguments_for(pack, change)
        old = edit.book(pack)
        for i in range(6):
            process = subprocess.Popen([BPK, *command], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
            time.sleep(0.004 + 0.02 * i)
            process.kill()
            ended = process.wait()
            now = edit.book(pack)
            assert (now == old) or ended in (0, -signal.SIGKILL)
            if run_bpk("recover", "--discard", pack).status == 0 and now == old:
                assert leftovers(pack) == []
            if now != old:
                break
        assert run_bpk("recover", "--discard", pack).status == 0
        if edit.book(pack) == old:
            good(*command)
        assert edit.book(pack) != old and leftovers(pack) == []

    def test_no_pack(self, folder, change):
        (folder / "data").write_bytes(b"no pack")
        result = run_bpk(change[0], folder / "data", *change[1:])
        assert result.status == 1 and "data: " in result.err

    def test_wrong_usage(self, pack, change):
        result = run_bpk(change[0], pack)
        assert result.status == 2 and result.err.startswith(f"usage: bpk {change[0]} ")


def test_legacy_pack_becomes_aligned(folder):
    path = folder / "old.bpk"
    path.write_bytes(bpkref.build(edit.TENSORS, {"version": "0.19.0"}, layout="legacy"))
    want = edit.book(path)
    good("set", path, "k=v")
    want.metadata["k"] = "v"
    edit.check_pack(path, want)


def test_what_is_mended_is_said(folder):
    path = edit.make_pack(folder)
    with open(path, "ab") as file:
        file.write(b"behind")
    result = run_bpk("set", path, "k=other")
    assert result.status == 0 and result.err.count("\n") == 1 and "model.bpk: " in result.err


def test_owner_that_cannot_be_given(folder):
    need_root()
    folder.chmod(0o777)
    pack = edit.make_pack(folder)
    pack.chmod(0o666)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", BPK, "set", pack, "k=other"]
    before = pack.read_bytes()
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and pack.read_bytes() == before
    assert leftovers(pack) == []


@pytest.mark.parametrize("verb", [["set", "a=1"], ["unset", "k"], ["mv", "text", "t"], ["rm", "text"]], ids=str)
def test_wrong_word_on_the_layout(pack, verb):
    """With all tensors taken from the wrong place, a commit would lose their last bytes."""
    said = refused(pack, verb[0], "-o", "layout=legacy", pack, *verb[1:])
    assert "speak against the layout" in said
    good(verb[0], "-o", "layout=aligned", pack, *verb[1:])


def test_wrong_word_on_the_layout_of_a_mount(folder, pack):
    whole = pack.read_bytes()
    with edit.edited(pack, "layout=legacy") as mount:
        (mount / "metadata/a").write_text("1\n", encoding="utf-8")
        result = run_bpk("commit", mount.path)
        assert result.status == 1 and "speak against the layout" in result.err, result
        assert run_bpk("commit", "--to", folder / "other.bpk", mount.path).status == 0
        assert run_bpk("discard", mount.path).status == 0
    assert pack.read_bytes() == whole
    assert bpkref.read(folder / "other.bpk").metadata["a"] == "1"


def test_a_mounted_pack_with_edits_is_said_to_be_mounted(folder, pack):
    with edit.edited(pack) as mount:
        (mount / "metadata/a").write_text("1\n", encoding="utf-8")
        assert "it is mounted for writing" in refused(pack, "set", pack, "b=1")
        assert run_bpk("discard", mount.path).status == 0
