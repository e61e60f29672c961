"""Roles in one workspace alone: what lies in another one is not seen, by whatever route it is asked for."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from dethpc.client import Session
from dethpc.client.nouns import experiments, jobs, models, roles, tasks, templates, webhooks, workspaces
from dethpc.domain.facts import Attempt
from dethpc.domain.ids import task_id
from dethpc.domain.records import RoleAssignment, TokenKind, User, WorkspaceRole
from dethpc.domain.roles import Role
from dethpc.domain.states import AttemptState, RunState, State
from dethpc.errors import ForbiddenException, NotFound, Refused
from dethpc.master.durable import contexts
from dethpc.master.http.auth import mint_run_token
from dethpc.master.rebuild import recreate
from dethpc.state import open_store
from dethpc.state.queries import records as stored
from tests.master.conftest import T0, Published, Served, experiment, run_of, trained, trial, uuid_of
from tests.master.http.test_control import YAML
from tests.master.http.test_every_answer import QUERIES
from tests.master.http.test_experiments import file
from tests.master.http.test_roles import ADMIN, BODIES, EDITOR, RUNS, VIEWER, Missing, rows
from tests.master.webhooks.receiver import SITE
from tests.waiting import LONG_ENOUGH

SECRET = "quasar"
"""A part of every name in the workspace that is not to be seen."""


@pytest.fixture
def site() -> Any:
    return SITE


class Two:
    """Two workspaces, 2 and 3, with one of everything: experiments and trials 111 and 112 have ended, 121 and 122 run; projects are
    2 and 3, all others 1 and 2."""

    def __init__(self, served: Served) -> None:
        self.served, session = served, served.session
        for n, name in ((1, "nebula"), (2, SECRET)):
            space = workspaces.create_workspace(session, f"{name} space")["id"]
            project = workspaces.create_project(session, space, f"{name} project", key=f"K{n}")["id"]
            at: dict[str, Any] = {"project_id": project, "owner": served.owner, "labels": [f"{name}-label"]}
            id = 110 + n
            live = trial(120 + n, 120 + n, state=State.ACTIVE, ended_at=None, index=0)
            run = run_of(live, state=RunState.RUNNING, scheduler_job_id=f"4{n}", nodes=["node1"])
            facts = experiment(id, name=f"{name} {id}", description=name, **at)
            served.put(
                [
                    facts,
                    *trained(trial(id, id, index=0, metadata={name: name}, external_id=f"{name}-trial")),
                    experiment(120 + n, name=f"{name} live", state=State.ACTIVE, ended_at=None, external_id=name, **at),
                    live,
                    run,
                    Attempt(run.id, 0, 120 + n, run.task_id, AttemptState.RUNNING, T0 + 2, nodes=["node1"]),
                ]
            )
            models.create(session, f"{name} model", workspaceId=space, labels=[f"{name}-model"])
            models.register(session, f"{name} model", uuid_of(id, 2), comment=name)
            templates.create(session, f"{name} template", {"description": name}, space)
            trigger = {"triggerType": "TRIGGER_TYPE_CUSTOM"}
            webhooks.create(
                session,
                f"{name} hook",
                f"http://127.0.0.1/{name}",
                [trigger],
                workspaceId=space,
                mode="WEBHOOK_MODE_SPECIFIC",
            )

    def user(self, role: Role, name: str = "grace", everywhere: Role = Role.NONE) -> Session:
        """A new user with this role in workspace 2."""
        return Session(self.served.url, self.token(role, name, everywhere))

    def token(self, role: Role, name: str = "grace", everywhere: Role = Role.NONE) -> str:
        services, now = self.served.daemon.services, time.time()
        user = services.records.add(User, username=name, created_at=now, modified_at=now, admin=False)
        if role:
            services.records.put(WorkspaceRole(user.id, 0, 2, role, now))
        if everywhere:
            services.records.put(RoleAssignment(user.id, 0, everywhere, now))
        return services.auth.make_token(TokenKind.SESSION, 3600, user_id=user.id)[0]


@pytest.fixture
def two(served: Served) -> Two:
    return Two(served)


def names(n: int) -> dict[str, Any]:
    """What paths name, in the first or the second workspace."""
    word = {1: "nebula", 2: SECRET}[n]
    run = f"{120 + n}.{120 + n}.1"
    return {
        "experiment_id": 110 + n,
        "trial_id": 110 + n,
        "run_id": 110 + n,
        "run": run,
        "k": 0,
        "task_id": task_id(110 + n, 110 + n),
        "allocation_id": f"{run}.0",
        "job_id": f"4{n}",
        "uuid": uuid_of(110 + n, 2),
        "workspace_id": n + 1,
        "project_id": n + 1,
        "model_name": f"{word} model",
        "webhook_id": n,
        "number": 1,
        "key": f"K{n}",
        "name": f"{word} template",
        "ids": f"{word}/{word}-trial",
        "external_id": word,
        "label": "x",
        "workload_type": "EXPERIMENT",
        "user_id": 1,
        "username": "nobody",
        "group_id": 1,
        "token_id": 1,
        "session_id": 1,
        "slot": "000",
        "digest": "0" * 64,
        "file": "x",
    }


ROWS = [row for row in [*RUNS, *rows(VIEWER + EDITOR + ADMIN)] if "/docs/" not in row]
STREAMS = ("/api/v1/master/logs",)


def path_of(row: str, n: int) -> str:
    method, _, path = row.partition(" ")
    place, _, query = path.replace(":path}", "}").partition("?")
    if not query and method == "GET":
        query = next(iter(QUERIES.get(path, [""])), "").replace("trialIds=1", f"trialIds={110 + n}")
        query = query.replace("ids=1", f"ids={110 + n}")
    filled = place.format_map(Missing(names(n)))
    query = query.format_map(names(n))
    return f"{filled}?{query}" if query else filled


Ask = Callable[..., requests.Response]


@pytest.fixture
def ask(served: Served) -> Iterator[Ask]:
    with requests.Session() as http:

        def ask(token: str, method: str, path: str, body: Any = None) -> requests.Response:
            headers = {"Authorization": f"Bearer {token}"}
            return http.request(method, served.url + path, json=body, headers=headers, timeout=LONG_ENOUGH)

        yield ask


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR, Role.ADMIN], ids=lambda role: role.name)
def test_no_route_shows_or_changes_what_lies_in_another_workspace(two: Two, ask: Ask, role: Role) -> None:
    user = two.token(role)
    for row in ROWS:
        method, path = row.partition(" ")[0], path_of(row, 2)
        body = None if method == "GET" else BODIES.get(row, bodies(2))
        answer = ask(user, method, path, body)
        assert answer.status_code < 500, (row, answer.text)
        text = answer.text
        for name in filter(lambda name: SECRET in str(name), [*names(2).values(), *bodies(2).values()]):
            text = text.replace(str(name), "")
        assert SECRET not in text, (row, answer.text[:500])
        assert answer.status_code in (403, 404) or not PLACES & set(re.findall(r"{(\w+)", row)), (
            row,
            answer.text[:500],
        )
        assert answer.status_code != 200 or not changes(row) or harmless(row, answer), (row, answer.text[:300])
    untouched(two)


PLACES = {"experiment_id", "trial_id", "run_id", "run", "task_id", "allocation_id", "job_id", "uuid"} | {
    "workspace_id",
    "project_id",
    "model_name",
    "webhook_id",
}
"""What paths name that lies in a workspace."""


def bodies(n: int) -> dict[str, Any]:
    """Whatever a body may name, in that workspace."""
    id, uuid = 110 + n, uuid_of(110 + n, 4)
    word = {1: "nebula", 2: SECRET}[n]
    assignment = {"userId": 1, "roleAssignment": {"role": {"roleId": 1}, "scopeWorkspaceId": n + 1}}
    return {
        "id": id,
        "experimentId": id,
        "experimentIds": [id],
        "trialId": id,
        "runId": id,
        "runIds": [id],
        "checkpointUuid": uuid,
        "checkpointUuids": [uuid],
        "checkpointGlobs": [],
        "checkpoints": [{"uuid": uuid, "resources": {"resources": {"weights.pt": "1"}}}],
        "uuid": uuid,
        "taskId": f"{id}.{id}",
        "metadata": {"steps_completed": 1},
        "projectId": n + 1,
        "sourceProjectId": n + 1,
        "destinationProjectId": n + 1,
        "destinationWorkspaceId": n + 1,
        "workspaceId": n + 1,
        "name": f"{word} other",
        "oldName": f"{word} template",
        "newName": "mine",
        "config": YAML,
        "parentId": id,
        "createTrialRequest": {"experimentId": id},
        "externalTrialId": "x",
        "modelDefinition": [],
        "triggers": [{"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "ERROR"}}],
        "url": "http://127.0.0.1/x",
        "userRoleAssignments": [assignment],
        "numDays": 3,
        "reason": "x",
        "updates": [{"jobId": str(120 + n), "priority": 3}],
        "data": {"title": "a", "description": "b", "level": "info"},
        "trialSourceInfo": {"trialId": id, "checkpointUuid": uuid},
        "logs": [{"taskId": f"{id}.{id}", "log": "x"}],
        "entityType": "ENTITY_TYPE_PROJECT",
        "entityId": n + 1,
    }


def changes(row: str) -> bool:
    return not row.startswith("GET ")


def harmless(row: str, answer: requests.Response) -> bool:
    """It only reads, or says of each thing that it is not there."""
    results = answer.json().get("results") if answer.text.startswith("{") else None
    if results is not None:
        return all("not found" in one["error"] for one in results)
    return row in READS


READS = (
    "POST /api/v1/experiments-search",
    "POST /api/v1/runs",
    "POST /api/v1/groups/search",
    "POST /api/v1/roles/search/by-ids",
    "POST /api/v1/preview-hp-search",
)


def untouched(two: Two) -> None:
    owner = two.served.session
    assert experiments.get(owner, 112)["experiment"]["name"] == f"{SECRET} 112"
    assert not experiments.get(owner, 112)["experiment"]["archived"]
    assert experiments.get(owner, 112)["experiment"]["labels"] == [f"{SECRET}-label"]
    assert models.model(owner, f"{SECRET} model")["numVersions"] == 1
    assert templates.get(owner, f"{SECRET} template")["config"] == {"description": SECRET}
    assert len(webhooks.webhooks(owner)) == 2
    assert workspaces.project_by_id(owner, 3)["numExperiments"] == 2


def test_what_lies_in_the_own_workspace_is_shown(two: Two, ask: Ask) -> None:
    token = two.token(Role.VIEWER)
    user = Session(two.served.url, token)
    for row in [*RUNS, *rows(VIEWER)]:
        if changes(row) or any(part in row for part in NOT_HERE):
            continue
        answer = ask(token, "GET", path_of(row, 1))
        assert answer.status_code in (200, 400), (row, answer.text)
    listed = experiments.listing(user)["experiments"]
    assert [row["id"] for row in listed] == [111, 121]
    assert [row["name"] for row in workspaces.workspaces(user)] == ["nebula space"]
    assert [row["name"] for row in workspaces.projects(user)] == ["nebula project"]
    assert [row["name"] for row in models.models(user)] == ["nebula model"] and models.labels(user) == ["nebula-model"]
    assert [row["name"] for row in templates.templates(user)] == ["nebula template"]
    assert user.post("/api/v1/runs", {"sort": "id=asc"}, idempotent=True)["pagination"]["total"] == 2
    assert {job["name"] for job in user.get("/api/v1/job-queues")["jobs"]} == {"nebula live"}
    assert json.dumps(user.get("/api/v1/tasks")).count("nebula live") == 1
    with pytest.raises(ForbiddenException):
        experiments.act(user, 111, "archive")
    with pytest.raises(NotFound, match="experiment 112 not found"):
        experiments.get(user, 112)
    with pytest.raises(NotFound, match="experiment 999 not found"):
        experiments.get(user, 999)


NOT_HERE = (
    *("/agents", "/docs/", "/users/{", "/groups/{", "/roles/search/by-group", "/resource-pools/{", "/model_def"),
    *("{command_id}", "{notebook_id}", "{shell_id}", "{tensorboard_id}", "{launched_task_id}"),
    *("/tasks/{task_id}/config", "/tasks/{task_id}/context_directory"),
    *("/file_tree", "/code_changes", "/checkpoints/{uuid}", "/by-external-id"),
)
"""About the cluster, or files and users that are not there."""


def test_an_editor_of_a_workspace_acts_there_and_nowhere_else(two: Two) -> None:
    user = two.user(Role.EDITOR, everywhere=Role.VIEWER)
    assert [row["id"] for row in experiments.listing(user)["experiments"]] == [111, 112, 121, 122]
    created = experiments.create(user, YAML, [], activate=False, project=2)["experiment"]
    experiments.act(user, 111, "archive")
    with pytest.raises(ForbiddenException):
        experiments.act(user, 112, "archive")
    with pytest.raises(ForbiddenException):
        experiments.create(user, YAML, [], activate=False, project=3)
    with pytest.raises(ForbiddenException):
        workspaces.move_experiment(user, created["id"], 3)
    with pytest.raises(ForbiddenException):
        models.create(user, "new", workspaceId=3)
    models.create(user, "new", workspaceId=2)
    results = user.post("/api/v1/projects/-1/experiments/archive", {"experimentIds": [112, created["id"]]})["results"]
    assert [bool(one["error"]) for one in sorted(results, key=lambda one: one["id"])] == [True, True]
    assert "experiment 112 not found" in [one["error"] for one in results]
    with pytest.raises(ForbiddenException):
        workspaces.change_workspace(user, 2, name="mine")


def test_who_may_change_an_experiment_changes_its_job(two: Two) -> None:
    owner = two.served.session
    mine, other = (str(experiments.create(owner, YAML, [], project=project)["experiment"]["id"]) for project in (2, 3))

    def order() -> list[str]:
        return [row["entityId"] for row in jobs.listing(owner) if row["entityId"] in (mine, other)]

    user, outsider = two.user(Role.EDITOR, everywhere=Role.VIEWER), two.user(Role.EDITOR, "ada")
    jobs.update(user, [{"jobId": mine, "priority": 50}])
    assert order() == [other, mine]
    jobs.update(user, [{"jobId": mine, "aheadOf": other}])
    assert order() == [mine, other], "beside a job that she only sees"
    with pytest.raises(ForbiddenException):
        jobs.update(user, [{"jobId": mine, "priority": 1}, {"jobId": other, "priority": 50}])
    for change in ({"jobId": mine, "aheadOf": other}, {"jobId": other, "priority": 50}):
        with pytest.raises(NotFound, match=f"job {other} not found"):
            jobs.update(outsider, [change])
    with pytest.raises(ForbiddenException):
        jobs.update(two.user(Role.VIEWER, "hedy"), [{"jobId": mine, "priority": 50}])
    assert [row["priority"] for row in jobs.listing(owner)] == [42] * 4
    jobs.update(outsider, [{"jobId": mine, "priority": 60}])
    assert order() == [other, mine]


def test_an_id_of_digits_that_is_a_text_is_looked_up_as_one(two: Two) -> None:
    user = two.user(Role.VIEWER)
    for path in ("/api/v1/checkpoints/0", "/api/v1/tasks/0"):
        with pytest.raises(NotFound):
            user.get(path)


def test_a_name_in_a_body_is_looked_up_in_the_own_workspaces_alone(two: Two) -> None:
    user = two.user(Role.EDITOR)
    template, metric = f"{SECRET} template", "metric: loss"
    own: dict[str, Any] = {"config": YAML, "projectId": 2}
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("/api/v1/experiments", {**own, "template": template, "validateOnly": True}),
        ("/api/v1/experiments", {**own, "template": "x"}),
        ("/api/v1/experiments", {**own, "projectId": 3}),
        ("/api/v1/experiments", {**own, "config": YAML.replace(metric, f"{metric}, source_trial_id: 112")}),
        ("/api/v1/commands", {"config": {"entrypoint": ["ls"]}, "workspaceId": 2, "templateName": template}),
        ("/api/v1/models", {"name": "new", "workspaceName": "x"}),
        ("/api/v1/models", {"name": "new", "workspaceName": f"{SECRET} space"}),
    ]
    for path, body in attempts:
        with pytest.raises(NotFound, match="not found|no trial|there is no") as refused:
            user.post(path, body)
        assert SECRET not in str(refused.value).replace(repr(body.get("workspaceName")), "").replace(repr(template), "")
    elsewhere = user.post("/api/v1/experiments", {**own, "template": "nebula template", "validateOnly": True})
    assert elsewhere["config"]["description"] == "nebula"


def test_what_has_the_name_of_something_deleted_elsewhere_is_found(two: Two) -> None:
    owner, user = two.served.session, two.user(Role.EDITOR)
    models.create(owner, "digits", workspaceId=3)
    models.delete(owner, "digits")
    models.create(user, "digits", workspaceId=2)
    assert models.model(user, "digits")["workspaceId"] == 2
    assert models.change(user, "digits", notes="ours")["notes"] == "ours"


def test_a_version_whose_checkpoint_lies_in_another_workspace_is_not_shown(two: Two) -> None:
    models.register(two.served.session, "nebula model", uuid_of(112, 4))
    user, path = two.user(Role.EDITOR), "/api/v1/models/nebula%20model/versions"
    assert [row["version"] for row in user.get(path)["modelVersions"]] == [1]
    with pytest.raises(NotFound):
        user.get(f"{path}/2")
    with pytest.raises(NotFound):
        user.patch(f"{path}/2", {"comment": "mine"})
    assert two.served.session.get(f"{path}/2")["modelVersion"]["comment"] == ""


def test_tasks_are_of_the_workspace_that_they_were_launched_in(two: Two) -> None:
    user = two.user(Role.EDITOR)
    (mine,) = (row["id"] for row in workspaces.workspaces(user))
    command = tasks.launch(user, "commands", {"entrypoint": ["ls"]}, [], workspaceId=mine)["command"]["id"]
    other = tasks.launch(two.served.session, "commands", {"entrypoint": ["ls"]}, [])["command"]["id"]
    assert [row["id"] for row in tasks.listing(user, "commands")] == [command]
    assert tasks.get(user, "commands", command)["command"]["workspaceId"] == mine
    tasks.set_priority(user, "commands", command, 3)
    for refused in (
        lambda: tasks.get(user, "commands", other),
        lambda: tasks.kill(user, "commands", other),
        lambda: user.get(f"/proxy/{other}/"),
        lambda: tasks.ticket(user, other),
        lambda: tasks.task(user, other),
    ):
        with pytest.raises(NotFound):
            refused()
    with pytest.raises(ForbiddenException):
        tasks.launch(user, "commands", {"entrypoint": ["ls"]}, [], workspaceId=1)
    viewer = two.user(Role.VIEWER)
    assert [row["id"] for row in tasks.listing(viewer, "commands")] == [command]
    shell = tasks.launch(user, "shells", {}, [], workspaceId=mine)["shell"]["id"]
    keys = [bool(tasks.get(one, "shells", shell)["shell"]["privateKey"]) for one in (user, viewer)]
    assert keys == [True, False], "an editor opens it, there as everywhere"
    with pytest.raises(ForbiddenException):
        tasks.kill(viewer, "commands", command)
    tasks.kill(user, "commands", command)


def test_a_tree_of_tasks_is_killed_by_who_may_act_on_all_of_it(two: Two) -> None:
    user, owner = two.user(Role.EDITOR), two.served.session
    generic: dict[str, Any] = {"config": "entrypoint: [ls]\nresources: {slots: 0}\n"}
    parent = user.post("/api/v1/generic-tasks", {**generic, "projectId": 2})["taskId"]
    child = owner.post("/api/v1/generic-tasks", {**generic, "projectId": 3, "parentId": parent})["taskId"]
    with pytest.raises(ForbiddenException):
        user.post(f"/api/v1/tasks/{parent}/kill", {"killFromRoot": True})
    states = {id: owner.get(f"/api/v1/tasks/{id}")["task"]["taskState"] for id in (parent, child)}
    assert not any("CANCELED" in state for state in states.values())
    owner.post(f"/api/v1/tasks/{parent}/kill", {"killFromRoot": True})
    states = {id: owner.get(f"/api/v1/tasks/{id}")["task"]["taskState"] for id in (parent, child)}
    assert all("CANCELED" in state for state in states.values())


def test_an_admin_of_a_workspace_manages_it_and_who_may_see_it(two: Two, served: Served) -> None:
    user, ada = two.user(Role.ADMIN), two.user(Role.NONE, "ada")
    workspaces.change_workspace(user, 2, name="renamed")
    with pytest.raises(NotFound):
        workspaces.change_workspace(user, 3, name="mine")
    with pytest.raises(ForbiddenException):
        workspaces.create_workspace(user, "another")
    ada_id = int(ada.get("/api/v1/me")["user"]["id"])
    roles.assign(user, "Viewer", user_id=ada_id, workspace_id=2)
    assert [row["id"] for row in experiments.listing(ada)["experiments"]] == [111, 121]
    for scope in ({"workspace_id": 3}, {}):
        with pytest.raises((ForbiddenException, NotFound)):
            roles.assign(user, "Viewer", user_id=ada_id, **scope)
    assert [hook["name"] for hook in webhooks.webhooks(user)] == ["nebula hook"]
    trigger = {"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "ERROR"}}
    webhooks.create(served.session, "of all", "http://127.0.0.1/secret", [trigger])
    for session, urls in ((user, ["http://127.0.0.1/nebula", "********"]), (ada, ["********", "********"])):
        assert [hook["url"] for hook in webhooks.webhooks(session)] == urls
    of_all = next(hook["id"] for hook in webhooks.webhooks(user) if hook["name"] == "of all")
    for session in (user, ada):  # it is shown, so nobody says that it is not there
        for act in (
            lambda: session.patch(f"/api/v1/webhooks/{of_all}", {"name": "mine"}),  # noqa: B023
            lambda: session.delete(f"/api/v1/webhooks/{of_all}"),  # noqa: B023
        ):
            with pytest.raises(ForbiddenException, match="needs the role ClusterAdmin in all workspaces"):
                act()
    with pytest.raises(NotFound):
        user.delete("/api/v1/webhooks/99")
    for hidden in (3, 99):  # nobody learns of a workspace by a webhook
        with pytest.raises(NotFound, match=f"workspace {hidden} not found"):
            webhooks.create(user, "spy", "http://127.0.0.1/spy", [trigger], workspaceId=hidden)
    roles.unassign(user, "Viewer", user_id=ada_id, workspace_id=2)
    with pytest.raises(ForbiddenException):
        experiments.listing(ada)


def test_roles_in_workspaces_are_kept_and_shown(two: Two, served: Served, tmp_path: Path) -> None:
    owner = served.session
    group = roles.create_group(owner, "lab", [served.daemon.services.auth.user.id])["groupId"]
    roles.assign(owner, "WorkspaceAdmin", group_id=group, workspace_id=3)
    for name, scope in (("WorkspaceAdmin", {}), ("ClusterAdmin", {"workspace_id": 3})):
        with pytest.raises(Refused, match="WorkspaceAdmin is a role in one workspace"):
            roles.assign(owner, name, group_id=group, **scope)
    summary = owner.get(f"/api/v1/roles/search/by-group/{group}")
    assert [(one["roleId"], one["scopeWorkspaceIds"], one["scopeCluster"]) for one in summary["assignments"]] == [
        (4, [3], False)
    ]
    members = owner.get("/api/v1/roles/workspace/3")
    assert [one["name"] for one in members["groups"]] == ["lab"]
    with open_store(tmp_path / "again.db") as again:
        recreate(served.daemon.services.installation.home, again)
        with again.read() as connection:
            assert [row.workspace_id for row in stored.find(connection, WorkspaceRole)] == [3]


def test_the_published_client_assigns_a_role_in_a_workspace(two: Two, published: Published) -> None:
    user = two.user(Role.NONE, "eve")
    published.det("rbac", "assign-role", "Editor", "-u", "eve", "-w", "nebula space")
    assert [row["id"] for row in experiments.listing(user)["experiments"]] == [111, 121]
    assert "nebula space" in published.det("rbac", "list-users-roles", "eve")
    published.det("rbac", "unassign-role", "Editor", "-u", "eve", "-w", "nebula space")
    with pytest.raises(ForbiddenException):
        experiments.listing(user)


def test_a_refusal_names_the_workspace_and_where_the_role_holds(two: Two) -> None:
    grace = two.user(Role.EDITOR)
    refused = "Editor in workspace 'Uncategorized' for this; it holds in workspace 'nebula space' alone, which -w, or"
    with pytest.raises(ForbiddenException, match=f"{refused}.* --workspace-name Uncategorized$"):
        experiments.create(grace, YAML, [])
    mistaken = f"{YAML}\nworkspace: nowhere\nproject: nothing\n"
    with pytest.raises(ForbiddenException, match="there is no workspace 'nowhere' .*in workspace 'Uncategorized'"):
        experiments.create(grace, mistaken, [])
    with pytest.raises(
        ForbiddenException, match="WorkspaceAdmin in workspace 'nebula space' .*grace --workspace-name 'nebula space'$"
    ):
        grace.patch("/api/v1/workspaces/2", {"name": "mine"})
    with pytest.raises(
        ForbiddenException, match="the role Viewer in all workspaces for this; it holds in workspace 'nebula space'"
    ):
        grace.get("/api/v1/agents")
    with pytest.raises(ForbiddenException, match="WorkspaceAdmin in workspace 3 .*--workspace-name 3$"):
        roles.assign(two.user(Role.ADMIN, "ada"), "Viewer", user_id=2, workspace_id=3)
    with pytest.raises(
        NotFound, match=r"role Editor is not assigned there: user \d+ does not have it in all workspaces"
    ):
        roles.unassign(two.served.session, "Editor", user_id=stored_id(two, "grace"))


def test_a_refusal_advises_the_least_role_that_suffices(two: Two) -> None:
    hedy, nobody = two.user(Role.NONE, "hedy", everywhere=Role.VIEWER), two.user(Role.NONE, "nobody")
    there = "in workspace 'quasar space' for this. .* --workspace-name 'quasar space'$"
    with pytest.raises(ForbiddenException, match=f"the role Editor {there}"):
        experiments.act(hedy, 112, "archive")
    with pytest.raises(ForbiddenException, match=f"the role WorkspaceAdmin {there}"):
        workspaces.change_workspace(hedy, 3, name="mine")
    for user in (hedy, nobody):
        with pytest.raises(
            ForbiddenException, match="the role Editor in a workspace for this. .* --workspace-name NAME$"
        ):
            experiments.create(user, YAML, [])
        with pytest.raises(ForbiddenException, match=r"the role ClusterAdmin for this. .* --username-to-assign \w+$"):
            workspaces.create_workspace(user, "another")
    for refused in (experiments.listing, lambda user: experiments.get(user, 112)):
        with pytest.raises(ForbiddenException, match="the role Viewer in a workspace for this"):
            refused(nobody)
    with pytest.raises(ForbiddenException, match="the role Editor in a workspace for this"):
        experiments.act(nobody, 112, "archive")


def stored_id(two: Two, name: str) -> int:
    (user,) = two.served.daemon.services.records.find(User, username=name)
    return user.id


def test_what_a_body_names_is_not_there_for_who_does_not_see_it(two: Two) -> None:
    """Neither as a destination nor as a beginning: the answer is that to what does not exist."""
    user, owner = two.user(Role.EDITOR), two.served.session
    generic = {"config": "entrypoint: [ls]\nresources: {slots: 0}\n", "projectId": 2}
    theirs = owner.post("/api/v1/generic-tasks", {**generic, "projectId": 3})["taskId"]
    single = "searcher: {name: single, metric: loss, max_length: {batches: 1}, "
    for hidden, uuid, task in ((3, uuid_of(112, 2), theirs), (99, uuid_of(999, 2), "nosuch")):
        config = f"entrypoint: x\n{single}source_checkpoint_uuid: {uuid}}}\n"
        requests: list[tuple[str, dict[str, Any]]] = [
            ("experiments/111/move", {"destinationProjectId": hidden}),
            ("projects/2/experiments/move", {"experimentIds": [111], "destinationProjectId": hidden}),
            ("runs/move", {"runIds": [111], "sourceProjectId": 2, "destinationProjectId": hidden}),
            ("models/nebula%20model/move", {"destinationWorkspaceId": hidden}),
            ("generic-tasks", {**generic, "parentId": task}),
            ("generic-tasks", {**generic, "forkedFrom": task}),
            ("generic-tasks", {**generic, "projectId": hidden}),
            ("experiments", {"config": config, "projectId": 2, "activate": False}),
        ]
        for path, body in requests:
            with pytest.raises(NotFound):
                user.post(f"/api/v1/{path}", body)
    untouched(two)


def test_a_task_that_is_forked_or_has_a_parent_is_in_its_project(two: Two) -> None:
    user, owner = two.user(Role.EDITOR), two.served.session
    generic = {"config": "entrypoint: [sleep, '60']\nresources: {slots: 0}\n"}
    first = user.post("/api/v1/generic-tasks", {**generic, "projectId": 2})["taskId"]
    for session in (user, owner):
        for relation in ("forkedFrom", "parentId"):
            task = session.post("/api/v1/generic-tasks", {**generic, relation: first})["taskId"]
            (row,) = [one for one in user.get("/api/v1/launched-tasks")["tasks"] if one["id"] == task]
            assert row["workspaceId"] == 2
    owner.post("/api/v1/projects/2/archive")
    with pytest.raises(NotFound, match="is archived: .*; the other task is in it: name a project that takes this one"):
        user.post("/api/v1/generic-tasks", {**generic, "parentId": first})


def test_a_fork_has_the_files_of_its_origin_whatever_its_parent_is(two: Two) -> None:
    user = two.user(Role.EDITOR)
    generic = {"config": "entrypoint: [sleep, '60']\nresources: {slots: 0}\n", "projectId": 2}

    def created(**fields: Any) -> str:
        return str(user.post("/api/v1/generic-tasks", {**generic, **fields})["taskId"])

    parent, origin = (created(contextDirectory=[file(name, "x")]) for name in ("parent", "origin"))
    for fields, name in (({}, "origin"), ({"inheritContext": True}, "parent")):
        task = created(forkedFrom=origin, parentId=parent, **fields)
        targz = base64.b64decode(user.get(f"/api/v1/tasks/{task}/context_directory")["b64Tgz"])
        assert [member.name for member in contexts.members(targz)] == [name]


def test_an_editor_of_a_workspace_reports_what_trains_elsewhere(two: Two) -> None:
    user, owner = two.user(Role.EDITOR, everywhere=Role.VIEWER), two.served.session
    mine, theirs = unmanaged(user, 2), unmanaged(owner, 3)
    assert user.post("/api/v1/runs/start", {"runId": mine["id"]})["storageId"]
    alert = {"data": {"title": "a", "description": "b", "level": "info"}}
    user.post("/api/v1/webhooks/custom", {**alert, "experimentId": mine["experimentId"]})
    source = {"trialId": mine["id"], "checkpointUuid": uuid_of(112, 2)}
    user.post("/api/v1/trial-source-info", {"trialSourceInfo": source})
    lines = [{"task_id": one["taskId"], "log": "hello"} for one in (mine, theirs)]
    logs = [{"taskId": one["taskId"], "log": "again"} for one in (mine, theirs)]
    user.post("/task-logs", lines[:1])
    user.post("/api/v1/task/logs", {"logs": logs[:1]})
    requests: list[tuple[str, Any]] = [
        ("/api/v1/runs/start", {"runId": theirs["id"]}),
        ("/api/v1/webhooks/custom", {**alert, "experimentId": theirs["experimentId"]}),
        ("/api/v1/trial-source-info", {"trialSourceInfo": {**source, "trialId": theirs["id"]}}),
        ("/task-logs", lines),
        ("/api/v1/task/logs", {"logs": logs}),
    ]
    for path, body in requests:
        with pytest.raises(NotFound, match=r"(trial|experiment) \d+ not found"):
            user.post(path, body)
    for one, count in ((mine, 2), (theirs, 0)):  # all of a request or nothing
        assert len(list(owner.stream(f"/api/v1/trials/{one['id']}/logs"))) == count
    viewer = two.user(Role.VIEWER, "hedy")
    for path, body in [*requests, ("/api/v1/runs/start", {"runId": mine["id"]})]:
        with pytest.raises(ForbiddenException, match="the role Editor in a workspace for this"):
            viewer.post(path, body)


def unmanaged(session: Session, project: int) -> dict[str, Any]:
    """A new trial, which trains elsewhere, and has begun to."""
    config = "name: outside\nsearcher: {name: single, metric: loss}\n"
    new = {"config": config, "unmanaged": True, "projectId": project}
    id = session.put(f"/api/v1/experiments/by-external-id/of-{project}", new)["experiment"]["id"]
    trial: dict[str, Any] = session.post("/api/v1/trials", {"experimentId": id, "unmanaged": True})["trial"]
    session.post(f"/api/v1/trials/{trial['id']}/start", {})
    return trial


def test_a_checkpoint_of_another_workspace_is_not_taken_over(two: Two) -> None:
    owner = two.served.session
    seen = f"checkpoint {uuid_of(111, 2)} is trial 111's"
    hidden = f"checkpoint {uuid_of(112, 2)} is another trial's"
    for user in (two.user(Role.EDITOR, everywhere=Role.VIEWER), two.user(Role.EDITOR, "ada")):
        mine = unmanaged(user, 2)
        for id, refusal in ((111, seen), (112, hidden)):
            body = {"uuid": uuid_of(id, 2), "taskId": mine["taskId"], "metadata": {"steps_completed": 1}}
            with pytest.raises(Refused, match=refusal):
                user.post("/api/v1/checkpoints", body)
            assert owner.get(f"/api/v1/checkpoints/{uuid_of(id, 2)}")["checkpoint"]["training"]["trialId"] == id


def test_an_external_id_of_another_workspace_is_taken(two: Two) -> None:
    new = {"config": "searcher: {name: single, metric: loss}", "unmanaged": True, "projectId": 2}
    for user in (two.user(Role.EDITOR), two.user(Role.EDITOR, "hedy", everywhere=Role.VIEWER)):
        with pytest.raises(Refused, match=f"the external id .{SECRET}. is taken in another workspace") as taken:
            user.put(f"/api/v1/experiments/by-external-id/{SECRET}", new)
        assert taken.value.status_code == 409  # type: ignore[attr-defined]
        assert user.put("/api/v1/experiments/by-external-id/nebula", new)["experiment"]["id"] == 121
    untouched(two)


def test_a_user_of_one_workspace_has_active_projects(two: Two) -> None:
    user = two.user(Role.VIEWER)
    later = workspaces.create_project(two.served.session, 2, "later")["id"]
    visit = {"entityType": "ENTITY_TYPE_PROJECT", "entityId": later}
    user.post("/api/v1/users/activity", visit)
    assert [row["id"] for row in user.get("/api/v1/user/projects/activity")["projects"]] == [later, 2]
    for hidden in (3, 99):
        with pytest.raises(NotFound, match=f"project {hidden} not found"):
            user.post("/api/v1/users/activity", {**visit, "entityId": hidden})


def test_names_that_a_body_brings_tell_nothing_of_another_workspace(two: Two) -> None:
    user = two.user(Role.EDITOR)
    for name in (f"{SECRET} template", "missing"):
        with pytest.raises(NotFound) as refusal:
            user.patch("/api/v1/template/rename", {"oldName": name, "newName": "new"})
        assert str(refusal.value).replace(name, "").count(SECRET) == 0
    for create in (user.post, user.put):
        with pytest.raises(Refused, match="the name is taken") as taken:
            create(f"/api/v1/templates/{SECRET}%20template", {"config": {}})
        assert taken.value.status_code == 409  # type: ignore[attr-defined]
    run = run_of(trial(121, 121, index=0), state=RunState.RUNNING)
    own = two.served.as_run(run, mint_run_token(run.id)[0])
    for model_id in (2, 999):
        info = {"trialId": 121, "checkpointUuid": uuid_of(111, 2), "modelId": model_id, "modelVersion": 9}
        with pytest.raises(NotFound) as refusal:
            own.post("/api/v1/trial-source-info", {"trialSourceInfo": info})
        assert SECRET not in str(refusal.value)
