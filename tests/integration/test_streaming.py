"""What the kernel keeps of a pack whose tensors are read through a mount."""

import ctypes
import mmap
import os

import pytest

import bpkedit as edit
import bpkref
from conftest import mounted, need_root

MIB = 1 << 20
SIZE = 128 * MIB
libc = ctypes.CDLL(None, use_errno=True)


def resident(path):
    """Bytes of the file that are in the page cache."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                                             flags=mmap.MAP_PRIVATE) as area:
        pages = (len(area) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        known = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(area)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(area)), known) == 0
        del start
        return sum(page & 1 for page in known) * mmap.PAGESIZE


@pytest.fixture
def cold(folder):
    """A pack that is on the disk and not in the page cache."""
    pack = folder / "large.bpk"
    pack.write_bytes(bpkref.build([("w", "U8", [SIZE], os.urandom(MIB) * (SIZE // MIB), None)], {}, {}))
    fd = os.open(pack, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if resident(pack) > MIB:
        pytest.skip(f"the pages of a file in {folder} cannot be dropped")
    return pack


def read_all(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass


@pytest.mark.parametrize("options", [("ro",), ()], ids=["ro", "rw"])
def test_a_streamed_tensor_is_in_memory_once(cold, options):
    with mounted(cold, *options) if options else edit.edited(cold) as mount:
        read_all(mount.path / "tensors/w")
        assert resident(mount.path / "tensors/w") == SIZE
        assert resident(cold) < 48 * MIB


def test_a_random_reader_keeps_the_pack_in_memory(cold):
    read_all(cold)
    with mounted(cold) as mount:
        fd = os.open(mount.path / "tensors/w", os.O_RDONLY)
        for i in range(2000):
            os.pread(fd, 4096, i * 7919 * 4096 % SIZE)
        os.close(fd)
        assert resident(cold) > SIZE - 16 * MIB


@pytest.mark.parametrize("options, kib", [(["readahead=64"], 64), (["readahead=1024"], 1024), ([], 256)])
def test_readahead_is_what_was_asked_for(folder, options, kib):
    need_root()
    pack = edit.make_pack(folder)
    with mounted(pack, *options) as mount:
        device = os.stat(mount.path).st_dev
        setting = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
        with open(setting, encoding="ascii") as file:
            assert int(file.read()) == kib
        assert (mount.path / "tensors/text").read_bytes() == edit.TEXT
