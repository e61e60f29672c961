"""Pages of users besides the owner: a viewer sees, and what a role does not reach says so."""

from __future__ import annotations

import re

import pytest

from dethpc.client import Session, login
from dethpc.client.nouns import roles, users, workspaces
from tests.master.conftest import Served, experiment, trained, trial
from tests.web.conftest import Visitor

PASSWORD = "Correct-horse-1"


@pytest.fixture
def grace(served: Served, visitor: Visitor) -> Visitor:
    """The browser of a viewer, who came in by a password."""
    users.create(served.session, "grace", PASSWORD)
    browser = Visitor(served.url)
    browser.named_by(visitor.host.partition(":")[0])
    entered = browser.post("login", {"username": "grace", "password": PASSWORD})
    assert entered.status == 200 and browser.cookie, entered
    return browser


@pytest.mark.parametrize("path", ["experiments", "experiments/1", "trials/1", "queue", "trials/1/logs", "cluster"])
def test_a_viewer_sees(grace: Visitor, path: str) -> None:
    assert grace.get(path).status == 200


def test_experiments_of_several_users_name_them(visitor: Visitor, served: Served) -> None:
    assert '<th scope="col">User' not in visitor.get("experiments").text
    grace = users.create(served.session, "grace", "", display_name="Grace H.")["id"]
    served.put([experiment(2, owner=served.owner, user_id=grace), *trained(trial(2, 2, index=0))])
    listed = visitor.get("experiments?sort=user").text
    assert "User" in listed and "<td>Grace H.</td>" in listed
    assert "<dd>Grace H.</dd>" in visitor.get("experiments/2").text
    assert "<dt>User</dt>" not in visitor.get("experiments/1").text


def test_a_viewer_changes_nothing_and_is_told_why(grace: Visitor, served: Served) -> None:
    assert 'class="looks-only"' in (page := grace.get("experiments/1").text)
    assert "experiments/1/fork" not in page and "trials/1/continue" not in grace.get("trials/1").text
    assert page.count(" readonly>") == 4 and ">Save<" not in page and ">Webhooks<" not in page
    answer = grace.post("experiments/1/act", {"action": "archive"})
    assert answer.status == 303 and "needs+the+role+Editor" in answer.headers["location"].replace("%20", "+")
    assert served.session.get("/api/v1/experiments/1")["experiment"]["archived"] is False
    roles.assign(served.session, "Editor", user_id=2)
    assert 'class="looks-only"' not in (page := grace.get("experiments/1").text)
    assert "experiments/1/fork" in page and ">Webhooks<" in page and "trials/1/continue" in grace.get("trials/1").text
    assert " readonly" not in page and ">Save<" in page
    assert grace.post("experiments/1/act", {"action": "archive"}).status == 303
    assert served.session.get("/api/v1/experiments/1")["experiment"]["archived"] is True


def test_an_editor_of_one_workspace_has_the_buttons(grace: Visitor, served: Served) -> None:
    roles.assign(served.session, "Editor", user_id=2, workspace_id=1)
    assert 'class="looks-only"' not in grace.get("experiments/1").text
    grace.post("experiments/1/act", {"action": "archive"})
    assert served.session.get("/api/v1/experiments/1")["experiment"]["archived"] is True


def test_who_launches_a_command_chooses_among_the_workspaces_of_their_role(grace: Visitor, served: Served) -> None:
    choices = r"<option [^>]+>([^<]+)</option>"
    vision, audio, _, old = (
        workspaces.create_workspace(served.session, name)["id"] for name in ("Vision", "Audio", "Closed", "Old")
    )
    workspaces.act_on_workspace(served.session, old, "archive")
    for id in (vision, audio, old):
        roles.assign(served.session, "Editor", user_id=2, workspace_id=id)

    def select() -> str:
        return grace.get("tasks/new").text.partition('name="workspace"')[2].partition("</select>")[0]

    assert re.findall(choices, select()) == ["Vision", "Audio"]
    roles.assign(served.session, "Editor", user_id=2)
    assert re.findall(choices, shown := select()) == ["Uncategorized", "Vision", "Audio", "Closed"]
    assert re.findall(r'<option value="(\d+)" selected>', shown) == ["1"]
    form = {"action": "launch", "program": "sleep 100", "slots": "1", "pool": "default", "workspace": str(audio)}
    assert grace.post("tasks/new", form).status == 303
    (task,) = served.session.get("/api/v1/launched-tasks?live=true")["tasks"]
    assert task["workspaceId"] == audio
    page = grace.post("tasks/new", {**form, "slots": "many"}).text
    assert f'<option value="{audio}" selected>' in page, "nobody chooses again"


