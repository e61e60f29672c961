"""``det checkpoint prune``, and the preview of what a checkpoint policy would delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import EXPERIMENTS, YES, confirm
from dethpc.cli.connect import connect
from dethpc.cli.output import Json


def show_unwanted(session: Any, experiment_id: int, policy: Mapping[str, int]) -> None:
    """A table of what the policy would delete, and a sentence about it."""
    from dethpc.client.nouns import checkpoints

    answer = checkpoints.unwanted(session, experiment_id, policy)
    rows, metric = answer["checkpoints"], answer["metric_name"]
    columns = [
        tables.Column("Trial", "TrialID", tables.COUNT),
        tables.Column("Steps", "StepsCompleted", tables.COUNT),
        tables.Column("State", "State", tables.STATE),
        tables.Column(metric, lambda c: (c.get("ValidationMetrics") or {}).get(metric), tables.METRIC),
        tables.Column("UUID", "UUID"),
        tables.Column("Size", _size, tables.SIZE),
    ]
    if rows:
        tables.show(tables.Table(columns, rows))
        output.echo()
    output.echo(
        f"This policy deletes {output.plural(len(rows), 'checkpoint')} of experiment {experiment_id}, "
        f"{output.size(sum(map(_size, rows)))}."
    )


@click.command()
@EXPERIMENTS
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be deleted.")
@YES
def prune(experiment_ids: tuple[int, ...], dry_run: bool, yes: bool) -> None:
    """Delete the checkpoints of ended experiments that their policies do not keep.

    Without EXPERIMENT: of all of them. Each has its own policy: save_* of checkpoint_storage, or det experiment set gc-policy.
    """
    from dethpc.client.nouns import checkpoints

    session = connect()
    rows = checkpoints.prunable(session, experiment_ids)
    if not rows:
        output.echo("Nothing to delete: every checkpoint is kept by its experiment's policy, or still needed")
        return
    columns = [
        tables.Column("ID", "id", tables.COUNT),
        tables.Column("Name", "name", least=16),
        tables.Column("Checkpoints", "checkpoints", tables.COUNT),
        tables.Column("Size", "size", tables.SIZE),
    ]
    tables.show(tables.Table(columns, rows))
    output.echo()
    count = output.plural(sum(int(e["checkpoints"]) for e in rows), "checkpoint")
    size = output.size(sum(int(e["size"]) for e in rows))
    if dry_run:
        output.echo(f"{count} would go, {size}")
        return
    confirm(f"Delete {count}, {size}, for good?", yes)
    checkpoints.prune(session, [int(e["id"]) for e in rows])
    output.echo(f"Deletion of {count} has begun, {size}; det job list shows the task")


def _size(checkpoint: Json) -> int:
    return sum(int(count) for count in (checkpoint.get("Resources") or {}).values())
