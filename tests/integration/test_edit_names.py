"""What edits of names come to: tensors made, moved, removed, put back; descriptors on their way with them."""

import json
import os
import shutil

import pytest

import bpkedit as edit
from conftest import code_of, run_bpk

NEW_BYTES = bytes(range(24))


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


# --- New tensors ---


@pytest.mark.parametrize("order", ["bytes first", "sidecar first"])
def test_new_tensor(pack, order):
    want = edit.book(pack).add("new.weight", "F16", [3, 4], NEW_BYTES)
    steps = [
        lambda mount: (mount.tensors / "new.weight").write_bytes(NEW_BYTES),
        lambda mount: edit.write_sidecar(mount, "new.weight", "F16", [3, 4]),
    ]
    with edit.edited(pack, log=[]) as mount:
        for step in steps if order == "bytes first" else steps[::-1]:
            step(mount)
        assert edit.status(mount)["edits"] == ["tensors/new.weight"]
        assert "new.weight\t\"F16\"\t3x4\t24\t-\n" in (mount / "index.tsv").read_text()
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.sidecar(mount, "new.weight")["numpy"] == "<f2"
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


def test_new_tensor_from_another(pack):
    """cp of both files makes a copy: what the sidecar says besides is ignored, the param_id comes along."""
    want = edit.book(pack).add("fc.copy", "F32", [4, 4], bytes(range(64)), 7)
    with edit.edited(pack, log=[]) as mount:
        shutil.copy(mount.tensors / "fc.weight", mount.tensors / "fc.copy")
        shutil.copy(mount.tensors / "fc.weight.json", mount.tensors / "fc.copy.json")
    edit.check_pack(pack, want)


def test_names_that_are_escaped(pack):
    want = edit.book(pack).add("a/b", "U8", [2], b"hi").add("x.json", "U8", [2], b"ho").add(".é~", "U8", [0], b"")
    with edit.edited(pack, log=[]) as mount:
        for name, data in (("a%2Fb", b"hi"), ("x%2Ejson", b"ho"), ("%2Eé%7E", b"")):
            (mount.tensors / name).write_bytes(data)
            edit.write_sidecar(mount, name, "U8", [len(data)])
        (mount.tensors / "odd%2Fna%25me%2Ejson").write_bytes(b"abcde")
        want.change("odd/na%me.json", data=b"abcde")
        want.tensors[-3:] = sorted(want.tensors[-3:])
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


@pytest.mark.parametrize("name", ["50%", "a%2fb", "%61", b"\xff".decode(errors="surrogateescape")])
def test_names_that_no_tensor_has(pack, name):
    """Bytes and sidecar are there, but can only be pending."""
    want = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / name).write_bytes(b"12")
        edit.write_sidecar(mount, name, "U8", [2])
        edit.commit(mount)
        assert (mount.tensors / name).read_bytes() == b"12"
        assert len(edit.problems(mount)) == 1
    edit.check_pack(pack, want)
    with edit.edited(pack) as mount:
        assert (mount.tensors / name).read_bytes() == b"12"
        (mount.tensors / name).unlink()
        (mount.tensors / f"{name}.json").unlink()
    edit.check_pack(pack, want)


# --- Bytes and shape ---


def test_replaced_and_resized(pack):
    """A new length needs a new shape; until both are there, it is a problem that names the way out."""
    want = edit.book(pack).change("fc.weight", data=NEW_BYTES, shape=[2, 3])
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "fc.weight").write_bytes(NEW_BYTES)
        assert "24" in edit.problems(mount)["tensors/fc.weight"]
        assert "24" in edit.sidecar(mount, "fc.weight")["problem"]
        assert edit.sidecar(mount, "fc.weight")["nbytes"] == 24
        assert code_of(edit.commit, mount) == "EBADMSG"
        assert "tensors/fc.weight" in edit.outcome(mount)
        edit.change_sidecar(mount, "fc.weight", shape=[2, 3])
        assert edit.problems(mount) == {}
        edit.commit(mount)
        edit.check_clean(mount)
        assert "problem" not in edit.sidecar(mount, "fc.weight")
    edit.check_pack(pack, want)


