"""The documentation says what is so: README's commands run, man pages and --help name the same options, and the scripts
of packaging/ do what they promise."""

import contextlib
import os
import pathlib
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import threading

import pytest

import bpkref
from conftest import (
    BPK,
    BPKFS,
    BUILD,
    ENVIRONMENT,
    PATIENCE,
    REPOSITORY,
    daemons_of,
    missing,
    need_fuse,
    need_programs,
    need_tool,
    run,
    unescape,
    wait_until,
)

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PACKAGING = REPOSITORY / "packaging"
PAGES = sorted((PACKAGING / "man").iterdir())

# Daemons of these tests are in the background: a sanitizer's log_path from outside stays in force.
WATCHED = {
    name: ":".join(filter(None, (os.environ.get(name), ENVIRONMENT[name])))
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS")
}


def make_demo(path, epoch=1):
    result = run(sys.executable, PACKAGING / "make-demo.py", path, str(epoch))
    assert (result.status, result.out, result.err) == (0, b"", "")


def mounts_under(folder):
    table = pathlib.Path("/proc/self/mountinfo").read_bytes().splitlines()
    points = [os.fsdecode(unescape(line.split(b" ")[4])) for line in table]
    return [point for point in points if point.startswith(f"{folder}/")]


@pytest.fixture
def workshop(folder):
    """A folder with the packs that README names, and no mounts left in it at the end; PATH has the programs."""
    need_fuse()
    make_demo(folder / "model.bpk")
    for epoch in (1, 2):
        make_demo(folder / f"epoch-{epoch}.bpk", epoch)
    tensors = [("w", "F32", [3], struct.pack("<3f", 1, 2, 3), None), ("b", "U8", [1], b"\7", None)]
    (folder / "old.bpk").write_bytes(bpkref.build(tensors, {"version": "0.19.0"}, layout="legacy"))
    (folder / "packaging").symlink_to(PACKAGING)
    programs = folder / "bin"
    programs.mkdir()
    for program in (BPK, BPKFS):
        (programs / program.name).symlink_to(program)
    (programs / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (programs / "python3").chmod(0o755)
    yield folder
    left = mounts_under(folder)
    for point in left:
        subprocess.run(["fusermount3", "-u", "-z", point], check=False)
    wait_until(lambda: not daemons_of(folder), "the daemons' end")
    assert not left


def shell(folder, script, **variables):
    """Runs SCRIPT in FOLDER as a user types it, but for the first failing command, which ends it."""
    # Both tell by status 1 that there is a difference.
    prelude = 'diff() { command diff "$@" || [ $? -eq 1 ]; }\n'
    prelude += 'bpk() { command bpk "$@" || [ "$1 $?" = "diff 1" ]; }\n'
    path = f"{folder}/bin:{os.environ['PATH']}"
    environment = {**ENVIRONMENT, **WATCHED, "PATH": path, **variables}
    result = run("sh", "-eu", "-c", prelude + script, cwd=folder, env=environment)
    assert result.status == 0, f"{script}\n{result.out.decode()}\n{result.err}"
    assert result.err == ""
    return result.out.decode()


# --- README ---


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


# What changes the machine or would run this suite again; the tests below run what they can of it.
NOT_HERE = re.compile(r"^(sh packaging/|sh tests/run\.sh|sudo |systemctl )", re.M)
COMMANDS = [block for block in blocks("sh") if not NOT_HERE.search(block)]
TOOLS = ("awk", "column", "jq", "tar")

# Of some blocks a line of the output is known; the first column is a part of the block.
KNOWN_OUTPUT = [
    ("bpk info", "layout     aligned"),
    ("cat mnt/scalars.json", '  "epoch": {"UInt": 1},'),
    ("bpk stats", "! F32  "),
    ("bpk stats", "conv2.conv.bias has 2 NaN"),
    ('mode="r"', "(400, 64) "),
    ("bpk diff", '! scalars.json  "epoch": {"UInt": 1} -> {"UInt": 2}'),
    ("diff -rq", "Files one/tensors/fc1.weight and two/tensors/fc1.weight differ"),
    ("grep -r . mnt/metadata", "mnt/metadata/model:mnist-mini"),
    ("jq -r 'select", "fc1.weight\t102400"),
    ("sed -i", "edited       tensors/conv1.conv.weight: changed"),
    ("sed -i", "F32       8x9 "),
    ("cat --npy", "(400, 64)"),
    ("bpk recover", "no edits"),
    ("awk ", '"F32" 117672'),
    ("bpk verify model", "good: 18 tensors"),
    ("old.bpk", "note: the data follows the metadata without alignment"),
    ("old.bpk", '  "layout": "legacy",'),
]


def test_readme_blocks_are_found():
    assert len(COMMANDS) > 8
    assert all(any(part in block for block in COMMANDS) for part, _ in KNOWN_OUTPUT)


@pytest.mark.parametrize("block", COMMANDS, ids=[re.sub(r"\W+", "-", block[:30]) for block in COMMANDS])
def test_readme_commands(workshop, block):
    for tool in TOOLS:
        if re.search(rf"^{tool}\b", block, re.M):
            need_tool(tool)
    if "mkdir mnt" not in block:
        (workshop / "mnt").mkdir()
    script = block
    if "a.bpk b.bpk" in block:
        for name in ("a.bpk", "b.bpk"):
            (workshop / name).write_bytes(whole)
    if "bpk put" in block:
        shell(workshop, "bpk cat --npy model.bpk fc3.bias > bias.npy\n")
    if "bpk stats" in block:
        spoil(workshop / "model.bpk", "conv2.conv.bias", struct.pack("<3f", *map(float, ("nan", "nan", "inf"))))
    if "mnt" in block and "bpkfs " not in block:
        script = f"bpkfs model.bpk mnt\n{block}\nbpk umount mnt\n"
    lines = shell(workshop, script).splitlines()
    for part, line in KNOWN_OUTPUT:
        if part in block:
            assert any(said.startswith(line) for said in lines), lines
    if "bpk stats" in block:
        assert len([said for said in lines if said.startswith("!")]) == 1


def test_readme_from_top_to_bottom(workshop):
    """One block after the other works as well, on one pack and in one mount."""
    for tool in TOOLS:
        need_tool(tool)
    script = ""
    for block in COMMANDS:
        if "bpk recover" in block:
            script += "bpk umount mnt\n"
        script += block
        if "mkdir mnt" in block:  # "From here on, the pack is mounted"
            script += "bpkfs model.bpk mnt\n"
    assert "(400, 64)" in shell(workshop, script)
    pack = bpkref.read(workshop / "model.bpk")
    assert {"mask", "extra", "head.bias"} < set(pack.tensors) and "fc2.bias" not in pack.tensors
    assert pack.metadata["note"] == "fine-tuned on digits"


def spoil(path, name, raw):
    position = bpkref.read(path).tensors[name].position
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(raw)


def steps(screen):
    """The commands of a screen, each with its output."""
    return [(step.partition("\n")[0], step.partition("\n")[2]) for step in re.split(r"^\$ ", screen, flags=re.M)[1:]]


@pytest.mark.parametrize("screen", blocks("console"))
def test_readme_screens(workshop, screen):
    (workshop / "mnt").mkdir()
    mark = "next\n"
    script = "".join(f"{command}\necho {mark}" for command, _ in steps(screen))
    out = shell(workshop, f"bpkfs model.bpk mnt\n{script}bpk umount mnt\n")
    for (command, expected), got in zip(steps(screen), out.split(mark)):
        assert got.split() == expected.split(), command


def test_readme_links():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (REPOSITORY / target).exists(), target


def test_readme_options_exist():
    rows = "\n".join(re.findall(r"^\| (`-.*?) \|", README, re.M))
    assert dash_o(rows) | set(re.findall(r"-o (\w+)", README)) <= help_of_bpkfs()
    assert set(re.findall(r"`(-\w)`", rows)) <= help_of_bpkfs()


# --- man pages ---


def man_commands(page):
    """The examples of a page that are commands."""
    text = page.read_text(encoding="utf-8").replace(r"\e", "\\")
    found = re.findall(r"^\.Bd -literal.*\n((?:\$ .*\n)+)\.Ed$", text, re.M)
    return [re.sub(r"^\$ ", "", block, flags=re.M) for block in found]


# The compiler's is of test_library.py, which has what it compiles.
MAN_COMMANDS = [
    block for page in PAGES for block in man_commands(page) if not re.search("systemctl|^cc ", block, re.M)
]

# As KNOWN_OUTPUT.
MAN_OUTPUT = [
    ("ls --json", "fc1.weight"),
    ("bpk diff", "! tensors/fc1.bias  bytes"),
    ("bpk diff", "same"),
    ("stats", "conv2.conv.bias"),
    ("od -A d", "0000032  "),
    ('load("bias.npy', "0."),
    ('load("fc3.npy', "["),
    ("for f in", "odd.bpk"),
    ("ls mnt/tensors", "fc3.bias.json"),
    ("ls model/tensors", "fc3.bias.json"),
    ("-o salvage", """    {"file": "broken.bpk", "reason": "tensor 'fc3.bias' is left out: """),
]


def test_man_commands_are_found():
    assert len(MAN_COMMANDS) > 10
    assert all(any(part in block for block in MAN_COMMANDS) for part, _ in MAN_OUTPUT)


@pytest.mark.parametrize("block", MAN_COMMANDS, ids=[re.sub(r"\W+", "-", block[:30]) for block in MAN_COMMANDS])
def test_man_commands(workshop, block):
    if "jq " in block:
        need_tool("jq")
    whole = (workshop / "model.bpk").read_bytes()
    if "broken" in block:
        (workshop / "broken.bpk").write_bytes(whole[:-100])
    elif "*.bpk" in block:
        (workshop / "odd.bpk").write_bytes(whole + b"more")
    if "a.bpk b.bpk" in block:
        for name in ("a.bpk", "b.bpk"):
            (workshop / name).write_bytes(whole)
    if "bpk put" in block:
        shell(workshop, "bpk cat --npy model.bpk fc3.bias > bias.npy\n")
    if "bpk stats" in block:
        spoil(workshop / "model.bpk", "conv2.conv.bias", struct.pack("<f", float("nan")))
    if "mkdir mnt" not in block:
        (workshop / "mnt").mkdir()
    still_mounted = "bpkfs " in block and "umount" not in block
    lines = shell(workshop, f"{block}{'bpk umount mnt' if still_mounted else ''}\n").splitlines()
    for part, line in MAN_OUTPUT:
        if part in block:
            assert any(said.startswith(line) for said in lines), lines
    if "metadata/note" in block:
        assert bpkref.read(workshop / "model.bpk").metadata["note"] == "fine-tuned"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_man_page_is_clean(page):
    need_tool("mandoc")
    found = run("mandoc", "-T", "lint", page).out.decode()
    # Pages that are not installed here, and the age of the machine's own index.
    assert [line for line in found.splitlines() if not re.search("referenced manual not found|outdated", line)] == []


def dash_o(text):
    """The names in "-o a=X,b"."""
    lists = re.findall(r"-o ([\w=,]+)", text)
    return {item.partition("=")[0] for names in lists for item in names.split(",")}


def dashed(text):
    return set(re.findall(r"(?<![\w-])(--?[A-Za-z][\w-]*)", text)) - {"-o"}


def items(page):
    """The heads of a page's lists of options."""
    return re.findall(r"^\.It (.*)$", (PACKAGING / "man" / page).read_text(encoding="utf-8"), re.M)


def flags(text):
    return {f"-{flag}" for flag in re.findall(r"\bFl (\S+)", text)} - {"-o"}


def help_of_bpkfs():
    need_programs()
    text = run(BPKFS, "--help").out.decode()
    listed = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    return dash_o(listed) | dashed(listed)


def test_options_of_bpkfs():
    heads = "\n".join(head for head in items("bpkfs.1") if head.startswith("Fl"))
    documented = flags(heads) | set(re.findall(r"(?<!= Ns )\bCm (\w+)", heads))
    assert documented == help_of_bpkfs()


def test_verbs_and_options_of_bpk():
    need_programs()
    text = run(BPK, "--help").out.decode()
    listed = [line for line in text.splitlines() if line.startswith("    ")]
    verbs = {line.split()[0]: dashed(line.split("  ")[0] + line) for line in listed if line.strip()[0] != "-"}
    documented = {head.split()[1]: head for head in items("bpk.1") if head.startswith("Cm")}
    assert set(documented) == set(verbs)
    for verb, options in verbs.items():
        assert flags(documented[verb]) == options, verb
        usage, *rest = run(BPK, verb, "--help").out.decode().splitlines()
        assert dashed(usage) == options, verb
        assert {line.split()[0] for line in rest if line.startswith("    ")} == options, verb
    own = dashed("\n".join(line for line in listed if line.strip()[0] == "-"))
    heads = "\n".join(head for head in items("bpk.1") if head.startswith("Fl"))
    described = flags(heads).union(*(flags(head) for head in documented.values()))
    assert described == own | {option for options in verbs.values() for option in options}


def test_version():
    need_programs()
    version = re.search(r"version: '([\d.]+)'", (REPOSITORY / "meson.build").read_text(encoding="utf-8"))[1]
    assert run(BPK, "--version").out.decode() == f"bpk {version}\n"
    assert run(BPKFS, "--version").out.decode().startswith(f"bpkfs {version} ")


# --- packaging/ ---


def test_demo_is_what_burn_would_write(folder):
    make_demo(folder / "model.bpk")
    pack = bpkref.read(folder / "model.bpk")
    assert pack.problems == [] and pack.layout == "aligned"
    in_order = sorted(pack.tensors.values(), key=lambda tensor: tensor.position)
    tensors = [(t.name, t.dtype, t.shape, t.bytes(), t.param_id) for t in in_order]
    assert bpkref.build(tensors, pack.metadata, pack.scalars) == (folder / "model.bpk").read_bytes()


def test_demo_is_the_same_each_time(folder):
    for name, epoch in (("a", 1), ("b", 1), ("c", 2)):
        make_demo(folder / name, epoch)
    a, b, c = ((folder / name).read_bytes() for name in "abc")
    assert a == b != c
    first, second = bpkref.read(folder / "a").tensors, bpkref.read(folder / "c").tensors
    changed = {name for name in first if first[name].bytes() != second[name].bytes()}
    assert changed == {f"fc{i}.{part}" for i in (1, 2, 3) for part in ("bias", "weight")}


def try_it(folder, *arguments, **options):
    """try.sh on this build, its own folders under FOLDER, which is also the working directory."""
    environment = {**ENVIRONMENT, **WATCHED, "BPK_BUILD": str(BUILD), "XDG_RUNTIME_DIR": str(folder)}
    return run("sh", PACKAGING / "try.sh", *arguments, cwd=folder, env=environment, **options)


def own_folders(folder):
    return list(folder.glob("bpkfs-try.*"))


def test_try_with_its_own_model(workshop):
    need_tool("meson")
    result = try_it(workshop)
    out = result.out.decode()
    assert result.status == 0, out + result.err
    for line in ("$ ls -l", "$ cat metadata.json", '  "epoch": {"UInt": 1},', '  "name": "conv1.conv.weight",'):
        assert f"\n{line}\n" in out
    assert out.endswith("\nUnmounted.\n")
    assert own_folders(workshop) == [] and mounts_under(workshop) == [] and daemons_of(workshop) == []


@pytest.mark.parametrize("name", ["model.bpk", "a b's model.bpk", "-x.bpk"])
def test_try_with_a_pack(workshop, name):
    need_tool("meson")
    if name != "model.bpk":
        (workshop / "model.bpk").rename(workshop / name)
    result = try_it(workshop, name)
    assert result.status == 0, result.out.decode() + result.err
    command = re.search(r"^\$ bpkfs (.*)$", result.out.decode(), re.M)[1]
    assert shlex.split(command)[0] == str(workshop / name)
    assert own_folders(workshop) == []


def test_try_with_odd_tensors(workshop):
    need_tool("meson")
    tensors = [("it's $(a) \"tensor\"\n.json", "U8", [2], b"ab", None), ("empty", "F32", [0], b"", None)]
    (workshop / "odd.bpk").write_bytes(bpkref.build(tensors, {"long": "x" * 5000}))
    (workshop / "none.bpk").write_bytes(bpkref.build())
    for name in ("odd.bpk", "none.bpk", "old.bpk"):
        result = try_it(workshop, name)
        assert result.status == 0, result.out.decode() + result.err
        assert ("61 62 " in result.out.decode()) == (name == "odd.bpk")


@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (["missing.bpk"], 1, r"^try\.sh: missing\.bpk: there is no such file$"),
        (["."], 1, r"^try\.sh: \.: not a file$"),
        (["broken.bpk"], 1, r"^bpkfs: .*broken\.bpk: .*\ntry\.sh: the mount failed"),
        (["a", "b"], 2, r"^usage: sh packaging/try\.sh"),
    ],
)
def test_try_fails_clearly(workshop, arguments, status, said):
    need_tool("meson")
    (workshop / "broken.bpk").write_bytes(b"no pack at all")
    result = try_it(workshop, *arguments)
    assert result.status == status and re.search(said, result.err), result.err
    assert own_folders(workshop) == []


