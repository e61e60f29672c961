"""What the scheduler predicts for an experiment's trials before any is submitted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.ports import Prospect, Scheduler
from dethpc.errors import ConfigError, Problem
from dethpc.master.submitting import job_environment

_SOON = 3600.0
"""Seconds. Of a start that is expected later its owner is told."""


def ask(scheduler: Scheduler, script: str, folder: Path) -> Prospect:
    """``script``: the text that a trial's job would have. ``folder``: where jobs may be submitted from."""
    if scheduler.kind == "local":
        return Prospect()
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix="prospect-", suffix=".sbatch") as file:
        file.write(script)
        file.flush()
        return scheduler.prospect(Path(file.name), job_environment.bare(), folder)


def notes(prospect: Prospect, config: ExperimentConfig) -> Iterator[str]:
    """What its owner should know. Raises ConfigError where no time mends what Slurm refuses."""
    pool = config.resources.resource_pool
    if prospect.refusal:
        where = "see the #SBATCH lines of the entrypoint, slurm.sbatch_args and the pool's own options"
        raise ConfigError([Problem("slurm", f"Slurm refuses such a job: {prospect.refusal}", where)])
    if prospect.hindrance:
        # --test-only does not tell drained nodes from a request that no node can meet: the submission does.
        yield (
            f"Slurm would not start such a job in pool {pool} at present: {prospect.hindrance}. Its trials wait if the nodes are "
            "only down or drained; if no node can ever meet the request, they end with this reason"
        )
    if prospect.start is not None and prospect.start > time.time() + _SOON:
        begins = time.strftime("%Y-%m-%d %H:%M", time.localtime(prospect.start))
        yield f"Slurm expects to start such a job in pool {pool} at {begins}"
