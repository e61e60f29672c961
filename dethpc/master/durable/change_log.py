"""The master's decisions beside its database: ``changes.jsonl`` per experiment, and the way back from there.

Every committed row but metrics, and what was seen of pools, is appended to its experiment's file as ``{"table": ..., "row":
{...}}``; what is held against nodes has a file of its own. Metrics stand in the journals of the attempts. Together they are enough
to make the database again.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Container, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dethpc.domain.facts import (
    IN_MEMORY,
    Attempt,
    Checkpoint,
    Experiment,
    Metric,
    NodeHealth,
    PoolState,
    Row,
    Run,
    SearchNote,
    Trial,
)
from dethpc.domain.ports import Snapshot, Store
from dethpc.domain.reports import ReportKind
from dethpc.engine.reports import reported_values
from dethpc.rundir.home import Home
from dethpc.rundir.journal import read as read_journal

OfExperiment = Experiment | Trial | Run | Attempt | Checkpoint | Metric | SearchNote
_TABLES: dict[str, type] = {cls.__name__: cls for cls in get_args(Row)}


def to_line(row: Row) -> str:
    return json.dumps({"table": type(row).__name__, "row": dataclasses.asdict(row)}, default=str) + "\n"


def from_line(line: str) -> Row:
    """Raises ValueError or KeyError when the line is damaged."""
    obj = json.loads(line)
    cls = _TABLES[obj["table"]]
    hints, values = get_type_hints(cls), obj["row"]
    return cls(**{name: _restore(hints[name], value) for name, value in values.items() if name in hints})  # type: ignore[no-any-return]


def _restore(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(value)
    return value


class ChangeLog:
    """Appends committed rows to their experiments' files. One thread writes."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._experiment_of: dict[str, int] = {}  # run id -> experiment id

    def append(self, rows: Sequence[Row]) -> None:
        lines: dict[Path, list[str]] = {}
        for row in rows:
            if isinstance(row, (Metric, PoolState)):
                continue
            path = self._home.node_changes if isinstance(row, NodeHealth) else self._home.changes(self._experiment(row))
            lines.setdefault(path, []).append(to_line(row))
        for path, texts in lines.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
                file.write("".join(texts))

    def catch_up(self, snapshot: Snapshot) -> None:
        """After a start: write what the last master committed but may not have lived to append.

        A row may stand in the file several times; the last one counts.
        """
        open_ones = {e.id for e in snapshot.of(Experiment) if not e.state.terminal or not self._has_end(e)}
        self._experiment_of.update((run.id, run.experiment_id) for run in snapshot.of(Run))
        for fact in IN_MEMORY:
            self.append([row for row in snapshot.of(fact) if self._is_open(row, open_ones)])

    def _is_open(self, row: Any, experiments: Container[int]) -> bool:
        return isinstance(row, (NodeHealth, PoolState)) or self._experiment(row) in experiments

    def _has_end(self, experiment: Experiment) -> bool:
        try:
            with open(self._home.changes(experiment.id), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
                tail = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return False
        return any(line == to_line(experiment).rstrip("\n") for line in tail)

    def _experiment(self, row: OfExperiment) -> int:
        if isinstance(row, Experiment):
            return row.id
        if isinstance(row, Run):
            self._experiment_of[row.id] = row.experiment_id
        if isinstance(row, Attempt):
            return self._experiment_of[row.run_id]
        assert not isinstance(row, PoolState)
        return row.experiment_id


def rebuild(home: Home, store: Store) -> int:
    """Fill an empty store from shared_fs alone; returns the number of experiments."""
    ids = sorted(int(path.name) for path in home.experiments.iterdir() if path.name.isdigit())
    store.commit(list(_read_changes(home.node_changes)))
    for experiment_id in ids:
        rows = list(_read_changes(home.changes(experiment_id)))
        store.commit(rows)
        attempts = {(row.run_id, row.number): row for row in rows if isinstance(row, Attempt)}
        for attempt in attempts.values():
            store.commit([*_journal_metrics(home, experiment_id, attempt), attempt])
    return len(ids)


def _read_changes(path: Path) -> Iterator[Row]:
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield from_line(line)
        except (ValueError, KeyError):
            continue  # a line that was being written when the machine stopped; the row comes again after it


def _journal_metrics(home: Home, experiment_id: int, attempt: Attempt) -> Iterator[Metric]:
    journal = home.run(attempt.run_id).attempt(attempt.number).journal
    reports, _ = read_journal(journal)
    for report in reports:
        if report.kind == ReportKind.METRICS and report.seq <= attempt.applied_seq:
            yield Metric(
                run_id=attempt.run_id,
                attempt=attempt.number,
                seq=report.seq,
                experiment_id=experiment_id,
                trial_id=attempt.trial_id,
                group=str(report.data["group"]),
                steps_completed=int(report.data["steps_completed"]),
                reported_at=report.at,
                metrics=reported_values(report.data),
            )
