"""Keras on PyTorch, a cluster in this process, and a user with ``det``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
pytest.importorskip("torch").set_num_threads(1)
pytest.importorskip("keras")

from tests.core.conftest import Cluster, cluster, off_cluster  # noqa: E402
from tests.e2e.conftest import user  # noqa: E402

__all__ = ["Cluster", "cluster", "off_cluster", "user"]


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DETHPC_INFO", "DETHPC_TEST_MODE"):
        monkeypatch.delenv(name, raising=False)
