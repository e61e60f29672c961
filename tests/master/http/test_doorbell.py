"""The doorbell: what it takes in, what it answers, and how often it may be rung."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from dethpc.domain.facts import Run
from dethpc.domain.ids import AttemptId
from dethpc.domain.reports import Report
from dethpc.engine import events
from dethpc.errors import Refused
from dethpc.master.http.doorbell import LEAST_REST, MOST_RINGS, MOST_WAIT, Doorbell
from dethpc.rundir.journal import to_line
from dethpc.state import queries
from tests import doorbells
from tests.engine.world import World
from tests.master.conftest import Served
from tests.master.http.test_trials import started


def test_lines_ring_as_they_are_or_quoted_and_each_answer_says_what_is_committed(served: Served) -> None:
    YAML = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"
    served.session.post("/api/v1/experiments", json={"config": YAML})
    run_id = started(served)
    path = f"/api/v1/runs/{run_id}/attempts/0/events"
    lines = [
        to_line(Report(n, 1.0, "metrics", {"group": "training", "steps_completed": n, "metrics": {"loss": 1 / n}}))
        for n in range(1, 601)  # 60 kB: more than the server reads on its loop
    ]
    assert served.session.post(path, "\n".join(lines[:2]).encode())["appliedSeq"] == 2
    assert served.session.post(path, json={"lines": lines[2:4]})["appliedSeq"] == 4
    answer = served.session.post(path, "\n".join([*lines[3:], ""]).encode())
    assert answer == {"appliedSeq": 600, "stop": None, "ringAfter": LEAST_REST}
    with served.daemon.store.read() as connection:
        assert queries.trial(connection, 1).steps_completed == 600
    for wrong in (b"garbage\n", {"lines": "garbage"}, {"lines": [1]}):
        with pytest.raises(Refused, match="line"):
            served.session.post(path, wrong)
    with pytest.raises(Refused, match="parameter"):
        served.session.post(path, b"", params={"limit": 1})


class Visits:
    """Whose directories are wanted to be looked at."""

    def __init__(self) -> None:
        self.wanted: list[str] = []

    def heard(self, run_id: str) -> None:
        pass

    def rung(self, run_id: str, *, every_attempt: bool = False) -> None:
        self.wanted.append(run_id)


def test_what_the_journal_told_before_is_no_gap() -> None:
    """The run directory was read between a ring's beginning and its end: nobody need look there again."""
    world, visitors = World(), Visits()
    world.create()
    run = world.rows(Run)[0]
    world.start(run)
    report = Report(1, 1.0, "metrics", {"group": "training", "steps_completed": 1, "metrics": {"loss": 1.0}})

    def post(event: events.Event, within: float) -> Future[Any]:
        done: Future[Any] = Future()
        world.do(event)
        done.set_result(world.do(event))  # what the journal told and the ring repeats
        return done

    ledger: Any = SimpleNamespace(state=world.state, post=post)
    bell = Doorbell(ledger, None, visitors)  # type: ignore[arg-type]
    assert doorbells.post(bell, AttemptId(run.id, 0), [to_line(report)]) == (1, None) and not visitors.wanted
    assert doorbells.post(bell, AttemptId(run.id, 0), [to_line(report._replace(seq=3))]) == (1, None)
    assert visitors.wanted == [run.id]


@pytest.mark.parametrize(("group", "waits"), [("training", True), ("validation", False)])
def test_what_decisions_wait_for_is_committed_at_once_and_training_with_what_others_tell(
    group: str, waits: bool
) -> None:
    world = World()
    world.create()
    run = world.rows(Run)[0]
    world.start(run)
    within: list[float] = []
    state = SimpleNamespace(attempt=world.state.attempt, runs=dict.fromkeys(range(10_000)))
    ledger: Any = SimpleNamespace(state=state, post=lambda _, seconds: within.append(seconds))
    report = Report(1, 1.0, "metrics", {"group": group, "steps_completed": 1, "metrics": {"loss": 1.0}})
    Doorbell(ledger, None, Visits()).take(AttemptId(run.id, 0), [to_line(report)])  # type: ignore[arg-type]
    assert within == [MOST_WAIT if waits else 0.0]


def test_the_more_attempts_there_are_the_longer_each_rests_between_two_rings() -> None:
    def rest(runs: int) -> float:
        ledger: Any = SimpleNamespace(state=SimpleNamespace(runs=range(runs)))
        return Doorbell(ledger, None, Visits()).rest()  # type: ignore[arg-type]

    assert rest(1) == rest(MOST_RINGS) == LEAST_REST
    assert 10_000 / rest(10_000) == MOST_RINGS
