"""Writable mounts for the tests of edits: mounting, committing, and judging the pack that comes of it.

`with edited(pack, *options, status=0) as mount:` starts `bpkfs -f` without `-o ro`; the end of the block unmounts it
and demands that exit status, that the pack is still one that `bpkref` finds no fault with, and that nothing is left
beside it but, with status 3, its edits folder. `commit(mount)` writes to .bpkfs/control, `status(mount)` reads
status.json. A `Book` is what a pack says, so that a test can take the one from before, change it as the edit should
have, and compare it with the one after.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile

import bpkref
from conftest import BPKFS, ENVIRONMENT, Mount, check_lines, need_fuse

# Tensors as bpkref.build takes them. TEXT has the bytes that tools for texts are let loose on.
TEXT = b"alpha beta\nmade by pytest\ngamma\n" * 20
WEIGHT = bytes(range(256)) * 300
PARAM_ID = 9505838338724798577
TENSORS = [
    ("conv.weight", "F32", [64, 300], WEIGHT, PARAM_ID),
    ("conv.bias", {"Bool": "U8"}, [3], b"\1\0\1", None),
    ("fc.weight", "F32", [4, 4], bytes(range(64)), 7),
    ("text", "U8", [len(TEXT)], TEXT, 21),
    ("odd/na%me.json", "U8", [5], b"12345", 11),
    ("norm.gamma", "BF16", [8], bytes(range(16)), 12),
]
METADATA = {"producer": "pytest", "k": "v", "lines": "one\ntwo\n"}
SCALARS = {"epoch": ("UInt", 3), "lr": ("Float", 0.001)}


def make_pack(folder, tensors=None, metadata=None, scalars=None, name="model.bpk"):
    """A pack in FOLDER, by default of the tensors, metadata and scalars above."""
    path = folder / name
    path.write_bytes(
        bpkref.build(
            TENSORS if tensors is None else tensors,
            METADATA if metadata is None else metadata,
            SCALARS if scalars is None else scalars,
        )
    )
    return path


# --- What a pack says ---


@dataclasses.dataclass
class Book:
    """`tensors`: (name, dtype, shape, bytes, param_id) in the order of the data, as bpkref.build takes them."""

    tensors: list
    metadata: dict
    scalars: dict

    def index(self, name):
        return next(i for i, tensor in enumerate(self.tensors) if tensor[0] == name)

    def tensor(self, name):
        return self.tensors[self.index(name)]

    def change(self, tensor, **fields):
        """Changes fields of a tensor: name, dtype, shape, data, param_id. Returns self."""
        at = self.index(tensor)
        now = dict(zip(("name", "dtype", "shape", "data", "param_id"), self.tensors[at]))
        assert set(fields) <= set(now)
        self.tensors[at] = tuple({**now, **fields}.values())
        return self

    def drop(self, *names):
        self.tensors = [tensor for tensor in self.tensors if tensor[0] not in names]
        return self

    def add(self, name, dtype, shape, data, param_id=None):
        self.tensors.append((name, dtype, shape, data, param_id))
        return self


def book(path):
    """The Book of a pack."""
    pack = bpkref.read(path)
    tensors = sorted(pack.tensors.values(), key=lambda t: (t.start, t.end, t.name))
    rows = [(t.name, t.dtype, t.shape, t.bytes(), t.param_id) for t in tensors]
    return Book(rows, dict(pack.metadata), dict(pack.scalars))


def check_pack(path, expected):
    """The pack is what Burn's own writer makes of the Book EXPECTED, but for padding inside the metadata."""
    pack = bpkref.read(path)
    now = book(path)
    assert (now.metadata, now.scalars) == (expected.metadata, expected.scalars), f"{now.metadata} {now.scalars}"
    assert [t[0] for t in now.tensors] == [t[0] for t in expected.tensors]
    for tensor, wanted in zip(now.tensors, expected.tensors):
        assert tensor == wanted, f"{tensor} is not {wanted}"
    assert pack.problems == [] and all(t.problems == [] for t in pack.tensors.values())
    made = bpkref.build(expected.tensors, expected.metadata, expected.scalars)
    cbor = made[bpkref.HEADER.size : bpkref.HEADER.size + int.from_bytes(made[6:10], "little")]
    now = path.read_bytes()
    assert now[bpkref.HEADER.size :].startswith(cbor)
    if pack.metadata_end == bpkref.HEADER.size + len(cbor):  # not padded, as on filesystems that cannot clone
        assert now == made


