"""Checkpoints that wait in the spool for their storage: a task brings them when it is back, and they can be read before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dethpc import storage
from dethpc.client.nouns import checkpoints
from dethpc.domain.facts import Checkpoint, Run, Task
from dethpc.domain.states import CheckpointState, RunState, State, TaskKind
from dethpc.engine.checkpoints import in_spool
from dethpc.experimental._download import through_master
from dethpc.master.files.collector import BRING_EVERY
from dethpc.state import rows
from dethpc.storage.spool import Spool
from tests.master.conftest import CONFIG, T0, Served, experiment, trained, trial, uuid_of
from tests.storage.contract import stored
from tests.storage.remote import RemoteStore

UUID, UUID_BEFORE = uuid_of(1, 4), uuid_of(1, 2)
AT = T0 + 10_000  # long after it was saved


class Elsewhere(RemoteStore):
    """Is away while ``away``."""

    away = False

    def __init__(self, server: str, disk: str) -> None:
        if Elsewhere.away:  # it is known already
            self.server, self.disk = server, disk
        else:
            super().__init__(server, disk)

    @property
    def may_be_away(self) -> bool:
        return True

    @contextmanager
    def _talk(self) -> Iterator[object]:  # type: ignore[override]
        if Elsewhere.away:
            raise ConnectionError("nobody answers")
        with super()._talk() as server:
            yield server


@pytest.fixture
def store(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Of an experiment that has ended, whose last checkpoint is in the spool."""
    fields = storage.KINDS["s3"].fields
    kind = storage.Kind(fields, lambda section, *_: Elsewhere(section["bucket"], str(tmp_path / "disk")))
    monkeypatch.setitem(storage.KINDS, "s3", kind)
    made = storage.build({"type": "s3", "bucket": str(tmp_path / "server")})
    assert isinstance(made, Elsewhere)
    config = {**CONFIG, "checkpoint_storage": {"type": "s3", "bucket": str(tmp_path / "server")}}
    of_trial = trained(trial(1, 1, index=0, latest_checkpoint=UUID))
    served.put([experiment(1, config=config, owner=served.owner), *of_trial])
    spool = spool_of(served)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "weights.pt").write_bytes(b"w" * 1000)
    spool.put(UUID, tmp_path / "made")
    row = next(row for row in of_trial if isinstance(row, Checkpoint) and row.uuid == UUID)
    served.put([replace(row, reason=in_spool(str(spool)))])
    monkeypatch.setattr(Elsewhere, "away", True)
    return made


def spool_of(served: Served) -> Spool:
    return Spool(served.daemon.installation.home.spool)


def checkpoint_of(served: Served) -> Checkpoint:
    with served.daemon.store.read() as connection:
        (row,) = [row for row in rows.read(connection, Checkpoint) if row.uuid == UUID]
    return row


def tasks(served: Served) -> int:
    with served.daemon.store.read() as connection:
        return len(rows.read(connection, Task, rows.table(Task).c.kind == TaskKind.CHECKPOINT_GC))


def test_a_task_brings_it_when_the_storage_is_back_and_until_then_it_can_be_downloaded(
    served: Served, store: Elsewhere, tmp_path: Path
) -> None:
    served.collect(AT)
    assert spool_of(served).exists(UUID) and tasks(served) == 1
    assert "in " + str(spool_of(served)) in checkpoints.get(served.session, UUID)["reason"]
    (tmp_path / "there").mkdir()
    through_master(served.session, UUID, tmp_path / "there")
    assert (tmp_path / "there" / "weights.pt").read_bytes() == b"w" * 1000
    Elsewhere.away = False
    served.collect(AT + BRING_EVERY - 1)
    assert tasks(served) == 1
    served.collect(AT + BRING_EVERY)
    assert store.files(UUID) == {"weights.pt": 1000} and not spool_of(served).exists(UUID)
    assert checkpoints.get(served.session, UUID)["reason"] == ""
    served.collect(AT + 3 * BRING_EVERY)
    assert tasks(served) == 2


def test_a_task_brings_it_to_the_storage_that_training_code_chose(
    served: Served, store: Elsewhere, tmp_path: Path
) -> None:
    chosen = {"type": "s3", "bucket": str(tmp_path / "chosen")}
    served.put([replace(checkpoint_of(served), storage=chosen)])
    Elsewhere.away = False
    served.collect(AT)
    assert storage.build(chosen).files(UUID) == {"weights.pt": 1000} and not store.exists(UUID)
    assert not spool_of(served).exists(UUID) and checkpoints.get(served.session, UUID)["reason"] == ""


def test_a_storage_that_is_away_is_asked_again_after_as_long_again(served: Served, store: Elsewhere) -> None:
    since = checkpoint_of(served).reported_at
    served.collect(since + 100)
    served.collect(since + 199)
    assert tasks(served) == 1
    served.collect(since + 200)
    assert tasks(served) == 2
    Elsewhere.away = False
    served.collect(since + 400)
    assert store.exists(UUID) and not spool_of(served).exists(UUID)


