"""Completion in bash, zsh and fish: what is offered, and that what is inserted is quoted as the shell needs it.

On a pseudo-terminal the programs are functions of the shell that show their arguments.
"""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time

import pytest

import bpkedit as edit
from bpkref import build
from conftest import (
    BPK,
    BPKFS,
    ENVIRONMENT,
    PATIENCE,
    REPOSITORY,
    daemons_of,
    mounted,
    need_programs,
    need_tool,
    run,
    run_bpk,
    run_bpkfs,
    wait_until,
)

COMPLETIONS = REPOSITORY / "packaging/completions"

# File forms of the names: what completion is to offer.
NAMES = {
    "conv.weight": "conv.weight",
    "conv.bias": "conv.bias",
    "sp ace": "sp ace",
    "q'uo\"te": "q'uo\"te",
    "dollar$HOME": "dollar$HOME",
    "co:lon=x": "co:lon=x",
    "xr[a](c){k}*?": "xr[a](c){k}*?",
    "slash/dotted": "slash%2Fdotted",
    "tab\tnew\nline": "tab%09new%0Aline",
    "~tilde": "~tilde",
    "b\\ack`": "b\\ack`",
    "ümlaut": "ümlaut",
}


@pytest.fixture
def place(folder):
    """The working folder of the shells."""
    need_programs()
    dtypes = ("F32", {"Bool": "U32"}, {"Bool": "U8"})
    tensors = []
    for i, name in enumerate(NAMES):
        dtype = dtypes[i % 3]
        tensors.append((name, dtype, [] if i == 0 else [1], bytes(1 if dtype == {"Bool": "U8"} else 4), None))
    tensors.append(("wrong", "F32", [3], bytes(4), None))  # its length is a problem, which ls shows after the name
    (folder / "model.bpk").write_bytes(build(tensors))
    (folder / "my $m.bpk").write_bytes(build(tensors[:1]))
    (folder / "notes.txt").touch()
    (folder / "sub").mkdir()
    (folder / ".model.bpk.edits").mkdir()
    (folder / "home").mkdir()
    return folder


# --- bash, without a terminal ---


