"""Real arguments of every function of the published bindings: something of every noun, and what names it.

``FIELDS`` has values by the name of a parameter or of a body's field, ``OF`` those of one function alone. ``<name>`` stands for
the id of what ``content`` puts into a master.
"""

from __future__ import annotations

import io
import tarfile
from typing import Any

from dethpc.client.nouns import experiments, models, roles, templates, tokens, users, webhooks, workspaces
from dethpc.domain.facts import Attempt
from dethpc.domain.ids import task_id
from dethpc.domain.states import AttemptState, RunState, State
from dethpc.master.durable import contexts
from tests.master.conftest import CONFIG, T0, Served, experiment, run_of, trained, trial, uuid_of
from tests.master.http.test_control import YAML

PASSWORD = "Correct-horse-1"
FILE = {"content": "cHJpbnQoMSkK", "gid": 0, "mode": 420, "mtime": "0", "path": "train.py", "type": 48, "uid": 0}
RUNNING = trial(24, 23, state=State.ACTIVE, ended_at=None, index=0)


def content(served: Served, hook: str, username: str) -> dict[str, Any]:
    """What stands for the ``<name>`` of arguments. ``hook``: where webhooks are sent; ``username``: of who calls."""
    session = served.session
    lab, empty = (workspaces.create_workspace(session, name)["id"] for name in ("lab", "empty"))
    project = workspaces.create_project(session, lab, "vision", key="vis")["id"]
    bare = workspaces.create_project(session, lab, "bare")["id"]
    names = ("killed", "cancelled", "paused", "several", "moved", "continued")
    created = {
        name: experiments.create(session, YAML, [], activate=name != "continued")["experiment"] for name in names
    }
    experiments.act(session, created["continued"]["id"], "kill")
    _put(served)
    for name in ("digits", "gone"):
        models.create(session, name)
        models.register(session, name, uuid_of(21, 2))
        templates.create(session, name, {"max_restarts": 1})
        roles.create_group(session, name)
        webhooks.create(session, name, hook, [{"triggerType": "TRIGGER_TYPE_CUSTOM"}], mode="WEBHOOK_MODE_SPECIFIC")
    models.register(session, "digits", uuid_of(21, 4))
    me = users.by_name(session, username)["id"]
    grace = users.create(session, "grace", PASSWORD)["id"]
    return {
        **{name: row["id"] for name, row in created.items()},
        **_outside(served),
        "lab": lab,
        "empty": empty,
        "project": project,
        "bare": bare,
        "grace": grace,
        "me": me,
        "token": tokens.create(session, me)["tokenId"],
        "command": _command(served),
        "killed command": _command(served),
        **{name: _task(served, name) for name in ("notebook", "shell", "tensorboard")},
        **{f"killed {name}": _task(served, name) for name in ("notebook", "shell", "tensorboard")},
        "killed task": _generic_task(served),
        "generic task": _generic_task(served),
        "job": created["several"]["jobId"],
        "node": served.daemon.services.cluster.nodes()[0].name,
        "hook": hook,
    }


def _command(served: Served) -> str:
    return str(served.session.post("/api/v1/commands", {"config": {"entrypoint": ["true"]}})["command"]["id"])


def _task(served: Served, noun: str) -> str:
    more = {"experimentIds": [21]} if noun == "tensorboard" else {}
    return str(served.session.post(f"/api/v1/{noun}s", {"config": {}, **more})[noun]["id"])


def _generic_task(served: Served) -> str:
    body = {"config": 'entrypoint: ["true"]', "contextDirectory": []}
    return str(served.session.post("/api/v1/generic-tasks", body)["taskId"])


def _outside(served: Served) -> dict[str, Any]:
    """Trials whose code runs outside the cluster."""
    body = {"config": YAML, "unmanaged": True, "modelDefinition": []}
    outside = served.session.post("/api/v1/experiments", body)["experiment"]["id"]
    of = {"experimentId": outside, "unmanaged": True}
    ids: dict[str, Any] = {"outside": outside}
    for name in ("reported", "patched", "exited"):
        ids[name] = served.session.post("/api/v1/trials", of)["trial"]["id"]
        served.session.post(f"/api/v1/trials/{ids[name]}/start", {"resume": False})
    ids["outside task"] = task_id(outside, ids["reported"])
    named = served.session.put("/api/v1/experiments/by-external-id/outside", body)["experiment"]["id"]
    first = {"externalTrialId": "first", "createTrialRequest": {"experimentId": named, "unmanaged": True}}
    served.session.put("/api/v1/trials", first)
    return ids


