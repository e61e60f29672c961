"""Tickets and cookies of the origins of services: whom they let in, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from dethpc.domain.records import RoleAssignment, User, WorkspaceRole
from dethpc.domain.roles import Role
from dethpc.errors import Unauthorized
from dethpc.master.http.auth import Auth
from dethpc.master.proxy.origins import LOCAL, Origins
from dethpc.master.proxy.relays import Service
from tests.master.conftest import Served

NOTEBOOK = Service("n", 0)


@pytest.fixture
def editor(served: Served) -> User:
    records = served.daemon.services.records
    user = records.add(User, username="ada", created_at=1.0, modified_at=1.0, admin=False)
    records.put(RoleAssignment(user.id, 0, Role.EDITOR, 1.0))
    return user


@pytest.fixture
def origins(served: Served) -> Origins:
    return Origins(served.daemon.services.auth, served.daemon.services.records, LOCAL)


def code_of(origins: Origins, user: User, *workspaces: int) -> str:
    (code,) = parse_qs(urlsplit(origins.ticket(NOTEBOOK, frozenset(workspaces), user.id, "", "")).query)["ticket"]
    return code


def test_a_ticket_lets_in_once(origins: Origins, editor: User) -> None:
    code = code_of(origins, editor)
    _, cookie = origins.redeem(code, "")
    assert origins.visit([cookie]) is not None and origins.visit(["other"]) is None
    with pytest.raises(Unauthorized):
        origins.redeem(code, "")


ENDS: list[Callable[[Auth, User], None]] = [
    lambda auth, user: auth.set_password("Correct-horse-1", hashed=False, user_id=user.id),
    lambda auth, user: auth.end_all(user.id),
    lambda auth, user: auth.end_all(),
]


@pytest.mark.parametrize("end", ENDS)
def test_what_a_login_let_in_ends_with_the_login(
    served: Served, origins: Origins, editor: User, end: Callable[[Auth, User], None]
) -> None:
    _, cookie = origins.redeem(code_of(origins, editor), "")
    unused = code_of(origins, editor)
    end(served.daemon.services.auth, editor)
    assert origins.visit([cookie]) is None
    with pytest.raises(Unauthorized, match="has ended"):
        origins.redeem(unused, "")
    _, again = origins.redeem(code_of(origins, editor), "")
    assert origins.visit([again]) is not None


def test_the_logout_of_somebody_else_ends_nothing(served: Served, origins: Origins, editor: User) -> None:
    auth = served.daemon.services.auth
    _, cookie = origins.redeem(code_of(origins, editor), "")
    auth.end_all(auth.user.id)
    assert origins.visit([cookie]) is not None


def test_what_a_role_in_a_workspace_let_in_ends_with_that_role(served: Served, origins: Origins) -> None:
    records = served.daemon.services.records
    user = records.add(User, username="ada", created_at=1.0, modified_at=1.0, admin=False)
    for workspace in (2, 3):
        records.put(WorkspaceRole(user.id, 0, workspace, Role.EDITOR, 1.0))
    _, cookie = origins.redeem(code_of(origins, user, 2), "")
    assert origins.visit([cookie]) is not None
    records.drop(WorkspaceRole(user.id, 0, 2, Role.EDITOR, 1.0))
    assert origins.visit([cookie]) is None
