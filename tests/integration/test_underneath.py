"""Packs that are cut, of doubtful layout, or that change, are replaced or vanish while they are mounted."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import bpkcrash as crash
import bpkedit as edit
import bpkview as view
from bpkref import build, file_names, read
from conftest import (
    BPKFS,
    BYTES,
    ENVIRONMENT,
    GOOD,
    TENSORS,
    check_lines,
    code_of,
    mounted,
    run_bpk,
    run_bpkfs,
    table_entry,
    wait_until,
    weight,
)

# --- Salvage and layouts ---


@pytest.fixture
def cut_pack(folder):
    """(path, what it was, names of the tensors that are whole): the last one lacks its last byte."""
    path = folder / "cut.bpk"
    path.write_bytes(build(TENSORS[::-1], {"k": "v"}))
    whole = read(path.read_bytes())
    os.truncate(path, whole.data_start + whole.data_size - 1)
    kept = sorted({name for name, *_ in TENSORS} - {"conv.weight"})
    return path, whole, kept


def test_salvage(cut_pack):
    path, whole, kept = cut_pack
    assert run_bpkfs("-f", "-o", "ro", path, path.parent).status == 1
    names = file_names(kept)
    with mounted(path, "salvage") as mount:
        sidecars = [f"{file_name}.json" for file_name in names.values()]
        assert sorted(os.listdir(mount.path / "tensors")) == sorted([*names.values(), *sidecars])
        for name in kept:
            assert (mount.path / "tensors" / names[name]).read_bytes() == whole.tensors[name].bytes()
        assert view.parse((mount.path / "metadata.json").read_bytes()) == whole.metadata
        status = view.parse((mount.path / ".bpkfs/status.json").read_bytes())
        assert status["problems"] and status["tensors"] == len(kept)


def test_salvage_names_what_is_lost(cut_pack):
    """The others are listed in the status with why not."""
    with mounted(cut_pack[0], "salvage") as mount:
        assert "conv.weight" in (mount.path / ".bpkfs/status.json").read_text()


def test_salvage_of_a_whole_pack_shows_all(pack):
    with mounted(pack, "salvage") as mount:
        view.check_mount(mount.path, read(pack), pack)


ZEROS = ("z", "U8", [256], bytes(256), None)


UNDECIDED = {"none": {}, "undecided": {"format": "burnpack"}, "newer": {"version": "0.21.0"}}


@pytest.mark.parametrize("kind", UNDECIDED)
def test_refusal_names_the_layout_option(kind, folder):
    """The length of a v0.19 pack, but zeros first and all starts on 256: only the user can tell."""
    path = folder / "odd.bpk"
    path.write_bytes(build([ZEROS], UNDECIDED[kind], layout="legacy"))
    result = run_bpkfs("-f", "-o", "ro", path, folder)
    assert result.status == 1
    check_lines(result.err, ["layout=legacy"])


def test_layouts(folder):
    path = folder / "odd.bpk"
    path.write_bytes(build([ZEROS], layout="legacy"))
    with mounted(path, "layout=legacy") as mount:
        view.check_mount(mount.path, read(path, layout="legacy"), path)
    result = run_bpkfs("-f", "-o", "ro,layout=aligned", path, folder)
    assert (result.status, result.err.count("\n")) == (1, 1)
    path.write_bytes(GOOD)
    for layout in ("aligned", "legacy"):
        with mounted(path, f"layout={layout}") as mount:
            view.check_mount(mount.path, read(path, layout=layout), path)


# --- The pack changes underneath ---

CHANGED = ["^bpkfs: .*changed"]


def drop_caches(path):
    """Lets the kernel forget the file's pages, so that the daemon is asked again."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cut(path):
    os.truncate(path, 600)


def cut_to_nothing(path):
    os.truncate(path, 0)


def overwrite(path):
    with open(path, "r+b") as file:
        file.seek(700)
        file.write(b"other")


