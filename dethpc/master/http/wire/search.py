"""How a search stands, and what a search method that runs elsewhere is told and says. Ours, but for the latter's shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Annotated, Any

from pydantic import ConfigDict

from dethpc.domain import facts
from dethpc.master.http.models import Float, Pagination, Plain, Shallow, Wire, time_or_none
from dethpc.master.http.wire.trial import trial_state


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
        trials: Sequence[facts.Trial],
        notes: Sequence[facts.SearchNote],
        ids: Mapping[int, int],
        running: Set[int],
        estimated_end: float | None,
        pagination: Pagination,
    ) -> Search:
        """``described`` is what ``Searcher.describe`` says; ``trials`` those whose places are told, with the searcher's ``notes``
        of them; ``ids`` of all trials that are named, by index; ``running``: those of ``trials`` that run."""
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
            trials=_places(described, trials, notes, ids, running),
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
