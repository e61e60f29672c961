"""Imports an archive of an experiment.

The whole archive is checked first and unpacked beside the run directories. One commit then creates the experiment, with new ids;
its files are moved to the paths of these ids, and its metrics follow. A master that is killed in between continues the import at
its next start.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dethpc import storage
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain import copies
from dethpc.domain.facts import IN_MEMORY, Attempt, Checkpoint, Experiment, Metric, Run, SearchNote, Task, Trial
from dethpc.domain.ports import Snapshot
from dethpc.domain.reports import too_deep
from dethpc.domain.states import CheckpointState
from dethpc.engine import events
from dethpc.engine.copies import NewIds
from dethpc.errors import ConfigError, DethpcError, Refused, StoreError
from dethpc.master.durable import contexts
from dethpc.master.durable.row_file import from_line
from dethpc.master.experiments.archives.exporting import of_trials
from dethpc.master.parts import Parts
from dethpc.rundir.files import exists
from dethpc.rundir.tree import remove
from dethpc.state import queries
from dethpc.storage.base import is_name
from dethpc.storage.ownership import is_uuid

log = logging.getLogger(__name__)

T = TypeVar("T")

_AT_ONCE = 2000
"""Metrics that are committed at once: others' wishes come in between."""

_LONGEST_LINE = 64 << 20
_LARGEST_ABOUT = 1 << 20
_LARGEST_CONTEXT = 256 << 20


class ArchiveContents(NamedTuple):
    """What an archive holds."""

    about: dict[str, Any]
    past: Snapshot
    uuids: list[str]  # of the checkpoints whose files it has


