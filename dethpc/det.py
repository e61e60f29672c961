"""Where the command ``det`` begins: an interrupt while it is still being imported ends it without a traceback."""

from __future__ import annotations

import signal

_interrupted = signal.getsignal(signal.SIGINT)
if _interrupted is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    from dethpc.cli import main as det

    if _interrupted is not None:
        signal.signal(signal.SIGINT, _interrupted)
    det()
