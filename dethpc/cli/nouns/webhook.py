"""``det webhook``: report what happens to experiments to other programs and to people."""

from __future__ import annotations

from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import YES, confirm, listing, name_or_number
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.output import Json
from dethpc.client.nouns.webhooks import STATES, Reports, kind

_ID = click.argument("webhook", metavar="ID", type=name_or_number)


def _checked_metrics(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Reports(metrics=texts).triggers()
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return texts


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
            callback=_checked_metrics,
            help="Report the first validation of a trial beyond it; >, >=, <, <= (repeatable). GROUP/NAME: of another group.",
        ),
        click.option(
            "--custom", is_flag=True, help="Report what training code says by core_context.alert(); needs --specific."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


_COLUMNS = [
    tables.Column("ID", "id", tables.COUNT),
    tables.Column("Name", "name", least=12),
    tables.Column("Type", kind),
    tables.Column("Reports", lambda row: str(Reports.of(row["triggers"])), least=12),
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
    from dethpc.client.nouns import webhooks

    rows = webhooks.webhooks(connect())
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
    from dethpc.client.nouns import webhooks, workspaces

    workspace = options.pop("workspace_name")
    if not (triggers := Reports(**options).triggers()):
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
def test(webhook: str) -> None:
    """Send a test now, and show what the receiver answers."""
    from dethpc.client.nouns import webhooks

    session = connect()
    output.echo(webhooks.test(session, webhooks.by_name(session, webhook)))


@webhook.command()
@_ID
@click.option("--name", metavar="NAME", help="Its new name.")
@click.option("--url", metavar="URL", help="Where to send what it reports, and what waits.")
@_triggers
@output.as_json
def edit(webhook: str, name: Optional[str], url: Optional[str], as_json: bool, **triggers: Any) -> None:
    """Change a webhook. What it reports, if given, takes the place of what it reported."""
    from dethpc.client.nouns import webhooks

    fields = {"name": name, "url": url, "triggers": Reports(**triggers).triggers() or None}
    given = {field: value for field, value in fields.items() if value is not None}
    session = connect()
    row = webhooks.change(session, webhooks.by_name(session, webhook), **given)
    if as_json:
        output.print_json(row)
    else:
        _show(row)


@webhook.command()
@_ID
@YES
def delete(webhook: str, yes: bool) -> None:
    """Delete a webhook. What waits is not sent any more."""
    from dethpc.client.nouns import webhooks

    session = connect()
    webhook_id = webhooks.by_name(session, webhook)
    confirm(f"Delete webhook {webhook}?", yes)
    webhooks.delete(session, webhook_id)
    output.echo(f"Deleted webhook {webhook}")


@webhook.command()
@_ID
@listing
def deliveries(webhook: str, layout: tables.Layout) -> None:
    """List what a webhook has sent, what waits and what was given up, the newest first."""
    from dethpc.client.nouns import webhooks

    session = connect()
    rows = webhooks.deliveries(session, webhooks.by_name(session, webhook))
    tables.show(tables.Table(_DELIVERIES, rows), layout)


def _show(row: Json) -> None:
    output.print_fields(
        [
            ("ID", row["id"]),
            ("Name", row["name"]),
            ("URL", row["url"]),
            ("Type", kind(row)),
            ("Reports", Reports.of(row["triggers"])),
        ]
    )
