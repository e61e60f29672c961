"""Filters of lists: each is honoured, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from dethpc.errors import NotSupportedYet, Refused
from tests.master.conftest import Published, Served, experiment, trained, trial
from tests.waiting import LONG_ENOUGH


def count(served: Served, path: str, **params: Any) -> int:
    answer = served.session.get(f"/api/v1/{path}", params=params)
    return len(answer[path.rpartition("/")[2]])


def test_a_parameter_that_a_route_does_not_know_is_refused_with_those_that_it_knows(served: Served) -> None:
    for path in ("/api/v1/experiments", "/api/v1/master", "/api/v1/trials/1/logs"):
        with pytest.raises(Refused, match="does not know the parameter 'lable'; it has "):
            served.session.get(path, params={"lable": "x"})
    with pytest.raises(Refused, match="'x, y'; it has everywhere$"):
        served.session.post("/api/v1/auth/logout", params={"x": 1, "everywhere": False, "y": 2})


def test_parameters_may_be_written_in_snake_case(served: Served) -> None:
    served.put([experiment(1), experiment(2, archived=True), *trained(trial(1)), *trained(trial(2, index=1))])
    order = {"sort_by": "SORT_BY_ID", "order_by": "ORDER_BY_DESC", "experiment_id_filter.lt": 9}
    rows = served.session.get("/api/v1/experiments", params=order)["experiments"]
    assert [row["id"] for row in rows] == [2, 1]
    assert count(served, "experiments", **{"experiment_id_filter.gt": 1}) == 1
    compared = served.session.get("/api/v1/trials/time-series?trial_ids=1&trial_ids=2&metric_names=a%20b%2B&group=x_y")
    assert len(compared["trials"]) == 2
    with pytest.raises(Refused, match="does not know the parameter 'sorted_by'"):
        served.session.get("/api/v1/experiments", params={"sorted_by": "x"})


@pytest.mark.parametrize("kind", [None, "application/json", "application/x-www-form-urlencoded", "text/plain"])
def test_bodies_are_json_whatever_their_type_is_called(served: Served, kind: str | None) -> None:
    served.put([experiment(1), experiment(2)])
    headers = {"Authorization": f"Bearer {served.token}", **({"Content-Type": kind} if kind else {})}
    url = f"{served.url}/api/v1/experiments-search"
    for body, number in ((b'{"limit": 1}', 1), (b"", 2), (b"{}", 2), (None, 2)):
        answer = requests.post(url, data=body, headers=headers, timeout=LONG_ENOUGH)
        assert answer.status_code == 200 and len(answer.json()["experiments"]) == number, answer.text
    for body in (b"limit=1", b"[]", b"\xff", b"{"):
        answer = requests.post(url, data=body, headers=headers, timeout=LONG_ENOUGH)
        assert answer.status_code == 400 and "body" in answer.json()["error"]["error"], answer.text


def test_a_body_that_is_missing_lacks_its_fields(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token}"}
    answer = requests.put(f"{served.url}/api/v1/trials/1/retain_logs", headers=headers, timeout=LONG_ENOUGH)
    assert answer.status_code == 400 and "numDays: Field required" in answer.text, answer.text


def test_filters_of_workspaces_and_projects(served: Served) -> None:
    for path in ("workspaces", "workspaces/1/projects"):
        assert count(served, path) == count(served, path, name="uncat") == count(served, path, archived=False) == 1
        assert count(served, path, users=[served.owner, "x"], userIds=[1], sortBy="SORT_BY_NAME") == 1
        for none in ({"name": "mine"}, {"archived": True}, {"users": "nobody"}, {"userIds": 2}):
            assert count(served, path, **none) == 0, none
    assert count(served, "workspaces", nameCaseSensitive="Uncategorized", pinned=True) == 1
    for none in ({"nameCaseSensitive": "uncategorized"}, {"nameCaseSensitive": "mine"}, {"pinned": False}):
        assert count(served, "workspaces", **none) == 0, none


def test_a_workspace_that_is_not_there_is_not_taken_for_the_one_that_is(published: Published) -> None:
    assert "Uncategorized" in published.det("workspace", "describe", "Uncategorized")
    published.det("workspace", "describe", "mine", code=1)
    assert "mine" in published.errors


def test_filters_of_users(served: Served) -> None:
    served.session.patch("/api/v1/users/1", {"displayName": "Ada L."})
    for params in ({}, {"name": "ADA l"}, {"name": served.owner.upper()}, {"active": True}, {"admin": True}):
        assert count(served, "users", **params) == 1, params
    for params in ({"name": "nobody at all"}, {"active": False}, {"admin": False}):
        assert count(served, "users", **params) == 0, params
    with pytest.raises(Refused, match="roleIdAssignedDirectlyToUser"):
        count(served, "users", roleIdAssignedDirectlyToUser=1)


def test_what_lists_of_nodes_leave_out(served: Served) -> None:
    (node,) = served.session.get("/api/v1/agents", params={"excludeSlots": True, "sortBy": "SORT_BY_ID"})["agents"]
    assert node["slots"] == {} and node["slotStats"]
    assert served.session.get("/api/v1/agents")["agents"][0]["slots"]


def test_labels_of_a_project_and_workloads_by_steps(served: Served) -> None:
    served.put([experiment(1, labels=["a"]), experiment(2, labels=["b"], project_id=2), *trained(trial(1))])

    def labels(**params: int) -> list[str]:
        found: list[str] = served.session.get("/api/v1/experiment/labels", params=params)["labels"]
        return sorted(found)

    assert labels() == labels(projectId=0) == ["a", "b"] and labels(projectId=1) == ["a"]
    assert count(served, "trials/1/workloads", sortKey="batches") > 0
    with pytest.raises(NotSupportedYet, match="'loss' are not supported yet; sort by batches"):
        count(served, "trials/1/workloads", sortKey="loss")