def test_dtype_and_param_id(pack):
    want = edit.book(pack).change("fc.weight", dtype="I32", param_id=None)
    want.change("norm.gamma", param_id=edit.PARAM_ID)
    with edit.edited(pack, log=[]) as mount:
        edit.change_sidecar(mount, "fc.weight", dtype="I32", param_id=None)
        edit.change_sidecar(mount, "norm.gamma", param_id=str(edit.PARAM_ID))
        edit.commit(mount)
        assert edit.sidecar(mount, "norm.gamma")["param_id"] == str(edit.PARAM_ID)
    edit.check_pack(pack, want)


@pytest.mark.parametrize("size", [0, 10, 63, 65, 5000])
def test_wrong_length_is_left_out(pack, size):
    """At unmount the rest is committed; the next mount has the edit again."""
    want = edit.book(pack)
    want.metadata["k"] = "w"
    with edit.edited(pack, status=3) as mount:
        os.truncate(mount.tensors / "fc.weight", size)
        (mount / "metadata/k").write_text("w\n")
    edit.check_pack(pack, want)
    with edit.edited(pack) as mount:
        assert (mount.tensors / "fc.weight").read_bytes() == bytes(range(64))[:size].ljust(size, b"\0")
        assert list(edit.problems(mount)) == ["tensors/fc.weight"]
        os.truncate(mount.tensors / "fc.weight", 64)
    data = bytes(range(64))[:size].ljust(64, b"\0")
    edit.check_pack(pack, want.change("fc.weight", data=data))


# --- Renames ---


def test_renamed(pack):
    """The bytes take the descriptor along; the old sidecar's name stays, says so, and is dropped by the commit."""
    want = edit.book(pack).change("fc.weight", name="fc.w")
    with edit.edited(pack, log=[]) as mount:
        number = (mount.tensors / "fc.weight").stat().st_ino
        (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
        assert (mount.tensors / "fc.w").stat().st_ino == number
        assert "fc.w.json" in os.listdir(mount.tensors)
        assert (edit.sidecar(mount, "fc.w")["shape"], edit.sidecar(mount, "fc.w")["param_id"]) == ([4, 4], 7)
        assert edit.sidecar(mount, "fc.weight")["problem"] == "no tensor"
        edit.commit(mount)
        edit.check_clean(mount)
        assert (mount.tensors / "fc.w").stat().st_ino == number
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


def test_sidecar_moved_after_the_tensor(pack):
    want = edit.book(pack).change("fc.weight", name="fc.w")
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
        (mount.tensors / "fc.weight.json").rename(mount.tensors / "fc.w.json")
        assert edit.listing(mount) == edit.expected_listing(want)
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_sidecar_moved_before_the_tensor(pack):
    want = edit.book(pack).change("fc.weight", name="fc.w")
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "fc.weight.json").rename(mount.tensors / "fc.w.json")
        (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


def test_renamed_over_another(pack):
    """conv.weight takes the place of fc.weight with its own descriptor; one tensor is gone."""
    want = edit.book(pack).drop("fc.weight").change("conv.weight", name="fc.weight")
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "conv.weight").rename(mount.tensors / "fc.weight")
        assert edit.sidecar(mount, "fc.weight")["shape"] == [64, 300]
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_swapped_through_scratch(pack):
    """The descriptor stays where bytes are moved to scratch: what comes back takes the one of the name it gets."""
    want = edit.book(pack)
    a, b = want.tensor("fc.weight"), want.tensor("norm.gamma")
    with edit.edited(pack, log=[]) as mount:
        for old, new in (("fc.weight", ".t"), ("norm.gamma", "fc.weight"), (".t", "norm.gamma")):
            (mount.tensors / old).rename(mount.tensors / new)
        assert (mount.tensors / "fc.weight").read_bytes() == b[3]
        assert (mount.tensors / "norm.gamma").read_bytes() == a[3]
        assert edit.sidecar(mount, "fc.weight")["shape"] == [8]
        assert list(edit.problems(mount)) == ["tensors/norm.gamma"]
        edit.change_sidecar(mount, "norm.gamma", dtype="F32", shape=[4, 4], param_id=7)
        edit.commit(mount)
    now = edit.book(pack)
    assert now.tensor("fc.weight")[1:] == b[1:]
    assert now.tensor("norm.gamma")[1:] == a[1:]


