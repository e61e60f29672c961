"""A search method that runs in the user's own process. Whole searches: ``tests/e2e/test_custom_search.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.client.custom_search import LocalSearchRunner, SearchMethod
from dethpc.client.nouns import experiments, roles, users
from dethpc.common.api.errors import UnauthenticatedException
from tests.master.conftest import Served, served, site

__all__ = ["served", "site"]

CONFIG = {
    "entrypoint": "true",
    "searcher": {"name": "custom", "metric": "loss", "unit": "batches"},
    "hyperparameters": {"lr": 1},
}


class CreatesOnly(LocalSearchRunner):
    def _interrupted(self) -> bool:
        return True


def test_a_search_is_of_the_user_whom_det_user_names(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    grace = users.create(served.session, "grace", "Correct-horse-1")
    roles.assign(served.session, "Editor", user_id=grace["id"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_MASTER", served.url)
    monkeypatch.setenv("DET_USER", "grace")
    runner = CreatesOnly(SearchMethod(), tmp_path / "search")
    with pytest.raises(UnauthenticatedException, match="no login of user 'grace'"):
        runner.run(CONFIG)
    monkeypatch.setenv("DET_PASS", "Correct-horse-1")
    assert experiments.get(served.session, runner.run(CONFIG))["experiment"]["username"] == "grace"
