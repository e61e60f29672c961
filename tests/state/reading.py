"""What a database holds, for tests to look at."""

from __future__ import annotations

from collections.abc import Iterable

from dethpc.domain.facts import Metric
from dethpc.state import SqlStore, Summary, rows


def metrics(store: SqlStore, trial_ids: Iterable[int]) -> list[Metric]:
    """Those that count, by trial and then in order of report."""
    columns = rows.table(Metric).c
    with store.read() as connection:
        asked = rows.query(Metric, columns.trial_id.in_(list(trial_ids))).order_by(columns.trial_id, columns.id)
        return [Metric(*row) for row in connection.execute(asked)]


def summaries(store: SqlStore, trial_ids: Iterable[int]) -> list[Summary]:
    """By trial, group and name."""
    with store.read() as connection:
        return rows.read(connection, Summary, rows.table(Summary).c.trial_id.in_(list(trial_ids)))
