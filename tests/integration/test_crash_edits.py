"""kill -9 while files of the mount are changed: what was acknowledged is there at the next mount."""

import contextlib
import json
import os
import random
import threading

import pytest

import bpkcrash as crash
import bpkedit
from conftest import wait_until


def check_next_mount(steps, pack, old, done, what):
    """The edits are back; a commit takes them in (what is whole of them), and nothing is left but what is not."""
    assert pack.read_bytes() == old, what
    with crash.daemon(pack) as mount:
        steps.check(mount, done, what)
    with crash.daemon(pack) as mount:  # killed by `clear`: reading back is itself safe
        steps.check(mount, done, what)
        assert crash.command(mount, "commit --valid") == 0, what
        bpkedit.control(mount, "discard")
        assert crash.leave(mount) == 0, what
    assert crash.debris(pack) == [], what


def test_kill_at_every_call():
    steps, points = crash.prepared_steps()
    wanted = crash.sample(points, 120)
    stopped = set()
    for call, n in wanted:
        what = f"killed at {call} {n}"
        with crash.fresh_folder() as folder:
            pack = bpkedit.make_pack(folder, crash.TENSORS)
            old = pack.read_bytes()
            with crash.daemon(pack, "-s") as mount:
                with crash.injected(mount, call, "signal=SIGKILL", n):
                    done, _ = steps.run(mount)
                crash.kill(mount)
            steps.close_all()
            stopped.add(done)
            check_next_mount(steps, pack, old, done, f"{what}, {done} steps done")
    print(f"{len(wanted)} of {len(points)} points, stopped in {len(stopped)} of {len(steps.steps)} steps")
    assert len(stopped) > len(steps.steps) // 2


def test_kill_after_every_step():
    """Nothing was synced: all is there."""
    steps, _ = crash.prepared_steps()
    for count in range(1, len(steps.steps) + 1):
        with crash.fresh_folder() as folder:
            pack = bpkedit.make_pack(folder, crash.TENSORS)
            old = pack.read_bytes()
            with crash.daemon(pack) as mount:
                for step in steps.steps[:count]:
                    step(mount)
                crash.kill(mount)
            steps.close_all()
            with crash.daemon(pack) as mount:
                shown = crash.view(mount)
                assert shown == steps.views[count], (count, crash.differences(steps.views[count], shown))
            assert pack.read_bytes() == old


def test_fsync_then_kill(folder):
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        with crash.opened(mount.tensors / "conv.weight") as fd:
            os.write(fd, b"synced")
            os.fsync(fd)
            crash.kill(mount)
    with crash.daemon(pack) as mount:
        assert (mount.tensors / "conv.weight").read_bytes() == b"synced" + bpkedit.WEIGHT[6:]
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0
    assert bpkedit.book(pack).tensor("conv.weight")[3][:6] == b"synced"


@pytest.mark.parametrize("text", ['{"dtype": "F32", "shape": [4, 4', "{]", ""])
def test_broken_sidecar_keeps_its_last_good_value(folder, text):
    """The text is as it was written, the value in force the last good one."""
    pack = bpkedit.make_pack(folder)
    with crash.daemon(pack) as mount:
        bpkedit.change_sidecar(mount, "fc.weight", shape=[2, 8])
        with crash.opened(mount.tensors / "fc.weight.json", os.O_WRONLY | os.O_TRUNC) as fd:
            os.write(fd, text.encode())
            crash.kill(mount)
    with crash.daemon(pack) as mount:
        assert (mount.tensors / "fc.weight.json").read_text() == text
        lines = (mount / "index.tsv").read_text().splitlines()
        assert any("fc.weight" in line and "2" in line and "8" in line and "4, 4" not in line for line in lines), lines
        assert crash.command(mount) != 0
        (mount.tensors / "fc.weight.json").write_text(json.dumps({"dtype": "F32", "shape": [16]}))
        assert crash.command(mount) == 0, bpkedit.status(mount)
        assert crash.leave(mount) == 0
    assert bpkedit.book(pack).tensor("fc.weight")[2] == [16]


def write_until_killed(mount, size, seed, acknowledged):
    """Random writes of whole patterns; ACKNOWLEDGED gets (offset, data) of each that returned."""
    dice = random.Random(seed)
    with crash.opened(mount.tensors / "long") as fd, contextlib.suppress(OSError):
        while True:
            data = dice.randbytes(dice.randint(1, 20000))
            offset = dice.randrange(size - len(data))
            acknowledged.append([offset, data, False])
            if os.pwrite(fd, data, offset) != len(data):
                return
            acknowledged[-1][2] = True


@pytest.mark.parametrize("seed", range(20 if crash.LONG else 6))
def test_kill_under_writes(folder, seed):
    """One writer; what it was told is written is there, and of its last write each byte is old or new."""
    pack = bpkedit.make_pack(folder, crash.TENSORS)
    expected = bytearray(bpkedit.book(pack).tensor("long")[3])
    acknowledged = []
    with crash.daemon(pack) as mount:
        writer = threading.Thread(target=write_until_killed, args=(mount, len(expected), seed, acknowledged))
        writer.start()
        wait_until(lambda: len(acknowledged) > 1, "a write acknowledged")
        threading.Event().wait(0.02 + 0.03 * seed)
        crash.kill(mount)
        writer.join(20)
    assert not writer.is_alive() and len(acknowledged) > 1
    last = expected[:]
    for offset, data, told in acknowledged:
        last[offset : offset + len(data)] = data
        if told:
            expected = last[:]
    with crash.daemon(pack) as mount:
        got = (mount.tensors / "long").read_bytes()
        assert len(got) == len(expected)
        assert all(byte in pair for byte, pair in zip(got, zip(expected, last)))
        assert crash.command(mount) == 0
        assert crash.leave(mount) == 0
    assert bpkedit.book(pack).tensor("long")[3] == got
