"""Large packs: 100,000 tensors, a tensor of 10 GiB, a pack of 100 GiB. Times are printed (pytest -s), not judged."""

import os
import random
import time

import pytest

import bpkview as view
import bpkwrite as w
from bpkref import MAX_TENSOR, file_names, raw_pack, read
from conftest import SANITIZED, mounted, run, run_bpk

COUNT = 100_000
RESIDENT = 60_000_000  # bytes of the daemon with COUNT tensors


class Clock:
    """Prints what takes how long."""

    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.start = time.monotonic()

    def __exit__(self, *_):
        print(f"{self.what}: {time.monotonic() - self.start:.3f} s")


def names():
    """Like those of a model: blocks, layers, weights and biases."""
    kinds = ("attention.query.weight", "attention.query.bias", "mlp.up.weight", "norm.gamma")
    return [f"model.block{i // 40}.layer{i // 4 % 10}.{i // 4}.{kinds[i % 4]}" for i in range(COUNT)]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """COUNT tensors of four bytes, the first and last ones with something in them."""
    path = tmp_path_factory.mktemp("scale") / "many.bpk"
    descriptors = {name: w.descriptor("F32", [1], 256 * i, 256 * i + 4, i) for i, name in enumerate(names())}
    front = raw_pack(w.top(descriptors, {"k": "v"}))
    with open(path, "wb") as file:
        file.write(front)
        for i in (0, 1, COUNT - 1):
            file.seek(len(front) + 256 * i)
            file.write(i.to_bytes(4, "little"))
    os.truncate(path, len(front) + 256 * (COUNT - 1) + 4)
    return path


def check_resident(mount):
    print(f"resident at most: {mount.peak() / 1e6:.1f} MB")
    assert SANITIZED or 1_000_000 < mount.peak() < RESIDENT


def test_100_000_tensors_are_listed(many):
    started = time.monotonic()
    with mounted(many) as mount:
        print(f"mount: {time.monotonic() - started:.3f} s")
        with Clock("listing"):
            listed = os.listdir(mount.path / "tensors")
        assert len(listed) == 2 * COUNT
        assert set(listed) == {name + end for name in names() for end in ("", ".json")}
        check_resident(mount)


def test_100_000_tensors_are_read(many):
    expected = names()
    pack = read(many)
    with mounted(many) as mount:
        with Clock("a thousand tensors with their sidecars"):
            chosen = [expected[0], expected[-1], *random.Random(3).sample(expected, 1000)]
            for name in chosen:
                assert (mount.path / "tensors" / name).read_bytes() == pack.tensors[name].bytes()
                text = (mount.path / "tensors" / f"{name}.json").read_bytes()
                view.check_sidecar(view.parse(text), pack.tensors[name])
        assert (mount.path / "tensors" / expected[-1]).read_bytes() == (COUNT - 1).to_bytes(4, "little")
        with Clock("index.tsv"):
            view.check_index(mount.path / "index.tsv", pack, file_names(pack.tensors))
        check_resident(mount)


def test_tree_of_100_000_tensors(many):
    expected = {path for path in view.tree_links(file_names(names())) if path.startswith("model/block7/")}
    with mounted(many) as mount:
        with Clock("tree/model"):
            assert len(os.listdir(mount.path / "tree/model")) == COUNT // 40
        found = {f"model/block7/{path}" for path in view.found_links(mount.path / "tree/model/block7")}
        assert found == expected and len(found) == 80
        check_resident(mount)


def test_stat_of_100_000_tensors(many):
    """As `ls -l` does: twice, the second time from the kernel's cache."""
    with mounted(many) as mount:
        for what in ("ls -l, cold", "ls -l, warm"):
            with Clock(what):
                listed = run("ls", "-l", mount.path / "tensors")
            assert listed.status == 0 and listed.out.count(b"\n") == 2 * COUNT + 1
        check_resident(mount)


def test_bpk_with_100_000_tensors(many):
    with Clock("bpk ls"):
        listed = run_bpk("ls", many)
    assert listed.status == 0 and listed.out.count(b"\n") == COUNT + 1
    with Clock("bpk verify"):
        assert run_bpk("verify", many).status == 0


FAR = b"the far end"


def large_pack(path, nbytes, size):
    """A sparse pack of SIZE bytes with one tensor of NBYTES, whose last bytes are FAR."""
    with open(path, "wb") as file:
        front = raw_pack(w.top({"big": w.descriptor("U8", [nbytes], 0, nbytes)}))
        file.write(front)
        file.seek(len(front) + nbytes - len(FAR))
        file.write(FAR)
        file.truncate(size if size else len(front) + nbytes)


@pytest.mark.parametrize("nbytes, size", [(MAX_TENSOR, 0), (MAX_TENSOR, 100 << 30), (1 << 20, 100 << 30)])
def test_large_tensor_and_large_pack(nbytes, size, folder):
    path = folder / "large.bpk"
    large_pack(path, nbytes, size)
    with Clock(f"a tensor of {nbytes} bytes, mounted and read at its ends"), mounted(path) as mount:
        big = mount.path / "tensors/big"
        assert big.stat().st_size == nbytes and big.stat().st_blocks == -(-nbytes // 512)
        fd = os.open(big, os.O_RDONLY)
        assert os.pread(fd, 1 << 16, nbytes - len(FAR)) == FAR
        assert os.pread(fd, 100, nbytes // 2) == bytes(100)
        assert os.pread(fd, 100, 0) == bytes(100)
        os.close(fd)
        view.check_sidecar(view.parse((mount.path / "tensors/big.json").read_bytes()), read(path).tensors["big"])
        check_resident(mount)


def test_many_large_tensors(folder):
    """Nine of 10 GiB each, all at their far ends."""
    path, count = folder / "large.bpk", 9
    spans = {f"t{i}": (i * MAX_TENSOR, (i + 1) * MAX_TENSOR) for i in range(count)}
    front = raw_pack(w.top({name: w.descriptor("U8", [MAX_TENSOR], *span) for name, span in spans.items()}))
    with open(path, "wb") as file:
        file.write(front)
        for i in range(count):
            file.seek(len(front) + (i + 1) * MAX_TENSOR - 1)
            file.write(bytes([i + 1]))
    with mounted(path) as mount:
        for i in range(count):
            with open(mount.path / f"tensors/t{i}", "rb") as file:
                file.seek(-5, os.SEEK_END)
                assert file.read() == bytes([0, 0, 0, 0, i + 1])
        assert int(run("du", "-s", "-B1", mount.path).out.split()[0]) >= count * MAX_TENSOR
        check_resident(mount)
