"""An installation is upgraded while trials run, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import User
from tests.e2e.upgrading import BEFORE, tree_of, upgrade_while_a_trial_runs

pytestmark = pytest.mark.everything


def test_nothing_is_lost_when_the_release_changes_while_trials_run(user: User, tmp_path: Path) -> None:
    upgrade_while_a_trial_runs(user, tree_of(BEFORE, tmp_path / "before"), slots=4)
