"""The final state of a large search, stored in its experiment's folder: replaying a search of 100,000 trials takes seconds.

The file is a cache: one that is missing, damaged, from another release or from an earlier end is ignored.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dethpc.domain.facts import Experiment
from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json, sealed, write_json
from dethpc.rundir.home import Home

log = logging.getLogger(__name__)

FORMAT = 1
"""To be raised with every change of what ``Searcher.describe`` says of the same rows."""

_PER_RUNG = 1000
"""Trials that are kept of each rung: as many as an answer has to whom says no number."""

_MOST = 50_000
"""Trials that are kept of all rungs together: some megabytes."""


@dataclass(frozen=True, slots=True)
class Described:
    """What ``Searcher.describe`` says with at most ``most`` trials in each rung."""

    search: dict[str, Any]
    most: int

    def cut(self, most: int | None) -> dict[str, Any] | None:
        """The same with at most so many (None: all of them), or None where that takes trials which are not in here."""
        if most is None or most > self.most:
            whole = all(len(rung["trials"]) < self.most for rung in self.rungs)
            return self.search if whole else None
        brackets = [
            {**bracket, "rungs": [{**rung, "trials": rung["trials"][:most]} for rung in bracket["rungs"]]}
            for bracket in self.search["brackets"]
        ]
        return {**self.search, "brackets": brackets}

    def shorter(self, most: int) -> Described:
        description = self.cut(most)
        return self if description is None else Described(description, min(self.most, most))

    @property
    def rungs(self) -> list[dict[str, Any]]:
        return [rung for bracket in self.search["brackets"] for rung in bracket["rungs"]]


def read(home: Home, experiment: Experiment) -> Described | None:
    path = home.search(experiment.id)
    try:
        document = read_json(path)
        contents = None if document is None else _Kept.model_validate(document)
    except (OSError, RunDirError, ValidationError) as error:
        log.info("how search %s stood when it ended is computed again: %s", experiment.id, error)
        return None
    identity = FORMAT, experiment.queue_id, experiment.ended_at
    if document is None or contents is None or (contents.format, contents.queue_id, contents.ended_at) != identity:
        return None
    return Described(document["search"], contents.most)


def drop(home: Home, experiment_id: int) -> None:
    with contextlib.suppress(OSError):
        home.search(experiment_id).unlink()


def write(home: Home, experiment: Experiment, described: Described) -> None:
    """Nothing where it cannot be written: it is computed again, then."""
    some = described.shorter(max(1, min(_PER_RUNG, _MOST // max(1, len(described.rungs)))))
    about = {"format": FORMAT, "queue_id": experiment.queue_id, "ended_at": experiment.ended_at, "most": some.most}
    try:
        write_json(home.search(experiment.id), sealed({**about, "search": some.search}), durable=False)
    except OSError as error:
        log.info("how search %s stood when it ended is not kept: %s", experiment.id, error)


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _Trial(_Shape):
    index: _Count
    value: float | None
    went_on: bool
    parent: _Count | None = None


class _Rung(_Shape):
    length: float
    entered: _Count
    went_on: _Count
    cut_off: float | None
    places: _Count | None = None
    promotes: _Count | None = None
    trials: list[_Trial]


class _Bracket(_Shape):
    trials: _Count
    created: _Count | None = None
    max_concurrent_trials: _Count | None = None
    rungs: list[_Rung]


class _Counts(_Shape):
    total: _Count
    created: _Count
    ended: _Count
    invalid: _Count


class _Search(_Shape):
    method: str
    metric: str
    smaller_is_better: bool
    trials: _Counts
    progress: float
    unit: str | None = None
    round: _Count | None = None
    rounds: _Count | None = None
    brackets: list[_Bracket]


class _Kept(_Shape):
    format: int
    queue_id: str
    ended_at: float
    most: Annotated[int, Field(ge=1)]
    search: _Search
