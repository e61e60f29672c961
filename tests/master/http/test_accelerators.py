"""Accelerators of attempts, and what clients look up about Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.facts import Attempt
from dethpc.domain.states import AttemptState, RunState, State
from dethpc.errors import ForbiddenException, Refused
from dethpc.master.http.auth import mint_run_token
from dethpc.tensorboard.build import get_experiment_sync_path
from tests.master.conftest import CONFIG, T0, Published, Served, experiment, run_of, trained, trial

PATH = "/api/v1/allocations/1.1.1.0/acceleratorData"
BODY = {
    "acceleratorData": {"nodeName": "node1", "acceleratorType": "NVIDIA H200", "acceleratorUuids": ["GPU-1", "GPU-2"]}
}


def test_a_run_reports_its_accelerators_and_no_others(served: Served) -> None:
    live = trial(1, state=State.ACTIVE, ended_at=None)
    run = run_of(live, state=RunState.RUNNING)
    attempt = Attempt(run.id, 0, 1, run.task_id, AttemptState.RUNNING, T0 + 2, nodes=["node1"])
    served.put([experiment(1, state=State.ACTIVE, ended_at=None), live, attempt])
    token, _ = mint_run_token(run.id)
    client = served.as_run(run, token)
    client.post(PATH, BODY)
    client.post(PATH, {"acceleratorData": {**BODY["acceleratorData"], "acceleratorUuids": ["GPU-1"]}})
    (row,) = served.session.get("/api/v1/tasks/1.1/acceleratorData")["acceleratorData"]
    assert (row["nodeName"], row["acceleratorType"], row["acceleratorUuids"]) == ("node1", "NVIDIA H200", ["GPU-1"])
    assert (row["allocationId"], row["taskId"], row["resourcePool"]) == ("1.1.1.0", "1.1", "default")
    with pytest.raises(ForbiddenException):
        client.post("/api/v1/allocations/2.2.1.0/acceleratorData", BODY)


def test_tensorboard_files_of_an_experiment_that_has_ended_are_deleted(served: Served, tmp_path: Path) -> None:
    storage: dict[str, Any] = {"type": "shared_fs", "host_path": str(tmp_path / "store")}
    config = {**CONFIG, "checkpoint_storage": storage}
    served.put(
        [
            experiment(1, config=config),
            *trained(trial(1)),
            experiment(2, config=config, state=State.ACTIVE, ended_at=None),
        ]
    )
    with pytest.raises(Refused, match="is not there on"):
        served.session.delete("/api/v1/experiments/1/tensorboard-files")
    cluster = served.daemon.installation.cluster_id
    folders = {id: tmp_path / "store" / get_experiment_sync_path(cluster, str(id)) for id in (1, 2)}
    for folder in folders.values():
        folder.mkdir(parents=True)
        (folder / "events").write_text("x")
    served.session.delete("/api/v1/experiments/1/tensorboard-files")
    served.session.delete("/api/v1/experiments/1/tensorboard-files")
    with pytest.raises(Refused, match="deleted when it has ended"):
        served.session.delete("/api/v1/experiments/2/tensorboard-files")
    assert [folder.exists() for folder in folders.values()] == [False, True]


def test_determineds_client_finds_no_kubernetes(published: Published) -> None:
    assert published.python(
        "print(json.dumps([bindings.get_GetKubernetesResourceManagers(sess).to_json(),"
        " bindings.get_ListWorkspaceNamespaceBindings(sess, id=1).to_json()]))"
    ) == [{"resourceManagers": []}, {"namespaceBindings": {}}]
