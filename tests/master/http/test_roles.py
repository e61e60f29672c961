"""Which role may ask for what: every route of the application has its row here, and each role asks for each route."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.routing import Mount

from dethpc.domain.facts import Run
from dethpc.domain.records import RoleAssignment, TokenKind, User
from dethpc.domain.roles import Role
from dethpc.domain.states import RunState
from dethpc.master.durable import contexts
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import mint_run_token
from dethpc.master.http.middleware import PAGE_FILES, PAGES, PROXY
from dethpc.master.http.middleware import PUBLIC as PUBLIC_PATHS
from tests.master.conftest import Served, experiment, run_of, trained, trial, uuid_of
from tests.waiting import LONG_ENOUGH

LOGIN = "POST /api/v1/auth/login"
PUBLIC = """
    GET /
    GET /docs
    GET /health
    GET /info
    GET /openapi.json
    GET /api/v1/auth/proof
    GET /api/v1/master
    GET /api/v1/master/telemetry
    POST /api/v1/auth/login
"""

# What the token of a run reaches: "run" is that run alone, "trial" its trial, "experiment" every trial of its experiment; "any" is
# about nobody's.
RUNS = {
    "GET /api/v1/allocations/{allocation_id}": "run",
    "GET /api/v1/allocations/{allocation_id}/signals/preemption?timeoutSeconds=0": "run",
    "POST /api/v1/allocations/{allocation_id}/signals/ack_preemption": "run",
    "POST /api/v1/allocations/{allocation_id}/acceleratorData": "run",
    "GET /api/v1/tasks/{task_id}/acceleratorData": "experiment",
    "POST /api/v1/runs/{run}/attempts/{k}/events": "run",
    "POST /api/v1/trial-source-info": "any",
    "POST /api/v1/trials/{trial_id}/early_exit": "trial",
    "POST /api/v1/trials/{trial_id}/metrics": "trial",
    "POST /api/v1/trials/{trial_id}/progress": "trial",
    "POST /api/v1/trials/{trial_id}/training_metrics": "trial",
    "POST /api/v1/trials/{trial_id}/validation_metrics": "trial",
    "POST /api/v1/trials/{trial_id}/runner/metadata": "trial",
    "POST /api/v1/runs/{run_id}/metadata": "trial",
    "GET /api/v1/runs/{run_id}/metadata": "experiment",
    "GET /api/v1/checkpoints/{uuid}": "experiment",
    "GET /checkpoints/{uuid}": "experiment",
    "GET /api/v1/experiments/{experiment_id}": "experiment",
    "GET /api/v1/experiments/{experiment_id}/checkpoints": "experiment",
    "GET /api/v1/experiments/{experiment_id}/search": "experiment",
    "GET /api/v1/experiments/{experiment_id}/search/points": "experiment",
    "GET /api/v1/experiments/{experiment_id}/searcher/best_searcher_validation_metric": "experiment",
    "GET /api/v1/experiments/{experiment_id}/searcher/progress": "experiment",
    "GET /api/v1/experiments/{experiment_id}/trials": "experiment",
    "GET /api/v1/experiments/{experiment_id}/validation-history": "experiment",
    "GET /api/v1/tasks/{task_id}": "experiment",
    "GET /api/v1/tasks/{task_id}/logs": "experiment",
    "GET /api/v1/tasks/{task_id}/logs/fields": "experiment",
    "GET /api/v1/trials/{trial_id}": "experiment",
    "GET /api/v1/trials/{trial_id}/checkpoints": "experiment",
    "GET /api/v1/trials/{trial_id}/logs": "experiment",
    "GET /api/v1/trials/{trial_id}/logs/fields": "experiment",
    "GET /api/v1/trials/{trial_id}/workloads": "experiment",
    "GET /api/v1/trials/metrics/trial_metrics?trialIds={trial_id}": "experiment",
    "GET /api/v1/trials/metrics/training_metrics?trialIds={trial_id}": "experiment",
    "GET /api/v1/trials/metrics/validation_metrics?trialIds={trial_id}": "experiment",
    "GET /docs/files/{file}": "any",
    "GET /docs/oauth2-redirect": "any",
    "POST /api/v1/runs/start": "any",
    "POST /api/v1/webhooks/custom": "any",
}
BODIES: dict[str, Any] = {
    "POST /api/v1/allocations/{allocation_id}/acceleratorData": {"acceleratorData": {}},
    "POST /api/v1/users/{user_id}/password": "Correct-horse-1",
    "POST /api/v1/runs/{run}/attempts/{k}/events": {"lines": []},
    "POST /api/v1/runs/{run_id}/metadata": {"metadata": {}},
    "POST /api/v1/trials/{trial_id}/metrics": {"metrics": {"metrics": {}}},
    "POST /api/v1/trials/{trial_id}/training_metrics": {"metrics": {}},
    "POST /api/v1/trials/{trial_id}/validation_metrics": {"metrics": {}},
    "POST /api/v1/webhooks/custom": {"data": {"title": "a", "description": "b", "level": "info"}},
}
"""Where an empty object is refused before anybody asks who sends it."""

# What a user reaches: each role all that those above it do.
ANY_USER = """
    POST /api/v1/auth/code
    POST /api/v1/auth/logout
    GET /api/v1/auth/sessions
    DELETE /api/v1/auth/sessions/{session_id}
    GET /api/v1/auth/user
    GET /api/v1/me
    GET /api/v1/permissions/summary
    POST /api/v1/roles/search
    POST /api/v1/roles/search/by-assignability
    GET /api/v1/tokens
    POST /api/v1/tokens
    PATCH /api/v1/tokens/{token_id}
    GET /api/v1/users/setting
    POST /api/v1/users/setting
    POST /api/v1/users/setting/reset
    PATCH /api/v1/users/{user_id}
    POST /api/v1/users/{user_id}/password
