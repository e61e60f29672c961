"""``det image``."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect
from dethpc.cli.group import Failed, LazyGroup

_LOOK = 1.0  # seconds between two looks at a pull


@click.group(cls=LazyGroup)
def image() -> None:
    """List, pull and remove container images."""


_COLUMNS = [
    tables.Column("Image", "name", least=20),
    tables.Column("Format", "format"),
    tables.Column("State", "state"),
    tables.Column("Size", "size", tables.SIZE),
    tables.Column("Pulled", "pulledAt", tables.AGE),
    tables.Column("Digest", "digest", rank=1),
]


@image.command("list")
@output.as_yaml
@listing
def list_images(wanted: tables.Wanted) -> None:
    """List the images in the cache, and those that are being pulled."""
    from dethpc.client import images

    found = images.images(connect())
    if wanted.as_json:
        output.print_json(found)
        return
    pulls = [{"name": each["image"], "format": each["format"], "state": each["progress"]} for each in found["pulls"]]
    there = [{**each, "state": "ready"} for each in found["images"]]
    tables.show(tables.Table(_COLUMNS, [*pulls, *there]), wanted)


@image.command()
@click.argument("name", metavar="IMAGE")
@click.option("-p", "--pool", metavar="POOL", default="", help="Pull what this resource pool's containers need.")
@click.option(
    "--format",
    type=click.Choice(["sif", "squashfs", "folder"]),
    default=None,
    help="Default: what the pool's runtime needs.",
)
@click.option("--force", is_flag=True, help="Ask the registry again which image the name stands for.")
@click.option("-d", "--detach", is_flag=True, help="Do not wait for the pull to finish.")
@output.as_yaml
@output.as_json
def pull(name: str, pool: str, format: str | None, force: bool, detach: bool, as_json: bool) -> None:
    """Pull IMAGE into the cache before an experiment needs it.

    Passwords for registries come from the file that the site names, or from your ~/.docker/config.json.
    """
    from dethpc.client import images

    session = connect()
    found = images.pull(session, name, pool=pool, format=format or "", force=force)
    said = ""
    while not detach and found["endTime"] is None:
        if found["progress"] != said and not as_json:
            said = found["progress"]
            output.echo(f"{found['image']}: {said}", err=True)
        time.sleep(_LOOK)
        found = images.get_pull(session, found["taskId"])
    if as_json:
        output.print_json(found)
    if found["endTime"] is not None and not found["state"].endswith("COMPLETED"):
        raise Failed([f"{found['image']} could not be pulled: {found['reason']}"])
    if not as_json:
        output.echo(f"Pull of {found['image']} has begun" if detach else f"Pulled {found['image']}")


@image.command()
@click.argument("name", metavar="IMAGE")
@output.as_json
def cancel(name: str, as_json: bool) -> None:
    """Stop pulling IMAGE.

    Trials that wait for it end, too. What was downloaded stays in the cache, and the next pull of IMAGE continues from it.
    """
    from dethpc.client import images

    found = images.cancel(connect(), name)
    if as_json:
        output.print_json({"taskIds": found})
        return
    output.echo(f"The pull of {name} ends")


@image.command()
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output.as_json
def prune(dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the images that no unfinished experiment needs. They are pulled again when an experiment needs them."""
    from dethpc.client import images

    session = connect()
    found = images.unneeded(session)
    if as_json and not (dry_run or yes):
        raise click.UsageError("--json does not ask: add --dry-run or --yes")
    if not as_json:
        _show(found)
    removed = 0
    if found and not dry_run:
        if not yes:
            click.confirm(f"Remove {_some(len(found))}?", abort=True)
        removed = images.prune(session, found)
    if as_json:
        output.print_json({"images": found, "removed": removed})
    elif removed:
        output.echo(f"{_some(removed)} {'goes' if removed == 1 else 'go'}; det job list shows the task")
    sys.stdout.flush()


def _show(found: list[dict[str, Any]]) -> None:
    if not found:
        output.echo("Nothing to remove: unfinished experiments need every image in the cache")
        return
    columns = [column for column in _COLUMNS if column.name != "State"]
    tables.show(tables.Table(columns, found))
    output.echo()


def _some(count: int) -> str:
    return output.plural(count, "image")
