"""The results as text, TSV, JSON, Markdown and a picture."""

import dataclasses
import json
import textwrap

import machine as machines
import svg
import targets
from results import BPKFS, show

# What the README shows, in its words.
MARKDOWN_ROWS = [
    ("reads", "sequential, first touch"),
    ("reads", "sequential, hot"),
    ("reads", "random 4 KiB, first touch"),
    ("reads", "small files, first touch"),
    ("names", "ls -l, first"),
    ("names", "stat of all, cold"),
    ("names", "mount"),
    ("names", "resident"),
]


def show_ratio(results, row):
    ratio = results.ratio(row)
    return "-" if ratio is None else f"{ratio:.2f}"


def columns(lines, sides):
    """LINES, lists of cells, aligned to SIDES, a "<" or ">" for each column."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines)]
    return ["  ".join(f"{c:{side}{w}}" for c, side, w in zip(cells, sides, widths)).rstrip() for cells in lines]


def table(results):
    """Everything, for a terminal."""
    lines = [["row", "competitor", "median", "min", "max", "× native", ""]]
    for group, name in results.names():
        for row in results.of(group, name):
            cells = [show(value, row.unit) for value in (row.median, row.low, row.high)]
            lines.append([f"{group}: {name}", row.competitor, *cells, show_ratio(results, row), row.note])
    return "\n".join([*columns(lines, "<<>>>><"), *results.remarks]) + "\n"


def verdicts_text(verdicts):
    lines = columns([["target", "measured", "verdict"], *([v.target, v.measured, v.verdict] for v in verdicts)], "<<<")
    return "\n".join(lines) + "\n"


def tsv(results):
    lines = [["group", "row", "competitor", "unit", "median", "min", "max", "ratio", "samples", "note"]]
    for group, name in results.names():
        for row in results.of(group, name):
            numbers = [row.median, row.low, row.high, results.ratio(row)]
            shown = ["" if number is None else f"{number:.9g}" for number in numbers]
            samples = " ".join(f"{value:.9g}" for value in row.samples.values())
            lines.append([group, name, row.competitor, row.unit, *shown, samples, row.note.replace("\t", " ")])
    return "".join("\t".join(line) + "\n" for line in lines)


def as_json(results, verdicts, machine):
    rows = [
        {
            "group": row.group,
            "row": row.name,
            "competitor": row.competitor,
            "unit": row.unit,
            "median": row.median,
            "min": row.low,
            "max": row.high,
            "ratio": results.ratio(row),
            "samples": list(row.samples.values()),
            "note": row.note,
        }
        for group, name in results.names()
        for row in results.of(group, name)
    ]
    whole = {
        "machine": machine,
        "sizes": results.sizes,
        "remarks": results.remarks,
        "rows": rows,
        "targets": [dataclasses.asdict(verdict) for verdict in verdicts],
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def markdown(results, machine):
    """Medians, a competitor a column; with the ratio to native where there is one. For the README."""
    chosen = [key for key in MARKDOWN_ROWS if any(row.samples for row in results.of(*key))]
    competitors = list(dict.fromkeys(row.competitor for key in chosen for row in results.of(*key) if row.samples))
    lines = ["| | " + " | ".join(competitors) + " |", "|---|" + "---|" * len(competitors)]
    for group, name in chosen:
        cells = []
        for competitor in competitors:
            row = results.find(group, name, competitor)
            ratio = results.ratio(row) if row and competitor.startswith(BPKFS) else None
            text = show(row.median, row.unit) if row else ""
            cells.append(text + (f" ({ratio:.1f} ×)" if ratio else ""))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *textwrap.wrap(machines.in_a_line(machine) + ".", 110)]) + "\n"


def write_all(results, machine, folder):
    """All files; returns what goes to the terminal."""
    verdicts = targets.judge(results)
    caption = textwrap.wrap(machines.in_a_line(machine), 120)
    shown = f"{machines.in_a_line(machine)}\n\n{table(results)}\n{verdicts_text(verdicts)}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {
        "table.txt": shown,
        "results.tsv": tsv(results),
        "results.json": as_json(results, verdicts, machine),
        "table.md": markdown(results, machine),
        "bars.svg": svg.draw(results, caption),
    }.items():
        (folder / name).write_text(content, encoding="utf-8")
    return shown
