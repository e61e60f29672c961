"""What the master writes of runs that are over, and maybe folded: posted metrics, a script's last words, lines of a trial's log.

A file of a folded run is brought back before something is appended to it, into the run's folder of late files, where it counts in
place of the archive's until the trial is folded again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from dethpc.rundir.archives import LATE, late_of
from dethpc.rundir.files import open_regular, replacement
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir


@contextlib.contextmanager
def place(home: Home, run_id: str, which: Callable[[RunDir], Path]) -> Iterator[Path]:
    """Where to append to the file of a run that ``which`` names; within the block it stays there. Raises OSError."""
    with home.archives.lock:
        if home.archives.of(run_id) is None:
            yield which(home.run(run_id))
            return
        folder = home.run(run_id).path / LATE
        if os.path.lexists(folder) and late_of(folder.parent) is None:
            os.unlink(folder)
        path = which(RunDir(folder))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _bring_back(which(home.find(run_id)), path)
        yield path


def _bring_back(folded: Path, path: Path) -> None:
    try:
        source = open_regular(folded)
    except FileNotFoundError:
        return
    with source, replacement(path) as file:
        shutil.copyfileobj(source, file, 1 << 20)
