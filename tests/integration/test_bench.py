"""The benchmark: its report on made-up results, and that it runs, ends and leaves nothing. Not how fast anything is."""

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as tree

import pytest

from conftest import BUILD, ENVIRONMENT, PATIENCE, REPOSITORY, mounts_below, need_fuse, reap, run, wait_until

BENCH = REPOSITORY / "tests/bench"
sys.path.append(str(BENCH))

import report  # noqa: E402
import results  # noqa: E402
import targets  # noqa: E402

MACHINE = {
    "cpu": "A <fast> & good CPU",
    "cores": 4,
    "memory": "8 GiB",
    "kernel": "6.1",
    "system": "Debian",
    "filesystem": "ext4",
    "bpkfs": "bpkfs 0.1.0",
    "build": "release",
    "peers": {"fuse-zip": "0.5"},
}
FIRST = "sequential, first touch"


def made_up(reads):
    """Results on data of full size. READS: competitor -> samples in seconds of a sequential read."""
    found = results.Results()
    found.sizes = dict(results.FULL_SIZES)
    for competitor, samples in reads.items():
        for number, value in enumerate(samples):
            found.add("reads", FIRST, "s", competitor, number, value)
    return found


def verdict_of(found, beginning):
    (verdict,) = [v for v in targets.judge(found) if v.target.startswith(beginning)]
    return verdict


@pytest.fixture
def whole():
    """Of everything that the report shows something."""
    found = made_up({"native": [1.0, 2.0, 4.0], "bpkfs": [3.0, 4.0, 20.0], "fuse-zip": [5.0, 6.0, 7.0]})
    found.add("names", "resident", "B", "bpkfs", 0, 3 << 20)
    found.row("reads", "all rows", "s", "mount-zip").note = "not installed"
    found.row("reads", FIRST, "s", "archivemount").note = "stopped\tafter 20 s"
    found.remarks.append("scaled down: something")
    return found


def test_ratio_is_of_the_same_round(whole):
    # 3/1, 4/2, 20/4; the ratio of the medians would be 2
    assert whole.ratio(whole.find("reads", FIRST)) == 3.0
    assert whole.ratio(whole.find("names", "resident")) is None


def test_table_has_every_row_and_reason(whole):
    lines = report.table(whole).splitlines()
    assert re.split("  +", lines[0]) == ["row", "competitor", "median", "min", "max", "× native"]
    cells = {tuple(re.split("  +", line)[:2]): re.split("  +", line)[2:] for line in lines[1:-1]}
    assert cells[(f"reads: {FIRST}", "bpkfs")] == ["4.00 s", "3.00 s", "20.0 s", "3.00"]
    assert cells[("names: resident", "bpkfs")] == ["3.00 MiB"] * 3 + ["-"]
    assert cells[("reads: all rows", "mount-zip")] == ["-"] * 4 + ["not installed"]
    assert lines[-1] == "scaled down: something"


def test_files_of_the_report(whole, folder):
    shown = report.write_all(whole, MACHINE, folder / "new/out")
    files = {path.name: path.read_text(encoding="utf-8") for path in (folder / "new/out").iterdir()}
    assert sorted(files) == ["bars.svg", "results.json", "results.tsv", "table.md", "table.txt"]
    assert files["table.txt"] == shown and "bpkfs 0.1.0, release build; fuse-zip 0.5" in shown
    parsed = json.loads(files["results.json"])
    (own,) = [r for r in parsed["rows"] if (r["row"], r["competitor"]) == (FIRST, "bpkfs")]
    assert (own["median"], own["samples"], own["ratio"]) == (4.0, [3.0, 4.0, 20.0], 3.0)
    assert parsed["machine"] == MACHINE and len(parsed["targets"]) == len(targets.judge(whole))
    lines = files["results.tsv"].splitlines()
    assert len(lines) == 1 + len(parsed["rows"]) and {line.count("\t") for line in lines} == {9}
    assert "| sequential, first touch | 2.00 s | 4.00 s (3.0 ×) | 6.00 s |" in files["table.md"]