"""
VIEWER = """
    GET /api/v1/notebooks
    GET /api/v1/shells
    GET /api/v1/tensorboards
    GET /api/v1/notebooks/{notebook_id}
    GET /api/v1/shells/{shell_id}
    GET /api/v1/tensorboards/{tensorboard_id}
    GET /api/v1/agents
    GET /api/v1/agents/{name}
    GET /api/v1/agents/{name}/slots
    GET /api/v1/agents/{name}/slots/{slot}
    GET /api/v1/checkpoints
    GET /api/v1/checkpoints/{uuid}/metrics
    GET /api/v1/commands
    GET /api/v1/commands/{command_id}
    GET /api/v1/config-policies/global/{workload_type}
    GET /api/v1/config-policies/workspaces/{workspace_id}/{workload_type}
    GET /api/v1/experiment/labels
    GET /api/v1/launched-tasks
    GET /api/v1/launched-tasks/{launched_task_id}
    GET /api/v1/experiments
    POST /api/v1/experiments-search
    GET /api/v1/experiments/labels
    GET /api/v1/experiments/metrics-stream/metric-names
    GET /api/v1/experiments/{experiment_id}/code_changes
    POST /api/v1/experiments/{experiment_id}/file
    GET /api/v1/experiments/{experiment_id}/file_tree
    GET /api/v1/experiments/{experiment_id}/goodput
    GET /api/v1/experiments/{experiment_id}/hyperparameters
    GET /api/v1/experiments/{experiment_id}/metrics-stream/batches
    GET /api/v1/experiments/{experiment_id}/metrics-stream/trials-sample
    GET /api/v1/experiments/{experiment_id}/metrics-stream/trials-snapshot
    GET /api/v1/experiments/{experiment_id}/model_def
    GET /api/v1/experiments/{experiment_id}/searcher/events
    GET /api/v1/experiments/{experiment_id}/searcher_events
    GET /api/v1/experiments/{experiment_id}/waiting
    POST /api/v1/groups/search
    GET /api/v1/groups/{group_id}
    GET /api/v1/k8s-resource-managers
    GET /api/v1/namespace-bindings/workspace-ids-with-default-bindings
    GET /api/v1/workspaces/{workspace_id}/get-k8s-resource-quotas
    GET /api/v1/workspaces/{workspace_id}/list-namespace-bindings
    GET /api/v1/job-queues
    GET /api/v1/job-queues-v2
    GET /api/v1/job-queues/stats
    GET /api/v1/master/cluster_message
    GET /api/v1/model/labels
    GET /api/v1/models
    GET /api/v1/models/{model_name}
    GET /api/v1/models/{model_name}/versions
    GET /api/v1/models/{model_name}/versions/{number}
    GET /api/v1/models/{model_name}/versions/{number}/metrics
    POST /api/v1/preview-hp-search
    GET /api/v1/projects/key/{key}
    GET /api/v1/projects/{project_id}
    GET /api/v1/projects/{project_id}/columns
    GET /api/v1/projects/{project_id}/experiments/metric-ranges
    GET /api/v1/projects/{project_id}/metadata/{key:path}
    GET /api/v1/resource-pools
    GET /api/v1/resource-pools/goodput
    GET /api/v1/resource-pools/{name}/workspace-bindings
    GET /api/v1/resources/allocation/aggregated
    GET /api/v1/resources/allocation/raw
    GET /api/v1/roles/search/by-group/{group_id}
    POST /api/v1/roles/search/by-ids
    GET /api/v1/roles/search/by-user/{user_id}
    GET /api/v1/roles/workspace/{workspace_id}
    POST /api/v1/runs
    GET /api/v1/scheduler-jobs/{job_id}
    GET /api/v1/tasks
    GET /api/v1/tasks/count
    GET /api/v1/tasks/{task_id}/config
    GET /api/v1/tasks/{task_id}/context_directory
    GET /api/v1/templates
    GET /api/v1/templates/{name}
    GET /api/v1/trials/by-external-id/{ids:path}
    GET /api/v1/trials/time-series
    GET /api/v1/trials/{trial_id}/goodput
    GET /api/v1/trials/{trial_id}/profiler/available_series
    GET /api/v1/trials/{trial_id}/profiler/metrics
    GET /api/v1/trials/{trial_id}/remaining_log_retention_days
    GET /api/v1/trials/{trial_id}/timeline
    GET /api/v1/trials/{trial_id}/waiting
    GET /api/v1/user/projects/activity
    GET /api/v1/users
    POST /api/v1/users/activity
    GET /api/v1/users/{user_id}
    GET /api/v1/users/{username}/by-username
    GET /api/v1/waiting
    GET /api/v1/webhooks
    GET /api/v1/workspaces
    GET /api/v1/workspaces/{workspace_id}
    GET /api/v1/workspaces/{workspace_id}/available-resource-pools
    POST /api/v1/workspaces/{workspace_id}/pin
    GET /api/v1/workspaces/{workspace_id}/projects
    POST /api/v1/workspaces/{workspace_id}/unpin
    GET /resources/allocation/aggregated
    GET /resources/allocation/allocations-csv
    GET /resources/allocation/raw
    GET /tasks
