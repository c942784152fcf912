"""What it costs to edit a large tensor, against the same on a native file; and reads while a commit runs."""

import os
import random
import threading
import time

from competitors import bpkfs, native
from data import BLOCK, MIB, read_all, warm_memory, write_native, write_pack
from reads import BIG
from results import BPKFS

EDITS = 50  # of 4 KiB, each one synced


def command(mounted, text):
    """Gives the mount a command; the return is its outcome."""
    fd = os.open(mounted.top / ".bpkfs/control", os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def edit_and_sync(path, seed):
    """Seconds from the write of 4 KiB until its fsync has returned."""
    fd = os.open(path, os.O_RDWR)
    try:
        pages = os.fstat(fd).st_size // 4096
        places = random.Random(seed).sample(range(pages), EDITS)
        os.fsync(fd)
        start = time.perf_counter()
        for place in places:
            os.pwrite(fd, BLOCK[place % 4096 : place % 4096 + 4096], place * 4096)
            os.fsync(fd)
        return (time.perf_counter() - start) / EDITS
    finally:
        os.close(fd)


def overwrite(path):
    """Seconds of a rewrite in place by 1 MiB: to the close, and to the end of an fsync before it."""
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    start = time.perf_counter()
    for at in range(0, size, MIB):
        os.pwrite(fd, memoryview(BLOCK)[at // MIB % 16 :][: min(MIB, size - at)], at)
    written = time.perf_counter() - start
    os.fsync(fd)
    synced = time.perf_counter() - start
    os.close(fd)
    return written, synced


def new_file(path, size):
    """The same bytes into a file that was not there: what a filesystem takes to find room."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    start = time.perf_counter()
    for at in range(0, size, MIB):
        os.write(fd, memoryview(BLOCK)[at // MIB % 16 :][: min(MIB, size - at)])
    written = time.perf_counter() - start
    os.fsync(fd)
    synced = time.perf_counter() - start
    os.close(fd)
    os.unlink(path)
    return written, synced


SMALL, CLOSE, SYNC = "4 KiB edit and fsync", "overwrite, to close", "overwrite, to fsync"


def run(bench):
    """The edits of a round are discarded: the next one starts from the pack again."""
    tensors = [(BIG, bench.sizes["tensor"])]
    room = bench.sizes["tensor"] * 5 // 2  # pages of the mount, and of what is written
    with bench.folder() as folder:
        bench.say("overwrite: making the data")
        write_pack(folder / "model.bpk", tensors)
        write_native(folder / "native", tensors)
        competitors = [native(folder / "native"), bpkfs(folder, folder / "model.bpk")]
        for number, competitor in bench.rounds("overwrite", competitors):
            record = lambda row, value: bench.results.add(  # noqa: E731
                "overwrite", row, "s", competitor.name, number, value
            )
            os.sync()
            warm_memory(room)
            with bench.attempt("overwrite", [SMALL, CLOSE, SYNC], "s", competitor.name):
                with competitor.mount() as mounted:
                    record(SMALL, edit_and_sync(mounted.path / BIG, number))
                    for row, took in zip((CLOSE, SYNC), overwrite(mounted.path / BIG)):
                        record(row, took)
                    if mounted.top:
                        command(mounted, "discard")
            if competitor.name != BPKFS:
                warm_memory(room)
                for row, took in zip((CLOSE, SYNC), new_file(folder / "new", bench.sizes["tensor"])):
                    bench.results.add("overwrite", row, "s", "native, a new file", number, took)


# --- Reads while a commit runs ---


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def read_while(fd, places, go_on):
    """Seconds of each read of 4 KiB at PLACES, an iterator of offsets nobody has read, while GO_ON() says so."""
    buffer, took = [bytearray(4096)], []
    while go_on():
        place = next(places, None)
        if place is None:
            break
        start = time.perf_counter()
        os.preadv(fd, buffer, place)
        took.append(time.perf_counter() - start)
    return took


def measure_latency(mounted, seed, idle_seconds):
    """(idle, during a commit): seconds of each of many reads. Half of the places is for either."""
    (mounted.top / "metadata/round").write_text(f"{seed}\n", encoding="utf-8")
    fd = os.open(mounted.path / BIG, os.O_RDONLY)
    pages = list(range(os.fstat(fd).st_size // 4096))
    random.Random(seed).shuffle(pages)
    places = [page * 4096 for page in pages]
    first, second = iter(places[::2]), iter(places[1::2])
    try:
        end = time.monotonic() + idle_seconds
        idle = read_while(fd, first, lambda: time.monotonic() < end)
        committer = threading.Thread(target=command, args=(mounted, "commit"))
        committer.start()
        during = read_while(fd, second, committer.is_alive)
        committer.join()
    finally:
        os.close(fd)
    return idle, during


def run_latency(bench):
    """On the working filesystem, where a commit may be a copy of everything."""
    with bench.folder() as folder:
        bench.say("latency: making the data")
        write_pack(folder / "model.bpk", [(BIG, bench.sizes["commit"])])
        rows = ["4 KiB read, p99", "4 KiB read, median"]
        for number, competitor in bench.rounds("latency", [bpkfs(folder, folder / "model.bpk")]):
            with bench.attempt("latency", rows, "s", BPKFS):
                read_all(folder / "model.bpk")  # a commit wrote it past the page cache
                warm_memory(bench.sizes["commit"] // 4)
                with competitor.mount() as mounted:
                    idle, during = measure_latency(mounted, number, min(2, bench.seconds))
                for row, share in zip(rows, (0.99, 0.5)):
                    for name, took in (("bpkfs, idle", idle), ("bpkfs, during a commit", during)):
                        if took:
                            bench.results.add("latency", row, "s", name, number, percentile(took, share))
