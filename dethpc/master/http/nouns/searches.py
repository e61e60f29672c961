"""Routes of searches: their progress, and the events of searches whose method runs in a program of the user."""

from __future__ import annotations

import asyncio
import math
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Annotated, Any

from fastapi import Query
from pydantic import ConfigDict

from dethpc.config import load
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import Custom
from dethpc.config.source import dump
from dethpc.domain import facts
from dethpc.domain.facts import Experiment
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.errors import NotFound, Refused
from dethpc.master.http.access import (
    AnyPrincipal,
    Editor,
    Offset,
    Reading,
    TheControl,
    TheSearches,
    TheStore,
    Viewer,
    ViewerSomewhere,
    may_see_experiment,
)
from dethpc.master.http.models import Float, Pagination, Plain, Shallow, Wire, page, state, time, time_or_none
from dethpc.master.http.nouns.trials import trial_state
from dethpc.master.http.router import new_router
from dethpc.searcher.custom import CustomSearch
from dethpc.state import queries
from dethpc.state.store import ReadStore


class Validation(Wire):
    trial_id: int
    end_time: str
    searcher_metric: Float


class ValidationHistory(Wire):
    validation_history: list[Validation]


class BestMetric(Wire):
    metric: Float | None


class SearcherProgress(Wire):
    """Ours: how far the search is."""

    progress: Float
    trials: int
    trials_by_state: dict[str, int]


class RungTrial(Wire):
    trial_id: int
    value: Float | None  # None: none that can be compared
    went_on: bool


class Rung(Wire):
    """``entered`` counts every trial that came this far; ``trials`` are those that stand here or went on from here, best first."""

    length: Float
    entered: int
    went_on: int
    cut_off: Float | None  # what a value must reach to go on, as things stand; None: nothing yet
    places: int | None = None  # how many trials will come this far, where the method knows
    promotes: int | None = None  # how many of them go on, where the method knows
    trials: list[RungTrial]


class Bracket(Wire):
    trials: int
    created: int | None = None
    max_concurrent_trials: int | None = None
    rungs: list[Rung]


class SearchTrial(Wire):
    """Where one trial stands. ``reason`` says why it was stopped or waits: the value, and the cut-off that it met."""

    trial_id: int
    state: str
    bracket: int | None
    rung: int | None  # the last one it entered
    length: Float | None  # of that rung
    value: Float | None  # with which it entered
    next_length: Float | None  # where it is judged next; None: nowhere, or it has ended
    parent_trial_id: int | None  # whose checkpoint and hyperparameters it began with
    reason: str


class Search(Wire):
    method: str
    metric: str
    smaller_is_better: bool
    unit: str | None
    progress: Float
    estimated_end_time: (
        str | None
    )  # from the rate of progress while anything trained; None: unknown, or it is not active
    trials_total: int
    trials_created: int
    trials_ended: int
    trials_invalid: int
    brackets: list[Bracket]
    trials: list[SearchTrial]
    pagination: Pagination  # of ``trials``

    @classmethod
    def of(
        cls,
        described: Mapping[str, Any],
        trials: list[SearchTrial],
        ids: Mapping[int, int],
        estimated_end: float | None,
        pagination: Pagination,
    ) -> Search:
        """``described`` is what ``Searcher.describe`` says; ``ids``: of all trials that are named, by index."""
        brackets = [
            Bracket(**{**bracket, "rungs": [_rung(rung, ids) for rung in bracket["rungs"]]})
            for bracket in described["brackets"]
        ]
        count = described["trials"]
        return cls(
            method=described["method"],
            metric=described["metric"],
            smaller_is_better=described["smaller_is_better"],
            unit=described.get("unit"),
            progress=described["progress"],
            estimated_end_time=time_or_none(estimated_end),
            trials_total=count["total"],
            trials_created=count["created"],
            trials_ended=count["ended"],
            trials_invalid=count["invalid"],
            brackets=brackets,
            trials=trials,
            pagination=pagination,
        )


def _rung(rung: Mapping[str, Any], ids: Mapping[int, int]) -> Rung:
    # One that was created since the ids were read is told next time.
    trials = [
        RungTrial(trial_id=ids[item["index"]], value=item["value"], went_on=item["went_on"])
        for item in rung["trials"]
        if item["index"] in ids
    ]
    return Rung(**{**rung, "trials": trials})