def test_chart(whole, folder):
    report.write_all(whole, MACHINE, folder)
    root = tree.parse(folder / "bars.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.get("width")) for bar in root.iter(f"{svg}rect") if bar.get("class") == "bar"]
    assert len(widths) == 4  # three of the reads, shortest first, and the memory
    assert widths[0] < widths[1] < widths[2] and widths[2] == pytest.approx(3 * widths[0], rel=0.01)
    texts = [text.text for text in root.iter(f"{svg}text")]
    assert "4.00 s" in texts and any("A <fast> & good CPU" in text for text in texts)
    assert not any("cut" in text for text in texts)
    whole.add("reads", FIRST, "s", "ratarmount", 0, 1e6)
    report.write_all(whole, MACHINE, folder)
    root = tree.parse(folder / "bars.svg").getroot()
    assert sum("(cut)" in text.text for text in root.iter(f"{svg}text")) == 1
    right = max(float(line.get("x2")) for line in root.iter(f"{svg}line"))
    assert right < float(root.get("width"))


@pytest.mark.parametrize(
    "reads, ratio, peers",
    [
        ({"native": [1] * 3, "bpkfs": [4.4] * 3, "fuse-zip": [5] * 3}, "met", "met"),
        ({"native": [1] * 3, "bpkfs": [4.6] * 3, "fuse-zip": [4] * 3}, "not met", "not met"),
        ({"native": [1] * 3, "bpkfs": [3, 4, 5], "fuse-zip": [3, 3, 3]}, "met", "met"),  # they overlap
        ({"native": [1] * 3, "bpkfs": [2] * 3, "erofs (kernel)": [1] * 3}, "met", "not measured"),
        ({"native": [1] * 3}, "not measured", "not measured"),
    ],
)
def test_verdicts(reads, ratio, peers):
    found = made_up(reads)
    assert verdict_of(found, "sequential read, first touch: ≤").verdict == ratio
    assert verdict_of(found, "sequential read, first touch: behind").verdict == peers
    if ratio != "not measured":
        found.sizes["tensor"] //= 2
        assert verdict_of(found, "sequential read, first touch: ≤").verdict == "data too small"


def test_commit_is_judged_by_the_fastest_copy():
    found = made_up({})
    for competitor, took in (("bpkfs", 1.2), ("copy by read/write", 1.0), ("copy by sendfile", 3.0)):
        found.add("commit", "metadata edit, ext4", "s", competitor, 0, took)
    verdict = verdict_of(found, "metadata edit of a 2 GiB pack, ext4")
    assert (verdict.measured, verdict.verdict) == ("1.20 × copy by read/write", "not met")


# --- Runs ---


def command(folder, *options):
    return ["sh", BENCH / "run.sh", "--quick", "--out", folder / "out", "--data", folder / "data", *options]


def start(folder, *options):
    """Its messages go to FOLDER/log."""
    need_fuse()
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(
            command(folder, *options),
            env={**ENVIRONMENT, "BPK_BUILD": str(BUILD)},
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def test_quick_run(folder):
    status = reap(start(folder, "--only", "names"), 6 * PATIENCE)  # on a busy machine, with sanitizers
    assert status == 0, (folder / "log").read_text(encoding="utf-8")
    rows = json.loads((folder / "out/results.json").read_text(encoding="utf-8"))["rows"]
    measured = {(row["row"], row["competitor"]): len(row["samples"]) for row in rows if row["samples"]}
    for row in ("mount", "ls -f, first", "ls -l, again", "stat of all, cold", "resident, a tensor"):
        assert measured[(row, "bpkfs")] == 3
    assert measured[("ls -l, first", "native")] == 3
    assert mounts_below(folder) == [] and sorted(path.name for path in folder.iterdir()) == ["log", "out"]


def test_interrupted_run_leaves_nothing(folder):
    process = start(folder, "--only", "names")
    wait_until(lambda: mounts_below(folder), "something is mounted", PATIENCE)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert reap(process) == 130
    assert mounts_below(folder) == [] and [path.name for path in folder.iterdir()] == ["log"]


@pytest.mark.parametrize("wrong", [["--only", "nothing"], ["--ready"], ["more"]])
def test_wrong_usage(folder, wrong):
    result = run(*command(folder, *wrong))
    assert result.status == 2 and "usage: run.sh" in result.err
