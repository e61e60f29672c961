"""Whatever is committed, in whatever order: the database is the fold of the rows."""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dethpc.domain import facts
from dethpc.domain.facts import Attempt, Experiment, Metric, NodeHealth, PoolState, Run, SearchNote, Task, Trial
from dethpc.domain.reports import MOST_BYTES
from dethpc.domain.states import RunState
from dethpc.errors import StoreError
from dethpc.state import SqlStore, open_store, sums, tables
from tests.state import reading
from tests.state.factories import metric

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBER = st.floats(allow_nan=False)
SMALL = st.integers(1, 3)
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
TASK_ID = st.sampled_from(["1.1", "2.1", "own"])
RUN_ID = st.builds("{}.{}.{}".format, SMALL, SMALL, SMALL)

SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "run_id": RUN_ID,
    "uuid": st.sampled_from(["a", "b", "c"]),
    "experiment_id": SMALL,
    "trial_id": SMALL,
    "task_id": TASK_ID,
    "number": st.integers(0, 1),
    "attempt": st.integers(0, 1),
    "seq": st.integers(1, 8),
    "resources": st.dictionaries(TEXT, st.integers(0, MOST_BYTES // 2), max_size=2),
    "void_after": st.none() | st.integers(0, 8),
    "group": st.sampled_from(["training", "validation"]),
    "steps_completed": st.integers(0, 50),
    "metrics": st.dictionaries(st.sampled_from(["loss", "accuracy"]), NUMBER | WHOLE | JSON, max_size=2),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict:
        return st.dictionaries(TEXT, JSON if arguments[1] is Any else values(arguments[1]), max_size=2)
    if origin is list:
        return st.lists(values(arguments[0]), max_size=2)
    if arguments:
        return st.one_of(*(values(argument) for argument in arguments))
    plain = {int: WHOLE, float: NUMBER, str: TEXT, bool: st.booleans(), type(None): st.none()}
    return plain[hint]


def rows_of(fact: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(fact)
    special = {**SPECIAL, "id": {Run: RUN_ID, Task: TASK_ID}.get(fact, SMALL)}
    if fact in (Task, Run, Attempt):
        special["experiment_id"] = st.none() | SMALL
    if fact in (NodeHealth, PoolState):
        special["name"] = st.sampled_from(["n0", "n1"])
    fields = {f.name: special[f.name] if f.name in special else values(hints[f.name]) for f in dataclasses.fields(fact)}
    return st.builds(fact, **fields)


COMMIT = st.lists(st.one_of(*(rows_of(fact) for fact in typing.get_args(facts.Row))), max_size=8)


class Model:
    """Rows in dictionaries."""

    def __init__(self) -> None:
        self.rows: dict[type[Any], dict[Any, Any]] = {fact: {} for fact in facts.IN_MEMORY}
        self.metrics: list[Metric] = []

    def commit(self, rows: list[Any]) -> None:
        for row in rows:
            if not isinstance(row, Metric):
                table, key = self.rows[type(row)], facts.key(row)
                if not (isinstance(row, SearchNote) and key in table):
                    table[key] = row
        for row in rows:
            if isinstance(row, Attempt) and row.void_after is not None:
                self.metrics = [
                    m
                    for m in self.metrics
                    if (m.run_id, m.attempt) != (row.run_id, row.number) or m.seq <= row.void_after
                ]
        for row in rows:
            if isinstance(row, Metric):
                attempt = self.rows[Attempt].get((row.run_id, row.attempt))
                void = attempt is not None and attempt.void_after is not None and row.seq > attempt.void_after
                if not void and all(
                    (m.run_id, m.attempt, m.seq) != (row.run_id, row.attempt, row.seq) for m in self.metrics
                ):
                    self.metrics.append(row)

    def live(self, fact: type[Any]) -> list[Any]:
        if fact in (NodeHealth, PoolState):
            return [row for _, row in sorted(self.rows[fact].items())]
        unfinished = {run.experiment_id for run in self.rows[Run].values() if run.state is not RunState.ENDED}
        experiments = {e.id for e in self.rows[Experiment].values() if not e.state.terminal or e.id in unfinished}
        live = {run.task_id for run in self.rows[Run].values() if run.state is not RunState.ENDED}
        own = {t.id for t in self.rows[Task].values() if not t.state.terminal or t.id in live}
        own -= {t.id for t in self.rows[Task].values() if t.trial_id is not None}

        def wanted(row: Any) -> bool:
            if fact in (Task, Run, Attempt) and (row.id if fact is Task else row.task_id) in own:
                return True
            return (row.id if fact is Experiment else row.experiment_id) in experiments

        return [row for _, row in sorted(self.rows[fact].items()) if wanted(row)]


class Folds(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dethpc-fold-"))
        self.store: SqlStore = open_store(self.folder / "state.db")
        self.model = Model()

    @rule(rows=COMMIT)
    def commit(self, rows: list[Any]) -> None:
        self.store.commit(rows)
        self.model.commit(rows)

    @rule(rows=COMMIT, more=COMMIT)
    def commit_together(self, rows: list[Any], more: list[Any]) -> None:
        assume(not any(isinstance(row, Attempt) for row in [*rows, *more]))
        futures = [self.store.begin(rows), self.store.begin(more)]
        for future in futures:
            future.result()
        self.model.commit(rows)
        self.model.commit(more)

    @rule(rows=COMMIT)
    def fail(self, rows: list[Any]) -> None:
        with pytest.raises(StoreError):
            self.store.commit([*rows, SearchNote(1, 10**30, 0, "too large a number for any database", {})])

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = open_store(self.folder / "state.db")

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def the_database_is_the_fold(self) -> None:
        found = self.store.load()
        for fact in facts.IN_MEMORY:
            assert found.of(fact) == self.model.live(fact)
        assert found.next_trial_id == max((t.id for t in self.model.rows[Trial].values()), default=0) + 1
        assert reading.metrics(self.store, [1, 2, 3]) == sorted(self.model.metrics, key=lambda m: m.trial_id)
        folded: dict[sums.Key, tables.Summary] = {}
        sums.fold(folded, self.model.metrics)
        kept = reading.summaries(self.store, [1, 2, 3])
        assert [_comparable(s) for s in kept] == [_comparable(s) for _, s in sorted(folded.items())]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


def _comparable(summary: tables.Summary) -> tuple[Any, ...]:
    """With one name for all NaN: infinities may add up to it."""
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in dataclasses.astuple(summary))


def test_the_database_is_the_fold_of_what_was_committed() -> None:
    run_state_machine_as_test(
        Folds,
        settings=settings(
            max_examples=15, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_the_values_of_single_batches_have_no_summary() -> None:
    report = metric(1, metrics={"loss": 1.0, "batch_metrics": [{"loss": 0.5}, {"loss": 1.5}]})
    assert [summary.name for summary in sums.fold({}, [report])] == ["loss"]


def test_the_summaries_of_trials_that_reported_last_stay_in_memory_and_no_more_than_so_many() -> None:
    recent = sums.Recent(most=4)
    summaries: dict[int, dict[sums.Key, tables.Summary]] = {}
    for trial in (1, 2, 3):
        summaries[trial] = {}
        sums.fold(summaries[trial], [metric(1, trial_id=trial, metrics={"a": 1.0, "b": "x"})])
        recent.keep(trial, summaries[trial])
    assert len(recent) == 4
    assert recent.take(1) is None and recent.take(3) is summaries[3] and len(recent) == 2
    recent.keep(3, summaries[3])
    recent.keep(1, summaries[1])
    assert recent.take(2) is None, "it had reported longest ago"
    recent.forget()
    assert len(recent) == 0 and recent.take(3) is None
