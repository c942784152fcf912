"""What is installed beside the programs works, and lands where it belongs."""

import os
import re
import shlex
import shutil

import pytest

import bpkedit as edit
from conftest import (
    BPK,
    BPKFS,
    BUILD,
    ENVIRONMENT,
    REPOSITORY,
    daemons_of,
    need_fuse,
    need_programs,
    need_tool,
    run,
    table_entry,
    wait_until,
)

PACKAGING = REPOSITORY / "packaging"

# --- the systemd unit ---


def unit_text():
    """The unit, with the programs of this build."""
    text = (PACKAGING / "systemd/bpkfs@.service.in").read_text(encoding="utf-8")
    return re.sub("@bindir@/(bpkfs|bpk)", lambda m: str({"bpkfs": BPKFS, "bpk": BPK}[m[1]]), text)


def test_unit_is_good(folder):
    need_programs()
    need_tool("systemd-analyze")
    (folder / "bpkfs@.service").write_text(unit_text())
    environment = {**ENVIRONMENT, "XDG_RUNTIME_DIR": str(folder), "HOME": str(folder)}
    result = run("systemd-analyze", "verify", "--man=no", "--user", folder / "bpkfs@.service", env=environment)
    assert (result.status, result.err) == (0, "")


def unit_run(setting, pack, home):
    """What the unit has as SETTING, done as systemd does it for this pack."""
    (line,) = re.findall(rf"^{setting}=(.*)$", unit_text(), re.M)
    line, as_is = line.removeprefix(":"), line.startswith(":")
    command = [word.replace("%f", str(pack)).replace("%h", str(home)) for word in shlex.split(line)]
    assert as_is or "%f" not in line  # else $ in a path would be a variable
    (place,) = re.findall(r"^WorkingDirectory=-%h/(.*)$", unit_text(), re.M)
    place = home / place
    return run(*command, cwd=place if place.exists() else "/")


@pytest.fixture(params=["model.bpk", "my $HOME m.bpk", "-x.bpk"])
def unit_pack(request, folder):
    need_fuse()
    (folder / "packs").mkdir()
    return edit.make_pack(folder / "packs", name=request.param)


@pytest.mark.parametrize("valid", [True, False])
def test_unit_mounts_and_commits(unit_pack, folder, valid):
    pack, home = unit_pack, folder / "home"
    want = edit.book(pack)
    for setting in ("ExecStartPre", "ExecStart"):
        assert unit_run(setting, pack, home).status == 0
    mnt = home / "bpkfs" / pack.stem
    assert table_entry(mnt).type == "fuse.bpkfs"
    (mnt / "metadata/k").write_text("by-unit\n")
    if valid:
        assert (unit_run("ExecStop", pack, home).status, os.listdir(mnt.parent)) == (0, [])
        want.metadata["k"] = "by-unit"
        edit.check_pack(pack, want)
    else:
        (mnt / "tensors/pending").write_text("x")
        (mnt / "tensors/pending.json").write_text('{"dtype": "F32", "shape": [1]}')
        result = unit_run("ExecStop", pack, home)
        assert result.status == 1 and "pending" in result.err
        assert table_entry(mnt)  # for the signal that follows
        assert run("fusermount3", "-u", mnt).status == 0
        wait_until(lambda: not daemons_of(folder), "the daemon's end")


def test_instance_of_the_unit(folder):
    """The command of the documentation names the pack."""
    need_tool("systemd-escape")
    readme, page = ((REPOSITORY / name).read_text(encoding="utf-8") for name in ("README.md", "packaging/man/bpkfs.1"))
    (command,) = re.findall(r'^systemctl .*"\$\((systemd-escape .*)\)"$', readme, re.M)
    assert f"$({command})\n" in page and command in unit_text()
    result = run("sh", "-c", command, env={**ENVIRONMENT, "HOME": "/home/a da"})
    assert result.out == b"bpkfs@home-a\\x20da-model.bpk.service\n"


def test_unit_leaves_the_helper_alone():
    """Without it, the daemon that gets the signal cannot unmount."""
    assert "\nKillMode=mixed\n" in unit_text()
    assert "\nTimeoutStopSec=30min\n" in unit_text()


# --- what kind of file a pack is ---


@pytest.mark.parametrize(
    "option, said",
    [
        ("-b", "Burn checkpoint pack, version 1, {} bytes of metadata"),
        ("-bi", "application/x-burnpack; charset=binary"),
    ],
)
def test_file_knows_a_pack(folder, option, said):
    need_tool("file")
    path = edit.make_pack(folder)
    size = int.from_bytes(path.read_bytes()[6:10], "little")
    result = run("file", option, "-m", PACKAGING / "magic", path.rename(folder / "unnamed"))
    assert (result.status, result.out.decode()) == (0, said.format(size) + "\n")


def test_file_knows_others(folder):
    need_tool("file")
    (folder / "text").write_text("a NRUB, but not at the start\n")
    assert b"Burn" not in run("file", "-m", PACKAGING / "magic", folder / "text").out