def test_cycle_through_a_real_name(pack):
    """a to t, b to a, t to b: each goes with its own descriptor."""
    want = edit.book(pack)
    at, to = want.index("fc.weight"), want.index("norm.gamma")
    want.tensors[at] = ("norm.gamma", *want.tensors[at][1:])
    want.tensors[to] = ("fc.weight", *want.tensors[to][1:])
    with edit.edited(pack, log=[]) as mount:
        for old, new in (("fc.weight", "t"), ("norm.gamma", "fc.weight"), ("t", "norm.gamma")):
            (mount.tensors / old).rename(mount.tensors / new)
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


def test_moved_there_and_back(pack):
    want = edit.book(pack)
    with edit.edited(pack, log=[]) as mount:
        number = (mount.tensors / "fc.weight").stat().st_ino
        (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
        (mount.tensors / "fc.w").rename(mount.tensors / "fc.weight")
        assert (mount.tensors / "fc.weight").stat().st_ino == number
        assert edit.sidecar(mount, "fc.weight")["param_id"] == 7
        edit.commit(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


# --- What a name remembers ---


def test_removed_and_put_there_again(pack):
    """rm forgets nothing: dtype, shape and param_id stay with the name, whose bytes were gone."""
    want = edit.book(pack).change("fc.weight", data=bytes(64))
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "fc.weight").unlink()
        assert edit.sidecar(mount, "fc.weight")["problem"] == "no tensor"
        (mount.tensors / "fc.weight").write_bytes(bytes(64))
        assert edit.sidecar(mount, "fc.weight")["shape"] == [4, 4]
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_param_id_follows_the_bytes(pack):
    """After mv a b a new file at a takes a's dtype and shape, but the param_id went with the bytes."""
    want = edit.book(pack)
    at = want.index("fc.weight")
    want.tensors[at] = ("fc.w", "F32", [4, 4], bytes(range(64)), 7)
    want.add("fc.weight", "F32", [4, 4], bytes(64), None)
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
        (mount.tensors / "fc.weight").write_bytes(bytes(64))
        edit.commit(mount)
        edit.check_clean(mount)
    now = edit.book(pack)
    assert sorted(now.tensors) == sorted(want.tensors)


def test_file_without_descriptor_over_a_tensor(pack):
    """It takes the target's, param_id included."""
    want = edit.book(pack).change("fc.weight", data=bytes(64))
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "incoming").write_bytes(bytes(64))
        (mount.tensors / "incoming").rename(mount.tensors / "fc.weight")
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_removed_for_good_is_forgotten_by_the_commit(pack):
    want = edit.book(pack).drop("fc.weight")
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / "fc.weight").unlink()
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
        (mount.tensors / "fc.weight").write_bytes(bytes(64))
        assert "tensors/fc.weight" in edit.problems(mount)
    edit.check_pack(pack, want)


# --- Removing ---


