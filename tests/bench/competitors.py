"""Who takes part, and how each is mounted: in the foreground, as a child that is ended and waited for."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from data import Missing, make_image
from interrupts import held
from results import BPKFS, KERNEL_EROFS, NATIVE

BUILD = pathlib.Path(os.environ.get("BPK_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build-bench"))
PROGRAM, BPK = BUILD.absolute() / "fs/bpkfs", BUILD.absolute() / "src/cli/bpk"
PATIENCE = 120  # seconds after which a mount counts as failed

live = set()  # the daemons that were started and not waited for


class Mounted:
    """`path` is where the content is, `top` the mount point, `took` the seconds of the mount, `pid` its daemon's; None
    where there is none."""

    def __init__(self, path, top=None, took=None, pid=None):
        self.path, self.top, self.took, self.pid = path, top, took, pid


def mount_points():
    """All of the machine, in the order in which they were mounted."""
    table = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return [line.split(" ")[4] for line in table.splitlines()]


def is_mounted(path):
    return str(path) in mount_points()


def unmount(path):
    """As often as it takes: others on the machine may look in for a moment."""
    plain = ["umount", path] if os.geteuid() == 0 else ["fusermount3", "-u", path]
    lazy = ["umount", "-l", path] if os.geteuid() == 0 else ["fusermount3", "-u", "-z", path]
    for attempt in range(30):
        if not is_mounted(path):
            return
        subprocess.run(plain if attempt < 29 else lazy, stderr=subprocess.DEVNULL, check=False)
        time.sleep(0.02 * attempt * is_mounted(path))


def reap(process):
    """Waits for a daemon whose mount is gone; one that stays is killed."""
    for stop in (None, signal.SIGTERM, signal.SIGKILL):
        if stop:
            process.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
            break
    live.discard(process)


def take_down(base):
    """What an interrupt has left of mounts below BASE, the folder of this run."""
    for process in live.copy():
        process.send_signal(signal.SIGTERM)  # one that has not mounted yet must not do it after this
    for point in reversed(mount_points()):
        if point.startswith(f"{base}/"):
            unmount(point)
    for process in live.copy():
        reap(process)


def wait_until_ready(process, mnt, device, log):
    """Until a stat of the mount point is answered by the new filesystem."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            if os.stat(mnt).st_dev != device:
                return
        if process.poll() is not None:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            raise Missing(f"ended with {process.returncode}: {said[-1] if said else 'no message'}")
        if time.monotonic() > deadline:
            raise Missing(f"did not mount within {PATIENCE} s")
        time.sleep(0.0002)


@contextlib.contextmanager
def daemon(folder, command, content="."):
    """COMMAND with the mount point appended as {} says; CONTENT is the folder below it that is measured."""
    mnt = pathlib.Path(tempfile.mkdtemp(prefix="mnt-", dir=folder))
    device = os.stat(mnt).st_dev
    words = [str(mnt) if word == "{}" else str(word) for word in command]
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        with held():
            # A session of its own: Ctrl-C is for us, and we unmount.
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            live.add(process)
        try:
            wait_until_ready(process, mnt, device, log)
            yield Mounted(mnt / content, mnt, time.perf_counter() - start, process.pid)
        finally:
            unmount(mnt)
            reap(process)
            mnt.rmdir()


@contextlib.contextmanager
def kernel_mount(folder, kind, image, options):
    """A filesystem of the kernel over a file."""
    mnt = pathlib.Path(tempfile.mkdtemp(prefix="mnt-", dir=folder))
    try:
        start = time.perf_counter()
        command = ["mount", "-t", kind, "-o", options, image, mnt]
        done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise Missing(done.stderr.decode(errors="replace").strip().splitlines()[0])
        yield Mounted(mnt, mnt, time.perf_counter() - start)
    finally:
        unmount(mnt)
        mnt.rmdir()


class Competitor:
    """`container` is the file whose pages are to be in the cache before a first touch, None for native files."""

    def __init__(self, name, container, mount):
        self.name, self.container, self.mount = name, container, mount


# name, program, image, words after the program; {} is the mount point, IMAGE the image
PEERS = [
    ("squashfuse_ll", "squashfuse_ll", "squashfs", ["-f", "IMAGE", "{}"]),
    ("erofsfuse", "erofsfuse", "erofs", ["-f", "IMAGE", "{}"]),
    ("fuse-zip", "fuse-zip", "zip", ["-f", "-r", "IMAGE", "{}"]),
    ("mount-zip", "mount-zip", "zip", ["-f", "IMAGE", "{}"]),
    ("fuse-archive", "fuse-archive", "zip", ["-f", "IMAGE", "{}"]),
    ("archivemount", "archivemount", "tar", ["-f", "-o", "readonly", "IMAGE", "{}"]),
    ("ratarmount", "ratarmount", "tar", ["-f", "IMAGE", "{}"]),
]


def bpkfs(folder, pack, *options, name=BPKFS, content="tensors"):
    words = [PROGRAM, "-f", *options, pack, "{}"]
    return Competitor(name, pack, lambda: daemon(folder, words, content))


def native(path):
    return Competitor(NATIVE, None, lambda: contextlib.nullcontext(Mounted(path)))


def peer(folder, image, program, words):
    words = [image if word == "IMAGE" else word for word in words]
    return lambda: daemon(folder, [program, *words])


def all_of(folder, pack, tree, on_missing):
    """bpkfs, native and all peers on the same content; ON_MISSING(name, why) hears of those that are not there."""
    found = [
        native(tree),
        bpkfs(folder, pack),
        bpkfs(folder, pack, "-o", "ro", name="bpkfs -o ro"),
    ]
    images = {}

    def image_of(kind):
        if kind not in images:
            images[kind] = folder / f"image.{kind}"
            make_image(kind, tree, images[kind])
        return images[kind]

    for name, program, kind, words in PEERS:
        try:
            if not shutil.which(program):
                raise Missing("not installed")
            image = image_of(kind)
            found.append(Competitor(name, image, peer(folder, image, program, words)))
        except Missing as reason:
            on_missing(name, str(reason))
    try:
        if os.geteuid() != 0:
            raise Missing("needs root")
        image = image_of("erofs")
        mount = lambda: kernel_mount(folder, "erofs", image, "loop,ro")  # noqa: E731
        found.append(Competitor(KERNEL_EROFS, image, mount))
    except Missing as reason:
        on_missing(KERNEL_EROFS, str(reason))
    return found


# --- What a daemon uses ---


def memory_of(pid):
    """Bytes resident now, and at most since the start."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    now, peak = (int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) * 1024 for key in ("VmRSS", "VmHWM"))
    return now, peak


def cpu_of(pid):
    """Seconds of CPU of all its threads."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text(encoding="utf-8").split()[0])
    return total / 1e9
