"""``python -m dethpc.master --home DIR``: the master in the foreground, its log in ``DIR/log/master.log``."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import sys
import time
from pathlib import Path

from dethpc.errors import DethpcError

_PR_SET_DUMPABLE = 4
COLLECTIONS = 50_000, 10, 10
"""When Python looks for garbage that counting references does not find (``gc.set_threshold``). A transaction of reports makes a
hundred thousand objects that go by themselves; to look at them again and again, as Python would, takes a quarter of the time."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dethpc.master", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", help="address to listen on; default: loopback, or every address on a Slurm cluster")
    parser.add_argument("--port", type=int, default=0, help="default: any free port")
    parser.add_argument("--site", type=Path, help="site configuration; default: the first one found")
    parser.add_argument("--rebuild", action="store_true", help="recreate the database from shared_fs, then exit")
    parser.add_argument("--check", action="store_true", help="print as JSON how the database differs from shared_fs")
    parser.add_argument("--mend", action="store_true", help="with --check: first write damaged change logs again")
    options = parser.parse_args()
    os.umask(0o077)  # of this process alone: who calls serve() or rebuild() keeps their own
    _keep_to_itself()
    try:
        if options.rebuild:
            return _rebuild(options.home, options.site)
        if options.check:
            return _check(options.home, options.site, mend_first=options.mend)
        # Before anything is imported: to look through that again and again takes a tenth of the start.
        gc.set_threshold(*COLLECTIONS)
        from dethpc.master.serve import serve

        serve(options.home, options.host, options.port, options.site)
    except (DethpcError, OSError) as error:
        print(f"det: error: {error}{_advice(error)}", file=sys.stderr)
        return 1
    return 0


def _keep_to_itself() -> None:
    """What it knows gets into no core dump, nor do passwords of clients get into the environment of what it starts.

    RLIMIT_CORE would go on to jobs, by sbatch. This ends where another program begins: a training dumps core as its user wants.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for name in [name for name in os.environ if name.startswith("DET_")]:
        del os.environ[name]


def _advice(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f": it must be yours; try chmod u+rw {error.filename}"
    if isinstance(error, IsADirectoryError):
        return f": a file belongs there; rm -r {error.filename2 or error.filename}"
    return ""


def _check(home: Path, site: Path | None, *, mend_first: bool) -> int:
    from dethpc.master.check import check, mend

    mended = [str(path) for path in mend(home, site)] if mend_first else []
    experiments, differences = check(home, site)
    entries = [difference.to_json() for difference in differences]
    print(json.dumps({"experiments": experiments, "differences": entries, "mended": mended}))
    return 0


def _rebuild(home: Path, site: Path | None) -> int:
    """1: something that has files could not be recreated."""
    from dethpc.master.rebuild import rebuild, sentences

    shown = [0.0]

    def progress(done: int, of: int) -> None:
        if time.monotonic() - shown[0] >= (0.2 if sys.stderr.isatty() else 10.0):
            shown[0] = time.monotonic()
            begin, end = ("\r", "") if sys.stderr.isatty() else ("", "\n")
            print(f"{begin}{done} of {of} experiments", end=end, file=sys.stderr, flush=True)

    recreated, old_database = rebuild(home, site, progress)
    if shown[0] and sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    first, *problems = sentences(recreated)
    print(first)
    if old_database is not None:
        print(f"the old database is kept: {old_database}")
    for problem in problems:
        print(f"det: warning: {problem}", file=sys.stderr)
    return 0 if recreated.complete else 1


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a command of the scheduler that hangs keeps nobody waiting