@pytest.mark.parametrize("everywhere", [True, False])
def test_no_link_of_the_frame_leads_to_a_refusal(grace: Visitor, served: Served, everywhere: bool) -> None:
    if not everywhere:
        roles.assign(served.session, "Viewer", user_id=2, workspace_id=1)
        roles.unassign(served.session, "Viewer", user_id=2)
    about = grace.get("about").text
    links = re.findall(r'<a (?:class="mark" )?href="(?:\./)?([a-z]+)"', about)
    assert {"experiments", "tasks", "queue", "cluster", "checkpoints", "sessions", "about"} <= set(links)
    for link in links:
        assert grace.get(link).status == 200, link
    home = str(served.daemon.installation.home.root)
    assert home not in about and "grace" in about and "checkpoint_storage" not in about
    assert ("<h2>Nodes</h2>" in (cluster := grace.get("cluster").text)) is everywhere and "<h2>default</h2>" in cluster


def test_the_frame_of_an_admin_has_the_doctor(visitor: Visitor, served: Served) -> None:
    about = visitor.get("about").text
    assert ">Doctor</a>" in about and str(served.daemon.installation.home.root) in about


def test_what_is_made_for_the_owner_is_shown_to_no_other(grace: Visitor, visitor: Visitor) -> None:
    told_of_a_change = {"HX-Request": "true"}
    mine, theirs = (who.get("doctor", **told_of_a_change) for who in (visitor, grace))
    assert (mine.status, theirs.status) == (200, 403) and "needs the role ClusterAdmin" in theirs.text
    mine, theirs = (who.get("sessions", **told_of_a_change) for who in (visitor, grace))
    assert (mine.status, theirs.status) == (200, 200) and theirs.text != mine.text


def test_who_is_deactivated_is_sent_to_the_login(grace: Visitor, served: Served) -> None:
    users.change(served.session, 2, active=False)
    assert grace.get("experiments").status in (302, 303, 401)
    with pytest.raises(Exception, match="user is not active"):
        Session(served.url, login.login(served.url, "grace", PASSWORD))


def test_a_code_lets_in_the_user_who_asked_for_it(served: Served, visitor: Visitor) -> None:
    users.create(served.session, "grace", PASSWORD)
    session = Session(served.url, login.login(served.url, "grace", PASSWORD))
    code = session.post("/api/v1/auth/code")
    browser = Visitor(served.url).named_by(code["host"])
    assert browser.get(f"enter?code={code['code']}").status == 200
    answer = browser.post("experiments/1/act", {"action": "archive"})
    assert answer.status == 303 and "grace" in answer.headers["location"]


def test_pages_lead_only_where_a_role_lets_who_looks(grace: Visitor, served: Served) -> None:
    roles.assign(served.session, "Editor", user_id=2, workspace_id=1)
    assert "New webhook" not in grace.get("webhooks").text
    roles.assign(served.session, "WorkspaceAdmin", user_id=2, workspace_id=1)
    assert "New webhook" in grace.get("webhooks").text
    for role, workspace_id in (("WorkspaceAdmin", 1), ("Editor", 1), ("Viewer", 0)):
        roles.unassign(served.session, role, user_id=2, workspace_id=workspace_id)
    refused = grace.get("experiments")
    assert refused.status == 403 and "det rbac assign-role Viewer" in refused.text
    paths = re.findall(r'<a [^>]*href="\./([^"#:]+)"', refused.text)
    assert {path: grace.get(path).status for path in paths if path != "experiments"} == {"sessions": 200, "about": 200}
