"""Workspaces and projects: made, found, changed, archived, moved and deleted, and what stands in them."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from dethpc.client.nouns import config_policies, experiments, models, roles, templates, workspaces
from dethpc.domain.records import ConfigPolicy, Project, WorkspaceRole
from dethpc.domain.roles import Role
from dethpc.domain.states import State
from dethpc.errors import NotFound, Refused
from dethpc.master.experiments.create import NewExperiment
from dethpc.master.rebuild import recreate
from dethpc.state import open_store
from dethpc.state.queries import records as stored
from tests.master.conftest import Published, Served, experiment, trained, trial
from tests.master.http.test_control import YAML

FILES = [{"path": "train.py", "content": "", "mode": 0o644, "type": 48}]


@pytest.fixture
def vision(served: Served) -> dict[str, Any]:
    return workspaces.create_workspace(served.session, "Vision")


def project_of(served: Served, vision: dict[str, Any], name: str = "Digits") -> dict[str, Any]:
    return workspaces.create_project(served.session, vision["id"], name, "numbers by hand")


def created(served: Served, text: str = YAML, **options: Any) -> dict[str, Any]:
    return experiments.create(served.session, text, [], activate=False, **options)["experiment"]


def test_the_first_of_each_holds_what_names_none_and_stays(served: Served) -> None:
    uncategorized = created(served)
    assert (
        uncategorized["projectName"],
        uncategorized["workspaceName"],
        uncategorized["projectId"],
        uncategorized["workspaceId"],
    ) == (
        "Uncategorized",
        "Uncategorized",
        1,
        1,
    )
    for act in (
        lambda: workspaces.change_workspace(served.session, 1, name="mine"),
        lambda: workspaces.delete_workspace(served.session, 1),
        lambda: workspaces.act_on_workspace(served.session, 1, "archive"),
        lambda: workspaces.change_project(served.session, 1, name="mine"),
        lambda: workspaces.delete_project(served.session, 1),
        lambda: workspaces.act_on_project(served.session, 1, "archive"),
    ):
        with pytest.raises(Refused, match="holds what names no other"):
            act()


def test_an_experiment_is_created_where_its_request_its_configuration_or_its_parent_says(
    served: Served, vision: dict[str, Any]
) -> None:
    digits, letters = project_of(served, vision), project_of(served, vision, "Letters")
    by_id = created(served, project=digits["id"])
    assert (by_id["projectName"], by_id["workspaceName"]) == ("Digits", "Vision")
    named = f"{YAML}\nworkspace: Vision\nproject: Letters\n"
    assert created(served, named)["projectId"] == letters["id"]
    assert created(served, named, project=digits["id"])["projectId"] == digits["id"], "the request counts first"
    assert created(served, parent=by_id["id"])["projectId"] == digits["id"], "a fork stands beside its parent"
    in_digits = served.session.get("/api/v1/experiments", {"projectId": digits["id"]})["experiments"]
    assert {each["id"] for each in in_digits} >= {by_id["id"]} and len(in_digits) == 3
    rows = workspaces.projects(served.session, vision["id"])
    assert [(row["name"], row["numExperiments"]) for row in rows] == [("Digits", 3), ("Letters", 1)]
    assert rows[0]["lastExperimentStartedAt"]
    assert workspaces.workspace(served.session, "Vision")["numExperiments"] == 4


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ("workspace: Vison\nproject: x\n", "no workspace 'Vison' .*Vision.*: that means project Uncategorized"),
        ("workspace: Vision\n", "needed together"),
        ("project: Digits\n", "needed together"),
    ],
)
def test_a_configuration_of_another_cluster_works_though_its_place_is_not_here(
    served: Served, vision: dict[str, Any], config: str, note: str
) -> None:
    project_of(served, vision)
    answer = experiments.create(served.session, f"{YAML}\n{config}", [], activate=False)
    assert answer["experiment"]["projectId"] == 1
    assert re.search(note, "\n".join(answer["notes"])), answer["notes"]
    assert len(workspaces.workspaces(served.session)) == 2, "a misspelt name makes none"


def test_a_fork_is_where_its_parent_is_by_now_unless_it_names_another_place(
    served: Served, vision: dict[str, Any]
) -> None:
    digits, letters = project_of(served, vision), project_of(served, vision, "Letters")
    named = f"{YAML}\nworkspace: Vision\nproject: Digits\n"
    parent = created(served, named)["id"]
    workspaces.change_project(served.session, digits["id"], name="Numbers")
    workspaces.change_workspace(served.session, vision["id"], name="Sight")
    assert created(served, named, parent=parent)["projectId"] == digits["id"]
    workspaces.move_experiment(served.session, parent, letters["id"])
    assert created(served, named, parent=parent)["projectId"] == letters["id"]
    elsewhere = named.replace("Vision", "Sight").replace("Digits", "Numbers")
    assert created(served, elsewhere, parent=parent)["projectId"] == digits["id"]
    early = f"{YAML}\nworkspace: Audio\nproject: Speech\n"
    parent = created(served, early)["id"]
    speech = project_of(served, workspaces.create_workspace(served.session, "Audio"), "Speech")
    assert created(served, early, parent=parent)["projectId"] == speech["id"], "created since, as its note advised"


def test_a_project_that_is_misspelt_in_a_workspace_that_is_here_is_a_mistake(
    served: Served, vision: dict[str, Any]
) -> None:
    project_of(served, vision)
    with pytest.raises(NotFound, match="no project 'Digit' in workspace 'Vision' .*Digits"):
        experiments.create(served.session, f"{YAML}\nworkspace: Vision\nproject: Digit\n", [], activate=False)
    assert served.session.get("/api/v1/experiments")["experiments"] == []


@pytest.mark.parametrize("name", ["7", "Vision ", " Vision", "\u0663"])
def test_a_name_is_told_from_ids_and_from_other_names(served: Served, vision: dict[str, Any], name: str) -> None:
    with pytest.raises(Refused, match="cannot be a number|cannot begin or end with a space"):
        workspaces.create_workspace(served.session, name)
    with pytest.raises(Refused, match="cannot be a number|cannot begin or end with a space"):
        project_of(served, vision, name)
    with pytest.raises(Refused, match="cannot be a number|cannot begin or end with a space"):
        roles.create_group(served.session, name, [])


def test_a_list_without_what_is_archived_has_nothing_of_archived_projects_and_workspaces(
    served: Served, vision: dict[str, Any]
) -> None:
    digits, letters = project_of(served, vision), project_of(served, vision, "Letters")
    first, second = (created(served, project=row["id"])["id"] for row in (digits, letters))
    third = created(served)["id"]

    def listed(**params: Any) -> list[int]:
        return sorted(row["id"] for row in served.session.get("/api/v1/experiments", params)["experiments"])

    workspaces.act_on_project(served.session, digits["id"], "archive")
    assert listed(archived=False) == [second, third] and listed() == [first, second, third]
    assert listed(archived=False, projectId=digits["id"]) == [first]
    workspaces.act_on_workspace(served.session, vision["id"], "archive")
    assert listed(archived=False) == [third] and listed(archived=False, projectId=letters["id"]) == [second]
    workspaces.act_on_workspace(served.session, vision["id"], "unarchive")
    assert listed(archived=False) == [second, third]


def test_what_is_archived_takes_no_experiments_until_it_is_unarchived(served: Served, vision: dict[str, Any]) -> None:
    digits = project_of(served, vision)
    one = created(served)
    for act, id in ((workspaces.act_on_project, digits["id"]), (workspaces.act_on_workspace, vision["id"])):
        act(served.session, id, "archive")
        assert workspaces.project_by_id(served.session, digits["id"])["archived"]
        with pytest.raises(Refused, match="archived"):
            created(served, project=digits["id"])
        with pytest.raises(Refused, match="archived"):
            workspaces.move_experiment(served.session, one["id"], digits["id"])
        with pytest.raises(Refused, match="archived"):
            workspaces.change_project(served.session, digits["id"], description="x")
        act(served.session, id, "unarchive")
    assert created(served, project=digits["id"])["projectId"] == digits["id"]


def test_an_archived_workspace_lets_nothing_in_it_change(served: Served, vision: dict[str, Any]) -> None:
    digits = project_of(served, vision)
    ended = replace(experiment(1, owner=served.owner, project_id=digits["id"]), state=State.CANCELED)
    served.put([ended])
    models.create(served.session, "reader", workspaceId=vision["id"])
    templates.create(served.session, "base", {"max_restarts": 1}, vision["id"])
    workspaces.act_on_workspace(served.session, vision["id"], "archive")
    for act in (
        lambda: experiments.go_on(served.session, 1),
        lambda: models.create(served.session, "writer", workspaceId=vision["id"]),
        lambda: models.change(served.session, "reader", description="x"),
        lambda: templates.create(served.session, "other", {"max_restarts": 1}, vision["id"]),
        lambda: templates.change(served.session, "base", {"max_restarts": 2}),
    ):
        with pytest.raises(Refused, match="(project|workspace) '(Digits|Vision)' is archived: unarchive it"):
            act()
    workspaces.act_on_workspace(served.session, vision["id"], "unarchive")
    templates.change(served.session, "base", {"max_restarts": 2})
    models.change(served.session, "reader", description="x")


def test_experiments_and_projects_move(served: Served, vision: dict[str, Any]) -> None:
    digits = project_of(served, vision)
    served.put([row for n in (1, 2, 3) for row in (experiment(n, owner=served.owner), *trained(trial(n, n, index=0)))])
    workspaces.move_experiment(served.session, 1, digits["id"])
    body = {"experimentIds": [2, 99], "destinationProjectId": digits["id"]}
    results = served.session.post("/api/v1/projects/1/experiments/move", body)["results"]
    assert [(each["id"], bool(each["error"])) for each in results] == [(2, False), (99, True)]
    assert [experiments.get(served.session, n)["experiment"]["projectId"] for n in (1, 2, 3)] == [digits["id"]] * 2 + [
        1
    ]
    assert workspaces.project_by_id(served.session, digits["id"])["numRuns"] == 2
    other = workspaces.create_workspace(served.session, "Speech")
    workspaces.move_project(served.session, digits["id"], other["id"])
    assert experiments.get(served.session, 1)["experiment"]["workspaceName"] == "Speech"
    project_of(served, vision)
    with pytest.raises(Refused, match="project 'Digits' already exists"):
        workspaces.move_project(served.session, digits["id"], vision["id"])


def test_only_what_is_empty_is_deleted_and_its_id_is_given_to_no_other(served: Served, vision: dict[str, Any]) -> None:
    digits = project_of(served, vision)
    served.put([experiment(1, owner=served.owner, project_id=digits["id"])])
    with pytest.raises(Refused, match="is not empty: it has 1 experiment;"):
        workspaces.delete_project(served.session, digits["id"])
    with pytest.raises(Refused, match=r"is not empty: it has projects \(Digits\)"):
        workspaces.delete_workspace(served.session, vision["id"])
    models.create(served.session, "reader", workspaceId=vision["id"])
    more = [project_of(served, vision, name=f"p{n}")["id"] for n in range(5)]
    with pytest.raises(
        Refused, match=r"it has projects \(Digits, p0, p1, p2, p3 and 1 more\), models \(reader\); delete"
    ):
        workspaces.delete_workspace(served.session, vision["id"])
    workspaces.move_experiment(served.session, 1, 1)
    for id in (digits["id"], *more):
        workspaces.delete_project(served.session, id)
    with pytest.raises(Refused, match=r"is not empty: it has models \(reader\); delete or move them first"):
        workspaces.delete_workspace(served.session, vision["id"])
    models.change(served.session, "reader", workspaceId=1)
    workspaces.delete_workspace(served.session, vision["id"])
    for gone in (f"projects/{digits['id']}", f"workspaces/{vision['id']}"):
        with pytest.raises(NotFound):
            served.session.get(f"/api/v1/{gone}")
    again = workspaces.create_workspace(served.session, "Vision")
    assert again["id"] > vision["id"] and project_of(served, again)["id"] > digits["id"]


def test_a_project_that_is_called_like_a_folder_goes_on_working_and_no_other_gets_its_name(
    served: Served, vision: dict[str, Any]
) -> None:
    """An earlier release let people call it so."""
    project, records = project_of(served, vision), served.daemon.services.records
    for name in (".", ".."):
        with pytest.raises(Refused, match="cannot be '"):
            workspaces.change_project(served.session, project["id"], name=name)
        with pytest.raises(Refused, match="cannot be '"):
            workspaces.create_workspace(served.session, name)
        with pytest.raises(Refused, match="cannot be '"):
            models.create(served.session, name)
    (row,) = records.find(Project, id=project["id"])
    records.put(replace(row, name=".."))
    workspaces.change_project(served.session, project["id"], name="..", description="as before")
    served.session.post(f"/api/v1/projects/{project['id']}/move", {"destinationWorkspaceId": 1})
    assert served.session.get(f"/api/v1/projects/{project['id']}")["project"]["workspaceId"] == 1


def test_nothing_is_created_in_or_moved_to_a_project_that_was_deleted_meanwhile(
    served: Served, vision: dict[str, Any]
) -> None:
    """By who looked it up before."""
    services, digits = served.daemon.services, project_of(served, vision)["id"]
    mine = experiments.create(served.session, YAML, [])["experiment"]["id"]
    workspaces.delete_project(served.session, digits)
    with pytest.raises(NotFound, match=f"project {digits} not found"):
        services.creator.create(served.owner, NewExperiment(YAML, project_id=digits))
    with pytest.raises(NotFound, match=f"project {digits} not found"):
        services.creator.create_unmanaged(served.owner, NewExperiment(YAML, project_id=digits))
    with pytest.raises(NotFound, match=f"project {digits} not found"):
        services.control.move(mine, digits)
    assert [row["projectId"] for row in experiments.listing(served.session)["experiments"]] == [1]


def test_roles_and_policies_of_a_workspace_go_with_it(served: Served, vision: dict[str, Any]) -> None:
    """Whoever lists roles asks for the workspace of each."""
    records = served.daemon.services.records
    records.put(WorkspaceRole(1, 0, vision["id"], Role.EDITOR, 1.0))
    config_policies.put(served.session, "invariant_config: {max_restarts: 1}", vision["id"])
    workspaces.delete_workspace(served.session, vision["id"])
    (editors,) = served.session.post("/api/v1/roles/search/by-ids", {"roleIds": [Role.EDITOR]})["roles"]
    assert editors["userRoleAssignments"] == [] and records.find(ConfigPolicy) == []


def test_names_and_keys_are_unique_whoever_comes_at_once(served: Served, vision: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="workspace 'vision' already exists") as refusal:
        workspaces.create_workspace(served.session, "vision")
    assert refusal.value.status_code == 409  # type: ignore[attr-defined]
    for name in ("", "  ", "x" * 81):
        with pytest.raises(Refused, match="name"):
            workspaces.create_workspace(served.session, name)
    one = workspaces.create_project(served.session, vision["id"], "One", key="abc")
    assert one["key"] == "ABC" and served.session.get("/api/v1/projects/key/abc")["project"]["id"] == one["id"]
    with pytest.raises(Refused, match="key ABC already"):
        workspaces.create_project(served.session, vision["id"], "Two", key="ABC")
    with pytest.raises(Refused, match="1 to 5 letters and digits"):
        workspaces.change_project(served.session, one["id"], key="too-long")
    outcomes: list[bool] = []

    def create() -> None:
        try:
            workspaces.create_project(served.session, vision["id"], "Same")
            outcomes.append(True)
        except Refused:
            outcomes.append(False)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 1 and len(outcomes) == 8


def test_a_workspace_gives_its_experiments_a_pool_and_a_storage(served: Served, tmp_path: Any) -> None:
    pool = served.session.get("/api/v1/resource-pools")["resourcePools"][0]["name"]
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "theirs")}
    fields = {"checkpointStorageConfig": storage, "defaultComputePool": pool}
    space = workspaces.create_workspace(served.session, "Vision", **fields)
    assert space["defaultComputePool"] == pool and space["checkpointStorageConfig"]["host_path"] == storage["host_path"]
    digits = project_of(served, space)
    in_digits = created(served, project=digits["id"])
    assert in_digits["config"]["checkpoint_storage"]["host_path"] == storage["host_path"]
    own = f"{YAML}\ncheckpoint_storage: {{type: shared_fs, host_path: {tmp_path / 'own'}}}\n"
    assert created(served, own, project=digits["id"])["config"]["checkpoint_storage"]["host_path"] == str(
        tmp_path / "own"
    )
    with pytest.raises(Refused, match="no resource pool 'nowhere'"):
        workspaces.change_workspace(served.session, space["id"], defaultAuxPool="nowhere")
    with pytest.raises(Exception, match="type"):
        workspaces.change_workspace(served.session, space["id"], checkpointStorageConfig={"type": "tape"})
    taken_back = workspaces.change_workspace(
        served.session, space["id"], checkpointStorageConfig={}, defaultComputePool=""
    )
    assert taken_back["checkpointStorageConfig"] is None and not taken_back["defaultComputePool"]


def test_notes_pins_and_lists(served: Served, vision: dict[str, Any]) -> None:
    digits = project_of(served, vision)
    note = {"name": "a", "contents": "b"}
    assert served.session.post(f"/api/v1/projects/{digits['id']}/notes", note)["notes"] == [note]
    assert workspaces.set_notes(served.session, digits["id"], [note, note]) == [note, note]
    assert workspaces.project_by_id(served.session, digits["id"])["notes"] == [note, note]
    assert workspaces.workspace(served.session, "Vision")["pinned"]
    workspaces.act_on_workspace(served.session, vision["id"], "unpin")
    names = [row["name"] for row in served.session.get("/api/v1/workspaces", {"pinned": True})["workspaces"]]
    assert names == ["Uncategorized"]
    workspaces.act_on_workspace(served.session, vision["id"], "pin")
    order = {"sortBy": "SORT_BY_NAME", "orderBy": "ORDER_BY_DESC"}
    rows = served.session.get("/api/v1/workspaces", order)["workspaces"]
    assert [row["name"] for row in rows] == ["Vision", "Uncategorized"] and all(row["pinned"] for row in rows)
    served.put([experiment(1, owner=served.owner, project_id=digits["id"])])
    order = {"sortBy": "SORT_BY_LAST_EXPERIMENT_START_TIME", "orderBy": "ORDER_BY_DESC"}
    rows = served.session.get("/api/v1/workspaces/0/projects", order)["projects"]
    assert [row["name"] for row in rows] == ["Digits", "Uncategorized"]
    assert [row["name"] for row in served.session.get("/api/v1/user/projects/activity")["projects"]] == ["Digits"]
    with pytest.raises(Refused, match="cannot sort by colour"):
        served.session.get("/api/v1/workspaces", {"sortBy": "SORT_BY_COLOUR"})


def test_a_rebuild_brings_them_back(served: Served, vision: dict[str, Any], tmp_path: Any) -> None:
    digits = project_of(served, vision)
    workspaces.set_notes(served.session, digits["id"], [{"name": "a", "contents": "b"}])
    services = served.daemon.services
    from dethpc.domain.records import Project, Workspace, WorkspacePin

    kinds = (Workspace, WorkspacePin, Project)
    with services.store.read() as connection:
        before = [stored.find(connection, kind) for kind in kinds]
    with open_store(tmp_path / "again.db") as again:
        recreate(services.installation.home, again)
        with again.read() as connection:
            assert [stored.find(connection, kind) for kind in kinds] == before
    assert any(row.notes for row in before[2])


def test_the_published_client_works_with_them(published: Published, served: Served) -> None:
    served.put([experiment(1, owner=served.owner)])
    published.det("workspace", "create", "Vision", "--json")
    published.det("project", "create", "Vision", "Digits", "--description", "numbers", "--key", "DIG")
    assert "Digits" in published.det("project", "list", "Vision") and "DIG" in published.det(
        "workspace", "list-projects", "Vision"
    )
    published.det("experiment", "move", "1", "Vision", "Digits")
    assert "COMPLETED" in published.det("project", "list-experiments", "Vision", "Digits")
    published.det("project", "edit", "Vision", "Digits", "--new_name", "Numbers")
    published.det("project", "archive", "Vision", "Numbers")
    published.det("project", "unarchive", "Vision", "Numbers")
    published.det("workspace", "edit", "Vision", "--name", "Sight")
    assert "local" in published.det("workspace", "list-pools", "Sight") or published.det(
        "workspace", "list-pools", "Sight"
    )
    published.det("workspace", "archive", "Sight")
    published.det("workspace", "unarchive", "Sight")
    published.det("experiment", "move", "1", "Uncategorized", "Uncategorized")
    published.det("project", "delete", "Sight", "Numbers", "--yes")
    published.det("workspace", "delete", "Sight", "--yes")
    assert "Sight" not in published.det("workspace", "list")
    got = published.python(
        "from determined.experimental import client\n"
        "w = client.create_workspace('Lab')\n"
        "p = w.create_project('P', 'about')\n"
        "p.add_note('n', 'c'); p.set_key('LAB'); p.set_description('d'); p.reload()\n"
        "client.get_experiment(1).move_to_project('Lab', 'P')\n"
        "ids = [e.id for e in p.list_experiments()]\n"
        "print(json.dumps([p.key, p.description, p.notes, ids, [x.name for x in client.list_workspaces()],"
        " [x.name for x in w.list_projects()], len(w.list_pools())]))"
    )
    assert got[:6] == ["LAB", "d", [{"name": "n", "contents": "c"}], [1], ["Uncategorized", "Lab"], ["P"]]
    assert got[6] >= 1
