"""The end of a mount: what goes into the pack, what stays beside it, and that each is said once."""

import contextlib
import json
import os
import pathlib
import signal
import time

import pytest

import bpkedit as edit
from conftest import check_lines, code_of, wait_until


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


@pytest.mark.parametrize(
    "path,text",
    [
        ("tensors/fc.weight.json", '{"dtype": "F32", "shape": [16]}'),
        ("metadata/k", "held\n"),
        ("metadata.json", '{"k": "held"}'),
        ("scalars.json", '{"lr": {"Bool": true}}'),
        ("tensors/text", "x" * 640),
    ],
)
def test_signal_while_a_file_is_open(pack, path, text):
    """It is in the pack, and the one line about it says that it is open."""
    want = edit.book(pack)
    mount = edit.WritableMount(pack, ["grace=1"])
    try:
        mount.wait_for_mount()
        held = os.open(mount / path, os.O_WRONLY | os.O_TRUNC)
        os.write(held, text.encode())
        mount.send(signal.SIGTERM)
        assert mount.wait() == 3
        check_lines(mount.read_log(), ["still open after 1 seconds", f"still open for writing: {path}$"])
        with contextlib.suppress(OSError):  # the mount is gone
            os.close(held)
    finally:
        mount.clear()
    assert not edit.edits_folder(pack).exists()
    if path == "tensors/fc.weight.json":
        want.change("fc.weight", shape=[16], param_id=None)
    elif path == "tensors/text":
        want.change("text", data=text.encode())
    elif path == "scalars.json":
        want.scalars = {"lr": ("Bool", True)}
    elif path == "metadata/k":
        want.metadata["k"] = "held"
    else:
        want.metadata = {"k": "held"}
    edit.check_pack(pack, want)


@pytest.mark.parametrize("path", ["tensors/text", "metadata/k", "scalars.json", "views/npy/fc.weight.npy"])
def test_signal_while_a_file_is_open_that_nobody_wrote(pack, path):
    """What a map of it would still bring is not in the pack, so it is named."""
    mount = edit.WritableMount(pack, ["grace=1"])
    try:
        mount.wait_for_mount()
        held = os.open(mount / path, os.O_RDWR)
        mount.send(signal.SIGTERM)
        assert mount.wait() == 3
        check_lines(mount.read_log(), ["still open after 1 seconds", f"still open for writing: {path}$"])
        with contextlib.suppress(OSError):
            os.close(held)
    finally:
        mount.clear()
    assert not edit.edits_folder(pack).exists()


@pytest.mark.parametrize("path", ["tensors/text", "views/npy/text.npy"])
@pytest.mark.parametrize("written", [False, True])
def test_the_timer_waits_for_who_writes(pack, path, written):
    want = edit.book(pack)
    with edit.edited(pack, "commit=1") as mount:
        with open(mount / path, "r+b", buffering=0) as held:
            if written:
                held.seek(-1, os.SEEK_END)
                held.write(b"!")
                want.change("text", data=edit.TEXT[:-1] + b"!")
            (mount / "metadata/k").write_text("new\n")
            want.metadata["k"] = "new"
            time.sleep(2.5)  # to see that nothing happens there is no other way
            assert edit.status(mount)["last_commit"] is None
        wait_until(lambda: edit.status(mount)["last_commit"], "a commit")
        edit.check_clean(mount)
    edit.check_pack(pack, want)


def test_one_bad_key_is_left_out_alone(pack):
    """Its bytes stay beside the pack, and the others go in."""
    want = edit.book(pack)
    with edit.edited(pack, status=3, log=["not committed: metadata/k: the value is not UTF-8$"]) as mount:
        assert code_of((mount / "metadata/k").write_bytes, b"\xff\xfe\n") == "EBADMSG"
        (mount / "metadata/new").write_text("good\n")
        (mount / "metadata/lines").unlink()
        (mount / "scalars.json").write_text("{}")
    want.metadata = {"producer": "pytest", "k": "v", "new": "good"}
    want.scalars = {}
    edit.check_pack(pack, want)
    with edit.edited(pack, log=["edits of an earlier mount are back"]) as mount:
        assert (mount / "metadata/k").read_bytes() == b"\xff\xfe\n"
        assert edit.status(mount)["edits"] == ["metadata/k"]
        assert json.loads((mount / "metadata.json").read_text()) == want.metadata
        (mount / "metadata/k").write_text("mended\n")
    want.metadata["k"] = "mended"
    edit.check_pack(pack, want)


