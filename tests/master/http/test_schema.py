"""Whatever anybody sends along the API's own description of itself, the answer is one that the description names, never a 5xx, and
shows nothing of a workspace that they do not see.

``--everything`` makes many requests to each operation, and DETHPC_SCHEMA_EXAMPLES as many as it says, instead of the few that every
run of the tests makes; DETHPC_SCHEMA_SEED makes others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case

from dethpc.client.nouns import workspaces
from dethpc.config.site import SiteConfig
from dethpc.domain.reports import Report, ReportKind
from dethpc.domain.roles import Role
from dethpc.engine import events
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import mint_run_token
from dethpc.rundir.journal import to_line
from tests.master.conftest import T0, Served, uuid_of
from tests.master.http.test_workspace_roles import SECRET, Two, bodies, names
from tests.master.webhooks.receiver import SITE
from tests.waiting import LONG_ENOUGH

SEED = int(os.environ.get("DETHPC_SCHEMA_SEED", "0"))
FEW, MANY = 2, 20
"""Cases of each operation."""

ROLES: dict[str, tuple[Role, Role]] = {
    "owner": (Role.ADMIN, Role.NONE),
    "editor": (Role.EDITOR, Role.NONE),
    "viewer": (Role.VIEWER, Role.NONE),
    "editor of a workspace": (Role.NONE, Role.EDITOR),
    "viewer of a workspace": (Role.NONE, Role.VIEWER),
    "run": (Role.NONE, Role.NONE),
    "unauthenticated": (Role.NONE, Role.NONE),
}
"""The role of each caller in all workspaces, and in workspace 2."""

RARE = ("editor", "viewer")
"""What they may in all workspaces, an editor and a viewer of one may there."""

RUN = "1.1.1"
OWN: dict[str, Any] = {
    **names(1),
    "experiment_id": 1,
    "trial_id": 1,
    "run": RUN,
    "k": 0,
    "run_id": 1,
    "task_id": "1.1",
    "allocation_id": f"{RUN}.0",
    "uuid": uuid_of(1, 2),
}
"""What is in workspace 2; ``names(2)`` is what is in workspace 3."""

ENDLESS = {"follow": False, "timeoutSeconds": 0, "timeout_seconds": 0, "periodSeconds": 0}
"""What makes an answer wait, and what is sent instead."""

LEFT_OUT = ("/api/v1/auth/logout",)
"""It would end the session of all that follows."""


CONFIG = "name: n\nentrypoint: python3 t.py\nsearcher: {name: random, metric: loss, max_trials: 3}\n"
REPORTS = [
    Report(1, T0, ReportKind.METRICS, {"group": "validation", "steps_completed": 2, "metrics": {"loss": 1.0}}),
    Report(2, T0, ReportKind.CHECKPOINT, {"uuid": OWN["uuid"], "steps_completed": 2, "resources": {"a": 1}}),
]


@pytest.fixture
def site() -> SiteConfig:
    return SITE


@dataclass(frozen=True)
class Caller:
    """``token``: None without one. ``confined``: it sees workspace 2 alone."""

    served: Served
    http: requests.Session
    token: str | None
    confined: bool

    def send(self, case: Case, ids: Mapping[str, Any], fields: Mapping[str, Any]) -> requests.Response:
        """``ids`` and ``fields`` take the place of what the path and the body name."""
        body = case.body
        if isinstance(body, dict):
            body = {name: fields.get(name, value) for name, value in body.items()}
        filled = case.operation.Case(
            path_parameters={name: ids.get(name, value) for name, value in case.path_parameters.items()},
            query={**case.query, **{name: value for name, value in ENDLESS.items() if name in case.query}},
            headers=case.headers,
            body=body,
            media_type=case.media_type,
        )
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return filled.call(base_url=self.served.url, headers=headers, session=self.http, timeout=LONG_ENOUGH)


@pytest.fixture
def caller(served: Served, role: str) -> Iterator[Caller]:
    """Two workspaces, and in the first of them an experiment whose first trial trains, has reported, and has a checkpoint."""
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
    two, (everywhere, there) = Two(served), ROLES[role]
    workspaces.move_experiment(served.session, 1, 2)
    tokens = {"owner": served.token, "run": token, "unauthenticated": None}
    with requests.Session() as http:
        chosen = tokens[role] if role in tokens else two.token(there, everywhere=everywhere)
        yield Caller(served, http, chosen, confined=bool(there))


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    """By the label of their operation. They are drawn once, for all roles."""
    return {}


@pytest.mark.parametrize(
    "role", [pytest.param(role, marks=pytest.mark.everything) if role in RARE else role for role in ROLES]
)
def test_no_request_is_answered_by_an_error_of_ours_or_with_what_its_sender_does_not_see(
    caller: Caller, cases: dict[str, list[Case]], pytestconfig: pytest.Config
) -> None:
    served = caller.served
    examples = int(os.environ.get("DETHPC_SCHEMA_EXAMPLES", MANY if pytestconfig.getoption("--everything") else FEW))
    schema = schemathesis.openapi.from_dict(create_app(served.daemon.services).openapi())
    problems: Counter[str] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in LEFT_OUT:
            continue
        for case in cases.get(operation.label) or cases.setdefault(operation.label, drawn(operation, examples)):
            variants: list[tuple[dict[str, Any], dict[str, Any]]] = [({}, {}), (OWN, {})]
            if caller.confined:
                variants += [(names(2), {}), (names(2), bodies(2))]
            for ids, fields in variants:
                answer = caller.send(case, ids, fields)
                if trouble := problem(case, answer, confined=caller.confined):
                    problems[f"{operation.label}: {trouble}"] += 1
                    print(trouble, case.as_curl_command(), answer.content[:500])
    assert not problems, dict(problems)
    served.daemon.ledger.look(lambda state: served.daemon.ledger._fold())  # or no master could start again


def drawn(operation: Any, examples: int) -> list[Case]:
    several: list[Case] = []

    @seed(SEED)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def draw(case: Case) -> None:
        several.append(case)

    draw()
    return several


def problem(case: Case, answer: requests.Response, *, confined: bool) -> str:
    """ "" for an answer as it should be. ``confined``: it is for somebody who does not see workspace 3."""
    documented = case.operation.definition.raw["responses"]
    if (answer.status_code >= 500 and answer.status_code != 501) or str(answer.status_code) not in documented:
        return str(answer.status_code)
    text = answer.content.decode(errors="replace")
    for name in filter(lambda name: SECRET in str(name), [*names(2).values(), *bodies(2).values()]):
        text = text.replace(str(name), "")
    return "shows another workspace" if confined and SECRET in text else ""
