"""The data of the benchmark: packs, the same content as native files, and the peers' images of it."""

import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import bpkwrite  # noqa: E402

MIB = 1 << 20
GIB = 1 << 30
BLOCK = os.urandom(16 * MIB + 4096)  # of which all content is made: no two tensors begin alike


def fill(fd, size, at=None):
    """Writes SIZE bytes that no filesystem can store as a hole, at AT or where the file stands."""
    done = 0
    while done < size:
        shift = (done // (16 * MIB)) * 64 % 4096
        piece = memoryview(BLOCK)[shift : shift + min(16 * MIB, size - done)]
        done += os.write(fd, piece) if at is None else os.pwrite(fd, piece, at + done)


def descriptors(tensors):
    """TENSORS is (name, bytes) in the order of the data. Returns CBOR of their descriptors, and their offsets."""
    found, offsets, end = {}, [], 0
    for i, (name, size) in enumerate(tensors):
        start = bpkwrite.ceil256(end)
        end = start + size
        offsets.append(start)
        found[name] = bpkwrite.descriptor("F32", [size // 4], start, end, 10**18 + i)
    return found, offsets


def write_pack(path, tensors, metadata=None, sparse=False):
    """A pack as Burn writes it; the file is as long as it says, and with SPARSE its tensors are holes."""
    found, offsets = descriptors(tensors)
    front = bpkwrite.raw_pack(bpkwrite.top(found, metadata or {"producer": "bench"}))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(fd, front)
        for (_, size), offset in zip(tensors, offsets):
            if not sparse:
                fill(fd, size, len(front) + offset)
        end = max((offset + size for (_, size), offset in zip(tensors, offsets)), default=0)
        os.ftruncate(fd, len(front) + end)
    finally:
        os.close(fd)


def sidecar(name, size, start, param_id):
    """As the mount shows it."""
    return (
        f'{{\n  "name": "{name}",\n  "dtype": "F32",\n  "shape": [{size // 4}],\n  "param_id": "{param_id}",\n'
        f'  "nbytes": {size},\n  "data_offsets": [{start}, {start + size}],\n  "numpy": "<f4"\n}}\n'
    ).encode()


def write_native(folder, tensors):
    """The files that a mount of the pack has in tensors/."""
    _, offsets = descriptors(tensors)
    folder.mkdir(parents=True)
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        for i, ((name, size), start) in enumerate(zip(tensors, offsets)):
            fd = os.open(name, flags, 0o644, dir_fd=where)
            fill(fd, size)
            os.close(fd)
            fd = os.open(f"{name}.json", flags, 0o644, dir_fd=where)
            os.write(fd, sidecar(name, size, start, 10**18 + i))
            os.close(fd)
    finally:
        os.close(where)


class Missing(Exception):
    """A competitor cannot take part; the text says why."""


def make_image(kind, folder, path):
    """FOLDER, whole and uncompressed, as a file of the peers' kind: "squashfs", "erofs", "zip" or "tar"."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for where, _, names in os.walk(folder):
                for name in names:
                    full = os.path.join(where, name)
                    archive.write(full, os.path.relpath(full, folder))
        return
    command = {
        "squashfs": ["mksquashfs", folder, path, "-noI", "-noD", "-noF", "-noX", "-no-progress", "-quiet"],
        "erofs": ["mkfs.erofs", path, folder],
        "tar": ["tar", "-cf", path, "-C", folder, "."],
    }[kind]
    if not shutil.which(command[0]):
        raise Missing(f"{command[0]} is not installed")
    made = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if made.returncode != 0:
        last = (made.stderr.decode(errors="replace").strip().splitlines() or [f"status {made.returncode}"])[-1]
        raise Missing(f"{command[0]}: {last}")


def warm_memory(size):
    """Touches SIZE bytes once: on a virtual machine a page that nobody had costs more than what is measured.

    A host takes back what is free for some seconds, so that this comes right before a measure.
    """
    with mmap.mmap(-1, size) as memory:
        while memory.tell() + MIB <= size:
            memory.write(BLOCK[:MIB])


def read_all(path):
    """Brings a file into the page cache."""
    buffer = bytearray(MIB)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
