"""``Sweep``, a running sweep: a future for each trial, progress, and the table of results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

from dethpc import errors
from dethpc.client import Session
from dethpc.client.nouns import experiments, logs
from dethpc.client.session import Json, patiently
from dethpc.domain.nested import leaves
from dethpc.domain.text.not_finite import numbers_in
from dethpc.domain.trial_config import SearcherConfig
from dethpc.sweeps import own_master

_ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETE_FAILED", "DELETED")
_POLL = 1.0  # seconds between two looks
_TAIL = 200  # lines of a log in which a traceback is looked for


class TrialFailed(errors.DethpcError):
    """A trial of a sweep has no result; the text has the reason and, where there is one, the function's traceback."""


class TrialFuture:
    """One trial: ``trial_id``, ``hparams``, ``state``, and its result once it has ended. As of the last look of its sweep."""

    def __init__(self, sweep: Sweep, wire: Json) -> None:
        self._sweep = sweep
        self._wire = wire
        self.trial_id = int(wire["id"])
        self.hparams: Json = numbers_in(wire.get("hparams") or {})

    @property
    def state(self) -> str:
        return str(self._wire.get("state") or "").removeprefix("STATE_")

    def done(self) -> bool:
        """Whether the trial has ended."""
        return self.state in _ENDED

    def result(self, timeout: Optional[float] = None) -> dict[str, Any]:
        """The metrics of its best validation, by the searcher's metric. Waits ``timeout`` seconds at most (None: any time).

        Raises TrialFailed with the function's traceback, TimeoutError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"trial {self.trial_id} is {self.state} after {timeout:g} s")
            time.sleep(_POLL)
            self._sweep.refresh()
        if (failure := self.exception()) is not None:
            raise failure
        return self.metrics

    @property
    def metrics(self) -> dict[str, Any]:
        """What it reported so far, of its best validation; {} before the first."""
        validation = self._wire.get("bestValidation") or self._wire.get("latestValidation") or {}
        averages = (validation.get("metrics") or {}).get("avgMetrics") or {}
        return dict(numbers_in(averages))

    def exception(self) -> Optional[TrialFailed]:
        """Why an ended trial has no result; None when it has one, or has not ended."""
        if not self.reason:
            return None
        return TrialFailed(f"trial {self.trial_id} {self.hparams}: {self.reason}{self._traceback()}")

    @property
    def reason(self) -> str:
        """The same in a line, without the traceback; "" when there is none."""
        if not self.done() or (self.state == "COMPLETED" and self.metrics):
            return ""
        nothing = "it reported nothing" if self.state == "COMPLETED" else self.state
        return str(self._wire.get("reason") or nothing)

    def _traceback(self) -> str:
        """The last traceback in its log."""
        try:
            lines = list(logs.read(self._sweep.session, self.trial_id, logs.Filter(), tail=_TAIL))
        except errors.DethpcError:
            return ""
        texts = [str(line.get("log") or line.get("message") or "").rstrip("\n") for line in lines]
        texts = [text for text in texts if not text.startswith("dethpc: ")]  # what the reason says already
        starts = [n for n, text in enumerate(texts) if "Traceback (most recent call last):" in text]
        return "\n" + "\n".join(texts[starts[-1] :]) if starts else ""

    def __repr__(self) -> str:
        return f"TrialFuture({self.trial_id}, {self.state}, {self.hparams})"


class Sweep:
    """The trials of one sweep, in the order in which the search made them; a search that decides as it goes makes more of them.

    As a context manager it kills what still runs when the block ends in an exception, Ctrl-C among them. Otherwise Ctrl-C ends
    the waiting alone, and ``dethpc.sweeps.attach(experiment_id)`` takes it up again.
    """

    def __init__(self, session: Session, experiment_id: int) -> None:
        self.session = session
        self.experiment_id = experiment_id
        self._futures: dict[int, TrialFuture] = {}
        self._about: Json = {}
        self._searcher: Optional[SearcherConfig] = None
        self._in_block = False

    @property
    def state(self) -> str:
        """Of the experiment, as of the last look."""
        return str(self._about.get("state") or "ACTIVE").removeprefix("STATE_")

    @property
    def metric(self) -> str:
        return self._by().metric

    def done(self) -> bool:
        return self.state in _ENDED

    @property
    def trials(self) -> list[TrialFuture]:
        """Those that there are now."""
        self.refresh()
        return list(self._futures.values())

    def refresh(self) -> None:
        """Look at the experiment and its trials; bears with a master that restarts, and starts one's own again where it was killed.

        Raises MasterUnreachable.
        """
        about, rows = patiently(self._look)
        self._about = about["experiment"]
        self._searcher = SearcherConfig.of(about.get("config") or {})
        for wire in rows:
            future = self._futures.setdefault(int(wire["id"]), TrialFuture(self, wire))
            future._wire = wire

    def _look(self) -> tuple[Json, list[Json]]:
        own_master.start_again(self.session)
        about = experiments.get(self.session, self.experiment_id)  # first: trials made before its end are then seen
        return about, list(experiments.trials(self.session, self.experiment_id))

    def as_completed(self, timeout: Optional[float] = None) -> Iterator[TrialFuture]:
        """Each trial once, as it ends, until the search is over. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        given: set[int] = set()
        while True:
            self.refresh()
            for number, future in list(self._futures.items()):
                if number not in given and future.done():
                    given.add(number)
                    yield future
            if self.done():
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"experiment {self.experiment_id} is {self.state} after {timeout:g} s")
            time.sleep(_POLL)

    def wait(self, timeout: Optional[float] = None, *, progress: bool = True) -> Sweep:
        """Wait for the end, with a bar on a terminal or in a notebook and a line for each ended trial elsewhere; returns itself.

        Raises TimeoutError. Ctrl-C ends the waiting, and the sweep goes on.
        """
        show = _bar(self) if progress else None
        try:
            for future in self.as_completed(timeout):
                if show is not None:
                    show(future)
        except KeyboardInterrupt:
            if not self._in_block:
                again = f"dethpc.sweeps.attach({self.experiment_id}).wait()"
                print(f"\nexperiment {self.experiment_id} goes on. To wait again: {again}; ", end="", file=sys.stderr)
                print(f"to end it: det experiment kill {self.experiment_id}", file=sys.stderr)
            raise
        finally:
            if show is not None:
                show(None)
        return self

    def result(self, timeout: Optional[float] = None, *, progress: bool = True) -> Any:
        """Wait for the end, then the table (``table``)."""
        return self.wait(timeout, progress=progress).table()

    def table(self) -> Any:
        """A row for each trial: trial, state, hyperparameters, metrics, and the reason where it failed. A pandas DataFrame where
        pandas is installed, else a list of dicts. A metric that has a hyperparameter's name gets a ``metric.`` before it."""
        rows = []
        for future in self.trials:
            row: Json = {"trial": future.trial_id, "state": future.state, **dict(leaves(future.hparams))}
            row.update((name if name not in row else f"metric.{name}", value) for name, value in future.metrics.items())
            row["reason"] = future.reason
            rows.append(row)
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.DataFrame(rows)

    @property
    def best(self) -> TrialFuture:
        """The trial with the best value so far. Raises TrialFailed when no trial has one; its text has the first failure."""
        by, trials = self._by(), self.trials
        with_value = [(future.metrics.get(by.metric), future) for future in trials]
        numbers = [(value, f) for value, f in with_value if isinstance(value, (int, float)) and value == value]
        if not numbers:
            first = next((failure for future in trials if (failure := future.exception()) is not None), None)
            why = f"\n{first}" if first else "" if self.done() else " yet; the sweep still runs: call wait() first"
            raise TrialFailed(f"experiment {self.experiment_id}: no trial has a {by.metric} that is a number{why}")
        return (min if by.smaller_is_better else max)(numbers, key=lambda pair: pair[0])[1]

    def cancel(self) -> None:
        """End it; its trials may checkpoint first."""
        experiments.act(self.session, self.experiment_id, "cancel")

    def kill(self) -> None:
        """End it now."""
        experiments.act(self.session, self.experiment_id, "kill")

    def plot(self) -> None:
        """Print the curves of the best trials (``det experiment plot``)."""
        from subprocess import run

        self.refresh()  # the master may have moved
        done = run(
            [sys.executable, "-m", "dethpc.cli", "-m", self.session.url, "experiment", "plot", str(self.experiment_id)]
        )
        done.check_returncode()

    def _by(self) -> SearcherConfig:
        if self._searcher is None:
            self.refresh()
        assert self._searcher is not None
        return self._searcher

    def __enter__(self) -> Sweep:
        self._in_block = True
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._in_block = False
        if kind is not None and not self.done():
            try:
                self.kill()
                print(f"experiment {self.experiment_id} is killed", file=sys.stderr)
            except errors.DethpcError as failure:
                print(f"experiment {self.experiment_id} was not killed: {failure}", file=sys.stderr)

    def __repr__(self) -> str:
        return f"Sweep(experiment {self.experiment_id}, {self.state})"


def _bar(sweep: Sweep) -> Callable[[Optional[TrialFuture]], None]:
    """Call it with each trial that ended, and at last with None."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    metric, count = sweep.metric, 0

    def summary(future: TrialFuture) -> str:
        value = future.metrics.get(metric)
        number = f"{value:.6g}" if isinstance(value, (int, float)) else "-"
        return f"trial {future.trial_id}: {future.state}, {metric} {number}"

    if not (console.is_terminal or console.is_jupyter):

        def line(future: Optional[TrialFuture]) -> None:
            if future is not None:
                print(summary(future), file=sys.stderr)

        return line
    bar = Progress(console=console)
    task = bar.add_task(f"experiment {sweep.experiment_id}", total=1.0)
    bar.start()

    def move(future: Optional[TrialFuture]) -> None:
        nonlocal count
        if future is None:
            bar.update(task, completed=1.0 if sweep.state == "COMPLETED" else float(sweep._about.get("progress") or 0))
            bar.stop()
            return
        count += 1
        bar.update(
            task, completed=float(sweep._about.get("progress") or 0), description=f"{count} ended; {summary(future)}"
        )

    return move
