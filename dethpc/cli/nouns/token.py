"""``det token``."""

from __future__ import annotations

from typing import Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing, name_or_number, number
from dethpc.cli.connect import connect
from dethpc.cli.group import Failed, LazyGroup

_ID = click.argument("token_id", metavar="TOKEN_ID", type=name_or_number)


@click.group(cls=LazyGroup)
def token() -> None:
    """Create and revoke access tokens, which scripts send instead of a password."""


_COLUMNS = [
    tables.Column("ID", "id", tables.COUNT),
    tables.Column("User ID", "userId", tables.COUNT, rank=1),
    tables.Column("Description", "description", least=12),
    tables.Column("Created", "createdAt", tables.AGE),
    tables.Column("Expires", "expiry", tables.AGE),
    tables.Column("Revoked", "revoked"),
]


@token.command("list")
@click.argument("username", required=False)
@click.option("--show-inactive", is_flag=True, help="Revoked and expired tokens, too.")
@output.as_yaml
@listing
def list_tokens(username: Optional[str], show_inactive: bool, layout: tables.Layout) -> None:
    """List access tokens; only those of USERNAME if you name one."""
    from dethpc.client.nouns import tokens, users

    session = connect()
    if username:
        users.by_name(session, username)  # an empty list would not say that nobody is called so
    rows = tokens.tokens(session, username=username, inactive=show_inactive)
    tables.show(tables.Table(_COLUMNS, rows), layout)


@token.command()
@click.argument("token_ids", metavar="TOKEN_ID...", type=number, nargs=-1, required=True)
@output.as_yaml
@listing
def describe(token_ids: tuple[int, ...], layout: tables.Layout) -> None:
    """Show access tokens by id, even when they are revoked."""
    from dethpc.client.nouns import tokens

    rows = tokens.tokens(connect(), ids=token_ids)
    missing = set(token_ids) - {one["id"] for one in rows}
    if missing:
        raise Failed(
            [f"there is no access token {number}; see det token list --show-inactive" for number in sorted(missing)]
        )
    tables.show(tables.Table(_COLUMNS, rows), layout)


def _days(context: click.Context, parameter: click.Parameter, days: Optional[int]) -> Optional[int]:
    if days is not None and days < 1 and days != -1:
        raise click.BadParameter(f"must be 1 or more days, or -1 for a token that never expires, not {days}")
    return days


@token.command()
@click.argument("username", required=False)
@click.option(
    "-e",
    "--expiration-days",
    metavar="DAYS",
    type=int,
    callback=_days,
    help="Days until it expires; -1: never. Default: 30.",
)
@click.option("-d", "--description", metavar="TEXT", default="", help="What it is for.")
@output.as_yaml
@output.as_json
def create(username: Optional[str], expiration_days: Optional[int], description: str, as_json: bool) -> None:
    """Create an access token and print it. It cannot be shown again: keep it as you would a password."""
    from dethpc.client.nouns import tokens, users

    session = connect()
    owner = users.by_name(session, username) if username else users.me(session)
    token = tokens.create(session, owner["id"], days=expiration_days, description=description)
    if as_json:
        output.print_json(token)
    else:
        output.print_fields([("TokenID", token["tokenId"]), ("Access-Token", token["token"])])


@token.command()
@_ID
@click.option("-d", "--description", metavar="TEXT", required=True, help="What it is for.")
@output.as_yaml
@output.as_json
def edit(token_id: str, description: str, as_json: bool) -> None:
    """Change the description of an access token."""
    from dethpc.client.nouns import tokens

    session = connect()
    changed = tokens.change(session, tokens.by_description(session, token_id), description=description)
    output.reply(changed, f"Changed access token {token_id}", as_json)


@token.command()
@_ID
def revoke(token_id: str) -> None:
    """End an access token for good."""
    from dethpc.client.nouns import tokens

    session = connect()
    tokens.change(session, tokens.by_description(session, token_id), revoke=True)
    output.echo(f"Revoked access token {token_id}")
