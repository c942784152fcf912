"""The pictures of README and CONTRIBUTING: they show what is so, anywhere, and each is shown."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import bpkedit as edit
from conftest import BUILD, REPOSITORY, need_fuse, run

PICTURES = REPOSITORY / "packaging" / "pictures"
DRAWN = sorted(PICTURES.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def texts(name):
    """(x, text) of every text of a picture, in order."""
    root = ElementTree.parse(PICTURES / name).getroot()
    return [(float(element.get("x")), element.text) for element in root.iter(f"{SVG}text")]


def test_the_demo_is_what_the_commands_print():
    need_fuse()
    pytest.importorskip("numpy")
    result = run(sys.executable, PICTURES / "draw-demo.py", BUILD)
    assert (result.status, result.err) == (0, "")
    assert result.out.decode() == (PICTURES / "demo.svg").read_text(encoding="utf-8")


def test_the_demo_is_not_drawn_of_a_command_that_fails(folder):
    """Nor is its mount left."""
    need_fuse()
    for name in ("draw-demo.py", "demo.sh"):
        (folder / name).write_bytes((PICTURES / name).read_bytes())
    home = folder / "pictures"
    home.mkdir()
    (folder / "make-demo.py").symlink_to(PICTURES.parent / "make-demo.py")
    (folder / "draw-demo.py").rename(home / "draw-demo.py")
    (home / "demo.sh").write_text("bpkfs model.bpk mnt\ncat mnt/missing\n")
    result = run(sys.executable, home / "draw-demo.py", BUILD)
    assert (result.status, result.out) == (1, b"")
    assert "mnt/missing" in result.err
    mounted = subprocess.run(["findmnt", "-n", "-t", "fuse.bpkfs"], stdout=subprocess.PIPE, check=False).stdout
    assert b"bpk-demo-" not in mounted


def test_the_tree_is_what_a_mount_has(folder):
    pack = edit.make_pack(folder, [("fc1.weight", "F32", [2], bytes(8), 7)])
    drawn = texts("tree.svg")
    drawn = drawn[[text for _, text in drawn].index("mnt/") + 1 :]
    names = [(x, text) for x, text in drawn if re.search(r"/$|/\w|\.(json|tsv|weight)$", text)]
    parents, paths = [], []
    for x, text in names:
        parents = [(left, name) for left, name in parents if left < x]
        for name in text.split(", "):
            paths.append("".join(part for _, part in parents) + name)
        if text.endswith("/"):
            parents.append((x, text))
    assert {"tensors/fc1.weight.json", "views/npy/fc1.weight.npy", ".bpkfs/status.json"} < set(paths)
    with edit.edited(pack) as mount:
        for path in paths:
            assert (mount / path).exists(), path


def test_the_house_has_these_rooms():
    rooms = [text.split()[0] for _, text in texts("house.svg") if re.match(r"(src|fs)/", text)]
    assert sorted(rooms) == ["fs/", "src/cli/", "src/edit", "src/pack", "src/view"]
    assert all((REPOSITORY / room).is_dir() for room in rooms)


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_a_picture_is_shown_anywhere(path):
    """It is small, needs nothing else, and its size is told."""
    text = path.read_text(encoding="utf-8")
    assert len(text) < 60_000
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for element in root.iter():
        assert element.tag.startswith(SVG) and element.tag[len(SVG) :] not in ("script", "style", "image", "use")
        for name, value in element.items():
            assert "href" not in name and not name.startswith("on")
            assert re.search(r"url\((?!#)", value) is None
    shown = "".join((REPOSITORY / page).read_text(encoding="utf-8") for page in ("README.md", "CONTRIBUTING.md"))
    assert f"(packaging/pictures/{path.name})" in shown
