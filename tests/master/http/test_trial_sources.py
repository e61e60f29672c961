"""Which trials use a checkpoint or a version of a model, and what they report."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.core import ExperimentalCoreContext
from dethpc.domain.states import RunState
from dethpc.errors import NotFound, Refused
from dethpc.experimental.checkpoint import Checkpoint
from dethpc.experimental.model import Model
from dethpc.master.http.auth import mint_run_token
from tests.master.conftest import Published, Served, experiment, run_of, trained, trial, uuid_of

SOURCE = uuid_of(1, 4)


@pytest.fixture
def model(served: Served) -> Model:
    """Of a checkpoint of trial 1; trials 2 and 3 may use it."""
    served.put(
        [
            experiment(1, owner=served.owner),
            *trained(trial(1)),
            experiment(2, owner=served.owner),
            *trained(trial(2, 2, index=0)),
            *trained(trial(3, 2)),
        ]
    )
    model = Model(served.session, served.session.post("/api/v1/models", {"name": "digits"})["model"]["name"])
    served.session.post("/api/v1/models/digits/versions", {"checkpointUuid": SOURCE, "modelName": "digits"})
    return model


def trials_of(reports: Any) -> list[tuple[int, str]]:
    return sorted({(report.trial_id, report.group) for report in reports})


def test_what_uses_a_checkpoint_is_shown_with_its_metrics(served: Served, model: Model) -> None:
    checkpoint = Checkpoint(served.session, SOURCE)
    (version,) = model.list_versions()
    assert list(checkpoint.get_metrics()) == list(version.iter_metrics()) == []
    ExperimentalCoreContext(served.session, 2).report_task_using_checkpoint(checkpoint)
    ExperimentalCoreContext(served.session, 3).report_task_using_model_version(version)
    both = [(n, group) for n in (2, 3) for group in ("training", "validation")]
    assert trials_of(checkpoint.get_metrics()) == both
    assert trials_of(version.get_metrics("validation")) == [(3, "validation")]
    assert [report.metrics["loss"] for report in version.iter_metrics("training")] == [8.0, 4.0, 8 / 3, 2.0]


def report(served: Served, **info: Any) -> Any:
    body = {"trialSourceInfo": {"trialId": 2, "checkpointUuid": SOURCE, **info}}
    return served.session.post("/api/v1/trial-source-info", body)


def test_kinds_of_use(served: Served, model: Model) -> None:
    assert report(served, trialSourceInfoType="TRIAL_SOURCE_INFO_TYPE_FINE_TUNING") == {
        "trialId": 2,
        "checkpointUuid": SOURCE,
    }
    path = f"/api/v1/checkpoints/{SOURCE}/metrics"
    assert served.session.get(path)["metrics"]
    kind = {"trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE"}
    assert served.session.get(path, kind)["metrics"] == []
    with pytest.raises(Refused, match="trialSourceInfoType is"):
        served.session.get(path, {"trialSourceInfoType": "x"})
    with pytest.raises(Refused, match="trialSourceInfoType is"):
        report(served, trialSourceInfoType="x")


def test_what_is_not_there(served: Served, model: Model) -> None:
    for wrong in (
        {"trialId": 99},
        {"checkpointUuid": uuid_of(99, 1)},
        {"modelId": 7},
        {"modelId": 1, "modelVersion": 9},
    ):
        with pytest.raises(NotFound):
            report(served, **wrong)
    with pytest.raises(Refused):
        report(served, trialId=10**30)
    for path in (f"checkpoints/{uuid_of(99, 1)}", "models/digits/versions/9", "models/letters/versions/1"):
        with pytest.raises(NotFound):
            served.session.get(f"/api/v1/{path}/metrics")


def test_a_run_speaks_for_trials_of_its_experiment_alone(served: Served, model: Model) -> None:
    run = run_of(trial(2, 2, index=0), state=RunState.RUNNING)
    session = served.as_run(run, mint_run_token(run.id)[0])
    ExperimentalCoreContext(session, 2).report_task_using_checkpoint(Checkpoint(served.session, SOURCE))
    with pytest.raises(Exception, match="another experiment"):
        ExperimentalCoreContext(session, 1).report_task_using_checkpoint(Checkpoint(served.session, SOURCE))


def test_the_published_client_reads_them(published: Published, served: Served, model: Model) -> None:
    got = published.python(
        "client.login()\n"
        "kind = bindings.v1TrialSourceInfoType.INFERENCE\n"
        f"info = bindings.v1TrialSourceInfo(checkpointUuid={SOURCE!r}, trialId=2, trialSourceInfoType=kind)\n"
        "bindings.post_ReportTrialSourceInfo(sess, body=bindings.v1ReportTrialSourceInfoRequest(trialSourceInfo=info))\n"
        f"print(json.dumps(sorted(m.steps_completed for m in client.get_checkpoint({SOURCE!r}).get_metrics('validation'))))"
    )
    assert got == [2, 4]
