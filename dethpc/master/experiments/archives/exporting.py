"""An experiment as one archive: its rows, metrics, code, logs and journals. Checkpoints are added by the client, which can read
their storage.

Secrets are not exported: configurations are masked, and files of run directories that hold a token are left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dethpc.config.secrets import masked_text
from dethpc.domain import copies
from dethpc.domain.facts import IN_MEMORY, Attempt, Checkpoint, Experiment, Metric, Run, Task
from dethpc.domain.ports import Fact, Snapshot
from dethpc.domain.secrets import masked
from dethpc.engine.copies import NO_TOKEN
from dethpc.errors import Refused
from dethpc.master.durable.row_file import from_line as from_row_line
from dethpc.master.durable.row_file import to_line
from dethpc.master.experiments.archives.streaming import Sent
from dethpc.master.installation import Installation
from dethpc.rundir.files import open_kept, walk
from dethpc.rundir.journal import from_line
from dethpc.rundir.journal import to_line as to_journal_line
from dethpc.state import queries
from dethpc.state.store import ReadStore

_AT_ONCE = 1 << 18
"""Bytes that are read, and sent, at once."""

_PAGE = 2000
"""Reports that are in memory at once."""


def archive(installation: Installation, store: ReadStore, experiment_id: int) -> Iterator[bytes]:
    """The archive, in pieces. A reader that gets no end has no archive: what it has is no zip file.

    Raises NotFound and Refused before the first piece.
    """
    with store.read() as connection:
        row = queries.experiment(connection, experiment_id)
        if not row.state.keeps_files:
            raise Refused(f"experiment {experiment_id} is {row.state.value}: there is nothing to export")
        try:
            past = _Past(installation.home.root, queries.past_of_trials(connection, experiment_id))
        except OSError as error:
            raise Refused(f"{installation.home.root} cannot hold what is to be exported: {error.strerror}") from None
    return _pieces(installation, store, row, past)


class _Past:
    """The rows as they were at one moment, in a file without a name: an experiment may have 100,000 trials."""

    def __init__(self, folder: Path, rows: Iterator[Any]) -> None:
        self._file: Any = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  as long as it is read
        self._places: dict[type[Any], tuple[int, int]] = {}  # where the lines of each kind begin and end
        for row in rows:
            begin = self._file.tell()
            self._file.write(to_line(_without_secrets(row)).encode())
            self._places[type(row)] = self._places.get(type(row), (begin,))[0], self._file.tell()

    def lines(self) -> Iterator[bytes]:
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        return _read(self._file, size)

    def of(self, kind: type[Fact]) -> Iterator[Fact]:
        at, end = self._places.get(kind, (0, 0))
        while at < end:
            self._file.seek(at)  # another thread may read meanwhile
            line = self._file.readline()
            at += len(line)
            yield from_row_line(line)[2]


def of_trials(past: Snapshot) -> Snapshot:
    """Without tasks that belong to no trial, and what belongs to these: they did something here, such as removing files."""
    tasks = [task for task in past.of(Task) if task.trial_id is not None]
    ids = {task.id for task in tasks}
    runs = [run for run in past.of(Run) if run.task_id in ids]
    names = {run.id for run in runs}
    attempts = [attempt for attempt in past.of(Attempt) if attempt.run_id in names]
    rows = {kind: past.of(kind) for kind in IN_MEMORY}
    return Snapshot({**rows, Task: tasks, Run: runs, Attempt: attempts}, 1, 1)


def _pieces(installation: Installation, store: ReadStore, row: Experiment, past: _Past) -> Iterator[bytes]:
    sent = Sent()
    with zipfile.ZipFile(sent, "w", zipfile.ZIP_DEFLATED) as archive:
        yield from _written(archive, sent, copies.ABOUT, iter([_about(installation, row)]))
        yield from _written(archive, sent, copies.ROWS, past.lines())
        yield from _written(archive, sent, copies.METRICS, _metrics(store, past.of(Attempt)))
        for name, path in _files(installation, row, past):
            with contextlib.suppress(FileNotFoundError), open_kept(path) as file:
                # What is being written while it is copied ends where it ended when it was opened.
                content = _read(file, file.seek(0, os.SEEK_END))
                file.seek(0)
                yield from _written(archive, sent, name, _reports(content) if path.suffix == ".jsonl" else content)
    yield sent.take()


def _written(archive: zipfile.ZipFile, sent: Sent, name: str, content: Iterator[bytes]) -> Iterator[bytes]:
    with archive.open(name, "w", force_zip64=True) as member:
        for piece in content:
            member.write(piece)
            if sent.size >= _AT_ONCE:
                yield sent.take()
    yield sent.take()


def _read(file: Any, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(_AT_ONCE, size))):
        size -= len(piece)
        yield piece


def _reports(content: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a journal without secrets: a report of a checkpoint says which storage it is in, with its keys. What is damaged
    could hold one as well."""
    rest = b""
    for piece in content:
        *lines, rest = (rest + piece).split(b"\n")
        yield b"".join(_without_keys(line) for line in lines)


def _without_keys(line: bytes) -> bytes:
    try:
        report = from_line(line)
    except ValueError:
        return b""
    if not report.data.get("storage"):
        return line + b"\n"
    hidden = report._replace(data={**report.data, "storage": masked(report.data["storage"])})
    return to_journal_line(hidden).encode() + b"\n"


def _about(installation: Installation, row: Experiment) -> bytes:
    about = {
        "format": copies.FORMAT,
        "release": installation.version,
        "cluster_id": installation.cluster_id,
        "cluster_name": installation.cluster_name,
        "experiment_id": row.id,
        "name": row.name,
        "state": row.state.value,
        "exported_at": time.time(),
    }
    return json.dumps(about, indent=1).encode()


def _without_secrets(row: Any) -> Any:
    if isinstance(row, Experiment):
        return replace(row, config=masked(row.config), original_config=masked_text(row.original_config))
    if isinstance(row, Checkpoint):
        return replace(row, storage=masked(row.storage))
    if isinstance(row, Run):
        return replace(row, token_sha256=NO_TOKEN)
    return row


def _metrics(store: ReadStore, attempts: Iterator[Attempt]) -> Iterator[bytes]:
    """Those that counted when the rows were read. No connection is kept while a client reads slowly."""
    for attempt in attempts:
        page: list[Metric] | None = None
        while page is None or len(page) == _PAGE:
            with store.read() as connection:
                page = queries.metrics_of_attempt(connection, attempt, page[-1].seq if page else None, _PAGE)
            yield "".join(map(_line, page)).encode()


def _line(metric: Metric) -> str:
    return json.dumps(asdict(metric)) + "\n"


def _files(installation: Installation, row: Experiment, past: _Past) -> Iterator[tuple[str, Path]]:
    """Members' names, and where their files are."""
    home = installation.home
    if row.context_sha256:
        yield copies.CONTEXT, home.context(row.context_sha256)
    for run in past.of(Run):
        paths: set[str] = set()
        top: Path | None = None
        while top != (now := home.find(run.id).path):  # twice where its trial is folded while a client reads slowly
            top = now
            for below in walk(top):
                if below not in paths and copies.run_file(member := f"runs/{run.id}/{below}"):
                    paths.add(below)
                    yield member, top / below
