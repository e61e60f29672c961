"""All rows of an experiment's trials, one by one, for an archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Row, Run, Task, Trial
from dethpc.domain.states import TaskKind
from dethpc.state import open_store, queries
from tests.master.conftest import experiment, run_of, task_of, trained, trial


def test_the_rows_of_trials_come_one_by_one_without_what_tasks_did_here(tmp_path: Path) -> None:
    rows: list[Row] = [experiment(1), experiment(2)]
    trials = [trial(n) for n in range(1, 1102)]  # more than are read at once
    for each in [*trials, trial(2000, 2)]:
        rows += [task_of(each), *trained(each)]
    removal = replace(task_of(trials[0]), id="gc", trial_id=None, kind=TaskKind.CHECKPOINT_GC)
    run = replace(run_of(trials[0]), id="gc.1", task_id="gc")
    rows += [removal, run]
    with open_store(tmp_path / "db") as store:
        store.commit(rows)
        with store.read() as connection:
            found = list(queries.past_of_trials(connection, 1))
            past = queries.past(connection, 1)
    kinds = list(dict.fromkeys(type(row) for row in found))
    assert kinds[0] is Experiment and set(kinds) == {Experiment, Trial, Task, Run, Attempt, Checkpoint}
    for kind in kinds:
        mine = [row for row in found if type(row) is kind]
        assert mine == [row for row in past.of(kind) if row not in (removal, run)]
        assert len(mine) == {Experiment: 1, Checkpoint: 2202}.get(kind, 1101)