def test_mime_type(folder):
    need_tool("update-mime-database")
    mime = folder / "mime"
    (mime / "packages").mkdir(parents=True)
    shutil.copy(PACKAGING / "mime/bpkfs.xml", mime / "packages")
    result = run("update-mime-database", mime, env={**ENVIRONMENT, "XDG_DATA_HOME": str(folder)})
    assert (result.status, result.err) == (0, "")
    assert "50:application/x-burnpack:*.bpk" in (mime / "globs2").read_text().splitlines()
    assert b"[60:application/x-burnpack]\n>0=\0\x04NRUB\n" in (mime / "magic").read_bytes()
    assert "Burn checkpoint pack" in (mime / "application/x-burnpack.xml").read_text()


# --- what is installed ---

# LIBDIR: lib, lib64 or, on Debian, lib/MACHINE.
INSTALLED = """
LIBDIR/libbpk.so -> libbpk.so.0
LIBDIR/libbpk.so.0 -> libbpk.so.VERSION
LIBDIR/libbpk.so.VERSION
LIBDIR/pkgconfig/libbpk.pc
bin/bpk
bin/bpkfs
include/bpk.h
lib/systemd/user/bpkfs@.service
sbin/mount.bpkfs -> ../bin/bpkfs
sbin/mount.fuse.bpkfs -> ../bin/bpkfs
share/bash-completion/completions/bpk
share/bash-completion/completions/bpkfs -> bpk
share/bpkfs/magic
share/fish/vendor_completions.d/bpk.fish
share/fish/vendor_completions.d/bpkfs.fish
share/man/man1/bpk.1
share/man/man1/bpkfs.1
share/man/man3/libbpk.3
share/man/man5/bpk.5
share/man/man8/mount.bpkfs.8 -> ../man1/bpkfs.1
share/man/man8/mount.fuse.bpkfs.8 -> ../man1/bpkfs.1
share/mime/packages/bpkfs.xml
share/zsh/site-functions/_bpk
"""
VERSION = re.search(r"version: '([\d.]+)'", (REPOSITORY / "meson.build").read_text(encoding="utf-8"))[1]


def installed(libdir):
    """The lines of INSTALLED where the library is in LIBDIR."""
    return sorted(INSTALLED.replace("LIBDIR", libdir).replace("VERSION", VERSION).split("\n")[1:-1])


def test_installed_files(folder):
    """These and no others."""
    need_programs()
    need_tool("meson")
    result = run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder)
    assert result.status == 0, result.out.decode() + result.err
    (program,) = folder.rglob("bin/bpkfs")
    prefix = program.parents[1]
    found = []
    for path in prefix.rglob("*"):
        target = f" -> {os.readlink(path)}" if path.is_symlink() else ""
        if target or not path.is_dir():
            found.append(f"{path.relative_to(prefix)}{target}")
    below = prefix.relative_to(folder)
    (library,) = prefix.rglob("libbpk.so")
    assert sorted(found) == installed(str(library.parent.relative_to(prefix)))
    assert len([path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]) == len(found)
    unit = (prefix / "lib/systemd/user/bpkfs@.service").read_text()
    assert f"\nExecStart=:/{below}/bin/bpkfs %f\n" in unit and f"exec /{below}/bin/bpk umount" in unit
    assert program.stat().st_mode & 0o7777 == 0o755


# --- every file has a use ---


def sources(suffix, *folders):
    return [path for folder in folders for path in (REPOSITORY / folder).rglob(f"*{suffix}")]


def test_every_source_is_built():
    """As itself, or by the part of its name that a table of tests has."""
    files = [REPOSITORY / "meson.build", *sources("meson.build", "src", "fs", "tests", "packaging")]
    words = set(re.findall(r"'([^'\n]+)'", "".join(path.read_text(encoding="utf-8") for path in files)))
    words = {word.rpartition("/")[2] for word in words}
    left_out = [
        path
        for path in sources(".c", "src", "fs", "tests")
        if path.name not in words and re.sub("^(test|fuzz)_", "", path.stem) not in words
    ]
    assert left_out == []


def test_every_header_and_module_is_used():
    code = "".join(path.read_text(encoding="utf-8") for path in sources(".[ch]", "src", "fs", "tests", "examples"))
    included = {name.rpartition("/")[2] for name in re.findall(r'^#include ["<](\S+)[">]$', code, re.M)}
    assert [path for path in sources(".h", "src", "fs", "tests") if path.name not in included] == []
    code = "".join(path.read_text(encoding="utf-8") for path in sources(".py", "tests"))
    imported = set(re.findall(r"^ *(?:from|import) (\w+)", code, re.M))
    modules = [path for path in sources(".py", "tests") if not re.match("test_|conftest|bench", path.name)]
    modules = [path for path in modules if not path.read_text(encoding="utf-8").startswith("#!")]
    assert len(modules) > 10 and [path for path in modules if path.stem not in imported] == []