class Copies:
    """Takes in experiments of other installations. Any thread may call; one archive is taken in at a time.

    ``storage`` is this installation's ``checkpoint_storage`` section, where checkpoints of archives go."""

    def __init__(self, parts: Parts) -> None:
        self._home = parts.home
        self._ledger = parts.ledger
        self._store = parts.store
        self.storage = parts.installation.checkpoint_storage
        self.cluster_id = parts.cluster_id
        self._one = threading.Lock()

    def look(self, path: Path) -> tuple[ArchiveContents, list[str]]:
        """What is in the archive, and which of its checkpoints have a name that another one has here. Raises Refused for what is
        no whole archive."""
        contents = _opened(path, read)
        return contents, self._conflicts(contents.past)

    def _conflicts(self, past: Snapshot) -> list[str]:
        with self._store.read() as connection:
            return [
                row.uuid for row in queries.checkpoints_by_id(connection, [row.uuid for row in past.of(Checkpoint)])
            ]

    def taken_in(self, path: Path) -> Experiment | None:
        """The experiment that this archive has become here already, unless that was deleted. Raises Refused."""
        key = _opened(path, content_key)
        with self._store.read() as connection:
            return queries.experiment_of_archive(connection, key)

    def take_in(
        self, path: Path, owner: str, copied: Mapping[str, str], queue_id: str = "", again: bool = False
    ) -> Experiment:
        """The experiment. ``copied``: the checkpoints whose files are in ``storage`` by now, and what they are called there; their
        manifests name the experiment ``queue_id``. One that was taken in before is left as it is, unless ``again``.

        Raises Refused, ConfigError, ContextError, OSError; nothing is left then.
        """
        queue_id = self._checked(queue_id)
        with self._one:
            if not again and (before := self.taken_in(path)) is not None:
                return before
            # Two that are imported of one archive differ in what follows its key.
            staged = self._home.copies / f"{_opened(path, content_key)}.{secrets.token_hex(4)}"
            try:
                self._commit(path, staged, owner, copied, queue_id)
            except BaseException:
                remove(staged)
                raise
            experiment = self._finish(staged)
            assert experiment is not None
            return experiment

    def _checked(self, queue_id: str) -> str:
        """Raises Refused."""
        if not queue_id:
            return str(uuid.uuid4())
        with self._store.read() as connection:
            if not is_uuid(queue_id) or queue_id in queries.queue_ids(connection):
                raise Refused(f"experimentUuid must be a uuid that no experiment here has, not {queue_id!r}")
        return queue_id

    def _commit(self, path: Path, staged: Path, owner: str, copied: Mapping[str, str], queue_id: str) -> None:
        """Put the files beside the run directories, and the rows into the database. None of these is in memory afterwards: there
        may be a million."""
        contents, conflicts = self.look(path)
        self._stage(path, contents, staged)
        past = _placed(contents.past, self.storage, copied, conflicts)
        wish = events.TakeIn(past, owner, queue_id, staged.name, time.time())

        def checked() -> events.Event:
            if again := self._conflicts(past):
                raise Refused(f"checkpoint {again[0]} already exists here; import the archive again")
            return wish

        self._ledger.do_after(checked)

    def go_on(self) -> None:
        """Finish what a master that ended had begun. Call it once, before requests are served."""
        for staged in sorted(self._home.copies.glob("*")):
            try:
                self._finish(staged)
            except (OSError, DethpcError, ValueError):
                log.exception("%s cannot be taken in to its end: it is tried again at the next start", staged)

    # --- files

    def _stage(self, path: Path, contents: ArchiveContents, staged: Path) -> None:
        """Lay out what is not in rows, below ``staged``, under the names of where it comes from."""
        staged.mkdir(mode=0o700, parents=True)
        runs = {run.id for run in contents.past.of(Run)}
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if (of := copies.run_file(info.filename)) and of.of in runs]
            members += [archive.getinfo(copies.METRICS), archive.getinfo(copies.ROWS)]
            size, free = sum(info.file_size for info in members), shutil.disk_usage(staged).free
            if size > free:
                raise Refused(f"{path} holds {size:,} bytes of logs and metrics; {self._home.root} has {free:,} left")
            if (sha256 := contents.past.of(Experiment)[0].context_sha256) and copies.CONTEXT in archive.namelist():
                targz = _whole(archive, copies.CONTEXT, _LARGEST_CONTEXT)
                contexts.members(targz)
                if contexts.keep(self._home, targz) != sha256:
                    raise Refused(f"{path} is damaged: {copies.CONTEXT} is not the code of the experiment")
            for info in members:
                target = staged / info.filename
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with archive.open(info) as source, open(target, "xb", opener=_private) as file:
                    shutil.copyfileobj(source, file, 1 << 20)
        for _ in _metrics_of(staged, contents.past, NewIds.of(contents.past, 1, 1)):
            pass  # every line is looked at before anything is committed

    def _finish(self, staged: Path) -> Experiment | None:
        """Everything that comes after the commit; may be done again. None: there was no commit, and what was staged is removed."""
        with self._store.read() as connection:
            experiment = queries.experiment_of_copy(connection, staged.name)
            first = queries.first_trial_id(connection, experiment.id) if experiment else 0
        if experiment is not None and experiment.state.keeps_files:
            past = _rows_of(staged / copies.ROWS)
            ids = NewIds.of(past, experiment.id, first)
            # All at once before the first one moves: each that comes makes the home look for folded trials anew.
            missing = [(there, here) for there, here in ids.runs.items() if not exists(self._home.find(here).path)]
            for there, here in missing:
                source, target = staged / "runs" / there, self._home.run(here).path
                if source.is_dir():
                    (source / "attempts").mkdir(mode=0o700, exist_ok=True)
                    os.chmod(source, 0o700)
                    os.rename(source, target)
            metrics = _metrics_of(staged, past, ids)
            while some := list(islice(metrics, _AT_ONCE)):
                self._add(some)
        remove(staged)
        return experiment

    def _add(self, metrics: list[Metric]) -> None:
        """One that the database does not take must not keep out the others."""
        try:
            self._ledger.do(events.TakeInMetrics(metrics))
        except StoreError:
            if len(metrics) == 1:
                log.exception("a report of run %s cannot be kept", metrics[0].run_id)
                return
            for metric in metrics:
                self._add([metric])


