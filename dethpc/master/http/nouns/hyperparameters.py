"""The route that shows how hyperparameters relate to the searcher's metric."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Depends, Query

from dethpc.config.experiment import ExperimentConfig
from dethpc.insight.hyperparameters import HeatMap, heat_map, importance, logarithmic
from dethpc.master.http.access import Reading, Viewer
from dethpc.master.http.models import Float, Wire
from dethpc.master.http.router import new_router
from dethpc.state import queries


class Importance(Wire):
    name: str
    share: float | None
    direction: float | None
    trials: int


class Cell(Wire):
    trials: int
    mean: Float
    best: Float


class Map(Wire):
    x: str
    y: str
    logarithmic: list[str]
    columns: list[str]
    rows: list[str]
    cells: list[list[Cell | None]]

    @classmethod
    def of(cls, grid: HeatMap) -> Map:
        cells = [
            [Cell(trials=cell.trials, mean=cell.mean, best=cell.best) if cell else None for cell in row]
            for row in grid.cells
        ]
        return cls(
            x=grid.x,
            y=grid.y,
            logarithmic=grid.logarithmic,
            columns=grid.columns,
            rows=grid.rows,
            cells=cells,
        )


class Hyperparameters(Wire):
    """``trials``: so many were looked at, ``of`` so many. ``scales``: whether the configuration draws one by its logarithm."""

    trials: int
    of: int
    scales: dict[str, bool]
    importance: list[Importance]
    map: Map | None


router = new_router(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])

MOST = 1000
"""Trials that are looked at: who looks again and again costs the same, however many there are."""


@dataclass(frozen=True, slots=True)
class MapQuery:
    """The two hyperparameters of a map, and those that are scaled otherwise than the configuration draws them."""

    x: str = ""
    y: str = ""
    log: Annotated[tuple[str, ...], Query()] = ()
    linear: Annotated[tuple[str, ...], Query()] = ()


@router.get("/hyperparameters")
def hyperparameters(
    experiment_id: int, connection: Reading, who: Viewer, query: Annotated[MapQuery, Depends()]
) -> Hyperparameters:
    """Ours: how much each explains, and the metric over two of them: ``x`` and ``y``, or the two most important. Those in ``log``
    and ``linear`` are scaled so, others as the configuration draws them."""
    fact = queries.experiment(connection, experiment_id)
    trials, every = queries.tried(connection, experiment_id, MOST)
    ranking = importance(trials)
    others = [entry.name for entry in ranking if entry.name not in (query.x, query.y)]
    x = query.x or (others.pop(0) if others else "")
    y = query.y or (others.pop(0) if others else "")
    drawn = logarithmic(ExperimentConfig.from_json(fact.config).hyperparameters)
    scales = {**drawn, **dict.fromkeys(query.log, True), **dict.fromkeys(query.linear, False)}
    return Hyperparameters(
        trials=len(trials),
        of=every,
        scales=drawn,
        importance=[Importance(**asdict(entry)) for entry in ranking],
        map=Map.of(heat_map(trials, x, y, fact.smaller_is_better, scales)) if x and y else None,
    )
