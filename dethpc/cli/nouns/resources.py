"""``det resources``: which slots were held when, and for whom."""

from __future__ import annotations

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

_AFTER = click.argument("timestamp_after", metavar="FROM")
_BEFORE = click.argument("timestamp_before", metavar="TO")


@click.group(cls=LazyGroup, aliases={"alloc": "allocations", "agg": "aggregated"})
def resources() -> None:
    """Print which slots were held when, and for whom, as CSV. Times look like 2026-01-31T00:00:00Z, in UTC."""


@resources.command()
@_AFTER
@_BEFORE
@output.as_json
def raw(timestamp_after: str, timestamp_before: str, as_json: bool) -> None:
    """Print each time that slots were held between FROM and TO."""
    from dethpc.client.nouns import resources as client

    _print(client.raw(connect(), timestamp_after, timestamp_before, as_csv=not as_json))


@resources.command()
@_AFTER
@_BEFORE
def allocations(timestamp_after: str, timestamp_before: str) -> None:
    """Print each job that held slots between FROM and TO, with its pool and slot-hours."""
    from dethpc.client.nouns import resources as client

    _print(client.allocations(connect(), timestamp_after, timestamp_before))


@resources.command()
@click.argument("start_date", metavar="FIRST")
@click.argument("end_date", metavar="LAST")
@click.option("--monthly", is_flag=True, help="By months (2026-01), not by days (2026-01-31).")
@output.as_json
def aggregated(start_date: str, end_date: str, monthly: bool, as_json: bool) -> None:
    """Print the seconds for which slots were held on each day, for labels, users and pools. FIRST and LAST are counted, too."""
    from dethpc.client.nouns import resources as client

    _print(client.aggregated(connect(), start_date, end_date, monthly=monthly, as_csv=not as_json))


def _print(text: bytes) -> None:
    output.echo(text.decode().rstrip("\n"))