def bash(place, line, *words):
    """What bash is offered at the end of LINE, which it has cut into WORDS."""
    program = {"bpk": BPK, "bpkfs": BPKFS}[words[0]]
    script = f"""
        source {shlex.quote(str(COMPLETIONS / "bpk.bash"))}
        PATH={shlex.quote(str(program.parent))}:$PATH
        compopt() {{ :; }}
        COMP_LINE=$1; COMP_POINT=${{#1}}; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _{words[0]} "$1"
        [[ ${{#COMPREPLY[@]}} -eq 0 ]] || printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    result = run("bash", "-c", script, "bash", line, *words, cwd=place)
    assert (result.status, result.err) == (0, "")
    return result.out.decode().split("\n")[:-1]


def verbs():
    text = run(BPK, "--help").out.decode()
    return [line.split()[0] for line in text.splitlines() if line.startswith("    ") and line.strip()[0] != "-"]


def test_verbs(place):
    assert bash(place, "bpk ", "bpk", "") == [*verbs(), "--help", "--version"]
    assert bash(place, "bpk um", "bpk", "um") == ["umount"]


def test_options_of_verbs(place):
    assert bash(place, "bpk ls -", "bpk", "ls", "-") == ["-l", "--hash", "--json", "--help"]
    assert bash(place, "bpk commit --v", "bpk", "commit", "--v") == ["--valid"]
    assert bash(place, "bpk info -o ", "bpk", "info", "-o", "") == ["layout=aligned", "layout=legacy"]
    assert bash(place, "bpk info -o layout=", "bpk", "info", "-o", "layout", "=") == ["aligned", "legacy"]
    assert bash(place, "bpk info -o layout=l", "bpk", "info", "-o", "layout", "=", "l") == ["legacy"]


def test_packs(place):
    for verb in ("info", "ls", "cat", "verify", "recover"):
        offered = bash(place, f"bpk {verb} ", "bpk", verb, "")
        assert sorted(offered) == ["home", "model.bpk", "my $m.bpk", "sub"]
    assert bash(place, "bpk cat --npy mod", "bpk", "cat", "--npy", "mod") == ["model.bpk"]
    assert bash(place, "bpk cat my\\ ", "bpk", "cat", "my\\ ") == ["my $m.bpk"]
    assert bash(place, "bpk verify not", "bpk", "verify", "not") == []  # so that bash offers files


def test_tensors(place):
    offered = bash(place, "bpk cat model.bpk ", "bpk", "cat", "model.bpk", "")
    assert sorted(shlex.split(name)[0] for name in offered) == sorted([*NAMES.values(), "wrong"])
    assert bash(place, "bpk ls 'my $m.bpk' c", "bpk", "ls", "'my $m.bpk'", "c") == ["conv.weight"]
    assert bash(place, "bpk ls my\\ \\$m.bpk ", "bpk", "ls", "my\\ \\$m.bpk", "") == ["conv.weight"]
    words = ["bpk", "cat", "--npy", "-o", "layout", "=", "aligned", "model.bpk", "wrong", "conv.b"]
    assert bash(place, "bpk cat --npy -o layout=aligned model.bpk wrong conv.b", *words) == ["conv.bias"]
    assert bash(place, "bpk cat model.bpk co:l", "bpk", "cat", "model.bpk", "co", ":", "l") == ["lon=x"]
    assert bash(place, "bpk cat model.bpk 'sp a", "bpk", "cat", "model.bpk", "'sp a") == ["sp ace"]
    assert bash(place, "bpk cat none.bpk ", "bpk", "cat", "none.bpk", "") == []


def test_value_of_an_option_is_a_file(place):
    assert bash(place, "bpk commit --to ", "bpk", "commit", "--to", "") == []


def test_mount_points(place):
    edit.make_pack(place, name="m.bpk")
    with mounted(place / "m.bpk") as mount:
        for verb in ("status", "commit", "discard", "umount"):
            offered = bash(place, f"bpk {verb} {mount.home}/", "bpk", verb, f"{mount.home}/")
            assert offered == [str(mount.path)]
        assert "mnt" in bash(mount.home, "bpk umount m", "bpk", "umount", "m")
        words = ["bpk", "commit", "--to", "x", f"{mount.home}/"]
        assert bash(place, " ".join(words), *words) == [str(mount.path)]


def test_bpkfs_in_bash(place):
    assert bash(place, "bpkfs mod", "bpkfs", "mod") == ["model.bpk"]
    assert bash(place, "bpkfs -o ro model.bpk s", "bpkfs", "-o", "ro", "model.bpk", "s") == ["sub"]
    assert bash(place, "bpkfs -o ro,e", "bpkfs", "-o", "ro,e") == ["ro,edits=discard"]
    assert bash(place, "bpkfs --v", "bpkfs", "--v") == ["--version"]
    offered = bash(place, "bpkfs -o ", "bpkfs", "-o", "")
    assert {"ro", "grace=", "uid=", "gid=", "layout=legacy", "nosandbox"} <= set(offered)
    assert len(offered) == len(set(offered))


def test_bash_script_is_clean():
    need_tool("shellcheck")
    assert run("shellcheck", "-s", "bash", COMPLETIONS / "bpk.bash").out == b""


# --- fish, without a terminal ---


def fish(place, line, folder=None):
    """What fish offers in FOLDER at the end of LINE, without descriptions."""
    need_tool("fish")
    script = "".join(f"source {shlex.quote(str(COMPLETIONS / name))}\n" for name in ("bpk.fish", "bpkfs.fish"))
    script += f"set -gx PATH {BPK.parent} {BPKFS.parent} $PATH\ncomplete -C $argv[1]\n"
    home = place / "home"
    environment = {**ENVIRONMENT, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home)}
    result = run("fish", "-N", "-c", script, line, cwd=folder or place, env=environment)
    assert result.err == ""
    return [offer.partition("\t")[0] for offer in result.out.decode().splitlines()]


def test_fish(place):
    assert set(fish(place, "bpk ")) == {*verbs(), "--help", "--version"}
    assert set(fish(place, "bpk ls -")) == {"-l", "--hash", "--json", "--help"}
    assert fish(place, "bpk info -o layout=l") == ["layout=legacy"]
    assert fish(place, "bpk verify mod") == ["model.bpk"]
    assert sorted(fish(place, "bpk cat model.bpk ")) == sorted([*NAMES.values(), "wrong"])
    assert fish(place, "bpk ls 'my $m.bpk' c") == ["conv.weight"]
    assert fish(place, "bpk cat -o layout=aligned --npy model.bpk wrong conv.b") == ["conv.bias"]
    assert fish(place, "bpk commit --to not") == ["notes.txt"]
    assert fish(place, "bpkfs mod") == ["model.bpk"]
    assert fish(place, "bpkfs -o ro,e") == ["ro,edits=discard"]
    assert fish(place, "bpkfs -o ro model.bpk s") == ["sub/"]
    edit.make_pack(place, name="m.bpk")
    with mounted(place / "m.bpk") as mount:
        assert fish(place, f"bpk umount {mount.home}/") == [str(mount.path)]
        assert "mnt" in fish(place, "bpk umount m", mount.home)


# --- on a terminal ---

SETUP = {
    "bash": """
        source {completions}/bpk.bash
        bind 'set enable-bracketed-paste off' 'set bell-style none' \\
            'set show-all-if-ambiguous on' 'set completion-query-items 0'
    """,
    "zsh": """
        fpath=({completions} $fpath)
        autoload -U compinit
        compinit -D -u
        unsetopt beep
        setopt nopromptcr nopromptsp
    """,
}
SHOW = "{name}() {{ printf '\\n<%s>\\n' \"$@\"; }}"
COMMAND = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}


class Terminal:
    """An interactive shell."""

    def __init__(self, shell, place):
        need_tool(shell)
        self.leader, follower = pty.openpty()
        path = f"{BPK.parent}:{BPKFS.parent}:{os.environ['PATH']}"
        environment = {**ENVIRONMENT, "PATH": path, "HOME": str(place / "home"), "TERM": "dumb", "PS1": "% "}
        self.process = subprocess.Popen(
            COMMAND[shell], cwd=place, env=environment, stdin=follower, stdout=follower, stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        setup = SETUP[shell].format(completions=shlex.quote(str(COMPLETIONS)))
        setup += "".join(SHOW.format(name=name) + "\n" for name in ("bpk", "bpkfs"))
        (place / "home/setup").write_text(setup)
        self.type(f"source {place}/home/setup; echo re''ady\r")
        self.read_until("ready")

    def type(self, text):
        os.write(self.leader, text.encode())

    def read_until(self, text):
        seen, deadline = "", time.monotonic() + PATIENCE
        while text not in seen:
            assert select.select([self.leader], [], [], max(0, deadline - time.monotonic()))[0], repr(seen)
            seen += os.read(self.leader, 65536).decode(errors="replace").replace("\r", "")
        return seen

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.leader)


@pytest.fixture(params=["bash", "zsh"])
def terminal(request, place):
    made = Terminal(request.param, place)
    yield made
    made.close()


# What is typed before the tabulator, and the last argument that the program gets.
TYPED = [
    ("bpk ver", "verify"),
    ("bpk info mod", "model.bpk"),
    ("bpk info my", "my $m.bpk"),
    ("bpk cat my\\ \\$m.bpk conv", "conv.weight"),
    ("bpk cat model.bpk sp", "sp ace"),
    ("bpk cat model.bpk 'sp a", "sp ace"),
    ("bpk cat model.bpk q", "q'uo\"te"),
    ("bpk cat model.bpk 'q", "q'uo\"te"),
    ('bpk cat model.bpk "q', "q'uo\"te"),
    ("bpk cat model.bpk dol", "dollar$HOME"),
    ('bpk cat model.bpk "dol', "dollar$HOME"),
    ("bpk cat model.bpk 'dol", "dollar$HOME"),
    ("bpk cat model.bpk co:", "co:lon=x"),
    ("bpk cat model.bpk co\\:l", "co:lon=x"),
    ("bpk cat model.bpk xr", "xr[a](c){k}*?"),
    ("bpk cat model.bpk slash", "slash%2Fdotted"),
    ("bpk cat model.bpk b\\\\", "b\\ack`"),
    ('bpk cat model.bpk "b', "b\\ack`"),
    ("bpk cat model.bpk \\~", "~tilde"),
]


def check_typed(terminal, typed, argument):
    terminal.type(f"{typed}\t; echo do''ne\r")
    seen = terminal.read_until("done")
    # zsh takes the slash after a folder back
    assert re.search(rf"<{re.escape(argument)}/?>\n", seen), (typed, seen)


def test_what_is_inserted_is_quoted(terminal):
    for typed, argument in TYPED:
        check_typed(terminal, typed, argument)


def test_options_on_a_terminal(terminal):
    for typed, argument in [
        ("bpk commit --v", "--valid"),
        ("bpk commit --to not", "notes.txt"),
        ("bpk info -o layout=l", "layout=legacy"),
        ("bpk info no", "notes.txt"),
        ("bpkfs --v", "--version"),
        ("bpkfs mod", "model.bpk"),
        ("bpkfs -o ro,e", "ro,edits=discard"),
        ("bpkfs -o ro model.bpk s", "sub"),
    ]:
        check_typed(terminal, typed, argument)


def test_mount_point_with_a_space(terminal, place):
    edit.make_pack(place, name="m.bpk")
    (place / "a b").mkdir()
    assert run_bpkfs("-o", "ro", place / "m.bpk", place / "a b").status == 0
    check_typed(terminal, f"bpk umount {place}/a", f"{place}/a b")
    if shutil.which("fish"):
        assert fish(place, f"bpk umount {place}/a") == [f"{place}/a b"]
    assert run_bpk("umount", f"{place}/a b/").status == 0
    wait_until(lambda: not daemons_of(place), "the daemon's end")
