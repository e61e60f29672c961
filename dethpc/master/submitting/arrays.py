"""Job arrays: which element is which run. A folder of each says so before the scheduler hears of it, until its runs have ended.

``<home>/arrays/<id>`` holds ``array.json`` (``{"name", "runs", "at"}``, run ids in the order of their elements), the script that
every element begins with, and a link to each run's directory, named by the element's number. An array's id begins with that of its
first run, is never given again while that run lives, and stands in the name that its elements share.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from dethpc.domain.ids import element_of, run_of_job
from dethpc.domain.ports import ArrayRequest, JobRecord, JobRequest
from dethpc.errors import RunDirError
from dethpc.master.watching.live_runs import LiveRuns
from dethpc.rundir.files import read_json, sealed, write_json
from dethpc.rundir.home import Home
from dethpc.scheduler.slurm import arrays as scripts

log = logging.getLogger(__name__)

CONTENTS = "array.json"

EMPTY_POLLS = 2
"""How many polls in a row must find that nothing of an array is left before its folder goes: a listing may lack jobs."""


class Arrays:
    """``make`` is for any thread, everything else for the reconciler's."""

    def __init__(self, home: Home, cluster_id: str) -> None:
        self._home, self._cluster_id = home, cluster_id
        self._runs: dict[str, tuple[str, ...]] = {}  # array -> its runs
        self._left: dict[str, int] | None = None  # array -> polls that found nothing of it; None: not looked for yet

    def make(self, jobs: Sequence[JobRequest]) -> ArrayRequest:
        """Write the folder of an array of these jobs, which are alike. Raises OSError."""
        folder = self._new_folder(f"{jobs[0].run_id}x{len(jobs)}")
        name = folder.name + jobs[0].name.removeprefix(jobs[0].run_id)
        for index, job in enumerate(jobs):
            os.symlink(os.path.relpath(job.run_dir, folder), folder / str(index))
        script = folder / "array.sbatch"
        comment = f"runs {jobs[0].run_id} to {jobs[-1].run_id} of dethpc, {len(jobs)} in all"
        script.write_text(scripts.script(jobs[0].alike, name, comment, folder))
        runs = tuple(job.run_id for job in jobs)
        write_json(folder / CONTENTS, sealed({"name": name, "runs": runs, "at": time.time()}))
        self._runs[folder.name] = runs
        return ArrayRequest(name, script, folder, list(jobs))

    def _new_folder(self, id: str) -> Path:
        self._home.arrays.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = self._home.arrays / (id if number == 1 else f"{id}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                return folder
        raise AssertionError

    def drop(self, array: str) -> None:
        """Nothing of it will ever run."""
        self._runs.pop(array, None)
        shutil.rmtree(self._home.arrays / array, ignore_errors=True)

    def run_of(self, record: JobRecord) -> str:
        """The run that a job of this installation is an element for; empty where no array says so."""
        array, index = run_of_job(self._cluster_id, record.name), element_of(record.job_id)
        runs = self._of(array)
        return runs[index] if index is not None and index < len(runs) else ""

    def _of(self, array: str) -> tuple[str, ...]:
        if array not in self._runs:
            if not array or "/" in array:
                return ()
            try:
                held = read_json(self._home.arrays / array / CONTENTS)
            except (OSError, RunDirError) as error:
                log.warning("which runs are elements of array %s cannot be read: %s", array, error)
                return ()
            if held is None:
                return ()
            runs = held.get("runs")
            if not isinstance(runs, list) or not all(isinstance(run, str) for run in runs):
                log.warning(
                    "which runs are elements of array %s cannot be read: runs in %s is no list of ids", array, CONTENTS
                )
                return ()
            self._runs[array] = tuple(runs)
        return self._runs[array]

    @property
    def any_left(self) -> bool:
        """Whether there is something to clean up, now or later."""
        return bool(self._runs or self._left)

    def clean_up(self, runs: LiveRuns, listed: Iterable[JobRecord]) -> None:
        """Remove the folders of arrays whose runs have ended and of which the scheduler lists no job that may still start."""
        if self._left is None:
            with contextlib.suppress(OSError):
                self._left = dict.fromkeys(os.listdir(self._home.arrays), 0)
        remaining = self._left = {**dict.fromkeys(self._runs, 0), **(self._left or {})}
        if not remaining:
            return
        live = {
            run_of_job(self._cluster_id, job.name)
            for job in listed
            if job.state.live and element_of(job.job_id) is not None
        }
        for array, polls in list(remaining.items()):
            if array in live or any(runs.get(run) is not None for run in self._of(array)):
                remaining[array] = 0
            elif polls + 1 < EMPTY_POLLS:
                remaining[array] = polls + 1
            else:
                del remaining[array]
                self.drop(array)
