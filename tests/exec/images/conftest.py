"""A real registry, and a home of one's own, which holds no password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registries import RealRegistry, registry


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
