"""Ordinary tools that change files, each let loose on metadata.json, a sidecar, a tensor and a key of a mounted pack."""

import dataclasses
import json
import os
import shutil
import sys

import pytest

import bpkedit as edit
from conftest import missing, run

OLD, NEW = "pytest", "edited"


@dataclasses.dataclass
class Target:
    """A file and one change to it: the text OLD becomes NEW, of the same length."""

    path: str
    old: str
    new: str
    is_json: bool = True

    def expected(self, book):
        if self.path in ("metadata.json", "metadata/producer"):
            book.metadata["producer"] = NEW
        elif self.path == "tensors/text":
            book.change("text", data=edit.TEXT.replace(OLD.encode(), NEW.encode()))
        else:
            book.change("fc.weight", param_id=8)
        return book


TARGETS = {
    "metadata": Target("metadata.json", OLD, NEW),
    "sidecar": Target("tensors/fc.weight.json", '"param_id": 7', '"param_id": 8'),
    "tensor": Target("tensors/text", OLD, NEW, is_json=False),
    "key": Target("metadata/producer", OLD, NEW, is_json=False),
}


@dataclasses.dataclass
class Work:
    """What a tool is given: the file, the change, and what the file should say afterwards."""

    target: Target
    file: object
    outside: object  # a folder that is not in the mount
    new_text: bytes

    @property
    def old(self):
        return self.target.old

    @property
    def new(self):
        return self.target.new

    def source(self, name=None):
        """A file outside with the new text, older than now."""
        path = self.outside / (name or self.file.name)
        path.write_bytes(self.new_text)
        os.utime(path, (10**9, 10**9))
        return path


def tool(*command, stdin=None, cwd=None, env=None):
    """Runs a program that must be there and must succeed."""
    if not shutil.which(command[0]):
        missing(f"{command[0]} is not installed")
    with open(stdin or os.devnull, "rb") as file:
        result = run(*command, stdin=file, cwd=cwd, **({"env": {**os.environ, **env}} if env else {}))
    assert result.status == 0, f"{command}: {result.err}{result.out.decode(errors='replace')}"
    return result


def shell(script, *arguments, stdin=None, cwd=None):
    return tool("sh", "-ec", script, "sh", *map(str, arguments), stdin=stdin, cwd=cwd)


# --- Editors ---


def vim(*settings, flags=()):
    def use(work):
        commands = [x for s in settings for x in ("-c", f"set {s}")]
        change = f"%s/{work.old}/{work.new}/"
        tool("vim", "-u", "NONE", "-N", *flags, "-es", *commands, "-c", change, "-c", "wq", work.file)

    return use


def emacs(*settings):
    def use(work):
        lisp = f"""(progn {" ".join(settings)}
            (find-file {json.dumps(str(work.file))})
            (while (search-forward {json.dumps(work.old)} nil t) (replace-match {json.dumps(work.new)} t t))
            (save-buffer))"""
        tool("emacs", "-nw", "-Q", "--batch", "--eval", lisp)

    return use


# --- Filters and copies ---


def sed(*flags):
    return lambda work: tool("sed", *flags, f"s/{work.old}/{work.new}/", work.file)


def jq(work):
    """Into a file of the same folder, moved over."""
    change = '.producer = "edited"' if work.target.path == "metadata.json" else ".param_id = 8"
    shell('jq "$1" "$2" > t && mv t "$2"', change, work.file.name, cwd=work.file.parent)


def move_here(work):
    """From another filesystem: mv copies."""
    tool("mv", work.source(), work.file)


def copy(*command):
    return lambda work: tool(*command, work.source(), work.file)


def untar(work):
    work.source()
    archive = work.outside / "t.tar"
    tool("tar", "-cf", archive, "-C", work.outside, work.file.name)
    tool("tar", "-xf", archive, "-C", work.file.parent)


def compress(work):
    """gzip takes the file away, gunzip brings it back from where the new text was put."""
    tool("gzip", work.file)
    assert not work.file.exists()
    shell('gzip -c "$1" > "$2"', work.source(), f"{work.file}.gz")
    tool("gunzip", f"{work.file}.gz")