def indexes(described: Mapping[str, Any], trials: Sequence[facts.Trial]) -> Iterator[int]:
    """Of the trials that an answer names beside ``trials``."""
    for bracket in described["brackets"]:
        for rung in bracket["rungs"]:
            yield from (item["index"] for item in rung["trials"])
    yield from (trial.search["parent"] for trial in trials if trial.search.get("parent") is not None)


def _places(
    described: Mapping[str, Any],
    trials: Sequence[facts.Trial],
    notes: Sequence[facts.SearchNote],
    ids: Mapping[int, int],
    running: Set[int],
) -> list[SearchTrial]:
    sign = 1 if described["smaller_is_better"] else -1
    entered: dict[int, tuple[int, float | None]] = {}
    for note in notes:
        if "value" in note.data:
            value = note.data["value"]
            rung = int(note.data["rung"] if "rung" in note.data else note.data["round"])
            entered[note.trial_index] = rung, None if value is None else sign * value
    return [
        _place(trial, entered.get(trial.index), described["brackets"], ids, trial.id in running) for trial in trials
    ]


def _place(
    trial: facts.Trial,
    entered: tuple[int, float | None] | None,
    brackets: list[dict[str, Any]],
    ids: Mapping[int, int],
    running: bool,
) -> SearchTrial:
    bracket = int(trial.search.get("bracket") or 0) if brackets else None
    rung, value = entered or (None, None)
    length = None if bracket is None or rung is None else brackets[bracket]["rungs"][rung]["length"]
    ended = trial.state.terminal or trial.state.stopping
    ahead = [] if ended else [goal for goal in trial.search.get("lengths") or () if goal > _own(trial, length)]
    parent = trial.search.get("parent")
    return SearchTrial(
        trial_id=trial.id,
        state=trial_state(trial, running),
        bracket=bracket,
        rung=rung,
        length=length,
        value=value,
        next_length=min(ahead, default=None),
        parent_trial_id=None if parent is None else ids[parent],
        reason=trial.reason,
    )


def _own(trial: facts.Trial, length: float | None) -> float:
    """The rung's length as the trial itself counts: a copy of another trial begins at 0 in its own round."""
    lengths = trial.search.get("lengths") or [0]
    return 0.0 if length is None else length - int(trial.search.get("round") or 0) * lengths[0]


class SearcherEvents(Wire):
    searcher_events: list[Plain]


class Operations(Wire):
    searcher_operations: Annotated[list[dict[str, Any]], Shallow] = []
    triggered_by_event: Annotated[dict[str, Any], Shallow]


class SearchPoints(Wire):
    """Ours: trials in columns, the best first. ``values``: the best of the searcher's ``metric``."""

    model_config = ConfigDict(
        ser_json_inf_nan="strings"
    )  # as ``Float`` spells them, which takes longer for ten thousand

    metric: str
    trials: list[int]
    hparams: list[dict[str, Any]]
    values: list[float]


class PreviewRequest(Wire):
    config: Annotated[dict[str, Any] | None, Shallow] = None
    seed: int | None = None


class SearchUnit(Wire):
    """``value`` of the unit ``name``; with ``max_length``, a trial trains to its own end instead."""

    name: str | None = None
    value: int | None = None
    max_length: bool = False


class TrialSummary(Wire):
    count: int
    unit: SearchUnit


class SearchSummary(Wire):
    config: dict[str, Any]
    trials: list[TrialSummary]


class Preview(Wire):
    summary: SearchSummary


router = new_router(prefix="/api/v1", tags=["experiments"])

LONGEST = 60.0
"""Seconds that a client may wait for events: proxies cut connections that are silent for longer."""

PAUSE = 0.2
"""Seconds between two looks for events."""


MOST_POINTS = 10_000

MOST = 1000
"""Trials of an answer to whom says no number."""


@router.get("/experiments/{experiment_id}/search/points")
def points(
    experiment_id: int,
    connection: Reading,
    who: AnyPrincipal,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS, description="The best trials, at most so many.")] = MOST_POINTS,
) -> SearchPoints:
    """What a picture of the search is drawn from: hyperparameters and the best value of the searcher's metric, in columns."""
    may_see_experiment(who, experiment_id)
    experiment = queries.experiment(connection, experiment_id)
    rows = queries.points_of_search(connection, experiment_id, experiment.smaller_is_better, limit)
    ids, hparams, values = zip(*rows, strict=True) if rows else ((), (), ())
    return SearchPoints(metric=experiment.metric, trials=list(ids), hparams=list(hparams), values=list(values))


