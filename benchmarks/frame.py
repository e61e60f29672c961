"""The frame of every benchmark: figures with intervals, rows beside peers and limits, windows that take turns, the command line.

A benchmark is a module with a docstring that says what is measured and how (it stands above its table in docs/benchmarks.md), a
function that yields rows, and at its end::

    if __name__ == "__main__":
        run(__doc__, rows)
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

T = TypeVar("T")
RESAMPLES = 1000


@dataclass(frozen=True)
class Figure:
    """One value, and where it lies with 95 % confidence; both ends are None where it was counted or measured once."""

    middle: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        return (self.middle if self.low is None else self.low), (self.middle if self.high is None else self.high)

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" ({number(self.low)} to {number(self.high)})"
        return number(self.middle) + interval


def median(values: Sequence[float], statistic: Callable[[Sequence[float]], float] = statistics.median) -> Figure:
    """The median of what was measured (or another statistic), with a 95 % bootstrap interval that follows from the values."""
    middle = statistic(values)
    if len(values) < 3:
        return Figure(middle)
    draw = random.Random(0)
    drawn = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return Figure(middle, drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """The median of the ratios of neighbours, ours over theirs, so that what else the machine does meets both."""
    return median([a / b for a, b in zip(ours, theirs, strict=True)])


EMPTY_PYTHON = 0.009
"""Seconds in which an empty Python starts on the machine of the limits."""

TIMES = frozenset({"ms", "us", "µs", "s", "cores", "% of a core"})
"""Units of time and of processor time, up to what follows an "of"."""

Rule = Literal["<=", ">="]
Verdict = Literal["met", "not met", "not shown", ""]


@dataclass(frozen=True)
class Row:
    """What one thing costs here, and what it costs elsewhere; all figures but the ratio are in ``unit``.

    ``ratio`` is ours over the first peer. ``limit`` is for ``of``: ours or the ratio.
    """

    name: str
    unit: str
    ours: Figure
    peers: Mapping[str, Figure] = field(default_factory=dict)
    limit: float | None = None
    ratio: Figure | None = None
    rule: Rule = "<="
    of: Literal["ours", "ratio"] = "ours"
    note: str = ""
    slowness: float = 1.0
    """How many times as long as on the machine of the limits an empty Python took to start, just before and after."""

    @property
    def judged(self) -> Figure:
        if self.of == "ours":
            return self.ours
        assert self.ratio is not None, f"{self.name}: its limit is for the ratio, which is not given"
        return self.ratio

    @property
    def verdict(self) -> Verdict:
        """``not shown``: the interval has values on both sides of the limit."""
        if self.limit is None:
            return ""
        within = [end <= self.scaled if self.rule == "<=" else end >= self.scaled for end in self.judged.ends]
        return "met" if all(within) else "not shown" if any(within) else "not met"

    @property
    def bound(self) -> str:
        if self.limit is None:
            return ""
        sign = "≤" if self.rule == "<=" else "≥"
        here = "" if self.scaled == self.limit else f" ({number(self.scaled)} here)"
        return f"{sign} {number(self.limit)}{here} {self.unit if self.of == 'ours' else 'times'}".strip()

    @property
    def scaled(self) -> float:
        """The limit on this machine: that of a time, or of a rate, goes with the time that an empty Python takes; that of a
        ratio, a size or a count is the same everywhere."""
        assert self.limit is not None
        if self.of == "ours" and not TIMES.isdisjoint((self.unit, self.unit.partition(" of ")[0])):
            return self.limit * self.slowness
        if self.of == "ours" and self.rule == ">=" and self.unit.endswith("a second"):
            return self.limit / self.slowness
        return self.limit

    @staticmethod
    def of_json(stored: Mapping[str, Any]) -> Row:
        figures = {name: Figure(**stored[name]) for name in ("ours", "ratio") if stored[name] is not None}
        peers = {name: Figure(**figure) for name, figure in stored["peers"].items()}
        return Row(**{**stored, **figures, "peers": peers})


def number(value: float) -> str:
    """Three significant digits, more for what is larger than 1,000."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0")


