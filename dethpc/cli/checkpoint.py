"""``det checkpoint``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import EXPERIMENT, listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

Json = dict[str, Any]


@click.group(cls=LazyGroup)
def checkpoint() -> None:
    """List, describe, download and delete checkpoints."""


@checkpoint.command("list")
@click.argument("experiment_id", metavar="EXPERIMENT", type=EXPERIMENT)
@click.option("--best", type=click.IntRange(1), metavar="N", help="The N best by the searcher's metric, best first.")
@listing
def list_checkpoints(experiment_id: int, best: Optional[int], wanted: tables.Wanted) -> None:
    """List the checkpoints of an experiment."""
    from dethpc.client import experiments

    print_checkpoints(experiments.checkpoints(connect(), experiment_id, best=best), wanted)


@checkpoint.command()
@click.argument("uuid")
@output.as_json
def describe(uuid: str, as_json: bool) -> None:
    """Describe a checkpoint: where it comes from and which files it has."""
    from dethpc.client import checkpoints

    c = checkpoints.get(connect(), uuid)
    if as_json:
        output.print_json(c)
        return
    training = c.get("training") or {}
    output.print_fields(
        [
            ("Checkpoint", c["uuid"]),
            ("State", output.state(c.get("state"))),
            ("Reason", c.get("reason")),
            ("Experiment", training.get("experimentId")),
            ("Trial", training.get("trialId")),
            ("Steps", (c.get("metadata") or {}).get("steps_completed")),
            ("Reported", output.when(c.get("reportTime"))),
            ("Metric", output.number(training.get("searcherMetric"))),
            ("Validation", output.compact((training.get("validationMetrics") or {}).get("avgMetrics"))),
            ("Metadata", output.compact(c.get("metadata"))),
            ("Size", output.size(total_size(c))),
        ]
    )
    output.echo()
    files = sorted((c.get("resources") or {}).items())
    tables.show(tables.plain(["File", "Bytes"], files))


@checkpoint.command()
@click.argument("uuid")
@click.option(
    "-o", "--output-dir", type=click.Path(file_okay=False), help="Directory to write to [default: checkpoints/UUID]."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the path.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "direct"]),
    expose_value=False,
    hidden=True,
    help="Accepted for compatibility: files always come straight from the storage.",
)
def download(uuid: str, output_dir: Optional[str], quiet: bool) -> None:
    """Download a checkpoint; its files are verified."""
    download_checkpoint(connect(), uuid, output_dir, quiet)


_UUIDS = click.argument("uuids", metavar="UUID[,UUID...]", type=lambda text: [part for part in text.split(",") if part])
_YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@checkpoint.command()
@_UUIDS
@_YES
def delete(uuids: list[str], yes: bool) -> None:
    """Delete checkpoints and their files. What a trial would still start from is refused."""
    from dethpc.client import checkpoints

    if not yes:
        click.confirm(f"Delete {', '.join(uuids)} for good?", abort=True)
    checkpoints.delete(connect(), uuids)
    output.echo(f"Deleted {', '.join(uuids)}")


@checkpoint.command()
@_UUIDS
@click.option(
    "--glob", "globs", multiple=True, help="Files to remove; ** matches any directories. Without it: reread the list."
)
@_YES
def rm(uuids: list[str], globs: tuple[str, ...], yes: bool) -> None:
    """Remove files of checkpoints."""
    from dethpc.client import checkpoints

    if globs and not yes:
        click.confirm(f"Remove {', '.join(globs)} of {', '.join(uuids)} for good?", abort=True)
    checkpoints.remove_files(connect(), uuids, globs)
    output.echo(f"{'Removed files of' if globs else 'Looked at'} {', '.join(uuids)}")


def download_checkpoint(session: Any, uuid: str, output_dir: Optional[str], quiet: bool) -> None:
    """Copy a checkpoint out of its storage, which the login node can read as the compute nodes can."""
    from pathlib import Path

    from dethpc import errors, storage
    from dethpc.client import checkpoints

    found = checkpoints.get(session, uuid)
    if output.state(found.get("state")) != "COMPLETED":
        why = f" ({found['reason']})" if found.get("reason") else ""
        raise errors.Refused(
            f"checkpoint {uuid} is {output.state(found.get('state'))}{why}; only a COMPLETED one can be downloaded"
        )
    target = Path(output_dir or f"checkpoints/{uuid}")
    storage.build(checkpoints.storage(found)).download(uuid, target)
    output.echo(target if quiet else f"Checkpoint {uuid} is in {target}")


def print_checkpoints(found: Sequence[Json], wanted: tables.Wanted) -> None:
    """A table of checkpoints, for every command that lists some."""
    if wanted.as_json:
        output.print_json(list(found))
    else:
        tables.show(tables.Table(_COLUMNS, found), wanted)


def total_size(checkpoint: Json) -> int:
    """Bytes of all its files; the wire spells 64-bit numbers as strings."""
    return sum(int(count) for count in (checkpoint.get("resources") or {}).values())


_COLUMNS = [
    tables.Column("Trial", lambda c: (c.get("training") or {}).get("trialId"), tables.COUNT),
    tables.Column("Steps", lambda c: (c.get("metadata") or {}).get("steps_completed"), tables.COUNT),
    tables.Column("State", "state", tables.STATE),
    tables.Column("Metric", lambda c: (c.get("training") or {}).get("searcherMetric"), tables.METRIC),
    tables.Column("UUID", "uuid"),
    tables.Column("Size", total_size, tables.SIZE, rank=2),
    tables.Column("Reported", "reportTime", tables.AGE, rank=1),
    tables.Column("Reason", "reason", rank=3, least=16),
]
