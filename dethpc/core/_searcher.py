"""The training length as older code asks for it: ``for op in core_context.searcher.operations()``.

Lengths are in the configuration's unit: that of ``searcher.max_length``, or ``searcher.time_metric`` where it names a unit. A
search that compares trials on the way has an operation for each length at which it does, so that code which validates only when
an operation is complete is compared as well. The search's verdict on a completed operation comes as preemption.
"""

from __future__ import annotations

import enum
import logging
import math
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

from dethpc.core._distributed import DistributedContext
from dethpc.core._encode import jsonable
from dethpc.domain.reports import ReportKind
from dethpc.domain.trial_config import SearcherConfig

logger = logging.getLogger("dethpc.core")

Send = Callable[[ReportKind, Dict[str, Any]], Any]


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

    def __init__(self, report: Send, length: int, is_chief: bool, unit: Optional[Unit] = None) -> None:
        self._report = report
        self._length = length
        self._is_chief = is_chief
        self._unit = {"unit": unit.value} if unit is not None else {}
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
        self._report(ReportKind.PROGRESS, {"progress": min(1.0, max(0.0, float(length) / self._length))})

    def report_completed(self, searcher_metric: Any) -> None:
        """The training has reached ``length``, with this value of the searcher's metric. Once, and the chief alone."""
        self._only_chief("report_completed")
        if self._completed:
            raise RuntimeError("op.report_completed() may be called once")
        metric = jsonable(searcher_metric, "searcher_metric")
        self._report(ReportKind.SEARCHER_OP, {"length": self._length, **self._unit, "metric": metric})
        self._completed = True

    def _only_chief(self, call: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"only the chief (rank 0) may call op.{call}()")


class SearcherContext:
    """Operations to carry out. New code sets the training length itself."""

    def __init__(
        self,
        dist: DistributedContext,
        report: Send,
        max_length: Union[int, Sequence[int]],
        units: Optional[Unit] = None,
        completed: Callable[[], float] = lambda: 0,
        leave: Callable[[], bool] = lambda: False,
    ) -> None:
        """``max_length``: the target, or all targets, increasing. On the chief, ``completed`` says what length was completed
        before this start, and ``leave``, which knows the master's answer to what was reported, whether the trial should leave
        rather than begin another operation."""
        self._dist = dist
        self._report = report
        self._lengths = [max_length] if isinstance(max_length, int) else list(max_length)
        self._units = units
        self._completed = completed
        self._leave = leave

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """The operations that this trial has yet to complete. The iteration ends when the trial should stop, also between two.

        Raises RuntimeError when the chief goes on without ``report_completed``.
        """
        warnings.warn(
            "searcher.operations() is deprecated since Determined 0.38: set the training length in the training code",
            FutureWarning,
            stacklevel=2,
        )
        yield from self._operations(searcher_mode)

    def _operations(self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief) -> Iterator[SearcherOperation]:
        together = SearcherMode(searcher_mode) is SearcherMode.WorkersAskChief
        if self._dist.rank == 0:
            completed = self._completed()
            for length in self._lengths:
                if length <= completed:
                    continue
                if self._leave():
                    break
                op = SearcherOperation(self._report, length, True, self._units)
                if together:
                    self._dist.broadcast(op.length)
                yield op
                if not op._completed:
                    raise RuntimeError("call op.report_completed() before asking for the next operation")
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
        """The unit of the lengths, or None when the configuration gives bare numbers."""
        return self._units


class DummySearcherOperation(SearcherOperation):
    """An operation outside the cluster: reports are logged."""

    def __init__(self, length: int, is_chief: bool) -> None:
        super().__init__(_log, length, is_chief)


class DummySearcherContext(SearcherContext):
    """Outside the cluster: one operation of length ``length``."""

    def __init__(self, dist: DistributedContext, length: int = 1) -> None:
        super().__init__(dist, _log, length, Unit.EPOCHS)


class SearcherContextMissing(SearcherContext):
    """The configuration says no length."""

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
            "core_context.searcher needs searcher.max_length in the experiment's configuration (or a time_metric that is batches, "
            "records or epochs); it is deprecated: set the training length in the training code instead"
        )


def _log(kind: str, data: Dict[str, Any]) -> None:
    logger.info("%s: %s", kind, data)


_UNITS = {"records": Unit.RECORDS, "epochs": Unit.EPOCHS, "batches": Unit.BATCHES}


def _lengths(searcher: SearcherConfig, search: Dict[str, Any]) -> List[int]:
    """The targets of a trial: what its search keeps for it (``lengths``, or the one ``length`` so far), else the full length."""
    of_trial = search.get("lengths") or search.get("length")
    if of_trial:
        return sorted({math.ceil(length) for length in (of_trial if isinstance(of_trial, list) else [of_trial])})
    return [searcher.full_length] if searcher.full_length else []


# Published code calls these two.


def _parse_searcher_max_length(experiment_config: Dict[str, Any]) -> Optional[int]:
    return SearcherConfig.of(experiment_config).full_length


def _parse_searcher_units(experiment_config: Dict[str, Any]) -> Optional[Unit]:
    return _unit(SearcherConfig.of(experiment_config))


def _unit(searcher: SearcherConfig) -> Optional[Unit]:
    return None if searcher.unit is None else _UNITS[searcher.unit]


def _other_length(searcher: SearcherConfig, epochs: Optional[float], batches: Optional[float]) -> Optional[str]:
    """A search that compares trials on the way reckons with its own full length: what to say where training has another."""
    length, unit = searcher.full_length, _unit(searcher)
    mine = {Unit.EPOCHS: epochs, Unit.BATCHES: batches}.get(unit) if unit is not None else None
    if unit is None or length is None or mine is None or mine == length:
        return None
    return f"trains {mine:g} {unit.value.lower()}, and the searcher's configuration says {length}"
