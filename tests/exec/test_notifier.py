"""A node tells the master when training begins and when the attempt has ended, and waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dethpc.domain.ids import AttemptId
from dethpc.exec.notifier import Notifier
from dethpc.rundir.spec import Spec
from tests.waiting import LONG_ENOUGH


class Master(HTTPServer):
    """Hears requests and answers none of them."""

    def __init__(self) -> None:
        self.heard = heard = list[str]()

        class Listener(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(self.path)
                self.send_error(404)

            do_POST = do_GET

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), Listener)


@pytest.fixture
def master() -> Iterator[Master]:
    with Master() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(LONG_ENOUGH)


def test_a_node_rings_when_training_has_begun_and_when_the_attempt_has_ended(run, master: Master) -> None:
    go_on = run.dir.path / "go_on"
    run.make(f"until [ -e {go_on} ]; do sleep 0.05; done", master_url=f"http://127.0.0.1:{master.server_port}")
    node = run.start()
    run.wait_until(lambda: master.heard)
    assert run.attempt().started.exists() and run.end() is None
    before = len(master.heard)
    go_on.touch()
    code, _ = run.finish(node)
    assert code == 0 and len(master.heard) > before


def test_a_master_that_gives_no_answer_keeps_no_attempt_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, rung = threading.Event(), list[AttemptId]()

    def ring(session: object, attempt: AttemptId) -> bool:
        rung.append(attempt)
        return answered.wait(LONG_ENOUGH)

    monkeypatch.setattr("dethpc.client.session.notify", ring)
    attempt = AttemptId("7.12.2", 0)
    notifier = Notifier(spec(), attempt)
    notifier.attempt_ended()
    assert rung == [attempt]
    answered.set()


def spec() -> Spec:
    whose = {"cluster_id": "c0ffee00", "cluster_name": "here", "master_file": "/nowhere/master.json", "run": "7.12.2"}
    numbers = {"experiment_id": 7, "trial_id": 12, "task_id": "7.12", "run_number": 2, "trial_seed": 1}
    code = {"hparams": {}, "config": {}, "entrypoint": "true", "context": "", "context_sha256": "", "token": "t"}
    return Spec(**{**whose, **numbers, **code})