"""
EDITOR = """
    POST /api/v1/notebooks
    POST /api/v1/shells
    POST /api/v1/tensorboards
    POST /api/v1/notebooks/{notebook_id}/kill
    PUT /api/v1/notebooks/{notebook_id}/report_idle
    POST /api/v1/notebooks/{notebook_id}/set_priority
    POST /api/v1/shells/{shell_id}/kill
    POST /api/v1/shells/{shell_id}/set_priority
    POST /api/v1/tensorboards/{tensorboard_id}/kill
    POST /api/v1/tensorboards/{tensorboard_id}/set_priority
    DELETE /api/v1/checkpoints
    GET /api/v1/contexts/{digest}
    PATCH /api/v1/checkpoints
    POST /api/v1/checkpoints
    POST /api/v1/checkpoints/rm
    POST /api/v1/checkpoints/{uuid}/metadata
    POST /api/v1/commands
    POST /api/v1/commands/{command_id}/kill
    POST /api/v1/commands/{command_id}/set_priority
    POST /api/v1/experiments
    PUT /api/v1/experiments/by-external-id/{external_id:path}
    POST /api/v1/experiments/continue
    DELETE /api/v1/experiments/{experiment_id}
    PATCH /api/v1/experiments/{experiment_id}
    POST /api/v1/experiments/{experiment_id}/activate
    POST /api/v1/experiments/{experiment_id}/archive
    POST /api/v1/experiments/{experiment_id}/cancel
    POST /api/v1/experiments/{experiment_id}/kill
    DELETE /api/v1/experiments/{experiment_id}/labels/{label:path}
    PUT /api/v1/experiments/{experiment_id}/labels/{label:path}
    POST /api/v1/experiments/{experiment_id}/move
    POST /api/v1/experiments/{experiment_id}/pause
    PUT /api/v1/experiments/{experiment_id}/retain_logs
    POST /api/v1/experiments/{experiment_id}/searcher/operations
    POST /api/v1/experiments/{experiment_id}/searcher_operations
    DELETE /api/v1/experiments/{experiment_id}/tensorboard-files
    POST /api/v1/experiments/{experiment_id}/unarchive
    POST /api/v1/generic-tasks
    POST /api/v1/job-queues
    POST /api/v1/models
    DELETE /api/v1/models/{model_name}
    PATCH /api/v1/models/{model_name}
    POST /api/v1/models/{model_name}/archive
    POST /api/v1/models/{model_name}/move
    POST /api/v1/models/{model_name}/unarchive
    POST /api/v1/models/{model_name}/versions
    DELETE /api/v1/models/{model_name}/versions/{number}
    PATCH /api/v1/models/{model_name}/versions/{number}
    DELETE /api/v1/projects/{project_id}
    PATCH /api/v1/projects/{project_id}
    POST /api/v1/projects/{project_id}/archive
    POST /api/v1/projects/{project_id}/experiments/activate
    POST /api/v1/projects/{project_id}/experiments/archive
    POST /api/v1/projects/{project_id}/experiments/cancel
    DELETE /api/v1/projects/{project_id}/experiments/delete
    POST /api/v1/projects/{project_id}/experiments/kill
    POST /api/v1/projects/{project_id}/experiments/move
    POST /api/v1/projects/{project_id}/experiments/pause
    PUT /api/v1/projects/{project_id}/experiments/retain_logs
    POST /api/v1/projects/{project_id}/experiments/unarchive
    POST /api/v1/projects/{project_id}/move
    POST /api/v1/projects/{project_id}/notes
    PUT /api/v1/projects/{project_id}/notes
    POST /api/v1/projects/{project_id}/unarchive
    POST /api/v1/runs/archive
    POST /api/v1/runs/delete
    POST /api/v1/runs/kill
    POST /api/v1/runs/move
    POST /api/v1/runs/pause
    POST /api/v1/runs/resume
    POST /api/v1/runs/unarchive
    POST /api/v1/task/logs
    POST /api/v1/tasks/{task_id}/kill
    POST /api/v1/tasks/{task_id}/pause
    POST /api/v1/tasks/{task_id}/unpause
    PATCH /api/v1/template/rename
    DELETE /api/v1/templates/{name}
    PATCH /api/v1/templates/{name}
    POST /api/v1/templates/{name}
    PUT /api/v1/templates/{name}
    POST /api/v1/trials
    PUT /api/v1/trials
    PATCH /api/v1/trials/{trial_id}
    POST /api/v1/trials/{trial_id}/kill
    PUT /api/v1/trials/{trial_id}/retain_logs
    POST /api/v1/trials/{trial_id}/start
    POST /api/v1/workspaces/{workspace_id}/projects
    POST /task-logs
    POST /api/v1/tasks/{task_id}/proxy-tickets