# --- reading an archive


def read(archive: zipfile.ZipFile) -> ArchiveContents:
    """Raises Refused for one that holds no whole experiment."""
    names = set(archive.namelist())
    if missing := {copies.ABOUT, copies.ROWS, copies.METRICS} - names:
        raise Refused(f"it has no {', '.join(sorted(missing))}, so det experiment export has not made it")
    about = json.loads(_whole(archive, copies.ABOUT, _LARGEST_ABOUT))
    if not isinstance(about, dict) or about.get("format") != copies.FORMAT:
        of = about.get("format") if isinstance(about, dict) else "none"
        raise Refused(
            f"its format is {of!r}, and this dethpc reads {copies.FORMAT}: update dethpc here, or where it was made"
        )
    with archive.open(copies.ROWS) as file:
        past = _checked(_rows(file))
    uuids = {of.of for name in names if (of := copies.checkpoint_file(name))}
    return ArchiveContents(about, past, sorted(uuids & {row.uuid for row in past.of(Checkpoint)}))


def content_key(archive: zipfile.ZipFile) -> str:
    """What tells this archive from every other one: the same for each copy of it, whatever its name."""
    members = [(info.filename, info.file_size, info.CRC) for info in archive.infolist()]
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()[:40]


def _opened(path: Path, take: Callable[[zipfile.ZipFile], T]) -> T:
    try:
        with zipfile.ZipFile(path) as archive:
            return take(archive)
    except (Refused, ConfigError) as error:
        raise Refused(f"{path} cannot be taken in: {error}") from None
    except (zipfile.BadZipFile, EOFError, ValueError, KeyError, NotImplementedError, RuntimeError) as error:
        raise Refused(f"{path} is not a complete archive of an experiment: {error}") from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from None


