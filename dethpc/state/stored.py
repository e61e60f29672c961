"""How many checkpoints each experiment has, how many of them are not deleted and how large they are, kept so that a list of
experiments counts none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from dethpc.domain.facts import Checkpoint
from dethpc.domain.states import CheckpointState
from dethpc.state.summaries import StoredSum
from dethpc.state.tables import TABLES

_checkpoint, _sum = TABLES[Checkpoint].c, TABLES[StoredSum].c
_SUM = tuple(_sum[name] for name in StoredSum.__slots__)


def follow(connection: Connection, checkpoints: Sequence[Checkpoint]) -> list[StoredSum]:
    """What is to be written with these, of which each has a key of its own: at most as many as fit into one IN list."""
    keys = [each.uuid for each in checkpoints]
    columns = (_checkpoint.uuid, _checkpoint.experiment_id, _checkpoint.size, _checkpoint.state)
    old = {row.uuid: row for row in connection.execute(select(*columns).where(_checkpoint.uuid.in_(keys)))}
    changed = [each for each in checkpoints if each.uuid not in old or _counted(old[each.uuid]) != _counted(each)]
    before = [old[each.uuid] for each in changed if each.uuid in old]
    of = {each.experiment_id for each in changed} | {each.experiment_id for each in before}
    known = select(*_SUM).where(_sum.experiment_id.in_(sorted(of)))
    sums = {id: StoredSum(id) for id in of}
    sums.update((row[0], StoredSum(*row)) for row in (connection.execute(known) if of else ()))
    for gone in before:
        _add(sums, gone, -1)
    for each in changed:
        _add(sums, each, 1)
    return list(sums.values())


def _add(sums: dict[int, StoredSum], checkpoint: Any, sign: int) -> None:
    """``checkpoint``: a fact, or its row."""
    of, size, kept = _counted(checkpoint)
    sums[of].count += sign
    sums[of].size += sign * size
    sums[of].kept += sign * kept


def _counted(checkpoint: Any) -> tuple[int, int, bool]:
    """What of it a sum holds."""
    return checkpoint.experiment_id, checkpoint.size, checkpoint.state is not CheckpointState.DELETED