def test_one_that_cannot_be_brought_keeps_no_other(
    served: Served, store: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Elsewhere.away = False
    spool_of(served).put(UUID_BEFORE, tmp_path / "made")
    add = Elsewhere.add

    def refuse_one(self: Elsewhere, uuid: str, *rest: Any) -> Any:
        if uuid == UUID_BEFORE:
            raise PermissionError("somebody else's")
        return add(self, uuid, *rest)

    monkeypatch.setattr(Elsewhere, "add", refuse_one)
    served.collect(AT)
    assert store.exists(UUID) and [one.uuid for one in spool_of(served).names()] == [UUID_BEFORE]


def test_it_stays_while_its_trial_has_a_run_that_may_read_it(served: Served, store: Elsewhere) -> None:
    Elsewhere.away = False
    with served.daemon.store.read() as connection:
        (run,) = rows.read(connection, Run)
    served.put([replace(run, state=RunState.RUNNING)])
    served.collect(AT)
    assert spool_of(served).exists(UUID) and tasks(served) == 0
    served.put([run])
    served.collect(AT)
    assert store.exists(UUID) and not spool_of(served).exists(UUID)


def test_what_is_deleted_while_it_waits_leaves_the_spool(served: Served, store: Elsewhere) -> None:
    checkpoints.delete(served.session, [UUID])
    assert checkpoints.get(served.session, UUID)["reason"] == "its files are being removed"
    Elsewhere.away = False
    served.collect(AT)
    assert not spool_of(served).exists(UUID) and not store.exists(UUID)
    assert checkpoints.get(served.session, UUID)["state"] == "STATE_DELETED"


def test_what_an_attempt_kept_and_could_not_report_is_forgotten(served: Served, store: Elsewhere) -> None:
    served.put([replace(checkpoint_of(served), state=CheckpointState.DELETED, resources={}, reason="lost")])
    served.collect(AT)
    assert not spool_of(served).exists(UUID)


def test_an_experiment_that_is_deleted_takes_what_it_has_in_the_spool_along(served: Served, store: Elsewhere) -> None:
    Elsewhere.away = False
    served.delete(1)
    assert not spool_of(served).exists(UUID)


def test_also_what_waits_for_a_storage_that_training_code_chose_and_that_may_never_be_back(
    served: Served, store: Elsewhere, tmp_path: Path
) -> None:
    Elsewhere.away = False
    chosen = {"type": "s3", "bucket": str(tmp_path / "chosen")}
    served.put([replace(checkpoint_of(served), storage=chosen)])
    served.delete(1)
    assert not spool_of(served).exists(UUID)
    served.collect(AT)
    assert not storage.build(chosen).exists(UUID) and tasks(served) == 1, "the deletion"


def test_a_spool_that_cannot_be_read_keeps_no_files_of_checkpoints(
    served: Served, store: Elsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    Elsewhere.away = False
    with stored(store, UUID_BEFORE) as path:
        (path / "weights.pt").write_bytes(b"w")
    folder = Path(str(spool_of(served)))
    shutil.rmtree(folder)
    folder.write_text("something else")
    checkpoints.delete(served.session, [UUID_BEFORE])
    served.collect(AT)
    assert not store.exists(UUID_BEFORE) and "cannot be brought to its storage" in caplog.text


def test_a_damaged_copy_is_not_brought_and_its_checkpoint_is_marked(
    served: Served, store: Elsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    Elsewhere.away = False
    file = Path(str(spool_of(served)), UUID, "weights.pt")
    file.write_bytes(b"x" * 1000)
    served.collect(AT)
    assert not store.exists(UUID) and file.exists()
    (task,) = [t for t in _tasks(served) if t.experiment_id is None]
    assert task.state is State.COMPLETED
    found = checkpoints.get(served.session, UUID)
    assert found["state"] == "STATE_ERROR" and "weights.pt is damaged" in found["reason"]
    assert "weights.pt is damaged" in caplog.text
    served.collect(AT + 10 * BRING_EVERY)
    assert tasks(served) == 1, "it is not tried again"


def test_a_checkpoint_of_which_files_were_deleted_while_it_waited_is_brought_without_them(
    served: Served, store: Elsewhere, tmp_path: Path
) -> None:
    Elsewhere.away = False
    spool = spool_of(served)
    spool.delete(UUID)
    (tmp_path / "made" / "log.txt").write_text("some")
    spool.put(UUID, tmp_path / "made")
    spool.delete(UUID, ["*.txt"])
    served.put(
        [replace(checkpoint_of(served), state=CheckpointState.PARTIALLY_DELETED, resources={"weights.pt": 1000})]
    )
    served.collect(AT)
    assert store.files(UUID) == {"weights.pt": 1000} and not spool.exists(UUID)


def _tasks(served: Served) -> list[Task]:
    with served.daemon.store.read() as connection:
        return rows.read(connection, Task, rows.table(Task).c.kind == TaskKind.CHECKPOINT_GC)
