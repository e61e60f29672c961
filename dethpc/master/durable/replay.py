"""What the files on shared_fs say: the one reader of change logs, ``nodes.jsonl``, ``tasks.jsonl``, ``records.jsonl`` and journals,
for a rebuild, a check and an import.

It writes nothing, so a master may run at the same time. What cannot be read costs itself alone, and is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dethpc.domain.facts import Attempt, Checkpoint, Metric, Task
from dethpc.domain.reports import Report, ReportKind
from dethpc.engine.reports import metric_of
from dethpc.master.durable.row_file import RowFile
from dethpc.rundir.home import Home
from dethpc.rundir.journal import A_LOOK, RemainsReader


def history(path: Path, damaged: list[int]) -> dict[Any, list[Any]]:
    """The rows of a file by kind and key, oldest first: the last one counts. Those that were dropped are left out. ``damaged`` as
    for ``RowFile.lines``. Raises OSError."""
    rows: dict[Any, list[Any]] = {}
    for kind, key, row in RowFile(path).lines(damaged):
        if row is None:
            rows.pop((kind, key), None)
        else:
            rows.setdefault((kind, key), []).append(row)
    return rows


class Journal(NamedTuple):
    """A journal of an attempt, as far as it can be read."""

    path: Path
    attempt: Attempt
    of_chief: bool  # else the master's, of what came from others
    metrics: list[Metric]  # those that the master had taken in, without what a later attempt trained again
    damaged: list[int]  # numbers of lines
    last: int = 0  # number of the last line
    missing: int = 0  # reports that the master had taken in, and that are gone
    unreadable: str = ""  # why it cannot be read at all


def journals(home: Home, rows: Iterable[Any]) -> Iterator[Journal]:
    """Of every attempt of an experiment's trials, by its ``rows``: the journal of its chief, and that of the master, which has what
    came from others."""
    rows = list(rows)
    trials = {row.id: row.trial_id for row in rows if isinstance(row, Task) and row.trial_id is not None}
    steps = {(row.run_id, row.attempt, row.seq): row.steps_completed for row in rows if isinstance(row, Checkpoint)}
    for attempt in rows:
        if isinstance(attempt, Attempt) and attempt.task_id in trials:
            folder = home.find(attempt.run_id).attempt(attempt.number)
            resumed_at = steps.get((attempt.run_id, attempt.number, attempt.void_after or 0), -1)
            for path in (folder.journal, folder.master_journal):
                yield _journal(path, attempt, path == folder.journal, trials[attempt.task_id], resumed_at)


def _journal(path: Path, attempt: Attempt, of_chief: bool, trial_id: int, resumed_at: int) -> Journal:
    reports: list[Report] = []
    damaged: list[int] = []
    reader = RemainsReader(path, damaged=damaged)
    try:
        while not reader.whole:
            reports += reader.read(A_LOOK)
    except OSError as error:
        return Journal(path, attempt, of_chief, [], [], unreadable=str(error.strerror))
    last, missing = max([reader.last, *damaged[-1:]]), 0
    if of_chief:
        reports = [report for report in reports if report.seq <= attempt.applied_seq]
        missing = max(0, attempt.applied_seq - len(reports) - len(damaged))
    else:
        reports = [report._replace(seq=-report.seq) for report in reports]
    metrics: list[Metric] = []
    for report in reports:
        if report.kind == ReportKind.METRICS:
            try:
                metrics.append(_metric(trial_id, attempt, report))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
                damaged.append(abs(report.seq))
    void_after = attempt.void_after
    if void_after is not None:
        metrics = [m for m in metrics if (m.seq <= void_after if of_chief else m.steps_completed <= resumed_at)]
    return Journal(path, attempt, of_chief, metrics, damaged, last, missing)


def _metric(trial_id: int, attempt: Attempt, report: Report) -> Metric:
    steps = int(report.data["steps_completed"])
    if not -(2**63) <= steps < 2**63:
        raise ValueError("steps_completed is out of range")
    return metric_of(attempt.experiment_id or 0, trial_id, attempt, report)


def some(items: Sequence[object]) -> str:
    """The first of many, for a message."""
    return ", ".join(map(str, items[:5])) + (", ..." if len(items) > 5 else "")
