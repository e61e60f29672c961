"""Webhooks: their list, the form of a new one, and the page of one with its form and what it has sent."""

from __future__ import annotations

from dethpc.client.nouns import webhooks, workspaces
from dethpc.client.nouns.webhooks import Reports
from dethpc.client.session import Json
from dethpc.errors import DethpcError, MasterUnreachable, NotFound, Refused, Unauthorized
from dethpc.web.asked import Answer, Goto, Page, PageRequest

FORMATS = {"DEFAULT": "JSON, or a mail to mailto:", "SLACK": "Slack"}
DELIVERIES = 50
"""How many a page shows."""


def listing(request: PageRequest) -> Answer:
    names = _workspaces(request)
    rows = [_described(row, names) for row in webhooks.webhooks(request.session)]
    return Page("webhooks.html", {"webhooks": rows})


def new(request: PageRequest) -> Answer:
    """As ``det webhook create``."""
    refused = ""
    if request.form.get("action") == "create":
        try:
            return _created(request)
        except (Unauthorized, MasterUnreachable):
            raise
        except DethpcError as error:
            refused = str(error)
    entered = request.form or {"COMPLETED": "1", "ERROR": "1"}
    shown = {"entered": entered, "workspaces": _workspaces(request), "refused": refused, **_CHOICES}
    return Page("webhook/new.html", shown, status=422 if refused else 200)


def one(request: PageRequest) -> Answer:
    number = request.number("webhook")
    row = next((row for row in webhooks.webhooks(request.session) if row["id"] == number), None)
    if row is None:
        raise NotFound(f"webhook {number} not found")
    sent = webhooks.deliveries(request.session, number, limit=DELIVERIES)
    described = _described(row, _workspaces(request))
    return Page("webhook/one.html", {"webhook": described, "entered": _entered(row), "deliveries": sent, **_CHOICES})


def act(request: PageRequest) -> Answer:
    """Send a test, change it, or delete it."""
    number, action = request.number("webhook"), request.form.get("action", "")
    if action == "test":
        return Goto(f"webhooks/{number}", f"The receiver answered: {webhooks.test(request.session, number)}")
    if action == "edit":
        webhooks.change(request.session, number, **_fields(request))
        return Goto(f"webhooks/{number}", "Changed the webhook.")
    if action == "delete":
        webhooks.delete(request.session, number)
        return Goto("webhooks", "Deleted the webhook.")
    raise Refused(f"there is no action {action!r}; there are test, edit and delete")


_CHOICES: Json = {"formats": FORMATS, "states": webhooks.STATES}


def _created(request: PageRequest) -> Goto:
    fields, workspace_id = _fields(request), request.form.get("workspace", "")
    if workspace_id.isdecimal():
        fields["workspaceId"] = int(workspace_id[:18])
    row = webhooks.create(request.session, **fields)
    return Goto(f"webhooks/{row['id']}", "Created the webhook. A test shows whether its receiver answers.")


def _fields(request: PageRequest) -> Json:
    """What the form says, as the wire has it. Raises Refused."""
    form = {name: value.strip() for name, value in request.form.items()}
    states = [state for state in webhooks.STATES if form.get(state)]
    reports = Reports(states, _lines(form, "patterns"), _lines(form, "metrics"), bool(form.get("custom")))
    try:
        triggers = reports.triggers()
    except ValueError as error:
        raise Refused(str(error)) from None
    if not triggers:
        raise Refused("this webhook would report nothing: choose a state, or write a metric or a log pattern")
    return {
        "name": form.get("name", ""),
        "url": form.get("url", ""),
        "webhookType": f"WEBHOOK_TYPE_{form.get('format') or 'DEFAULT'}",
        "mode": f"WEBHOOK_MODE_{'SPECIFIC' if form.get('specific') else 'WORKSPACE'}",
        "triggers": triggers,
    }


def _lines(form: Json, name: str) -> list[str]:
    return [line.strip() for line in str(form.get(name, "")).splitlines() if line.strip()]


def _entered(row: Json) -> dict[str, str]:
    """The fields of the form, as they say what the webhook is."""
    reports = Reports.of(row["triggers"])
    lines = {"patterns": "\n".join(reports.patterns), "metrics": "\n".join(reports.metrics)}
    marks = {**dict.fromkeys(reports.states, True), "custom": reports.custom}
    marks["specific"] = row["mode"] == "WEBHOOK_MODE_SPECIFIC"
    fields = {"name": row["name"], "url": row["url"], "format": row["webhookType"].removeprefix("WEBHOOK_TYPE_")}
    return {**fields, **lines, **{name: "1" for name, marked in marks.items() if marked}}


def _described(row: Json, workspace_names: dict[int, str]) -> Json:
    workspace = workspace_names.get(row["workspaceId"], "")
    return {**row, "kind": webhooks.kind(row), "reports": str(Reports.of(row["triggers"])), "workspace": workspace}


def _workspaces(request: PageRequest) -> dict[int, str]:
    """Names by id."""
    return {int(row["id"]): str(row["name"]) for row in workspaces.workspaces(request.session)}
