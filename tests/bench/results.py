"""What was measured: samples by group, row and competitor, one sample a round. Knows no filesystem."""

import statistics

NATIVE = "native"
BPKFS = "bpkfs"
KERNEL_EROFS = "erofs (kernel)"

# Bytes or counts, as the targets have them: a large tensor, the number of small files beside it, of tensors where names
# are measured, a pack to commit, and the metadata of one that has as much as may be.
FULL_SIZES = {"tensor": 1 << 30, "small": 1_000, "names": 100_000, "commit": 2 << 30, "metadata": 99 << 20}


class Row:
    """One line of the table: what NAME took with COMPETITOR, in seconds or bytes (`unit` "s" or "B")."""

    def __init__(self, group, name, unit, competitor):
        self.group, self.name, self.unit, self.competitor = group, name, unit, competitor
        self.samples = {}  # round -> value
        self.note = ""  # why there is nothing, or what is special

    @property
    def median(self):
        return statistics.median(self.samples.values()) if self.samples else None

    @property
    def low(self):
        return min(self.samples.values(), default=None)

    @property
    def high(self):
        return max(self.samples.values(), default=None)


class Results:
    def __init__(self):
        self.rows = {}  # (group, name, competitor) -> Row, in the order of their first sample
        self.remarks = []  # sentences: what was scaled down, what is special about this run
        self.sizes = {}  # what the data was, with the keys of FULL_SIZES

    def row(self, group, name, unit, competitor):
        key = (group, name, competitor)
        if key not in self.rows:
            self.rows[key] = Row(group, name, unit, competitor)
        return self.rows[key]

    def add(self, group, name, unit, competitor, round_number, value):
        self.row(group, name, unit, competitor).samples[round_number] = value

    def find(self, group, name, competitor=BPKFS):
        """The row if anything was measured, or None."""
        row = self.rows.get((group, name, competitor))
        return row if row and row.samples else None

    def names(self):
        """(group, name) of all rows, those of one group together."""
        groups = {}
        for row in self.rows.values():
            groups.setdefault(row.group, {})[row.name] = None
        return [(group, name) for group, names in groups.items() for name in names]

    def of(self, group, name):
        """The rows of all competitors."""
        return [row for row in self.rows.values() if (row.group, row.name) == (group, name)]

    def ratio(self, row):
        """The median over the rounds of what ROW took against native in the same round, or None."""
        native = self.find(row.group, row.name, NATIVE)
        both = [row.samples[r] / native.samples[r] for r in row.samples if native.samples.get(r)] if native else []
        return statistics.median(both) if both else None


def overlap(a, b):
    """Whether the intervals from the least to the largest sample of two rows have a value in common."""
    return a.low <= b.high and b.low <= a.high


def show(value, unit):
    """A value for people, three digits of it."""
    if value is None:
        return "-"
    steps = {
        "s": [(1, "s"), (1e-3, "ms"), (1e-6, "µs")],
        "B": [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")],
    }[unit]
    scale, word = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    scaled = value / scale
    digits = 0 if scaled >= 100 or (unit, word) == ("B", "B") else 1 if scaled >= 10 else 2
    return f"{scaled:.{digits}f} {word}"
