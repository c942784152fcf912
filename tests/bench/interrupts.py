"""Ctrl-C and other signals that end the benchmark: as an exception, of which there is one only, so that no second one
cuts short the work that the first has set off; and not in the middle of what must be whole."""

import contextlib
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _State:
    held = False
    came = None


def _interrupt(number, _frame):
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    _State.came = number
    if not _State.held:
        raise SystemExit(128 + number)


def install():
    for number in SIGNALS:
        signal.signal(number, _interrupt)


@contextlib.contextmanager
def held():
    """A signal that comes within takes effect at the end."""
    _State.held = True
    try:
        yield
    finally:
        _State.held = False
    if _State.came:
        raise SystemExit(128 + _State.came)
