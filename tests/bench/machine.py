"""What the benchmark ran on: CPU, memory, kernel, filesystem, versions. And what room there is."""

import os
import pathlib
import re
import shutil
import subprocess

from competitors import PEERS, PROGRAM


def first_match(path, pattern):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(encoding="utf-8", errors="replace"), re.M)
    except OSError:
        return None
    return found[1] if found else None


def said(*command):
    """The first line with a digit of what a program says of itself."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.decode(errors="replace").splitlines()
    return next((line.strip() for line in lines if re.search(r"\d\.\d", line)), None)


def version_of_package(program):
    """What dpkg says: not every program knows its version."""
    path = shutil.which(program)
    owner = said_all("dpkg-query", "-S", os.path.realpath(path)) if path else None
    if not owner:
        return None
    return said_all("dpkg-query", "-W", "-f", "${Version}", owner.split(":")[0])


def said_all(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def filesystem_of(path):
    """The type of the filesystem that PATH is on."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        front, back = line.split(" - ", 1)
        if front.split(" ")[2] == wanted:
            return back.split(" ")[0]
    return said_all("stat", "-f", "-c", "%T", str(path)) or "unknown"


def buildtype():
    """Of the build that is measured."""
    options = PROGRAM.parents[1] / "meson-info/intro-buildoptions.json"
    return first_match(options, r'"name": "buildtype", "value": "(\w+)"') or "unknown"


def describe(path):
    memory = int(first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)") or 0) // 1024
    versions = {program: version_of_package(program) for _, program, _, _ in PEERS if shutil.which(program)}
    return {
        "cpu": first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$") or os.uname().machine,
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory / 1024:.0f} GiB",
        "kernel": os.uname().release,
        "system": first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)') or "unknown",
        "filesystem": filesystem_of(path),
        "bpkfs": said(PROGRAM, "--version") or "unknown",
        "build": buildtype(),
        "peers": {program: version or "unknown" for program, version in versions.items()},
    }


def in_a_line(machine):
    peers = ", ".join(f"{name} {version}" for name, version in machine["peers"].items())
    text = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']}, Linux {machine['kernel']}, "
        f"{machine['system']}, {machine['filesystem']}; {machine['bpkfs']}, {machine['build']} build"
    )
    return f"{text}; {peers}" if peers else text


def available_memory():
    return int(first_match("/proc/meminfo", r"^MemAvailable:\s+(\d+)") or 0) * 1024


def free_room(path):
    """Bytes, and files, that there is room for; filesystems without a number of files have 0 of them."""
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize, room.f_favail if room.f_files else 1 << 40
