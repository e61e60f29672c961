"""``det checkpoint audit``: checkpoints in a storage that belong to no experiment."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import YES, confirm
from dethpc.cli.connect import connect
from dethpc.cli.group import Failed
from dethpc.storage import CheckpointStore

_AT_ONCE = 1000
HOUR = 3600.0


class Orphan(NamedTuple):
    """What nobody knows under a name. ``what``: a checkpoint, or what is left of one, and whether its manifest says the same.
    ``whose``: what its manifest says, in words. ``removable``: nothing says that it is another cluster's; "no": it is."""

    storage: str
    uuid: str
    whole: bool
    what: str
    size: int
    changed: float
    whose: str
    removable: str  # one of OWN, UNOWNED, OTHERS


OWN, UNOWNED, OTHERS = "own", "unowned", "another's"


def orphans(session: Any, store: CheckpointStore, before: float, verify: bool) -> Iterator[Orphan]:
    """All of them. What has changed since ``before`` may be just being written, and is not looked into."""
    from dethpc.client.nouns import checkpoints, cluster

    cluster_id = str(cluster.master(session).get("clusterId") or "")
    held = list(store.names())
    for begin in range(0, len(held), _AT_ONCE):
        some = held[begin : begin + _AT_ONCE]
        unknown = set(checkpoints.unknown(session, [entry.uuid for entry in some]))
        for entry in some:
            if entry.uuid in unknown:
                what = _verdict(store, entry.uuid, verify and entry.changed < before) if entry.whole else "a remainder"
                whose, removable = _whose(store, entry.uuid, cluster_id) if entry.whole else ("", OWN)
                yield Orphan(str(store), entry.uuid, entry.whole, what, entry.size, entry.changed, whose, removable)


def _whose(store: CheckpointStore, uuid: str, cluster_id: str) -> tuple[str, str]:
    owner = store.identity(uuid).owner
    if owner is None:
        return "it does not say", UNOWNED
    if owner.cluster == cluster_id:
        return f"experiment {owner.experiment_id or owner.experiment} of this cluster", OWN
    return str(owner), OTHERS


def _verdict(store: CheckpointStore, uuid: str, verify: bool) -> str:
    from dethpc.errors import CheckpointError

    if not verify:
        return "a checkpoint"
    try:
        with store.restore(uuid):
            return "a checkpoint, as its manifest says"
    except CheckpointError as error:
        return str(error)
    except OSError as error:  # one that cannot be read keeps none of the others from being looked at
        if store.may_come_back(error):
            raise
        return f"it cannot be read: {error}"


def _stores(storages: Sequence[str], files: Sequence[Any]) -> dict[str, CheckpointStore]:
    """Those that are named, and those of configurations, by where they are. Raises ConfigError."""
    from dethpc import storage

    stores = [*map(storage.from_string, storages), *(storage.build(_section(file)) for file in files)]
    return {str(store): store for store in stores}


def _section(file: Any) -> dict[str, Any]:
    """The ``checkpoint_storage`` of an experiment's configuration, with its keys. Raises ConfigError."""
    from dethpc.cli.commands.create import read_config
    from dethpc.config import load_storage
    from dethpc.config.secrets import revealed
    from dethpc.errors import ConfigError

    section = load_storage(read_config(file), file=file.name)
    if section is None:
        raise Failed([f"{file.name} has no checkpoint_storage: name the storage by a path or a URL"])
    _, masked = revealed({"checkpoint_storage": section}, [])
    if masked:
        raise ConfigError(masked)
    return section


def _of_the_wire(moment: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(moment, timezone.utc).isoformat()


def _removed(store: CheckpointStore, orphan: Orphan) -> str:
    """Why it could not be; "" where it was."""
    from dethpc.errors import CheckpointError

    try:
        store.delete(orphan.uuid) if orphan.whole else store.discard(orphan.uuid)
    except (CheckpointError, OSError) as error:
        return f"{orphan.uuid} in {store} cannot be removed: {error}"
    return ""


@click.command()
@click.argument("storages", metavar="[PATH|URL]...", nargs=-1)
@click.option(
    "--config-file",
    "files",
    multiple=True,
    type=click.File(encoding="utf-8"),
    help="An experiment's configuration: the storage that it names, with the keys in it (repeatable).",
)
@click.option(
    "--older-than", type=click.FloatRange(0), default=24.0, metavar="HOURS", help="Leave out what is younger [24]."
)
@click.option("--verify", is_flag=True, help="Read every file, and compare it with its manifest.")
@click.option("--remove", is_flag=True, help="Remove what was found and says that it is of this cluster.")
@click.option("--unowned", is_flag=True, help="With --remove: also what does not say whose it is.")
@YES
@output.found_as_json
def audit(
    storages: tuple[str, ...],
    files: tuple[Any, ...],
    older_than: float,
    verify: bool,
    remove: bool,
    unowned: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """List checkpoints in storages that no experiment of your master knows, such as after a crash or a lost database."""
    if not (storages or files):
        raise click.UsageError("name a storage: by a path, a URL, or --config-file")
    there = _stores(storages, files)
    if missing := [place for place, store in there.items() if not store.is_there()]:
        raise Failed([f"there is no folder {place}" for place in missing])
    before, session = time.time() - older_than * HOUR, connect()
    unknown = [
        orphan
        for store in there.values()
        for orphan in sorted(orphans(session, store, before, verify), key=lambda o: o.changed)
    ]
    old = [orphan for orphan in unknown if orphan.changed < before]
    several = [tables.Column("Storage", lambda o: o.storage, least=16)] if len(there) > 1 else []
    columns = [
        *several,
        tables.Column("UUID", lambda o: o.uuid),
        tables.Column("What", lambda o: o.what, least=16),
        tables.Column("Whose", lambda o: o.whose, least=16),
        tables.Column("Size", lambda o: o.size, tables.SIZE),
        tables.Column("Changed", lambda o: output.when(_of_the_wire(o.changed))),
    ]
    if as_json:
        output.print_json([orphan._asdict() for orphan in old])
    else:
        if old:
            tables.show(tables.Table(columns, old))
            output.echo()
        for place in there:
            mine = [orphan for orphan in old if orphan.storage == place]
            output.echo(
                f"{output.plural(len(mine), 'checkpoint')} in {place} that nobody knows, {output.size(sum(o.size for o in mine))}"
            )
    if young := len(unknown) - len(old):
        output.say(
            f"{young} more changed in the last {older_than:g} hours, and may not be complete yet: see --older-than"
        )
    goes = [orphan for orphan in old if orphan.removable == OWN or (unowned and orphan.removable == UNOWNED)]
    _say_what_stays([orphan for orphan in old if orphan not in goes], remove)
    if not remove or not goes:
        return
    confirm(f"Remove {len(goes)} of them for good?", yes)
    failed = [problem for orphan in goes if (problem := _removed(there[orphan.storage], orphan))]
    output.say(f"Removed {len(goes) - len(failed)}")
    if failed:
        raise Failed(failed)


def _say_what_stays(stay: Sequence[Orphan], remove: bool) -> None:
    """And what can be done about it."""
    if others := sum(orphan.removable == OTHERS for orphan in stay):
        output.say(f"{others} belong to another cluster, whose owner can delete them there; det removes none of these")
    if unowned := sum(orphan.removable == UNOWNED for orphan in stay):
        output.say(
            f"{unowned} do not say whose they are: an earlier release, another program or another master stored them. "
            f"If nobody needs them: {'add' if remove else 'det checkpoint audit --remove'} --unowned"
        )