@pytest.mark.parametrize("way", ["glob", "loop", "tensors then sidecars", "sidecars then tensors"])
def test_remove_all_and_commit(pack, way):
    want = edit.book(pack)
    want.tensors = []
    with edit.edited(pack, log=[]) as mount:
        names = sorted(os.listdir(mount.tensors))
        if "then" in way:
            names.sort(key=lambda name: name.endswith(".json") == way.startswith("tensors"))
        for name in names:
            (mount.tensors / name).unlink()
        assert os.listdir(mount.tensors) == []
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_unmount_does_not_empty_a_checkpoint(pack):
    """Fewer than half of the tensors: the edits are kept, and a commit by name at the next mount takes them."""
    want = edit.book(pack)
    before = pack.stat()
    gone = [edit.bpkref.encode_name(tensor[0]) for tensor in want.tensors[:4]]
    with edit.edited(pack, status=3) as mount:
        for name in gone:
            (mount.tensors / name).unlink()
    assert (pack.stat().st_ino, pack.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with edit.edited(pack) as mount:
        assert not set(gone) & set(os.listdir(mount.tensors))
        edit.commit(mount)
    edit.check_pack(pack, want.drop(*(tensor[0] for tensor in want.tensors[:4])))


def test_unmount_may_remove_half(pack):
    want = edit.book(pack)
    with edit.edited(pack, log=[]) as mount:
        for tensor in want.tensors[:3]:
            (mount.tensors / edit.bpkref.encode_name(tensor[0])).unlink()
    edit.check_pack(pack, want.drop(*(tensor[0] for tensor in want.tensors[:3])))


def test_rm_rf(pack):
    """rm -rf of the mount point's folders is no wish to empty the checkpoint."""
    want = edit.book(pack)
    with edit.edited(pack, status=3) as mount:
        shutil.rmtree(mount.path, ignore_errors=True)
        assert os.listdir(mount.tensors) == []
    assert edit.book(pack).tensors == want.tensors
    with edit.edited(pack, "edits=discard", log=None) as mount:
        assert edit.listing(mount) == edit.expected_listing(want)


def test_sidecar_alone_removed(pack):
    """It is hidden until the next commit or until it is written."""
    want = edit.book(pack)
    with edit.edited(pack, log=None) as mount:
        (mount.tensors / "fc.weight.json").unlink()
        (mount.tensors / "norm.gamma.json").unlink()
        assert "fc.weight.json" not in os.listdir(mount.tensors)
        edit.write_sidecar(mount, "norm.gamma", "F16", [8], param_id=12)
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want.change("norm.gamma", dtype="F16"))


# --- Moved aside ---


@pytest.mark.parametrize("path", ["tensors/fc.weight", "tensors/fc.weight.json", "metadata/k", "metadata.json"])
@pytest.mark.parametrize("aside", ["{}~", "{}.bak", ".{}.swp"])
def test_moved_aside_and_not_written_again(pack, path, aside):
    """An editor that died: the commit puts it back, with its contents, and says so before."""
    want = edit.book(pack)
    with edit.edited(pack, log=None) as mount:
        file = mount / path
        kept = file.parent / aside.format(file.name)
        text = file.read_bytes()
        file.rename(kept)
        assert not file.exists() and kept.read_bytes() == text
        assert any(file.name.removesuffix(".json") in name for name in edit.problems(mount))
        edit.commit(mount)
        assert file.exists() and file.read_bytes() == text
        kept.unlink(missing_ok=True)
        assert file.read_bytes() == text
    edit.check_pack(pack, want)


def test_moved_aside_twice(pack):
    """The last contents are put back, not those of an older backup."""
    want = edit.book(pack).change("fc.weight", data=b"2" * 64)
    with edit.edited(pack, log=None) as mount:
        file = mount.tensors / "fc.weight"
        for number, name in enumerate(("fc.weight.bak", "fc.weight.old", ".fc.weight")):
            file.write_bytes(b"%d" % number * 64)
            file.rename(mount.tensors / name)
        edit.commit(mount)
        assert file.read_bytes() == b"2" * 64
        assert (mount.tensors / "fc.weight.bak").read_bytes() == b"0" * 64
        for name in ("fc.weight.bak", "fc.weight.old"):
            (mount.tensors / name).unlink()
    edit.check_pack(pack, want)