# --- measuring ----------------------------------------------------------------------------------------------------------


class Spent(NamedTuple):
    """Seconds by the clock, which also has what other work on the machine takes, and of processor time."""

    clock: float
    cpu: float


def timed(act: Callable[[], object], cpu: Callable[[], float] = time.process_time) -> Spent:
    busy, begin = cpu(), time.perf_counter()
    act()
    return Spent(time.perf_counter() - begin, cpu() - busy)


def slowness() -> float:
    """How many times as long as on the machine of the limits an empty Python takes to start, now; 1 on a faster one."""
    starts = [timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)).clock for _ in range(7)]
    return max(1.0, statistics.median(starts) / EMPTY_PYTHON)


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has had so far, to the nanosecond, its threads that have ended included. Raises
    OSError: it is over."""
    return time.clock_gettime(~pid << 3 | 2)  # Linux's number for the clock of a process (clock_getcpuclockid)


def cpu_of_children() -> float:
    """Seconds of processor time of the processes that this one has run to their ends."""
    ran = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ran.ru_utime + ran.ru_stime


def alternate(ways: Mapping[str, Callable[[], T]], rounds: int, warm: int = 1) -> dict[str, list[T]]:
    """What each way gave in each round; ``warm`` rounds before them do not count.

    The order is drawn for every two rounds and turned round in the second (ABBA), so that neither coming first nor a machine that
    grows busier favours a way.
    """
    found: dict[str, list[T]] = {name: [] for name in ways}
    draw, order = random.Random(0), list(ways)
    for round in range(-warm, rounds):
        if round % 2 == 0:
            draw.shuffle(order)
        for name in order if round % 2 == 0 else order[::-1]:
            result = ways[name]()
            if round >= 0:
                found[name].append(result)
    return found


# --- the command line ---------------------------------------------------------------------------------------------------


def line(row: Row) -> str:
    peers = ", ".join(f"{name} {figure}" for name, figure in row.peers.items())
    parts = [f"{row.ours} {row.unit}", peers, "" if row.ratio is None else f"ratio {row.ratio}"]
    parts += [f"limit {row.bound}: {row.verdict}" if row.bound else "", row.note]
    return f"{row.name:50} " + "   ".join(part for part in parts if part)


def run(
    doc: str | None,
    rows: Callable[[argparse.Namespace], Iterable[Row]],
    arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> None:
    """The command of a module. ``rows`` gets its options: ``quick``, and those that ``arguments`` adds."""
    method = inspect.cleandoc(doc or "")
    parser = argparse.ArgumentParser(description=method, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller counts: less than 40 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments(parser)
    options = parser.parse_args()
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # an installed dethpc is compiled: what starts here must not be each time
    began, load = time.monotonic(), os.getloadavg()[0]
    figures = list(_scaled(rows(options)))
    if options.json is not None:
        result = {
            "method": method,
            "quick": options.quick,
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "load": [round(load, 1), round(os.getloadavg()[0], 1)],
            "seconds": round(time.monotonic() - began),
            "rows": [_rounded(asdict(row)) for row in figures],
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def _scaled(rows: Iterable[Row]) -> Iterator[Row]:
    before = slowness()
    for row in rows:
        after = slowness()
        scaled = replace(row, slowness=(before + after) / 2)
        print(line(scaled), flush=True)
        yield scaled
        before = after


def _rounded(value: Any) -> Any:
    """Five digits, so that a file of figures stays small and readable."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return {name: _rounded(part) for name, part in value.items()} if isinstance(value, dict) else value


def machine() -> str:
    """In general words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = os.cpu_count()
    return f"{cores} cores, {memory:.0f} GiB of memory, {platform.system()}, Python {sys.version_info[0]}.{sys.version_info[1]}"
