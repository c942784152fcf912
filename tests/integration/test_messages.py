"""What bpk and bpkfs say when something is in the way: each sentence says what to do about it."""

import contextlib
import os
import re
import signal

import pytest

import bpkcrash as crash
import bpkedit as edit
import conftest
from conftest import BPKFS, ENVIRONMENT, check_lines, run, run_bpk


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


@pytest.mark.parametrize("size, advice", [(60, "write the missing part"), (68, "cut off the rest")])
def test_a_length_that_does_not_fit(pack, size, advice):
    with edit.edited(pack) as mount:
        (mount.tensors / "fc.weight").write_bytes(bytes(size))
        said = f"has {size} bytes, but shape [4, 4] of F32 needs 64: {advice} or correct the shape"
        assert edit.problems(mount) == {"tensors/fc.weight": said}
        (mount.tensors / "fc.weight").write_bytes(bytes(64))


def test_commit_says_what_it_left_out_and_why(pack):
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / "fc.weight").write_bytes(bytes(60))
        (mount.tensors / "text.bak").write_bytes(b"a")
        (mount.tensors / "lost").write_bytes(b"b")
        result = run_bpk("commit", "--valid", mount.path)
        assert (result.status, result.err) == (0, "")
        assert sorted(result.out.decode().splitlines()) == [
            "not in the pack: tensors/fc.weight: has 60 bytes, but shape [4, 4] of F32 needs 64: "
            "write the missing part or correct the shape",
            "not in the pack: tensors/lost: is no tensor yet: give it a sidecar, or remove it",
            "not in the pack: tensors/text.bak: backup",
        ]


def test_umount_says_what_it_left_out(pack):
    with edit.edited(pack, status=3) as mount:
        (mount.tensors / "fc.weight").write_bytes(bytes(68))
        (mount.tensors / "text.bak").write_bytes(b"a")
        result = run_bpk("umount", "--valid", mount.path)
        assert result.status == 3
        assert [line.split(": ")[:2] for line in result.out.decode().splitlines()] == [
            ["not in the pack", "tensors/fc.weight"],
            ["not in the pack", "tensors/text.bak"],
        ]


@pytest.mark.parametrize("verb", ["status", "commit", "discard", "umount"])
def test_a_mount_whose_daemon_was_killed(pack, verb):
    mount = edit.WritableMount(pack, [])
    try:
        mount.wait_for_mount()
        os.kill(mount.daemon.pid, signal.SIGKILL)
        mount.daemon.wait()
        result = run_bpk(verb, mount.path)
        assert result.status == 1
        assert re.fullmatch(r"bpk: .*: its bpkfs was killed; mount the pack there again: .*\n", result.err)
    finally:
        mount.clear()


def test_recover_of_a_pack_that_is_mounted(pack):
    with edit.edited(pack):
        result = run_bpk("recover", pack)
        assert result.status == 1
        said = "it is mounted for writing, or being written: 'bpk status' shows the edits of a mount"
        assert result.err == f"bpk: {pack}: {said}\n"


@pytest.mark.parametrize("verb", ["status", "commit", "discard", "umount"])
def test_what_is_no_mount(pack, verb):
    for path, said in ((pack, "is a file; the verb takes the folder"), (pack.parent, "no pack is mounted there")):
        result = run_bpk(verb, path)
        assert result.status == 1 and result.err.startswith(f"bpk: {path}: {said}"), result.err


@pytest.mark.parametrize("words", [["info"], ["ls"], ["verify"], ["cat", "text"], ["set", "k=v"], ["rm", "text"]])
def test_a_mount_where_a_pack_is_asked_for(pack, words):
    with edit.edited(pack) as mount:
        result = run_bpk(words[0], mount.path, *words[1:])
        assert result.status == (2 if words == ["verify"] else 1)
        said = f"bpk: {mount.path}: is a directory; the pack that is mounted there is {pack}\n"
        assert (result.out, result.err) == (b"", said)
        result = run_bpk(words[0], mount.tensors, *words[1:])
        assert result.err == f"bpk: {mount.tensors}: is a directory, not a pack\n"


def test_a_second_writable_mount_is_refused_in_one_line(pack):
    with edit.edited(pack) as mount:
        other = pack.parent / "other"
        other.mkdir()
        result = run(BPKFS, pack, other, env=ENVIRONMENT)
        assert result.status == 1
        said = f"bpkfs: {pack}: it is mounted for writing at {mount.path}; '-o ro' mounts it for reading\n"
        assert result.err == said


