"""kill -9 at every system call of a commit: old or new, no edit lost, nothing left behind."""

import collections
import signal

import pytest

import bpkcrash as crash

CASES = {
    "all": crash.Case(crash.edit_all),
    "metadata": crash.Case(crash.edit_metadata),
    "aside": crash.Case(crash.edit_aside, stays=True),
    "unmount": crash.Case(crash.edit_all, by_unmount=True),
}
IN_CI = {"all": 90, "metadata": 40, "aside": 60, "unmount": 60}


def kill_at(case, call, n):
    """What came of it: "old", "new" or "missed"."""
    what = f"killed at {call} {n}"
    with crash.fresh_folder(case.folder) as folder:
        pack = case.make(folder)
        with crash.daemon(pack) as mount:
            case.edit(mount)
            with crash.injected(mount, call, "signal=SIGKILL", n):
                try:
                    result = case.commit(mount)
                except AssertionError:
                    result = None
            if result != 0:
                mount.daemon.wait(10)
            died = mount.daemon.poll() == -signal.SIGKILL
            assert died or result == 0, f"{what}: {result}"
            crash.kill(mount)
        outcome = "new" if pack.read_bytes() == case.new else "old"
        case.check_after(pack, what)
        return outcome if died else "missed"


@pytest.mark.parametrize("name", CASES)
def test_kill_at_every_call(name):
    case = CASES[name].prepare()
    points = crash.sample(case.points(), IN_CI[name])
    outcomes = collections.Counter(kill_at(case, *point) for point in points)
    print(f"{name}: {len(points)} of {len(case.points())} points, {dict(outcomes)}, {case.calls}")
    assert outcomes["old"] > 0 and outcomes["missed"] <= len(points) // 10


def test_kill_at_every_call_where_blocks_are_shared():
    """On xfs the data is cloned."""
    with crash.loop_mounted("xfs") as loop:
        case = crash.Case(crash.edit_metadata, folder=loop.path).prepare()
        points = crash.sample(case.points(), 40)
        outcomes = collections.Counter(kill_at(case, *point) for point in points)
        print(f"xfs: {len(points)} of {len(case.points())} points, {dict(outcomes)}, {case.calls}")
        assert outcomes["old"] > 0
