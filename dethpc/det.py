"""Where the command ``det`` begins: an interrupt while it is still being imported ends it without a traceback."""

from __future__ import annotations

import os
import signal
import sys

_interrupted = signal.getsignal(signal.SIGINT)
if _interrupted is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    try:
        from dethpc.cli import main as det
    except ModuleNotFoundError as error:
        if error.name != "dethpc.cli":
            raise
        _outside_the_bundle()
        raise
    if _interrupted is not None:
        signal.signal(signal.SIGINT, _interrupted)
    det()


def _outside_the_bundle() -> None:
    """In a job, the bundle of what runs on nodes comes first on PYTHONPATH, and has no command line: begin again with the package
    that is installed beside this ``det``, in the home that the job belongs to. Returns where no bundle is in the way."""
    bundle = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in paths if not (path + os.sep).startswith(bundle + os.sep)]
    if others == paths:
        return
    os.environ["PYTHONPATH"] = os.pathsep.join(others)
    home = os.path.dirname(os.path.dirname(bundle))
    if os.path.exists(os.path.join(home, "token")):  # whose jobs carry the harness: HOME/harness/BUNDLE.zip
        os.environ.setdefault("DETHPC_HOME", home)
    os.execv(sys.executable, [sys.executable, *sys.argv])
