"""Lightning on one core, a cluster in this process, and a user with ``det``."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("torch").set_num_threads(1)
pytest.importorskip("lightning.pytorch")

from tests.core.conftest import Cluster, cluster, off_cluster  # noqa: E402
from tests.e2e.conftest import user  # noqa: E402

__all__ = ["Cluster", "cluster", "off_cluster", "user"]


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for name in ("DETHPC_INFO", "DETHPC_TEST_MODE"):
        monkeypatch.delenv(name, raising=False)
