"""Whatever anybody sends along the API's own description of itself, the answer is one that the description names, and never a 5xx.

DETHPC_SCHEMA_EXAMPLES asks for more requests to each operation than the few that every run of the tests makes, and
DETHPC_SCHEMA_SEED for others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case

from dethpc.domain.reports import Report, ReportKind
from dethpc.engine import events
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import mint_run_token
from dethpc.rundir.journal import to_line
from tests.master.conftest import T0, Served, uuid_of
from tests.waiting import LONG_ENOUGH

SEED = int(os.environ.get("DETHPC_SCHEMA_SEED", "0"))
EXAMPLES = int(os.environ.get("DETHPC_SCHEMA_EXAMPLES", "3"))
ROLES = {"owner": EXAMPLES, "run": max(1, EXAMPLES // 2), "stranger": 1}

RUN = "1.1.1"
THERE = {
    "experiment_id": 1,
    "trial_id": 1,
    "run": RUN,
    "k": 0,
    "run_id": 1,
    "task_id": "1.1",
    "allocation_id": f"{RUN}.0",
    "uuid": uuid_of(1, 2),
    "name": "default",
    "project_id": 1,
    "workspace_id": 1,
    "user_id": 1,
}
ENDLESS = {"follow": False, "timeoutSeconds": 0, "timeout_seconds": 0, "periodSeconds": 0}
"""What makes an answer wait, and what is asked instead."""

NOT_ASKED = ("/api/v1/auth/logout",)
"""It would end the session of all that follows."""


CONFIG = "name: n\nentrypoint: python3 t.py\nsearcher: {name: random, metric: loss, max_trials: 3}\n"
REPORTS = [
    Report(1, T0, ReportKind.METRICS, {"group": "validation", "steps_completed": 2, "metrics": {"loss": 1.0}}),
    Report(2, T0, ReportKind.CHECKPOINT, {"uuid": THERE["uuid"], "steps_completed": 2, "resources": {"a": 1}}),
]


@pytest.fixture
def api(served: Served) -> Iterator[tuple[Served, requests.Session, str]]:
    """An experiment whose first trial trains, has reported, and has a checkpoint; and the token of its run."""
    served.session.post("/api/v1/experiments", json={"config": CONFIG, "activate": True})
    token, digest = mint_run_token(RUN)
    for event in (
        events.Prepared(RUN, digest, T0),
        events.Submitted(RUN, "job", T0),
        events.AttemptStarted(RUN, 0, ["node1"], None, 0, T0),
    ):
        served.daemon.services.control.do(event)
    lines = [to_line(report) for report in REPORTS]
    served.session.post(f"/api/v1/runs/{RUN}/attempts/0/events", json={"lines": lines})
    with requests.Session() as session:
        yield served, session, token


@pytest.mark.parametrize("role", ROLES)
def test_no_request_is_answered_by_an_error_of_ours_or_a_status_that_nobody_knows_of(
    api: tuple[Served, requests.Session, str], role: str
) -> None:
    served, session, token = api
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
    served.daemon.ledger.look(lambda state: served.daemon.ledger._fold())  # or no master could start again
    assert asked >= 100


def _each(operation: Any, examples: int, ask: Any) -> None:
    number = 0

    @seed(SEED)
    @settings(
        max_examples=examples,
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
