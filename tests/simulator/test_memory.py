"""The store that forgets keeps records as the others do."""

from __future__ import annotations

import pytest

from dethpc.domain.records import User, WebhookDelivery
from dethpc.simulator.memory import MemoryStore
from tests.state.contract import RecordContract


class TestMemory(RecordContract):
    @pytest.fixture
    def any_store(self) -> MemoryStore:
        return MemoryStore()

    def users(self, store: MemoryStore) -> list[User]:
        return store.rows(User)

    def deliveries(self, store: MemoryStore) -> list[WebhookDelivery]:
        return store.rows(WebhookDelivery)
