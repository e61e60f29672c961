"""Checkpoints in use outside the engine: by versions of models, and by runs that were rendered without a master."""

from __future__ import annotations

import contextlib
import os

from sqlalchemy import Connection

from dethpc.domain.records import ModelVersion
from dethpc.domain.reports import ReportKind, fault
from dethpc.errors import RunDirError
from dethpc.master.durable import ids
from dethpc.rundir.files import read_json
from dethpc.rundir.home import Home
from dethpc.rundir.journal import read_remains
from dethpc.rundir.layout import RunDir
from dethpc.state import queries
from dethpc.state.queries import records


def needed_elsewhere(connection: Connection, home: Home) -> dict[str, str]:
    """By uuid, who needs it, in words. Raises OSError."""
    return needed_by_models(connection) | needed_by_rendered(home)


def needed_by_models(connection: Connection) -> dict[str, str]:
    return {
        version.checkpoint: f"it is version {version.number} of model {version.model}"
        for version in records.find(connection, ModelVersion)
    }


def needed_by_rendered(home: Home) -> dict[str, str]:
    """Raises OSError."""
    return {
        uuid: f"run {run_dir.path.name}, which was rendered without a master, would start from it; "
        f"if nobody will submit it, remove {run_dir.path}"
        for run_dir in rendered(home)
        for uuid in _sources(run_dir)
    }


def kept_by_policy(connection: Connection) -> set[str]:
    """What no policy takes, whatever it keeps: models, and where trials began that have ended and saved nothing of their own."""
    return needed_by_models(connection).keys() | queries.sources_of_unsaved(connection)


def rendered(home: Home) -> list[RunDir]:
    """The directories of runs that were rendered without a master, imported or not. Raises OSError."""
    return [home.run(name) for name in ids.rendered(os.listdir(home.runs))]


def saved_by_rendered(home: Home) -> set[str]:
    """The checkpoints that rendered runs have reported, imported or not. Raises OSError."""
    uuids = set()
    for run_dir in rendered(home):
        for k in run_dir.attempts():
            for report in read_remains(run_dir.attempt(k).journal).reports:
                if report.kind == ReportKind.CHECKPOINT and not fault(report):
                    uuids.add(str(report.data["uuid"]))
    return uuids


def _sources(run_dir: RunDir) -> list[str]:
    """Where the run begins, unless it has trained to its end."""
    with contextlib.suppress(OSError, RunDirError):
        spec = read_json(run_dir.spec) or {}
        sources = [spec.get("latest_checkpoint"), spec.get("source_checkpoint")]
        uuids = [uuid for uuid in sources if isinstance(uuid, str)]
        if uuids and not _has_finished(run_dir):
            return uuids
    return []


def _has_finished(run_dir: RunDir) -> bool:
    reports = (run_dir.attempt(k).end_report() for k in run_dir.attempts())
    return any(report is not None and report.finished for report in reports)
