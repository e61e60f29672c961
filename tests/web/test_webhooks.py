"""The pages of webhooks, without a browser."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest

from dethpc.client.nouns import webhooks, workspaces
from tests.master.conftest import Served
from tests.web.conftest import Visitor

NEW = {
    "action": "create",
    "name": "<b>ends</b>",
    "url": "https://receiver.invalid/x?key=1",
    "format": "SLACK",
    "ERROR": "1",
    "metrics": "accuracy>=0.123456789\nvalidation/val/loss < 1\ntraining/loss<2",
    "patterns": "out of memory\n\n",
    "custom": "1",
    "specific": "1",
}


def told(visitor: Visitor, path: str, form: dict[str, str]) -> str:
    """Where it leads to."""
    got = visitor.post(path, form)
    assert got.status == 303, got.text
    return unquote(got.headers["location"])


def fields(text: str) -> dict[str, str]:
    """What the form of a webhook would send, unchanged."""
    form = text.partition('<form class="edit"')[2].partition("</form>")[0]
    entered = dict(re.findall(r'<input name="(\w+)" value="([^"]*)"', form))
    entered |= dict.fromkeys(re.findall(r'type="checkbox" name="(\w+)" value="1" checked', form), "1")
    entered |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>([^<]*)<', form))
    entered["format"] = re.findall(r'<option value="(\w+)" selected', form)[0]
    return {
        name: value.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for name, value in entered.items()
    }


def test_a_webhook_is_created_changed_tested_and_deleted(visitor: Visitor, served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    assert "No webhook yet" in visitor.get("webhooks").text
    assert "Created the webhook" in told(visitor, "webhooks/new", {**NEW, "workspace": str(vision)})
    (row,) = webhooks.webhooks(served.session)
    assert (row["name"], row["workspaceId"], row["mode"]) == ("<b>ends</b>", vision, "WEBHOOK_MODE_SPECIFIC")
    assert [trigger["condition"] for trigger in row["triggers"]] == [
        {"state": "ERROR"},
        {"regex": "out of memory"},
        {"metric_name": "accuracy", "operator": ">=", "metric_value": 0.123456789, "group": "validation"},
        {"metric_name": "val/loss", "operator": "<", "metric_value": 1.0, "group": "validation"},
        {"metric_name": "loss", "operator": "<", "metric_value": 2.0, "group": "training"},
        {},
    ]
    shown = visitor.get("webhooks").text
    assert "&lt;b&gt;ends" in shown and "Vision" in shown and "experiments that name it" in shown
    page = visitor.get("webhooks/1").text
    assert "Nothing was sent yet." in page
    same = fields(page)
    assert "Changed" in told(visitor, "webhooks/1/act", {**same, "action": "edit"})
    (unchanged,) = webhooks.webhooks(served.session)
    assert unchanged == row, "a form that is sent as it was shown changes nothing"
    told(visitor, "webhooks/1/act", {"action": "edit", "name": "mail", "url": "mailto:a@x.example", "COMPLETED": "1"})
    (changed,) = webhooks.webhooks(served.session)
    assert changed["name"] == "mail" and changed["mode"] == "WEBHOOK_MODE_WORKSPACE" and len(changed["triggers"]) == 1
    told(visitor, "webhooks/1/act", {**same, "action": "edit"})
    assert "Refused: " in told(visitor, "webhooks/1/act", {"action": "test"}), "its receiver is not there"
    assert visitor.post("webhooks/1/act", {"action": "delete"}).status == 200, "a question comes first"
    assert "Deleted" in told(visitor, "webhooks/1/act", {"action": "delete", "confirmed": "1"})
    assert webhooks.webhooks(served.session) == [] and visitor.get("webhooks/1").status == 404


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "http://127.0.0.1/x"}, "it is a loopback address"),
        ({"url": "ftp://x"}, "a webhook needs a URL such as"),
        ({"metrics": "accuracy"}, "write NAME&gt;NUMBER"),
        ({"patterns": "("}, "missing"),
        ({"metrics": "", "patterns": "", "ERROR": "", "custom": ""}, "would report nothing"),
    ],
)
def test_what_cannot_be_is_said_beside_what_was_entered(
    visitor: Visitor, served: Served, changes: dict[str, Any], message: str
) -> None:
    got = visitor.post("webhooks/new", {**NEW, **changes})
    assert got.status == 422 and message in got.text
    assert 'value="&lt;b&gt;ends&lt;/b&gt;"' in got.text
    assert webhooks.webhooks(served.session) == []