"""
ADMIN = """
    POST /api/v1/agents/{name}/disable
    POST /api/v1/agents/{name}/enable
    POST /api/v1/agents/{name}/slots/{slot}/disable
    POST /api/v1/agents/{name}/slots/{slot}/enable
    POST /api/v1/cleanup_logs
    DELETE /api/v1/config-policies/global/{workload_type}
    PUT /api/v1/config-policies/global/{workload_type}
    DELETE /api/v1/config-policies/workspaces/{workspace_id}/{workload_type}
    PUT /api/v1/config-policies/workspaces/{workspace_id}/{workload_type}
    GET /api/v1/doctor
    POST /api/v1/doctor
    POST /api/v1/experiments/import
    POST /api/v1/experiments/import-archive
    POST /api/v1/experiments/import-archive/look
    POST /api/v1/experiments/render
    GET /api/v1/experiments/{experiment_id}/export
    GET /api/v1/garbage
    POST /api/v1/garbage
    POST /api/v1/garbage/unknown
    POST /api/v1/groups
    DELETE /api/v1/groups/{group_id}
    PUT /api/v1/groups/{group_id}
    GET /api/v1/images
    POST /api/v1/images
    POST /api/v1/images/cancel
    POST /api/v1/images/prune
    GET /api/v1/images/pulls/{task_id}
    GET /api/v1/images/unneeded
    DELETE /api/v1/master/cluster_message
    PUT /api/v1/master/cluster_message
    GET /api/v1/master/config
    PATCH /api/v1/master/config
    GET /api/v1/master/logs
    GET /api/v1/master/take-over
    POST /api/v1/master/take-over
    POST /api/v1/roles/add-assignments
    POST /api/v1/roles/remove-assignments
    POST /api/v1/trials/profiler/metrics
    PATCH /api/v1/users
    POST /api/v1/users
    PATCH /api/v1/users/assignments
    POST /api/v1/webhooks
    DELETE /api/v1/webhooks/{webhook_id}
    PATCH /api/v1/webhooks/{webhook_id}
    GET /api/v1/webhooks/{webhook_id}/deliveries
    POST /api/v1/webhooks/{webhook_id}/test
    POST /api/v1/workspaces
    DELETE /api/v1/workspaces/{workspace_id}
    PATCH /api/v1/workspaces/{workspace_id}
    POST /api/v1/workspaces/{workspace_id}/archive
    POST /api/v1/workspaces/{workspace_id}/unarchive
    GET /experiments/{experiment_id}/preview_gc
