"""Ordinary programs on a mounted pack: they read the tensors' bytes, list, walk, copy, archive; nothing can be written.

The pack has tensors of many sizes around the edges of pages and of the kernel's largest read.
"""

import concurrent.futures
import ctypes
import errno
import hashlib
import mmap
import os
import random
import shutil
import stat
import struct
import subprocess
import tarfile

import numpy
import pytest

from bpkref import build
from conftest import ENVIRONMENT, code_of, mounted, need_tool, run

SIZES = [0, 1, 255, 256, 257, 4095, 4097, (1 << 20) + 3, 40 << 20]
NEEDLE = b"a needle in the haystack"


def content(size):
    data = random.Random(size).randbytes(size)
    return data[: size // 2] + NEEDLE + data[size // 2 + len(NEEDLE) :] if size > 4000 else data


def name_of(size):
    return f"layer.{size}.weight"


@pytest.fixture(scope="module")
def tensors():
    return {name_of(size): content(size) for size in SIZES}


@pytest.fixture(scope="module")
def pack(tensors, tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "tools.bpk"
    rows = [(name, "U8", [len(data)], data, i) for i, (name, data) in enumerate(tensors.items())]
    path.write_bytes(build(rows, {"producer": "pytest"}, {"epoch": ("UInt", 3)}))
    os.utime(path, ns=(10**18, 1_234_567_890_123_456_789))
    return path


@pytest.fixture(scope="module")
def mnt(pack):
    with mounted(pack) as mount:
        yield mount.path


def tool(*command, **options):
    """Runs a tool that must succeed and say nothing on stderr; its output."""
    need_tool(command[0])
    result = run(*command, **options)
    assert (result.status, result.err) == (0, ""), command
    return result.out


def tensor(mnt, size):
    return mnt / "tensors" / name_of(size)


# --- Reading ---


def test_numpy(mnt, tensors):
    for name, data in tensors.items():
        array = numpy.fromfile(mnt / "tensors" / name, dtype="u1")
        assert array.tobytes() == data
    shape = numpy.fromfile(tensor(mnt, 40 << 20), dtype="<f4", offset=4096, count=100)
    assert shape.tobytes() == tensors[name_of(40 << 20)][4096:4496]


def test_memmap(mnt, tensors):
    for size in SIZES[1:]:
        array = numpy.memmap(tensor(mnt, size), mode="r", dtype="u1")
        assert array.shape == (size,) and array[-1] == tensors[name_of(size)][-1]
        assert array.tobytes() == tensors[name_of(size)]


def test_private_and_shared_maps_beyond_the_end(mnt):
    """The rest of the last page is zero; MAP_SHARED for reading works."""
    path = tensor(mnt, 257)
    with open(path, "rb") as file:
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with mmap.mmap(file.fileno(), 257, flags=flags, prot=mmap.PROT_READ) as view:
                assert view[:] == content(257)


def test_cat_cmp_and_hexdump(mnt, tensors, folder):
    for name, data in tensors.items():
        path, copy = mnt / "tensors" / name, folder / name
        copy.write_bytes(data)
        assert tool("cat", path) == data
        assert tool("cmp", path, copy) == b""
    assert tool("cat", *sorted((mnt / "tensors").glob("*.weight"))) == b"".join(tensors[n] for n in sorted(tensors))
    assert tool("hexdump", "-C", tensor(mnt, 256)) == tool("hexdump", "-C", folder / name_of(256))
    (folder / name_of(256)).write_bytes(bytes(256))
    assert run("cmp", tensor(mnt, 256), folder / name_of(256)).status == 1


def test_sha256sum(mnt, tensors):
    lines = tool("sha256sum", *(mnt / "tensors" / name for name in tensors)).decode().splitlines()
    assert [line.split()[0] for line in lines] == [hashlib.sha256(data).hexdigest() for data in tensors.values()]


@pytest.mark.parametrize("block", [1, 7, 255, 4096, 65537, (1 << 20) - 1, 3 << 20])
@pytest.mark.parametrize("size", [257, (1 << 20) + 3, 40 << 20])
def test_dd_with_odd_blocks(block, size, mnt, tensors):
    if size // block > 50_000:
        size = 4097
    data, skip = tensors[name_of(size)], min(3, size // block)
    out = tool("dd", f"if={tensor(mnt, size)}", f"bs={block}", f"skip={skip}", "status=none")
    assert out == data[skip * block :]


def test_direct_io(mnt, tensors):
    """O_DIRECT is taken or refused with EINVAL, and never gives other bytes."""
    try:
        fd = os.open(tensor(mnt, 40 << 20), os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        assert error.errno == errno.EINVAL
        return
    with mmap.mmap(-1, 1 << 20) as buffer:
        assert os.preadv(fd, [buffer], 4096) == 1 << 20
        assert buffer[:] == tensors[name_of(40 << 20)][4096 : 4096 + (1 << 20)]
    os.close(fd)


def test_random_offsets(mnt, tensors):
    chance = random.Random(5)
    for size in SIZES:
        fd = os.open(tensor(mnt, size), os.O_RDONLY)
        for _ in range(200):
            at, count = chance.randint(0, size + 10), chance.choice([1, 100, 4096, 200_000])
            assert os.pread(fd, count, at) == tensors[name_of(size)][at : at + count]
        assert os.pread(fd, 10, size) == os.pread(fd, 10, 1 << 40) == os.pread(fd, 10, (1 << 63) - 4096) == b""
        assert os.lseek(fd, 0, os.SEEK_END) == size
        os.close(fd)


def test_parallel_readers(pack, tensors):
    """Eight at a time over a cold cache, each with the tensors in another order."""

    def read_all(mnt, seed):
        names = random.Random(seed).sample(sorted(tensors), len(tensors))
        assert all((mnt / "tensors" / name).read_bytes() == tensors[name] for name in names)
        return len(os.listdir(mnt / "tensors"))

    with mounted(pack) as mount, concurrent.futures.ThreadPoolExecutor(8) as pool:
        listed = list(pool.map(lambda seed: read_all(mount.path, seed), range(16)))
    assert listed == [2 * len(SIZES)] * 16


def test_parallel_processes(mnt, tensors):
    digest = hashlib.sha256(tensors[name_of(40 << 20)]).hexdigest().encode()
    command = ["sha256sum", tensor(mnt, 40 << 20)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) for _ in range(6)]
    assert all(process.communicate()[0].startswith(digest) for process in processes)


# --- Copying and archiving ---


def tree_of(top):
    """path -> content, target or None of everything below TOP."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, top)
            if os.path.islink(path):
                found[key] = os.readlink(path)
            else:
                found[key] = None if os.path.isdir(path) else hashlib.sha256(open(path, "rb").read()).digest()
    return found


def check_copy(copy, mnt):
    assert tree_of(copy) == tree_of(mnt)
    for path in (copy / "tensors" / name_of(257), copy / "metadata/producer"):
        assert path.stat().st_mtime_ns == 1_234_567_890_123_456_789


def test_cp_a(mnt, folder):
    tool("cp", "-a", mnt, folder / "copy")
    check_copy(folder / "copy", mnt)
    assert (folder / "copy/tensors" / name_of(40 << 20)).stat().st_size == 40 << 20
    assert not (folder / "copy/.bpkfs").exists()


@pytest.mark.parametrize("sparse", ["auto", "always", "never"])
def test_cp_sparse(sparse, mnt, folder):
    tool("cp", f"--sparse={sparse}", "-r", mnt, folder / "copy")
    assert tree_of(folder / "copy") == tree_of(mnt)


@pytest.mark.parametrize("option", ["--seek", "--sparse"])
def test_tar(option, mnt, folder):
    tool("tar", option, "--format=posix", "-C", mnt, "-cf", folder / "all.tar", ".")
    (folder / "out").mkdir()
    tool("tar", "-C", folder / "out", "-xpf", folder / "all.tar")
    assert tree_of(folder / "out") == tree_of(mnt)
    if option != "--sparse":
        with tarfile.open(folder / "all.tar") as archive:
            assert archive.getmember(f"./tensors/{name_of(257)}").size == 257
    check_copy(folder / "out", mnt)


def test_copytree_of_python(mnt, folder):
    shutil.copytree(mnt, folder / "copy", symlinks=True)
    check_copy(folder / "copy", mnt)


# --- Listing and walking ---


def test_find(mnt):
    expected = {os.path.join(mnt, key) for key in tree_of(mnt)} | {os.fspath(mnt)}
    assert set(tool("find", mnt, "-print0").decode().split("\0")[:-1]) == expected
    links = tool("find", mnt, "-type", "l").decode().splitlines()
    assert len(links) == 2 * len(SIZES) and all(os.path.exists(link) for link in links)
    assert tool("find", mnt / "tensors", "-size", "+39M").decode() == f"{tensor(mnt, 40 << 20)}\n"
    followed = tool("find", "-L", mnt / "tree", "-type", "f").decode().splitlines()
    assert len(followed) == 2 * len(SIZES)


def test_du(mnt):
    total = int(tool("du", "-s", "-B1", mnt).split()[0])
    apparent = int(tool("du", "-s", "-b", mnt).split()[0])
    assert sum(SIZES) <= total < sum(SIZES) + (1 << 20)
    assert sum(SIZES) <= apparent < sum(SIZES) + (1 << 20)


def test_grep(mnt):
    found = tool("grep", "-r", "-l", "-a", NEEDLE.decode(), mnt).decode().splitlines()
    assert sorted(found) == sorted(os.fspath(tensor(mnt, size)) for size in SIZES if size > 4000)
    assert tool("grep", "-r", "-h", "pytest", mnt / "metadata") == b"pytest\n"


def test_rg(mnt):
    need_tool("rg")
    found = tool("rg", "-l", "-a", NEEDLE.decode(), mnt).decode().splitlines()
    assert sorted(found) == sorted(os.fspath(tensor(mnt, size)) for size in SIZES if size > 4000)


def test_ls(mnt):
    lines = tool("ls", "-l", "--time-style=+%s", mnt / "tensors").decode().splitlines()[1:]
    sizes = {line.split()[6]: int(line.split()[4]) for line in lines}
    assert {name_of(size): size for size in SIZES}.items() <= sizes.items()
    assert {line.split()[5] for line in lines} == {"1234567890"}


def inode_numbers(mnt):
    numbers = {}
    for folder, folders, files in os.walk(mnt):
        for name in folders + files:
            path = os.path.join(folder, name)
            numbers[os.path.relpath(path, mnt)] = os.lstat(path).st_ino
        for entry in os.scandir(folder):
            assert entry.inode() == entry.stat(follow_symlinks=False).st_ino
    return numbers


def test_inode_numbers_are_unique_and_stable(mnt):
    numbers = inode_numbers(mnt)
    assert len(set(numbers.values())) == len(numbers) > 4 * len(SIZES)
    if os.geteuid() == 0:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("2")
    assert inode_numbers(mnt) == numbers
    listed = tool("ls", "-i", mnt / "tensors").decode().split()
    assert {n: int(i) for i, n in zip(listed[::2], listed[1::2])} == {
        k.removeprefix("tensors/"): v for k, v in numbers.items() if k.startswith("tensors/")
    }


# --- The kernel's way of listing ---

LIBC = ctypes.CDLL(None, use_errno=True)


def entries(fd, size):
    """(name, cookie of the place after it) of the entries from where FD stands, read by SIZE bytes."""
    buffer, found = ctypes.create_string_buffer(size), []
    while count := LIBC.getdents64(fd, buffer, ctypes.c_size_t(size)):
        assert count > 0, os.strerror(ctypes.get_errno())
        at = 0
        while at < count:
            _, cookie, length, _ = struct.unpack_from("<QqHB", buffer.raw, at)
            found.append((buffer.raw[at + 19 : at + length].split(b"\0")[0].decode(), cookie))
            at += length
    return found


@pytest.fixture(scope="module")
def large_pack(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.bpk"
    path.write_bytes(build([(f"block.{i}.weight", "U8", [1], b"x", None) for i in range(5000)]))
    return path


LARGE = {f"block.{i}.weight{end}" for i in range(5000) for end in ("", ".json")} | {".", ".."}


def test_listing_of_5000_tensors(large_pack):
    for size in (300, 4096, 1 << 20):
        with mounted(large_pack) as mount:
            fd = os.open(mount.path / "tensors", os.O_RDONLY | os.O_DIRECTORY)
            for _ in range(2):  # cold, then cached
                listed = entries(fd, size)
                names = [name for name, _ in listed]
                assert set(names) == LARGE and len(names) == len(LARGE)
                assert len({cookie for _, cookie in listed}) == len(listed)
                os.lseek(fd, 0, os.SEEK_SET)
            os.close(fd)


@pytest.mark.parametrize("place", ["tensors", "tree/block", ".", "tree/block/7", "metadata"])
def test_listing_restarts_at_any_place(place, large_pack):
    with mounted(large_pack) as mount:
        fd = os.open(mount.path / place, os.O_RDONLY | os.O_DIRECTORY)
        listed = entries(fd, 1 << 16)
        chance = random.Random(place)
        for at in [0, len(listed) - 1, *(chance.randrange(len(listed)) for _ in range(20))]:
            os.lseek(fd, listed[at][1], os.SEEK_SET)
            assert entries(fd, chance.choice([300, 4096])) == listed[at + 1 :]
        os.close(fd)


def test_telldir_and_seekdir(large_pack):
    """As a C program would: every hundredth place is remembered and found again, backwards."""

    class Dirent(ctypes.Structure):
        _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_ushort)]
        _fields_ += [("type", ctypes.c_ubyte), ("name", ctypes.c_char * 256)]

    LIBC.opendir.restype, LIBC.readdir.restype = ctypes.c_void_p, ctypes.POINTER(Dirent)
    LIBC.telldir.restype = ctypes.c_long
    with mounted(large_pack) as mount:
        stream = ctypes.c_void_p(LIBC.opendir(os.fsencode(mount.path / "tensors")))
        places, count = [], 0
        while True:
            position = LIBC.telldir(stream)
            entry = LIBC.readdir(stream)
            if not entry:
                break
            if count % 100 == 0:
                places.append((position, entry.contents.name))
            count += 1
        assert count == len(LARGE)
        for position, name in reversed(places):
            LIBC.seekdir(stream, ctypes.c_long(position))
            assert LIBC.readdir(stream).contents.name == name
        LIBC.rewinddir(stream)
        assert LIBC.readdir(stream).contents.name == places[0][1]
        LIBC.closedir(stream)


# --- What stat shows ---


def test_stat_fields(mnt, pack):
    of_pack = pack.stat()
    for folder, folders, files in os.walk(mnt):
        for name in [".", *files, *folders]:
            shown = os.lstat(os.path.join(folder, name))
            assert shown.st_mtime_ns == of_pack.st_mtime_ns
            assert (shown.st_uid, shown.st_gid, shown.st_nlink) == (of_pack.st_uid, of_pack.st_gid, 1)
            if stat.S_ISREG(shown.st_mode):
                assert shown.st_blocks == -(-shown.st_size // 512)
    assert os.lstat(mnt / "tree/layer/0/weight").st_size == len(os.readlink(mnt / "tree/layer/0/weight"))


@pytest.mark.parametrize("mode, of_folders", [(0o600, 0o700), (0o644, 0o755), (0o640, 0o750), (0o440, 0o550)])
def test_mode_follows_the_pack(mode, of_folders, folder):
    path = folder / "mode.bpk"
    path.write_bytes(build([("w", "U8", [1], b"x", None)], {"k": "v"}))
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    with mounted(path) as mount:
        for name in (".", "tensors", "tree", "metadata", ".bpkfs"):
            assert stat.S_IMODE((mount.path / name).stat().st_mode) == of_folders
        for name in ("tensors/w", "tensors/w.json", "metadata/k", "metadata.json", "index.tsv", ".bpkfs/status.json"):
            shown = (mount.path / name).stat()
            assert stat.S_IMODE(shown.st_mode) == mode
            assert (shown.st_uid, shown.st_gid) == (path.stat().st_uid, path.stat().st_gid)


def test_statfs_is_that_of_the_pack(mnt, pack):
    ours, theirs = os.statvfs(mnt), os.statvfs(pack)
    for field in ("f_bsize", "f_frsize", "f_blocks", "f_files"):
        assert getattr(ours, field) == getattr(theirs, field), field
    flags = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
    assert (ours.f_namemax, ours.f_flag & flags) == (255, flags)
    assert b"fuse.bpkfs" in tool("df", "-T", mnt)


# --- What is not there, and what cannot be done ---


WRITES = {
    "open": lambda m: os.open(tensor(m, 256), os.O_WRONLY),
    "open_rdwr": lambda m: os.open(tensor(m, 256), os.O_RDWR),
    "open_truncate": lambda m: os.open(m / "metadata.json", os.O_RDONLY | os.O_TRUNC),
    "create": lambda m: os.open(m / "tensors/new", os.O_CREAT | os.O_WRONLY),
    "truncate": lambda m: os.truncate(tensor(m, 256), 0),
    "mkdir": lambda m: os.mkdir(m / "new"),
    "rmdir": lambda m: os.rmdir(m / "metadata"),
    "unlink": lambda m: os.unlink(tensor(m, 256)),
    "rename": lambda m: os.rename(tensor(m, 256), m / "tensors/new"),
    "rename_out": lambda m: os.rename(m / "tensors", m / "new"),
    "symlink": lambda m: os.symlink("a", m / "tree/new"),
    "link": lambda m: os.link(tensor(m, 256), m / "tensors/new"),
    "mknod": lambda m: os.mknod(m / "new", stat.S_IFREG | 0o600),
    "chmod": lambda m: os.chmod(tensor(m, 256), 0o600),
    "chown": lambda m: os.chown(tensor(m, 256), os.geteuid(), -1),
    "utime": lambda m: os.utime(tensor(m, 256)),
    "setxattr": lambda m: os.setxattr(tensor(m, 256), "user.a", b"b"),
    "removexattr": lambda m: os.removexattr(tensor(m, 256), "user.a"),
}


@pytest.mark.parametrize("operation", WRITES)
def test_writes_are_refused(operation, mnt):
    assert code_of(WRITES[operation], mnt) == "EROFS"
    assert tensor(mnt, 256).read_bytes() == content(256)


MISSING = ["nothing", "layer.257.weight.json.json", "layer%2E257.weight", "%6Cayer.257.weight", "%6cayer.257.weight"]
MISSING += ["layer.257.weight~", ".layer.257.weight", "LAYER.257.weight", "layer.257.weight.", "%", " ", "50%", "%2f"]
MISSING = [f"tensors/{name}" for name in MISSING] + ["metadata/%70roducer", "metadata/Producer", "metadata/%61"]
MISSING += ["tree/layer/258", "tree/layer/257/weight.json.json", "tree/layer/257/@", "tree/layer.257", "nothing"]


@pytest.mark.parametrize("name", MISSING)
def test_other_spellings_are_not_there(name, mnt):
    assert code_of(os.lstat, mnt / name) == "ENOENT"
    assert code_of(open, mnt / name) == "ENOENT"


def test_names_that_are_no_utf8_are_not_there(mnt):
    for place in ("tensors", "metadata", "tree", "."):
        assert code_of(os.lstat, os.path.join(os.fsencode(mnt), place.encode(), b"\xff\xfe")) == "ENOENT"


@pytest.mark.parametrize("place", ["", "tensors/", "tree/", "metadata/", ".bpkfs/"])
def test_long_names(place, mnt):
    assert code_of(os.lstat, f"{mnt}/{place}{'n' * 255}") == "ENOENT"
    for length in (256, 300, 4000):
        assert code_of(os.lstat, f"{mnt}/{place}{'n' * length}") == "ENAMETOOLONG"


def test_wrong_kinds(mnt):
    assert code_of(os.lstat, tensor(mnt, 256) / "x") == "ENOTDIR"
    assert code_of(os.listdir, tensor(mnt, 256)) == "ENOTDIR"
    assert code_of(os.open, mnt / "tensors", os.O_WRONLY) in ("EISDIR", "EROFS")
    assert code_of(os.readlink, tensor(mnt, 256)) == "EINVAL"


def test_syncing_works(mnt):
    """A reader may ask for it: fsync and fdatasync of files and folders succeed."""
    for path in (tensor(mnt, 256), mnt, mnt / "tensors"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.fdatasync(fd)
        os.close(fd)
