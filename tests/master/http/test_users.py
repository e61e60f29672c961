"""Users besides the owner: what they are created with, what a role lets them do, and how it ends."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from dethpc.client import Session
from dethpc.client import login as logins
from dethpc.client.address import stored_login
from dethpc.client.nouns import experiments, roles, users, workspaces
from dethpc.client.proof import OwnerToken
from dethpc.domain.context_files import WORTH_ASKING
from dethpc.domain.records import Group, RoleAssignment, User
from dethpc.domain.roles import WORKSPACE_ADMIN, Role
from dethpc.domain.states import State
from dethpc.errors import ForbiddenException, NotFound, Refused, Unauthorized
from dethpc.master.http import streams
from dethpc.master.rebuild import recreate
from dethpc.rundir import logline
from dethpc.state import open_store, queries
from dethpc.state.queries import records as stored
from tests.master.conftest import Published, Served, experiment, trained, trial
from tests.master.http.test_control import YAML

PASSWORD = "Correct-horse-1"


def log_in(served: Served, username: str, password: str = PASSWORD) -> Session:
    return Session(served.url, logins.login(served.url, username, password))


@pytest.fixture
def grace(served: Served) -> Session:
    """Of a new user."""
    served.put([experiment(1), *trained(trial(1))])
    users.create(served.session, "grace", PASSWORD, display_name="Grace H.")
    return log_in(served, "grace")


def assert_forbidden(act: Any, *words: Any, **named: Any) -> None:
    with pytest.raises(ForbiddenException):
        act(*words, **named)


def test_a_new_user_looks_and_an_editor_acts(served: Served, grace: Session) -> None:
    assert users.me(grace)["username"] == "grace" and users.me(grace)["displayName"] == "Grace H."
    assert [row["id"] for row in experiments.listing(grace)["experiments"]] == [1]
    for action in ("archive", "kill"):
        assert_forbidden(experiments.act, grace, 1, action)
    assert_forbidden(experiments.delete, grace, 1)
    assert_forbidden(experiments.create, grace, YAML, [])
    roles.assign(served.session, "editor", user_id=users.me(grace)["id"])
    experiments.act(grace, 1, "archive")
    assert_forbidden(users.create, grace, "eve", PASSWORD)
    assert_forbidden(grace.get, "/api/v1/master/config")
    roles.unassign(served.session, "Editor", user_id=users.me(grace)["id"])
    assert_forbidden(experiments.delete, grace, 1)
    with pytest.raises(NotFound, match="Editor is not assigned there"):
        roles.unassign(served.session, "Editor", user_id=users.me(grace)["id"])


def test_an_experiment_names_who_created_it_and_lists_find_it_by_that(served: Served, grace: Session) -> None:
    me, owner = users.me(grace)["id"], served.owner
    roles.assign(served.session, "Editor", user_id=me)
    first = experiments.create(served.session, YAML, [], activate=False)["experiment"]["id"]
    preview = experiments.create(grace, YAML, [], validate_only=True)["experiment"]
    row = experiments.create(grace, YAML, [], activate=False)["experiment"]

    def listed(**params: Any) -> list[Any]:
        rows: list[Any] = grace.get("/api/v1/experiments", params=params)["experiments"]
        return rows

    def ids(**params: Any) -> list[int]:
        return [one["id"] for one in listed(**params)]

    for one in (preview, row, *listed(users=["grace"])):
        assert (one["username"], one["displayName"], one["userId"]) == ("grace", "Grace H.", me)
    assert ids(users=["grace"]) == ids(userIds=[me]) == [row["id"]]
    assert ids(users=[owner]) == ids(userIds=[1]) == [first]
    assert ids(users=[owner, "grace"]) == ids(users=["grace"], userIds=[1]) == [first, row["id"]]
    assert ids(users=["nobody"]) == ids(userIds=[99]) == []
    fork = experiments.create(served.session, YAML, [], activate=False, parent=row["id"])["experiment"]
    assert (fork["username"], fork["userId"]) == (owner, 1)
    users.change(served.session, me, username="hopper", displayName="")
    renamed = listed(userIds=[me])[0]
    assert (renamed["username"], renamed["displayName"]) == ("hopper", "hopper") and ids(users=["grace"]) == []


def test_a_rebuild_brings_back_who_created_an_experiment(served: Served, grace: Session, tmp_path: Path) -> None:
    me = users.me(grace)["id"]
    roles.assign(served.session, "Editor", user_id=me)
    ids = [experiments.create(grace, YAML, [], activate=False)["experiment"]["id"]]
    body = {"config": YAML, "unmanaged": True}
    ids.append(grace.post("/api/v1/experiments", body)["experiment"]["id"])
    ids.append(grace.put("/api/v1/experiments/by-external-id/mine", body)["experiment"]["id"])
    with open_store(tmp_path / "again.db") as again:
        recreate(served.daemon.services.installation.home, again)
        with again.read() as connection:
            assert [queries.experiment(connection, id).user_id for id in ids] == [me] * 3


def test_jobs_are_the_owners_whoever_creates_the_experiment(served: Served, grace: Session) -> None:
    roles.assign(served.session, "Editor", user_id=users.me(grace)["id"])
    row = experiments.create(grace, YAML, [], activate=False)["experiment"]
    with served.daemon.services.store.read() as connection:
        assert queries.experiment(connection, row["id"]).owner == served.owner


def test_users_change_themselves_and_admins_everybody(served: Served, grace: Session) -> None:
    me, owner = users.me(grace)["id"], users.me(served.session)["id"]
    users.change(grace, me, displayName="Amazing Grace")
    for changes in ({"admin": True}, {"username": "root"}, {"active": False}):
        assert_forbidden(users.change, grace, me, **changes)
    for changes in ({"password": PASSWORD}, {"displayName": "x"}):
        assert_forbidden(users.change, grace, owner, **changes)
    assert_forbidden(grace.post, f"/api/v1/users/{owner}/password", PASSWORD)
    assert_forbidden(grace.post, "/api/v1/tokens", {"userId": owner})
    for changes in ({"admin": False}, {"active": False}, {"username": "x"}):
        with pytest.raises(Refused, match="the owner of a master is who runs it"):
            users.change(served.session, owner, **changes)
    with pytest.raises(Refused, match="it needs at least 8"):
        users.change(grace, me, password="short")
    users.change(served.session, me, username="hopper", admin=True)
    assert users.me(grace)["username"] == "hopper" and users.me(grace)["admin"]
    assert users.create(grace, "eve", "")["id"] == 3
    with pytest.raises(Refused, match="user 'eve' already exists"):
        users.create(served.session, "eve", "")
    for name in ("", "a b", "a/b", "x" * 101):
        with pytest.raises(Refused, match="a username has letters"):
            users.create(served.session, name, "")


def test_a_new_password_ends_the_users_own_logins_and_no_others(served: Served, grace: Session) -> None:
    token = served.session.post("/api/v1/tokens", {})["token"]
    users.change(grace, users.me(grace)["id"], password="Another-horse-2")
    for act in (lambda: users.me(grace), lambda: log_in(served, "grace")):
        with pytest.raises(Unauthorized):
            act()
    assert users.me(log_in(served, "grace", "Another-horse-2"))["username"] == "grace"
    assert users.me(Session(served.url, token))["username"] == served.owner


def test_who_is_deactivated_is_out_at_once(served: Served, grace: Session) -> None:
    me = users.me(grace)["id"]
    token = grace.post("/api/v1/tokens", {"lifespan": "-1"})["token"]
    users.change(served.session, me, active=False)
    for session in (grace, Session(served.url, token)):
        with pytest.raises(Unauthorized):
            users.me(session)
    with pytest.raises(ForbiddenException, match="user is not active"):
        log_in(served, "grace")
    with pytest.raises(Unauthorized, match="invalid credentials"):  # nothing is said to who does not know the password
        log_in(served, "grace", "Wrong-horse-1")
    users.change(served.session, me, active=True)
    assert users.me(log_in(served, "grace"))["active"]
    with pytest.raises(Unauthorized):  # what has ended stays so
        users.me(Session(served.url, token))


def test_who_a_user_is_on_the_nodes_is_shown_and_set_by_admins_alone(served: Served, grace: Session) -> None:
    me, link = users.me(grace), {"agentUid": 1001, "agentUser": "grace", "agentGid": 100, "agentGroup": "users"}
    assert me["agentUserGroup"] is None
    assert_forbidden(users.change, grace, me["id"], agentUserGroup=link)
    assert users.change(served.session, me["id"], agentUserGroup=link)["agentUserGroup"] == link
    assert users.change(served.session, me["id"], displayName="G")["agentUserGroup"] == link
    body = {"user": {"username": "ada", "agentUserGroup": link}}
    assert served.session.post("/api/v1/users", body)["user"]["agentUserGroup"] == link
    assert users.change(served.session, me["id"], agentUserGroup={})["agentUserGroup"] is None


def test_the_owner_knows_their_own_number(served: Served, grace: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert users.own_id(grace) == users.me(grace)["id"] > 1
    owner = Session(served.url, OwnerToken(served.token))
    assert users.me(owner)["id"] == 1
    monkeypatch.setattr(users, "me", None)
    assert users.own_id(owner) == 1


def test_nobody_is_shown_by_the_name_of_another(served: Served, grace: Session) -> None:
    me = users.me(grace)["id"]
    for name in ("Admin", served.owner.upper()):
        with pytest.raises(Refused, match="is the name of another user"):
            users.change(grace, me, displayName=name)
        with pytest.raises(Refused, match="is the name of another user"):
            users.create(served.session, "eve", PASSWORD, display_name=name)
    assert users.change(grace, me, displayName="Grace")["displayName"] == "Grace"
    assert users.change(grace, me, displayName="")["displayName"] == ""


def deactivate(served: Served, user_id: int) -> None:
    users.change(served.session, user_id, active=False)


def take_the_role(served: Served, user_id: int) -> None:
    roles.unassign(served.session, "Viewer", user_id=user_id)


@pytest.mark.parametrize(
    ("act", "why"), [(deactivate, "token|login"), (take_the_role, "the roles of this user have changed")]
)
@pytest.mark.parametrize("path", ["/api/v1/trials/1/logs", "/api/v1/trials/1/logs/fields"])
def test_what_a_user_follows_ends_with_their_right_to_see_it(
    served: Served, grace: Session, monkeypatch: pytest.MonkeyPatch, path: str, act: Any, why: str
) -> None:
    monkeypatch.setattr(streams, "CHECKED", 0.1)
    served.put([trial(1, state=State.ACTIVE)])
    log = served.daemon.installation.home.run("1.1.1").attempt(0).log(0)
    log.parent.mkdir(parents=True)
    log.write_text(logline.format(logline.LogLine(1.0, "INFO", 0, "stdout", "a line")))
    followed = grace.stream(path, params={"follow": True})
    assert next(iter(followed))
    act(served, users.me(grace)["id"])
    with pytest.raises(Unauthorized, match=why):
        list(followed)


def test_each_user_sees_their_own_logins_and_tokens(served: Served, grace: Session) -> None:
    served.session.post("/api/v1/tokens", {"description": "the owner's"})
    grace.post("/api/v1/tokens", {"description": "mine"})
    described = [row["description"] for row in grace.get("/api/v1/tokens")["tokenInfo"]]
    assert described == ["mine"] and len(served.session.get("/api/v1/tokens")["tokenInfo"]) == 2
    (login,) = users.logins(grace)
    assert login["current"] and users.logins(served.session) == []
    owners = log_in(served, served.owner, served.token)
    (other,) = users.logins(owners)
    with pytest.raises(NotFound):
        users.end_login(grace, other["id"])
    with pytest.raises(NotFound):
        grace.patch("/api/v1/tokens/1", {"setRevoked": True})
    users.logout(grace, everywhere=True)
    assert users.me(owners)["username"] == served.owner


def test_groups_give_roles_to_their_members(served: Served, grace: Session) -> None:
    me = users.me(grace)["id"]
    lab = roles.create_group(served.session, "lab", [me])
    assert_forbidden(experiments.act, grace, 1, "archive")
    roles.assign(served.session, "Editor", group_id=lab["groupId"])
    experiments.act(grace, 1, "archive")
    assert [row["role"]["name"] for row in roles.of_user(served.session, me)] == ["Editor", "Viewer"]
    assert [row["name"] for row in roles.of_group(served.session, lab["groupId"])] == ["Editor"]
    roles.change_group(served.session, lab["groupId"], removeUsers=[me])
    assert_forbidden(experiments.act, grace, 1, "unarchive")
    served.session.patch("/api/v1/users/assignments", {"userIds": [me], "addGroups": [lab["groupId"]]})
    experiments.act(grace, 1, "unarchive")
    with pytest.raises(Refused, match="group 'lab' already exists"):
        roles.create_group(served.session, "lab")
    with pytest.raises(NotFound):
        roles.create_group(served.session, "other", [99])
    roles.delete_group(served.session, lab["groupId"])
    assert_forbidden(experiments.act, grace, 1, "archive")
    with pytest.raises(NotFound, match="there is no group 'lab'; det user-group list shows them"):
        roles.group(served.session, "lab")


def test_where_one_assignment_is_wrong_nothing_is_assigned(served: Served, grace: Session) -> None:
    me = users.me(grace)["id"]
    assignment = {"userId": me, "roleAssignment": {"role": {"roleId": 2}}}
    limited = {"userId": me, "roleAssignment": {"role": {"roleId": 2}, "scopeWorkspaceId": 99}}
    with pytest.raises(NotFound, match="workspace 99 not found"):
        served.session.post("/api/v1/roles/add-assignments", {"userRoleAssignments": [assignment, limited]})
    assert_forbidden(experiments.act, grace, 1, "archive")
    with pytest.raises(NotFound, match="there is no role 7"):
        served.session.post(
            "/api/v1/roles/add-assignments",
            {"userRoleAssignments": [{"userId": me, "roleAssignment": {"role": {"roleId": 7}}}]},
        )


def test_a_rebuild_brings_them_back(served: Served, grace: Session, tmp_path: Path) -> None:
    me = users.me(grace)["id"]
    lab = roles.create_group(served.session, "lab", [me])["groupId"]
    roles.assign(served.session, "Editor", group_id=lab)
    with open_store(tmp_path / "again.db") as again:
        recreate(served.daemon.services.installation.home, again)
        with again.read() as connection:
            assert [user.username for user in stored.find(connection, User)] == [served.owner, "grace"]
            assert [group.members for group in stored.find(connection, Group)] == [[me]]
            rows = {(row.user_id, row.group_id, row.role) for row in stored.find(connection, RoleAssignment)}
            assert rows == {(me, 0, Role.VIEWER), (0, lab, Role.EDITOR)}


def test_a_login_is_kept_where_determineds_clients_look(
    served: Served, grace: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path / "config"))
    logins.remember(served.url, "ada", "first")
    logins.remember(served.url, "grace", logins.login(served.url, "grace", PASSWORD))
    path = tmp_path / "config" / "auth.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert stored_login(served.url, "ada") == "first" and stored_login(served.url, "eve") is None
    assert users.me(Session(served.url, stored_login(served.url)))["username"] == "grace"


def test_an_admin_of_a_workspace_has_no_permission_that_holds_for_the_whole_master(served: Served) -> None:
    (admins,) = served.session.post("/api/v1/roles/search/by-ids", {"roleIds": [WORKSPACE_ADMIN]})["roles"]
    assert all(permission["scopeTypeMask"]["workspace"] for permission in admins["role"]["permissions"])
    assert "PERMISSION_TYPE_ASSIGN_ROLES" in {permission["id"] for permission in admins["role"]["permissions"]}


def test_the_published_client_works_with_them(published: Published, served: Served) -> None:
    published.det("user", "create", "grace", "--password", PASSWORD)
    assert "grace" in published.det("user", "list")
    published.det("user", "edit", "grace", "--display-name", "Grace H.")
    published.det("user-group", "create", "lab", "--add-user", "grace")
    assert "grace" in published.det("user-group", "describe", "lab") and "lab" in published.det("user-group", "list")
    assert "Editor" in published.det("rbac", "list-roles")
    published.det("rbac", "assign-role", "Editor", "--group-name-to-assign", "lab")
    assert "lab" in published.det("rbac", "list-users-roles", "grace")
    assert "Editor" in published.det("rbac", "list-groups-roles", "lab")
    assert "lab" in published.det("rbac", "describe-role", "Editor")
    assert "create experiment" in published.det("rbac", "my-permissions")
    published.det("rbac", "unassign-role", "Editor", "--group-name-to-assign", "lab")
    published.det("user", "edit", "grace", "--active", "false")
    published.det("user", "edit", "grace", "--active", "true", "--username", "hopper")
    published.det("user-group", "remove-user", "lab", "hopper")
    published.det("user-group", "delete", "lab", "--yes")
    assert "hopper" in published.det("user", "list")


def test_the_masters_log_says_what_others_than_the_owner_ask_for(
    served: Served, grace: Session, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dethpc.master.http.middleware")
    assert_forbidden(experiments.act, grace, 1, "kill")
    experiments.act(served.session, 1, "archive")
    users.me(grace)
    assert [record.message for record in caplog.records if record.name.endswith("middleware")] == [
        "user grace asks for POST /api/v1/experiments/1/kill"
    ]


def test_clients_keep_settings_for_each_user(served: Served, grace: Session) -> None:
    setting = {"key": "theme", "value": "dark", "storagePath": "ui"}
    grace.post("/api/v1/users/setting", {"settings": [setting, {"key": "page", "value": "2"}]})
    grace.post("/api/v1/users/setting", {"settings": [{**setting, "value": "light"}]})
    rows = grace.get("/api/v1/users/setting")["settings"]
    assert sorted((row["storagePath"], row["key"], row["value"]) for row in rows) == [
        ("", "page", "2"),
        ("ui", "theme", "light"),
    ]
    assert served.session.get("/api/v1/users/setting") == {"settings": []}
    many = [{"key": str(number), "value": ""} for number in range(1000)]
    for settings in (many, [{"key": "x", "value": "x" * 100_001}], [{"key": "x" * 501, "value": ""}]):
        with pytest.raises(Refused):
            grace.post("/api/v1/users/setting", {"settings": settings})
    assert len(grace.get("/api/v1/users/setting")["settings"]) == 2, "nothing of it"
    grace.post("/api/v1/users/setting/reset")
    assert grace.get("/api/v1/users/setting") == {"settings": []}


def test_a_project_that_a_user_looks_at_is_the_first_of_their_active_ones(served: Served, grace: Session) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    digits = workspaces.create_project(served.session, vision, "Digits")["id"]
    visit = {"activityType": "ACTIVITY_TYPE_GET", "entityType": "ENTITY_TYPE_PROJECT", "entityId": digits}
    grace.post("/api/v1/users/activity", visit)
    names = [row["name"] for row in grace.get("/api/v1/user/projects/activity")["projects"]]
    assert names[0] == "Digits"
    assert "Digits" not in [row["name"] for row in served.session.get("/api/v1/user/projects/activity")["projects"]]
    with pytest.raises(NotFound):
        grace.post("/api/v1/users/activity", {**visit, "entityId": 99})


def test_a_viewer_sees_no_secrets_of_a_configuration_among_the_code(served: Served, grace: Session) -> None:
    config = YAML + "environment: {environment_variables: [A_TOKEN=abcdef]}\n"
    files = {"config.yaml": config.encode(), "train.py": b"pass\n"}
    members = [
        {"path": path, "type": ord("0"), "content": base64.b64encode(content).decode(), "mtime": 0, "mode": 0o644}
        for path, content in files.items()
    ]
    number = experiments.create(served.session, config, members, activate=False)["experiment"]["id"]
    ada = users.create(served.session, "ada", PASSWORD)["id"]
    roles.assign(served.session, "Editor", user_id=ada, workspace_id=1)
    editor_there = Session(served.url, logins.login(served.url, "ada", PASSWORD))
    (path,) = [node["path"] for node in experiments.file_tree(grace, number) if node["path"].endswith(".yaml")]
    for session, sees in ((grace, False), (served.session, True), (editor_there, True)):
        archive = tarfile.open(fileobj=io.BytesIO(experiments.model_definition(session, number)))
        whole = b"".join(file.read() for member in archive if (file := archive.extractfile(member)) is not None)
        assert (b"abcdef" in whole, b"pass" in whole) == (sees, True)
        assert (b"abcdef" in experiments.file(session, number, path)) == sees


def test_a_token_is_good_for_a_lifetime_that_can_be_told(grace: Session) -> None:
    for lifespan in ("99999999999999h", "72000000h", "1" + "0" * 40 + "h", "٤h"):
        with pytest.raises(Refused):
            grace.post("/api/v1/tokens", {"lifespan": lifespan})
    grace.post("/api/v1/tokens", {"lifespan": "876000h"})
    assert len(grace.get("/api/v1/tokens")["tokenInfo"]) == 1


def test_names_can_be_read_and_told_apart(served: Served, grace: Session) -> None:
    me = users.me(grace)["id"]
    for name in ("x" * 101, "a\nb", "\u202eevil"):
        with pytest.raises(Refused, match="a display name has at most"):
            users.change(grace, me, displayName=name)
    with pytest.raises(Refused, match="user 'grace' already exists"):
        users.create(served.session, "GRACE", PASSWORD)
    users.change(served.session, me, username="Grace")


@pytest.mark.parametrize("workspace", [None, 1])
def test_an_editor_sends_files_that_are_worth_asking_for_and_need_not_send_them_again(
    served: Served, grace: Session, workspace: int | None
) -> None:
    roles.assign(served.session, "Editor", user_id=users.me(grace)["id"], workspace_id=workspace or 0)
    file = {"path": "data.bin", "type": 48, "mode": 0o644, "content": base64.b64encode(b"x" * WORTH_ASKING).decode()}
    first, second = (experiments.create(grace, YAML, [file], activate=False)["experiment"]["id"] for _ in range(2))
    assert first != second
    assert [each["path"] for each in grace.get(f"/api/v1/experiments/{second}/file_tree")["files"]] == ["data.bin"]


def test_a_user_whose_name_is_a_number_is_never_taken_for_the_one_with_this_id(served: Served, grace: Session) -> None:
    me = users.me(grace)["id"]
    named = users.create(served.session, str(me), PASSWORD)["id"]
    assert users.by_name(served.session, str(me))["id"] == named != me
    assert users.by_name(served.session, str(named))["username"] == str(me)


def test_each_user_has_their_own_pins(served: Served, grace: Session) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    served.session.post(f"/api/v1/workspaces/{vision}/unpin")
    grace.post(f"/api/v1/workspaces/{vision}/pin")
    assert grace.get(f"/api/v1/workspaces/{vision}")["workspace"]["pinned"] is True
    assert served.session.get(f"/api/v1/workspaces/{vision}")["workspace"]["pinned"] is False


def test_who_is_no_admin_any_more_is_a_viewer(served: Served) -> None:
    ada = users.create(served.session, "ada", PASSWORD, admin=True)["id"]
    users.change(served.session, ada, admin=False)
    assert [row["role"]["name"] for row in roles.of_user(served.session, ada)] == ["Viewer"]


def test_no_user_is_remote(served: Served, grace: Session) -> None:
    with pytest.raises(Refused, match="there is no identity provider"):
        users.change(served.session, users.me(grace)["id"], remote=True)


def test_who_is_no_member_of_a_group_is_not_removed_from_it(served: Served, grace: Session) -> None:
    lab = roles.create_group(served.session, "lab")["groupId"]
    with pytest.raises(NotFound, match="user 'grace' is not a member of this group"):
        roles.change_group(served.session, lab, removeUsers=[users.me(grace)["id"]])


def test_a_launched_task_names_who_launched_it_and_lists_find_it_by_that(served: Served, grace: Session) -> None:
    me = users.me(grace)["id"]
    roles.assign(served.session, "Editor", user_id=me)
    experiment_id = experiments.create(served.session, YAML, [], activate=False)["experiment"]["id"]
    ids = {}
    for noun, body in (
        ("commands", {"config": {"entrypoint": "true"}}),
        ("notebooks", {"config": {}}),
        ("shells", {"config": {}}),
        ("tensorboards", {"config": {}, "experimentIds": [experiment_id]}),
    ):
        theirs = served.session.post(f"/api/v1/{noun}", body)[noun[:-1]]
        row = grace.post(f"/api/v1/{noun}", body)[noun[:-1]]
        ids[noun] = row["id"]
        (listed,) = served.session.get(f"/api/v1/{noun}", params={"users": ["grace"]})[noun]
        shown = grace.get(f"/api/v1/{noun}/{row['id']}")[noun[:-1]]
        for one in (row, listed, shown):
            assert (one["id"], one["username"], one["displayName"], one["userId"]) == (
                ids[noun],
                "grace",
                "Grace H.",
                me,
            )
        for params, expected in (
            ({"userIds": [me]}, [row["id"]]),
            ({"users": [served.owner]}, [theirs["id"]]),
            ({"users": ["nobody"]}, []),
            ({"userIds": [me], "users": [served.owner]}, [theirs["id"], row["id"]]),
            ({}, [theirs["id"], row["id"]]),
        ):
            assert [one["id"] for one in grace.get(f"/api/v1/{noun}", params=params)[noun]] == expected
    ids["generic-tasks"] = grace.post("/api/v1/generic-tasks", {"config": "entrypoint: 'true'"})["taskId"]
    every = served.session.get("/api/v1/launched-tasks")["tasks"]
    assert {row["id"] for row in every if row["username"] == "grace"} == set(ids.values())
    assert {row["id"] for row in every if row["userId"] == me} == set(ids.values())
    jobs = served.session.get("/api/v1/job-queues-v2")["jobs"]
    assert {job["full"]["entityId"] for job in jobs if job["full"]["username"] == "grace"} >= {ids["commands"]}
    assert {job["full"]["userId"] for job in jobs} == {1, me}
    owners = {task.owner for task in served.daemon.ledger.state.tasks.values()}
    assert owners == {served.owner}  # as whom their jobs run


def test_the_published_client_lists_what_its_user_has_created(published: Published, served: Served) -> None:
    roles.assign(served.session, "Editor", user_id=users.create(served.session, "grace", PASSWORD)["id"])
    grace = Published(published.venv, served, published.folder / "grace")
    grace.env |= {"DET_USER": "grace", "DET_PASS": PASSWORD}
    context = grace.folder / "project"
    context.mkdir()
    (context / "config.yaml").write_text(YAML)
    grace.det("experiment", "create", str(context / "config.yaml"), str(context), "--paused")
    for noun, start in (("command", ["run", "-d", "true"]), ("notebook", ["start", "-d"]), ("shell", ["start", "-d"])):
        grace.det(noun, *start)
        assert "grace" in grace.det(noun, "list") and "grace" in published.det(noun, "list", "-a")
        assert "grace" not in published.det(noun, "list")
    assert "grace" in grace.det("experiment", "list") and "grace" in published.det("experiment", "list", "-a")
    assert "grace" not in published.det("experiment", "list")
    assert "grace" in published.det("job", "list")
