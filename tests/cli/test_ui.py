"""The links that ``det ui`` prints; tests/web/test_tunnel.py opens one through a real tunnel."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dethpc.cli import main, ui
from dethpc.client import users


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "one_time_code", lambda session: "c0de")
    monkeypatch.setattr(ui.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(ui.socket, "getfqdn", lambda: "login1.site")


@pytest.mark.parametrize(
    "master, ssh, there",
    [
        ("http://127.0.0.1:43210", "43210:localhost:43210", "http://127.0.0.1:43210"),
        ("http://login1:43210", "43210:login1:43210", "http://localhost:43210"),
        ("http://10.0.0.7:8080", "8080:10.0.0.7:8080", "http://localhost:8080"),
        ("https://login1:8443/ada", "8443:login1:8443", "https://localhost:8443/ada"),
        ("http://[fd00::7]:8080", "8080:[fd00::7]:8080", "http://localhost:8080"),
        ("https://login1", "8080:login1:443", "https://localhost:8080"),
        ("http://localhost:80", "8080:localhost:80", "http://localhost:8080"),
    ],
)
def test_the_link_behind_the_tunnel_leads_into_the_tunnel(master: str, ssh: str, there: str) -> None:
    printed = CliRunner().invoke(main, ["-m", master, "ui", "--json"])
    told = json.loads(printed.stdout)
    assert told["ssh"] == f"ssh -N -L {ssh} ada@login1.site"
    assert told["ssh_url"] == f"{there}/det/enter?code=c0de"

    lines = CliRunner().invoke(main, ["-m", master, "ui", "--no-browser"]).output.splitlines()
    assert lines[0] == told["url"] and told["ssh"] in lines[1]
    assert lines[2:] == ([] if told["url"] == told["ssh_url"] else [f"and then open there: {told['ssh_url']}"])
