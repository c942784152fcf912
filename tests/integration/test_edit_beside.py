"""What happens beside a commit under way, beside a backup, or while a mount that does not commit ends."""

import contextlib
import os
import threading
import time

import pytest

import bpkcrash as crash
import bpkedit as edit
from conftest import BPK, run, run_bpk


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


def names_of(pack):
    return [t[0] for t in edit.book(pack).tensors]


@contextlib.contextmanager
def slow_commit(mount, what="delay_enter=1500000"):
    """A commit that is in the middle of its work while the block runs."""
    crash.need("strace")
    with crash.injected(mount, "fchmod", what, 1):
        committer = threading.Thread(target=crash.command, args=(mount,))
        committer.start()
        time.sleep(0.4)
        yield
        assert committer.is_alive()
        committer.join(20)


@pytest.mark.parametrize("fails", [False, True])
def test_an_old_handle_does_not_reach_what_was_put_back(pack, fails):
    with edit.edited(pack, status=3) as mount:
        backup = mount.tensors / "text.bak"
        (mount.tensors / "text").rename(backup)
        with open(backup, "r+b", buffering=0) as held:
            held.write(b"Q")
            with slow_commit(mount, "delay_enter=1500000" + (":error=EIO" if fails else "")):
                (mount.tensors / ".x").write_bytes(b"other")
                (mount.tensors / ".x").rename(backup)
            held.seek(0)
            held.write(b"ZZZZZ")
            assert (mount.tensors / "text").read_bytes() == b"Q" + edit.TEXT[1:]
            edit.commit(mount)
    assert edit.book(pack).tensor("text")[3] == b"Q" + edit.TEXT[1:]


def check_gone(mount, pack, change):
    assert not (mount.tensors / "b").exists() and not (mount / "metadata/nk").exists()
    edit.commit(mount)
    assert ("b" in names_of(pack)) == ("nk" in edit.book(pack).metadata) == (change == "aside")
    assert ("c" in names_of(pack)) == ("c" in edit.book(pack).metadata) == (change == "rename")


@pytest.mark.parametrize("change", ["remove", "rename", "aside"])
@pytest.mark.parametrize("kill", [False, True])
def test_what_left_while_its_commit_ran_is_gone(pack, change, kill):
    """A new tensor and a new key: the pack has them, the mount has not."""
    crash.need("strace")
    with crash.daemon(pack) as mount:
        (mount.tensors / "b").write_bytes(b"12345678")
        edit.write_sidecar(mount, "b", "U8", [8])
        (mount / "metadata/nk").write_text("v\n")
        with slow_commit(mount):
            for file in (mount.tensors / "b", mount / "metadata/nk"):
                if change == "remove":
                    file.unlink()
                else:
                    file.rename(file.parent / ("c" if change == "rename" else ".c"))
        assert "b" in names_of(pack) and edit.book(pack).metadata["nk"] == "v"
        if not kill:
            check_gone(mount, pack, change)
        crash.kill(mount)
    if kill:
        with crash.daemon(pack) as mount:
            check_gone(mount, pack, change)


def test_the_only_copy_of_a_new_tensor_outlives_an_unmount_that_commits_nothing(pack):
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / "b").write_bytes(b"only copy")
        edit.write_sidecar(mount, "b", "U8", [9])
        (mount.tensors / "b").rename(mount.tensors / ".b")
        for path in list(mount.tensors.iterdir()):
            if path.suffix != ".json" and path.name not in (".b", "text"):
                path.unlink()
    with crash.daemon(pack) as mount:
        assert (mount.tensors / ".b").read_bytes() == b"only copy"
        (mount.tensors / ".b").rename(mount.tensors / "b")
        edit.commit(mount)
    assert edit.book(pack).tensor("b")[3] == b"only copy"


@pytest.mark.parametrize("after", ["rename", "remove"])
@pytest.mark.parametrize("new", [False, True])
def test_a_backup_does_not_bring_back_what_was_renamed(pack, new, after):
    name = "b" if new else "text"
    with edit.edited(pack, status=3) as mount:
        file = mount.tensors / name
        if new:
            file.write_bytes(b"1")
            edit.write_sidecar(mount, "b", "U8", [1])
        data = file.read_bytes()
        file.rename(mount.tensors / f"{name}.bak")
        if new:
            edit.commit(mount)
        else:
            file.write_bytes(data[::-1])
        if after == "rename":
            file.rename(mount.tensors / "renamed")
        else:
            file.unlink()
        assert "put back" not in str(edit.problems(mount))
        edit.commit(mount)
        assert not file.exists()
    assert name not in names_of(pack) and ("renamed" in names_of(pack)) == (after == "rename")


HALF = {"metadata/k": b"half", "metadata.json": b'{"only": "this"}'}


def test_texts_of_a_writer_that_was_killed_are_shown(pack):
    """Nobody has looked at them: they are edits all the same."""
    with crash.daemon(pack) as mount:
        held = [(os.open(mount / name, os.O_WRONLY | os.O_TRUNC), text) for name, text in HALF.items()]
        for file, text in held:
            os.write(file, text)
        crash.kill(mount)
        for file, _ in held:
            with contextlib.suppress(OSError):
                os.close(file)
    shown = run(BPK, "recover", pack).out
    assert b"metadata/k: changed" in shown and b"metadata.json: changed" in shown
    with edit.edited(pack, log=["edits of an earlier mount are back"]) as mount:
        assert sorted(edit.status(mount)["edits"]) == ["metadata.json", "metadata/k"]


@pytest.mark.parametrize("name", ["metadata/lines", "tensors/text.json", "metadata.json"])
def test_a_text_that_is_cut_by_its_name_is_an_edit(pack, name):
    with crash.daemon(pack) as mount:
        os.truncate(mount / name, 1)
        assert len(edit.status(mount)["edits"]) == 1


@pytest.mark.parametrize("key", ["k", "nk"])
def test_no_key_comes_back_that_the_map_has_not(pack, key):
    with edit.edited(pack) as mount:
        keys = mount / "metadata"
        (keys / "nk").write_text("v\n")
        (keys / key).rename(keys / ".aside")
        (mount / "metadata.json").write_text('{"z": "1"}')
        (keys / ".x").write_text("other")
        (keys / ".x").rename(keys / ".aside")
        assert not (keys / key).exists()
        assert run_bpk("commit", mount.path).status == 0
    assert edit.book(pack).metadata == {"z": "1"}
