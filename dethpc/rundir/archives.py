"""Names of folded trials' archives, and which trials are folded: ``runs/7.12.3.zip`` holds the files of runs 7.12.1 to 7.12.3.

``dethpc.rundir.folded`` reads them, ``dethpc.rundir.fold_writer`` writes them.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from pathlib import Path
from typing import NamedTuple, Optional

LATE = "late"
"""The folder in a run's directory with what the master wrote after the run was folded."""

PART, GOING = ".part", ".going"
"""What is added to the name of an archive that is being written, and of the directory of a folded run that is being removed."""

_MOST_RUNS = 100_000
_RUN = re.compile(r"(\d+)\.(\d+)\.(\d+)", re.ASCII)
_ARCHIVE = re.compile(r"(\d+)\.(\d+)\.(\d+)\.zip", re.ASCII)


class Trial(NamedTuple):
    experiment: int
    trial: int

    def run(self, number: int) -> str:
        return f"{self.experiment}.{self.trial}.{number}"


def trial_of(run_id: str) -> Optional[tuple[Trial, int]]:
    """The trial of a run, and the run's number there; None: no trial's run has such an id."""
    match = _RUN.fullmatch(run_id)
    return match and (Trial(int(match[1]), int(match[2])), int(match[3]))


def archive_of(run_id: str) -> str:
    """The name of the file that holds all runs of a trial, of which this is the last one."""
    return f"{run_id}.zip"


def runs_of(name: str) -> list[str]:
    """The ids of the runs that a file of this name holds; none where it is no such file."""
    match = _ARCHIVE.fullmatch(name)
    if match is None or int(match[3]) > _MOST_RUNS:
        return []
    return [Trial(int(match[1]), int(match[2])).run(number) for number in range(1, int(match[3]) + 1)]


def belongs_to_trial(name: str) -> bool:
    """Whether what has this name below ``runs`` is of a trial: a run's directory, an archive, or what is between the two."""
    plain = name.removesuffix(PART).removesuffix(GOING)
    return any(pattern.fullmatch(plain) for pattern in (_RUN, _ARCHIVE))


def late_of(run: Path) -> Optional[Path]:
    """The folder of late files in a run's directory; None: there is none. A link of its name, or a file, counts for nothing."""
    try:
        return run / LATE if stat.S_ISDIR(os.lstat(run / LATE).st_mode) else None
    except OSError:
        return None


class Archives:
    """Which trials of a home are folded. Any thread may ask.

    ``lock`` is held while an archive takes the place of directories, and by whoever writes into those of a run that is over.
    """

    def __init__(self, runs: Path) -> None:
        self.lock = threading.RLock()
        self._runs = runs
        self._last: dict[Trial, int] = {}
        self._listed_at: Optional[int] = None

    def of(self, run_id: str) -> Optional[Path]:
        """The archive that holds the run; None: it is not folded."""
        trial_and_number = trial_of(run_id)
        if trial_and_number is None:
            return None
        trial, number = trial_and_number
        if number > self._last.get(trial, 0) and (self._listed_at is None or not os.path.lexists(self._runs / run_id)):
            self._list()
        last = self._last.get(trial, 0)
        return self._runs / archive_of(trial.run(last)) if number <= last else None

    def last(self, trial: Trial) -> int:
        """The number of the trial's last run that is folded; 0: none is."""
        if self._listed_at is None:
            self._list()
        return self._last.get(trial, 0)

    def add(self, trial: Trial, last: int) -> None:
        self._last[trial] = max(last, self._last.get(trial, 0))

    def _list(self) -> None:
        """Another master may have folded, too."""
        try:
            changed_at = os.stat(self._runs).st_mtime_ns
            if changed_at == self._listed_at:
                return
            with os.scandir(self._runs) as there:
                names = [entry.name for entry in there if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return
        for name in names:  # a link or a pipe of such a name hides no run
            if match := _ARCHIVE.fullmatch(name):
                self.add(Trial(int(match[1]), int(match[2])), int(match[3]))
        self._listed_at = changed_at
