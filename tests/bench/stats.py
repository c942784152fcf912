#!/usr/bin/python3
"""How long `bpk stats` and `bpk ls --hash` take, side by side with NumPy on the same bytes in a plain file.

    /usr/bin/python3 tests/bench/stats.py [--mib 1024] [--runs 5] [--folder /var/tmp]

Needs a build in build/ (or BPK_BUILD) and Debian's python3-numpy. Makes a pack of one tensor for each of several
dtypes and a raw file of the same bytes, both in the page cache, and prints medians in seconds: bpk on all processors
and on one, NumPy's min + max + isnan + mean, the same with a histogram, and a plain sum, each over a memmap; then the
ratios that matter. NumPy takes BF16 for integers. The plain sum is of float32 or float64, or else of the bytes as
64-bit integers, which is as fast as memory. The runs alternate, so that a busy machine is unkind to all of them.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/integration"))

import bpkwrite  # noqa: E402

BPK = pathlib.Path(os.environ.get("BPK_BUILD", REPOSITORY / "build")) / "src/cli/bpk"
PIECE = 1 << 22  # elements
DTYPES = {"F32": "<f4", "BF16": "<u2", "F64": "<f8", "I32": "<i4", "U8": "<u1"}


def pieces(dtype, size):
    """Arrays of SIZE bytes together, distributed as weights are."""
    chance = np.random.default_rng(1)
    left = size // np.dtype(DTYPES[dtype]).itemsize
    while left:
        wide = chance.standard_normal(min(left, PIECE), dtype="f4") * np.float32(0.05)
        left -= wide.size
        if dtype == "BF16":
            yield (wide.view("u4") >> 16).astype("<u2")
        elif DTYPES[dtype][1] == "f":
            yield wide.astype(DTYPES[dtype])
        else:
            yield (wide * 400).astype("i4").astype(DTYPES[dtype])


def write(folder, dtype, size):
    raw, pack = folder / f"{dtype}.raw", folder / f"{dtype}.bpk"
    count = size // np.dtype(DTYPES[dtype]).itemsize
    front = bpkwrite.raw_pack(bpkwrite.top({"w": bpkwrite.descriptor(dtype, [count], 0, size)}))
    with open(raw, "wb") as plain, open(pack, "wb") as packed:
        packed.write(front)
        for piece in pieces(dtype, size):
            piece.tofile(plain)
            piece.tofile(packed)
    return raw, pack


def bpk(*arguments, one=False):
    affinity = {min(os.sched_getaffinity(0))} if one else None
    pin = (lambda: os.sched_setaffinity(0, affinity)) if one else None
    subprocess.run([BPK, *arguments], check=True, stdout=subprocess.DEVNULL, preexec_fn=pin)


def numpy_looks(raw, dtype):
    x = np.memmap(raw, DTYPES[dtype], "r")
    return x.min(), x.max(), np.isnan(x).sum(), x.mean(dtype="f8")


def numpy_histogram(raw, dtype):
    x = np.memmap(raw, DTYPES[dtype], "r")
    return numpy_looks(raw, dtype), x.std(dtype="f8"), np.histogram(x, 32)


def numpy_sum(raw, dtype):
    return np.memmap(raw, DTYPES[dtype] if dtype in ("F32", "F64") else "<u8", "r").sum()


def medians(columns, runs):
    """name -> seconds, of functions."""
    times = {name: [] for name in columns}
    for run in range(runs + 1):
        for name, work in columns.items():
            start = time.perf_counter()
            work()
            if run:  # the first one warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def measure(raw, pack, dtype, runs):
    columns = {
        "stats": lambda: bpk("stats", pack),
        "stats, 1 CPU": lambda: bpk("stats", pack, one=True),
        "ls --hash": lambda: bpk("ls", "--hash", pack),
        "numpy sum": lambda: numpy_sum(raw, dtype),
        "numpy looks": lambda: numpy_looks(raw, dtype),
    }
    if dtype == "F32":
        columns["numpy, histogram too"] = lambda: numpy_histogram(raw, dtype)
    return medians(columns, runs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", default="/var/tmp")
    options = parser.parse_args()
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="bpk-bench-") as folder:
            raw, pack = write(pathlib.Path(folder), dtype, options.mib << 20)
            found = measure(raw, pack, dtype, options.runs)
        print(f"{dtype}, {options.mib} MiB, medians of {options.runs}")
        for name, seconds in found.items():
            print(f"    {name:22} {seconds:7.3f} s  {options.mib / 1024 / seconds:6.2f} GiB/s")
        print(f"    stats / numpy looks          {found['stats'] / found['numpy looks']:.2f}  (at most 1.5)")
        print(f"    numpy sum / stats, 1 CPU     {found['numpy sum'] / found['stats, 1 CPU']:.2f}  (at least 0.8 is the target)")


if __name__ == "__main__":
    main()