MAKERS = [["pack", "files"], ["import", "--safetensors", "a.safetensors"], ["export", "--safetensors", "model.bpk"]]


def placed(folder):
    """Paths at which no new file can be made, with what is said of them without and with --force."""
    (folder / "here.bpk").write_bytes(b"here")
    (folder / "link").symlink_to("here.bpk")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "fifo")
    is_there, leads_nowhere = "there is a file of that name already", "which leads nowhere"
    return {
        "here.bpk": (f"{is_there}; '--force' replaces it", None),
        "link": (f"{is_there}; '--force' replaces it", None),
        "dangling": (leads_nowhere, leads_nowhere),
        "sub": ("there is a folder of that name already", "it is no regular file"),
        "fifo": (is_there, "it is no regular file"),
        "nowhere/x": ("cannot open the folder: No such file or directory",) * 2,
        "here.bpk/x": ("Not a directory",) * 2,
        "x" * 300: ("File name too long",) * 2,
    }


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker[0])
def test_where_no_new_file_can_be_made(folder, pack, maker):
    """--force is named where it helps, and there alone."""
    assert run_bpk("unpack", pack, folder / "files").status == 0
    assert run_bpk("export", "--safetensors", pack, folder / "a.safetensors").status == 0
    command = [word if word in (maker[0], "--safetensors") else folder / word for word in maker]
    for name, said in placed(folder).items():
        for sentence, options in zip(said, ([], ["--force"])):
            if not sentence:
                continue
            result = run_bpk(*command[:1], *options, *command[1:], folder / name)
            assert result.status == 1 and result.err.startswith(f"bpk: {folder / name}: "), result.err
            assert result.err.count("\n") == 1 and sentence in result.err, result.err
            assert ("--force" in result.err) == ("--force" in sentence)
    assert (folder / "here.bpk").read_bytes() == b"here" and (folder / "dangling").is_symlink()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_import_of_what_is_no_file(folder):
    (folder / "arrays").mkdir()
    os.mkfifo(folder / "arrays/a.npy")
    os.mkfifo(folder / "pipe")
    for arguments, path, said in (
        (["--npy", folder / "arrays"], folder / "arrays/a.npy", "it is no regular file"),
        (["--safetensors", folder / "pipe"], folder / "pipe", "cannot read: it is no regular file"),
        (["--safetensors", folder / "arrays"], folder / "arrays", "cannot read: Is a directory"),
        (["--npy", folder / "pipe"], folder / "pipe", "cannot read: Not a directory"),
    ):
        result = run_bpk("import", *arguments, folder / "out.bpk")
        assert (result.status, result.err) == (1, f"bpk: {path}: {said}\n")
    assert not (folder / "out.bpk").exists()


@contextlib.contextmanager
def unwritable(folder):
    """Root may write where the mode says otherwise, but not into an immutable folder."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
    elif run("chattr", "+i", folder).status != 0:
        conftest.missing("no immutable folders here")
    try:
        yield
    finally:
        if os.geteuid() != 0:
            folder.chmod(0o755)
        else:
            run("chattr", "-i", folder)


def test_a_folder_that_cannot_be_written(folder, pack):
    """Nobody has asked for the files that a verb would make there: they are not what is said."""
    crash.need("chattr")
    with unwritable(folder):
        for command in (["set", pack, "k=new"], ["unset", pack, "k"], ["rm", pack, "text"], ["mv", pack, "text", "t"]):
            result = run_bpk(*command)
            assert result.status == 1 and result.err.startswith(f"bpk: {pack}: nothing can be written beside it: "), result
    assert sorted(os.listdir(folder)) == [pack.name]


def test_what_a_mount_has_to_say_is_said_of_a_mount(folder, pack):
    """One that fails says why, and nothing of edits that are back: they wait."""
    with crash.daemon(pack) as mount:
        (mount / "metadata/k").write_text("x\n")
        crash.kill(mount)
    (folder / "mnt").mkdir()
    for options, point in ((["-o", "bogus"], "mnt"), ([], "model.bpk"), ([], "nowhere/mnt")):
        for mode in ([], ["-o", "ro"]):
            result = run(BPKFS, *options, *mode, pack, folder / point, env=ENVIRONMENT)
            assert result.status != 0 and "earlier mount" not in result.err, result.err
    for mode, said in ((["ro"], "are waiting"), ([], "are back")):
        with crash.daemon(pack, *mode) as mount:
            assert crash.leave(mount) == 0
            check_lines(mount.read_log(), [f"edits of an earlier mount {said}"])
