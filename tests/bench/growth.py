"""How the cost of a mount grows with the number of tensors, the size of the pack and that of its metadata; idle CPU."""

import os
import time

from commits import commit
from competitors import bpkfs, cpu_of, memory_of
from data import write_pack
from names import listing, tensors_of
from results import BPKFS

SIZES = [("1 MB", 10**6), ("1 GB", 10**9), ("100 GB", 100 * 10**9)]
PIECE = 10 * 10**9  # of which the larger packs consist
PARTS = ["mount", "resident"]


def grouped(number):
    return f"{number:,}"


class Case:
    """One pack; its rows begin with `name`."""

    def __init__(self, name, competitor, last):
        self.name, self.competitor, self.last = name, competitor, last


def read_end(path):
    """Seconds until the last 4 KiB of a tensor are there."""
    start = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    os.pread(fd, 4096, max(os.fstat(fd).st_size - 4096, 0))
    os.close(fd)
    return time.perf_counter() - start


def measure(bench, group, case, number, with_commit):
    record = lambda what, unit, value: bench.results.add(  # noqa: E731
        group, f"{case.name}: {what}", unit, BPKFS, number, value
    )
    with case.competitor.mount() as mounted:
        record("mount", "s", mounted.took)
        record("last 4 KiB of a tensor", "s", read_end(mounted.path / case.last))
        resident, peak = memory_of(mounted.pid)
        record("resident", "B", resident)
        record("resident at most", "B", peak)
        if with_commit:
            record("ls -l", "s", listing(mounted.path, "-l"))
            record("metadata edit", "s", commit(mounted, number))


def run_cases(bench, group, cases, with_commit=False):
    for number, case in bench.rounds(group, cases):
        with bench.attempt(group, [f"{case.name}: {part}" for part in PARTS], "s", BPKFS):
            measure(bench, group, case, number, with_commit)


def run(bench):
    with bench.folder() as folder:
        bench.say("growth: making the data")
        cases = []
        for count in sorted({10, 1_000, bench.sizes["names"]}):
            tensors = tensors_of(count)
            path = folder / f"{count}.bpk"
            write_pack(path, tensors)
            cases.append(Case(f"{grouped(count)} tensors", bpkfs(folder, path), tensors[-1][0]))
        run_cases(bench, "growth", cases, with_commit=True)
    with bench.folder() as folder:
        cases = []
        for name, size in SIZES:
            path = folder / f"{size}.bpk"
            count = max(size // PIECE, 1)
            tensors = [(f"layer.{i}.weight", size // count) for i in range(count)]
            write_pack(path, tensors, sparse=True)
            cases.append(Case(f"{name} sparse", bpkfs(folder, path), tensors[-1][0]))
        run_cases(bench, "growth", cases)


def run_parse(bench):
    """As large as the format lets the metadata be: by its names, and by the user's own entries."""
    count = bench.sizes["names"]
    with bench.folder() as folder:
        bench.say("parse: making the data")
        usual, wide = tensors_of(count), bench.sizes["metadata"] // count - 90
        long_names = [(f"{i:06d}.{'x' * wide}", 64) for i in range(count)]
        values = {f"key{i}": "v" * 65536 for i in range(bench.sizes["metadata"] // 65600)}
        ten = tensors_of(10)
        size = f"{bench.sizes['metadata'] // 2**20} MiB of metadata"
        cases = []
        for name, tensors, metadata in (
            (f"{grouped(count)} tensors", usual, None),
            (f"{size}, {grouped(count)} long names", long_names, None),
            (f"{size}, values of 64 KiB", ten, values),
        ):
            path = folder / f"{len(cases)}.bpk"
            write_pack(path, tensors, metadata)
            # The file's name of a long name is another: the sidecar's folder is read instead.
            last = "../index.tsv" if tensors is long_names else tensors[-1][0]
            cases.append(Case(name, bpkfs(folder, path), last))
        run_cases(bench, "parse", cases)


def run_idle(bench):
    """CPU that the daemon takes while nobody asks for anything, seconds a second."""
    with bench.folder() as folder:
        tensors = tensors_of(bench.sizes["names"])
        write_pack(folder / "model.bpk", tensors)
        for number, competitor in bench.rounds("idle", [bpkfs(folder, folder / "model.bpk")], 2):
            with bench.attempt("idle", ["CPU a second"], "s", BPKFS), competitor.mount() as mounted:
                listing(mounted.path, "-l")
                time.sleep(0.5)
                before, start = cpu_of(mounted.pid), time.monotonic()
                time.sleep(bench.seconds)
                used = cpu_of(mounted.pid) - before
                bench.results.add("idle", "CPU a second", "s", BPKFS, number, used / (time.monotonic() - start))
