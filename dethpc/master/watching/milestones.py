"""Lines in a trial's log that say how its run begins and ends: in words for people, and after them Determined's, which scripts look
for."""

from __future__ import annotations

from typing import NamedTuple

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.log_policies import against_retrying
from dethpc.domain.facts import Attempt, Run
from dethpc.domain.ports import JobRecord
from dethpc.engine import events
from dethpc.engine.trials import NO_RETRY
from dethpc.rundir.started import Started

WAITS = "HPC job waiting to be scheduled"


class Milestone(NamedTuple):
    level: str
    message: str


def of_start(run: Run, k: int, started: Started) -> Milestone:
    nodes = ", ".join(started.nodes)
    if run.experiment_id is None:
        return Milestone("INFO", f"Started on {nodes}")
    return Milestone("INFO", f"Started on {nodes} (New trial runner in (container {run.id}.{k}) on agent {nodes})")


def of_going_on(run: Run, started: Started, before: Attempt | None) -> Milestone | None:
    """Where a trial goes on, and why it had stopped. ``before``: its last attempt; None for its first."""
    if before is None:
        return None
    job = started.job_id or run.scheduler_job_id
    why = before.reason or (before.end.value.replace("_", " ").lower() if before.end else "its end is not known")
    got = "" if before.last_steps is None else f" at step {before.last_steps}"
    if run.experiment_id is None:
        return Milestone("INFO", f"The task begins again{f' in job {job}' if job else ''}; before, it ended: {why}")
    begins = f"goes on from step {started.resumed_steps}" if started.resumed_from else "begins again at step 0"
    return Milestone("INFO", f"The trial {begins}{f' in job {job}' if job else ''}; before, it ended{got}: {why}")


def of_end(report: EndReport | None, record: JobRecord | None) -> Milestone | None:
    """None where no process is known to have ended: its node was lost, or it never began."""
    code = report.exit_code if report is not None else None
    if code is None and record is not None:
        code = 128 + record.signal if record.signal else record.exit_code
    if code is None or (report is None and code == 0):
        return None  # a batch script that exits with 0 and leaves no report has started nothing
    if code == 0:
        return Milestone("INFO", "Ended with exit code 0 (resources exited successfully with a zero exit code)")
    failed = f"failed with non-zero exit code: {code}"
    return Milestone("ERROR", f"Exited with exit code {code} (resources {failed}; container {failed})")


def of_no_retry(ended: events.AttemptEnded) -> Milestone | None:
    """None where the attempt did not fail by itself, or no line of its log speaks against another."""
    report, match = ended.report, against_retrying(ended.matched)
    if match is None or report is None or report.finished or report.acked or report.stop_reason:
        return None
    return Milestone("ERROR", f"{NO_RETRY}: {match.cause}")
