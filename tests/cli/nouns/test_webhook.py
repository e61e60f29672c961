"""``det webhook`` against a master that serves."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dethpc.cli import main
from dethpc.client.nouns import workspaces
from tests.master.conftest import Served, served  # noqa: F401
from tests.master.webhooks.conftest import receiver, sending, site  # noqa: F401
from tests.master.webhooks.receiver import Receiver, created, kill
from tests.waiting import wait_until


@pytest.fixture
def det(sending: Served, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    def run(*arguments: str, code: int = 0) -> Result:
        environment = {"DET_MASTER": sending.url, "DET_USER_TOKEN": sending.token}
        result = CliRunner().invoke(main, arguments, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


def test_a_webhook_is_created_tested_edited_and_deleted(det: Any, receiver: Receiver, sending: Served) -> None:  # noqa: F811
    workspaces.create_workspace(sending.session, "Vision")
    output = det("webhook", "create", "ends", receiver.url, "--on", "canceled", "--on", "ERROR").output
    assert output.startswith("Created webhook 1 (ends)\n")
    options = ("--slack", "--specific", "-w", "Vision", "--custom", "--log", "out of memory", "--json")
    row = json.loads(
        det(
            "webhook",
            "create",
            "chat",
            receiver.url,
            "--metric",
            "loss<1e-3",
            "--metric",
            "training/f1 >= 0.5",
            *options,
        ).stdout
    )
    assert (row["webhookType"], row["mode"], row["workspaceId"]) == ("WEBHOOK_TYPE_SLACK", "WEBHOOK_MODE_SPECIFIC", 2)
    assert [trigger["condition"] for trigger in row["triggers"]] == [
        {"regex": "out of memory"},
        {"metric_name": "loss", "operator": "<", "metric_value": 0.001, "group": "validation"},
        {"metric_name": "f1", "operator": ">=", "metric_value": 0.5, "group": "training"},
        {},
    ]
    rows = list(csv.DictReader(io.StringIO(det("webhook", "list", "--csv").stdout)))
    assert [(row["Name"], row["Type"], row["Reports"]) for row in rows] == [
        ("ends", "default", "CANCELED, ERROR"),
        ("chat", "slack", "log out of memory, loss < 0.001, training/f1 >= 0.5, custom"),
    ]
    assert [row["id"] for row in json.loads(det("webhook", "ls", "--json").stdout)] == [1, 2]
    assert det("webhook", "test", "1").stdout == "200 OK\n"
    receiver.statuses = [404]
    assert "404 Not Found" in det("webhook", "test", "1", code=1).stderr
    assert "Reports: PAUSED" in det("webhook", "edit", "1", "--name", "pauses", "--on", "PAUSED").stdout
    assert "Delete webhook chat?" in det("webhook", "delete", "chat", code=1).output
    det("webhook", "delete", "2", "--yes")
    assert (
        "there is no webhook 'paus', but there is pauses (id 1, http"
        in det("webhook", "deliveries", "paus", code=1).stderr
    )


def test_what_was_sent_is_listed(det: Any, receiver: Receiver, sending: Served) -> None:  # noqa: F811
    det("webhook", "create", "ends", receiver.url, "--on", "CANCELED")
    kill(sending, created(sending))
    wait_until(lambda: "DELIVERED" in det("webhook", "deliveries", "1").stdout)
    (row,) = csv.DictReader(io.StringIO(det("webhook", "deliveries", "1", "--csv").stdout))
    assert (row["Experiment"], row["Attempts"], row["Answer"]) == ("1", "1", "200 OK")
    (row,) = json.loads(det("webhook", "deliveries", "1", "--json").stdout)
    assert row["event"]["event_data"]["experiment"]["id"] == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "say what to report"),
        (["--metric", "loss"], "write NAME>NUMBER"),
        (["--metric", "loss>1e"], "write NAME>NUMBER"),
        (["--on", "DONE"], "'DONE' is not one of"),
    ],
)
def test_what_says_nothing_to_report_is_refused(det: Any, options: list[str], why: str) -> None:
    assert why in det("webhook", "create", "hook", "https://example.org/", *options, code=2).stderr
