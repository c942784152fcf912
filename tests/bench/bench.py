"""The benchmark's command: what is measured, in which order, on how much data; run.sh calls it."""

import argparse
import contextlib
import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import commits
import edits
import growth
import interrupts
import machine
import names
import reads
import report
import verbs
from competitors import BPK, PROGRAM, take_down
from data import MIB, Missing, warm_memory
from results import FULL_SIZES, Results

GROUPS = {
    "reads": reads.run,
    "names": names.run,
    "overwrite": edits.run,
    "commit": commits.run,
    "latency": edits.run_latency,
    "growth": growth.run,
    "parse": growth.run_parse,
    "idle": growth.run_idle,
    "caches": reads.run_caches,
    "verbs": verbs.run,
}
QUICK = {"tensor": 32 * MIB, "small": 100, "names": 1_000, "commit": 32 * MIB, "metadata": 4 * MIB}
COPIES = 8  # a large tensor is there as a pack, a native file, four images, and what a group writes besides


class Attempt:
    failed = False


class Bench:
    """What the groups are given: results, sizes, rounds, folders, and a net for what fails."""

    def __init__(self, base, quick):
        self.base = base
        self.results = Results()
        self.sizes = dict(QUICK if quick else FULL_SIZES)
        self.results.sizes = self.sizes
        self.count = 3 if quick else 5
        self.seconds = 1 if quick else 5  # of waiting, where something is measured over a time
        self.failures = 0

    def say(self, text):
        print(f"bench: {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def folder(self):
        """A fresh folder, removed at the end: no two groups' data lies there at once."""
        path = pathlib.Path(tempfile.mkdtemp(prefix="data-", dir=self.base))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def rounds(self, title, competitors, count=None):
        """(round, competitor): each round has all of them once, and another begins."""
        for number in range(count or self.count):
            turn = number % len(competitors)
            for competitor in competitors[turn:] + competitors[:turn]:
                self.say(f"{title}: round {number + 1}, {competitor.name}")
                yield number, competitor

    def absent(self, group, competitor, why):
        """One line says it for the whole group."""
        self.results.row(group, "all rows", "s", competitor).note = why

    @contextlib.contextmanager
    def attempt(self, group, rows, unit, competitor, *expected):
        """What fails within is a note of these rows. A fault of bpkfs itself counts; one of others does not."""
        outcome = Attempt()
        try:
            yield outcome
        except (OSError, Missing, subprocess.SubprocessError, *expected) as error:
            outcome.failed = True
            own = competitor.startswith("bpkfs") and not isinstance(error, Missing)
            self.failures += own
            self.say(f"{group}: {competitor}: {error}")
            for row in rows:
                self.results.row(group, row, unit, competitor).note = str(error) or type(error).__name__


def fit(bench):
    """Halves the data until it has room on the disk and in memory, and says so."""
    room, files = machine.free_room(bench.base)
    memory = machine.available_memory()
    sizes = bench.sizes
    before = dict(sizes)
    while sizes["tensor"] > MIB and (COPIES * sizes["tensor"] > 0.8 * room or 3 * sizes["tensor"] > memory):
        sizes["tensor"] //= 2
    while sizes["commit"] > 2 * MIB and (5 * sizes["commit"] > 0.8 * room or 2 * sizes["commit"] > memory):
        sizes["commit"] //= 2
    while sizes["names"] > 100 and (2.2 * sizes["names"] > 0.8 * files or 60_000 * sizes["names"] > 0.8 * room):
        sizes["names"] //= 2
    for name in (name for name in sizes if sizes[name] != before[name]):
        bench.results.remarks.append(f"scaled down for want of room: {name} is {sizes[name]:,}, not {before[name]:,}")
        bench.say(bench.results.remarks[-1])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="run.sh", allow_abbrev=False, add_help=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", metavar="PATTERN", default="*")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--data", metavar="DIR", type=pathlib.Path, default=pathlib.Path("/var/tmp/bpkfs-bench"))
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    patterns = options.only.split(",")
    options.groups = [name for name in GROUPS if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not options.groups:
        parser.error(f"no group matches {options.only}; there are {', '.join(GROUPS)}")
    return options


@contextlib.contextmanager
def base_folder(parent):
    """The folder of this run; the parent goes too if nobody else uses it."""
    parent = parent.absolute()
    parent.mkdir(parents=True, exist_ok=True)
    base = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=parent)).resolve()
    base.chmod(0o755)
    try:
        yield base
    finally:
        take_down(base)
        shutil.rmtree(base, ignore_errors=True)
        with contextlib.suppress(OSError):
            parent.rmdir()


def main(arguments):
    options = parse(arguments)
    if options.check:
        return 0
    for program in (PROGRAM, BPK):
        if not os.access(program, os.X_OK):
            sys.exit(f"run.sh: there is no {program}")
    interrupts.install()
    with base_folder(options.data) as base:
        bench = Bench(base, options.quick)
        fit(bench)
        bench.say("warming memory")
        warm_memory(min(COPIES * bench.sizes["tensor"], machine.available_memory() * 7 // 10))
        described = machine.describe(base)
        for name in options.groups:
            with bench.attempt(name, ["all rows"], "s", "bpkfs"):
                GROUPS[name](bench)
        shown = report.write_all(bench.results, described, options.out or PROGRAM.parents[1] / "results")
    print(shown, end="")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
