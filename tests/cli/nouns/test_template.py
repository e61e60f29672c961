"""``det template`` against a master that serves."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dethpc.cli import main
from tests.master.conftest import Served, served, site  # noqa: F401


@pytest.fixture
def det(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:  # noqa: F811
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> Result:
        environment = {"DET_MASTER": served.url, "DET_USER_TOKEN": served.token}
        result = CliRunner().invoke(main, arguments, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


def test_templates_are_managed_by_name(det: Any, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("x-note: 1\nmax_restarts: 3\n")
    assert det("template", "set", "usual", "t.yaml").output == "Set template usual\n"
    assert det("template", "describe", "usual").stdout == "max_restarts: 3\n"
    assert json.loads(det("tpl", "ls", "--json").stdout) == [
        {"name": "usual", "config": {"max_restarts": 3}, "workspaceId": 1}
    ]
    rows = list(csv.DictReader(io.StringIO(det("template", "list", "--details", "--csv").stdout)))
    assert [(row["Name"], row["Workspace"]) for row in rows] == [("usual", "Uncategorized")]
    assert "max_restarts" in det("template", "list", "-d").stdout
    assert json.loads(det("template", "create", "two", "t.yaml", "--json").stdout)["name"] == "two"
    det("template", "rename", "two", "three")
    (tmp_path / "u.yaml").write_text("max_restarts: 4\n")
    det("template", "set-value", "config", "three", "u.yaml")
    assert json.loads(det("template", "describe", "three", "--json").stdout)["config"] == {"max_restarts": 4}
    det("template", "rm", "three")
    det("template", "remove", "usual")
    assert json.loads(det("template", "list", "--json").stdout) == []


def test_a_command_runs_what_its_template_says(det: Any, tmp_path: Path) -> None:
    (tmp_path / "nap.yaml").write_text("entrypoint: sleep 1\nresources: {slots: 0}\n")
    (tmp_path / "lost.yaml").write_text("resources: {resource_pool: nowhere}\n")
    for name in ("nap", "lost"):
        det("template", "set", name, f"{name}.yaml")
    task = det("command", "run", "--template", "nap", "--detach").stdout.strip()
    assert "sleep 1" in det("command", "config", task).stdout
    output = det("command", "run", "--template", "lost", "true", code=1).output
    assert "template lost: resources.resource_pool: 'nowhere' is not" in output
    assert "entrypoint" in det("command", "run", "--template", "lost", code=1).output
    det("command", "kill", task)
