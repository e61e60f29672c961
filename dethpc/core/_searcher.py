"""The training length as older code asks for it: ``for op in core_context.searcher.operations()``.

Determined 0.38 deprecated it: the length comes from ``searcher.max_length`` of the configuration and there is one operation.
"""

from __future__ import annotations

import enum
import logging
import warnings
from typing import Any, Callable, Dict, Iterator, Optional

from dethpc.core._distributed import DistributedContext
from dethpc.core._encode import jsonable

logger = logging.getLogger("dethpc.core")

Report = Callable[[str, Dict[str, Any]], Any]


class Unit(enum.Enum):
    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherMode(enum.Enum):
    """``WorkersAskChief``: all workers iterate in step. ``ChiefOnly``: the chief alone does."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHEIF_ONLY"  # spelled as Determined spells it


class SearcherOperation:
    """Train until ``length`` in all (not further by ``length``), then report the searcher's metric."""

    def __init__(self, report: Report, length: int, is_chief: bool) -> None:
        self._report = report
        self._length = length
        self._is_chief = is_chief
        self._completed = False

    @property
    def length(self) -> int:
        """How much training there should have been when this is completed, in the configuration's unit."""
        return self._length

    def report_progress(self, length: float) -> None:
        """Report how much training there has been, in the unit of ``length``. The chief alone."""
        self._only_chief("report_progress")
        if self._completed and length != self._length:
            raise RuntimeError("op.report_progress() after op.report_completed()")
        self._report("progress", {"progress": min(1.0, max(0.0, float(length) / self._length))})

    def report_completed(self, searcher_metric: Any) -> None:
        """The training has reached ``length``, with this value of the searcher's metric. Once, and the chief alone."""
        self._only_chief("report_completed")
        if self._completed:
            raise RuntimeError("op.report_completed() may be called once")
        metric = jsonable(searcher_metric, "searcher_metric")
        self._report("searcher_op", {"length": self._length, "metric": metric})
        self._completed = True

    def _only_chief(self, call: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"only the chief (rank 0) may call op.{call}()")


class SearcherContext:
    """Operations to carry out. New code sets the training length itself."""

    def __init__(self, dist: DistributedContext, report: Report, max_length: int, units: Optional[Unit] = None) -> None:
        self._dist = dist
        self._report = report
        self._length = max_length
        self._units = units

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """The one operation of this trial. Raises RuntimeError when the chief leaves it without ``report_completed``."""
        warnings.warn(
            "searcher.operations() is deprecated since Determined 0.38: set the training length in the training code",
            FutureWarning,
            stacklevel=2,
        )
        yield from self._operations(searcher_mode)

    def _operations(self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief) -> Iterator[SearcherOperation]:
        together = SearcherMode(searcher_mode) is SearcherMode.WorkersAskChief
        if self._dist.rank == 0:
            op = SearcherOperation(self._report, self._length, True)
            if together:
                self._dist.broadcast(op.length)
            yield op
            if not op._completed:
                raise RuntimeError("call op.report_completed() before going on to the next operation")
            if together:
                self._dist.broadcast(None)
        elif not together:
            raise RuntimeError(f"in mode ChiefOnly rank {self._dist.rank} may not call searcher.operations()")
        else:
            length = self._dist.broadcast(None)
            while length is not None:
                yield SearcherOperation(self._report, length, False)
                length = self._dist.broadcast(None)

    def acknowledge_out_of_ops(self) -> None:
        """Does nothing since Determined 0.38."""

    def get_configured_units(self) -> Optional[Unit]:
        """The unit of ``searcher.max_length``, or None when the configuration gives a bare number."""
        return self._units


class DummySearcherOperation(SearcherOperation):
    """An operation off the cluster: reports are logged."""

    def __init__(self, length: int, is_chief: bool) -> None:
        super().__init__(_log, length, is_chief)


class DummySearcherContext(SearcherContext):
    """Off the cluster: one operation of length ``length``."""

    def __init__(self, dist: DistributedContext, length: int = 1) -> None:
        super().__init__(dist, _log, length, Unit.EPOCHS)


class SearcherContextMissing(SearcherContext):
    """The configuration has no ``searcher.max_length``."""

    def __init__(self) -> None:
        pass

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        raise self._missing()

    def acknowledge_out_of_ops(self) -> None:
        raise self._missing()

    def get_configured_units(self) -> Optional[Unit]:
        raise self._missing()

    @staticmethod
    def _missing() -> ValueError:
        return ValueError(
            "core_context.searcher needs searcher.max_length in the experiment's configuration; both are deprecated: better set "
            "the training length in the training code"
        )


def _log(kind: str, data: Dict[str, Any]) -> None:
    logger.info("%s: %s", kind, data)


def _parse_searcher_max_length(experiment_config: Dict[str, Any]) -> Optional[int]:
    length = (experiment_config.get("searcher") or {}).get("max_length")
    if isinstance(length, dict):
        length = next(iter(length.values()), None)
    if length is not None and not isinstance(length, int):
        raise ValueError(f"searcher.max_length is a whole number, or one by its unit, not {length!r}")
    return length


def _parse_searcher_units(experiment_config: Dict[str, Any]) -> Optional[Unit]:
    searcher = experiment_config.get("searcher") or {}
    length = searcher.get("max_length")
    name = searcher.get("unit") or (next(iter(length)) if isinstance(length, dict) and len(length) == 1 else None)
    return {"records": Unit.RECORDS, "epochs": Unit.EPOCHS, "batches": Unit.BATCHES}.get(str(name))
