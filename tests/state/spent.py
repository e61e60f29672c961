"""Runs that begin, report, end and are trained again from an earlier checkpoint, and where their slots went by all their rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from typing import Any

import pytest

from dethpc.domain.facts import Attempt, Run, Task
from dethpc.domain.goodput import Goodput, of_run
from dethpc.domain.ids import task_id
from dethpc.domain.states import AttemptState, End, RunState, State, TaskKind
from dethpc.state import SqlStore
from dethpc.state import queries as lists
from tests.state.factories import attempt, experiment, run, trial

NOW = 1000.0
TRIALS = range(1, 7)
KINDS = {1: TaskKind.TRIAL, 2: TaskKind.TRIAL, 3: TaskKind.UNMANAGED_TRIAL}
"""Of experiments; the last one's trials ran elsewhere, and use no slots."""


def experiment_of(trial: int) -> int:
    return 1 + trial % len(KINDS)


def begun() -> list[Any]:
    """Experiments, their trials and the tasks of these."""
    of = {n: experiment_of(n) for n in TRIALS}
    tasks = [Task(task_id(of[n], n), KINDS[of[n]], "job", "ada", State.ACTIVE, 1.0, of[n], n) for n in TRIALS]
    trials = [trial(n, of[n], index=sum(of[other] == of[n] for other in range(1, n))) for n in TRIALS]
    return [*(experiment(id, kind=kind) for id, kind in KINDS.items()), *trials, *tasks]


def history(draw: random.Random) -> Iterator[list[Any]]:
    """Rows that are written together, one after the other."""
    past: dict[int, dict[tuple[str, int], Attempt]] = {n: {} for n in TRIALS}
    at = 1.0
    for number in (1, 2, 3):
        for n in TRIALS:
            at += draw.random()
            own = run(f"{experiment_of(n)}.{n}.{number}", experiment_of(n), n, state=RunState.PENDING)
            own = replace(own, number=number, slots=n, pool=draw.choice("ab"), created_at=at)
            yield [own]
            for k in range(draw.randint(0, 2)):
                at += draw.random()
                again = [each for each in past[n].values() if draw.random() < 0.5]
                past[n].update({(a.run_id, a.number): replace(a, kept_at=a.started_at + draw.random()) for a in again})
                started = replace(attempt(own.id, k, n, experiment_id=experiment_of(n)), started_at=at)
                yield [replace(own, state=RunState.RUNNING), started, *past[n].values()]
                at += draw.random()
                reported = {"first_at": at, "first_steps": 3, "last_at": at + draw.random(), "last_steps": 9}
                told = replace(started, saving=draw.random(), **(reported if draw.random() < 0.8 else {}))
                yield [told]
                at += 1 + draw.random()
                end = draw.choice([End.COMPLETED, End.NODE_FAIL, End.PREEMPTED])
                past[n][own.id, k] = replace(told, state=AttemptState.ENDED, ended_at=at, end=end)
                yield [past[n][own.id, k]]
            if number < 3 or draw.random() < 0.7:
                at += draw.random()
                yield [replace(own, state=RunState.ENDED, ended_at=at)]


def kept(store: SqlStore) -> list[Any]:
    """What readers are told of experiments, of their trials and of pools."""
    with store.read() as connection:
        found: list[Any] = [{id: lists.goodput_of_experiment(connection, id, NOW) for id in KINDS}]
        found += [lists.goodput_of_trials(connection, id, lists.Page(limit=None), NOW)[0] for id in KINDS]
        return [_plain(each) for each in [*found, lists.goodput_of_pools(connection, 0.0, NOW)]]


def made_anew(rows: Mapping[tuple[Any, ...], Any]) -> list[Any]:
    """The same from every run and attempt, but for rounding."""
    experiments, pools = {id: Goodput() for id in KINDS}, dict[str, Goodput]()
    trials: dict[int, dict[int, Goodput]] = {id: {} for id in KINDS}
    for own in [row for row in rows.values() if isinstance(row, Run)]:
        id, _, number = own.task_id.partition(".")
        if KINDS[int(id)].submitted:
            attempts = [row for row in rows.values() if isinstance(row, Attempt) and row.run_id == own.id]
            went = of_run(own, sorted(attempts, key=lambda each: each.number), NOW)
            experiments[int(id)].add(went)
            trials[int(id)].setdefault(int(number), Goodput()).add(went)
            pools.setdefault(own.pool, Goodput()).add(went)
    return [pytest.approx(_plain(each)) for each in (experiments, *trials.values(), pools)]


def _plain(found: Mapping[Any, Goodput]) -> dict[tuple[Any, int], float]:
    return {(key, n): value for key, went in found.items() for n, value in enumerate(astuple(went))}
