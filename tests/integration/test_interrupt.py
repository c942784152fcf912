"""Ctrl-C, SIGTERM and SIGHUP while bpk writes: what was begun is taken away, and the program ends by the signal."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import bpkcrash as crash
import bpkedit as edit
from conftest import BPK, ENVIRONMENT, leftovers, need_programs, need_tool, run_bpk, wait_until

np = pytest.importorskip("numpy")

CALLS = ["pwrite64", "ioctl", "mkdirat", "mkdir", "fsync", "fdatasync", "renameat2"]
MOST = 60  # such calls that a verb makes here


def make_sources(folder):
    """A pack, and what others are made of."""
    folder.mkdir()
    (folder / "empty").mkdir()
    pack = edit.make_pack(folder)
    (folder / "data").write_bytes(bytes(range(256)) * 8192)
    (folder / "arrays").mkdir()
    np.save(folder / "arrays/a.npy", np.asfortranarray(np.arange(60000, dtype="<f4").reshape(200, 300)))
    assert run_bpk("unpack", pack, folder / "files").status == 0
    assert run_bpk("export", "--safetensors", pack, folder / "model.safetensors").status == 0
    (folder / "cut.bpk").write_bytes(pack.read_bytes()[:-1])
    return pack


def interrupted(call, at, number="SIGINT"):
    """The words before a command that has it come upon a signal at its AT-th such call."""
    inject = f"inject={call}:signal={number}:when={at}"
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]


# What is changed in place, and what is made anew.
VERBS = {
    "set": (["set", "model.bpk", "k=other"], "model.bpk"),
    "unset": (["unset", "model.bpk", "k"], "model.bpk"),
    "put": (["put", "--dtype", "U8", "--shape", "2097152", "model.bpk", "new", "data"], "model.bpk"),
    "mv": (["mv", "model.bpk", edit.TENSORS[0][0], "elsewhere"], "model.bpk"),
    "rm": (["rm", "model.bpk", edit.TENSORS[0][0]], "model.bpk"),
    "unpack": (["unpack", "model.bpk", "out"], "out"),
    "unpack into a folder": (["unpack", "model.bpk", "empty"], "empty"),
    "pack": (["pack", "files", "out"], "out"),
    "pack --force": (["pack", "--force", "files", "cut.bpk"], "cut.bpk"),
    "import --npy": (["import", "--npy", "arrays", "out"], "out"),
    "import --safetensors": (["import", "--safetensors", "model.safetensors", "out"], "out"),
    "export": (["export", "--safetensors", "model.bpk", "out"], "out"),
    "export --force": (["export", "--safetensors", "--force", "model.bpk", "data"], "data"),
    "salvage": (["salvage", "cut.bpk", "out"], "out"),
}


def content(path):
    """Of a file or a folder, or None."""
    if path.is_dir():
        return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return path.read_bytes() if path.exists() else None


def whole(folder):
    return {name: content(folder / name) for name in sorted(os.listdir(folder))}


@pytest.mark.parametrize("verb", VERBS)
def test_at_every_call(verb, folder):
    need_programs()
    need_tool("strace")
    make_sources(folder / "sources")
    before = whole(folder / "sources")
    arguments, target = VERBS[verb]
    expected = int(verb == "salvage")  # something is lost
    ended = set()
    for call in CALLS:
        here = folder / call
        shutil.copytree(folder / "sources", here)
        for at in range(1, MOST):
            process = subprocess.run(
                [*interrupted(call, at), BPK, *arguments],
                cwd=here,
                env=crash.no_leaks(),
                capture_output=True,
                timeout=60,
                check=False,
            )
            ended.add(process.returncode)
            after = whole(here)
            if process.returncode == expected:  # it came too late, or never
                assert {name for name in before | after if before.get(name) != after.get(name)} == {target}
                break
            assert (process.returncode, process.stderr) == (-signal.SIGINT, b""), (call, at)
            assert after == before, (call, at)
    assert ended == {expected, -signal.SIGINT}


def ends_by(number, process):
    process.send_signal(number)
    assert process.wait(timeout=60) == -number
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_while_it_waits_for_input(number, folder):
    need_programs()
    pack = edit.make_pack(folder)
    before = whole(folder)
    process = subprocess.Popen(
        [BPK, "put", "--dtype", "U8", "--shape", "5000000", pack, "new", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    process.stdin.write(bytes(2 << 20))
    process.stdin.flush()
    wait_until(lambda: whole(folder) != before, "an edits folder")
    ends_by(number, process)
    process.stdin.close()
    assert whole(folder) == before


def test_while_nobody_reads(folder):
    """What goes to standard output leaves nothing: there the signal ends it at once."""
    need_programs()
    pack = edit.make_pack(folder, [("big", "U8", [4 << 20], bytes(4 << 20), None)])
    command = [BPK, "export", "--safetensors", pack, "-"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    process.stdout.read(1 << 16)
    ends_by(signal.SIGTERM, process)
    process.stdout.close()


def test_while_nobody_writes(folder):
    need_programs()
    pack = edit.make_pack(folder)
    os.mkfifo(folder / "fifo")
    before = content(pack)
    command = [BPK, "put", "--dtype", "U8", "--shape", "3", pack, "new", folder / "fifo"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=ENVIRONMENT)
    wchan = pathlib.Path(f"/proc/{process.pid}/wchan")
    wait_until(lambda: wchan.read_text(encoding="utf-8") == "wait_for_partner", "bpk waiting for a writer")
    ends_by(signal.SIGINT, process)
    assert content(pack) == before and leftovers(pack) == []


def test_an_ignored_signal_stays_ignored(folder):
    """As nohup asks for."""
    need_programs()
    pack = edit.make_pack(folder)
    process = subprocess.Popen(
        [BPK, "put", "--dtype", "U8", "--shape", "3", pack, "new", "-"],
        stdin=subprocess.PIPE,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    comm = pathlib.Path(f"/proc/{process.pid}/comm")
    wait_until(lambda: comm.read_text(encoding="utf-8") == "bpk\n", "bpk")
    process.send_signal(signal.SIGHUP)
    process.communicate(b"abc", timeout=60)
    assert process.returncode == 0


def test_recover_keeps_the_edits(folder):
    need_programs()
    need_tool("strace")
    pack = edit.make_pack(folder)
    with crash.daemon(pack) as mount:
        (mount.path / "metadata/k").write_text("edited\n")
        crash.kill(mount)
    before = whole(folder)
    command = [*interrupted("pwrite64", 1, "SIGTERM"), BPK, "recover", "--commit", pack]
    process = subprocess.run(command, env=crash.no_leaks(), capture_output=True, timeout=60, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (-signal.SIGTERM, b"", b"")
    after = whole(folder)
    assert after[pack.name] == before[pack.name] and set(after) == set(before)
    assert run_bpk("recover", "--commit", pack).status == 0
    assert run_bpk("info", "--json", pack).out.find(b"edited") > 0
