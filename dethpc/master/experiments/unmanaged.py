"""Experiments that run elsewhere: a script outside the cluster reports over the REST API, and the master writes the journal.

A report is appended to the journal of the trial's current run before it reaches the engine, as training code on the cluster does
it itself: the journal is authoritative here, too, and the database can be rebuilt from it. A script that sends nothing for a while
(its heartbeat comes once a minute) is considered dead.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from dethpc.config.source import dump, read
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Experiment, Row, Run, Trial
from dethpc.domain.ids import run_id, task_id
from dethpc.domain.reports import Report, ReportKind, fault_of
from dethpc.domain.states import Intent, RunState, State, TaskKind
from dethpc.engine import events
from dethpc.errors import ConfigError, NotFound, Problem, Refused
from dethpc.master.durable.records import RecordReader
from dethpc.master.experiments.filing import open_project
from dethpc.master.experiments.journals import Journals, write_log
from dethpc.master.parts import Parts
from dethpc.master.rounds import Rounds
from dethpc.master.watching.foreign_checkpoints import taken_over
from dethpc.rundir.journal import A_LOOK
from dethpc.rundir.journal import read as read_journal
from dethpc.state import queries

log = logging.getLogger(__name__)

SILENCE = 300.0
"""Seconds without a report after which a script counts as dead."""

MOST_WAIT, WAIT_OF_EACH = 0.02, 0.0004
"""Seconds for which a report that no decision follows from waits to be committed with those of others: at most, and for each run
that there is. The script waits as long."""

NO_ENTRYPOINT = "(unmanaged)"
"""The entrypoint of what is started elsewhere."""

_FIELDS = ("name", "description", "labels", "data", "workspace", "project", "checkpoint_storage", "hyperparameters")


class Done(Refused):
    """The chief has said that its trial is done; the last reports of another worker may still be on their way."""


def config_of(text: str) -> str:
    """A configuration that the loader takes, from the sketch that a script sends: what it says of schedulers and searches means
    nothing here. Raises ConfigError."""
    source, problems = read(text, "config")
    if problems:
        raise ConfigError(problems)
    given = source.data
    searcher = given.get("searcher") or {}
    if not isinstance(searcher, dict):
        raise ConfigError([Problem.of_value("searcher", type(searcher).__name__, "a mapping")])
    config = {name: given[name] for name in _FIELDS if given.get(name) is not None}
    config["entrypoint"] = NO_ENTRYPOINT
    config["searcher"] = {"name": "single", "metric": searcher.get("metric") or "unmanaged"}
    if searcher.get("smaller_is_better") is not None:
        config["searcher"]["smaller_is_better"] = searcher["smaller_is_better"]
    return dump(config)


class Unmanaged:
    """Every method may be called from any thread. Each raises NotFound, Refused."""

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._home = parts.home
        self._store = parts.store
        self._lock = threading.Lock()
        self._journals = Journals(parts.home)
        self._heard: dict[str, float] = {}
        self._started = time.monotonic()
        self._rounds = Rounds(
            "unmanaged", self._watch, SILENCE / 10, trouble="unmanaged trials that fell silent could not be ended"
        )
        parts.ledger.listen(self._committed)

    # --- life

    def start(self) -> None:
        """Take in what the last master wrote to the journals and did not live to apply."""
        for run in self._live():
            self._catch_up(run)
        self._started = time.monotonic()
        self._rounds.start()
        self._journals.start()

    def stop(self) -> None:
        self._rounds.stop()
        self._journals.stop()

    # --- what scripts ask for

    def experiment(self, wish: events.CreateExperiment) -> Experiment:
        """A new experiment, or the one that has its ``external_id`` and was not deleted."""

        def checked() -> events.Event:
            open_project(RecordReader(self._store), wish.project_id)  # it may have been deleted or archived meanwhile
            return wish

        with self._lock:
            if wish.external_id:
                with self._store.read() as connection:
                    experiment = queries.experiment_of_external_id(connection, wish.external_id)
                if experiment is not None:
                    return experiment
            row = self._ledger.do_after(checked)[0]
        assert isinstance(row, Experiment)
        return row

    def trial(self, experiment_id: int, hparams: dict[str, Any], external_id: str | None) -> Trial:
        """A new trial, or the one of the experiment that has this ``external_id``."""
        self._remember(experiment_id)
        experiment = self._ledger.state.experiments[experiment_id]
        key = uuid.UUID(experiment.row.queue_id)
        request_id = str(uuid.uuid5(key, f"trial {external_id}") if external_id else uuid.uuid4())
        self._ledger.do(events.AddTrial(experiment_id, hparams, request_id, time.time(), external_id or ""))
        return next(trial for trial in reversed(experiment.trials) if trial.request_id == request_id)

    def begin(self, trial_id: int, *, resume: bool) -> Run:
        """A script starts the trial; with ``resume`` from its latest checkpoint."""
        self._forget_ended()
        trial = self._trial(trial_id)

        def read() -> events.Event:
            with self._store.read() as connection:
                attempts = queries.attempts_of_trial(connection, trial_id)
                checkpoints = queries.checkpoints_of_trial(connection, trial_id)
                order = {run.id: run.number for run in queries.runs_of_trial(connection, trial_id)}
            attempts.sort(key=lambda attempt: (order[attempt.run_id], attempt.number))
            return events.BeginTrial(trial_id, resume, time.time(), attempts, checkpoints)

        if trial.state.terminal:
            rows = self._ledger.do_after(read)
        else:
            rows = self._ledger.do(events.BeginTrial(trial_id, resume, time.time()))
        run = next(row for row in reversed(rows) if isinstance(row, Run))
        self._heard[run.id] = time.monotonic()
        return run

    def report(self, trial_id: int, kind: ReportKind, data: dict[str, Any], run_number: int | None = None) -> None:
        """One report. ``run_number``, where the script gives it, shuts out one that another has replaced."""
        self.begin_report(trial_id, kind, data, run_number).result()

    def begin_report(
        self, trial_id: int, kind: ReportKind, data: dict[str, Any], run_number: int | None = None
    ) -> Future[list[Row]]:
        """As ``report``, without waiting until it is committed. It is in the journal when this returns. Raises Done where the chief
        has said that the trial is; Refused for what would count for nothing."""
        if why := fault_of(kind, data):
            raise Refused(f"this cannot be reported: {why}")
        run = self._run(trial_id, run_number)
        journal = self._journals.of(run.id)
        with journal.lock:
            if (end := journal.end) is None:
                report = journal.append(run.id, kind, data)
                event = events.Reported(run.id, 0, [report], time.time(), journal.writer.offset)
                applied = self._ledger.post(event, self._patience(report))
        if end is not None:
            end.result()
            return self.begin_report(trial_id, kind, data, run_number)
        self._heard[run.id] = time.monotonic()
        return applied

    def _patience(self, report: Report) -> float:
        """Seconds for which a report may wait to be committed with others: for no company that there is not."""
        return 0.0 if report.durable else min(MOST_WAIT, WAIT_OF_EACH * len(self._ledger.state.runs))

    def state(self, trial_id: int, state: str) -> None:
        """The script says how the trial stands; "" is a mere sign of life."""
        if state in ("COMPLETED", "ERROR"):
            run = self._run(trial_id)
            finished = state == "COMPLETED"
            message = "" if finished else "the script ended with an error"
            self._over(run, EndReport(finished, exit_code=0 if finished else 1, message=message))
            self._forget_ended()
        elif state == "CANCELED":
            self._ledger.do(events.KillTrial(self._trial(trial_id).id, time.time()))
        else:
            self._heard[self._run(trial_id).id] = time.monotonic()

    def log(self, trial_id: int, rank: int | None, lines: Iterable[str]) -> None:
        """Output, which may come after the word that the trial is over."""
        trial = self._trial(trial_id)
        write_log(self._home, run_id(task_id(trial.experiment_id, trial.id), trial.runs), rank, lines)

    def running(self, trial_id: int) -> bool:
        trial = self._trial(trial_id)
        experiment = self._ledger.state.experiments.get(trial.experiment_id)
        return experiment is not None and trial.index in experiment.live

    def kind_in_memory(self, trial_id: int) -> TaskKind | None:
        """What the trial is; None: ask the database."""
        state = self._ledger.state
        trial = state.trial(trial_id)
        experiment = None if trial is None else state.experiments.get(trial.experiment_id)
        return None if experiment is None else experiment.row.kind

    def steps(self, trial_id: int) -> int:
        return self._trial(trial_id).steps_completed

    # --- inside

    def _trial(self, trial_id: int) -> Trial:
        """The trial in the engine's memory, brought back there where it ended long ago."""
        trial = self._ledger.state.trial(trial_id)
        if trial is None:
            with self._store.read() as connection:
                experiment_id = queries.trial(connection, trial_id).experiment_id
            self._remember(experiment_id)
            trial = self._ledger.state.trial(trial_id)
        if trial is None:
            raise NotFound(f"no trial {trial_id}")
        if self._ledger.state.experiments[trial.experiment_id].row.kind is not TaskKind.UNMANAGED_TRIAL:
            raise Refused(f"trial {trial_id} is not unmanaged: it reports through its run's journal")
        return trial

    def _remember(self, experiment_id: int) -> None:
        live = self._ledger.state.experiments.get(experiment_id)
        if live is not None and live.trials:
            return

        def read() -> events.Event:
            with self._store.read() as connection:
                experiment = queries.experiment(connection, experiment_id)
                if experiment.kind is not TaskKind.UNMANAGED_TRIAL:
                    raise Refused(
                        f"experiment {experiment_id} is not unmanaged: its trials report through their journals"
                    )
                return events.LoadExperiment(experiment, queries.trials_of_experiment(connection, experiment_id))

        self._ledger.do_after(read)

    def _run(self, trial_id: int, number: int | None = None) -> Run:
        trial = self._trial(trial_id)
        run = self._ledger.state.experiments[trial.experiment_id].live.get(trial.index)
        if run is None and trial.state is State.COMPLETED:
            raise Done(f"trial {trial_id} is {trial.state.value}: start it again to report more")
        if run is None:
            why = f" ({trial.reason})" if trial.reason else ""
            raise Refused(f"trial {trial_id} is {trial.state.value}{why}: start it again to report more")
        if number is not None and number != run.number:
            raise Refused(f"trial {trial_id} was started again (run {run.number}): run {number} is over")
        return run

    def _is_unmanaged(self, run: Run) -> bool:
        task = self._ledger.state.tasks.get(run.task_id)
        return task is not None and task.kind is TaskKind.UNMANAGED_TRIAL

    def _live(self) -> list[Run]:
        return [run for run in list(self._ledger.state.runs.values()) if self._is_unmanaged(run)]

    def _catch_up(self, run: Run) -> None:
        attempt = self._ledger.state.attempt(run.id, 0)
        if attempt is None:
            return
        path = self._home.run(run.id).attempt(0).journal
        offset, seq = attempt.applied_offset, attempt.applied_seq
        while True:
            reports, end = read_journal(path, offset, seq, A_LOOK)
            if end == offset:
                break
            others = taken_over(self._ledger, self._store, run.id, reports)
            self._ledger.do(events.Reported(run.id, 0, reports, time.time(), end, others=others))
            offset = end
        if run.intent is not Intent.GO:
            self._end(run, "")

    def _committed(self, rows: Sequence[Row]) -> None:
        """On the ledger's thread: runs that the owner wants no more end at once, for nobody can be told."""
        for row in rows:
            if not isinstance(row, Run):
                continue
            if row.state is not RunState.ENDED and row.intent is not Intent.GO and self._is_unmanaged(row):
                self._end(row, "")

    def _forget_ended(self) -> None:
        """Not when the end is committed, but later: a request may be writing to the journal, or about to."""
        live = self._ledger.state.runs
        self._journals.close_but(live)
        for over in [id for id in list(self._heard) if id not in live]:
            self._heard.pop(over, None)

    def _over(self, run: Run, report: EndReport) -> None:
        """The script's last word of a run. A client that reports meanwhile hears what became of it."""
        journal = self._journals.of(run.id)
        with journal.lock:
            journal.end = self._ledger.post(events.AttemptEnded(run.id, run.attempt, report, None, time.time()))
        try:
            journal.end.result()
        except BaseException:
            journal.end = None
            raise

    def _end(self, run: Run, why: str) -> None:
        self._ledger.post(events.AttemptEnded(run.id, run.attempt, None, None, time.time(), log_tail=why))

    def _watch(self) -> None:
        self._forget_ended()
        for run in self._live():
            if time.monotonic() - self._heard.get(run.id, self._started) > SILENCE:
                self._end(run, f"the script has reported nothing for {SILENCE / 60:.0f} minutes")


def states(name: str) -> str:
    """What a client's name of a trial's state means to ``Unmanaged.state``. Raises Refused."""
    plain = name.removeprefix("STATE_")
    if plain in ("", "UNSPECIFIED", "RUNNING", "ACTIVE"):
        return ""
    if plain in (State.COMPLETED.value, State.ERROR.value, State.CANCELED.value):
        return plain
    raise Refused(f"an unmanaged trial can be set to RUNNING, COMPLETED, ERROR or CANCELED, not to {plain}")
