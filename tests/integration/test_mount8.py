"""mount(8), umount(8) and fstab(5), by way of the mount helper.

Each script runs in a mount namespace of its own, where /sbin holds nothing but the helper and /etc/fstab is the test's.
"""

import os
import re
import shlex
import shutil
import stat

import pytest

import bpkedit as edit
from conftest import BPKFS, NOBODY, REPOSITORY, as_nobody, daemons_of, need_fuse, need_root, need_tool, run, wait_until

HELPERS = ("mount.bpkfs", "mount.fuse.bpkfs")


@pytest.fixture
def place(folder):
    """A folder with model.bpk and an empty mnt, in which mount(8) can be used."""
    need_root()
    need_fuse()
    for tool in ("mount", "umount", "unshare"):
        need_tool(tool)
    if run("unshare", "-m", "true").status != 0:
        pytest.skip("no mount namespaces here")
    edit.make_pack(folder)
    (folder / "mnt").mkdir()
    return folder


def script(place, text, fstab=""):
    """Runs TEXT with sh -eu in PLACE; at its end nothing of it is mounted and no daemon is left."""
    (place / "fstab").write_text(fstab.format(place=place))
    links = "".join(f"ln -s {shlex.quote(str(BPKFS))} /sbin/{name}\n" for name in HELPERS)
    prelude = f"mount -t tmpfs none /sbin\n{links}mount --bind fstab /etc/fstab\n"
    result = run("unshare", "-m", "--propagation", "private", "sh", "-eu", "-c", prelude + text, cwd=place)
    wait_until(lambda: not daemons_of(place), "the daemons' end")
    (place / "fstab").unlink()
    return result


def good(result):
    assert (result.status, result.err) == (0, ""), result.out.decode()
    return result.out.decode()


@pytest.mark.parametrize("kind", ["bpkfs", "fuse.bpkfs"])
def test_mount_edit_and_unmount(place, kind):
    want = edit.book(place / "model.bpk")
    text = f"""
        mount -t {kind} model.bpk mnt
        grep '{place}/mnt fuse.bpkfs rw,' /proc/self/mounts
        echo by-mount > mnt/metadata/k
        umount mnt
    """
    assert len(good(script(place, text)).splitlines()) == 1
    want.metadata["k"] = "by-mount"
    edit.check_pack(place / "model.bpk", want)


@pytest.mark.parametrize(
    "options, shown",
    [
        ("ro", "ro,"),
        ("rw,defaults,noauto,nofail,_netdev,users,x-a.b=c,comment=d,relatime,dev,suid", "rw,nosuid,nodev,"),
        ("ro,noexec,sync,noatime,dirsync", "ro,nosuid,nodev,noexec,noatime,sync"),
        ("nosandbox,xattr,umask=077,uid=5,layout=aligned", "rw,"),
    ],
)
def test_options(place, options, shown):
    text = f"""
        mount -t bpkfs model.bpk mnt -o {options}
        grep {place}/mnt /proc/self/mountinfo
        stat -c %u mnt
        umount mnt
    """
    entry, owner = good(script(place, text)).splitlines()
    given = set(shown.strip(",").split(","))
    found = {option for field in (entry.split()[5], entry.split()[-1]) for option in field.split(",")}
    assert given <= found
    assert owner == ("5" if "uid=5" in options else "0")


def test_fstab(place):
    fstab = "{place}/model.bpk {place}/mnt bpkfs ro,noauto 0 0\n{place}/two.bpk {place}/two fuse.bpkfs defaults 0 0\n"
    (place / "two.bpk").write_bytes((place / "model.bpk").read_bytes())
    (place / "two").mkdir()
    text = """
        mount -a
        mount mnt
        mount -a
        ls mnt/metadata.json two/metadata.json
        grep -c " $PWD/.* fuse.bpkfs " /proc/self/mounts
        umount mnt two
    """
    assert good(script(place, text, fstab)).splitlines() == ["mnt/metadata.json", "two/metadata.json", "2"]


def test_fstab_for_a_user(place, open_fuse):
    """The helper runs with the user's rights, and the user may unmount, too."""
    if not os.stat(shutil.which("mount")).st_mode & stat.S_ISUID:
        pytest.skip("mount is not set-user-ID here")
    for path in (place, place / "model.bpk", place / "mnt"):
        os.chown(path, NOBODY, NOBODY)
    user = shlex.join(as_nobody("sh", "-eu", "-c", "mount mnt; id -u; stat -c %u mnt; ls mnt/scalars.json; umount mnt"))
    readme, page = ((REPOSITORY / name).read_text(encoding="utf-8") for name in ("README.md", "packaging/man/bpkfs.1"))
    (line,) = re.findall(r"^/srv/model\.bpk .* bpkfs .*$", readme, re.M)
    assert f"\n{line}\n" in page
    line = line.replace("/srv", str(place)).replace("/mnt/model", f"{place}/mnt")
    result = script(place, user, f"{line}\n")
    assert good(result).splitlines() == [str(NOBODY), str(NOBODY), "mnt/scalars.json"]


def test_fake_mounts_nothing(place):
    assert good(script(place, "mount -f -t bpkfs model.bpk mnt; ls mnt")) == ""


@pytest.mark.parametrize(
    "command, status, said",
    [
        ("mount -t bpkfs broken.bpk mnt", 32, "bpkfs: {place}/broken.bpk: at byte 0: not a burnpack"),
        ("mount -t bpkfs model.bpk absent", 32, ""),
        ("mount -t bpkfs model.bpk mnt -o layuot=legacy", 1, "unknown option"),
        ("mount -t bpkfs model.bpk mnt -o layout=odd", 1, "layout= wants 'aligned' or 'legacy'"),
    ],
)
def test_failures(place, command, status, said):
    (place / "broken.bpk").write_bytes(b"no pack at all")
    result = script(place, command)
    assert result.status == status, result.err
    assert said.format(place=place) in result.err


def test_remount_is_refused(place):
    result = script(place, "mount -t bpkfs model.bpk mnt; mount -o remount,ro mnt || echo $?; umount mnt")
    assert (result.status, result.out) == (0, b"32\n")
    assert "cannot be remounted" in result.err
