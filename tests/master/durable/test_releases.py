"""What older releases left on a disk is opened, folded and rebuilt by this one."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from dethpc.domain import records
from dethpc.domain.facts import Experiment, Run, Trial
from dethpc.domain.states import RunState, State
from dethpc.engine.fold import fold
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.rebuild import recreate
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build
from dethpc.state import open_store
from dethpc.state.queries import records as stored
from tests.master.durable.make_release_fixture import RELEASES, make
from tests.state.reading import metrics

KEPT = sorted(path.name for path in RELEASES.iterdir()) if RELEASES.exists() else []


@pytest.fixture(params=["this one", *KEPT])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    if request.param == "this one":
        make(folder)
    else:
        shutil.copytree(RELEASES / request.param, folder)
    connection = sqlite3.connect(folder / "state.db")
    connection.executescript((folder / "database.sql").read_text())
    connection.close()
    return folder


def test_its_database_is_opened_and_folded(release: Path) -> None:
    with open_store(release / "state.db") as store:
        state = fold(build, store.load())
    experiments = {each.row.name: each for each in state.experiments.values()}
    assert experiments["paused"].row.state is State.PAUSED
    assert [trial.state for trial in experiments["digits"].trials][0] is State.COMPLETED
    assert {run.state for run in experiments["digits"].live.values()} >= {RunState.RUNNING}
    assert "imported" in experiments and "outside" in experiments and "n1" in state.nodes


LATER = {
    "0.1.0": {
        records.Workspace,
        records.WorkspacePin,
        records.Project,
        records.Template,
        records.Model,
        records.ArchivedTrial,
        records.ClusterMessage,
        records.LogDays,
        records.TrialSource,
        records.Accelerators,
        records.Webhook,
        records.WebhookDelivery,
        records.Group,
        records.RoleAssignment,
        records.WorkspaceRole,
        records.ConfigPolicy,
        records.UserSetting,
        records.ProjectVisit,
    }
}
"""Kinds of records that a release had not yet."""


def test_its_database_is_made_again_from_its_files(release: Path, request: pytest.FixtureRequest) -> None:
    later = LATER.get(request.node.callspec.params["release"], set())
    home = Home(release / "home")
    with open_store(release / "state.db") as kept, open_store(release / "again.db") as again:
        recreate(home, again)
        everything = [row.id for row in kept.load().of(Experiment)]
        assert again.load() == kept.load() and everything
        assert len(kept.load().of(Run)) > 4
        trials = [trial.id for trial in kept.load().of(Trial)]
        strip = [(m.trial_id, m.group, m.steps_completed, m.metrics) for m in metrics(again, trials)]
        assert strip == [(m.trial_id, m.group, m.steps_completed, m.metrics) for m in metrics(kept, trials)] and strip
        with kept.read() as old, again.read() as new:
            for kind in records.KEYS:
                found: list[object] = stored.find(new, kind)
                assert found == stored.find(old, kind) and bool(found) is (kind not in later)


def test_a_start_on_its_files_appends_nothing(release: Path) -> None:
    home = Home(release / "home")
    files = {path: path.read_bytes() for path in home.root.rglob("*.jsonl")}
    with open_store(release / "state.db") as store:
        ChangeLog(home).catch_up(store)
    assert {path: path.read_bytes() for path in home.root.rglob("*.jsonl")} == files
