"""Without LMDB there is nothing to collect; the development environment has it."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator

import pytest

from dethpc.data_layer import Cache, Place

collect_ignore_glob = [] if find_spec("lmdb") else ["test_*.py"]


class Making:
    """A dataset of ``records``; ``calls`` counts how many times it was made."""

    def __init__(self, *records: Any) -> None:
        self.records, self.calls = records, 0

    def __call__(self) -> Iterator[Any]:
        self.calls += 1
        return iter(self.records)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "datasets"
    folder.mkdir()
    return folder


@pytest.fixture
def cache(root: Path, caplog: pytest.LogCaptureFixture) -> Cache:
    caplog.set_level(logging.INFO, "dethpc")
    return Cache(Place(root, 1 << 40))