def ed(program):
    def use(work):
        script = work.outside / "script"
        script.write_text(f",s/{work.old}/{work.new}/\nw\nq\n" if program == "ed" else f"%s/{work.old}/{work.new}/\nx\n")
        shell(f'{program} -s "$1" < "$2" > "$3"', work.file, script, work.outside / "said")

    return use


def awk(work):
    script = 'awk "{ gsub(o, n); print }" o="$2" n="$3" "$1" > "$4" && cat "$4" > "$1"'
    shell(script, work.file, work.old, work.new, work.outside / "t")


def zip_and_unzip(work):
    work.source()
    archive = work.outside / "t.zip"
    tool("zip", "-q", archive, work.file.name, cwd=work.outside)
    tool("unzip", "-q", "-o", archive, cwd=work.file.parent)


def dd_inside(work):
    """Only the changed bytes, one place after the other."""
    old, new = work.old.encode(), work.new.encode()
    at, text = 0, work.file.read_bytes()
    piece = work.outside / "piece"
    piece.write_bytes(new)
    while (at := text.find(old, at)) >= 0:
        tool("dd", f"if={piece}", f"of={work.file}", "conv=notrunc", "bs=1", f"seek={at}", "status=none")
        at += len(new)


def truncate_and_append(work):
    """Cut to nothing, made longer again, then written."""
    size = len(work.new_text)
    tool("truncate", "-s", "0", work.file)
    tool("truncate", "-s", str(size), work.file)
    assert work.file.read_bytes() == bytes(size)
    tool("dd", f"if={work.source()}", f"of={work.file}", "conv=notrunc", "status=none")


def redirect_and_append(work):
    half = len(work.new_text) // 2
    (work.outside / "a").write_bytes(work.new_text[:half])
    (work.outside / "b").write_bytes(work.new_text[half:])
    shell('cat "$1" > "$3"; cat "$2" >> "$3"', work.outside / "a", work.outside / "b", work.file)


def xxd(work):
    dump = work.outside / "dump"
    dump.write_text(work.new_text.hex())
    tool("xxd", "-r", "-p", dump, work.file)


def patch(*flags):
    def use(work):
        before = work.outside / "before"
        before.write_bytes(work.file.read_bytes())
        difference = work.outside / "p.diff"
        shell('diff -u "$1" "$2" > "$3" || test $? = 1', before, work.source(), difference)
        tool("patch", "-s", *flags, work.file.name, difference, cwd=work.file.parent)

    return use


# --- Programs ---


def python(script):
    """Runs a script with the file as argv[1], the source as argv[2], old and new as argv[3] and [4]."""
    return lambda work: tool(sys.executable, "-c", script, work.file, work.source(), work.old, work.new)


PY_DUMP = """
import json, sys
path, _, old, new = sys.argv[1:]
with open(path) as f:
    value = json.load(f)
value.update(json.loads("{%s}" % new) if ":" in new else {"producer": new})
with open(path, "w") as f:
    json.dump(value, f)
"""

PY_WRITE_TEXT = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
path.write_text(path.read_text().replace(*sys.argv[3:]))
"""

PY_ATOMIC = """
import os, sys, tempfile
path, source, *_ = sys.argv[1:]
with tempfile.NamedTemporaryFile("wb", dir=os.path.dirname(path), delete=False) as f:
    f.write(open(source, "rb").read())
    f.flush()
    os.fsync(f.fileno())
os.replace(f.name, path)
d = os.open(os.path.dirname(path), os.O_RDONLY)
os.fsync(d)
"""

PY_FILEINPUT = """
import fileinput, sys
path, _, old, new = sys.argv[1:]
with fileinput.input([path], inplace=True, backup=".bak") as lines:
    for line in lines:
        sys.stdout.write(line.replace(old, new))
"""

PY_RPLUS = """
import sys
path, _, old, new = sys.argv[1:]
with open(path, "r+") as f:
    text = f.read()
    f.seek(0)
    f.write(text.replace(old, new))
    f.truncate()
"""

PY_TOFILE = """
import sys, numpy
numpy.fromfile(sys.argv[2], dtype="u1").tofile(sys.argv[1])
"""

PY_MEMMAP = """
import os, sys, numpy
m = numpy.memmap(sys.argv[1], dtype="u1", mode="r+")
m[:] = numpy.fromfile(sys.argv[2], dtype="u1")
if %r:
    m.flush()
