"""A database server that is away is told once, whoever asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dethpc.errors import StoreUnavailable
from dethpc.state import engines, open_store
from tests.postgresql import PostgresServer
from tests.state.factories import experiment


@pytest.mark.parametrize("which", ["commit", "load"])
def test_a_server_that_is_away_is_told_once_by_whoever_asks_and_when_it_answers_again(
    which: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engines, "TOLD_AFTER", 0.0)
    with PostgresServer("fsync=off") as server, open_store(server.database()) as store:
        asks: dict[str, Callable[[], object]] = {"commit": lambda: store.commit([experiment()]), "load": store.load}
        asks[which]()
        caplog.clear()
        with server.away():
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    asks[which]()
        asks[which]()
        asks[which]()
    messages = [record.getMessage() for record in caplog.records if "power failure" not in record.msg]
    assert len(messages) == 2, messages
    assert "the database server does not answer" in messages[0] and "this master waits for it" in messages[0]
    assert "answers again" in messages[1]


def test_an_absence_of_a_moment_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    one = engines.Absence()
    one.met(StoreUnavailable("away"))
    one.over()
    assert not caplog.records
