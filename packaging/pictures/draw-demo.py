#!/usr/bin/env python3
"""Draws the picture of README's top: runs the commands of demo.sh on the demo pack, on a real mount, and shows what
they print as a terminal would.

    draw-demo.py BUILD >demo.svg

BUILD is the build directory. The pack is the same each time and so is what the commands print of it; the folder that
it is in is shown as /home/ada. Needs FUSE and a python3 with numpy.
"""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent
HOME = "/home/ada"
MARK = "--- next command ---"

COLUMN, LINE, SIZE = 8, 18, 13
LEFT, TOP, BOTTOM = 20, 62, 18
COLUMNS = 92
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
BACK, BAR, PLAIN, COMMAND, PROMPT = "#0d1117", "#21262d", "#9da7b3", "#f0f6fc", "#3fb950"
# What stands out in the output.
COLOURS = [
    (r'"[^"]*"(?=:)', "#79c0ff"),  # keys of JSON
    (r"^(?:pack|mounted|tensors|edited)\b(?=  )", "#79c0ff"),
    (r"(?<=: )(?:changed|new)$", "#e3b341"),
    (r"^DTYPE.*", "#79c0ff"),
]


def on_a_terminal(command, **options):
    """What COMMAND writes to a terminal of COLUMNS."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 50, COLUMNS, 0, 0))
    shown = bytearray()
    with subprocess.Popen(command, stdout=follower, stderr=follower, **options) as process:
        os.close(follower)
        with contextlib.suppress(OSError):  # EIO at the end
            while data := os.read(leader, 65536):
                shown.extend(data)
    os.close(leader)
    text = shown.decode().replace("\r\n", "\n")
    if process.returncode != 0:
        sys.exit(f"draw-demo.py: a command failed:\n{text}")
    return text


def perform(commands, build):
    """What each of COMMANDS prints, in a fresh folder with model.bpk and mnt."""
    with tempfile.TemporaryDirectory(prefix="bpk-demo-", dir="/var/tmp") as folder:
        place = pathlib.Path(folder)
        (place / "mnt").mkdir()
        subprocess.run([sys.executable, HERE.parent / "make-demo.py", place / "model.bpk"], check=True)
        programs = f"{build / 'fs'}:{build / 'src/cli'}"
        lines = [f"python3() {{ {shlex.quote(sys.executable)} \"$@\"; }}"]
        for command in commands:
            lines += [command, f"echo {shlex.quote(MARK)}"]
        lines.append("trap - EXIT")
        script = "trap 'fusermount3 -u -z mnt' EXIT\n" + "\n".join(lines) + "\n"
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C"}
        said = on_a_terminal(["sh", "-eu", "-c", script], cwd=place, env=environment)
        return said.replace(folder, HOME).split(f"{MARK}\n")[:-1]


def pieces(line):
    """A line of output as (column, text, colour)."""
    marked = [PLAIN] * len(line)
    for pattern, colour in COLOURS:
        for found in re.finditer(pattern, line):
            marked[found.start() : found.end()] = [colour] * len(found[0])
    start = 0
    for end in range(1, len(line) + 1):
        if end == len(line) or marked[end] != marked[start]:
            if line[start:end].strip():
                yield start, line[start:end], marked[start]
            start = end


def rows(commands, outputs):
    """The lines of the screen, each as its pieces."""
    for command, output in zip(commands, outputs):
        yield [(0, "$", PROMPT), (2, command, COMMAND)]
        for line in output.splitlines():
            yield list(pieces(line))


def draw(screen):
    lines = []
    y = TOP
    for row in screen:
        for column, text, colour in row:
            indent = len(text) - len(text.lstrip())
            text = text.strip()
            if column + indent + len(text) > COLUMNS:
                sys.exit(f"draw-demo.py: wider than {COLUMNS} columns: {text}")
            # The width is said, too: every font has columns then.
            lines.append(
                f'<text x="{LEFT + COLUMN * (column + indent)}" y="{y}" fill="{colour}" '
                f'textLength="{COLUMN * len(text)}" xml:space="preserve">{escape(text)}</text>'
            )
        y += LINE
    width, height = 2 * LEFT + COLUMN * COLUMNS, y - LINE + BOTTOM
    lights = "".join(
        f'<circle cx="{20 + 20 * i}" cy="18" r="6" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{FONT}" font-size="{SIZE}">',
            "<title>A terminal: a pack is mounted, looked at, edited, committed and unmounted</title>",
            f'<rect width="{width}" height="{height}" rx="10" fill="{BACK}"/>',
            f'<path d="M0 36V10A10 10 0 0 1 10 0H{width - 10}A10 10 0 0 1 {width} 10V36Z" fill="{BAR}"/>',
            lights,
            f'<text x="{width / 2:g}" y="23" fill="{PLAIN}" text-anchor="middle">ada: ~</text>',
            *lines,
            "</svg>\n",
        ]
    )


def main(arguments):
    if len(arguments) != 1:
        sys.exit("usage: draw-demo.py BUILD >demo.svg")
    commands = (HERE / "demo.sh").read_text(encoding="utf-8").splitlines()
    outputs = perform(commands, pathlib.Path(arguments[0]).resolve())
    sys.stdout.write(draw(rows(commands, outputs)))


if __name__ == "__main__":
    main(sys.argv[1:])