def grow(path):
    with open(path, "ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("change", [cut, cut_to_nothing, overwrite, grow])
@pytest.mark.parametrize("read_before", [False, True])
def test_changed_in_place(change, read_before, pack):
    """Tensors answer EIO, never other bytes and never a crash; what was read at the mount is still shown."""
    with mounted(pack, expect=CHANGED) as mount:
        if read_before:
            assert weight(mount.path).read_bytes() == BYTES
        time.sleep(0.02)  # a file's time has the kernel's ticks
        change(pack)
        drop_caches(weight(mount.path))
        for _ in range(3):
            assert code_of(weight(mount.path).read_bytes) == "EIO"
        assert (mount.path / "tensors/a b,c\\d").read_bytes() == b""
        assert view.parse((mount.path / "tensors/conv.weight.json").read_bytes())["shape"] == [64, 300]
        assert view.parse((mount.path / "metadata.json").read_bytes()) == {"k": "v", "producer": "pytest"}
        assert len(os.listdir(mount.path / "tensors")) == 6 and mount.daemon.poll() is None
        assert code_of((mount.path / ".bpkfs/status.json").read_bytes) in ("done", "EIO")


MAP_AND_WAIT = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(1, flush=True)
sys.stdin.read()
view[:]
"""


def test_changed_under_an_open_map(pack):
    """A fault on a page that is no longer there kills the reader, as with any file; the daemon lives."""
    with mounted(pack, expect=CHANGED) as mount:
        command = [sys.executable, "-c", MAP_AND_WAIT, weight(mount.path)]
        reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert reader.stdout.readline() == b"1\n"
        time.sleep(0.02)
        cut(pack)
        reader.communicate()
        assert reader.returncode == -signal.SIGBUS
        assert len(os.listdir(mount.path / "tensors")) == 6


@pytest.mark.parametrize("replace", ["rename", "delete"])
def test_replaced_or_deleted(replace, pack, folder):
    """The mount goes on with the old bytes."""
    with mounted(pack) as mount:
        if replace == "rename":
            (folder / "new.bpk").write_bytes(build([("other", "U8", [1], b"x", None)]))
            os.rename(folder / "new.bpk", pack)
        else:
            pack.unlink()
        assert weight(mount.path).read_bytes() == BYTES
        assert (mount.path / "tensors/conv.bias").read_bytes() == b"\1\0\1"
        assert sorted(os.listdir(mount.path / "metadata")) == ["k", "producer"]


def test_touched_only(pack):
    """mtime counts as a change too, whatever the bytes."""
    with mounted(pack, expect=CHANGED) as mount:
        os.utime(pack, (1, 1))
        assert code_of(weight(mount.path).read_bytes) == "EIO"


# --- What the status says of it ---


def said_of_pack(mount, pack):
    problems = json.loads((mount.path / ".bpkfs/status.json").read_text())["problems"]
    return [p["reason"] for p in problems if p["file"] == pack.name]


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("what", ["replaced", "deleted", "renamed", "folder renamed", "nothing"])
def test_status_says_what_became_of_the_pack(folder, what, writable):
    inside = folder / "inside"
    inside.mkdir()
    pack = edit.make_pack(inside)
    other = edit.make_pack(folder, [("other", "U8", [1], b"x", None)], name="other.bpk")
    with crash.daemon(pack, *([] if writable else ["ro"])) as mount:
        assert said_of_pack(mount, pack) == []
        if what == "replaced":
            other.rename(pack)
        elif what == "deleted":
            pack.unlink()
        elif what == "renamed":
            pack.rename(folder / "elsewhere.bpk")
        elif what == "folder renamed":
            inside.rename(folder / "moved")
        said = said_of_pack(mount, pack)
        if what in ("nothing", "folder renamed"):
            assert said == []
        else:
            assert len(said) == 1 and ("was replaced by another file" in said[0]) == (what == "replaced"), said
            assert ("is not at its place any more" in said[0]) == (what != "replaced")
            assert ("'bpk commit --to FILE' saves" in said[0]) == writable
        assert crash.leave(mount) == 0


@pytest.mark.parametrize("options", [[], ["-s"]])
def test_a_mount_that_covers_its_pack(folder, options):
    """The pack is at its place, though no path leads to it; a commit finds it."""
    pack = edit.make_pack(folder)
    daemon = subprocess.Popen([BPKFS, "-f", *options, pack, folder], env=ENVIRONMENT)
    try:
        wait_until(lambda: table_entry(folder) is not None, "mounted")
        (folder / "metadata/new").write_text("x\n")
        assert json.loads((folder / ".bpkfs/status.json").read_text())["problems"] == []
        result = run_bpk("commit", folder)
        assert (result.status, result.err) == (0, "")
        assert json.loads((folder / ".bpkfs/status.json").read_text())["problems"] == []
    finally:
        subprocess.run(["umount", folder], check=True)
        assert daemon.wait(20) == 0
    assert edit.book(pack).metadata["new"] == "x"