def test_moved_aside_and_removed(pack):
    """The scratch name that it was moved to is removed while nothing took its place: so is the tensor."""
    want = edit.book(pack).drop("fc.weight")
    want.metadata.pop("k")
    with edit.edited(pack, log=[]) as mount:
        for path in ("tensors/fc.weight", "metadata/k"):
            (mount / path).rename(mount / f"{path}~")
            (mount / f"{path}~").unlink()
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_moved_aside_written_again_and_removed(pack):
    """The unlink of its own name removes a tensor, whatever was kept of it before."""
    want = edit.book(pack).drop("fc.weight")
    with edit.edited(pack, status=3) as mount:
        os.rename(mount.tensors / "fc.weight", mount.tensors / "fc.weight.bak")
        (mount.tensors / "fc.weight").write_bytes(b"new")
        os.unlink(mount.tensors / "fc.weight")
        edit.commit(mount)
        assert not (mount.tensors / "fc.weight").exists()
        assert (mount.tensors / "fc.weight.bak").exists()
    edit.check_pack(pack, want)


def test_moved_aside_with_new_contents(pack):
    """What is put back is what it said last, by an unmount too."""
    want = edit.book(pack).change("fc.weight", data=bytes(64))
    with edit.edited(pack, log=None) as mount:
        (mount.tensors / "fc.weight").write_bytes(bytes(64))
        (mount.tensors / "fc.weight").rename(mount.tensors / "fc.weight~")
    edit.check_pack(pack, want)


# --- Backups, pending files, scratch ---


def test_backups_and_pending_files_survive(pack):
    """They are no invalid edits, are named, come back at each mount, and the exit status says that they are there."""
    want = edit.book(pack)
    before = pack.stat()
    files = {
        "tensors/fc.weight.bak": b"old bytes",
        "tensors/pending": b"whose?",
        "metadata/k.orig": b"old value",
        "notes.txt": b"to do",
        "x.old": b"",
    }
    with edit.edited(pack, status=3) as mount:
        for path, data in files.items():
            (mount / path).write_bytes(data)
        (mount.tensors / "fc.weight~").write_bytes(b"scratch")
        edit.commit(mount)
        assert set(edit.problems(mount)) >= {"tensors/pending", "notes.txt"}
    for _ in range(2):
        with edit.edited(pack, status=3) as mount:
            assert {path: (mount / path).read_bytes() for path in files} == files
            assert not (mount.tensors / "fc.weight~").exists()
    edit.check_pack(pack, want)
    assert (pack.stat().st_ino, pack.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with edit.edited(pack) as mount:
        for path in files:
            (mount / path).unlink()
    edit.check_pack(pack, want)


def test_scratch_dies(pack):
    """An orderly unmount with nothing but scratch writes nothing."""
    before = pack.stat()
    with edit.edited(pack, log=[]) as mount:
        for name in ("4913", "sedAb12Cd", ".model.swp", "#x#", "y~"):
            (mount.tensors / name).write_bytes(b"scratch")
        os.symlink("me@host.1:2", mount.tensors / ".#fc.weight")
        assert os.readlink(mount.tensors / ".#fc.weight") == "me@host.1:2"
        (mount.tensors / "empty").touch()
        assert set(edit.status(mount)["scratch"]) >= {"tensors/4913", "tensors/.#fc.weight", "tensors/empty"}
    assert (pack.stat().st_ino, pack.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_pending_becomes_real(pack):
    """By a rename to a real name, or by a sidecar, after a remount as well."""
    want = edit.book(pack).add("late", "U8", [4], b"late").change("text", data=edit.TEXT.upper())
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / "late").write_bytes(b"late")
        (mount / "upload").write_bytes(edit.TEXT.upper())
    with edit.edited(pack) as mount:
        edit.write_sidecar(mount, "late", "U8", [4])
        (mount / "upload").rename(mount / "tensors/text")
    edit.check_pack(pack, want)


def test_backup_restored(pack):
    """mv x.bak x."""
    want = edit.book(pack)
    with edit.edited(pack, log=[]) as mount:
        for path in ("tensors/fc.weight", "tensors/norm.gamma.json", "metadata.json"):
            shutil.copy(mount / path, mount / f"{path}.bak")
        (mount.tensors / "fc.weight").write_bytes(b"broken")
        edit.change_sidecar(mount, "norm.gamma", dtype="F64")
        (mount / "metadata.json").write_text("{}")
        for path in ("tensors/fc.weight", "tensors/norm.gamma.json", "metadata.json"):
            (mount / f"{path}.bak").rename(mount / path)
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_json_of_a_new_map(pack):
    """Keys of metadata.json and the files of metadata/ follow each other at once."""
    want = edit.book(pack)
    want.metadata = {"new key": "1", "a/b": "2", "k": ""}
    with edit.edited(pack, log=[]) as mount:
        (mount / "metadata.json").write_text(json.dumps({"new key": "1", "a/b": "x", "gone": "y"}))
        assert sorted(os.listdir(mount / "metadata")) == ["a%2Fb", "gone", "new key"]
        (mount / "metadata/a%2Fb").write_text("2\n")
        (mount / "metadata/gone").unlink()
        (mount / "metadata/k").write_text("")
        assert json.loads((mount / "metadata.json").read_text()) == want.metadata
        edit.commit(mount)
        edit.check_clean(mount)
        assert edit.listing(mount) == edit.expected_listing(want)
    edit.check_pack(pack, want)


@pytest.mark.parametrize("scratch", [".tmp", "t0.bak"])
def test_swap_through_a_scratch_name(folder, scratch):
    """Two tensors of one shape change places: each param_id goes with its bytes."""
    pack = edit.make_pack(folder, [("t0", "U8", [4], b"0000", 9), ("t1", "U8", [4], b"1111", 7)])
    want = edit.book(pack)
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "t0").rename(mount.tensors / scratch)
        (mount.tensors / "t1").rename(mount.tensors / "t0")
        (mount.tensors / scratch).rename(mount.tensors / "t1")
        assert (edit.sidecar(mount, "t0")["param_id"], edit.sidecar(mount, "t1")["param_id"]) == (7, 9)
        assert edit.problems(mount) == {}
    want.tensors = [("t1", "U8", [4], b"0000", 9), ("t0", "U8", [4], b"1111", 7)]
    edit.check_pack(pack, want)


