"""How fast many names are listed and looked up, and what a mount of them costs."""

import os
import subprocess
import time

from competitors import all_of, memory_of
from data import MIB, warm_memory, write_native, write_pack

GROUP = "names"
TENSOR_BYTES = 64
LISTINGS = ["ls -f, first", "ls -f, again", "ls -l, first", "ls -l, again"]
TIMES = ["mount", *LISTINGS, "stat of all, cold", "stat of all, again"]
MEMORY = ["resident", "resident, a tensor"]
DEADLINE = 120
NAME_BYTES = 4 << 10  # more than the kernel and a daemon keep of a name


def tensors_of(count):
    """Names as a large model has them."""
    return [(f"model.layers.{i // 10}.block.{i % 10}.weight", TENSOR_BYTES) for i in range(count)]


def listing(folder, flag):
    environment = {**os.environ, "LC_ALL": "C"}
    start = time.perf_counter()
    subprocess.run(["ls", flag, folder], stdout=subprocess.DEVNULL, env=environment, check=True, timeout=DEADLINE)
    return time.perf_counter() - start


def stat_all(folder, names):
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        start = time.perf_counter()
        for name in names:
            os.stat(name, dir_fd=where)
        return time.perf_counter() - start
    finally:
        os.close(where)


def measure(competitor, names, record, base):
    """All rows of one competitor in one round. A fresh mount knows no names. BASE: what it has resident with one."""
    for flag in ("-f", "-l"):
        with competitor.mount() as mounted:
            warm_memory(MIB + NAME_BYTES * len(names))
            record(f"ls {flag}, first", "s", listing(mounted.path, flag))
            record(f"ls {flag}, again", "s", listing(mounted.path, flag))
    warm_memory(MIB + NAME_BYTES * len(names))
    with competitor.mount() as mounted:
        if mounted.took is not None:
            record("mount", "s", mounted.took)
        warm_memory(MIB + NAME_BYTES * len(names))
        record("stat of all, cold", "s", stat_all(mounted.path, names))
        record("stat of all, again", "s", stat_all(mounted.path, names))
        if mounted.pid:
            resident, _ = memory_of(mounted.pid)
            record("resident", "B", resident)
            if base is not None:
                record("resident, a tensor", "B", max(resident - base, 0) / len(names))


def resident_with_one(competitor, names):
    """After one name was asked for: what the program has anyway."""
    with competitor.mount() as mounted:
        if not mounted.pid:
            return None
        stat_all(mounted.path, names)
        return memory_of(mounted.pid)[0]


def run(bench):
    with bench.folder() as folder:
        bench.say("names: making the data")
        tensors = tensors_of(bench.sizes["names"])
        groups = {"one": tensors[:1], "many": tensors}
        found, missing = {}, {}
        for name, some in groups.items():
            place = folder / name
            place.mkdir()
            write_pack(place / "model.bpk", some)
            write_native(place / "native", some)
            found[name] = all_of(place, place / "model.bpk", place / "native", missing.setdefault)
        for name, why in missing.items():
            bench.absent(GROUP, name, why)
        bases = {}
        for competitor in found["one"]:
            with bench.attempt(GROUP, MEMORY, "B", competitor.name):
                bases[competitor.name] = resident_with_one(competitor, [tensors[0][0]])
        names = [name for name, _ in tensors]
        for number, competitor in bench.rounds(GROUP, found["many"]):
            record = lambda row, unit, value: bench.results.add(  # noqa: E731
                GROUP, row, unit, competitor.name, number, value
            )
            with bench.attempt(GROUP, TIMES, "s", competitor.name, subprocess.TimeoutExpired):
                measure(competitor, names, record, bases.get(competitor.name))
