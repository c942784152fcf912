"""Edits of a pack with as many tensors as the format allows."""

import errno
import fcntl
import os
import threading
import time

import pytest

import bpkedit as edit
import bpkref
from conftest import BPK, BPKFS, SANITIZED, run

LIMIT = 100_000


def many(folder, count):
    pack = folder / "many.bpk"
    tensors = [(f"layers.{i:06}.weight", "U8", [2], b"%02d" % (i % 100), i) for i in range(count)]
    pack.write_bytes(bpkref.build(tensors, {"k": "v"}, {}))
    return pack


def test_all_renamed_in_a_loop(folder):
    count = 5_000 if SANITIZED else LIMIT
    pack = many(folder, count)
    with edit.edited(pack) as mount:
        for i in range(count):
            os.rename(mount.tensors / f"layers.{i:06}.weight", mount.tensors / f"blocks.{i:06}.w")
        edit.commit(mount)
        names = set(os.listdir(mount.tensors))
        assert len(names) == 2 * count and "blocks.000007.w.json" in names
    after = bpkref.read(pack)
    assert sorted(after.tensors) == [f"blocks.{i:06}.w" for i in range(count)]
    for i in (0, 1, count // 2, count - 1):
        tensor = after.tensors[f"blocks.{i:06}.w"]
        assert (tensor.bytes(), tensor.param_id) == (b"%02d" % (i % 100), i)


def test_one_tensor_more_than_the_limit(folder):
    pack = many(folder, LIMIT)
    before = pack.read_bytes()
    with edit.edited(pack) as mount:
        (mount.tensors / "one.more").write_bytes(b"x")
        edit.write_sidecar(mount, "one.more", "U8", [1])
        with pytest.raises(OSError) as caught:
            edit.commit(mount)
        assert caught.value.errno == errno.EFBIG
        refused = run(BPK, "commit", mount.path)
        assert refused.status == 1 and "limit of 100000" in refused.err
        assert pack.read_bytes() == before
        (mount.tensors / "layers.000000.weight").unlink()
        edit.commit(mount)
    after = bpkref.read(pack)
    assert len(after.tensors) == LIMIT and after.tensors["one.more"].bytes() == b"x"


def test_tensor_larger_than_the_limit(folder):
    pack = edit.make_pack(folder)
    with edit.edited(pack) as mount:
        path = mount.tensors / "fc.weight"
        size = path.stat().st_size
        with pytest.raises(OSError) as caught:
            os.truncate(path, 10 * 2**30 + 1)
        assert caught.value.errno == errno.EFBIG
        with open(path, "r+b") as file, pytest.raises(OSError) as caught:
            os.pwrite(file.fileno(), b"x", 10 * 2**30)
        assert caught.value.errno == errno.EFBIG
        assert path.stat().st_size == size


def test_mount_waits_for_a_former_commit(folder):
    """No mount is to be seen, but the pack is locked: somebody still writes it."""
    pack = edit.make_pack(folder)
    (folder / "mnt").mkdir()
    holder = os.open(pack, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    release = threading.Timer(1.0, lambda: os.close(holder))
    release.start()
    start = time.monotonic()
    result = run(BPKFS, pack, folder / "mnt")
    release.join()
    assert result.status == 0 and time.monotonic() - start >= 0.9
    assert "waiting" in result.err and result.err.count("\n") == 1
    assert run(BPK, "umount", folder / "mnt").status == 0
