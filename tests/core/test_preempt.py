"""Stopping: from the file, from the master, by the clock; who may ask; and how the answer is acknowledged."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any, Callable, List

import pytest

from dethpc import core
from dethpc.core._preempt import _PreemptionWatcher
from dethpc.rundir.files import write_json
from tests.core.conftest import Cluster, Workers, results
from tests.waiting import LONG_ENOUGH, cheapest, wait_until


def test_a_stop_file_stops_and_is_acknowledged_once(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        assert not context.preempt.should_preempt()
        write_json(cluster.attempt.stop, {"reason": "pause", "at": time.time(), "deadline": None})
        wait_until(context.preempt.should_preempt)
        assert context.preempt.should_preempt()
    assert [event.kind for event in cluster.journal()] == ["ack"]
    assert json.loads(cluster.attempt.ack.read_text())["at"] <= time.time()


@pytest.mark.parametrize("asks", [False, True])
def test_a_training_that_was_asked_to_stop_and_never_asks_is_told_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a script that has set up no logging
    cluster.enter()
    with core.init() as context:
        if asks:
            context.preempt.should_preempt()
        write_json(cluster.attempt.stop, {"reason": "searcher", "at": time.time(), "deadline": None})
    line = "WARNING: this trial was asked to stop (searcher) and went on: its code never calls core.preempt.should_preempt()\n"
    assert capsys.readouterr().err == ("" if asks else line)


def test_a_program_with_logging_of_its_own_has_each_warning_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = logging.StreamHandler()
    own.setFormatter(logging.Formatter("mine: %(message)s"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [own])
    cluster.enter()
    with core.init():
        logging.getLogger("dethpc.core").warning("once")
    assert capsys.readouterr().err == "mine: once\n"


def test_without_auto_ack_nothing_is_acknowledged_until_asked(cluster: Cluster) -> None:
    cluster.enter()
    write_json(cluster.attempt.stop, {"reason": "pause", "at": 0.0, "deadline": None})
    with core.init() as context:
        assert context.preempt.should_preempt(auto_ack=False)
        assert not cluster.journal() and not cluster.attempt.ack.exists()
        context.preempt.acknowledge_preemption_signal()
        assert context.preempt.should_preempt()
    assert [event.kind for event in cluster.journal()] == ["ack"]


def test_the_masters_poll_stops(cluster: Cluster) -> None:
    master = cluster.start_master()
    go = threading.Event()

    def poll(body: Any) -> Any:
        go.wait(LONG_ENOUGH)
        return 200, {"preempt": True}

    master.answers["/api/v1/allocations/1.3.2.0/signals/preemption"] = poll
    cluster.enter()
    with core.init() as context:
        assert not context.preempt.should_preempt()
        go.set()
        wait_until(context.preempt.should_preempt)
    assert master.asked[1] == "GET /api/v1/allocations/1.3.2.0/signals/preemption?timeoutSeconds=60"


def test_the_answer_to_a_report_stops(cluster: Cluster) -> None:
    master = cluster.start_master()
    master.stop = {"reason": "searcher"}
    cluster.enter()
    with core.init() as context:
        context.train.report_progress(0.1)
        wait_until(context.preempt.should_preempt)
        watcher = context.preempt._watcher
        assert isinstance(watcher, _PreemptionWatcher) and watcher.reason == "searcher"


@pytest.mark.parametrize(("search", "waits"), [("adaptive_asha", True), ("single", False)])
def test_whoever_has_validated_hears_the_searchs_verdict_at_the_first_look(
    cluster: Cluster, search: str, waits: bool
) -> None:
    master = cluster.start_master()
    checked = threading.Event()

    def ring(body: Any) -> Any:
        """The search decides while the training looks, not before."""
        checked.wait(0.0 if waits else LONG_ENOUGH)
        time.sleep(0.2)
        return 200, {"appliedSeq": 99, "stop": {"reason": "searcher"}, "ringAfter": 1.0}

    master.answers["/api/v1/runs/1.3.2/attempts/0/events"] = ring
    cluster.info["trial"]["config"]["searcher"]["name"] = search
    cluster.enter()
    with core.init() as context:
        context.train.report_validation_metrics(1, {"loss": 0.5})
        assert context.preempt.should_preempt() is waits
        checked.set()
        assert cheapest(context.preempt.should_preempt) < 0.0005


def test_a_verdict_that_does_not_come_is_waited_for_once_and_the_master_not_besieged(cluster: Cluster) -> None:
    master = cluster.start_master()
    master.answers["/api/v1/runs/1.3.2/attempts/0/events"] = lambda body: (200, {"appliedSeq": 0, "ringAfter": 1.0})
    cluster.info["trial"]["config"]["searcher"]["name"] = "adaptive_asha"
    cluster.enter()
    with core.init() as context:
        context.train.report_validation_metrics(1, {"loss": 0.5})
        assert not context.preempt.should_preempt()
        assert sum("/events" in request for request in master.asked) < 20
        assert cheapest(context.preempt.should_preempt) < 0.0005


@pytest.mark.parametrize(("left", "stops"), [(LONG_ENOUGH, False), (0.0, True)])
def test_the_clock_stops_before_the_time_limit(cluster: Cluster, left: float, stops: bool) -> None:
    cluster.info["stop_at"] = time.time() + left
    cluster.enter()
    with core.init() as context:
        assert context.preempt.should_preempt() is stops
        watcher = context.preempt._watcher
        assert isinstance(watcher, _PreemptionWatcher) and watcher.reason == ("time_limit" if stops else None)


def test_a_damaged_stop_file_stops_too(cluster: Cluster) -> None:
    cluster.attempt.stop.write_text("{")
    cluster.enter()
    with core.init() as context:
        assert context.preempt.should_preempt()


def test_asking_is_cheap(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        assert cheapest(context.preempt.should_preempt) < 0.0005


def test_asking_outside_the_block_is_an_error(cluster: Cluster) -> None:
    cluster.enter()
    context = core.init()
    with pytest.raises(RuntimeError, match="inside"):
        context.preempt.should_preempt()
    with context, pytest.raises(RuntimeError, match="once"):
        context.preempt.start()


BODY = """
from dethpc import core
mode = core.PreemptMode[os.environ["MODE"]]
with core.init(distributed=DistributedContext.from_torch_distributed(), preempt_mode=mode) as context:
    try:
        seen = []
        while not any(seen) and len(seen) < 2000:
            seen.append(context.preempt.should_preempt())
            time.sleep(0.005)
        say([any(seen), len(seen) if mode.name == "WorkersAskChief" else 0])
        context.distributed.allgather(None)  # in mode WorkersAskMaster some see it earlier
    except RuntimeError as error:
        say(str(error))
