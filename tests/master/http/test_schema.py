"""Whatever anybody sends along the API's own description of itself, the answer is one that the description names, and never a 5xx.

DETHPC_SCHEMA_EXAMPLES asks for more requests to each operation than the few that every run of the tests makes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case

from dethpc.domain.states import RunState
from dethpc.master.durable import contexts
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import mint_run_token
from tests.master.conftest import Served, experiment, run_of, trained, trial, uuid_of
from tests.waiting import LONG_ENOUGH

EXAMPLES = int(os.environ.get("DETHPC_SCHEMA_EXAMPLES", "3"))
ROLES = {"owner": EXAMPLES, "run": max(1, EXAMPLES // 2), "stranger": 1}

RUN = run_of(trial(1), state=RunState.RUNNING)
THERE = {
    "experiment_id": 1,
    "trial_id": 1,
    "run": RUN.id,
    "k": 0,
    "run_id": 1,
    "task_id": RUN.task_id,
    "allocation_id": f"{RUN.id}.0",
    "uuid": uuid_of(1, 2),
    "name": "default",
    "project_id": 1,
    "workspace_id": 1,
    "user_id": 1,
}
ENDLESS = {"follow": False, "timeoutSeconds": 0, "timeout_seconds": 0}
"""What makes an answer wait, and what is asked instead."""

NOT_ASKED = ("/api/v1/auth/logout",)
"""It would end the session of all that follows."""


@pytest.fixture
def api(served: Served) -> Iterator[tuple[Served, requests.Session]]:
    kept = contexts.keep(served.daemon.installation.home, b"code")
    served.put([experiment(1, context_sha256=kept), *trained(trial(1)), *trained(trial(3, index=1))])
    with requests.Session() as session:
        yield served, session


@pytest.mark.parametrize("role", ROLES)
def test_no_request_is_answered_by_an_error_of_ours_or_a_status_that_nobody_knows_of(
    api: tuple[Served, requests.Session], role: str
) -> None:
    served, session = api
    token, _ = mint_run_token(RUN.id)
    served.as_run(RUN, token)
    headers = {"owner": {"Authorization": f"Bearer {served.token}"}, "run": {"Authorization": f"Bearer {token}"}}
    schema = schemathesis.openapi.from_dict(create_app(served.daemon.services).openapi())
    wrong: Counter[str] = Counter()
    asked = 0

    def ask(case: Case, there: bool) -> None:
        nonlocal asked
        asked += 1
        if there:
            case.path_parameters = {**case.path_parameters, **{n: THERE[n] for n in case.path_parameters if n in THERE}}
        case.query = {**case.query, **{name: value for name, value in ENDLESS.items() if name in case.query}}
        answer = case.call(base_url=served.url, headers=headers.get(role, {}), session=session, timeout=LONG_ENOUGH)
        documented = case.operation.definition.raw["responses"]
        if (answer.status_code >= 500 and answer.status_code != 501) or str(answer.status_code) not in documented:
            wrong[f"{answer.status_code} {case.operation.label}"] += 1
            print(answer.status_code, case.as_curl_command(), answer.text[:300])

    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path not in NOT_ASKED:
            _each(operation, ROLES[role], ask)
    assert not wrong, dict(wrong)
    assert asked >= 100


def _each(operation: Any, examples: int, ask: Any) -> None:
    number = 0

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: Case) -> None:
        nonlocal number
        number += 1
        ask(case, number % 2 == 0)

    send()
