"""The log of a trial or of a launched task: the last lines that match a filter, earlier ones, and those around the first error."""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any
from urllib.parse import quote, urlencode

from dethpc.client.nouns import logs
from dethpc.domain.text.times import seconds
from dethpc.web.asked import Answer, Download, Page, PageRequest
from dethpc.web.following import row
from dethpc.web.pages import tasks
from dethpc.web.pages import trial as trials

LINES = 1000
"""That one page shows."""

MOST_SKIP = 1_000_000
"""Lines from the end that a page can begin before; a download has all of them."""

BEFORE_ERROR = 20
"""Lines that are shown before the first error."""

LATE = 10.0
"""Seconds by which a line may come after others of its time: of another node, or of a process that wrote in pieces."""

_A_BIT = 2e-6
"""Seconds: times are written to a millionth and compared as they are."""


def of_trial(request: PageRequest) -> Answer:
    shown = trials.about(request, "logs")
    trial, runs = shown["trial"], shown["runs"]
    slots = max((int(run["slots"] or 0) for run in runs), default=0)
    shown.update(_viewer(request, trial["id"], slots, [node for run in runs for node in run["nodes"]]))
    shown.update(log=f"trials/{trial['id']}", writer="the training")
    return Page("trial/logs.html", shown, live=f"experiment-{trial['experimentId']}")


def of_task(request: PageRequest) -> Answer:
    shown = tasks.about(request, "logs")
    task = shown["task"]
    shown.update(_viewer(request, task["id"], task["slots"], task["nodes"]))
    shown.update(log=f"tasks/{task['id']}", writer="the program")
    return Page("task/logs.html", shown, live="tasks")


def _viewer(request: PageRequest, log: logs.Log, slots: int, nodes: Sequence[str]) -> dict[str, Any]:
    """What log.html shows. ``slots`` and ``nodes``: what its filters suggest."""
    which = _filter(request)
    jumped, before = request.query.get("jump") == "error", _moment(request.query.get("before", ""))
    at_end, first_error = not jumped and not before, ""
    skip = request.count("skip", 0, MOST_SKIP) if before else 0
    if jumped:
        lines, first_error, beyond = _around_first_error(request, log, which)
    else:
        window = which._replace(before=_shifted(before, _A_BIT)) if before else which
        lines, beyond = list(logs.read(request.session, log, window, tail=LINES, skip=skip)), skip
    rows = [row(line) for line in lines]
    last = rows[-1]["at"] if rows else ""
    more = rows and (jumped or len(rows) >= LINES)
    return {
        "lines": rows,
        "levels": logs.LEVELS,
        "sources": SOURCES,
        "most": LINES,
        "jumped": jumped,
        "first_error": first_error,
        "at_end": at_end,
        "earlier": _changed(request, before=before or last, skip=beyond + len(rows)) if more else "",
        "elsewhere": _changed(request),
        "at_error": _changed(request, jump="error"),
        "filtered": bool(which.params()),
        "ranks": _ranks(slots, rows),
        "nodes": sorted(set(nodes)),
        "no_ranks": [rank for rank in request.every("rank") if not _is_rank(rank)],
        "follow": _changed(request, since=last) if at_end else "",
    }


def _changed(request: PageRequest, **changes: object) -> str:
    """The query's filters, without the place in the log that it speaks of."""
    return request.changed(**{"said": None, "jump": None, "before": None, "skip": None, **changes})


SOURCES = ("task", "slurm")
"""Who writes: the user's program, or Slurm and what surrounds the program."""


def _around_first_error(
    request: PageRequest, log: logs.Log, which: logs.Filter
) -> tuple[list[dict[str, Any]], str, int]:
    """Lines from shortly before the first error that the filter leaves, which of them that is, and how many lines of the time of
    the last one follow; nothing when no line is one. Many lines may have one time: what was written at once was."""
    errors = list(logs.read(request.session, log, which._replace(level=_at_least_error(which)), head=1))
    if not errors:
        return [], "", 0
    at, error = str(errors[0]["timestamp"]), str(errors[0]["id"])
    lead = deque(logs.read(request.session, log, which._replace(before=at), tail=BEFORE_ERROR), BEFORE_ERROR)
    lines: list[dict[str, Any]] = []
    beyond = 0
    for line in logs.read(request.session, log, which._replace(after=_shifted(at, -_A_BIT))):
        if not lines and line["id"] != error:
            lead.append(line)
        elif len(lines) < LINES:
            lines.append(line)
        elif line["timestamp"] == lines[-1]["timestamp"]:
            beyond += 1
        else:
            break
    return [*lead, *lines], error, beyond


def _at_least_error(which: logs.Filter) -> str:
    return which.level if which.level == "CRITICAL" else "ERROR"


def text(request: PageRequest) -> Answer:
    """All lines that the filter leaves, as a file."""
    trial = "trial" in request.parts
    log = request.number("trial") if trial else tasks.id_of(request)
    lines = iter(logs.read(request.session, log, _filter(request)))
    first = list(islice(lines, 1))  # what is not there is answered by a page, not by a file that breaks off

    def pieces() -> Iterator[str]:
        for line in chain(first, lines):
            yield f"[{line['timestamp']}] {line['message'].rstrip()}\n"

    return Download(f"{'trial' if trial else 'task'}-{log}.log", pieces())


def followed(request: PageRequest, last: str = "") -> str:
    """Where the API streams what a page follows. ``last``: the time of the line that the page had last, else it is in the query."""
    since = _moment(last) or _moment(request.query.get("since", ""))
    which = _filter(request)._replace(after=_shifted(since, -LATE) if since else None)
    params = {**which.params(), "follow": "true"}
    of = (
        f"trials/{request.number('trial')}"
        if "trial" in request.parts
        else f"tasks/{quote(request.parts['task'], safe='')}"
    )
    return f"/api/v1/{of}/logs?" + urlencode(params, doseq=True, errors="replace", quote_via=quote)


def _filter(request: PageRequest) -> logs.Filter:
    return logs.Filter(
        level=logs.level_of(request.query.get("level")),
        ranks=[int(rank) for rank in request.every("rank") if _is_rank(rank)],
        nodes=request.every("node"),
        stdtypes=[kind for kind in request.every("stdtype") if kind in ("stdout", "stderr")],
        sources=[source for source in request.every("source") if source in SOURCES],
        search=request.query.get("text") or None,
    )


MOST_RANKS = 1024
"""That the page suggests."""


def _ranks(slots: int, rows: list[dict[str, Any]]) -> list[int]:
    """Those that it has, as far as one knows without reading its whole log: one for each slot, and those of the lines."""
    ranks = set(range(slots)) if slots > 1 else set()
    return sorted(ranks | {line["rank"] for line in rows if line["rank"] is not None})[:MOST_RANKS]


def _is_rank(text: str) -> bool:
    return text.isdecimal() and len(text) < 7


def _moment(text: str) -> str:
    """``text`` if it is a time as lines have one, else ""."""
    try:
        return _shifted(text, 0.0) if text else ""
    except (ValueError, OverflowError):
        return ""


def _shifted(timestamp: str, by: float) -> str:
    return datetime.datetime.fromtimestamp(seconds(timestamp) + by, datetime.timezone.utc).isoformat()