# --- Mounts ---


class WritableMount(Mount):
    """A Mount without -o ro."""

    def __init__(self, pack, options):  # pylint: disable=super-init-not-called
        need_fuse()
        self.pack, self.user, self.status = pathlib.Path(pack), None, None
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="bpk-", dir="/var/tmp"))
        self.path, self.log = self.home / "mnt", self.home / "stderr"
        self.path.mkdir()
        flags = [f for option in options for f in ([option] if option.startswith("-") else ["-o", option])]
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(
                [BPKFS, "-f", *flags, self.pack, self.path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
            )

    def __truediv__(self, name):
        return self.path / name

    @property
    def tensors(self):
        return self.path / "tensors"


def edits_folder(pack):
    return pack.parent / f".{pack.name}.edits"


@contextlib.contextmanager
def edited(pack, *options, status=0, log=None):
    """A WritableMount, orderly ended. STATUS: what the daemon must end with.

    LOG: regular expressions of the lines that it must have said, or None for anything but a sanitizer's report.
    """
    mount = WritableMount(pack, options)
    try:
        mount.wait_for_mount()
        yield mount
        if mount.is_mounted():
            mount.unmount()
        ended, said = mount.wait(), mount.read_log()
        assert ended == status, f"bpkfs ended with {ended}, not {status}: {said}"
        assert "ERROR: " not in said and "runtime error" not in said, said
        if log is not None:
            check_lines(said, log)
        beside = {p.name for p in pack.parent.iterdir() if p.name.startswith(f".{pack.name}")}
        assert beside == ({edits_folder(pack).name} if status == 3 else set())
        bpkref.read(pack)
    finally:
        mount.clear()


def control(mount, command):
    """Writes to .bpkfs/control as `echo COMMAND >` does. OSError: the command's own."""
    fd = os.open(mount.path / ".bpkfs/control", os.O_WRONLY)
    try:
        os.write(fd, f"{command}\n".encode())
    finally:
        os.close(fd)


def commit(mount):
    control(mount, "commit")


def outcome(mount):
    """Why the last command failed, or nothing."""
    return (mount.path / ".bpkfs/control").read_text()


def status(mount):
    return json.loads((mount.path / ".bpkfs/status.json").read_text())


def problems(mount):
    """file -> reason, of status.json."""
    return {problem["file"]: problem["reason"] for problem in status(mount)["problems"]}


def check_clean(mount):
    """No edit is left, nor anything to say; scratch may be there."""
    now = status(mount)
    assert (now["edits"], now["problems"], outcome(mount)) == ([], [], "")
    assert now["last_commit"]


def listing(mount):
    """Every file of the mount that is not in tree/, by its path."""
    return {
        str(path.relative_to(mount.path))
        for folder in (mount.path, mount.tensors, mount / "metadata")
        for path in folder.iterdir()
        if not path.is_dir()
    }


def expected_listing(expected):
    """The listing of a mount without edits whose pack is the Book EXPECTED."""
    tensors = bpkref.file_names([tensor[0] for tensor in expected.tensors]).values()
    return {
        "metadata.json",
        "scalars.json",
        "index.tsv",
        *(f"tensors/{name}" for name in tensors),
        *(f"tensors/{name}.json" for name in tensors),
        *(f"metadata/{name}" for name in bpkref.file_names(expected.metadata).values()),
    }


def sidecar(mount, name):
    return json.loads((mount.tensors / f"{name}.json").read_text())


def write_sidecar(mount, name, dtype, shape, **more):
    (mount.tensors / f"{name}.json").write_text(json.dumps({"dtype": dtype, "shape": shape, **more}))


def change_sidecar(mount, name, **fields):
    """Rewrites a sidecar with some fields changed."""
    (mount.tensors / f"{name}.json").write_text(json.dumps({**sidecar(mount, name), **fields}))