def _put(served: Served) -> None:
    digest = contexts.keep(served.daemon.installation.home, _archive())
    run = run_of(RUNNING, state=RunState.RUNNING, scheduler_job_id="41")
    store = served.daemon.installation.home.root / "checkpoints"
    store.mkdir(exist_ok=True)
    storage = {"type": "shared_fs", "host_path": str(store)}
    at: dict[str, Any] = {"owner": served.owner, "config": {**CONFIG, "checkpoint_storage": storage}}
    served.put(
        [
            experiment(21, **at, context_sha256=digest),
            *trained(trial(21, 21, index=0, metadata={"k": 1})),
            *trained(trial(22, 21, index=1)),
            experiment(22, **at),
            *trained(trial(23, 22, index=0)),
            experiment(23, **at, state=State.ACTIVE, ended_at=None),
            RUNNING,
            run,
            Attempt(run.id, 0, 23, run.task_id, AttemptState.RUNNING, T0 + 2, nodes=["node1"]),
            experiment(24, **at, archived=True),
            experiment(25, **at),
            experiment(26, **at),
        ]
    )


def _archive() -> bytes:
    """A context directory."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.size = len(b"print(1)\n")
        tar.addfile(member, io.BytesIO(b"print(1)\n"))
    return file.getvalue()


def arguments(names: dict[str, Any]) -> dict[str, Any]:
    """For ``every_binding.Arguments``."""
    return {"fields": _named(FIELDS, names), "of": _named(OF, names)}


def _named(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _named(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    if isinstance(value, str) and value.startswith("<"):
        return names[value[1:-1]]
    return value


FIELDS: dict[str, Any] = {
    "agentId": "<node>",
    "acceleratorUuids": ["GPU-1"],
    "acceleratorType": "H200",
    "nodeName": "node1",
    "allocationId": f"{run_of(RUNNING).id}.0",
    "checkpointGlobs": ["nothing-*"],
    "checkpointUuid": uuid_of(21, 2),
    "checkpointUuids": [uuid_of(22, 2)],
    "config": YAML,
    "configPolicies": "constraints: {priority_limit: 5}",
    "contents": "a note",
    "destinationProjectId": "<bare>",
    "destinationWorkspaceId": "<lab>",
    "endDate": "2025-11-30",
    "endTime": "2099-01-01T00:00:00Z",
    "entityId": 1,
    "experimentId": 21,
    "experimentIds": [21],
    "experiment_id": 21,
    "externalExperimentId": "outside",
    "externalTrialId": "first",
    "group": "validation",
    "groupId": 1,
    "ids": [21],
    "jobId": "<job>",
    "key": "VIS",
    "label": "blue",
    "limit": 10,
    "message": "maintenance",
    "metricName": "loss",
    "modelDefinition": [FILE],
    "modelName": "digits",
    "modelVersionNum": 1,
    "name": "new",
    "numDays": 7,
    "oldName": "digits",
    "newName": "numbers",
    "path": "train.py",
    "projectId": 1,
    "sourceProjectId": 1,
    "resourcePoolName": "default",
    "roleIds": [1],
    "runId": 21,
    "runIds": [21],
    "slotId": "0",
    "startDate": "2025-11-01",
    "startTime": "2025-11-01T00:00:00Z",
    "stepsCompleted": 9,
    "taskId": run_of(RUNNING).task_id,
    "templateName": "digits",
    "template_name": "digits",
    "timeoutSeconds": 0,
    "timestampAfter": "2025-11-01T00:00:00Z",
    "timestampBefore": "2025-12-01T00:00:00Z",
    "tokenId": "<token>",
    "trialId": 21,
    "trialIds": [21],
    "trialRunId": 1,
    "url": "<hook>",
    "userId": "<grace>",
    "userIds": ["<grace>"],
    "username": "grace",
    "uuid": uuid_of(21, 2),
    "checkpoint_uuid": uuid_of(21, 2),
    "workloadType": "EXPERIMENT",
    "workspaceId": "<lab>",
    "period": "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY",
}

_OUTSIDE = {
    name: {"trialId": "<reported>", f"{prefix}trialId": "<reported>", "avgMetrics": {"loss": 0.5}}
    for name, prefix in (
        ("post_ReportTrialMetrics", "metrics_"),
        ("post_ReportTrialTrainingMetrics", "trainingMetrics_"),
        ("post_ReportTrialValidationMetrics", "validationMetrics_"),
        ("post_ReportTrialProgress", ""),
        ("post_PostTrialRunnerMetadata", ""),
        ("post_StartTrial", ""),
    )
}
_ACTIONS = {
    f"post_{action}{noun}": {"experimentIds": [id], "id": id}
    for noun in ("Experiment", "Experiments")
    for action, id in (
        ("Activate", "<paused>"),
        ("Cancel", "<cancelled>"),
        ("Kill", "<killed>"),
        ("Pause", "<paused>"),
        ("Archive", 25),
        ("Unarchive", 24),
    )
}
_TRIGGER = {"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "COMPLETED"}}
_ASSIGNMENT = {"userId": "<grace>", "role": {"roleId": 2}, "scopeCluster": True}
_ASSIGNMENTS = {"userRoleAssignments": [_ASSIGNMENT], "roleAssignment": _ASSIGNMENT}
_VALIDATION = {"metricType": "METRIC_TYPE_VALIDATION"}

OF: dict[str, dict[str, Any]] = {
    **_OUTSIDE,
    **_ACTIONS,
    **{
        name: {"id": "<project>"}
        for name in ("get_GetProject", "get_GetProjectColumns", "get_GetProjectNumericMetricsRange")
    },
    **{
        name: {"id": "<lab>"}
        for name in (
            "get_GetWorkspace",
            "get_GetWorkspaceProjects",
            "get_GetKubernetesResourceQuotas",
            "get_ListWorkspaceNamespaceBindings",
            "post_PinWorkspace",
            "post_UnpinWorkspace",
            "post_SetResourceQuotas",
        )
    },
    **{
        name: {"id": 21}
        for name in ("get_GetTrialCheckpoints", "get_GetTrialRemainingLogRetentionDays", "post_KillTrial")
    },
    "get_GetCommand": {"commandId": "<command>"},
    "post_KillCommand": {"commandId": "<killed command>"},
    "post_SetCommandPriority": {"commandId": "<command>", "priority": 5},
    "post_KillGenericTask": {"taskId": "<killed task>"},
    **{
        name: {"taskId": "<generic task>"}
        for name in (
            "get_GetGenericTaskConfig",
            "get_GetTaskContextDirectory",
            "post_PauseGenericTask",
            "post_UnpauseGenericTask",
        )
    },
    **{
        f"{call}{noun}{part}": {f"{noun.lower()}Id": f"<{which}{noun.lower()}>", **more}
        for noun in ("Notebook", "Shell", "Tensorboard")
        for call, part, which, more in (
            ("get_Get", "", "", {}),
            ("post_Kill", "", "killed ", {}),
            ("post_Set", "Priority", "", {"priority": 5}),
        )
    },
    **{f"post_Launch{noun}": {"config": {}, "templateName": None} for noun in ("Notebook", "Shell")},
    "put_IdleNotebook": {"notebookId": "<notebook>", "idle": False},
    "post_LaunchTensorboard": {"config": {}, "templateName": None, "experimentIds": [21]},
    "post_LaunchCommand": {"config": {"entrypoint": ["true"]}, "templateName": None},
    "post_CreateGenericTask": {"config": 'entrypoint: ["true"]', "contextDirectory": [FILE]},
    "delete_DeleteExperiment": {"experimentId": 22},
    "delete_DeleteExperiments": {"experimentIds": [26]},
    "delete_DeleteExperimentLabel": {"label": "blue"},
    "delete_DeleteGroup": {"groupId": 2},
    "delete_DeleteModel": {"modelName": "gone"},
    "delete_DeleteModelVersion": {"modelVersionNum": 2},
    "delete_DeleteProject": {"id": "<bare>"},
    "delete_DeleteTemplate": {"templateName": "gone"},
    "delete_DeleteWebhook": {"id": 2},
    "delete_DeleteWorkspace": {"id": "<empty>"},
    "get_CompareTrials": {"trialIds": [21, 22], "metricNames": ["loss"], "metricType": "METRIC_TYPE_VALIDATION"},
    "get_GetExperimentCheckpoints": {"id": 21},
    "get_GetTrainingMetrics": {"trialIds": [21]},
    "get_GetValidationMetrics": {"trialIds": [21]},
    "get_GetTrialProfilerMetrics": {"labels_trialId": 21},
    "get_GetMetadataValues": {"key": "k", "projectId": 1},
    "get_MetricBatches": _VALIDATION,
    "get_TrialsSample": _VALIDATION,
    "get_TrialsSnapshot": {"metricType": "METRIC_TYPE_VALIDATION", "batchesProcessed": 4},
    "patch_PatchAccessToken": {"description": "for scripts"},
    "patch_AssignMultipleGroups": {"addGroups": [1], "removeGroups": []},
    "patch_PatchCheckpoints": {
        "checkpoints": [{"resources": {"resources": {"weights.pt": "10"}}}],
        "uuid": uuid_of(23, 2),
    },
    "patch_PatchExperiment": {"id": 21, "name": "renamed", "labels": ["blue", "green"]},
    "patch_PatchMasterConfig": {"config": {}, "log": {"color": True, "level": "LOG_LEVEL_INFO"}},
    "patch_PatchModel": {"description": "by hand", "name": "digits"},
    "patch_PatchModelVersion": {"comment": "good", "name": "first"},
    "patch_PatchProject": {"id": "<project>", "description": "of images", "name": "vision"},
    "patch_PatchTemplateConfig": {"body": {"max_restarts": 2}},
    "patch_PatchTemplateName": {"oldName": "gone", "newName": "gone"},
    "patch_PatchTrial": {"trialId": "<patched>", "state": "STATE_COMPLETED"},
    "patch_PatchUser": {"displayName": "Grace H."},
    "patch_PatchUsers": {"activate": True},
    "patch_PatchWebhook": {"id": 1},
    "patch_PatchWorkspace": {"id": "<lab>", "name": "lab"},
    "post_ArchiveModel": {"modelName": "gone"},
    "post_UnarchiveModel": {"modelName": "gone"},
    "post_ArchiveProject": {"id": "<bare>"},
    "post_UnarchiveProject": {"id": "<bare>"},
    "post_ArchiveWorkspace": {"id": "<empty>"},
    "post_UnarchiveWorkspace": {"id": "<empty>"},
    "post_AssignRoles": _ASSIGNMENTS,
    "post_RemoveAssignments": _ASSIGNMENTS,
    "post_ContinueExperiment": {"id": "<continued>"},
    "post_CreateExperiment": {"activate": False},
    "post_CreateGroup": {"name": "new group"},
    "post_CreateTrial": {"experimentId": "<outside>", "unmanaged": True, "hparams": {"lr": 0.1}},
    "post_GetModelDefFile": {"path": "train.py"},
    "post_KillRuns": {"runIds": [22]},
    "post_PauseRuns": {"runIds": [22]},
    "post_ResumeRuns": {"runIds": [22]},
    "post_DeleteRuns": {"runIds": [23]},
    "post_Login": {"username": "grace", "password": PASSWORD, "isHashed": False},
    "post_MoveExperiment": {"experimentId": "<moved>", "destinationProjectId": "<project>"},
    "post_MoveExperiments": {"experimentIds": ["<several>"], "destinationProjectId": "<project>"},
    "post_MoveProject": {"projectId": "<project>"},
    "post_MoveRuns": {"runIds": [23], "destinationProjectId": "<project>"},
    "post_PostAccessToken": {"userId": "<me>"},
    "post_PostCheckpointMetadata": {"checkpoint": {"metadata": {"k": 1}}},
    "post_PostModel": {"name": "new model"},
    "post_PostProject": {"name": "new project", "key": "NEW"},
    "post_PostTemplate": {"name": "new", "template_name": "new", "config": {"max_restarts": 3}},
    "put_PutTemplate": {"name": "digits", "config": {"max_restarts": 3}},
    "post_PostUser": {"user": {"username": "eve"}, "username": "eve", "active": True, "admin": False},
    "post_PostWebhook": {
        "triggers": [_TRIGGER],
        "name": "new",
        "webhookType": "WEBHOOK_TYPE_DEFAULT",
        "mode": "WEBHOOK_MODE_WORKSPACE",
        **_TRIGGER,
    },
    "post_PostWebhookEventData": {"title": "a", "description": "b", "level": "LOG_LEVEL_INFO"},
    "post_PostRunMetadata": {"metadata": {"k": 2}},
    "post_PostTaskLogs": {"logs": [{}], "log": "hello", "taskId": "<outside task>"},
    "post_PostTrialProfilerMetricsBatch": {},
    "post_PreviewHPSearch": {"config": {**CONFIG}},
    "post_ReportCheckpoint": {
        "uuid": uuid_of(99, 1),
        "resources": {"weights": "10"},
        "metadata": {"steps_completed": 3},
        "state": "STATE_COMPLETED",
        "taskId": "<outside task>",
    },
    "post_ReportTrialSearcherEarlyExit": {"trialId": "<exited>"},
    "post_ReportTrialSourceInfo": {"trialId": 22, "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE"},
    "post_RunPrepareForReporting": {"runId": "<reported>"},
    "post_SetUserPassword": {"body": PASSWORD},
    "post_TestWebhook": {"id": 1},
    "post_UpdateJobQueue": {"updates": [{}], "priority": 7},
    "put_PutExperiment": {"activate": False, "unmanaged": True},
    "put_PutGlobalConfigPolicies": {},
    "put_PutTrial": {"createTrialRequest": {}, "experimentId": "<outside>", "unmanaged": True, "externalTrialId": "x"},
}
