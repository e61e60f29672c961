"""Names and beginnings of ids in the place of ids, against a master that serves."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from dethpc.cli import main
from dethpc.client.nouns import tasks, tokens
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Trial
from dethpc.engine import events
from tests.master.conftest import T0, Served, experiment, served, site, trained, trial, uuid_of  # noqa: F401


@pytest.fixture
def det(served: Served, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    def run(*arguments: str, code: int = 0) -> Result:
        environment = {"DET_MASTER": served.url, "DET_USER_TOKEN": served.token, "COLUMNS": "500"}
        result = CliRunner().invoke(main, arguments, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


def test_a_checkpoint_is_named_by_the_beginning_of_its_uuid(det: Any, served: Served) -> None:  # noqa: F811
    early = [
        row for row in trained(trial(22, index=1)) if getattr(row, "steps_completed", 0) != 4 or isinstance(row, Trial)
    ]
    served.put([experiment(1, owner=served.owner), *trained(trial(1)), *early])
    assert uuid_of(22, 2) in det("checkpoint", "describe", uuid_of(22, 2)[:8]).output
    ambiguous = det("checkpoint", "describe", "00000001", code=1).output
    for steps in (2, 4):
        assert f"{uuid_of(1, steps)} (experiment 1, trial 1, step {steps})" in ambiguous
    assert "there is no checkpoint 'ffff'" in det("checkpoint", "delete", "ffff", "--yes", code=1).output


def test_a_task_of_any_kind_is_named_by_its_description_or_the_beginning_of_its_id(det: Any, served: Served) -> None:  # noqa: F811
    first, second = (
        tasks.launch(served.session, "commands", {"entrypoint": ["ls"], "description": name}, [])["command"]["id"]
        for name in ("one", "two")
    )
    assert first in det("task", "describe", "one", "--json").output
    assert second in det("command", "describe", second[:8], "--json").output
    tasks.launch(served.session, "commands", {"entrypoint": ["ls"], "description": "two"}, [])
    for noun in ("command", "task"):
        assert f"2 {noun}s are called 'two'; give an id: " in det(noun, "describe", "two", code=1).output


def test_a_task_that_has_not_ended_counts_before_those_of_its_name_that_have(det: Any, served: Served) -> None:  # noqa: F811
    def launch() -> str:
        config = {"entrypoint": ["ls"], "description": "train"}
        return str(tasks.launch(served.session, "commands", config, [])["command"]["id"])

    def end(task_id: str) -> None:
        ledger = served.daemon.ledger
        (run,) = [run for run in ledger.state.runs.values() if run.task_id == task_id]
        ledger.do(events.AttemptStarted(run.id, 0, ["node1"], None, 0, T0))
        ledger.do(events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, T0))

    ended = [launch(), launch()]
    for task_id in ended:
        end(task_id)
    for noun in ("command", "task"):
        candidates = det(noun, "logs", "train", code=1).output
        assert f"{len(ended)} {noun}s are called 'train'" in candidates
        assert all(task_id in candidates for task_id in ended)
        live = launch()
        assert live in det(noun, "describe", "train", "--json").output
        assert ended[0] in det(noun, "describe", ended[0][:8], "--json").output
        assert f"Killed {noun} {live}" in det(noun, "kill", "train").output
        end(live)
        ended.append(live)


def test_an_access_token_is_named_by_its_description_and_a_user_by_the_name(det: Any, served: Served) -> None:  # noqa: F811
    token = tokens.create(served.session, 1, description="ci")["tokenId"]
    assert "Revoked" in det("token", "revoke", "ci").output
    assert tokens.tokens(served.session, ids=[token])[0]["revoked"]
    near = f"there is no user '{served.owner}x', but there is {served.owner} (id 1)"
    assert near in det("user", "deactivate", f"{served.owner}x", code=1).output
