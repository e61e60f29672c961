"""``det image``."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import YES, confirm, listing
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
def list_images(layout: tables.Layout) -> None:
    """List the images in the cache, and those that are being pulled."""
    from dethpc.client.nouns import images

    answer = images.images(connect())
    pulls = [{"name": pull["image"], "format": pull["format"], "state": pull["progress"]} for pull in answer["pulls"]]
    there = [{**image, "state": "ready"} for image in answer["images"]]
    tables.show(tables.Table(_COLUMNS, [*pulls, *there]), layout, answer)


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
    from dethpc.client.nouns import images

    session = connect()
    task = images.pull(session, name, pool=pool, format=format or "", force=force)
    progress = ""
    while not detach and task["endTime"] is None:
        if task["progress"] != progress and not as_json:
            progress = task["progress"]
            output.echo(f"{task['image']}: {progress}", err=True)
        time.sleep(_LOOK)
        task = images.get_pull(session, task["taskId"])
    if as_json:
        output.print_json(task)
    if task["endTime"] is not None and not task["state"].endswith("COMPLETED"):
        raise Failed([f"{task['image']} could not be pulled: {task['reason']}"])
    if not as_json:
        output.echo(f"Pull of {task['image']} has begun" if detach else f"Pulled {task['image']}")


@image.command()
@click.argument("name", metavar="IMAGE")
@output.as_json
def cancel(name: str, as_json: bool) -> None:
    """Stop pulling IMAGE.

    Trials that wait for it end, too. What was downloaded stays in the cache, and the next pull of IMAGE continues from it.
    """
    from dethpc.client.nouns import images

    task_ids = images.cancel(connect(), name)
    output.reply({"taskIds": task_ids}, f"The pull of {name} ends", as_json)


@image.command()
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be deleted.")
@YES
@output.as_json
def prune(dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the images that no unfinished experiment needs. They are pulled again when an experiment needs them."""
    from dethpc.client.nouns import images

    session = connect()
    rows = images.unneeded(session)
    if as_json and not (dry_run or yes):
        raise click.UsageError("--json does not ask: add --dry-run or --yes")
    if not as_json:
        _show(rows)
    removed = 0
    if rows and not dry_run:
        confirm(f"Remove {output.plural(len(rows), 'image')}?", yes)
        removed = images.prune(session, rows)
    if as_json:
        output.print_json({"images": rows, "removed": removed})
    elif removed:
        output.echo(
            f"{output.plural(removed, 'image')} {'goes' if removed == 1 else 'go'}; det job list shows the task"
        )
    sys.stdout.flush()


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        output.echo("Nothing to remove: unfinished experiments need every image in the cache")
        return
    columns = [column for column in _COLUMNS if column.name != "State"]
    tables.show(tables.Table(columns, rows))
    output.echo()