def test_status_says_what_kind_of_edit_each_is(pack):
    want = {
        "tensors/conv.bias": "removed",
        "tensors/conv.weight": "changed",
        "tensors/fc.weight": "removed",
        "tensors/head.weight": "renamed",
        "tensors/new": "new",
        "tensors/text.bak": "backup",
        "tensors/waits": "pending",
        "metadata/k": "changed",
        "metadata/lines": "removed",
        "metadata/more": "new",
    }
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / "conv.bias").unlink()
        with open(mount.tensors / "conv.weight", "r+b") as file:
            file.write(b"x")
        (mount.tensors / "fc.weight").rename(mount.tensors / "head.weight")
        (mount.tensors / "new").write_bytes(b"123")
        edit.write_sidecar(mount, "new", "U8", [3])
        (mount.tensors / "text.bak").write_bytes(b"123")
        (mount.tensors / "waits").write_bytes(b"123")
        (mount.tensors / ".scratch").write_bytes(b"123")
        (mount / "metadata/k").write_text("changed\n")
        (mount / "metadata/lines").unlink()
        (mount / "metadata/more").write_text("new\n")
        now = edit.status(mount)
        assert sorted(now["edits"]) == sorted(want)
        assert now["changes"] == want
        assert now["renamed_from"] == {"tensors/head.weight": "tensors/fc.weight"}
        said = run_bpk("status", mount.path).out.decode().splitlines()
        lines = {line.removeprefix("edited       ") for line in said if line.startswith("edited ")}
        assert lines == {
            f"{path}: {kind}" + (" from tensors/fc.weight" if kind == "renamed" else "") for path, kind in want.items()
        }
        edit.commit(mount)
        now = edit.status(mount)
        assert now["changes"] == {"tensors/text.bak": "backup", "tensors/waits": "pending"}
        assert "renamed_from" not in now
