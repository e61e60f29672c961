"""Somebody took the port of a master that died: a job gives them nothing, believes nothing, and goes on."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest

from dethpc import core
from dethpc.client import proof
from dethpc.config.site import Master
from dethpc.errors import MasterUnreachable
from dethpc.master.http.tls import Tls, tls_of
from dethpc.rundir.home import Home
from tests.core.conftest import TOKEN, Cluster, FakeMaster
from tests.waiting import wait_until

EVENTS = "/api/v1/runs/1.3.2/attempts/0/events"
PREEMPTION = "/api/v1/allocations/1.3.2.0/signals/preemption"
STOP = {"appliedSeq": 10**6, "stop": {"reason": "because I say so"}, "preempt": True}


@pytest.fixture
def stranger(cluster: Cluster) -> FakeMaster:
    """Where the job believes that its master is."""
    there = cluster.start_master()
    there.proves = False
    return there


def test_no_answer_of_a_stranger_is_believed_and_no_token_given(cluster: Cluster, stranger: FakeMaster) -> None:
    statuses = itertools.cycle([200, 400, 405, 410])

    def answer(body: Dict[str, Any]) -> Any:
        return next(statuses), STOP

    stranger.answers = {EVENTS: answer, PREEMPTION: answer, proof.PATH: answer}
    cluster.enter()
    with core.init() as context:
        context.train.report_progress(0.1)
        wait_until(lambda: len(stranger.asked) >= 4)
        assert not context.preempt.should_preempt()
        context.train._session._retries = 0
        with pytest.raises(MasterUnreachable, match="does not prove to be the master"):
            context.train.get_experiment_best_validation()
        context.train.report_progress(0.2)
    assert [event.data["progress"] for event in cluster.journal("progress")] == [0.1, 0.2]
    assert not cluster.attempt.ack.exists()
    assert stranger.tokens == [] and not stranger.events
    assert all(f"GET {proof.PATH}?nonce=" in asked and TOKEN not in asked for asked in stranger.asked)


def test_the_job_finds_its_master_again_behind_a_stranger(cluster: Cluster, stranger: FakeMaster) -> None:
    cluster.enter()
    with core.init() as context:
        context.train.report_progress(0.1)
        wait_until(lambda: len(stranger.asked) >= 2)
        master = FakeMaster()
        try:
            (cluster.root / "master.json").write_text(json.dumps({"url": master.url}))
            wait_until(lambda: len(master.events) == 1)
        finally:
            master.close()
    assert stranger.tokens == []


def test_over_tls_a_server_with_another_certificate_is_not_even_asked(cluster: Cluster) -> None:
    """And what it does not learn is in the journal, until the master's address and certificate are in its file again."""
    master, stranger = (FakeMaster(certified(cluster.root / name)) for name in ("master", "stranger"))
    assert master.tls is not None
    known = {"url": master.url, "certificate": master.tls.shown}
    (cluster.root / "master.json").write_text(json.dumps({**known, "url": stranger.url}))
    cluster.enter()
    try:
        with core.init() as context:
            context.train.report_progress(0.1)
            wait_until(lambda: stranger.met >= 3)
            context.train.report_progress(0.2)
            (cluster.root / "master.json").write_text(json.dumps(known))
            wait_until(lambda: len(master.events) == 2)
            master.stop = {"reason": "paused"}
            context.train.report_progress(0.3)
            wait_until(context.preempt.should_preempt)
    finally:
        master.close()
        stranger.close()
    assert [event.data["progress"] for event in cluster.journal("progress")] == [0.1, 0.2, 0.3]
    assert stranger.asked == [] and set(master.tokens) == {f"Bearer {TOKEN}"}


def certified(folder: Path) -> Tls:
    home = Home(folder)
    home.make()
    tls = tls_of(home, Master(tls="on"), "127.0.0.1", "login1")
    assert tls is not None
    return tls


@pytest.mark.parametrize("drop", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H"])
def test_an_answer_without_end_keeps_a_job_no_longer_than_agreed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, drop: bytes
) -> None:
    monkeypatch.setattr("dethpc.client.proof.SECONDS", 0.3)
    over: List[str] = []
    with Endless(drop, over) as port:
        (cluster.root / "master.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))
        cluster.enter()
        with core.init() as context:
            context.train.report_progress(0.1)
            wait_until(lambda: len(over) >= 2)
            master = cluster.start_master()
            wait_until(lambda: len(master.events) == 1)


class Endless:
    """Context manager: a server that sends ``drop`` again and again, and notes whom it has lost."""

    def __init__(self, drop: bytes, over: List[str]) -> None:
        self.drop, self.over = drop, over
        self.server = socket.create_server(("127.0.0.1", 0))
        self.ended = threading.Event()

    def __enter__(self) -> int:
        threading.Thread(target=self.serve, daemon=True).start()
        return int(self.server.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.server.close()

    def serve(self) -> None:
        while not self.ended.is_set():
            try:
                client = self.server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.drip, args=(client,), daemon=True).start()

    def drip(self, client: socket.socket) -> None:
        try:
            while not self.ended.wait(0.01):
                client.sendall(self.drop)
        except OSError:
            self.over.append("lost")
        finally:
            client.close()


def test_the_job_goes_on_where_the_master_answers_what_it_cannot_know(cluster: Cluster) -> None:
    """A proved master that refuses a report has a fault of its own, and is no reason to end a training."""
    master = cluster.start_master()
    refusals: List[Dict[str, Any]] = []

    def refuse(body: Dict[str, Any]) -> Any:
        refusals.append(body)
        return 400, {"error": {"code": 9, "reason": "x", "error": "no"}}

    master.answers[EVENTS] = refuse
    cluster.enter()
    with core.init() as context:
        context.train.report_progress(0.1)
        wait_until(lambda: len(refusals) >= 2)
        assert not context.preempt.should_preempt()
        del master.answers[EVENTS]
        wait_until(lambda: len(master.events) == 1)
