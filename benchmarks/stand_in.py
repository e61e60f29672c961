"""A scheduler that is not there: what benchmarks of the master alone put in the place of Slurm."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import ArrayRequest, JobRecord, JobRequest, NodeInfo, PoolInfo, Prospect, QueuedJob
from dethpc.rundir.claim import claim
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from dethpc.rundir.layout import AttemptDir


class StandIn:
    """Knows one pool of one node with so many ``slots``, and no job. Subclasses say what becomes of jobs."""

    kind, settle = "slurm", 0.0
    identity: str = "slurm:stand-in@here:0"

    def __init__(self, slots: int) -> None:
        self._slots, self._ids = slots, itertools.count(1)

    def started(self, home: Home, job: JobRequest) -> tuple[str, AttemptDir]:
        """The id of a new job of the run, which has claimed it and begun its first attempt."""
        job_id, run_dir = str(next(self._ids)), home.run(job.run_id)
        assert claim(run_dir, job_id)
        attempt = run_dir.attempt(0)
        attempt.make()
        write_json(attempt.started, {"job_id": job_id, "nodes": ["node1"], "at": time.time()})
        return job_id, attempt

    def prospect(self, script: Path, env: Mapping[str, str], folder: Path) -> Prospect:
        return Prospect()

    largest_array = 0

    def submit_array(self, array: ArrayRequest) -> list[str]:
        raise NotImplementedError

    def submit(self, job: JobRequest) -> str:
        raise AssertionError("nothing is to be submitted")

    def jobs(self) -> dict[str, JobRecord]:
        return {}

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        return {}

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        return []

    def cancel(self, job_ids: Sequence[str]) -> None: ...

    def requeue(self, job_id: str) -> None: ...

    def nice(self, values: Mapping[str, int]) -> None: ...

    def start_now(self, job_ids: Sequence[str]) -> None: ...

    def element(self, number: str) -> str | None: ...

    def pools(self) -> list[PoolInfo]:
        return [PoolInfo("default", "default", 1, self._slots, 0, "cpu", default=True)]

    def nodes(self) -> list[NodeInfo]:
        return [NodeInfo("node1", NodeState.IDLE, self._slots, 0, ("default",), "cpu", cpus=self._slots)]

    def queue(self, partition: str) -> list[QueuedJob]:
        return []
