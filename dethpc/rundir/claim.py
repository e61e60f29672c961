"""The claim of a run: the first job to create it is the only one that trains."""

from __future__ import annotations

import os
import time
from typing import Union

from dethpc.rundir.files import create_once, read_json, sealed
from dethpc.rundir.layout import RunDir


def claim(run_dir: Union[RunDir, str, os.PathLike[str]], job_id: str) -> bool:
    """Claim the run for scheduler job ``job_id``. True for the job that has it, even when it starts again after a
    requeue; False for every other job, which must then exit 0 at once.

    Raises: OSError; RunDirError when the claim is damaged.
    """
    run = run_dir if isinstance(run_dir, RunDir) else RunDir(run_dir)
    if create_once(run.claim, sealed({"job_id": str(job_id), "host": os.uname().nodename, "at": time.time()})):
        return True
    return claimed_by(run) == str(job_id)


def claimed_by(run: RunDir) -> Union[str, None]:
    """The scheduler's job id that holds the run, or None while nobody does."""
    held = read_json(run.claim)
    return None if held is None else str(held.get("job_id"))
