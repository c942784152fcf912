"""Each system call of a commit and of edits fails in turn: no false success, nothing lost, and the mount goes on."""

import collections
import errno
import itertools

import pytest

import bpkcrash as crash
import bpkedit
import conftest

ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "ENOMEM", "EINTR")
COMMITS = {"all": crash.Case(crash.edit_all), "aside": crash.Case(crash.edit_aside, stays=True)}


def mixed(points):
    """Every point with each of the errors, in an order that a sample takes from all of them."""
    return [(call, n, error) for (call, n), error in itertools.product(points, ERRORS) if call != "close"]


def commit_with(case, call, when, what):
    """What the commit said: 0 or an errno."""
    with crash.fresh_folder(case.folder) as folder:
        pack = case.make(folder)
        with crash.daemon(pack) as mount:
            case.edit(mount)
            with crash.injected(mount, call, what, when) as trace:
                result = crash.command(mount)
            title = f"{what} at {call} {when}: {result}"
            assert mount.daemon.poll() is None, title
            now = pack.read_bytes()
            assert now in (case.old, case.new), f"{title}: the pack is neither"
            assert result != 0 or now == case.new, f"{title}: false success"
            shown = crash.view(mount)
            assert shown == case.shown, f"{title}: {crash.differences(case.shown, shown)}"
            if result != 0:
                assert (mount / ".bpkfs/control").read_text(), title
            assert [name for name in crash.debris(pack) if name.endswith(".tmp")] == [] or call == "unlinkat", title
            again = crash.command(mount)
            assert again == 0, f"{title}, then {again}: {(mount / '.bpkfs/control').read_text()}"
            shown = crash.view(mount)
            assert shown == case.shown, f"{title}, committed: {crash.differences(case.shown, shown)}"
            status = crash.leave(mount)
            assert status == (3 if case.stays else 0), f"{title}: {status}, {mount.read_log()}"
        if call == "unlinkat":  # what could not be removed then is removed by the next mount
            with crash.daemon(pack) as mount:
                crash.leave(mount)
        case.check_done(pack, title)
        return ("failed" if result else "well") if trace.was_injected() else "missed"


@pytest.mark.parametrize("name", COMMITS)
def test_errors_of_a_commit(name):
    case = COMMITS[name].prepare()
    points = mixed(case.points())
    wanted = crash.sample(points, 150)
    outcomes = collections.Counter(
        commit_with(case, call, str(n), f"error={error}") for call, n, error in wanted
    )
    print(f"{name}: {len(wanted)} of {len(points)} points, {dict(outcomes)}")
    assert outcomes["failed"] > len(wanted) // 3 and outcomes["missed"] <= len(wanted) // 10


@pytest.mark.parametrize("call", ["pwrite64", "fsync", "fdatasync", "ftruncate", "renameat2", "openat"])
def test_errors_that_stay(call):
    """From the first such call on all of them fail, as on a dying disk."""
    case = COMMITS["all"].prepare()
    assert commit_with(case, call, "1+", "error=EIO") == "failed"


SHORT_WRITES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
/* Each write takes a part of what it is given, and every third one nothing, because of a signal. */
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    static _Atomic unsigned count;
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if (++count % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return real(fd, bytes, size > 1 ? size / 2 : size, offset);
}
"""


def test_short_writes(folder, monkeypatch):
    case = COMMITS["all"].prepare()
    monkeypatch.setitem(conftest.ENVIRONMENT, "LD_PRELOAD", str(crash.compile_shim(folder, SHORT_WRITES)))
    pack = case.make(folder / "packs")
    with crash.daemon(pack) as mount:
        case.edit(mount)
        assert crash.view(mount) == case.shown
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0
    case.check_done(pack, "short writes")


# --- edits ---


def edits_with(steps, call, n, error):
    """Does the steps until one fails, then the rest without a fault."""
    what = f"{error} at {call} {n}"
    with crash.fresh_folder() as folder:
        pack = bpkedit.make_pack(folder, crash.TENSORS)
        old = pack.read_bytes()
        with crash.daemon(pack, "-s") as mount:
            with crash.injected(mount, call, f"error={error}", n) as trace:
                done, failed = steps.run(mount)
            what += f", {done} steps done, then {failed}"
            assert mount.daemon.poll() is None, what
            if done < len(steps.steps):
                steps.check(mount, done, what)
                finished, again = steps.run(mount, done, again=True)
                assert again is None, f"{what}: then {again} in step {finished}"
            shown = crash.view(mount)
            assert shown == steps.views[-1], f"{what}: {crash.differences(steps.views[-1], shown)}"
            assert pack.read_bytes() == old, what
            crash.kill(mount)
        steps.close_all()
        with crash.daemon(pack) as mount:
            shown = crash.view(mount)
            assert shown == steps.views[-1], f"{what}, killed: {crash.differences(steps.views[-1], shown)}"
            assert crash.command(mount, "commit --valid") == 0, what
            bpkedit.control(mount, "discard")
            assert crash.leave(mount) == 0, what
        assert crash.debris(pack) == [], what
        return ("failed" if failed else "well") if trace.was_injected() else "missed"


def test_errors_of_edits():
    steps, points = crash.prepared_steps()
    points = mixed(points)
    wanted = crash.sample(points, 150)
    outcomes = collections.Counter(edits_with(steps, *point) for point in wanted)
    print(f"edits: {len(wanted)} of {len(points)} points, {dict(outcomes)}")
    assert outcomes["failed"] > len(wanted) // 3 and outcomes["missed"] <= len(wanted) // 10
