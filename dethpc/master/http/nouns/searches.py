"""How a search stands; and searches whose method runs in a program of the user's."""

from __future__ import annotations

import asyncio
import time as clock
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.searcher import Custom
from dethpc.domain.facts import Experiment
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.errors import Refused
from dethpc.master.http.access import (
    AnyPrincipal,
    Offset,
    Owner,
    Reading,
    TheControl,
    TheSearches,
    TheStore,
    may_see_experiment,
)
from dethpc.master.http.models import Pagination, page, state
from dethpc.master.http.router import new_router
from dethpc.master.http.wire.search import Operations, Search, SearcherEvents, SearchPoints, indexes
from dethpc.searcher.custom import CustomSearch
from dethpc.state import queries
from dethpc.state.store import SqlStore

router = new_router(prefix="/api/v1/experiments", tags=["experiments"])

LONGEST = 60.0
"""Seconds that a client may wait for events: proxies cut connections that are silent for longer."""

PAUSE = 0.2
"""Seconds between two looks for events."""


MOST_POINTS = 10_000

MOST = 1000
"""Trials of an answer to whom says no number."""


@router.get("/{experiment_id}/search/points")
def points(
    experiment_id: int,
    connection: Reading,
    who: AnyPrincipal,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS, description="The best trials, at most so many.")] = MOST_POINTS,
) -> SearchPoints:
    """What a picture of the search is drawn from: hyperparameters and the best value of the searcher's metric, in columns."""
    may_see_experiment(who, experiment_id)
    experiment = queries.experiment(connection, experiment_id)
    found = queries.points_of_search(connection, experiment_id, experiment.smaller_is_better, limit)
    ids, hparams, values = zip(*found, strict=True) if found else ((), (), ())
    return SearchPoints(metric=experiment.metric, trials=list(ids), hparams=list(hparams), values=list(values))


@router.get("/{experiment_id}/search")
def search(
    experiment_id: int,
    connection: Reading,
    searches: TheSearches,
    who: AnyPrincipal,
    limit: Annotated[
        int, Query(ge=0, description="At most this many of the best per rung, and of all; 0: all.")
    ] = MOST,
    offset: Offset = 0,
) -> Search:
    """Brackets and rungs, who stands where and why, and when it may end; of a search that has ended, too. ``trials`` are by their
    order of creation, and ``offset`` skips some of them."""
    may_see_experiment(who, experiment_id)
    experiment = queries.experiment(connection, experiment_id)
    described = searches.described(experiment, limit or None)
    trials, notes, total, begin = queries.places(connection, experiment_id, page(offset, limit))
    ids = queries.ids_of_trials(connection, experiment_id, indexes(described, trials))
    ids.update((trial.index, trial.id) for trial in trials)
    end = None
    if experiment.state is State.ACTIVE:  # nobody knows how long it will be paused, and what stops does so soon
        end = estimated_end(described["progress"], queries.training_times(connection, experiment_id), clock.time())
    running = queries.trials_running(connection, experiment_id)
    return Search.of(described, trials, notes, ids, running, end, Pagination.of(total, begin, limit, len(trials)))


def estimated_end(progress: float, times: list[tuple[float, float | None]], now: float) -> float | None:
    """When the search will have ended if it goes on as it went while anything trained. None: nobody can know.

    ``times``: from when to when its runs ran, by start; None: it still does. Waiting for slots and pauses do not count.
    """
    if not 0 < progress < 1 or not any(end is None for _, end in times):
        return None
    trained, until = 0.0, 0.0
    for begin, end in times:
        trained += max(0.0, (end or now) - max(begin, until))
        until = max(until, end or now)
    return now + trained * (1 - progress) / progress


# --- a search method that runs elsewhere


class _Inbox:
    """The events that a search method has not dealt with, as committed. Reads on from where it had got to."""

    def __init__(self, store: SqlStore, experiment_id: int) -> None:
        self._store, self._id = store, experiment_id
        self._read = 0
        config = ExperimentConfig.from_json(self._experiment().config)
        if not isinstance(config.searcher, Custom):
            raise Refused(f"experiment {experiment_id} has searcher {config.searcher.name}, not custom")
        self._searcher = CustomSearch(config.searcher, config.space, 0)

    def _experiment(self) -> Experiment:
        with self._store.read() as connection:
            return queries.experiment(connection, self._id)

    def look(self) -> list[dict[str, Any]]:
        """Oldest first. Of an experiment that has ended: a last event that says so."""
        experiment = self._experiment()
        with self._store.read() as connection:
            for note in queries.search_notes(connection, self._id, after=self._read):
                self._searcher.noted(note.trial_index, note.kind, note.data)
                self._read = note.seq
        waiting = self._searcher.events()
        if experiment.state.terminal:
            last = waiting[-1]["id"] if waiting else 0
            return [{"id": last + 1, "experimentInactive": {"experimentState": state(experiment.state)}}]
        return waiting


@router.get("/{experiment_id}/searcher_events", name="searcher_events_as_named_by_determined")
@router.get("/{experiment_id}/searcher/events")
async def searcher_events(
    experiment_id: int,
    store: TheStore,
    who: Owner,
    timeout: Annotated[float, Query(alias="timeoutSeconds")] = LONGEST,
) -> SearcherEvents:
    """Events that the search method has not answered; waits for the first as long as asked (an empty list: there was none)."""
    inbox = await asyncio.to_thread(_Inbox, store, experiment_id)
    found = await _until(inbox.look, min(timeout, LONGEST))
    return SearcherEvents(searcher_events=found)


async def _until(look: Callable[[], list[dict[str, Any]]], timeout: float) -> list[dict[str, Any]]:
    deadline = clock.monotonic() + timeout
    while not (found := await asyncio.to_thread(look)) and clock.monotonic() < deadline:
        await asyncio.sleep(PAUSE)
    return found


@router.post("/{experiment_id}/searcher_operations", name="searcher_operations_as_named_by_determined")
@router.post("/{experiment_id}/searcher/operations")
def searcher_operations(experiment_id: int, request: Operations, control: TheControl, who: Owner) -> dict[str, Any]:
    """What the search method wants in answer to an event, and to all before it. An answer that is repeated changes nothing."""
    try:
        event_id = int(request.triggered_by_event["id"])
    except (KeyError, TypeError, ValueError):
        raise Refused("triggeredByEvent.id is the number of the event that these operations answer") from None
    control.do(events.Operate(experiment_id, request.searcher_operations, event_id, clock.time()))
    return {}
