"""``det user``, ``det user-group``, ``det rbac``, ``det config-policies``, ``det resources`` and the cluster's message."""

from __future__ import annotations

import csv
import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dethpc.cli import main
from dethpc.client.address import stored_login
from dethpc.client.login import login
from tests.master.conftest import Served, experiment, served, site, trained, trial  # noqa: F401

PASSWORD = "Correct-horse-1"


@pytest.fixture
def det(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:  # noqa: F811
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path / "config"))

    def run(*arguments: str, code: int = 0, text: str = "", token: str = "") -> Result:
        environment = {"DET_MASTER": served.url, "DET_USER_TOKEN": token or served.token}
        result = CliRunner().invoke(main, arguments, env=environment, input=text)
        assert result.exit_code == code, result.output
        return result

    return run


def rows(result: Result) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_a_user_from_creation_to_the_end(det: Any, served: Served) -> None:  # noqa: F811
    assert "Created user 'grace' with ID 2" in det("user", "create", "grace", "--password", PASSWORD).output
    assert "cannot log in yet" in det("user", "create", "eve").output
    assert "user 'eve' already exists" in det("user", "create", "eve", code=1).output
    assert "a username has letters" in det("user", "create", "a b", code=1).output
    det("user", "edit", "grace", "--display-name", "Grace H.", "--admin", "true")
    assert "Name what to change" in det("user", "edit", "grace", code=2).output
    (_, grace, _) = rows(det("user", "list", "--csv"))
    assert (grace["Username"], grace["Display name"], grace["Admin"]) == ("grace", "Grace H.", "yes")
    det("user", "rename", "grace", "hopper")
    (number,) = [row["ID"] for row in rows(det("user", "list", "--csv")) if row["Username"] == "hopper"]
    assert "Deactivated user 'hopper'" in det("user", "deactivate", number).output, (
        "an id, too, is answered by the name"
    )
    assert [row["Username"] for row in rows(det("user", "list", "--csv"))] == [served.owner, "eve"]
    det("user", "activate", "hopper")
    assert "hopper" in det("user", "list").output


def test_who_has_logged_in_acts_as_that_user(det: Any, served: Served) -> None:  # noqa: F811
    served.put([experiment(1), *trained(trial(1))])
    det("user", "create", "grace", "--password", PASSWORD)
    assert "log in first" in det("-u", "grace", "user", "whoami", code=1).output
    assert "invalid credentials" in det("user", "login", "grace", text="wrong\n", code=1).output
    det("user", "login", "grace", text=f"{PASSWORD}\n")
    assert "user 'grace'" in det("-u", "grace", "user", "whoami").output
    assert "needs the role Editor" in det("-u", "grace", "experiment", "archive", "1", code=1).output
    assert "An editor can run any program as that user" in det("rbac", "assign-role", "Editor", "-u", "grace").output
    det("-u", "grace", "experiment", "archive", "1")


@pytest.mark.parametrize("noun", ["notebook", "shell"])
def test_who_may_not_open_a_task_hears_so_before_it_runs(noun: str, det: Any) -> None:
    det("user", "create", "grace", "--password", PASSWORD)
    det("rbac", "assign-role", "Viewer", "-u", "grace")
    det("user", "login", "grace", text=f"{PASSWORD}\n")
    task_id = det(noun, "start", "--detach").output.split()[-1]
    assert "needs the role Editor" in det("-u", "grace", noun, "open", task_id, code=1).output


