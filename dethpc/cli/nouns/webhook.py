"""``det webhook``: report what happens to experiments to other programs and to people."""

from __future__ import annotations

import re
import sys
from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

Json = dict[str, Any]

STATES = ("COMPLETED", "ERROR", "CANCELED", "PAUSED", "ACTIVE")

_ID = click.argument("webhook_id", metavar="ID", type=int)
_METRIC = re.compile(r"(?P<name>[^<>=]+?)\s*(?P<operator>>=|<=|>|<)\s*(?P<value>[-+0-9.eE]+)")


def _condition_of_metric(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> list[Json]:
    conditions = []
    for text in texts:
        match = _METRIC.fullmatch(text.strip())
        try:
            value = float(match["value"]) if match else 0.0
        except ValueError:
            match = None
        if match is None:
            raise click.BadParameter(f"write NAME>NUMBER, such as 'accuracy>=0.9', not {text!r}")
        group, slash, name = match["name"].rpartition("/")
        condition = {"metric_name": name, "operator": match["operator"], "metric_value": value}
        conditions.append({**condition, "group": group} if slash else condition)
    return conditions


def _triggers(command: Any) -> Any:
    """The options that say what a webhook reports."""
    options = [
        click.option(
            "--on",
            "states",
            type=click.Choice(STATES, case_sensitive=False),
            multiple=True,
            help="Report experiments that come into this state (repeatable).",
        ),
        click.option(
            "--log",
            "patterns",
            metavar="REGEX",
            multiple=True,
            help="Report the first line of a trial's log that matches (repeatable).",
        ),
        click.option(
            "--metric",
            "metrics",
            metavar="NAME>NUMBER",
            multiple=True,
            callback=_condition_of_metric,
            help="Report the first validation of a trial beyond it; >, >=, <, <= (repeatable). GROUP/NAME: of another group.",
        ),
        click.option("--custom", is_flag=True, help="Report what training code says by core_context.alert()."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _as_triggers(states: tuple[str, ...], patterns: tuple[str, ...], metrics: list[Json], custom: bool) -> list[Json]:
    triggers = [_trigger("EXPERIMENT_STATE_CHANGE", {"state": state}) for state in states]
    triggers += [_trigger("TASK_LOG", {"regex": pattern}) for pattern in patterns]
    triggers += [_trigger("METRIC_THRESHOLD_EXCEEDED", condition) for condition in metrics]
    return triggers + ([_trigger("CUSTOM", {})] if custom else [])


def _trigger(name: str, condition: Json) -> Json:
    return {"triggerType": f"TRIGGER_TYPE_{name}", "condition": condition}


def _words(trigger: Json) -> str:
    condition = trigger["condition"] or {}
    if "state" in condition:
        return str(condition["state"])
    if "regex" in condition:
        return f"log {condition['regex']}"
    if "metric_name" in condition:
        return f"{condition['metric_name']} {condition['operator']} {condition['metric_value']:g}"
    return str(trigger["triggerType"]).removeprefix("TRIGGER_TYPE_").lower()


_COLUMNS = [
    tables.Column("ID", "id", tables.COUNT),
    tables.Column("Name", "name", least=12),
    tables.Column("Type", lambda row: _type(row)),
    tables.Column("Reports", lambda row: ", ".join(map(_words, row["triggers"])), least=12),
    tables.Column("Of", lambda row: "all" if row["mode"] == "WEBHOOK_MODE_WORKSPACE" else "named", rank=1),
    tables.Column("Workspace ID", lambda row: row["workspaceId"] or None, tables.COUNT, rank=1),
    tables.Column("URL", "url", rank=1, least=12),
]
_DELIVERIES = [
    tables.Column("Created", "createdAt", tables.AGE),
    tables.Column("Event", lambda row: row["eventType"].lower()),
    tables.Column("Experiment", lambda row: row["event"]["event_data"]["experiment"]["id"], tables.COUNT),
    tables.Column("State", "state"),
    tables.Column("Attempts", "attempts", tables.COUNT),
    tables.Column("Answer", "answer", least=20),
    tables.Column("Event ID", "id", rank=2),
]


@click.group(cls=LazyGroup, aliases={"ls": "list"}, invoke_without_command=True)
@click.pass_context
def webhook(ctx: click.Context) -> None:
    """Report what happens to experiments by HTTP, to Slack or by mail. Without a command: list webhooks."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_webhooks)


@webhook.command("list")
@listing
def list_webhooks(layout: tables.Layout) -> None:
    """List webhooks."""
    from dethpc.client import webhooks

    rows = webhooks.webhooks(connect())
    if layout.as_json:
        output.print_json(rows)
    else:
        tables.show(tables.Table(_COLUMNS, rows), layout)


@webhook.command()
@click.argument("name")
@click.argument("url")
@_triggers
@click.option("--slack", is_flag=True, help="Send messages as Slack takes them.")
@click.option("-w", "--workspace-name", metavar="NAME", help="Report experiments of this workspace alone.")
@click.option("--specific", is_flag=True, help="Report those experiments alone whose configuration names it.")
@output.as_json
def create(name: str, url: str, slack: bool, specific: bool, as_json: bool, **options: Any) -> None:
    """Create a webhook. URL: https://..., or mailto:NAME@HOST for a mail."""
    from dethpc.client import webhooks, workspaces

    workspace = options.pop("workspace_name")
    if not (triggers := _as_triggers(**options)):
        raise click.UsageError("say what to report: --on, --log, --metric or --custom")
    session = connect()
    fields: Json = {"webhookType": f"WEBHOOK_TYPE_{'SLACK' if slack else 'DEFAULT'}"}
    fields["mode"] = f"WEBHOOK_MODE_{'SPECIFIC' if specific else 'WORKSPACE'}"
    if workspace:
        fields["workspaceId"] = workspaces.workspace(session, workspace)["id"]
    row = webhooks.create(session, name, url, triggers, **fields)
    if as_json:
        output.print_json(row)
        return
    output.echo(f"Created webhook {row['id']} ({row['name']})")
    output.say(f"next: det webhook test {row['id']} sends a test")


@webhook.command()
@_ID
def test(webhook_id: int) -> None:
    """Send a test now, and show what the receiver answers."""
    from dethpc.client import webhooks

    output.echo(webhooks.test(connect(), webhook_id))


@webhook.command()
@_ID
@click.option("--name", metavar="NAME", help="Its new name.")
@click.option("--url", metavar="URL", help="Where to send what it reports, and what waits.")
@_triggers
@output.as_json
def edit(webhook_id: int, name: Optional[str], url: Optional[str], as_json: bool, **triggers: Any) -> None:
    """Change a webhook. What it reports, if given, takes the place of what it reported."""
    from dethpc.client import webhooks

    fields = {"name": name, "url": url, "triggers": _as_triggers(**triggers) or None}
    given = {field: value for field, value in fields.items() if value is not None}
    row = webhooks.change(connect(), webhook_id, **given)
    if as_json:
        output.print_json(row)
    else:
        _show(row)


@webhook.command()
@_ID
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(webhook_id: int, yes: bool) -> None:
    """Delete a webhook. What waits is not sent any more."""
    from dethpc.client import webhooks

    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete webhook {webhook_id}?", abort=True)
    webhooks.delete(connect(), webhook_id)
    output.echo(f"Deleted webhook {webhook_id}")


@webhook.command()
@_ID
@listing
def deliveries(webhook_id: int, layout: tables.Layout) -> None:
    """List what a webhook has sent, what waits and what was given up, the newest first."""
    from dethpc.client import webhooks

    rows = webhooks.deliveries(connect(), webhook_id)
    if layout.as_json:
        output.print_json(rows)
    else:
        tables.show(tables.Table(_DELIVERIES, rows), layout)


def _type(row: Json) -> str:
    if row["url"].startswith("mailto:"):
        return "mail"
    return str(row["webhookType"]).removeprefix("WEBHOOK_TYPE_").lower()


def _show(row: Json) -> None:
    output.print_fields(
        [
            ("ID", row["id"]),
            ("Name", row["name"]),
            ("URL", row["url"]),
            ("Type", _type(row)),
            ("Reports", ", ".join(map(_words, row["triggers"]))),
        ]
    )
