"""What is asked of the scheduler for many who want to know the same."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from dethpc.errors import SchedulerUnavailable
from dethpc.master.watching import cluster_view
from dethpc.master.watching.cluster_view import ClusterView
from tests.master.fake_scheduler import FakeScheduler
from tests.waiting import LONG_ENOUGH, wait_until

OLD, NOW = 3600.0, 0.0


@pytest.fixture
def fake() -> FakeScheduler:
    return FakeScheduler()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be so busy that no answer of any scheduler comes within two seconds."""
    monkeypatch.setattr(cluster_view, "ANSWERS_WITHIN", LONG_ENOUGH)


@pytest.fixture
def view(fake: FakeScheduler) -> ClusterView:
    return ClusterView(fake)


@pytest.mark.parametrize(
    ("request_name", "ask"),
    [
        ("pools", lambda view, age: view.pools(age)),
        ("nodes", lambda view, age: view.nodes(age)),
        ("queue", lambda view, age: view.queue("default", age)),
    ],
)
class TestEachQuestion:
    def test_an_answer_serves_everybody_whom_it_is_young_enough_for(
        self, fake: FakeScheduler, view: ClusterView, request_name: str, ask: Callable[..., object]
    ) -> None:
        first = ask(view, OLD)
        assert ask(view, OLD) == first and fake.requests[request_name] == 1
        ask(view, NOW)
        assert fake.requests[request_name] == 2

    def test_a_burst_of_first_callers_asks_once(
        self, fake: FakeScheduler, view: ClusterView, request_name: str, ask: Callable[..., object]
    ) -> None:
        fake.gate = threading.Event()
        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(ask, view, OLD) for _ in range(8)]
            wait_until(lambda: fake.requests[request_name])
            fake.gate.set()
            answers = [each.result() for each in asked]
        assert fake.requests[request_name] == 1 and all(answer == answers[0] for answer in answers)

    def test_while_a_slow_scheduler_is_asked_again_the_others_have_the_answer_before(
        self, fake: FakeScheduler, view: ClusterView, request_name: str, ask: Callable[..., object]
    ) -> None:
        before = ask(view, OLD)
        fake.gate = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(ask, view, NOW)
            wait_until(lambda: fake.requests[request_name] == 2)
            assert ask(view, NOW) == before and not slow.done()
            fake.gate.set()
            slow.result()

    def test_a_silent_scheduler_leaves_the_answer_before(
        self, fake: FakeScheduler, view: ClusterView, request_name: str, ask: Callable[..., object]
    ) -> None:
        before = ask(view, OLD)
        fake.silent = True
        assert ask(view, NOW) == before

    def test_without_an_answer_before_a_silent_scheduler_is_said_and_not_asked_by_everybody(
        self,
        fake: FakeScheduler,
        view: ClusterView,
        request_name: str,
        ask: Callable[..., object],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(cluster_view, "RETRY", OLD)
        fake.silent = True
        for _ in range(5):
            with pytest.raises(SchedulerUnavailable):
                ask(view, OLD)
        assert fake.requests[request_name] == 1
        monkeypatch.setattr(cluster_view, "RETRY", NOW)
        fake.silent = False
        assert ask(view, OLD) is not None, "it is asked again after a while"


def test_whoever_waits_for_a_scheduler_that_hangs_gets_the_older_answer_soon_and_its_age(
    fake: FakeScheduler, view: ClusterView, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = view.nodes(OLD)
    assert view.notice == ""
    monkeypatch.setattr(cluster_view, "ANSWERS_WITHIN", 0.05)
    fake.gate = threading.Event()
    assert view.nodes(NOW) == before, "though the scheduler has not answered"
    assert re.fullmatch(r"Slurm gives no answer \(asked \d+ s ago\): pools and nodes .* as of \S+ ago", view.notice)
    with pytest.raises(SchedulerUnavailable, match="has not answered yet"):
        view.queue("default", NOW)
    assert fake.requests["nodes"] == 2
    fake.gate.set()
    wait_until(lambda: view.notice == "")
    fake.gate, fake.silent = None, True
    assert view.nodes(NOW) == before
    wait_until(lambda: view.notice)
    assert "asked" not in view.notice, "its own words"


def test_nodes_that_are_down_are_never_told_from_an_old_answer(fake: FakeScheduler, view: ClusterView) -> None:
    view.nodes(OLD)
    fake.silent = True
    with pytest.raises(SchedulerUnavailable):
        view.nodes_down(time.monotonic())


def test_who_asks_what_is_so_now_does_not_get_the_answer_to_an_earlier_question(
    fake: FakeScheduler, view: ClusterView
) -> None:
    fake.gate = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        earlier = threads.submit(view.current_nodes, time.monotonic())
        wait_until(lambda: fake.requests["nodes"])
        now = threads.submit(view.nodes_down, time.monotonic())
        fake.gate.set()
        assert len(earlier.result()) == 1 and now.result() == frozenset()
    assert fake.requests["nodes"] == 2


def test_a_pool_whose_queue_is_not_known_is_still_shown(
    fake: FakeScheduler, view: ClusterView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(partition: str) -> None:
        raise SchedulerUnavailable("squeue gave no answer")

    monkeypatch.setattr(fake, "queue", silent)
    shown = view.pool_and_queue("default")
    assert shown.pool is not None and len(shown.nodes) == 1 and shown.queue is None
    assert view.running_jobs() == {}
