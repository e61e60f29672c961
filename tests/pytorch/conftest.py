"""A small trial, a cluster in this process, and run directories for other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest

from dethpc.core import _reporter
from tests.core.conftest import Cluster, cluster, off_cluster
from tests.exec.fixtures import run

pytest.importorskip("torch").set_num_threads(1)

__all__ = ["Cluster", "cluster", "off_cluster", "run"]


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The working directory is one without code: a checkpoint outside the cluster takes along what was imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_reporter, "_FLUSH", 0.1)  # where there is no master, none is waited for
    for name in ("USE_TORCH_DISTRIBUTED", "USE_HOROVOD", "DETHPC_INFO", "DETHPC_TEST_MODE"):
        monkeypatch.delenv(name, raising=False)
    yield
