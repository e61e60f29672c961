"""What published scripts import beside the SDK, as they use it: sessions, bindings, errors, small functions."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import determined
from determined import core, tensorboard
from determined import errors as errors_of_training
from determined.common import api, storage, util
from determined.common.api import authentication, bindings, certs, errors
from dethpc.client.login import remember
from dethpc.client.nouns import users
from dethpc.errors import ConfigError
from tests.master.conftest import Served, served, site

__all__ = ["served", "site"]


def test_a_script_asks_by_bindings(served: Served) -> None:
    url = api.canonicalize_master_url(served.url)
    session = api.Session(url, "me", served.token, None)
    made = bindings.post_CreateExperiment(
        session, body=bindings.v1CreateExperimentRequest(config="name: mine\nlabels: [a]\n", unmanaged=True)
    ).experiment
    assert made.name == "mine" and made.state == bindings.experimentv1State.QUEUED and str(made.state) == "QUEUED"
    new = bindings.v1CreateTrialRequest(experimentId=made.id, hparams={"lr": 0.5}, unmanaged=True)
    trial = bindings.post_CreateTrial(session, body=new).trial
    begun = bindings.post_StartTrial(session, trialId=trial.id, body=bindings.v1StartTrialRequest(trialId=trial.id))
    metrics = bindings.v1Metrics(avgMetrics={"loss": 0.5})
    report = bindings.v1TrialMetrics(
        trialId=trial.id, trialRunId=begun.trialRunId, stepsCompleted=3, metrics=metrics, reportTime=None
    )
    body = bindings.v1ReportTrialMetricsRequest(metrics=report, group="training")
    bindings.post_ReportTrialMetrics(session, metrics_trialId=trial.id, body=body)
    (batch,) = bindings.get_GetTrainingMetrics(session, trialIds=[trial.id])
    assert batch.metrics[0].totalBatches == 3 and batch.metrics[0].metrics["avg_metrics"] == {"loss": 0.5}
    state = bindings.trialv1State.COMPLETED
    bindings.patch_PatchTrial(
        session, trialId=trial.id, body=bindings.v1PatchTrialRequest(trialId=trial.id, state=state)
    )
    pages = api.read_paginated(
        lambda offset: bindings.get_GetExperimentTrials(
            session,
            experimentId=made.id,
            offset=offset,
            limit=1,
            orderBy=bindings.v1OrderBy.ASC,
            sortBy=bindings.v1GetExperimentTrialsRequestSortBy.ID,
        )
    )
    assert [(t.id, t.state.value, t.hparams) for page in pages for t in page.trials] == [
        (trial.id, "STATE_COMPLETED", {"lr": 0.5})
    ]
    with pytest.raises(errors.NotFoundException, match="999"):
        bindings.get_GetTrial(session, trialId=999)
    with pytest.raises(TypeError, match="trialId"):
        bindings.get_GetTrial(session)
    assert session.get("api/v1/master").json()["clusterName"] is not None


def test_a_session_raises_what_scripts_catch(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.UnauthenticatedException):
        api.Session(served.url, "me", "wrong", None).get("api/v1/me")
    nobody = api.UnauthSession("http://127.0.0.1:9", None, max_retries=0)
    for kind in (errors.MasterNotFoundException, errors.BadRequestException):
        with pytest.raises(kind):
            nobody.get("info")
    with pytest.raises(RuntimeError, match="canonicalize"):
        api.UnauthSession("login1", None)
    monkeypatch.setenv("DET_USER_TOKEN", served.token)
    with authentication.login_with_cache(served.url) as session:
        assert session.username and session.with_retry(0).get("/api/v1/me").status_code == 200
        with pytest.raises(errors.APIException) as refused:
            session.post("api/v1/experiments", json={"config": "searcher: {name: rnadom}\n"})
    assert refused.value.status_code == 400 and "rnadom" in refused.value.message


def test_a_session_is_of_the_user_who_is_meant_or_of_none(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("bob", "carol"):
        users.create(served.session, name, f"Correct-horse-{name}")
    remember(served.url, "carol", authentication.login(served.url, "carol", "Correct-horse-carol")._token or "")

    def name_of(user: str | None = None) -> str:
        with authentication.login_with_cache(served.url, user) as session:
            name = session.get("/api/v1/me").json()["user"]["username"]
            assert session.username == name
            return str(name)

    assert name_of() == name_of("carol") == "carol"
    monkeypatch.setenv("DET_USER", "bob")
    for user in (None, "bob", "dave"):
        with pytest.raises(errors.UnauthenticatedException, match="no login of user"):
            name_of(user)
    monkeypatch.setenv("DET_PASS", "Correct-horse-bob")
    assert name_of() == name_of("bob") == "bob" and name_of("carol") == "carol"
    with pytest.raises(errors.UnauthenticatedException, match="no login of user 'dave'"):
        name_of("dave")
    with authentication.login_with_cache(served.url, "carol", "Correct-horse-carol") as session:
        assert session.get("/api/v1/me").json()["user"]["username"] == "carol"


def test_a_certificate_is_chosen_as_the_client_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("trusted")
    monkeypatch.setenv("DET_MASTER_CERT_FILE", "noverify")
    assert certs.default_load("https://m:1").bundle is False
    chosen = certs.default_load("https://m:1", str(tmp_path / "ca.pem"), "other")
    assert Path(str(chosen.bundle)).read_text() == "trusted" and chosen.name == "other"


def test_small_functions() -> None:
    assert list(util.chunks("ABCDEFG", 3)) == ["ABC", "DEF", "G"] and util.sizeof_fmt(1536) == "1.5KB"
    assert util.yaml_safe_load(util.yaml_safe_dump({"a": [1]})) == {"a": [1]}
    assert util.parse_protobuf_timestamp("2026-11-22T10:00:00.123456789Z").isoformat() == "2026-11-22T10:00:00+00:00"
    assert util.is_protobuf_timestamp("2026-11-22T10:00:00Z") and not util.is_protobuf_timestamp("2026-11-22")
    answers = iter([(False, 0), (True, 7)])
    assert util.wait_for(lambda: next(answers), interval=0) == 7
    with pytest.raises(TimeoutError):
        util.wait_for(lambda: (False, None), timeout=0, interval=0)
    assert [util.strtobool(text) for text in ("yes", "Off", "0", "")] == [True, False, False, False]


def test_older_names_of_the_sdk_are_the_same_classes() -> None:
    from determined import experimental
    from determined.common import experimental as older
    from determined.common.experimental.checkpoint import Checkpoint

    assert older.Determined is experimental.Determined and Checkpoint is experimental.Checkpoint


def test_code_is_imported_from_another_folder_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "model_of_old.py").write_text("WIDTH = 3\n")
    with determined.import_from_path(tmp_path):
        old = importlib.import_module("model_of_old")
    assert old.WIDTH == 3 and "model_of_old" not in sys.modules and not (tmp_path / "__pycache__").exists()


def test_trial_code_writes_for_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[Any] = []

    class SummaryWriter:
        def __init__(self, log_dir: str) -> None:
            written.append(log_dir)

        def __getattr__(self, name: str) -> Any:
            return lambda *args: written.append((name, *args))

    there = ModuleType("torch.utils.tensorboard")
    there.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", there)
    writers = importlib.import_module("determined.tensorboard.metric_writers.pytorch")
    monkeypatch.setattr(writers, "get_base_path", lambda _: tmp_path)
    with pytest.warns(FutureWarning, match="get_tensorboard_writer"):
        writer = writers.TorchWriter()
    writer.writer.add_scalar("mine", 1.0, 2)
    tensorboard.BatchMetricWriter(writer).on_validation_step_end(4, {"loss": 0.5, "name": "no number"})
    assert written == [
        str(tmp_path),
        ("add_scalar", "mine", 1.0, 2),
        ("add_scalar", "Determined/val_loss", 0.5, 4),
        ("flush",),
    ]
    tensorboard.BatchMetricWriter(writer).on_train_step_end(4, {"loss": 1, "acc": 2}, [{"loss": 3}, {"loss": 4}])
    assert [one[1:] for one in written if one[0] == "add_scalar"][2:] == [
        ("Determined/loss", 3, 2),
        ("Determined/loss", 4, 3),
        ("Determined/acc", 2, 4),
    ]


@pytest.mark.parametrize(
    ("name", "of_rank_3"),
    [
        ("run/ip-1.xplane.pb", "run/ip-1#3.xplane.pb"),
        ("host.cluster_7.1619.pt.trace.json.gz", "host.cluster_7#3.1619.pt.trace.json.gz"),
        ("events.out.tfevents.1", "events.out.tfevents.1"),
    ],
)
def test_profiles_are_named_by_their_worker(name: str, of_rank_3: str) -> None:
    assert tensorboard.util.get_rank_aware_path(Path(name), 3) == Path(of_rank_3)


def test_code_outside_of_the_cluster_makes_storage_managers(tmp_path: Path) -> None:
    section = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "checkpoints"}
    storage.validate_config(section, None)
    manager = storage.build(section, None)
    assert isinstance(manager, storage.SharedFSStorageManager) and manager.store_path_is_direct_access()
    with manager.store_path("one") as path:
        (path / "a.txt").write_text("a")
        (path / "b").mkdir()
        (path / "b" / "c.txt").write_text("c")
    manager.download("one", tmp_path / "copy", selector=lambda path: not path.startswith("b"))
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["a.txt"]
    manager.upload(tmp_path / "copy", "two", paths={"a.txt"})
    with manager.restore_path("two") as path:
        assert (path / "a.txt").read_text() == "a"
    assert manager.delete("one", ["b/**"]).keys() >= {"a.txt"} and manager.delete("two", ["**/*"]) == {}
    with pytest.raises(errors_of_training.CheckpointNotFound):
        manager.download("two", tmp_path / "again")
    workers = core.DummyDistributedContext()
    context = core.DummyCheckpointContext(workers, storage.SharedFSStorageManager(str(tmp_path / "mine")))
    with context.store_path({"steps_completed": 3}) as (path, uuid):
        (path / "model").write_text("weights")
    assert (tmp_path / "mine" / uuid / "model").read_text() == "weights"
    assert storage.from_string(str(tmp_path / "mine")).metadata(uuid) == {"steps_completed": 3}
    for wrong in ({"type": "shared_fs", "host_path": "here"}, {"type": "elsewhere"}):
        with pytest.raises(ConfigError, match="must be an absolute path|'elsewhere' is not one of"):
            storage.build(wrong, None)
