"""The targets of the design, and whether the results meet them."""

import dataclasses

from results import BPKFS, FULL_SIZES, KERNEL_EROFS, NATIVE, overlap, show

MET, MISSED, UNKNOWN, SMALL = "met", "not met", "not measured", "data too small"

# The size that a group's targets speak of.
SIZE_OF = {"reads": "tensor", "names": "names", "commit": "commit", "overwrite": "tensor", "verbs": "commit"}


@dataclasses.dataclass
class Verdict:
    target: str
    measured: str
    verdict: str


def _judge(results, group, target, is_met, text):
    size = SIZE_OF[group]
    if results.sizes.get(size) != FULL_SIZES[size]:
        return Verdict(target, text, SMALL)
    return Verdict(target, text, MET if is_met else MISSED)


def _ratio(results, target, group, name, limit):
    """The median of the ratios to native in the same round."""
    row = results.find(group, name)
    ratio = results.ratio(row) if row else None
    if ratio is None:
        return Verdict(target, "-", UNKNOWN)
    return _judge(results, group, target, ratio <= limit, f"{ratio:.2f} × native")


def _value(results, target, group, name, limit):
    row = results.find(group, name)
    if not row:
        return Verdict(target, "-", UNKNOWN)
    text = f"{show(row.median, row.unit)} ({show(row.low, row.unit)} to {show(row.high, row.unit)})"
    return _judge(results, group, target, row.median <= limit, text)


def is_peer(row):
    """Whether it is a FUSE filesystem of others."""
    return not row.competitor.startswith(BPKFS) and row.competitor not in (NATIVE, KERNEL_EROFS)


def _best(results, group, name, accept):
    rows = [row for row in results.of(group, name) if row.samples and accept(row)]
    return min(rows, key=lambda row: row.median, default=None)


def _behind_no_peer(results, target, group, name):
    """A peer is ahead only if its median is less and the intervals are apart."""
    own, best = results.find(group, name), _best(results, group, name, is_peer)
    if not own or not best:
        return Verdict(target, "-", UNKNOWN)
    common = overlap(best, own)
    text = f"{show(own.median, own.unit)}; {best.competitor} {show(best.median, best.unit)}"
    text += ", intervals overlap" if common else ", intervals apart"
    return _judge(results, group, target, own.median <= best.median or common, text)


def _plain_copy(results, target, name, limit):
    """A commit against the fastest plain copy on the same filesystem."""
    own = results.find("commit", name)
    best = _best(results, "commit", name, lambda row: row.competitor.startswith("copy "))
    if not own or not best:
        return Verdict(target, "-", UNKNOWN)
    ratio = own.median / best.median
    text = f"{ratio:.2f} × {best.competitor}" + (", intervals overlap" if overlap(best, own) else "")
    return _judge(results, "commit", target, ratio <= limit, text)


def judge(results):
    """A Verdict for each target."""
    first, hot = "sequential, first touch", "sequential, hot"
    edit = "metadata edit of a 2 GiB pack"
    return [
        _ratio(results, "sequential read, first touch: ≤ 4.5 × native", "reads", first, 4.5),
        _behind_no_peer(results, "sequential read, first touch: behind no peer", "reads", first),
        _ratio(results, "sequential read, hot: ≤ 1.7 × native", "reads", hot, 1.7),
        _ratio(results, "mmap, hot: ≤ 2.0 × native", "reads", "mmap, hot", 2.0),
        _value(results, "random 4 KiB, first touch: ≤ 30 µs", "reads", "random 4 KiB, first touch", 30e-6),
        _ratio(results, "random 4 KiB, hot: ≤ 1.05 × native", "reads", "random 4 KiB, hot", 1.05),
        _ratio(results, "ls -l of 100,000 tensors: ≤ 1.2 × native", "names", "ls -l, first", 1.2),
        _value(results, "stat of 100,000 tensors, cold: ≤ 3 s", "names", "stat of all, cold", 3.0),
        _value(results, "mount of 100,000 tensors: ≤ 60 ms", "names", "mount", 60e-3),
        _value(results, "resident memory a tensor: ≤ 200 bytes", "names", "resident, a tensor", 200),
        _value(results, f"{edit}, xfs: ≤ 5 ms with fsync", "commit", "metadata edit, xfs", 5e-3),
        _value(results, f"{edit}, btrfs: ≤ 5 ms with fsync", "commit", "metadata edit, btrfs", 5e-3),
        _plain_copy(results, f"{edit}, ext4: ≤ 1.1 × the fastest copy", "metadata edit, ext4", 1.1),
        _plain_copy(results, f"{edit}, here: ≤ 1.1 × the fastest copy", "metadata edit, here", 1.1),
        _ratio(results, "4 KiB edit until fsync returns: ≤ 3 × native", "overwrite", "4 KiB edit and fsync", 3.0),
        _ratio(results, "sequential overwrite: ≤ 2.5 × native", "overwrite", "overwrite, to close", 2.5),
        _ratio(results, "bpk unpack of 2 GiB: ≤ 1.1 × cp -r", "verbs", "unpack", 1.1),
        _ratio(results, "bpk pack of 2 GiB: ≤ 1.1 × cp and fsync", "verbs", "pack, synced", 1.1),
        _ratio(results, "bpk stats of 2 GiB on one CPU: ≥ 0.8 of the speed of a sum", "verbs", "stats, 1 CPU", 1.25),
    ]
