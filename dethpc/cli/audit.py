"""``det checkpoint audit``: what a storage holds that no experiment knows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from dethpc.cli import output, tables
from dethpc.cli.connect import connect
from dethpc.storage import CheckpointStore

_AT_ONCE = 1000
HOUR = 3600.0


class Orphan(NamedTuple):
    """What nobody knows under a name. ``what``: a checkpoint, or what is left of one, and whether its manifest says the same."""

    storage: str
    uuid: str
    whole: bool
    what: str
    size: int
    changed: float


def orphans(session: Any, store: CheckpointStore, before: float, verify: bool) -> Iterator[Orphan]:
    """All of them. What has changed since ``before`` may be just being written, and is not looked into."""
    from dethpc.client import checkpoints

    held = list(store.names())
    for begin in range(0, len(held), _AT_ONCE):
        some = held[begin : begin + _AT_ONCE]
        unknown = set(checkpoints.unknown(session, [each.uuid for each in some]))
        for each in some:
            if each.uuid in unknown:
                what = _found(store, each.uuid, verify and each.changed < before) if each.whole else "a remainder"
                yield Orphan(str(store), each.uuid, each.whole, what, each.size, each.changed)


def _found(store: CheckpointStore, uuid: str, verify: bool) -> str:
    from dethpc.errors import CheckpointError

    if not verify:
        return "a checkpoint"
    try:
        with store.restore(uuid):
            return "a checkpoint, as its manifest says"
    except CheckpointError as error:
        return str(error)


@click.command()
@click.argument("storages", metavar="PATH|URL...", nargs=-1, required=True)
@click.option(
    "--older-than", type=click.FloatRange(0), default=24.0, metavar="HOURS", help="Leave out what is younger [24]."
)
@click.option("--verify", is_flag=True, help="Read every file, and compare it with its manifest.")
@click.option("--remove", is_flag=True, help="Remove what was found.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output.as_json
def audit(storages: tuple[str, ...], older_than: float, verify: bool, remove: bool, yes: bool, as_json: bool) -> None:
    """List checkpoints in storages that no experiment of your master knows, such as after a crash or a lost database."""
    from dethpc import storage as stores

    there = {str(store): store for store in map(stores.from_string, storages)}
    before, session = time.time() - older_than * HOUR, connect()
    unknown = [
        orphan
        for store in there.values()
        for orphan in sorted(orphans(session, store, before, verify), key=lambda o: o.changed)
    ]
    found = [orphan for orphan in unknown if orphan.changed < before]
    several = [tables.Column("Storage", lambda o: o.storage, least=16)] if len(there) > 1 else []
    columns = [
        *several,
        tables.Column("UUID", lambda o: o.uuid),
        tables.Column("What", lambda o: o.what, least=16),
        tables.Column("Size", lambda o: o.size, tables.SIZE),
        tables.Column("Changed", lambda o: time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(o.changed))),
    ]
    if as_json:
        output.print_json([orphan._asdict() for orphan in found])
    else:
        if found:
            tables.show(tables.Table(columns, found))
            output.echo()
        for place in there:
            mine = [orphan for orphan in found if orphan.storage == place]
            output.echo(f"{len(mine)} in {place} that nobody knows, {output.size(sum(o.size for o in mine))}")
    if young := len(unknown) - len(found):
        output.say(
            f"{young} more changed in the last {older_than:g} hours, and may not be complete yet: see --older-than"
        )
    if not remove or not found:
        return
    if not yes:
        click.confirm("Another master that stores there may know them. Remove them for good?", abort=True)
    for orphan in found:
        store = there[orphan.storage]
        store.delete(orphan.uuid) if orphan.whole else store.discard(orphan.uuid)
    output.say(f"Removed {len(found)}")
