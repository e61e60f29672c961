"""What hyperparameters have to do with the metric, on the wire. Ours; Determined's WebUI works it out in the browser."""

from __future__ import annotations

from dethpc.insight.hyperparameters import HeatMap
from dethpc.master.http.models import Float, Wire


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
    def of(cls, found: HeatMap) -> Map:
        cells = [
            [Cell(trials=each.trials, mean=each.mean, best=each.best) if each else None for each in row]
            for row in found.cells
        ]
        return cls(
            x=found.x,
            y=found.y,
            logarithmic=found.logarithmic,
            columns=found.columns,
            rows=found.rows,
            cells=cells,
        )


class Hyperparameters(Wire):
    """``trials``: so many were looked at, ``of`` so many. ``scales``: whether the configuration draws one by its logarithm."""

    trials: int
    of: int
    scales: dict[str, bool]
    importance: list[Importance]
    map: Map | None