@router.get("/experiments/{experiment_id}/search")
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
    places = _places(described, trials, notes, ids, running)
    return Search.of(described, places, ids, end, Pagination.of(total, begin, limit, len(trials)))


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

    def __init__(self, store: ReadStore, experiment_id: int) -> None:
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


@router.get("/experiments/{experiment_id}/searcher_events", name="searcher_events_as_named_by_determined")
@router.get("/experiments/{experiment_id}/searcher/events")
async def searcher_events(
    experiment_id: int,
    store: TheStore,
    who: Viewer,
    timeout: Annotated[float, Query(alias="timeoutSeconds")] = LONGEST,
) -> SearcherEvents:
    """Events that the search method has not answered; waits for the first as long as asked (an empty list: there was none)."""
    inbox = await asyncio.to_thread(_Inbox, store, experiment_id)
    search_events = await _until(inbox.look, min(timeout, LONGEST))
    return SearcherEvents(searcher_events=search_events)


async def _until(look: Callable[[], list[dict[str, Any]]], timeout: float) -> list[dict[str, Any]]:
    deadline = clock.monotonic() + timeout
    while not (search_events := await asyncio.to_thread(look)) and clock.monotonic() < deadline:
        await asyncio.sleep(PAUSE)
    return search_events


@router.post("/experiments/{experiment_id}/searcher_operations", name="searcher_operations_as_named_by_determined")
@router.post("/experiments/{experiment_id}/searcher/operations")
def searcher_operations(experiment_id: int, request: Operations, control: TheControl, who: Editor) -> dict[str, Any]:
    """What the search method wants in answer to an event, and to all before it. An answer that is repeated changes nothing."""
    try:
        event_id = int(request.triggered_by_event["id"])
    except (KeyError, TypeError, ValueError):
        raise Refused("triggeredByEvent.id is the number of the event that these operations answer") from None
    control.do(events.Operate(experiment_id, request.searcher_operations, event_id, clock.time()))
    return {}


@router.post("/preview-hp-search")
def preview_search(request: PreviewRequest, who: ViewerSomewhere) -> Preview:
    """How many trials of the given experiment configuration train for which length, the shortest first."""
    from dethpc.simulator.preview import preview  # a master that is not asked for it holds no simulator in memory

    config = load(dump(request.config or {})).config
    seed = request.seed or config.reproducibility.experiment_seed or 0
    name = config.searcher.unit_of_length()
    trials = [
        TrialSummary(
            count=count,
            unit=SearchUnit(max_length=True) if math.isinf(length) else SearchUnit(name=name, value=math.ceil(length)),
        )
        for length, count in sorted(preview(config.searcher, config.space, seed).items())
    ]
    return Preview(summary=SearchSummary(config=config.searcher.model_dump(mode="json"), trials=trials))


@router.get("/experiments/{experiment_id}/validation-history")
def validation_history(experiment_id: int, connection: Reading, who: AnyPrincipal) -> ValidationHistory:
    """Each validation that was the best of the experiment until then."""
    may_see_experiment(who, experiment_id)
    history = queries.validation_history(connection, experiment_id)
    return ValidationHistory(
        validation_history=[
            Validation(trial_id=trial, end_time=time(at), searcher_metric=value) for trial, at, value in history
        ]
    )


@router.get("/experiments/{experiment_id}/searcher/best_searcher_validation_metric")
def best_metric(experiment_id: int, connection: Reading, who: AnyPrincipal) -> BestMetric:
    may_see_experiment(who, experiment_id)
    queries.experiment(connection, experiment_id)
    best = queries.best_trials(connection, [experiment_id]).get(experiment_id)
    if best is None:
        raise NotFound(f"no trial of experiment {experiment_id} has reported the searcher's metric yet")
    return BestMetric(metric=best[1])


@router.get("/experiments/{experiment_id}/searcher/progress")
def searcher_progress(experiment_id: int, connection: Reading, who: AnyPrincipal) -> SearcherProgress:
    """Ours: how far the search is."""
    may_see_experiment(who, experiment_id)
    fact = queries.experiment(connection, experiment_id)
    states = queries.states_of_trials(connection, experiment_id)
    by_state = {f"STATE_{name}": count for name, count in states.items()}
    return SearcherProgress(progress=fact.progress, trials=sum(states.values()), trials_by_state=by_state)
