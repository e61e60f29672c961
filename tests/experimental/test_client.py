"""The Python SDK against a real master."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dethpc.client.nouns import users
from dethpc.errors import ConfigError, NotFound, Refused, Unauthorized
from dethpc.experimental import Determined, OrderBy, client
from dethpc.experimental.checkpoint import CheckpointSortBy, CheckpointState
from dethpc.experimental.experiment import Experiment, ExperimentSortBy, ExperimentState
from dethpc.experimental.trial import TrialSortBy, TrialState
from dethpc.rundir.home import Home
from dethpc.storage.files import FileStore
from tests.master.conftest import CONFIG, Served, experiment, trained, trial, uuid_of
from tests.master.http.test_proof import Stranger
from tests.storage.contract import stored
from tests.waiting import LONG_ENOUGH, wait_until


@pytest.fixture
def sdk(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Determined]:
    monkeypatch.setenv("DET_MASTER", served.url)
    monkeypatch.setenv("DET_USER_TOKEN", served.token)
    monkeypatch.setattr(client, "_determined", None)
    yield Determined()


@pytest.fixture
def finished(served: Served, tmp_path: Path) -> FileStore:
    """An experiment of three trials that ended, the last one best, with the files of one checkpoint."""
    place = FileStore(tmp_path / "storage")
    with stored(place, uuid_of(3, 2)) as path:
        (path / "weights.pt").write_bytes(b"w" * 1000)
    config = {**CONFIG, "checkpoint_storage": {"type": "shared_fs", "host_path": str(place)}}
    rows = [row for id in (1, 2, 3) for row in trained(trial(id))]
    served.put([experiment(1, config=config, owner=served.owner, labels=["red"]), *rows])
    return place


def test_it_acts_as_whom_det_user_names(
    served: Served, sdk: Determined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.create(served.session, "grace", "Correct-horse-1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("DET_USER_TOKEN")
    monkeypatch.setenv("DET_USER", "grace")
    with pytest.raises(Unauthorized, match="no login of user 'grace' .*; log in first"):
        Determined()
    monkeypatch.setenv("DET_PASS", "Correct-horse-1")
    assert Determined().whoami().username == "grace"
    assert Determined(password="Correct-horse-1").whoami().username == "grace"
    monkeypatch.delenv("DET_USER")
    assert Determined(user="grace").whoami().username == "grace"


def test_login_by_name_and_password(served: Served, sdk: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_USER_TOKEN")
    client.login(served.url, served.owner, served.token)
    assert client.whoami().username == client.get_session_username() == served.owner
    with pytest.raises(ValueError, match="before all other calls"):
        client.login(served.url)
    with pytest.raises(Unauthorized):
        Determined(served.url, served.owner, "wrong")
    client.whoami().change_password("Correct-horse-1")
    assert Determined(served.url, served.owner, "Correct-horse-1").list_users()[0].user_id == 1
    client.logout()
    client.logout()


def test_an_experiments_life(sdk: Determined, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "extra.txt").write_text("x")
    exp = sdk.create_experiment(CONFIG, tmp_path)
    exp.pause()
    with pytest.raises(ValueError, match="paused"):
        exp.wait(0.01)
    exp.set_name("renamed")
    exp.set_description("what it is")
    exp.set_notes("a note")
    exp.add_label("a/b c")
    exp.add_label("blue")
    exp.remove_label("blue")
    assert exp.labels == {"a/b c"}
    exp.set_labels({"x", "y"})
    exp.reload()
    assert (exp.name, exp.description, exp.notes, exp.labels) == ("renamed", "what it is", "a note", {"x", "y"})
    assert exp.await_first_trial().get_experiment().id == exp.id
    assert Path(exp.download_code(str(tmp_path / "out"))).name == f"exp-{exp.id}_model_def.tar.gz"
    exp.kill()
    exp.reload()
    assert exp.state is ExperimentState.STOPPING_KILLED  # nothing runs here that could end it
    with pytest.raises(NotFound):
        sdk.get_experiment(99)


def test_an_experiment_that_has_ended(sdk: Determined, finished: FileStore) -> None:
    exp = sdk.get_experiment(1)
    assert exp.wait(0.01) is ExperimentState.COMPLETED
    exp.archive()
    assert [one.id for one in sdk.list_experiments(states=[ExperimentState.COMPLETED], name="digits")] == [1]
    assert not sdk.list_experiments(labels=["z"])
    exp.unarchive()
    exp.delete()


def test_a_configuration_may_be_a_file(sdk: Determined, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(CONFIG))
    assert sdk.create_experiment(str(path)).name == "digits"
    path.write_text(json.dumps({**CONFIG, "entrypoint": None}))
    with pytest.raises(ConfigError, match="entrypoint"):
        sdk.create_experiment(path)


def test_trials_and_their_metrics(sdk: Determined, finished: FileStore) -> None:
    exp = sdk.list_experiments(sort_by=ExperimentSortBy.ID, order_by=OrderBy.DESC, labels=["red"])[0]
    assert [t.id for t in exp.list_trials()] == [1, 2, 3]
    assert [t.id for t in exp.iter_trials(TrialSortBy.BEST_VALIDATION_METRIC, OrderBy.DESC)] == [1, 2, 3]
    found = sdk.get_trial(2)
    assert (found.state, found.hparams, found.experiment_id) == (TrialState.COMPLETED, {"lr": 0.02}, 1)
    assert found.summary_metrics is not None and found.summary_metrics["validation_metrics"]["loss"]["min"] == 0.5
    assert [(m.steps_completed, m.metrics["loss"]) for m in found.iter_metrics("validation")] == [(2, 0.5), (4, 1.0)]
    reports = list(sdk.iter_trials_metrics([1, 3], "training"))
    assert {m.trial_id for m in reports} == {1, 3} and reports[0].end_time.tzinfo is not None
    assert isinstance(reports[0], client.TrainingMetrics) and reports[0].total_batches == 1
    assert list(found.iter_logs()) == []
    with pytest.raises(ValueError):
        found.iter_logs(follow=True, tail=3)


def test_checkpoints_are_sorted_downloaded_and_verified(
    served: Served, sdk: Determined, finished: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp = sdk.get_experiment(1)
    assert exp.top_checkpoint().uuid == uuid_of(3, 2)
    assert [c.uuid for c in exp.top_n_checkpoints(2)] == [uuid_of(3, 2), uuid_of(2, 2)]
    assert [c.uuid for c in exp.list_checkpoints("accuracy", OrderBy.DESC, 1)] == [uuid_of(3, 2)]
    assert sdk.get_trial(1).select_checkpoint(latest=True).uuid == uuid_of(1, 4)
    some = sdk.get_trial(1).list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.ASC)
    assert [c.uuid for c in some] == [uuid_of(1, 2), uuid_of(1, 4)]
    best = sdk.get_checkpoint(uuid_of(3, 2))
    assert best.state is CheckpointState.COMPLETED and best.training is not None and best.training.trial_id == 3
    monkeypatch.chdir(tmp_path)
    path = Path(best.download())
    assert path == Path("checkpoints", best.uuid) and (path / "weights.pt").read_bytes() == b"w" * 1000
    assert json.loads((path / "metadata.json").read_text()) == {"steps_completed": 2, "framework": "torch"}
    best.add_metadata({"a": 1})
    best.remove_metadata(["framework"])
    assert sdk.get_checkpoint(best.uuid).metadata == {"steps_completed": 2, "a": 1}
    best.delete()
    best.reload()
    assert best.state is CheckpointState.COMPLETED, "its files are there yet"
    served.collect()
    best.reload()
    with pytest.raises(Refused, match="DELETED"):
        best.download(str(tmp_path / "again"))


def test_a_wait_bears_with_a_stranger_in_the_masters_place_and_finds_the_master_again(
    served: Served, finished: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "mine")
    home.make()
    home.token.write_text(served.token)
    home.token.chmod(0o600)
    for name in ("DET_MASTER", "DET_USER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DETHPC_HOME", str(home.root))
    stranger = Stranger(lambda path: b'{"proof": "00"}')
    try:
        home.master_file.write_text(json.dumps({"url": stranger.url}))
        sdk = Determined()
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(Experiment(1, sdk._session).wait, 0.01)
            wait_until(lambda: len(stranger.paths) > 1)
            home.master_file.write_text(json.dumps({"url": served.url}))
            assert waits.result(LONG_ENOUGH) is ExperimentState.COMPLETED
    finally:
        stranger.stop()
    assert stranger.tokens == []
    sdk._session.close()