def _whole(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    with archive.open(name) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Refused(f"{name} is larger than {most >> 20} MiB")
    return content


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lines(file: Any) -> Iterator[bytes]:
    while line := file.readline(_LONGEST_LINE):
        if not line.endswith(b"\n"):
            raise ValueError("a line has no end")
        yield bytes(line)


def _rows(file: Any) -> Snapshot:
    rows: dict[type, list[Any]] = {}
    for line in _lines(file):
        kind, _, row = from_line(line)
        if row is not None and kind in IN_MEMORY:
            rows.setdefault(kind, []).append(row)
    return of_trials(Snapshot(rows, 1, 1))


def _rows_of(path: Path) -> Snapshot:
    with open(path, "rb") as file:
        return _rows(file)


def _checked(past: Snapshot) -> Snapshot:
    """The same rows: of one experiment, each once, which name each other alone. Raises Refused, ConfigError, ValueError."""
    if len(past.of(Experiment)) != 1:
        raise Refused(f"it holds {len(past.of(Experiment))} experiments, and must hold one")
    experiment = past.of(Experiment)[0]
    if not experiment.state.keeps_files:
        raise Refused(f"its experiment is {experiment.state.value}")
    ExperimentConfig.from_json(experiment.config)
    trials = past.of(Trial)
    if sorted(trial.index for trial in trials) != list(range(len(trials))):
        raise ValueError("trials are missing, or there twice")
    tasks = {task.id: task.trial_id for task in past.of(Task)}
    if sorted(tasks.values(), key=str) != sorted((trial.id for trial in trials), key=str):
        raise ValueError("not every trial has one task")
    runs = {run.id: run.task_id for run in past.of(Run)}
    kinds: tuple[type[Any], ...] = (Trial, Task, Run, Attempt, Checkpoint, SearchNote)
    whole = (
        all(row.experiment_id == experiment.id for kind in kinds for row in past.of(kind)),
        len({(run.task_id, run.number) for run in past.of(Run)}) == len(past.of(Run)) == len(runs),
        all(runs.get(attempt.run_id) == attempt.task_id for attempt in past.of(Attempt)),
        all(tasks.get(runs.get(row.run_id, "")) == row.trial_id for row in past.of(Checkpoint)),
        all(is_name(row.uuid) for row in past.of(Checkpoint)),
        all(0 <= note.trial_index < len(trials) for note in past.of(SearchNote)),
    )  # fmt: skip
    if not all(whole):
        raise ValueError("its rows do not belong together")
    return past


def _metrics_of(staged: Path, past: Snapshot, ids: NewIds) -> Iterator[Metric]:
    """The metrics, as rows of this installation. Raises ValueError for one that belongs to no attempt, or is none."""
    tasks = {task.id: task.trial_id for task in past.of(Task)}
    trials = {(row.run_id, row.number): tasks[row.task_id] for row in past.of(Attempt)}
    with open(staged / copies.METRICS, "rb") as file:
        for line in _lines(file):
            try:
                metric = Metric(**json.loads(line))
                trial = trials[metric.run_id, metric.attempt]
                assert trial is not None
                yield replace(
                    metric,
                    run_id=ids.runs[metric.run_id],
                    experiment_id=ids.experiment,
                    trial_id=ids.trials[trial],
                    **_typed(metric),
                )
            except (TypeError, KeyError, RecursionError) as error:
                raise Refused(f"the archive is damaged: {line[:80]!r} is no report: {error}") from None


def _typed(metric: Metric) -> dict[str, Any]:
    """Raises TypeError for what no report has."""
    steps, seq, values = metric.steps_completed, metric.seq, metric.metrics
    numbers = all(type(number) is int and -(2**63) <= number < 2**63 for number in (steps, seq))
    if not numbers or not isinstance(values, dict) or too_deep(values):
        raise TypeError("its fields are others")
    return {"group": str(metric.group), "reported_at": float(metric.reported_at)}


# --- checkpoints


def _placed(past: Snapshot, section: dict[str, Any], copied: Mapping[str, str], conflicts: Collection[str]) -> Snapshot:
    """The rows, with everything in this installation's storage: what is deleted here must not be missing there. Checkpoints that
    were not copied are gone; of the ``conflicts`` there are others of the same name here."""
    experiment = past.of(Experiment)[0]
    config = {**experiment.config, "checkpoint_storage": {**section, **_about_others(experiment)}}
    names = {name: str(uuid.uuid4()) for name in conflicts} | dict(copied)

    def placed(row: Checkpoint) -> Checkpoint:
        row = replace(row, uuid=names.get(row.uuid, row.uuid), storage=section)
        if row.uuid in copied.values() or row.state is CheckpointState.DELETED:
            return row
        why = row.reason or "its files were not copied with its experiment"
        return replace(row, state=CheckpointState.DELETED, resources={}, reason=why)

    def named(uuid: str | None) -> str | None:
        return None if uuid is None else names.get(uuid, uuid)

    rows: dict[type, list[Any]] = {kind: past.of(kind) for kind in IN_MEMORY}
    rows[Experiment] = [replace(experiment, config=ExperimentConfig.from_json(config).to_json())]
    rows[Checkpoint] = [placed(row) for row in past.of(Checkpoint)]
    rows[Attempt] = [replace(row, resumed_from=named(row.resumed_from)) for row in past.of(Attempt)]
    rows[Trial] = [
        replace(row, latest_checkpoint=named(row.latest_checkpoint), source_checkpoint=named(row.source_checkpoint))
        for row in past.of(Trial)
    ]
    return Snapshot(rows, 1, 1)


def _about_others(experiment: Experiment) -> dict[str, Any]:
    fields = ExperimentConfig.from_json(experiment.config).storage_section
    return {name: fields[name] for name in storage.ABOUT_OTHERS if name in fields and name != "type"}
