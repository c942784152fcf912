"""The release tarball and the packages: what is in them, and that they build and pass their unit tests.

It takes minutes, so it runs only with BPK_PACKAGES=yes or CI=true, and for each package where its tools are.
"""

import os
import re
import tarfile

import pytest

from conftest import ENVIRONMENT, REPOSITORY, SANITIZED, need_tool, run
from test_packaging import INSTALLED

pytestmark = [
    pytest.mark.skipif(SANITIZED, reason="packages are not of this build"),
    pytest.mark.skipif(
        os.environ.get("BPK_PACKAGES") != "yes" and os.environ.get("CI") != "true",
        reason="takes minutes: set BPK_PACKAGES=yes",
    ),
]

BUILD_PATIENCE = 1800
VERSION = re.search(r"version: '([\d.]+)'", (REPOSITORY / "meson.build").read_text(encoding="utf-8"))[1]


def build(*command, **options):
    """Runs COMMAND, which may take long, and returns what it said."""
    result = run(*command, patience=BUILD_PATIENCE, **options)
    assert result.status == 0, result.out.decode() + result.err
    return result.out.decode() + result.err


def installed(*changes, more=()):
    """The paths of what meson installs below /usr, the parts CHANGES replaced, and MORE."""
    paths = [f"/usr/{line.partition(' ')[0]}" for line in INSTALLED.split("\n")[1:-1]]
    for old, new in changes:
        paths = [re.sub(old, new, path) for path in paths]
    return sorted([*paths, *more])


@pytest.fixture
def tarball(folder):
    need_tool("meson")
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a clone")
    build("meson", "setup", folder / "build", REPOSITORY)
    build("meson", "dist", "-C", folder / "build", "--no-tests", "--allow-dirty")
    return folder / f"build/meson-dist/bpkfs-{VERSION}.tar.xz"


def test_tarball_holds_what_is_committed(tarball):
    listed = run("git", "-C", REPOSITORY, "ls-tree", "-r", "-z", "--name-only", "HEAD").out.decode().split("\0")[:-1]
    with tarfile.open(tarball) as archive:
        found = [member.name for member in archive if not member.isdir()]
    assert sorted(found) == sorted(f"bpkfs-{VERSION}/{name}" for name in listed)


def test_rpm_of_the_tarball(tarball, folder):
    """Its build runs the unit tests of the tarball."""
    need_tool("rpmbuild")
    said = build("rpmbuild", "--define", f"_topdir {folder}/rpm", "--nodeps", "-tb", tarball)
    assert re.search(r"^Ok: +[1-9]", said, re.M)
    assert "absolute symlink" not in said
    (package,) = (folder / "rpm/RPMS").rglob(f"bpkfs-{VERSION}-*.rpm")
    listed = build("rpm", "-qlp", package).split()
    found = [path for path in listed if not re.search("/.build-id|/licenses/|/doc/|/share/bpkfs$", path)]
    assert sorted(re.sub(r"(/man\d/.*)\.gz$", r"\1", path) for path in found) == installed()
    assert {"LICENSE-APACHE", "LICENSE-MIT", "README.md"} <= {path.rpartition("/")[2] for path in listed}


def test_deb(folder):
    for tool in ("dpkg-buildpackage", "dh", "lintian"):
        need_tool(tool)
    environment = {**ENVIRONMENT, "DEB_BUILD_OPTIONS": "nocheck", "TMPDIR": str(folder)}
    said = build("sh", REPOSITORY / "packaging/deb.sh", cwd=folder, env=environment)
    assert "meson test" not in said
    dist = folder / "dist"
    assert {path.name.partition("_")[0] for path in dist.glob("*.deb")} == {"bpkfs", "bpkfs-dbgsym"}
    (package,) = dist.glob(f"bpkfs_{VERSION}_*.deb")
    listed = build("dpkg-deb", "-c", package).splitlines()
    found = [line.split()[5].removeprefix(".") for line in listed if not line.startswith("d")]
    documents = [f"/usr/share/doc/bpkfs/{name}" for name in ("README.md.gz", "changelog.gz", "copyright")]
    changes = ((r"(/man\d/.*)", r"\1.gz"), ("site-functions", "vendor-completions"))
    assert sorted(found) == installed(*changes, more=documents)
    assert build("dpkg-deb", "-f", package, "Version").strip() == VERSION
    (changes_file,) = dist.glob("*.changes")
    assert run("lintian", "--allow-root", "--fail-on", "error,warning", changes_file, patience=300).out == b""
    assert sorted(path.name for path in folder.iterdir()) == ["dist"]
