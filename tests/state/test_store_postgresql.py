"""The store on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from dethpc.domain.facts import Experiment
from dethpc.errors import StoreError
from dethpc.state import SqlStore, open_store
from tests.state.contract import StoreContract
from tests.state.factories import experiment


class TestPostgresql(StoreContract):
    @pytest.fixture
    def url(self, postgres: Callable[[], str]) -> str:
        return postgres()

    @pytest.fixture
    def another_url(self, postgres: Callable[[], str]) -> str:
        return postgres()

    @pytest.fixture
    def store(self, url: str) -> Iterator[SqlStore]:
        with open_store(url) as store:
            yield store

    def test_a_lost_connection_is_made_again(self, store: SqlStore) -> None:
        store.commit([experiment()])
        with store.read() as connection:
            connection.execute(text("SELECT 1"))
        self.end_all_connections(store)
        store.commit([experiment(2)])
        assert len(store.load().of(Experiment)) == 2

        def lose(times: list[int]) -> None:
            if times:
                times.pop()
                self.end_all_connections(store)

        once = [1]
        store.before_commit = lambda: lose(once)
        store.commit([experiment(3)])
        assert len(store.load().of(Experiment)) == 3

    @staticmethod
    def end_all_connections(store: SqlStore) -> None:
        with store.read() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid != pg_backend_pid()"
                )
            )


def test_a_server_that_does_not_answer_is_a_store_error(postgres: Callable[[], str]) -> None:
    with pytest.raises(StoreError):
        open_store("postgresql://tester@/nothing?host=/nonexistent")
