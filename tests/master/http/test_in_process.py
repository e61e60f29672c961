"""The client's calls into the master's application without a socket."""

from __future__ import annotations

import pytest

from dethpc.client.in_process import InProcess
from dethpc.client.nouns import experiments
from dethpc.client.session import Session
from dethpc.errors import NotFound, Unauthorized
from dethpc.master.http.app import create_app
from tests.master.conftest import Served, experiment, trial


def test_experiments_are_listed_as_over_http(served: Served) -> None:
    served.put([experiment(1), experiment(2, name="ünï"), trial(1, 2)])
    session = Session(InProcess(create_app(served.daemon.services)), served.token)
    try:
        assert experiments.listing(session, newest_first=True) == experiments.listing(served.session, newest_first=True)
        assert list(experiments.trials(session, 2)) == list(experiments.trials(served.session, 2))
        assert list(session.stream("/api/v1/trials/1/logs")) == list(served.session.stream("/api/v1/trials/1/logs"))
        with pytest.raises(NotFound, match="77"):
            experiments.get(session, 77)
    finally:
        session.close()


def test_the_door_is_the_same(served: Served) -> None:
    session = Session(InProcess(create_app(served.daemon.services)), "wrong")
    try:
        with pytest.raises(Unauthorized):
            experiments.listing(session)
    finally:
        session.close()