def test_a_bad_map_is_left_out_whole(pack):
    """Its keys with it: what they are meant to be with the map, nobody knows."""
    want = edit.book(pack)
    lines = ["not committed: metadata/new$", "not committed: metadata.json: .*line 1"]
    with edit.edited(pack, status=3) as mount:
        (mount / "metadata/new").write_text("good\n")
        assert code_of((mount / "metadata.json").write_text, '{"k": oops}') == "EBADMSG"
        mount.unmount()
        mount.wait()
        said = mount.read_log()
    check_lines("\n".join(sorted(said.splitlines(), key=lambda line: "metadata.json" in line)), lines)
    edit.check_pack(pack, want)
    with edit.edited(pack, log=["edits of an earlier mount are back"]) as mount:
        assert (mount / "metadata/new").read_text() == "good\n"
        (mount / "metadata.json").write_text(json.dumps({**want.metadata, "new": "good"}))
    want.metadata["new"] = "good"
    edit.check_pack(pack, want)


def test_scratch_dies_though_other_edits_stay(pack):
    with edit.edited(pack, status=3, log=["kept beside the pack: tensors/waits$"]) as mount:
        (mount.tensors / "waits").write_bytes(b"1")
        for name in ("tensors/empty", "tensors/.scratch", "empty", "metadata/.k.swp"):
            (mount / name).touch()
    with edit.edited(pack, status=3) as mount:
        assert edit.listing(mount) == {*edit.expected_listing(edit.book(pack)), "tensors/waits"}
        assert edit.status(mount)["scratch"] == []


def test_status_says_why_a_commit_failed_whatever_else_is_wrong(pack):
    with edit.edited(pack) as mount:
        (mount / "notes").write_bytes(b"1")
        for name in ("conv.weight", "conv.bias", "fc.weight", "text"):
            (mount.tensors / name).unlink()
        assert code_of(edit.control, mount, "commit --unmount") == "EPERM"
        said = edit.problems(mount)
        assert sorted(said) == ["model.bpk", "notes"]
        assert "would be left with 2 of its 6 tensors" in said["model.bpk"]
        edit.control(mount, "discard")


def test_status_is_whole_though_it_changes_while_it_is_read(pack):
    with edit.edited(pack) as mount:
        for i in range(20):
            (mount / f"notes{i}").write_bytes(b"1")
        with open(mount / ".bpkfs/status.json", encoding="utf-8") as file:
            edit.control(mount, "discard")
            assert len(json.load(file)["edits"]) == 20
        assert edit.status(mount)["edits"] == []


def test_pending_files_are_told_what_helps(pack):
    paths = {
        "tensors/waits": "give it a sidecar",
        "tensors/50%": "rename it",
        "metadata/50%": "rename it",
        "notes": "move it to a name",
        "views/npy/notes": "ends in .npy",
    }
    with edit.edited(pack) as mount:
        for path in paths:
            (mount / path).write_bytes(b"1")
        edit.write_sidecar(mount, "50%", "U8", [1])
        said = edit.problems(mount)
        assert sorted(said) == sorted(paths)
        assert all(helps in said[path] for path, helps in paths.items()), said
        edit.control(mount, "discard")


def deleted_files(pid):
    """What a process has open that has no name any more."""
    links = (os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    return [link for link in links if link.endswith("(deleted)")]


def test_the_disk_space_of_a_replaced_pack_is_free(folder):
    """Nobody holds the pack that was, but who has a tensor of it open."""
    pack = edit.make_pack(folder)
    with edit.edited(pack) as mount:
        os.listdir(mount / "tree")
        for turn in range(3):
            for name in ("model.bpk", "model.safetensors"):
                assert (mount / "views/export" / name).read_bytes()
            (mount / "metadata/note").write_text(str(turn))
            edit.commit(mount)
            wait_until(lambda: deleted_files(mount.daemon.pid) == [], "the old pack closed")
            assert os.statvfs(mount.path).f_blocks > 0
            assert (mount.tensors / "text").read_bytes() == edit.TEXT
            assert {"conv", "fc", "norm"} < set(os.listdir(mount / "tree"))
            assert json.loads((mount / "tensors/text.json").read_text())["nbytes"] == len(edit.TEXT)
