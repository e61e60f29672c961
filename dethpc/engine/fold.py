"""Memory from rows: what a master begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dethpc.domain import facts
from dethpc.domain.facts import Attempt, Row, Run, SearchNote, Task, Trial
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import State
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.state import BadNodePolicy, BuildSearcher, ClusterState


def fold(
    build_searcher: BuildSearcher,
    snapshot: Snapshot,
    rules: Mapping[str, Rules] | None = None,
    bad_nodes: BadNodePolicy | None = None,
) -> ClusterState:
    """The state that the rows of ``snapshot`` give."""
    state = ClusterState(build_searcher, rules or {}, bad_nodes=bad_nodes or BadNodePolicy())
    for row in in_order(snapshot):
        state.apply(row)
    state.next_experiment_id = max(state.next_experiment_id, snapshot.next_experiment_id)
    state.next_trial_id = max(state.next_trial_id, snapshot.next_trial_id)
    return state


def in_order(snapshot: Snapshot) -> Iterator[Row]:
    """The rows as memory takes them in: what ended ends after all that is said of it, as it did when it happened."""
    number = {run.id: run.number for run in snapshot.of(Run)}

    def order(row: Any) -> Any:
        return (row.task_id, number.get(row.run_id, 0), row.number) if isinstance(row, Attempt) else facts.key(row)

    ended: list[Trial] = []
    ended_tasks: list[Task] = []
    for fact in facts.IN_MEMORY:
        for row in sorted(snapshot.of(fact), key=order):
            if isinstance(row, Trial) and row.state.terminal:
                # A searcher hears of a trial's end after its notes, as it did when they were made.
                ended.append(row)
                row = replace(row, state=State.STOPPING_COMPLETED)
            elif isinstance(row, Task) and row.state.terminal:
                ended_tasks.append(row)  # its runs and attempts say something of their experiment and of nodes
                row = replace(row, state=State.STOPPING_COMPLETED)
            yield row
        if fact is SearchNote:
            yield from ended
    yield from ended_tasks
