"""Whether a listed job is a run's. Slurm gives job ids again after it has lost its state, so the job's name must match, too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from dethpc.domain.ids import earlier_job_name, element_of, job_name, run_of_job
from dethpc.domain.ports import JobRecord
from dethpc.errors import RunDirError
from dethpc.master.submitting.arrays import Arrays
from dethpc.master.submitting.hand_over import SUBMITTING
from dethpc.master.watching.live_runs import LiveRun
from dethpc.rundir.files import open_regular, read_json
from dethpc.rundir.home import Home

_LONGEST_SCRIPT = 16 << 20
_JOB_NAME = re.compile(r"^#SBATCH --job-name=(\S+)$", re.MULTILINE)


class JobIdentity:
    def __init__(self, home: Home, cluster_id: str, arrays: Arrays) -> None:
        self._home, self._cluster_id, self._arrays = home, cluster_id, arrays

    def record(self, live: LiveRun, listed: Mapping[str, JobRecord]) -> JobRecord | None:
        """What is listed under the run's job id, if it is the run's job."""
        record = listed.get(live.run.scheduler_job_id or "")
        return record if record is not None and self.owns(live, record) else None

    def owns(self, live: LiveRun, record: JobRecord) -> bool:
        """Whether the job was submitted for the run, or for an earlier one that handed it over."""
        if (record.job_id, record.name) == live.known_job:
            return True
        if not self.carries(record, live.run.id):
            return False
        live.known_job = record.job_id, record.name
        return True

    def carries(self, record: JobRecord, run_id: str) -> bool:
        """As ``owns``, for a run that may have ended."""
        return self.submitted_for(record) == run_id or self._handed_over(record, run_id)

    def submitted_for(self, record: JobRecord) -> str:
        """The id of the run; empty when it is no job of this cluster's."""
        if element_of(record.job_id) is not None:
            return self._arrays.run_of(record)
        return run_of_job(self._cluster_id, record.name)

    def names(self, run_id: str) -> list[str]:
        """Every name that a job of the run can have: its script says which, as an element of an array it has the array's, and
        an earlier release may have submitted one, too.

        Raises OSError: without the script, a job under an experiment's earlier name could be missed."""
        try:
            with open_regular(self._home.find(run_id).script) as file:
                script = file.read(_LONGEST_SCRIPT).decode(errors="replace")
        except FileNotFoundError:
            script = ""
        match = _JOB_NAME.search(script)
        array = ""
        with contextlib.suppress(RunDirError):
            array = str((read_json(self._home.run(run_id).path / SUBMITTING) or {}).get("name") or "")
        own = match[1] if match else job_name(self._cluster_id, run_id)
        return [name for name in (own, earlier_job_name(self._cluster_id, run_id), array) if name]

    def _handed_over(self, record: JobRecord, run_id: str) -> bool:
        """Follow the ``next`` files from the run that the job was submitted for."""
        carrier, seen = self.submitted_for(record), set[str]()
        while carrier and carrier != run_id and carrier not in seen:
            seen.add(carrier)
            try:
                script = (read_json(self._home.find(carrier).next) or {}).get("script")
            except (OSError, RunDirError, ValueError):
                return False
            carrier = Path(str(script)).parent.name if script else ""
        return carrier == run_id
