"""What simulated trials learn: a model with a seed, or the curves of an earlier experiment."""

from __future__ import annotations

import csv
import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from dethpc.config.sections.hyperparameters import Categorical, Const, Log, Space, parse_space
from dethpc.errors import ConfigError, Problem


class Workload(Protocol):
    """Training code. Everything that it knows is in its ``weights``, which checkpoints hold; they are values, never altered.

    ``steps`` count from 0 in the searcher's unit of length.
    """

    def begin(self, hparams: Mapping[str, Any], seed: int) -> Any:
        """The weights of a new trial."""
        ...

    def train(self, weights: Any, hparams: Mapping[str, Any], start: int, end: int) -> Any:
        """The weights after training from step ``start`` to step ``end``."""
        ...

    def validate(self, weights: Any, hparams: Mapping[str, Any], index: int, steps: int) -> float:
        """The searcher's metric. ``index`` is the trial's number within its experiment."""
        ...


class PowerLaw:
    """Losses that fall as a power of the steps: ``floor + height * (1 + steps) ** -rate``.

    The shape is that of Hestness et al., "Deep Learning Scaling is Predictable, Empirically" (2017). Each hyperparameter has a
    hidden best value; the further from the best values, the higher the floor and the slower the descent. ``noise`` is the
    standard deviation of a validation.
    With ``smaller_is_better`` false the metric is ``1 - loss``.
    """

    def __init__(
        self,
        hyperparameters: Mapping[str, Any],
        seed: int = 0,
        *,
        smaller_is_better: bool = True,
        noise: float = 0.01,
    ) -> None:
        rng = random.Random(f"power law:{seed}")
        self._seed, self._noise, self._smaller_is_better = seed, noise, smaller_is_better
        self._axes = list(_axes(parse_space(hyperparameters)))
        self._best = [rng.uniform(0.2, 0.8) for _ in self._axes]
        raw = [rng.uniform(0.2, 1.0) for _ in self._axes]
        self._weights = [w / sum(raw) for w in raw]
        self._tastes = [
            {_word(v): rng.random() for v in hp.vals} if isinstance(hp, Categorical) else {} for _, hp in self._axes
        ]

    def begin(self, hparams: Mapping[str, Any], seed: int) -> Any:
        return 0

    def train(self, weights: Any, hparams: Mapping[str, Any], start: int, end: int) -> Any:
        return weights + end - start  # a copy goes on from what its parent had trained

    def validate(self, weights: Any, hparams: Mapping[str, Any], index: int, steps: int) -> float:
        distance = self._distance(hparams)
        loss: float = 0.05 + 0.6 * distance + (0.9 - 0.5 * distance) * (1 + weights) ** -(0.7 - 0.4 * distance)
        if self._noise:
            loss += self._noise * random.Random(f"{self._seed}:{index}:{steps}").gauss(0, 1)
        return loss if self._smaller_is_better else 1 - loss

    def _distance(self, hparams: Mapping[str, Any]) -> float:
        """0 at the best hyperparameters, at most 1."""
        total = 0.0
        for (path, hp), best, weight, tastes in zip(self._axes, self._best, self._weights, self._tastes, strict=True):
            value: Any = hparams
            for name in path:
                value = value[name]
            if tastes:
                total += weight * tastes.get(_word(value), 1.0)
                continue
            x = math.log(value, hp.base) if isinstance(hp, Log) else value
            u = (x - hp.minval) / (hp.maxval - hp.minval or 1)
            total += weight * min(1.0, abs(u - best) / max(best, 1 - best))
        return total


def _axes(space: Space, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in sorted(space):
        hp = space[name]
        if isinstance(hp, Mapping):
            yield from _axes(hp, (*path, name))
        elif not isinstance(hp, Const):
            yield (*path, name), hp


def _word(value: Any) -> str:
    return repr(value)


class Replay:
    """The curves of an earlier experiment: trial number i follows curve i, and the first one again after the last.

    Between two of its points a curve is straight; before the first and after the last it is flat.
    """

    def __init__(self, curves: Iterable[tuple[list[float], list[float]]]) -> None:
        self._curves = list(curves)

    @property
    def length(self) -> int:
        """The longest curve's last step."""
        return int(max(steps[-1] for steps, _ in self._curves))

    @classmethod
    def read(cls, lines: Iterable[str], metric: str, file: str = "curves") -> Replay:
        """Read CSV with a header and the columns ``trial``, ``step`` and ``metric`` (others are left alone).

        Rows may come in any order; those without a value for the metric are skipped. Raises ConfigError.
        """
        reader = csv.DictReader(lines)
        columns = reader.fieldnames or []
        missing = [name for name in ("trial", "step", metric) if name not in columns]
        if missing:
            header = ", ".join(columns) or "nothing"
            raise ConfigError(
                [Problem(name, f"there is no column named {name} (found: {header})").at(file, 1) for name in missing]
            )
        points: dict[str, dict[float, float]] = {}
        for row in reader:
            if not row[metric]:
                continue
            try:
                points.setdefault(row["trial"], {})[float(row["step"])] = float(row[metric])
            except (TypeError, ValueError):
                message = f"step {row['step']!r} and {metric} {row[metric]!r} must be numbers"
                raise ConfigError([Problem(metric, message).at(file, reader.line_num)]) from None
        if not points:
            raise ConfigError([Problem(metric, "no row has a value").at(file)])
        order = sorted(points, key=lambda trial: (not trial.isdigit(), int(trial) if trial.isdigit() else 0, trial))
        return cls((sorted(points[t]), [points[t][s] for s in sorted(points[t])]) for t in order)

    def begin(self, hparams: Mapping[str, Any], seed: int) -> Any:
        return None

    def train(self, weights: Any, hparams: Mapping[str, Any], start: int, end: int) -> Any:
        return None

    def validate(self, weights: Any, hparams: Mapping[str, Any], index: int, steps: int) -> float:
        at, values = self._curves[index % len(self._curves)]
        i = bisect_right(at, steps)
        if i == 0 or i == len(at):
            return values[max(0, i - 1)]
        share = (steps - at[i - 1]) / (at[i] - at[i - 1])
        return values[i - 1] + share * (values[i] - values[i - 1])
