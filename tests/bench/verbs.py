"""What bpk does with a whole pack, without a mount, against the plain tool that moves or reads the same bytes."""

import contextlib
import os
import shutil
import subprocess
import sys
import time

import stats
from competitors import BPK
from data import read_all, warm_memory, write_native, write_pack
from results import BPKFS, NATIVE

GROUP = "verbs"
UNPACK, PACK, STATS, STATS_ONE = "unpack", "pack, synced", "stats", "stats, 1 CPU"
SUM = "import numpy, sys; [numpy.memmap(path, '<f4', 'r').sum() for path in sys.argv[1:]]"


def timed(*command, one=False):
    """Seconds of a program; with ONE, on one processor."""
    pin = (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})) if one else None
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, preexec_fn=pin)
    return time.perf_counter() - start


def synced_copy(source, target):
    """Seconds of cp, and of an fsync after it: what `bpk pack` has done when it returns."""
    took = timed("cp", source, target)
    start = time.perf_counter()
    fd = os.open(target, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return took + time.perf_counter() - start


class Data:
    """Tensors as a pack, as what `bpk unpack` made of it, and as plain files; and one of weights, packed and raw."""

    def __init__(self, folder, size):
        self.folder, self.pack = folder, folder / "model.bpk"
        self.native, self.unpacked = folder / "native", folder / "unpacked"
        self.out = folder / "out"
        tensors = [(f"layer.{i}.weight", size // 8) for i in range(8)]
        write_pack(self.pack, tensors)
        write_native(self.native, tensors)
        self.raw_weights, self.weights = stats.write(folder, "F32", size)
        timed(BPK, "unpack", self.pack, self.unpacked)

    def settle(self):
        """Nothing left to write, and all of it in the page cache."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.out) if self.out.is_dir() else self.out.unlink()
        os.sync()
        for path in (self.pack, self.raw_weights, self.weights):
            read_all(path)
        for folder in (self.native, self.unpacked / "tensors"):
            for path in folder.iterdir():
                read_all(path)
        warm_memory(self.pack.stat().st_size * 5 // 4)


class Bpk:
    name = BPKFS

    def rows(self, data):
        return {
            UNPACK: lambda: timed(BPK, "unpack", data.pack, data.out),
            PACK: lambda: timed(BPK, "pack", data.unpacked, data.out),
            STATS: lambda: timed(BPK, "stats", data.weights),
            STATS_ONE: lambda: timed(BPK, "stats", data.weights, one=True),
        }


class Plain:
    name = NATIVE

    def rows(self, data):
        rows = {
            UNPACK: lambda: timed("cp", "-r", data.native, data.out),
            PACK: lambda: synced_copy(data.pack, data.out),
        }
        start = timed(sys.executable, "-c", SUM)  # without what an interpreter takes to begin
        return rows | dict.fromkeys([STATS, STATS_ONE], lambda: timed(sys.executable, "-c", SUM, data.raw_weights) - start)


def run(bench):
    with bench.folder() as folder:
        bench.say("verbs: making the data")
        data = Data(folder, bench.sizes["commit"])
        for number, way in bench.rounds(GROUP, [Bpk(), Plain()]):
            for row, work in way.rows(data).items():
                with bench.attempt(GROUP, [row], "s", way.name):
                    data.settle()
                    bench.results.add(GROUP, row, "s", way.name, number, work())
