"""What a commit of one metadata key costs in a large pack, against copies of the file by the usual means."""

import contextlib
import fcntl
import mmap
import os
import shutil
import subprocess
import time

from competitors import bpkfs, kernel_mount
from data import GIB, MIB, Missing, read_all, warm_memory, write_pack
from edits import command
from results import BPKFS

GROUP = "commit"
CHUNK = MIB


def by_read_write(source, target, size):
    buffer = memoryview(bytearray(CHUNK))
    while count := os.readv(source, [buffer]):
        os.write(target, buffer[:count])


def by_copy_file_range(source, target, size):
    done = 0
    while done < size:
        done += os.copy_file_range(source, target, size - done)


def by_sendfile(source, target, size):
    done = 0
    while done < size:
        done += os.sendfile(target, source, None, size - done)


def by_direct_write(source, target, size):
    """Reads through the cache, writes past it; the end, which is no whole block, through it again."""
    flags = fcntl.fcntl(target, fcntl.F_GETFL)
    with mmap.mmap(-1, CHUNK) as buffer, memoryview(buffer) as view:
        fcntl.fcntl(target, fcntl.F_SETFL, flags | os.O_DIRECT)
        while count := os.readv(source, [view]):
            if count % 4096:
                fcntl.fcntl(target, fcntl.F_SETFL, flags)
            piece = view[:count]
            os.write(target, piece)
            piece.release()


COPIES = {
    "copy by read/write": by_read_write,
    "copy by copy_file_range": by_copy_file_range,
    "copy by sendfile": by_sendfile,
    "copy by O_DIRECT": by_direct_write,
}


def copy(path, method):
    """Seconds of a copy of PATH that is synced and moved into place as a careful program does."""
    temporary, place = path.parent / "copy.tmp", path.parent / "copy"
    start = time.perf_counter()
    source = os.open(path, os.O_RDONLY)
    target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        method(source, target, os.fstat(source).st_size)
        os.fsync(target)
    finally:
        os.close(source)
        os.close(target)
    os.rename(temporary, place)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    took = time.perf_counter() - start
    place.unlink()
    return took


def commit(mounted, number):
    """Seconds of a change of one key and its commit, until it is on the disk."""
    start = time.perf_counter()
    (mounted.top / "metadata/round").write_text(f"{number}\n", encoding="utf-8")
    command(mounted, "commit")
    return time.perf_counter() - start


class Committer:
    """bpkfs, mounted over all rounds as somebody's day is."""

    def __init__(self, name, mounted):
        self.name, self.mounted = name, mounted

    def measure(self, path, number):
        return commit(self.mounted, number)


class Copier:
    def __init__(self, name):
        self.name = name

    def measure(self, path, number):
        return copy(path, COPIES[self.name])


def measure_place(bench, place, name):
    """All ways on one filesystem, PLACE a folder of it."""
    row = f"metadata edit, {name}"
    path = place / "model.bpk"
    half = bench.sizes["commit"] // 2
    write_pack(path, [("first.weight", half), ("second.weight", half)])
    os.sync()
    with contextlib.ExitStack() as stack:
        ways = [Copier(copier) for copier in COPIES]
        with bench.attempt(GROUP, [row], "s", BPKFS):
            mounted = stack.enter_context(bpkfs(place, path).mount())
            ways.insert(0, Committer(BPKFS, mounted))
            commit(mounted, -1)  # the first makes what is there once, an aligned data start for one
        for number, way in bench.rounds(f"{GROUP}, {name}", ways):
            with bench.attempt(GROUP, [row], "s", way.name):
                read_all(path)
                os.sync()
                warm_memory(bench.sizes["commit"] * 5 // 4)
                bench.results.add(GROUP, row, "s", way.name, number, way.measure(path, number))


def measure_sparse(bench, place, name):
    """100 GB of which nothing is stored: whether a commit's time depends on the size at all."""
    row = f"metadata edit of 100 GB sparse, {name}"
    path = place / "sparse.bpk"
    write_pack(path, [(f"layer.{i}.weight", 10 * 10**9) for i in range(10)], sparse=True)
    competitor = bpkfs(place, path)
    with bench.attempt(GROUP, [row], "s", BPKFS), competitor.mount() as mounted:
        commit(mounted, -1)
        for number in range(bench.count):
            os.sync()
            bench.results.add(GROUP, row, "s", BPKFS, number, commit(mounted, number))


@contextlib.contextmanager
def loop_filesystem(folder, kind, size):
    """A new filesystem of SIZE bytes in a file of FOLDER, mounted; the place in it."""
    if os.geteuid() != 0:
        raise Missing("needs root")
    if not shutil.which(f"mkfs.{kind}"):
        raise Missing(f"mkfs.{kind} is not installed")
    image = folder / f"{kind}.image"
    with open(image, "wb") as file:
        file.truncate(size)
    command_line = [f"mkfs.{kind}", "-q", "-F" if kind == "ext4" else "-f", image]
    made = subprocess.run(command_line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=False)
    if made.returncode != 0:
        raise Missing((made.stderr.decode(errors="replace").strip().splitlines() or ["mkfs failed"])[-1])
    with kernel_mount(folder, kind, image, "loop") as mounted:
        yield mounted.path


def run(bench):
    with bench.folder() as folder:
        bench.say("commit: on the working filesystem")
        measure_place(bench, folder, "here")
    for kind in ("ext4", "xfs", "btrfs"):
        row = f"metadata edit, {kind}"
        with bench.folder() as folder, bench.attempt(GROUP, [row], "s", BPKFS):
            bench.say(f"commit: on {kind}")
            with loop_filesystem(folder, kind, max(GIB, 4 * bench.sizes["commit"] + GIB)) as place:
                measure_place(bench, place, kind)
                if kind != "ext4":
                    measure_sparse(bench, place, kind)
