"""The links that ``det ui`` prints; tests/web/test_tunnel.py opens one through a real tunnel."""

from __future__ import annotations

import json
import os
import stat
import webbrowser
from pathlib import Path

import pytest
from click.testing import CliRunner

from dethpc.cli import main
from dethpc.cli.nouns import ui
from dethpc.client.nouns import users


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "one_time_code", lambda session: {"code": "c0de", "host": "l.localhost", "siteHost": ""})
    monkeypatch.setattr(ui.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(ui.socket, "getfqdn", lambda: "login1.site")


@pytest.mark.parametrize(
    "master, local, ssh, there",
    [
        ("http://127.0.0.1:43210", "http://l.localhost:43210", "43210:127.0.0.1:43210", "http://l.localhost:43210"),
        ("http://login1:43210", "", "43210:login1:43210", "http://l.localhost:43210"),
        ("http://10.0.0.7:8080", "", "8080:10.0.0.7:8080", "http://l.localhost:8080"),
        ("https://login1:8443/ada", "", "8443:login1:8443", "https://l.localhost:8443/ada"),
        ("http://[fd00::7]:8080", "", "8080:[fd00::7]:8080", "http://l.localhost:8080"),
        ("https://login1", "https://login1:443", "8080:login1:443", "https://l.localhost:8080"),
        ("http://localhost:80", "http://l.localhost:80", "8080:127.0.0.1:80", "http://l.localhost:8080"),
    ],
)
def test_the_link_behind_the_tunnel_leads_into_the_tunnel(master: str, local: str, ssh: str, there: str) -> None:
    printed = CliRunner().invoke(main, ["-m", master, "ui", "--json"])
    assert printed.exit_code == 0, printed.output
    told = json.loads(printed.stdout)
    assert told["ssh"] == f"ssh -N -L {ssh} ada@login1.site"
    assert told["ssh_url"] == f"{there}/det/enter?code=c0de"
    assert told["browser_url"] == f"{local or master}/det/enter?code=c0de"

    lines = CliRunner().invoke(main, ["-m", master, "ui", "--no-browser"]).output.splitlines()
    assert lines[0] == told["browser_url"] and told["ssh"] in lines[1]
    assert lines[2:] == ([] if told["browser_url"] == told["ssh_url"] else [f"and then open there: {told['ssh_url']}"])


def test_a_name_that_the_site_has_for_the_pages_is_used_on_its_network(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"code": "c0de", "host": "l.localhost", "siteHost": "l.det.site"}
    monkeypatch.setattr(users, "one_time_code", lambda session: made)
    for master, here in (
        ("https://login1:8443", "https://l.det.site:8443"),
        ("http://127.0.0.1:9", "http://l.localhost:9"),
    ):
        told = json.loads(CliRunner().invoke(main, ["-m", master, "ui", "--json"]).stdout)
        assert told["browser_url"] == f"{here}/det/enter?code=c0de"
        assert "//l.localhost:" in told["ssh_url"]


def test_the_browsers_command_line_shows_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every user of the machine reads it. The page that it names is its owner's alone."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    for _ in range(2):
        CliRunner().invoke(main, ["-m", "http://127.0.0.1:9", "ui"], catch_exceptions=False)
    assert opened == [(tmp_path / "ui.html").as_uri()] * 2
    assert stat.S_IMODE((tmp_path / "ui.html").stat().st_mode) == 0o600
    assert 'url=http://l.localhost:9/det/enter?code=c0de"' in (tmp_path / "ui.html").read_text()
    assert os.listdir(tmp_path) == ["ui.html"]


@pytest.mark.parametrize("known_as", ["localhost", "localhost.localdomain"])
def test_a_machine_that_its_resolver_knows_as_localhost_alone_has_its_own_name_for_ssh(
    monkeypatch: pytest.MonkeyPatch, known_as: str
) -> None:
    monkeypatch.setattr(ui.socket, "getfqdn", lambda: known_as)
    monkeypatch.setattr(ui.socket, "gethostname", lambda: "login2")
    link = json.loads(CliRunner().invoke(main, ["-m", "http://127.0.0.1:9", "ui", "--json"]).stdout)
    assert link["ssh"].endswith(" ada@login2")
