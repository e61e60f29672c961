"""Trials over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple

from dethpc.client.session import Json, Session

_PAGE = 1000
_TRIALS = 10  # in one request for series: bounds what master and client hold at once
_THINNED = 50  # the same, of one metric with few points
_LONG = 600.0  # seconds; each of these trials may have reported a million times


def get(session: Session, trial: int) -> Json:
    """The trial itself (the wire's ``trial`` object). Raises NotFound."""
    row: Json = session.get(f"/api/v1/trials/{trial}")["trial"]
    return row


def with_runs(session: Session, trial: int) -> Json:
    """{"trial", "runs", "previousTrialId", "nextTrialId"}: with its last submissions to the scheduler, oldest first ({"id",
    "jobId", "state", "nodes", "directory", ...}), and the trials of its experiment that were created before and after it, None
    where there is none."""
    answer: Json = session.get(f"/api/v1/trials/{trial}")
    return answer


def of_job(session: Session, job_id: str) -> List[Json]:
    """What a job of the scheduler executed, oldest first: {"trialId", "trialState", "trialReason", "experimentId",
    "experimentName", "run"}."""
    runs: List[Json] = session.get(f"/api/v1/scheduler-jobs/{job_id}")["runs"]
    return runs


def waiting(session: Session, trial: int) -> Optional[Json]:
    """What the trial waits for: {"cause", "why", "sooner", "text", "startTime"}; None when it waits for nothing."""
    reason: Optional[Json] = session.get(f"/api/v1/trials/{trial}/waiting")["waiting"]
    return reason


def timeline(session: Session, trial: int) -> Json:
    """What became of its time: {"attempts": [{"run", "jobId", "attempt", "startTime", "endTime", "fromSteps", "toSteps", "nodes",
    "end", "reason", "saving", "spans"}], "more"}, a span {"kind", "startTime", "endTime"}, where "kind" is waiting, starting,
    training, lost or ending; "saving" in seconds."""
    answer: Json = session.get(f"/api/v1/trials/{trial}/timeline")
    return answer


def kill(session: Session, trial: int) -> None:
    """End the trial; the experiment goes on."""
    session.post(f"/api/v1/trials/{trial}/kill")


def last_milestones(session: Session, trial: int, count: int) -> Tuple[List[Json], int]:
    """Its last validations and checkpoints, the newest last, and how many there are in all."""
    params = {"filter": "FILTER_OPTION_CHECKPOINT_OR_VALIDATION", "orderBy": "ORDER_BY_DESC", "limit": count}
    page: Json = session.get(f"/api/v1/trials/{trial}/workloads", params=params)
    return list(reversed(page.get("workloads") or [])), int((page.get("pagination") or {}).get("total") or 0)


def workloads(session: Session, trial: int, *, batch_metrics: bool = False) -> Iterator[Json]:
    """What the trial reported, in order: objects with one of ``training``, ``validation``, ``checkpoint``."""
    offset = 0
    while True:
        params = {"offset": offset, "limit": _PAGE, "includeBatchMetrics": batch_metrics}
        page: List[Json] = session.get(f"/api/v1/trials/{trial}/workloads", params=params).get("workloads") or []
        yield from page
        offset += len(page)
        if len(page) < _PAGE:
            return


def series(
    session: Session,
    trials: Sequence[int],
    *,
    names: Sequence[str] = (),
    group: str = "",
    points: int = 0,
    figures: bool = True,
) -> Iterator[Json]:
    """What trials reported over steps: objects {"trial", "metrics": [{"group", "data": [{"batches", "time", "epoch", "values"}]}]}.

    No ``names``: every metric; ``group`` "": every group; ``points`` 0: every report, else about so many for each metric, chosen
    so that its line keeps its shape. Not ``figures``: "trial" is without its summaries and sizes.
    """
    many = _THINNED if points and len(names) == 1 else _TRIALS
    for first in range(0, len(trials), many):
        some = list(trials[first : first + many])
        params: Json = {"trialIds": some, "metricNames": list(names), "group": group, "maxDatapoints": points}
        params["figures"] = figures
        yield from session.get("/api/v1/trials/time-series", params=params, timeout=_LONG)["trials"]


def checkpoints(session: Session, trial: int, *, best_first: bool = False) -> List[Json]:
    """The trial's checkpoints, oldest first, or by the searcher's metric."""
    params = {"sortByAttr": "SORT_BY_SEARCHER_METRIC" if best_first else "SORT_BY_BATCH_NUMBER"}
    answer: List[Json] = session.get(f"/api/v1/trials/{trial}/checkpoints", params=params).get("checkpoints") or []
    return answer