else:
    os._exit(0)
"""

# Stores through a shared map after the file is closed, and leaves it to munmap to bring them.
C_MMAP = r"""
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char text[1 << 20];
    struct stat st;
    int fd = open(argv[1], O_RDWR);
    int source = open(argv[2], O_RDONLY);
    if (argc < 3 || fd < 0 || source < 0 || fstat(fd, &st) < 0)
        return 1;
    char *map = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || read(source, text, sizeof(text)) != st.st_size || close(fd) < 0)
        return 2;
    memcpy(map, text, st.st_size);
    return munmap(map, st.st_size) < 0 ? 3 : 0;
}
"""


def c_program(source):
    def use(work):
        code, program = work.outside / "p.c", work.outside / "p"
        code.write_text(source)
        tool("cc", "-O1", "-o", program, code)
        tool(program, work.file, work.source())

    return use


# Each: (what, whom for: "json", "no key" or "any", what it leaves beside the file).
TOOLS = {
    "vim": (vim(), "any", []),
    "vim-n": (vim(flags=["-n"]), "any", []),
    "vim-copy": (vim("backup", "backupcopy=yes"), "any", ["{}~"]),
    "vim-rename": (vim("backup", "backupcopy=no"), "any", ["{}~"]),
    "vim-rename-only": (vim("writebackup", "backupcopy=no"), "any", []),
    "vim-nowritebackup": (vim("nobackup", "nowritebackup"), "any", []),
    "vim-b": (vim("backupcopy=no", flags=["-b"]), "any", []),
    "vim-fsync": (vim("fsync", "backupcopy=no"), "any", []),
    "vim-bak": (vim("backup", "backupext=.bak", "backupcopy=no"), "any", ["{}.bak"]),
    "emacs": (emacs("(setq make-backup-files t)"), "any", ["{}~"]),
    "emacs-copy": (emacs("(setq backup-by-copying t)"), "any", ["{}~"]),
    "emacs-precious": (emacs("(setq file-precious-flag t)"), "any", ["{}~"]),
    "emacs-numbered": (emacs("(setq version-control t)"), "any", ["{}.~1~"]),
    "sed": (sed("-i"), "any", []),
    "sed-bak": (sed("-i.bak"), "any", ["{}.bak"]),
    "sed-tilde": (sed("-i~"), "any", ["{}~"]),
    "perl": (lambda w: tool("perl", "-pi", "-e", f"s/{w.old}/{w.new}/", w.file), "any", []),
    "perl-bak": (lambda w: tool("perl", "-pi.bak", "-e", f"s/{w.old}/{w.new}/", w.file), "any", ["{}.bak"]),
    "jq": (jq, "json", []),
    "mv": (move_here, "any", []),
    "cp": (copy("cp"), "any", []),
    "cp-p": (copy("cp", "-p"), "any", []),
    "cp-a": (copy("cp", "-a"), "any", []),
    "cp-remove": (copy("cp", "--remove-destination"), "any", []),
    "cp-backup": (copy("cp", "--backup"), "any", ["{}~"]),
    "install": (copy("install"), "any", []),
    "install-mode": (copy("install", "-p", "-m", "600"), "any", []),
    "tar": (untar, "any", []),
    "rsync": (copy("rsync", "-aI"), "any", []),
    "rsync-inplace": (copy("rsync", "-aI", "--inplace"), "any", []),
    "rsync-backup": (copy("rsync", "-aIb"), "any", ["{}~"]),
    "dd": (dd_inside, "any", []),
    "truncate": (truncate_and_append, "any", []),
    "append": (redirect_and_append, "any", []),
    "tee": (lambda w: shell('tee "$1" > /dev/null', w.file, stdin=w.source()), "any", []),
    "sponge": (lambda w: shell('sed "s/$2/$3/" "$1" | sponge "$1"', w.file, w.old, w.new), "any", []),
    "xxd": (xxd, "any", []),
    "patch": (patch(), "any", []),
    "patch-b": (patch("-b"), "any", ["{}.orig"]),
    "gzip": (compress, "no key", []),  # a key's value is text
    "ed": (ed("ed"), "any", []),
    "ex": (ed("ex"), "any", []),
    "unzip": (zip_and_unzip, "any", []),
    "awk": (awk, "any", []),
    "py-fileinput": (python(PY_FILEINPUT), "any", ["{}.bak"]),
    "py-r+": (python(PY_RPLUS), "any", []),
    "py-dump": (python(PY_DUMP), "json", []),
    "py-write-text": (python(PY_WRITE_TEXT), "any", []),
    "py-atomic": (python(PY_ATOMIC), "any", []),
    "np-tofile": (python(PY_TOFILE), "any", []),
    "np-memmap": (python(PY_MEMMAP % True), "any", []),
    "np-memmap-exit": (python(PY_MEMMAP % False), "any", []),
    "c-mmap": (c_program(C_MMAP), "any", []),
}
CASES = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name, (_, whom, _) in TOOLS.items()
    for kind in TARGETS
    if whom == "any" or (TARGETS[kind].is_json if whom == "json" else kind != "key")
]


@pytest.fixture
def outside(folder):
    path = folder / "outside"
    path.mkdir()
    return path


@pytest.mark.parametrize("name, kind", CASES)
def test_tool(folder, outside, name, kind):
    """The change is there before the commit, in the pack after it, and everything else is as it was."""
    use, _, leaves = TOOLS[name]
    target = TARGETS[kind]
    if name.startswith("np-"):
        pytest.importorskip("numpy")
    pack = edit.make_pack(folder)
    expected = target.expected(edit.book(pack))
    with edit.edited(pack) as mount:
        file = mount / target.path
        old_text = file.read_bytes()
        use(Work(target, file, outside, old_text.replace(target.old.encode(), target.new.encode())))
        assert target.new in file.read_text() and target.old not in file.read_text()
        left = {f"{target.path}".replace(file.name, pattern.format(file.name)) for pattern in leaves}
        assert edit.listing(mount) == edit.expected_listing(expected) | left
        edit.commit(mount)
        edit.check_pack(pack, expected)
        assert edit.listing(mount) == edit.expected_listing(expected) | left
        for path in left:
            assert (mount / path).read_bytes() == old_text
            (mount / path).unlink()
        edit.check_clean(mount)
        check_canonical(mount, target, expected)
    edit.check_pack(pack, expected)


def check_canonical(mount, target, expected):
    """After the commit every way to look at the change shows it."""
    if expected.metadata["producer"] == NEW:
        assert json.loads((mount / "metadata.json").read_text()) == expected.metadata
        assert (mount / "metadata/producer").read_text() == f"{NEW}\n"
    else:
        name = target.path.removeprefix("tensors/").removesuffix(".json")
        *_, data, param_id = expected.tensor(name)
        assert (mount.tensors / name).read_bytes() == data
        assert edit.sidecar(mount, name)["param_id"] == param_id


@pytest.mark.parametrize("kind", TARGETS)
def test_unmount_commits(folder, kind):
    """Without a commit by name."""
    pack = edit.make_pack(folder)
    target = TARGETS[kind]
    expected = target.expected(edit.book(pack))
    with edit.edited(pack, log=[]) as mount:
        tool("sed", "-i", f"s/{target.old}/{target.new}/", mount / target.path)
    edit.check_pack(pack, expected)


def test_two_tools_in_a_row(folder, outside):
    """All of them on one mount, one after the other, back and forth, with one commit at the end."""
    pack = edit.make_pack(folder)
    expected = edit.book(pack)
    with edit.edited(pack) as mount:
        for use, whom, leaves in TOOLS.values():
            if whom != "any":
                continue
            target = TARGETS["tensor"]
            for old, new in ((OLD, NEW), (NEW, OLD)):
                file = mount / target.path
                text = file.read_bytes().replace(old.encode(), new.encode())
                use(Work(dataclasses.replace(target, old=old, new=new), file, outside, text))
                assert file.read_bytes() == text
                for pattern in leaves:
                    (file.parent / pattern.format(file.name)).unlink()
        assert edit.listing(mount) == edit.expected_listing(expected)
        edit.commit(mount)
        edit.check_clean(mount)
    edit.check_pack(pack, expected)


