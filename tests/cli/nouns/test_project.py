"""Projects by id and by name, wherever a command takes one."""

from __future__ import annotations

from typing import Any

from tests.cli.test_sharing import PASSWORD, det, rows  # noqa: F401
from tests.master.conftest import Served, experiment, served, site, trained, trial  # noqa: F401


def test_experiments_of_a_project_are_those_of_who_asks(det: Any, served: Served) -> None:  # noqa: F811
    served.put([experiment(1), experiment(2, user_id=2), experiment(3, user_id=2)])
    det("user", "create", "grace", "--password", PASSWORD)
    det("rbac", "assign-role", "Viewer", "-u", "grace")
    det("user", "login", "grace", text=f"{PASSWORD}\n")
    place = ("Uncategorized", "Uncategorized")

    def ids(*options: str, user: tuple[str, ...] = ("-u", "grace")) -> list[str]:
        return [row["ID"] for row in rows(det(*user, "project", "list-experiments", *place, "--csv", *options))]

    assert ids() == ["2", "3"] and ids(user=()) == ["1"]
    assert ids("--all") == ["1", "2", "3"]
    assert ids("--order-by", "desc", "--limit", "1", "--offset", "1") == ["2"]
    assert ids("--sort-by", "name", "--order-by", "desc") == ["3", "2"]
    description = det("-u", "grace", "project", "describe", *place).output
    assert "digits 2" in description and "digits 1" not in description


def test_a_list_takes_a_project_by_name_where_only_one_is_called_so(det: Any, served: Served) -> None:  # noqa: F811
    served.put([experiment(1), *trained(trial(1))])
    det("workspace", "create", "Vision")
    det("workspace", "create", "Speech")
    for workspace, project in (("Vision", "cats"), ("Vision", "dogs"), ("Speech", "cats")):
        det("project", "create", workspace, project)
    for noun in ("experiment", "job"):
        assert rows(det(noun, "list", "--project", "dogs", "--csv")) == []
        message = det(noun, "list", "--project", "cats", code=2).output
        assert "2 projects are called 'cats'; give an id: 2 (cats, Vision), 4 (cats, Speech)" in message
        assert "there is no project '0'" in det(noun, "list", "--project", "0", code=2).output
        assert "there is no project 'dog', but there is dogs (id 3, Vision); det project list" in det(
            noun, "list", "--project", "dog", code=2
        ).output.replace("\n", " ")
    assert [row["ID"] for row in rows(det("experiment", "list", "--all", "--project", "Uncategorized", "--csv"))] == [
        "1"
    ]


def test_a_workspace_and_a_project_are_known_by_id_too(det: Any, served: Served) -> None:  # noqa: F811
    det("workspace", "create", "Vision")
    det("project", "create", "2", "cats")
    assert "cats" in det("project", "describe", "2", "2").output
    assert "cats" in det("workspace", "list-projects", "2").output
    assert (
        "there is no project 'cat', but there is cats (id 2, Vision); det workspace list-projects Vision shows them"
        in det("project", "describe", "Vision", "cat", code=1).output
    )