def test_no_password_is_asked_for_where_no_master_answers(det: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    output = det("-m", url, "user", "login", "grace", code=1).output
    assert "does not answer" in output and "Password" not in output


def test_who_is_named_before_the_noun_can_log_in(det: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    det("user", "create", "grace", "--password", PASSWORD)
    assert "as user 'grace'" in det("-u", "grace", "user", "login", text=f"{PASSWORD}\n").output
    with monkeypatch.context() as patch:
        patch.setenv("DET_PASS", PASSWORD)
        assert "as user 'grace'" in det("user", "login", "grace").output
        patch.setenv("DET_USER", "somebody")  # whose password it is
        det("user", "login", "grace", code=2)
    assert "user 'grace'" in det("-u", "grace", "user", "whoami").output


def test_the_password_of_the_environment_logs_in_its_user(
    det: Any,
    served: Served,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    det("user", "create", "grace", "--password", PASSWORD)
    monkeypatch.setenv("DET_USER", "grace")
    monkeypatch.setenv("DET_PASS", PASSWORD)
    assert "user 'grace'" in det("user", "whoami").output
    first = stored_login(served.url, "grace")
    det("user", "whoami")
    assert stored_login(served.url, "grace") == first  # which goes on being used
    det("user", "logout", "--all")
    assert "user 'grace'" in det("user", "whoami").output
    assert stored_login(served.url, "grace") != first
    assert "log in first" in det("-u", "eve", "user", "whoami", code=1).output  # it is nobody else's password


def test_the_token_of_the_environment_is_that_of_its_user(
    det: Any,
    served: Served,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    det("user", "create", "grace", "--password", PASSWORD)
    token = login(served.url, "grace", PASSWORD)
    monkeypatch.setenv("DET_USER", "grace")
    assert "user 'grace'" in det("user", "whoami", token=token).output
    assert "log in first" in det("-u", "eve", "user", "whoami", code=1, token=token).output  # it is nobody else's


def test_who_is_not_logged_in_reads_how(det: Any, served: Served) -> None:  # noqa: F811
    assert f"det -m {served.url} user login NAME" in det("user", "whoami", code=1, token="wrong").output


def test_a_name_that_is_also_the_unix_users_means_that_user_of_the_master(
    det: Any,
    served: Served,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("grace", "eve"):
        det("user", "create", name, "--password", PASSWORD)
        det("user", "login", name, text=f"{PASSWORD}\n")
    monkeypatch.setattr("getpass.getuser", lambda: "grace")
    monkeypatch.setenv("DETHPC_HOME", "/nowhere")  # of another master, whose token file is no key to this one
    for user, answer, code in (("grace", "user 'grace'", 0), ("eve", "user 'eve'", 0), ("bob", "log in first", 1)):
        environment = {"DET_MASTER": served.url, "DET_USER_TOKEN": None}
        result = CliRunner().invoke(main, ["-u", user, "user", "whoami"], env=environment)
        assert (result.exit_code, answer in result.output) == (code, True), result.output
    monkeypatch.setattr("getpass.getuser", lambda: "bob")  # who has no login, beside others who have
    result = CliRunner().invoke(main, ["-u", "bob", "user", "whoami"], env=environment)
    assert result.exit_code == 1 and "log in first" in result.output


def test_groups_and_roles(det: Any, served: Served, tmp_path: Path) -> None:  # noqa: F811
    config = tmp_path / "template.yaml"
    config.write_text("description: x\n")
    det("user", "create", "grace", "--password", PASSWORD)
    det("user-group", "create", "lab", "--add-user", "grace")
    assert rows(det("user-group", "list", "--csv")) == [{"ID": "1", "Name": "lab", "Members": "1"}]
    assert "grace" in det("user-group", "describe", "lab").output
    det("rbac", "assign-role", "editor", "-g", "lab")
    assert [row["Role"] for row in rows(det("rbac", "list-users-roles", "grace", "--csv"))] == ["Editor", "Viewer"]
    assert [row["Role"] for row in rows(det("rbac", "list-groups-roles", "lab", "--csv"))] == ["Editor"]
    assert rows(det("rbac", "describe-role", "Editor", "--csv")) == [
        {"Kind": "group", "Name": "lab", "Workspaces": "all"}
    ]
    assert [row["Role"] for row in rows(det("rbac", "list-roles", "--csv"))] == [
        *("Viewer", "Editor", "ClusterAdmin", "WorkspaceAdmin")
    ]
    token = login(served.url, "grace", PASSWORD)
    assert "create experiment" in det("rbac", "my-permissions", token=token).output
    assert (
        "there is no role 'x', but there are Viewer (id 1)"
        in det("rbac", "assign-role", "x", "-u", "grace", code=1).output
    )
    assert "Name a user" in det("rbac", "assign-role", "Editor", code=2).output
    det("rbac", "unassign-role", "Editor", "-g", "lab")
    det("workspace", "create", "Vision")
    det("rbac", "assign-role", "WorkspaceAdmin", "-g", "lab", "-w", "Vision")
    assert rows(det("rbac", "list-groups-roles", "lab", "--csv"))[0]["Workspaces"] == "Vision"
    assert rows(det("rbac", "list-users-roles", "grace", "--csv"))[0]["Workspaces"] == "Vision"
    members = rows(det("workspace", "list-members", "Vision", "--csv"))
    assert {"Kind": "group", "Name": "lab", "Role": "WorkspaceAdmin", "In": "this workspace"} in members
    assert {"Kind": "user", "Name": "grace", "Role": "Viewer", "In": "all workspaces"} in members
    det("rbac", "unassign-role", "WorkspaceAdmin", "-g", "lab", "-w", "Vision")
    assert det("rbac", "list-groups-roles", "lab", "--csv").output.count("Vision") == 0
    assert "not assigned" in det("rbac", "unassign-role", "Editor", "-g", "lab", code=1).output
    det("user-group", "remove-user", "lab", "grace")
    det("user-group", "add-user", "lab", "grace")
    det("user-group", "change-name", "lab", "team")
    for name, message in (("", "needs a name"), ("x" * 201, "at most 200 characters"), ("a\nb", "can be seen")):
        assert message in det("user-group", "change-name", "team", name, code=1).output
        assert message in det("template", "create", name or " ", str(config), code=1).output
        assert message in det("model", "create", name, code=1).output
    assert "there is no group 'lab', but there is team (id 1)" in det("user-group", "delete", "lab", code=1).output
    assert "Aborted" in det("user-group", "delete", "team", text="n\n", code=1).output
    det("user-group", "delete", "team", "--yes")
    assert json.loads(det("user-group", "list", "--json").stdout) == []


def test_policies_of_configurations(det: Any, served: Served, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "policy.yaml"
    file.write_text("invariant_config: {max_restarts: 1}\n")
    assert "max_restarts: 1" in det("config-policies", "set", "experiment", str(file)).output
    assert json.loads(det("cp", "describe", "experiment", "--json").stdout) == {"invariant_config": {"max_restarts": 1}}
    for kind in ("tasks", "ntsc"):  # Determined's commands say the first, its API the second
        file.write_text("constraints: {resources: {max_slots: 2}}")
        assert "max_slots: 2" in det("config-policies", "set", kind, str(file)).output
        deleted = "Deleted the config policies for tasks of this master\n"
        assert det("config-policies", "delete", kind).output == deleted
    det("config-policies", "delete", "experiment")
    assert det("config-policies", "describe", "experiment").output == "{}\n"
    served.put([experiment(1)])
    for policy in ("invariant_config", "constraints"):
        file.write_text(policy + ": {resources: {max_slots: 8}}\n")
        det("config-policies", "set", "experiment", str(file))
        assert "note: max-slots is 8, because a config policy" in det("e", "set", "max-slots", "1", "none").output
    file.write_text("constraints: {max_slots: 1}\n")
    assert "constraints.max_slots" in det("config-policies", "set", "experiment", str(file), code=1).output
    for kind, field in (("experiment", "slots_per_trail"), ("tasks", "slotz")):
        file.write_text(f"constraints: {{max_slots: 1}}\ninvariant_config:\n  resources:\n    {field}: 1\n")
        refused = det("config-policies", "set", kind, str(file), code=1).output.replace("\n    ", " ")
        assert f"{file}:1: constraints.max_slots: unknown field" in refused
        assert f"{file}:4: invariant_config.resources.{field}: unknown field" in refused
    file.write_bytes(b"\0\xff")
    assert "det: error:" in det("config-policies", "set", "experiment", str(file), code=1).output


def test_what_was_held_and_the_message_to_all(det: Any, served: Served) -> None:  # noqa: F811
    served.put([experiment(1), *trained(trial(1))])
    times = ("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    assert det("resources", "raw", *times).output.startswith("experiment_id,kind,username")
    assert "resourceEntries" in json.loads(det("resources", "raw", *times, "--json").stdout)
    assert det("res", "alloc", *times).output.startswith("allocation_id,task_type")
    assert det("resources", "agg", "2025-01", "2025-12", "--monthly").output.startswith("aggregation_type")
    assert "There is no message" in det("master", "cluster-message", "get").output
    det("master", "cluster-message", "set", "-m", "down at noon", "-d", "24h")
    assert "down at noon" in det("master", "cluster-message", "get").output
    det("master", "cluster-message", "clear")
    assert json.loads(det("master", "cluster-message", "get", "--json").stdout) == {"clusterMessage": None}
