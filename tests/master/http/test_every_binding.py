"""Every function of the published bindings against a real master, as each role: served, forbidden, or refused with a reason that
stands in docs/api.md. See ``every_binding.py``, which runs in the client's environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.routing import Match

from dethpc.config.site import SiteConfig
from dethpc.domain.roles import Role
from dethpc.master.http.app import create_app
from tests.master.conftest import Published, Served
from tests.master.http.binding_arguments import arguments, content
from tests.master.http.test_roles import ABOUT_ONESELF, ADMIN, ANY_USER, EDITOR, PUBLIC, RUNS, VIEWER, rows, user_token
from tests.master.webhooks.receiver import SITE, receiving

FUNCTIONS = 261
SERVED = 226
"""At least as many of them are served to an admin."""

IMPOSSIBLE = {
    "post_DisableSlot": "single slots cannot be enabled or disabled",
    "post_EnableSlot": "single slots cannot be enabled or disabled",
}
"""What a route refuses whatever is asked, with its reason."""

DOCS = " ".join((Path(__file__).parents[3] / "docs" / "api.md").read_text().split())


@pytest.fixture
def site() -> SiteConfig:
    return SITE


@pytest.fixture
def hook() -> Iterator[str]:
    with receiving() as receiver:
        yield receiver.url


class Call(NamedTuple):
    """What became of a function. ``row``: the route, as the tables of ``test_roles`` have it; "" where there is none. ``error``: of
    the bindings, when they parsed the answer."""

    function: str
    row: str
    status: int
    message: str
    error: str | None

    @property
    def reason(self) -> str:
        """Of a refusal, without the request."""
        message: str = json.loads(self.message)["error"]["error"]
        return re.sub("^(GET|PUT|PATCH|POST|DELETE) [^ ]+: ", "", message)


def calls(published: Published, names: dict[str, Any], token: str) -> list[Call]:
    program, served = Path(__file__).with_name("every_binding.py"), published.served
    assert isinstance(served, Served)
    output = published.run(program, served.url, served.owner, token, json.dumps(arguments(names)))
    outcomes: dict[str, Any] = json.loads(output)
    assert len(outcomes) == FUNCTIONS
    unsent = {name: one["error"] for name, one in outcomes.items() if one["request"] is None}
    assert not unsent
    routes = create_app(served.daemon.services).router.routes
    return [
        Call(name, _row(routes, *one["request"]), one["status"], one["message"] or "", one["error"])
        for name, one in outcomes.items()
    ]


def _row(routes: list[Any], method: str, path: str) -> str:
    scope = {"type": "http", "method": method, "path": path.partition("?")[0], "headers": []}
    for route in routes:
        if route.matches(scope)[0] is Match.FULL:
            return f"{method} {route.path}"
    return ""


def needed_role(row: str) -> Role | None:
    """By the tables of ``test_roles``; None: nobody needs one."""
    for role, block in ((Role.NONE, ANY_USER), (Role.VIEWER, VIEWER), (Role.EDITOR, EDITOR), (Role.ADMIN, ADMIN)):
        if row in rows(block):
            return Role.ADMIN if row in ABOUT_ONESELF else role
    if row in rows(PUBLIC):
        return None
    assert any(row == one.partition("?")[0] for one in RUNS), row
    return Role.VIEWER if row.startswith("GET ") else Role.EDITOR


def problem(call: Call) -> str:
    """ "" for a function that was served with an answer that the bindings read, or refused for a reason that docs/api.md has."""
    if call.status == 501:
        name = call.function.partition("_")[2]
        return (
            "" if call.reason in DOCS and f"`{name}`" in DOCS else f"docs/api.md does not say of {name}: {call.reason}"
        )
    if call.function in IMPOSSIBLE:
        return "" if call.status == 400 and IMPOSSIBLE[call.function] in call.reason else str(call)
    return "" if 200 <= call.status < 300 and call.row and call.error is None else str(call)


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.name)
def test_every_function_is_served_forbidden_or_refused_for_a_reason(
    published: Published, served: Served, hook: str, role: Role
) -> None:
    token = user_token(served, role)
    several = calls(published, content(served, hook, role.name), token)
    problems = []
    for call in several:
        needed = needed_role(call.row) if call.row else None
        forbidden = needed is not None and needed > role
        problems.append(str(call) if (call.status == 403) is not forbidden else "" if forbidden else problem(call))
    assert not any(problems), "\n".join(filter(None, problems))
    if role is Role.ADMIN:
        count = sum(200 <= call.status < 300 for call in several)
        assert count >= SERVED, f"{count} are served"


def test_who_has_no_token_gets_what_is_public_and_nothing_else(published: Published, served: Served, hook: str) -> None:
    for call in calls(published, content(served, hook, served.owner), "nonsense"):
        if call.row in rows(PUBLIC):
            assert not problem(call)
        else:
            assert call.status == 401, call
