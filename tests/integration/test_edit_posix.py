"""What system calls answer on a writable mount: names, inode numbers, attributes, maps, caches."""

import ctypes
import mmap
import os
import shutil
import stat
import subprocess
import time

import pytest

import bpkedit as edit
from conftest import as_nobody, code_of, need_root, run

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
AT_FDCWD = -100


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


@pytest.fixture
def mount(pack):
    """A mount on which nothing is left to commit that would not be valid."""
    with edit.edited(pack, log=None) as mount:
        yield mount


def renameat2(old, new, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# --- What is refused ---


def test_rename_flags(mount):
    a, b = mount.tensors / "fc.weight", mount.tensors / "norm.gamma"
    assert code_of(renameat2, a, b, RENAME_NOREPLACE) == "EEXIST"
    assert code_of(renameat2, a, b, RENAME_EXCHANGE) == "EINVAL"
    assert a.read_bytes() == bytes(range(64)) and b.read_bytes() == bytes(range(16))
    assert code_of(renameat2, a, mount.tensors / "new", RENAME_NOREPLACE) == "done"
    assert code_of(renameat2, mount.tensors / "new", a, RENAME_NOREPLACE) == "done"


def test_what_a_pack_cannot_hold(mount):
    tensor = mount.tensors / "fc.weight"
    assert code_of(os.link, tensor, mount.tensors / "other") == "EPERM"
    for folder in (mount.path, mount.tensors, mount / "metadata"):
        assert code_of(os.mkdir, folder / "x") == "EPERM"
        assert code_of(os.symlink, "target", folder / "x") == "EPERM"
        assert code_of(os.symlink, "target", folder / ".#x") == "done"
        assert os.readlink(folder / ".#x") == "target"
        assert stat.S_ISLNK(os.lstat(folder / ".#x").st_mode)
        assert code_of(os.open, folder, os.O_TMPFILE | os.O_RDWR) in ("EOPNOTSUPP", "ENOTSUP")
        assert code_of(os.mkfifo, folder / "x") == "EPERM"
        os.unlink(folder / ".#x")
    assert code_of(os.rmdir, mount.tensors) in ("EPERM", "ENOTEMPTY")
    assert code_of(os.unlink, mount.tensors) in ("EISDIR", "EPERM")
    assert code_of(os.mkdir, tensor / "x") == "ENOTDIR"


def test_mknod(mount):
    os.mknod(mount.tensors / "new", stat.S_IFREG | 0o640)
    assert (mount.tensors / "new").stat().st_mode == stat.S_IFREG | 0o640
    (mount.tensors / "new").write_bytes(b"x")
    assert (mount.tensors / "new").read_bytes() == b"x"
    (mount.tensors / "new").unlink()


def test_folders_that_are_not_written_to(mount):
    assert code_of(os.mkdir, mount / "tree/x") == "EPERM"
    for path in ("tree/x", ".bpkfs/x"):
        assert code_of(os.open, mount / path, os.O_CREAT | os.O_WRONLY) in ("EPERM", "EACCES")
    assert code_of(os.open, mount / "index.tsv", os.O_WRONLY) in ("EPERM", "EACCES")
    assert code_of(os.open, mount / ".bpkfs/status.json", os.O_WRONLY) in ("EPERM", "EACCES")
    assert code_of(os.truncate, mount / "index.tsv", 0) in ("EPERM", "EACCES")
    assert code_of(os.unlink, mount / "index.tsv") == "EPERM"
    assert code_of(os.rename, mount / "index.tsv", mount / "x") == "EPERM"
    assert code_of(os.rename, mount / "metadata.json", mount / "index.tsv") == "EPERM"


def test_rename_between_folders(mount):
    """EXDEV for what is part of the pack, so that mv copies; scratch and pending files may."""
    assert code_of(os.rename, mount.tensors / "fc.weight", mount / "x") == "EXDEV"
    assert code_of(os.rename, mount / "metadata.json", mount.tensors / "x.json") == "EXDEV"
    assert code_of(os.rename, mount / "metadata/k", mount.tensors / "k") == "EXDEV"
    (mount / "upload").write_bytes(bytes(64))
    os.rename(mount / "upload", mount.tensors / "fc.weight")
    (mount.tensors / ".x").write_bytes(b"v2")
    os.rename(mount.tensors / ".x", mount / "metadata/k")
    assert (mount / "metadata/k").read_bytes() == b"v2"
    assert '"k": "v2"' in (mount / "metadata.json").read_text()


def test_long_names(mount):
    assert code_of(os.open, mount.tensors / ("x" * 256), os.O_CREAT | os.O_WRONLY) == "ENAMETOOLONG"
    assert code_of(os.rename, mount.tensors / "fc.weight", mount.tensors / ("x" * 256)) == "ENAMETOOLONG"
    long = mount.tensors / ("x" * 250)
    os.rename(mount.tensors / "fc.weight", long)
    assert edit.sidecar(mount, long.name)["shape"] == [4, 4]
    os.rename(long, mount.tensors / "fc.weight")


def test_too_large(mount):
    assert code_of(os.truncate, mount.tensors / "fc.weight", (10 << 30) + 1) == "EFBIG"
    fd = os.open(mount.tensors / "fc.weight", os.O_WRONLY)
    assert code_of(os.pwrite, fd, b"x", 10 << 30) == "EFBIG"
    os.close(fd)
    os.truncate(mount.tensors / "fc.weight", 10 << 30)
    assert (mount.tensors / "fc.weight").stat().st_size == 10 << 30
    os.truncate(mount.tensors / "fc.weight", 64)


# --- Attributes ---


def test_mode_and_times(mount):
    """They last as long as the mount, over commits, and are no edits of the pack."""
    file = mount.tensors / "fc.weight"
    file.chmod(0o600)
    os.utime(file, ns=(5 * 10**9 + 6, 7 * 10**9 + 8))
    now = file.stat()
    assert (stat.S_IMODE(now.st_mode), now.st_mtime_ns) == (0o600, 7 * 10**9 + 8)
    edit.commit(mount)
    now = file.stat()
    assert (stat.S_IMODE(now.st_mode), now.st_mtime_ns) == (0o600, 7 * 10**9 + 8)
    for folder in (mount.path, mount.tensors, mount / "metadata"):
        os.utime(folder)
        folder.chmod(0o755)


def test_attributes_alone_write_nothing(pack):
    before = pack.stat()
    with edit.edited(pack, log=[]) as mount:
        (mount.tensors / "fc.weight").chmod(0o600)
        os.utime(mount / "metadata.json", (1, 1))
    assert (pack.stat().st_ino, pack.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_mtime_is_the_packs_until_an_edit(pack):
    os.utime(pack, (10**9, 10**9))
    with edit.edited(pack, log=[]) as mount:
        file = mount.tensors / "fc.weight"
        assert file.stat().st_mtime == 10**9
        file.write_bytes(bytes(64))
        assert file.stat().st_mtime > time.time() - 60
        assert (mount.tensors / "norm.gamma").stat().st_mtime == 10**9


def test_chown(pack):
    need_root()
    with edit.edited(pack, "allow_other", log=None) as mount:
        file = mount.tensors / "fc.weight"
        for path in (file, mount / "metadata.json", mount / "metadata/k", mount.tensors / "text.json"):
            for uid, gid in ((1234, 4321), (-1, 5), (6, -1), (0, 0)):
                before = path.stat()
                os.chown(path, uid, gid)
                now = path.stat()
                assert now.st_uid == (before.st_uid if uid < 0 else uid)
                assert now.st_gid == (before.st_gid if gid < 0 else gid)
        os.chown(file, 1234, 4321)
        edit.commit(mount)
        assert (file.stat().st_uid, file.stat().st_gid) == (1234, 4321)
        assert edit.status(mount)["edits"] == []
        os.chown(file, 0, 0)
        os.chmod(file, 0o666)
        change = ["chown", "65534:65534", file]
        assert run(*as_nobody(*change)).status == 1


def test_umask_is_of_new_files_too(pack):
    """As of other filesystems with that option, no file has permissions of its own."""
    pack.chmod(0o600)
    with edit.edited(pack, "umask=027", log=[]) as mount:
        (mount / "metadata/new").write_text("x")
        (mount.tensors / ".scratch").write_text("x")
        (mount.tensors / "fc.weight").chmod(0o666)
        (mount / "metadata.json").chmod(0o777)
        for path in (mount / "metadata/new", mount.tensors / ".scratch", mount.tensors / "fc.weight", mount / "metadata.json"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o640, path
        assert stat.S_IMODE(mount.tensors.stat().st_mode) == 0o750
        edit.commit(mount)
        assert stat.S_IMODE((mount / "metadata/new").stat().st_mode) == 0o640
    assert stat.S_IMODE(pack.stat().st_mode) == 0o600


def test_mtime_of_the_whole_map(pack):
    """The text of metadata.json is another one with each key."""
    os.utime(pack, (10**9, 10**9))
    with edit.edited(pack) as mount:
        whole = mount / "metadata.json"
        for change in (lambda: (mount / "metadata/k").write_text("1"), lambda: (mount / "metadata/new").write_text("1"),
                       lambda: (mount / "metadata/new").unlink()):
            os.utime(whole, (10**9, 10**9))
            assert whole.stat().st_mtime == 10**9
            change()
            assert whole.stat().st_mtime > time.time() - 60
        edit.commit(mount)
        assert whole.stat().st_mtime > time.time() - 60


@pytest.mark.parametrize("name", ["model.bpk", "model.safetensors"])
def test_a_copy_of_an_export_can_be_written(pack, folder, name):
    """As the pack can: a second cp over the first is no different."""
    for mode in (0o644, 0o600):
        pack.chmod(mode)
        with edit.edited(pack, log=[]) as mount:
            for _ in range(2):
                subprocess.run(["cp", mount / "views/export" / name, folder / "copy"], check=True)
            assert stat.S_IMODE((mount / "views/export" / name).stat().st_mode) == mode
            assert code_of(os.open, mount / "views/export" / name, os.O_WRONLY) == "EACCES"


def test_statfs(mount, pack):
    ours, theirs = os.statvfs(mount.path), os.statvfs(pack)
    assert (ours.f_bsize, ours.f_blocks, ours.f_frsize) == (theirs.f_bsize, theirs.f_blocks, theirs.f_frsize)
    assert ours.f_namemax == 255 and not ours.f_flag & os.ST_RDONLY


def test_blocks(mount):
    file = mount.tensors / "new"
    file.write_bytes(b"x" * 5000)
    assert file.stat().st_blocks > 0
    file.unlink()


def test_fallocate(mount):
    fd = os.open(mount.tensors / "fc.weight", os.O_RDWR)
    os.posix_fallocate(fd, 0, 100)
    assert os.fstat(fd).st_size == 100
    assert os.pread(fd, 200, 0) == bytes(range(64)).ljust(100, b"\0")
    os.ftruncate(fd, 64)
    os.close(fd)


# --- Inode numbers ---


def test_rename_keeps_the_number(mount):
    for path in ("tensors/fc.weight", "tensors/fc.weight.json", "metadata/k"):
        file = mount / path
        number = file.stat().st_ino
        file.rename(mount / f"{path}~")
        assert (mount / f"{path}~").stat().st_ino == number
        (mount / f"{path}~").rename(file)
        assert file.stat().st_ino == number
        edit.commit(mount)
        assert file.stat().st_ino == number


def test_numbers_are_never_used_again(mount):
    """Not after rm, after a rename over, after a commit, after discard."""
    seen, file = set(), mount.tensors / "fc.weight"

    def fresh():
        number = file.stat().st_ino
        assert number not in seen
        seen.add(number)

    fresh()
    for _ in range(3):
        file.unlink()
        file.write_bytes(bytes(64))
        fresh()
    (mount.tensors / ".new").write_bytes(bytes(64))
    (mount.tensors / ".new").rename(file)
    fresh()
    edit.commit(mount)
    file.unlink()
    edit.control(mount, "discard")
    fresh()
    file.rename(mount.tensors / "fc.weight~")
    edit.commit(mount)
    fresh()
    (mount.tensors / "fc.weight.json").unlink()
    number = (mount.tensors / "fc.weight").stat().st_ino
    edit.commit(mount)
    assert (mount.tensors / "fc.weight").stat().st_ino == number
    assert (mount.tensors / "fc.weight.json").stat().st_ino not in seen
    numbers = [(mount.tensors / name).stat().st_ino for name in os.listdir(mount.tensors)]
    assert len(numbers) == len(set(numbers))


def test_listing_and_stat_agree(mount):
    """readdir's numbers are those of stat, after all kinds of changes."""
    (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
    (mount.tensors / "new").write_bytes(b"x")
    (mount.tensors / "text").unlink()
    for folder in (mount.path, mount.tensors, mount / "metadata"):
        entries = list(os.scandir(folder))
        assert len(entries) == len({entry.name for entry in entries})
        for entry in entries:
            assert entry.inode() == os.lstat(entry.path).st_ino, entry.name
    (mount.tensors / "new").unlink()


# --- Deleted but open ---


@pytest.mark.parametrize("path", ["tensors/text", "tensors/fc.weight.json", "metadata/k", "metadata.json"])
def test_deleted_but_open(mount, path):
    text = (mount / path).read_bytes()
    with open(mount / path, "r+b") as file:
        (mount / path).unlink()
        assert file.read() == text
        file.seek(0)
        file.write(b"!")
        file.flush()
        file.seek(0)
        assert file.read() == b"!" + text[1:]
        assert os.fstat(file.fileno()).st_size == len(text)
        assert os.fstat(file.fileno()).st_nlink in (0, 1)


@pytest.mark.parametrize("end", ["commit", "discard"])
def test_deleted_but_open_at_the_end_of_edits(mount, end):
    """What a handle holds outlives the edits folder, also if nobody has read or written through it yet."""
    (mount.tensors / "text").write_bytes(b"x" * len(edit.TEXT))
    (mount.tensors / "pending").write_bytes(b"y" * 10000)
    time.sleep(0.1)  # the kernel releases the handles later, by itself
    with open(mount.tensors / "text", "r+b") as text, open(mount.tensors / "pending", "r+b") as pending:
        (mount.tensors / "text").unlink()
        (mount.tensors / "pending").unlink()
        edit.control(mount, end)
        assert not edit.edits_folder(mount.pack).exists()
        for file in (text, pending):  # what the kernel holds proves nothing
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert text.read() == b"x" * len(edit.TEXT)
        assert pending.read() == b"y" * 10000
        pending.seek(0)
        pending.write(b"z" * 20000)
        pending.flush()
        pending.seek(0)
        assert pending.read() == b"z" * 20000


def test_replaced_but_open(mount):
    with open(mount.tensors / "text", "rb") as file:
        (mount.tensors / ".new").write_bytes(b"new")
        (mount.tensors / ".new").rename(mount.tensors / "text")
        assert file.read() == edit.TEXT
        assert (mount.tensors / "text").read_bytes() == b"new"
        edit.change_sidecar(mount, "text", shape=[3])
        edit.commit(mount)
        file.seek(0)
        assert file.read() == edit.TEXT


def test_open_over_a_commit(mount):
    """Handles and maps stay valid, for reading and for writing, through two commits."""
    with open(mount.tensors / "text", "r+b", buffering=0) as file:
        with mmap.mmap(file.fileno(), 0) as pages:
            assert pages[:5] == b"alpha"
            for word in (b"first", b"other"):
                file.seek(0)
                file.write(word)
                edit.commit(mount)
                assert pages[:5] == word
                pages[:5] = b"pages"
                pages.flush()
                file.seek(0)
                assert file.read(5) == b"pages"
    edit.commit(mount)
    assert edit.book(mount.pack).tensor("text")[3] == b"pages" + edit.TEXT[5:]


def test_dirty_map_at_the_unmount(pack):
    """Stores through a shared map that nobody flushed."""
    with edit.edited(pack, log=[]) as mount:
        with open(mount.tensors / "text", "r+b") as file:
            pages = mmap.mmap(file.fileno(), 0)
        pages[:5] = b"dirty"
        pages.close()
    edit.check_pack(pack, edit.book(pack).change("text", data=b"dirty" + edit.TEXT[5:]))


# --- No stale caches ---


def test_sidecar_follows_the_tensor(mount):
    """Its text and its size, at each change, although the kernel may keep attributes for ever."""
    tensor, side = mount.tensors / "fc.weight", mount.tensors / "fc.weight.json"
    for size in (64, 0, 3, 12345678, 64):
        os.truncate(tensor, size)
        assert tensor.stat().st_size == size
        assert side.stat().st_size == len(side.read_bytes())
        assert edit.sidecar(mount, "fc.weight")["nbytes"] == size
        assert ("problem" in edit.sidecar(mount, "fc.weight")) == (size != 64)
        assert f"fc.weight\t\"F32\"\t4x4\t{size}\t-\n" in (mount / "index.tsv").read_text()
        assert (mount / "index.tsv").stat().st_size == len((mount / "index.tsv").read_bytes())


def test_sidecar_read_by_a_handle_that_is_open(mount):
    """An open handle may show the text of its open; the next open shows the new one."""
    with open(mount.tensors / "fc.weight.json", "rb") as file:
        first = file.read()
        os.truncate(mount.tensors / "fc.weight", 1)
        assert (mount.tensors / "fc.weight.json").read_bytes() != first
        os.truncate(mount.tensors / "fc.weight", 64)


def test_listings_after_changes(mount):
    def names():
        return set(os.listdir(mount.tensors))

    before = names()
    modified = mount.tensors.stat().st_mtime_ns
    (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
    assert names() == before - {"fc.weight"} | {"fc.w", "fc.w.json"}
    (mount.tensors / "fc.weight.json").unlink()
    assert names() == before - {"fc.weight", "fc.weight.json"} | {"fc.w", "fc.w.json"}
    edit.commit(mount)
    assert names() == before - {"fc.weight", "fc.weight.json"} | {"fc.w", "fc.w.json"}
    (mount.tensors / "fc.w").rename(mount.tensors / "fc.weight")
    edit.commit(mount)
    assert names() == before
    assert not (mount.tensors / "fc.w.json").exists()
    assert mount.tensors.stat().st_mtime_ns > modified


def test_discard_shows_the_pack_again(mount, pack):
    """Names, bytes, sizes, sidecars, keys; files that were open go on with what was discarded."""
    want = edit.book(pack)
    for name in os.listdir(mount.tensors):
        os.stat(mount.tensors / name)
    held = open(mount.tensors / "text", "r+b", buffering=0)  # pylint: disable=consider-using-with
    held.write(b"held!")
    (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
    (mount.tensors / "conv.bias").unlink()
    os.truncate(mount.tensors / "norm.gamma", 1)
    (mount.tensors / "new").write_bytes(b"x")
    (mount / "metadata.json").write_text("{}")
    (mount / "metadata/extra").write_text("x")
    edit.listing(mount)
    edit.control(mount, "discard")
    assert edit.status(mount)["edits"] == []
    assert edit.listing(mount) == edit.expected_listing(want)
    for name, dtype, shape, data, param_id in want.tensors:
        file = mount.tensors / edit.bpkref.encode_name(name)
        assert file.read_bytes() == data and file.stat().st_size == len(data)
        side = file.with_name(f"{file.name}.json")
        assert side.stat().st_size == len(side.read_bytes())
        shown = edit.sidecar(mount, file.name)
        assert (shown["dtype"], shown["shape"]) == (dtype, shape)
        assert str(shown["param_id"]) == str(param_id)
    for name in ("fc.w", "fc.w.json", "new"):
        assert code_of(os.stat, mount.tensors / name) == "ENOENT"
    held.close()
    assert not edit.edits_folder(pack).exists()
    (mount.tensors / "fc.weight").write_bytes(bytes(64))
    edit.commit(mount)
    edit.check_pack(pack, want.change("fc.weight", data=bytes(64)))


def test_copy_of_the_whole_mount(mount, folder):
    """cp -a of a mount with edits meets each file once, and diff finds nothing."""
    (mount.tensors / "fc.weight").rename(mount.tensors / "fc.w")
    (mount.tensors / "text").write_bytes(edit.TEXT.upper())
    assert run("cp", "-a", mount.path, folder / "copy").status == 0
    result = run("diff", "-r", "--no-dereference", mount.path, folder / "copy")
    assert (result.status, result.out) == (0, b"")
    shutil.rmtree(folder / "copy")


def test_errno_of_a_bad_command(mount):
    for command in ("commit now", "x", "commit --valid --all"):
        assert code_of(edit.control, mount, command) == "EINVAL"