"""
OWNER = ANY_USER + VIEWER + EDITOR + ADMIN

TARGETS = {
    "own": {"experiment_id": 1, "trial_id": 1},
    "sibling": {"experiment_id": 1, "trial_id": 3},
    "stranger's": {"experiment_id": 2, "trial_id": 2},
}
REACHES = {"run": {"own"}, "trial": {"own"}, "experiment": {"own", "sibling"}, "any": set(TARGETS)}
"""Whose a run with this reach may ask about."""


def rows(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def filled(row: str, target: str) -> str:
    """The path of a row, about the run, trial and experiment of this target."""
    names = TARGETS[target]
    run = run_of(trial(names["trial_id"], names["experiment_id"])).id
    more = {
        "run": run,
        "k": 0,
        "run_id": names["trial_id"],
        "task_id": run.rpartition(".")[0],
        "allocation_id": f"{run}.0",
    }
    uuid = {"uuid": uuid_of(names["trial_id"], 2)}
    return row.partition(" ")[2].format_map(Missing({**names, **more, **uuid}))


class Missing(dict[str, object]):
    """Names in paths, each that of something that nobody has."""

    def __missing__(self, name: str) -> str:
        return "999"


Ask = Callable[[str, str, str], int]


@pytest.fixture
def ask(served: Served) -> Iterator[Ask]:
    """The status of the answer to (row, path, token)."""
    kept = contexts.keep(served.daemon.installation.home, b"code")
    served.put([experiment(1, context_sha256=kept), *trained(trial(1)), *trained(trial(3, index=1))])
    served.put([experiment(2, context_sha256=kept), *trained(trial(2, 2, index=0))])
    where = urlsplit(served.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=LONG_ENOUGH)

    def ask(row: str, path: str, token: str) -> int:
        method = row.partition(" ")[0]
        body = None if method == "GET" else json.dumps(BODIES.get(row, {}))
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    yield ask
    connection.close()


@pytest.fixture
def run_token(served: Served) -> str:
    """Of the live run of trial 1."""
    token, _ = mint_run_token(living(1).id)
    served.as_run(living(1), token)
    return token


def living(trial_id: int) -> Run:
    return run_of(trial(trial_id), state=RunState.RUNNING)


def routes_of(router: Any) -> Iterator[str]:
    """Those of an application or router, and of the routers in it."""
    for route in router.routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router)
        elif isinstance(route, Mount) and route.path in (PAGES, PROXY):
            continue  # pages ask for the routes here as whoever looks; tests/web and test_proxy have who may look
        elif isinstance(route, Mount):
            yield f"GET {route.path}/{{file}}"
        else:
            yield from (f"{method} {route.path}" for method in route.methods - {"HEAD"})


def test_every_route_has_one_row(served: Served) -> None:
    table = [*rows(PUBLIC), *(row.partition("?")[0] for row in RUNS), *rows(OWNER)]
    app = create_app(served.daemon.services)
    app.openapi()  # which brings all routes
    assert set(table) ^ set(routes_of(app)) == set()
    assert len(table) == len(set(table))


def test_a_stranger_and_a_session_that_ended_get_what_is_public_and_nothing_else(served: Served, ask: Ask) -> None:
    auth = served.daemon.services.auth
    ended, _ = auth.make_token(TokenKind.SESSION, 3600)
    auth.logout(ended)
    revoked, _ = auth.make_token(TokenKind.ACCESS, None)
    auth.logout(revoked)
    entry = auth.pages.redeem(auth.codes.make(), "", "")
    begun = auth.pages.begin(entry, "x.localhost")  # a browser's login is for pages alone
    for token in (
        "",
        ended,
        revoked,
        begun.cookie,
        begun.proof,
        *auth.pages.renewal(auth.pages.find(begun.cookie, "x.localhost"), ("", 0)).values(),
    ):
        for row in [*RUNS, *rows(OWNER)]:
            assert ask(row, filled_with_missing(row), token) == 401, row
        for row in [*rows(PUBLIC), *(f"GET {path}" for path in PUBLIC_PATHS if path.startswith(PAGE_FILES))]:
            if row != LOGIN:  # which says 401 of a wrong password
                assert ask(row, filled_with_missing(row), token) != 401, row


def filled_with_missing(row: str) -> str:
    return row.partition(" ")[2].replace(":path}", "}").format_map(Missing())


def test_a_run_reaches_its_own_and_nothing_of_the_owners(ask: Ask, run_token: str) -> None:
    for row in rows(OWNER):
        assert ask(row, filled_with_missing(row), run_token) == 403, row
    for row, reach in RUNS.items():
        for target in TARGETS:
            status = ask(row, filled(row, target), run_token)
            if target in REACHES[reach]:
                assert status not in (401, 403) and status < 500, f"{row} of the {target}: {status}"
            else:
                assert status == 403, f"{row} of the {target}: {status}"


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.name)
def test_a_user_is_let_in_where_their_role_reaches_and_nowhere_else(served: Served, ask: Ask, role: Role) -> None:
    token = user_token(served, role)
    allowed = [ANY_USER, VIEWER, EDITOR, ADMIN][: role + 1]
    for block in (ANY_USER, VIEWER, EDITOR, ADMIN):
        for row in rows(block):
            if row in ENDS_THE_LOGIN:
                continue
            status = ask(row, filled_with_missing(row), token)
            if block in allowed and (row not in ABOUT_ONESELF or role is Role.ADMIN):  # they ask about another user
                assert status not in (401, 403) and (status < 500 or status == 501), f"{row}: {status}"
            else:
                assert status == 403, f"{row}: {status}"
    for row in RUNS:
        needed = Role.VIEWER if row.startswith("GET ") else Role.EDITOR
        if row.startswith("GET /docs/"):
            continue
        assert (ask(row, filled_with_missing(row), token) == 403) == (role < needed), row


ENDS_THE_LOGIN = ("POST /api/v1/auth/logout",)
ABOUT_ONESELF = ("PATCH /api/v1/users/{user_id}", "POST /api/v1/users/{user_id}/password")


def user_token(served: Served, role: Role) -> str:
    """Of a new user with this role alone."""
    services, now = served.daemon.services, time.time()
    user = services.records.add(User, username=role.name, created_at=now, modified_at=now, admin=False)
    if role:
        services.records.put(RoleAssignment(user.id, 0, role, now))
    return services.auth.make_token(TokenKind.SESSION, 3600, user_id=user.id)[0]


@pytest.mark.parametrize("kind", [None, TokenKind.SESSION, TokenKind.ACCESS], ids=str)
def test_the_owner_is_let_in_by_each_of_her_tokens(served: Served, ask: Ask, kind: TokenKind | None) -> None:
    """What they ask for does not exist: that is found out behind the door."""
    for row in [*RUNS, *rows(OWNER)]:
        token = served.token if kind is None else served.daemon.services.auth.make_token(kind, 3600)[0]
        status = ask(row, filled_with_missing(row), token)
        assert status not in (401, 403) and (status < 500 or status == 501), f"{row}: {status}"
