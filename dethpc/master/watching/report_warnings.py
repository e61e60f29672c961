"""Writes warnings about malformed reports into the trial's log, where its user looks first."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from dethpc.domain.facts import Row, Trial
from dethpc.domain.ids import run_id, task_id
from dethpc.master.durable.ledger import Ledger
from dethpc.master.watching.trouble import write
from dethpc.rundir.home import Home


class ReportWarnings:
    """``write`` is for the reconciler's thread. What an earlier master was told of stands in the log already."""

    def __init__(self, ledger: Ledger, home: Home) -> None:
        self._ledger, self._home = ledger, home
        self._told = {
            trial.id: trial.warning
            for experiment in ledger.state.experiments.values()
            for trial in experiment.trials
            if trial.warning
        }
        self._amiss: queue.SimpleQueue[tuple[str, int, str]] = queue.SimpleQueue()  # run, attempt, words
        ledger.listen(self._committed)

    def _committed(self, rows: Sequence[Row]) -> None:
        """On the ledger's thread: this sees every report."""
        for row in rows:
            if isinstance(row, Trial) and row.warning and self._told.get(row.id) != row.warning:
                self._told[row.id] = row.warning
                run = run_id(task_id(row.experiment_id, row.id), row.runs)
                live = self._ledger.state.runs.get(run)
                self._amiss.put((run, live.attempt if live is not None else 0, row.warning))

    def write(self) -> None:
        """Write what was committed since into the trials' logs."""
        while not self._amiss.empty():
            run, attempt, warning = self._amiss.get()
            write(self._home, run, attempt, warning, "WARNING")