def test_try_with_a_terminal_leaves_it_mounted(workshop):
    need_tool("meson")
    try:
        leader, follower = pty.openpty()
    except OSError as error:
        missing(f"no pseudo-terminals: {error}")
    shown = bytearray()

    def drain():
        with contextlib.suppress(OSError):  # EIO at the end
            while data := os.read(leader, 65536):
                shown.extend(data)

    reader = threading.Thread(target=drain)
    reader.start()
    result = try_it(workshop, "model.bpk", stdout=follower)
    os.close(follower)
    reader.join(PATIENCE)
    os.close(leader)
    text = shown.decode().replace("\r\n", "\n")
    assert result.status == 0, text + result.err
    (home,) = own_folders(workshop)
    assert mounts_under(workshop) == [f"{home}/mnt"]
    assert (home / "mnt/tensors/fc3.bias").stat().st_size == 40
    shell(workshop, re.search(r"^    (\S+ umount .*)$", text, re.M)[1])
    assert own_folders(workshop) == []


def test_install_deps_elsewhere(folder):
    """Without apt-get it says what to install."""
    (folder / "cat").symlink_to(shutil.which("cat"))
    result = run("/bin/sh", PACKAGING / "install-deps.sh", "--tests", env={"PATH": str(folder)})
    assert result.status == 1 and result.out == b""
    for package in ("fuse3-devel", "python3-cbor2", "pacman -S meson", "python-pytest"):
        assert package in result.err
    result = run("/bin/sh", PACKAGING / "install-deps.sh", "--bench", env={"PATH": str(folder)})
    assert result.status == 1 and "squashfuse" in result.err and "python3-cbor2" not in result.err
    assert run("/bin/sh", PACKAGING / "install-deps.sh", "--tset").status == 2


SCRIPTS = [
    "packaging/install-deps.sh",
    "packaging/try.sh",
    "packaging/deb.sh",
    "packaging/debian/tests/library",
    "packaging/debian/tests/mount",
    "packaging/debian/tests/smoke",
    "tests/matrix.sh",
    "tests/run.sh",
    "tests/bench/run.sh",
    ".ci/run",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_parse(script):
    path = REPOSITORY / script
    assert run("bash" if script == ".ci/run" else "sh", "-n", path).status == 0
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    assert run("shellcheck", "-x", path, cwd=REPOSITORY).out == b""
