"""The release tarball and the packages: what is in them, and that they build and pass their unit tests.

It takes minutes, so it runs only with BPK_PACKAGES=yes or CI=true, and for each package where its tools are.
"""

import os
import re
import tarfile

import pytest

from conftest import ENVIRONMENT, REPOSITORY, SANITIZED, need_tool, run
from test_packaging import VERSION, installed

pytestmark = [
    pytest.mark.skipif(SANITIZED, reason="packages are not of this build"),
    pytest.mark.skipif(
        os.environ.get("BPK_PACKAGES") != "yes" and os.environ.get("CI") != "true",
        reason="takes minutes: set BPK_PACKAGES=yes",
    ),
]

BUILD_PATIENCE = 1800


def build(*command, **options):
    """Runs COMMAND, which may take long, and returns what it said."""
    result = run(*command, patience=BUILD_PATIENCE, **options)
    assert result.status == 0, result.out.decode() + result.err
    return result.out.decode() + result.err


LIBRARY_PARTS = {
    "libbpk": r"libbpk\.so\.[\d.]+$",
    "libbpk-dev": r"libbpk\.so$|/pkgconfig/|/include/|/man3/",
}


def shares(libdir, *changes):
    """The paths of what meson installs below /usr, the parts CHANGES replaced, by the package that they are in."""
    paths = [f"/usr/{line.partition(' ')[0]}" for line in installed(libdir)]
    for old, new in changes:
        paths = [re.sub(old, new, path) for path in paths]
    found = {name: {path for path in paths if re.search(part, path)} for name, part in LIBRARY_PARTS.items()}
    return {"bpkfs": set(paths).difference(*found.values()), **found}


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
    packages = {path.name.partition(f"-{VERSION}-")[0]: path for path in (folder / "rpm/RPMS").rglob("*.rpm")}
    packages = {name: path for name, path in packages.items() if not re.search("-debug(info|source)$", name)}
    assert set(packages) == {"bpkfs", "libbpk", "libbpk-devel"}
    listed = {name: build("rpm", "-qlp", path).split() for name, path in packages.items()}
    documents = "/.build-id|/licenses/|/doc/|/share/bpkfs$"
    found = {
        name: {re.sub(r"(/man\d/.*)\.gz$", r"\1", path) for path in paths if not re.search(documents, path)}
        for name, paths in listed.items()
    }
    (link,) = (path for path in found["libbpk-devel"] if path.endswith("/libbpk.so"))
    libdir = link.removeprefix("/usr/").removesuffix("/libbpk.so")
    wanted = shares(libdir)
    assert found == {**{name: wanted[name] for name in ("bpkfs", "libbpk")}, "libbpk-devel": wanted["libbpk-dev"]}
    names = {name: {path.rpartition("/")[2] for path in paths} for name, paths in listed.items()}
    assert {"LICENSE-APACHE", "LICENSE-MIT", "README.md"} <= names["bpkfs"]
    assert {"LICENSE-APACHE", "LICENSE-MIT"} <= names["libbpk"] and "lsbpk.c" in names["libbpk-devel"]


def test_deb(folder):
    for tool in ("dpkg-buildpackage", "dh", "lintian"):
        need_tool(tool)
    environment = {**ENVIRONMENT, "DEB_BUILD_OPTIONS": "nocheck", "TMPDIR": str(folder)}
    said = build("sh", REPOSITORY / "packaging/deb.sh", cwd=folder, env=environment)
    assert "meson test" not in said
    dist = folder / "dist"
    packages = {path.name.partition("_")[0]: path for path in dist.glob("*.deb")}
    assert set(packages) == {"bpkfs", "bpkfs-dbgsym", "libbpk0", "libbpk0-dbgsym", "libbpk-dev"}
    changes = ((r"(/man\d/.*)", r"\1.gz"), ("site-functions", "vendor-completions"))
    wanted = shares(f"lib/{build('dpkg-architecture', '-qDEB_HOST_MULTIARCH').strip()}", *changes)
    wanted = {"bpkfs": wanted["bpkfs"], "libbpk0": wanted["libbpk"], "libbpk-dev": wanted["libbpk-dev"]}
    wanted["bpkfs"].add("/usr/share/doc/bpkfs/README.md.gz")
    wanted["libbpk-dev"].add("/usr/share/doc/libbpk-dev/examples/lsbpk.c")
    for name, paths in wanted.items():
        listed = build("dpkg-deb", "-c", packages[name]).splitlines()
        found = {line.split()[5].removeprefix(".") for line in listed if not line.startswith("d")}
        assert found == paths | {f"/usr/share/doc/{name}/{file}" for file in ("changelog.gz", "copyright")}
        assert build("dpkg-deb", "-f", packages[name], "Version").strip() == VERSION
    assert f"libbpk0 (= {VERSION})" in build("dpkg-deb", "-f", packages["libbpk-dev"], "Depends")
    (changes_file,) = dist.glob("*.changes")
    assert run("lintian", "--allow-root", "--fail-on", "error,warning", changes_file, patience=300).out == b""
    assert sorted(path.name for path in folder.iterdir()) == ["dist"]
