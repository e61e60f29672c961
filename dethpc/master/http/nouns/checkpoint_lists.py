"""Lists of checkpoints, of an experiment and of a trial alike."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.domain.facts import Experiment
from dethpc.master.http.access import Limit, Offset, OrderBy, order
from dethpc.master.http.models import CHECKPOINT_STATES, Pagination, names_of_states, page
from dethpc.master.http.wire.checkpoint import Checkpoints, listed
from dethpc.state import queries
from dethpc.state.queries import CheckpointFilter


class _Wanted:
    """Which of the checkpoints, in which order. Without an order, the searcher's metric is sorted best first."""

    def __init__(
        self,
        limit: Limit = 0,
        offset: Offset = 0,
        order_by: OrderBy = "",
        sort_by_attr: Annotated[str, Query(alias="sortByAttr")] = "",
        sort_by_metric: Annotated[str, Query(alias="sortByMetric")] = "",
        states: Annotated[tuple[str, ...], Query()] = (),
    ) -> None:
        self._page, self._limit = page(offset, limit), limit
        self._by_searcher = sort_by_attr == "SORT_BY_SEARCHER_METRIC"
        self._order = order("" if self._by_searcher else sort_by_attr, order_by, "end_time")
        self._unordered = order_by in ("", "ORDER_BY_UNSPECIFIED")
        self._metric = sort_by_metric or None
        self._states = frozenset(names_of_states(states, CHECKPOINT_STATES))

    def of(self, connection: Connection, experiment: Experiment | None, **owner: int) -> Checkpoints:
        """``owner``: ``experiment_id`` or ``trial_id``. ``experiment`` is the one that they belong to; None: those of all, which
        have no metric in common."""
        wanted = CheckpointFilter(**owner, states=self._states, metric=self._metric if experiment else None)
        if self._by_searcher and experiment is not None:
            wanted.metric = experiment.metric
            if self._unordered:
                self._order.descending = not experiment.smaller_is_better
        found, total, begin = queries.list_checkpoints(connection, wanted, self._order, self._page)
        origins = queries.checkpoint_origins(connection, found)
        items = listed(found, origins)
        return Checkpoints(checkpoints=items, pagination=Pagination.of(total, begin, self._limit, len(items)))


CheckpointList = Annotated[_Wanted, Depends()]
