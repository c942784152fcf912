"""Editors that need a terminal: nano, vim and emacs as people use them, on a pseudo-terminal."""

import os
import pty
import re
import select
import shutil
import time

import pytest

import bpkedit as edit
from conftest import PATIENCE, missing

PATHS = {"metadata.json": "pytest", "tensors/fc.weight.json": '"param_id": 7', "tensors/text": "pytest"}
NEWS = {"pytest": "edited", '"param_id": 7': '"param_id": 8'}


class Terminal:
    """A program on a pseudo-terminal of 24 lines."""

    def __init__(self, *command, home):
        if not shutil.which(command[0]):
            missing(f"{command[0]} is not installed")
        self.seen, self.command = b"", command
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "TERM": "xterm", "HOME": str(home), "LINES": "24", "COLUMNS": "80"}
            os.execvpe(command[0], [*map(str, command)], environment)

    def read_some(self, seconds):
        """True if something came."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the program ended
            return False
        self.seen += data
        return bool(data)

    def expect(self, pattern):
        """Waits until PATTERN was shown since the last key."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, f"{self.command}: no {pattern!r} in {self.seen!r}"
            self.read_some(0.1)

    def settle(self):
        """Waits until nothing more is drawn."""
        while self.read_some(0.3):
            pass

    def type(self, keys):
        self.seen = b""
        os.write(self.fd, keys)

    def end(self):
        deadline = time.monotonic() + PATIENCE
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            self.read_some(0.05)
            if time.monotonic() > deadline:
                os.kill(self.pid, 9)
                os.waitpid(self.pid, 0)
                pytest.fail(f"{self.command} did not end: {self.seen!r}")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(ended[1])


def nano(file, old, new, home, *flags):
    terminal = Terminal("nano", "--ignorercfiles", *flags, file, home=home)
    terminal.expect(rb"Read \d+ lines")
    terminal.settle()  # keys that come before nano has set the terminal up are the terminal's own
    for keys, answer in (
        (b"\x1c", rb"Search \(to replace\)"),
        (old.encode() + b"\r", rb"Replace with"),
        (new.encode() + b"\r", rb"this instance"),
        (b"a", rb"occurrence"),
        (b"\x0f", rb"File Name to Write|Write to File"),
        (b"\r", rb"Wrote \d+ lines"),
    ):
        terminal.type(keys)
        terminal.expect(answer)
    terminal.type(b"\x18")
    return terminal.end()


def vim(file, old, new, home, *flags):
    terminal = Terminal("vim", "-u", "NONE", "-N", *flags, file, home=home)
    terminal.settle()
    terminal.type(f":%s/{old}/{new}/\r:w\r".encode())
    terminal.expect(rb"written")
    terminal.type(b":q\r")
    return terminal.end()


def emacs(file, old, new, home, *flags):
    terminal = Terminal("emacs", "-nw", "-Q", *flags, file, home=home)
    terminal.expect(rb"(?i)for information|metadata|fc\.weight|text")
    terminal.settle()
    terminal.type(b"\x1bxreplace-string\r")
    terminal.settle()
    terminal.type(old.encode() + b"\r" + new.encode() + b"\r")
    terminal.settle()
    terminal.type(b"\x18\x13")
    terminal.expect(rb"Wrote")
    terminal.type(b"\x18\x03")
    return terminal.end()


EDITORS = {
    "nano": (nano, [], []),
    "nano -B": (nano, ["-B"], ["~"]),
    "vim": (vim, [], []),
    "vim backup": (vim, ["--cmd", "set backup"], ["~"]),
    "emacs": (emacs, [], ["~"]),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", EDITORS)
def test_editor(folder, name, path):
    use, flags, leaves = EDITORS[name]
    pack = edit.make_pack(folder)
    want, old = edit.book(pack), PATHS[path]
    if path == "metadata.json":
        want.metadata["producer"] = "edited"
    elif path == "tensors/text":
        want.change("text", data=edit.TEXT.replace(b"pytest", b"edited"))
    else:
        want.change("fc.weight", param_id=8)
    with edit.edited(pack, log=[]) as mount:
        assert use(mount / path, old, NEWS[old], folder, *flags) == 0
        assert edit.listing(mount) == edit.expected_listing(want) | {f"{path}{end}" for end in leaves}
        edit.commit(mount)
        assert edit.status(mount)["problems"] == []
    edit.check_pack(pack, want)


def test_nano_is_told(folder):
    """JSON that is broken: nano shows the error and stays, and what was written can be mended."""
    pack = edit.make_pack(folder)
    with edit.edited(pack, log=None) as mount:
        file = mount / "metadata.json"
        terminal = Terminal("nano", "--ignorercfiles", file, home=folder)
        terminal.expect(rb"Read \d+ lines")
        terminal.settle()
        terminal.type(b"oops")
        terminal.settle()
        terminal.type(b"\x0f")
        terminal.expect(rb"File Name to Write|Write to File")
        terminal.type(b"\r")
        terminal.expect(rb"Bad message")
        terminal.type(b"\x7f" * 4)
        terminal.settle()
        terminal.type(b"\x0f")
        terminal.expect(rb"File Name to Write|Write to File")
        terminal.type(b"\r")
        terminal.expect(rb"Wrote \d+ lines|on disk has changed")
        if b"changed" in terminal.seen:  # by its own first write
            terminal.type(b"y")
            terminal.expect(rb"Wrote \d+ lines")
        terminal.type(b"\x18")
        assert terminal.end() == 0
        assert edit.problems(mount) == {}
    edit.check_pack(pack, edit.book(pack))
