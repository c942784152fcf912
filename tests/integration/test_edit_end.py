"""The end of a mount: what goes into the pack, what stays beside it, and that each is said once."""

import contextlib
import os
import signal

import pytest

import bpkedit as edit
from conftest import check_lines


@pytest.fixture
def pack(folder):
    return edit.make_pack(folder)


@pytest.mark.parametrize(
    "path,text",
    [
        ("tensors/fc.weight.json", '{"dtype": "F32", "shape": [16]}'),
        ("metadata/k", "held\n"),
        ("metadata.json", '{"k": "held"}'),
        ("scalars.json", '{"lr": {"Bool": true}}'),
        ("tensors/text", "x" * 640),
    ],
)
def test_signal_while_a_file_is_open(pack, path, text):
    """It is in the pack, and the one line about it says that it is open."""
    want = edit.book(pack)
    mount = edit.WritableMount(pack, ["grace=1"])
    try:
        mount.wait_for_mount()
        held = os.open(mount / path, os.O_WRONLY | os.O_TRUNC)
        os.write(held, text.encode())
        mount.send(signal.SIGTERM)
        assert mount.wait() == 3
        check_lines(mount.read_log(), ["still open after 1 seconds", f"still open for writing: {path}$"])
        with contextlib.suppress(OSError):  # the mount is gone
            os.close(held)
    finally:
        mount.clear()
    assert not edit.edits_folder(pack).exists()
    if path == "tensors/fc.weight.json":
        want.change("fc.weight", shape=[16], param_id=None)
    elif path == "tensors/text":
        want.change("text", data=text.encode())
    elif path == "scalars.json":
        want.scalars = {"lr": ("Bool", True)}
    elif path == "metadata/k":
        want.metadata["k"] = "held"
    else:
        want.metadata = {"k": "held"}
    edit.check_pack(pack, want)
