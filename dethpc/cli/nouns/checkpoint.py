"""``det checkpoint``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import output, tables
from dethpc.cli.arguments import EXPERIMENT, YES, confirm, listing, whole_uuid
from dethpc.cli.commands.audit import audit
from dethpc.cli.commands.garbage import prune
from dethpc.cli.connect import connect
from dethpc.cli.group import Failed, LazyGroup
from dethpc.cli.output import Json


@click.group(cls=LazyGroup)
def checkpoint() -> None:
    """List, describe, download and delete checkpoints."""


@checkpoint.command("list")
@click.argument("experiment_id", metavar="EXPERIMENT", type=EXPERIMENT)
@click.option("--best", type=click.IntRange(1), metavar="N", help="The N best by the searcher's metric, best first.")
@listing
def list_checkpoints(experiment_id: int, best: Optional[int], layout: tables.Layout) -> None:
    """List the checkpoints of an experiment, by trial and by steps; those that are deleted come last."""
    print_of_experiment(experiment_id, best, layout)


@checkpoint.command()
@click.argument("uuid", type=whole_uuid)
@output.as_json
def describe(uuid: str, as_json: bool) -> None:
    """Describe a checkpoint: its origin and its files."""
    from dethpc.client.nouns import checkpoints

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
            ("Metric", output.digits(training.get("searcherMetric"))),
            ("Validation", output.compact((training.get("validationMetrics") or {}).get("avgMetrics"))),
            ("Metadata", output.compact(c.get("metadata"))),
            ("Size", output.size(total_size(c))),
        ]
    )
    output.echo()
    files = sorted((c.get("resources") or {}).items())
    tables.show(tables.plain(["File", "Bytes"], files))


@checkpoint.command()
@click.argument("uuid", type=whole_uuid)
@click.option(
    "-o", "--output-dir", type=click.Path(file_okay=False), help="Directory to write to [default: checkpoints/UUID]."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the path.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "direct", "master"]),
    default="auto",
    show_default=True,
    help="From the storage, through the master, or from the storage if this machine can read it.",
)
@click.option(
    "--path", "globs", multiple=True, metavar="GLOB", help="Only files that match; ** matches any directories."
)
def download(uuid: str, output_dir: Optional[str], quiet: bool, mode: str, globs: tuple[str, ...]) -> None:
    """Download a checkpoint; its files are verified."""
    download_checkpoint(connect(), uuid, output_dir, quiet, mode, globs)


def _uuids(text: str) -> list[str]:
    return [whole_uuid(part) for part in text.split(",") if part]


_UUIDS = click.argument("uuids", metavar="UUID[,UUID...]", type=_uuids)


@checkpoint.command()
@_UUIDS
@YES
def delete(uuids: list[str], yes: bool) -> None:
    """Delete checkpoints; a task removes their files. Checkpoints that are still needed are refused."""
    from dethpc.client.nouns import checkpoints

    confirm(f"Delete {', '.join(uuids)} for good?", yes)
    checkpoints.delete(connect(), uuids)
    output.echo(f"Deleting {', '.join(uuids)}: a task removes the files soon")


@checkpoint.command()
@_UUIDS
@click.option(
    "--glob", "globs", multiple=True, help="Files to remove; ** matches any directories. Without it: reread the list."
)
@YES
def rm(uuids: list[str], globs: tuple[str, ...], yes: bool) -> None:
    """Remove files from checkpoints."""
    from dethpc.client.nouns import checkpoints

    session = connect()
    none = _without_match(session, uuids, globs) if globs else {}
    uuids = [uuid for uuid in uuids if uuid not in none]
    if none and not uuids:
        raise Failed([*none.values()])
    for message in none.values():
        output.say(f"warning: {message}")
    if globs:
        confirm(f"Remove {', '.join(globs)} of {', '.join(uuids)} for good?", yes)
    checkpoints.remove_files(session, uuids, globs)
    outcome = "A task removes files of" if globs else "Looked at"
    output.echo(f"{outcome} {', '.join(uuids)}")


def _without_match(session: Any, uuids: Sequence[str], globs: Sequence[str]) -> dict[str, str]:
    """Of those checkpoints that have no file that a glob means: what to say. Where no files are listed the master looks, unless all
    are deleted."""
    from dethpc.client.nouns import checkpoints
    from dethpc.storage import globs as globs_

    none = {}
    for uuid in uuids:
        checkpoint = checkpoints.get(session, uuid)
        files = checkpoint.get("resources") or {}
        listed = files or output.state(checkpoint.get("state")) == "DELETED"
        if listed and not any(globs_.within(path, globs) for path in files):
            none[uuid] = checkpoints.no_match(checkpoint, globs)
    return none


checkpoint.add_command(prune)
checkpoint.add_command(audit)


def download_checkpoint(
    session: Any,
    uuid: str,
    output_dir: Optional[str],
    quiet: bool,
    mode: str = "auto",
    globs: Sequence[str] = (),
) -> None:
    """Copy a checkpoint out of its storage, or through the master."""
    from dethpc.client.nouns import checkpoints
    from dethpc.experimental._download import DownloadMode, download

    row = checkpoints.get(session, uuid)
    if output.state(row.get("state")) not in ("COMPLETED", "PARTIALLY_DELETED"):
        why = f" ({row['reason']})" if row.get("reason") else ""
        raise errors.Refused(f"checkpoint {uuid} is {output.state(row.get('state'))}{why}; it cannot be downloaded")
    target = Path(output_dir or f"checkpoints/{uuid}")
    with _folder_of(uuid, target):
        mode_used = download(session, row, target, DownloadMode(mode), globs)
    through = " (through the master)" if mode_used is DownloadMode.MASTER else ""
    output.echo(target if quiet else f"Checkpoint {uuid} is in {target}{through}")


_MARK = ".dethpc-checkpoint"  # in a folder that does not have the uuid for its name: the uuid of what is in it


@contextlib.contextmanager
def _folder_of(uuid: str, target: Path) -> Iterator[None]:
    """A download to ``target``, which holds this checkpoint, or a part of it, or nothing. Raises Refused: files of two would be
    mixed there, and those of the same name replaced."""
    mark, named = target / _MARK, target.absolute().name == uuid
    if _holds_files(target) and not named and not (mark.is_file() and mark.read_text(errors="replace").strip() == uuid):
        raise errors.Refused(
            f"{target} holds other files than checkpoint {uuid}, and would hold both: name another folder with -o, or remove it"
        )
    try:
        yield
    finally:  # what breaks off can be downloaded again
        if _holds_files(target) and not named:
            with contextlib.suppress(OSError):
                mark.write_text(uuid + "\n")


def _holds_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def print_of_experiment(experiment_id: int, best: Optional[int], layout: tables.Layout) -> None:
    """``best``: how many of the best, best first; None: all."""
    from dethpc.client.nouns import experiments

    def place(c: Json) -> tuple[bool, int, int]:
        trial, steps = (c.get("training") or {}).get("trialId"), (c.get("metadata") or {}).get("steps_completed")
        return _deleted(c), int(trial or 0), int(steps or 0)

    rows = experiments.checkpoints(connect(), experiment_id, best=best)
    print_checkpoints(rows if best else sorted(rows, key=place), layout)


def print_checkpoints(rows: Sequence[Json], layout: tables.Layout) -> None:
    """A table of checkpoints, for every command that lists some. On a terminal, it counts those that are deleted: of a search that
    keeps the best ones alone, they are nearly all."""
    if layout.as_json:
        output.print_json(list(rows))
        return
    live = [c for c in rows if not _deleted(c)]
    if tables.for_people() and not layout.wide and not layout.as_csv and len(live) < len(rows):
        below = [f"{len(rows) - len(live)} deleted ones are not shown: --wide shows them"]
        tables.show(tables.Table(_COLUMNS, live, below=below), layout)
    else:
        tables.show(tables.Table(_COLUMNS, rows), layout)


def _deleted(checkpoint: Json) -> bool:
    return output.state(checkpoint.get("state")) == "DELETED"


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
