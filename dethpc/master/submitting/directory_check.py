"""Checks that a run directory belongs to its run: files that another run left there are neither read nor overwritten."""

from __future__ import annotations

import json
from typing import Any

from dethpc.domain.facts import Run, Task, Trial
from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json
from dethpc.rundir.layout import RunDir


class Occupied(RunDirError):
    """Another run's files are in the place of a run."""


def check(run_dir: RunDir, cluster_id: str, run: Run, task: Task | None, trial: Trial | None) -> None:
    """Raises Occupied when the directory holds anything of another run, or of one that does not say whose it is; OSError.

    Once a run is prepared, its place is its own: it was found free then, and the database, which knows of every run that there are
    files of, gives no id twice. What its spec says otherwise is damage, which is nobody's word.
    """
    if run.token_sha256:
        return
    try:
        spec = read_json(run_dir.spec)
    except RunDirError:
        spec = None
    if spec is None:
        if run_dir.claim.exists() or run_dir.attempts():
            raise _occupied(run_dir, "a run that does not say whose it was")
    elif not _of_this_run(spec, cluster_id, run, task, trial):
        raise _occupied(
            run_dir, f"another run {spec.get('run')} (experiment {spec.get('queue_id') or 'without a uuid'})"
        )


def _of_this_run(spec: dict[str, Any], cluster_id: str, run: Run, task: Task | None, trial: Trial | None) -> bool:
    if spec.get("cluster_id") != cluster_id or spec.get("run") != run.id:
        return False
    if task is not None and spec.get("queue_id") not in (None, "", task.queue_id):  # empty: of an earlier release
        return False
    return trial is None or (spec.get("trial_id"), spec.get("trial_seed"), _text(spec.get("hparams"))) == (
        trial.id,
        trial.seed,
        _text(trial.hparams),
    )


def _text(value: Any) -> str:
    """As JSON, so that what was read equals what was written."""
    return json.dumps(json.loads(json.dumps(value)), sort_keys=True)


def _occupied(run_dir: RunDir, whose: str) -> Occupied:
    return Occupied(
        f"{run_dir.path} holds files of {whose}; move that directory away, then continue the trial in a new experiment"
    )
