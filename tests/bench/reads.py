"""How fast content is read: a large tensor in sequence, mapped, at random; many small ones. What stays cached then."""

import ctypes
import functools
import mmap
import os
import random
import time

from competitors import all_of
from data import MIB, read_all, warm_memory, write_native, write_pack

GROUP = "reads"
BIG = "big.weight"
SMALL_BYTES = 16 << 10
RANDOM_READS = 4000
DEADLINE = 20  # seconds for one measure; who takes longer is stopped, and the row says so
SMALL_ROW = "small files, first touch"
ROWS = [
    "sequential, first touch",
    "sequential, hot",
    "mmap, first touch",
    "mmap, hot",
    "random 4 KiB, first touch",
    "random 4 KiB, hot",
    SMALL_ROW,
]


class TooSlow(Exception):
    """A measure was stopped."""


def sequential(path):
    """Reads of 1 MiB, as cat and cp and NumPy make them."""
    buffer = bytearray(MIB)
    start = time.perf_counter()
    done = 0
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            done += count
            if time.perf_counter() - start > DEADLINE:
                raise TooSlow(f"stopped after {DEADLINE} s at {done // MIB} MiB")
    return time.perf_counter() - start


def mapped(path):
    """The file mapped and each byte of it copied once."""
    buffer = memoryview(bytearray(MIB))
    with open(path, "rb", buffering=0) as file:
        start = time.perf_counter()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory, memoryview(memory) as view:
            for at in range(0, len(view), MIB):
                piece = view[at : at + MIB]
                buffer[: len(piece)] = piece
                piece.release()
                if time.perf_counter() - start > DEADLINE:
                    raise TooSlow(f"stopped after {DEADLINE} s at {at // MIB} MiB")
            return time.perf_counter() - start


def scattered(path, seed, count=RANDOM_READS):
    """Seconds a read of 4 KiB at places that are not read twice."""
    buffer = [bytearray(4096)]
    fd = os.open(path, os.O_RDONLY)
    try:
        pages = os.fstat(fd).st_size // 4096
        places = [page * 4096 for page in random.Random(seed).sample(range(pages), min(count, pages))]
        start = time.perf_counter()
        for done, place in enumerate(places, 1):
            os.preadv(fd, buffer, place)
            if done % 64 == 0 and time.perf_counter() - start > DEADLINE:
                raise TooSlow(f"stopped after {DEADLINE} s at {done} of {len(places)} reads")
        return (time.perf_counter() - start) / len(places)
    finally:
        os.close(fd)


def small_files(folder, names):
    start = time.perf_counter()
    for name in names:
        with open(f"{folder}/{name}", "rb", buffering=0) as file:
            file.read()
        if time.perf_counter() - start > DEADLINE:
            raise TooSlow(f"stopped after {DEADLINE} s")
    return time.perf_counter() - start


def measure_mounted(competitor, number, record, names, room):
    """All rows of one competitor in one round. A fresh mount's page cache is empty; the container's is full.

    ROOM: bytes of memory that the mount's pages take.
    """
    container = competitor.container

    def warm(folder):
        read_all(container or folder / BIG)
        warm_memory(room)

    def twice(first, hot, measure):
        with competitor.mount() as mounted:
            warm(mounted.path)
            record(first, measure(mounted.path / BIG))
            record(hot, measure(mounted.path / BIG))

    def at_random():
        with competitor.mount() as mounted:
            warm(mounted.path)
            record("random 4 KiB, first touch", scattered(mounted.path / BIG, number))
            record("random 4 KiB, hot", scattered(mounted.path / BIG, number))

    def many():
        with competitor.mount() as mounted:
            warm(mounted.path)
            if not container:
                small_files(mounted.path, names)
            record(SMALL_ROW, small_files(mounted.path, names))

    return [
        (ROWS[0:2], lambda: twice(ROWS[0], ROWS[1], sequential)),
        (ROWS[2:4], lambda: twice(ROWS[2], ROWS[3], mapped)),
        (ROWS[4:6], at_random),
        (ROWS[6:7], many),
    ]


def make(bench, folder):
    small = [(f"block.{i}.bias", SMALL_BYTES) for i in range(bench.sizes["small"])]
    tensors = [(BIG, bench.sizes["tensor"]), *small]
    write_pack(folder / "model.bpk", tensors)
    write_native(folder / "native", tensors)
    return [name for name, _ in small]


def run(bench):
    with bench.folder() as folder:
        bench.say("reads: making the data")
        names = make(bench, folder)
        competitors = all_of(folder, folder / "model.bpk", folder / "native", functools.partial(bench.absent, GROUP))
        stopped = set()  # (competitor, first row) that takes too long to be asked again
        for number, competitor in bench.rounds(GROUP, competitors):
            record = lambda row, value: bench.results.add(  # noqa: E731
                GROUP, row, "s", competitor.name, number, value
            )
            for rows, measure in measure_mounted(competitor, number, record, names, bench.sizes["tensor"] * 5 // 4):
                if (competitor.name, rows[0]) not in stopped:
                    with bench.attempt(GROUP, rows, "s", competitor.name, TooSlow) as attempt:
                        measure()
                    if attempt.failed:
                        stopped.add((competitor.name, rows[0]))


# --- What stays in the page cache ---


def cached_bytes(path):
    """How much of a file is in the page cache (mincore)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as memory:
        pages = -(-len(memory) // mmap.PAGESIZE)
        vector = (ctypes.c_ubyte * pages)()
        anchor = ctypes.c_char.from_buffer(memory)
        try:
            where = ctypes.c_void_p(ctypes.addressof(anchor))
            if libc.mincore(where, ctypes.c_size_t(len(memory)), vector) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del anchor
        return sum(page & 1 for page in bytes(vector)) * mmap.PAGESIZE


def drop(path):
    """Takes a file's clean pages out of the cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def run_caches(bench):
    """Pages of the container that a read of the large tensor leaves behind: memory that is paid twice."""
    row = "container's pages after a read"
    with bench.folder() as folder:
        bench.say("caches: making the data")
        make(bench, folder)
        competitors = all_of(folder, folder / "model.bpk", folder / "native", functools.partial(bench.absent, "caches"))
        for number, competitor in bench.rounds("caches", [c for c in competitors if c.container], 1):
            with bench.attempt("caches", [row], "B", competitor.name, TooSlow):
                with competitor.mount() as mounted:
                    drop(competitor.container)
                    sequential(mounted.path / BIG)
                    bench.results.add("caches", row, "B", competitor.name, number, cached_bytes(competitor.container))