"""


def test_workers_who_ask_the_chief_stop_at_the_same_point(cluster: Cluster, workers: Workers) -> None:
    cluster.info["slot_ids"] = [0, 1, 2]
    cluster.enter()
    started = workers.start(BODY, 3, MODE="WorkersAskChief", DETHPC_INFO=str(cluster.info_file))
    time.sleep(0.5)
    write_json(cluster.attempt.stop, {"reason": "pause", "at": 0.0, "deadline": None})
    found = results(started)
    assert found[0][0][0] is True and found[0] == found[1] == found[2]
    assert [event.kind for event in cluster.journal()] == ["ack"]


def test_workers_who_ask_for_themselves_all_learn_of_it(cluster: Cluster, workers: Workers) -> None:
    cluster.info["slot_ids"] = [0, 1]
    cluster.enter()
    write_json(cluster.attempt.stop, {"reason": "pause", "at": 0.0, "deadline": None})
    found = results(workers.start(BODY, 2, MODE="WorkersAskMaster", DETHPC_INFO=str(cluster.info_file)))
    assert found == [[[True, 0]]] * 2


def test_in_mode_chief_only_the_others_may_not_ask(off_cluster: Path, workers: Workers) -> None:
    body = """
    from dethpc import core
    mode = core.PreemptMode.ChiefOnly
    with core.init(distributed=DistributedContext.from_torch_distributed(), preempt_mode=mode) as context:
        try:
            say(context.preempt.should_preempt())
        except RuntimeError as error:
            say(str(error))
    """
    found = results(workers.start(body, 2))
    assert found[0] == [False] and "ChiefOnly" in found[1][0]


def test_off_the_cluster_nobody_preempts(off_cluster: Path) -> None:
    calls: List[Callable[[], Any]] = []
    with core.init() as context:
        calls.append(context.preempt.should_preempt)
        assert calls[0]() is False
        context.preempt.acknowledge_preemption_signal()
