"""Logs line by line."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional

from dethpc.common.api import bindings


def pprint_logs(logs: Iterable[Any]) -> None:
    for log in logs:
        print(log.message, end="")


def trial_logs(
    session: Any,
    trial_id: int,
    head: Optional[int] = None,
    tail: Optional[int] = None,
    follow: bool = False,
    agent_ids: Optional[List[str]] = None,
    container_ids: Optional[List[str]] = None,
    rank_ids: Optional[List[int]] = None,
    sources: Optional[List[str]] = None,
    stdtypes: Optional[List[str]] = None,
    min_level: Optional[Any] = None,
    timestamp_before: Optional[str] = None,
    timestamp_after: Optional[str] = None,
    search_text: Optional[str] = None,
) -> Iterable[Any]:
    """Lines of a trial's log: the first ``head``, the last ``tail``, or all, also those that come (``follow``)."""
    filters = {
        "agentIds": agent_ids,
        "containerIds": container_ids,
        "rankIds": rank_ids,
        "sources": sources,
        "stdtypes": stdtypes,
        "timestampBefore": timestamp_before,
        "timestampAfter": timestamp_after,
        "searchText": search_text,
    }
    return _lines(
        bindings.get_TrialLogs,
        session,
        {"trialId": trial_id, **filters, "levels": _levels(min_level)},
        head,
        tail,
        follow,
    )


def task_logs(
    session: Any,
    task_id: str,
    head: Optional[int] = None,
    tail: Optional[int] = None,
    follow: bool = False,
    allocation_ids: Optional[List[str]] = None,
    agent_ids: Optional[List[str]] = None,
    container_ids: Optional[List[str]] = None,
    rank_ids: Optional[List[int]] = None,
    sources: Optional[List[str]] = None,
    stdtypes: Optional[List[str]] = None,
    min_level: Optional[Any] = None,
    timestamp_before: Optional[str] = None,
    timestamp_after: Optional[str] = None,
) -> Iterable[Any]:
    """As ``trial_logs``, of any task."""
    filters = {
        "allocationIds": allocation_ids,
        "agentIds": agent_ids,
        "containerIds": container_ids,
        "rankIds": rank_ids,
        "sources": sources,
        "stdtypes": stdtypes,
        "timestampBefore": timestamp_before,
        "timestampAfter": timestamp_after,
    }
    return _lines(
        bindings.get_TaskLogs, session, {"taskId": task_id, **filters, "levels": _levels(min_level)}, head, tail, follow
    )


def _levels(lowest: Any) -> Optional[List[Any]]:
    every: List[Any] = [] if lowest is None else list(bindings.v1LogLevel)
    return every[every.index(lowest) :] if every else None


def _lines(
    call: Any, session: Any, filters: Any, head: Optional[int], tail: Optional[int], follow: bool
) -> Iterable[Any]:
    if sum((head is not None, tail is not None, follow)) > 1:
        raise ValueError("at most one of head, tail, or follow may be set")
    order = bindings.v1OrderBy.DESC if tail is not None else None
    lines = call(session, **filters, follow=follow, limit=head or tail, orderBy=order)
    yield from lines if tail is None else reversed(list(lines))
