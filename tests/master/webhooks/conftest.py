"""A master whose webhooks are sent to a receiver on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dethpc.config.site import SiteConfig
from dethpc.master.webhooks import service
from tests.master.conftest import Served
from tests.master.webhooks.receiver import SITE, Receiver, receiving


@pytest.fixture
def site() -> SiteConfig:
    return SITE


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def sending(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A daemon whose webhooks are sent, without long pauses."""
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.02)
    webhooks = served.daemon.services.webhooks
    webhooks._rounds._every = webhooks._logs._rounds._every = webhooks._logs._rounds._first = 0.05
    served.daemon.services.webhooks.start()
    yield served
    served.daemon.services.webhooks.stop()
