"""``det agent``: what it asks before it does it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dethpc.cli.nouns.agent import agent
from dethpc.client.nouns import cluster


@pytest.mark.parametrize(
    ("terminal", "words", "answer", "asked", "done"),
    [
        (True, ["--all"], "n\n", True, []),
        (True, ["--all"], "y\n", True, ["n0", "n1"]),
        (True, ["--all", "--yes"], "", False, ["n0", "n1"]),
        (True, ["n1"], "", False, ["n1"]),
        (False, ["--all"], "", False, ["n0", "n1"]),
    ],
)
def test_all_nodes_are_disabled_on_a_terminal_after_a_question(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, words: list[str], answer: str, asked: bool, done: list[str]
) -> None:
    disabled: list[str] = []
    monkeypatch.setattr("dethpc.cli.nouns.agent.connect", lambda: None)
    monkeypatch.setattr("dethpc.cli.nouns.agent.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: terminal)))
    monkeypatch.setattr(cluster, "agents", lambda session: [{"id": "n0"}, {"id": "n1"}])
    monkeypatch.setattr(cluster, "disable_agent", lambda session, name, reason, drain: disabled.append(name) or [])
    result = CliRunner().invoke(agent, ["disable", *words], input=answer)
    assert ("Disable n0, n1" in result.output) == asked
    assert disabled == done
