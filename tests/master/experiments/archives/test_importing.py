"""Experiments as archives: out of an installation, and in again."""

from __future__ import annotations

import os
import shutil
import uuid as uuids
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dethpc.cli.commands import archives as client
from dethpc.client.nouns import experiments
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain import copies
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Run
from dethpc.domain.reports import Report
from dethpc.domain.states import CheckpointState, RunState, State
from dethpc.engine.fold import fold
from dethpc.errors import CheckpointError, Refused
from dethpc.master.durable.row_file import from_line, to_line
from dethpc.master.experiments.archives import exporting
from dethpc.master.rebuild import recreate
from dethpc.master.submitting.job_environment import of_experiment
from dethpc.rundir.journal import from_line as from_journal_line
from dethpc.rundir.journal import to_line as to_journal_line
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import open_store, queries
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Owner
from tests.master.conftest import CONFIG, Served, experiment, run_of, trained, trial, uuid_of
from tests.state.reading import metrics

MARK = "planted-secret-4711"


def quiet(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def archive(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an experiment of two trials, one of which goes on; with logs and a journal, and a checkpoint's files."""
    monkeypatch.setattr(exporting, "_PAGE", 2)
    home = served.daemon.installation.home
    storage = {"type": "shared_fs", "host_path": str(home.checkpoints)}
    config = {**CONFIG, "checkpoint_storage": storage, "environment": {"environment_variables": [f"A_TOKEN={MARK}"]}}
    rows = [experiment(state=State.ACTIVE, ended_at=None, config=config, original_config=f"password: {MARK}\n")]
    first, second = trial(1), trial(2, state=State.ACTIVE, ended_at=None, latest_checkpoint=uuid_of(2, 4))
    for each in (*trained(first), *trained(second)):
        rows.append(replace(each, applied_seq=99) if isinstance(each, Attempt) else each)  # type: ignore[arg-type]
    served.put(rows)
    served.put([run_of(second, 2, state=RunState.RUNNING, token_sha256=MARK)])
    served.daemon.ledger.state = fold(
        build_searcher, served.daemon.store.load()
    )  # as if a master had started with these
    for run in ("1.1.1", "1.2.1"):
        attempt = home.run(run).attempt(0)
        attempt.make()
        attempt.log(0).write_text(f"[2026-11-22T18:43:59.407000Z] node1 || INFO: trained in {run}\n")
        keys = {"type": "s3", "bucket": "b", "secret_key": MARK}
        saved = Report(1, 1.0, "checkpoint", {"uuid": "u", "steps_completed": 1, "resources": {}, "storage": keys})
        attempt.journal.write_text(f"{to_journal_line(saved)}\n2 9 damaged {MARK}\n")
        attempt.info(0).write_text(MARK)
        home.run(run).spec.write_text(MARK)
    for uuid in (uuid_of(1, 4), uuid_of(2, 4)):
        (home.checkpoints / uuid).mkdir()
        (home.checkpoints / uuid / "weights.pt").write_bytes(uuid.encode())
    target = tmp_path / "one.zip"
    exported = client.export(served.session, 1, target, "latest", quiet)
    assert exported.checkpoints == [uuid_of(1, 4), uuid_of(2, 4)] and not exported.left_out
    return target


def take_in(served: Served, archive: Path) -> int:
    return int(client.take_in(served.session, archive, quiet)["experiment"]["id"])


def test_an_archive_is_an_experiment_again(served: Served, archive: Path) -> None:
    copy = take_in(served, archive)
    found = served.session.get(f"/api/v1/experiments/{copy}")["experiment"]
    assert (copy, found["name"], found["state"]) == (2, "digits 1", "STATE_CANCELED")
    done, cut = served.session.get(f"/api/v1/experiments/{copy}/trials", {"sortBy": "SORT_BY_ID"})["trials"]
    assert (done["state"], cut["state"]) == ("STATE_COMPLETED", "STATE_CANCELED")
    assert done["hparams"] == {"lr": 0.01} and done["totalBatchesProcessed"] == 4
    with served.daemon.store.read() as connection:
        whole = {each.uuid: each for each in queries.checkpoints_of_experiment(connection, copy)}
        ends = [(each.state, each.end) for each in queries.runs_of_trial(connection, cut["id"])]
    was, now = metrics(served.daemon.store, [1]), metrics(served.daemon.store, [done["id"]])
    assert [(m.seq, m.group, m.metrics) for m in now] == [(m.seq, m.group, m.metrics) for m in was] != []
    assert all(state is RunState.ENDED for state, _ in ends) and len(ends) == 2
    left = [each.uuid for each in whole.values() if each.state.value == "COMPLETED"]
    assert len(left) == 2 and len(whole) == 4  # the files of the others were not copied
    home = served.daemon.installation.home
    assert sorted((home.checkpoints / uuid / "weights.pt").read_bytes().decode() for uuid in left) == [
        uuid_of(1, 4),
        uuid_of(2, 4),
    ]
    assert "trained in 1.1.1" in home.run(f"{copy}.{done['id']}.1").attempt(0).log(0).read_text()
    assert not any(home.copies.iterdir())


def test_a_copy_of_an_experiment_that_recorded_its_environment_is_continued_and_forked(
    served: Served, archive: Path
) -> None:
    recorded = {"environment": "recorded"}
    copy = take_in(served, rows_altered(archive, lambda row: _with_config(row, internal=recorded)))
    with served.daemon.store.read() as connection:
        row = queries.experiment(connection, copy)
    home = served.daemon.installation.home
    assert not home.environment(row.queue_id).exists()  # the archive holds none
    text = "{name: t, entrypoint: python3 train.py, searcher: {name: single, metric: loss}}"
    fork = experiments.create(served.session, text, [], activate=False, parent=copy, with_environment=False)
    assert fork["environment"]["source"] == "master"
    home.environment(row.queue_id).unlink()
    served.session.post("/api/v1/experiments/continue", json={"id": copy})
    assert of_experiment(home, row, ExperimentConfig.from_json(row.config)) == home.environment(row.queue_id)


def _with_config(row: Any, **changes: Any) -> Any:
    return replace(row, config={**row.config, **changes}) if isinstance(row, Experiment) else row


def test_an_archive_holds_no_secret(archive: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        assert len(file.namelist()) > 8
        assert not [name for name in file.namelist() if MARK.encode() in file.read(name)]
        [journal] = file.read("runs/1.1.1/attempts/0/journal.jsonl").splitlines()
        assert from_journal_line(journal).data["storage"]["bucket"] == "b"


def test_a_copy_refers_to_its_own_checkpoints(served: Served, archive: Path) -> None:
    """Those of the original keep their names, so the copy's get others."""
    copy = take_in(served, archive)
    with served.daemon.store.read() as connection:
        trials = queries.trials_of_experiment(connection, copy)
        own = {each.uuid for each in queries.checkpoints_of_experiment(connection, copy)}
        assert {each.uuid for each in queries.checkpoints_of_experiment(connection, 1)} & own == set()
    assert trials[1].latest_checkpoint in own


def test_a_rebuild_knows_a_copy(served: Served, archive: Path, tmp_path: Path) -> None:
    copy = take_in(served, archive)
    store = open_store(f"sqlite:///{tmp_path / 'again.db'}")
    recreate(served.daemon.installation.home, store)
    with store.read() as connection, served.daemon.store.read() as known:
        assert queries.experiment(connection, copy) == queries.experiment(known, copy)
        assert queries.trials_of_experiment(connection, copy) == queries.trials_of_experiment(known, copy)
    store.close()


def test_memory_is_the_fold_of_a_copys_rows(served: Served, archive: Path) -> None:
    take_in(served, archive)
    state = served.daemon.ledger.state
    again = fold(build_searcher, served.daemon.store.load())
    assert set(state.experiments) == set(again.experiments) == {1}
    assert (state.next_experiment_id, state.next_trial_id) == (again.next_experiment_id, again.next_trial_id)


@pytest.mark.parametrize("after", ["rows", "metrics"])
def test_a_master_that_was_killed_goes_on(
    served: Served, archive: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    taking, ledger = served.daemon.services.copies, served.daemon.ledger

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        if after == "rows":
            broken.setattr(taking, "_finish", killed)
        else:
            broken.setattr("dethpc.master.experiments.archives.importing.remove", killed)
        with pytest.raises(KeyboardInterrupt):
            taking.take_in(archive, "ada", {})
    taking.go_on()
    with served.daemon.store.read() as connection:
        done, _ = queries.trials_of_experiment(connection, 2)
    assert len(metrics(served.daemon.store, [done.id])) == 6
    assert not any(served.daemon.installation.home.copies.iterdir())
    assert served.daemon.installation.home.run(f"2.{done.id}.1").attempt(0).log(0).exists()
    assert ledger.alive


def test_the_folder_of_all_runs_is_read_once_however_many_runs_come(
    served: Served, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An experiment of 25,000 trials is 25,000 changes of a folder with as many entries."""
    home, scandir, reads = served.daemon.installation.home, os.scandir, []

    def counted(path: Any = ".") -> Any:
        if path == home.runs:
            reads.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    copy = take_in(served, archive)
    assert len(list(home.runs.glob(f"{copy}.*"))) > 1
    assert len(reads) == 1


def test_what_was_never_committed_is_removed(served: Served, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taking = served.daemon.services.copies
    staged = served.daemon.installation.home.copies / "token"
    (staged / "runs" / "1.1.1").mkdir(parents=True)
    taking.go_on()
    assert not staged.exists()
    assert served.session.get("/api/v1/experiments")["pagination"]["total"] == 1


# --- what is no archive, or a hostile one


def altered(archive: Path, change: Callable[[str, bytes], dict[str, bytes]]) -> Path:
    """The archive with each member in place of which ``change`` gives others."""
    target = archive.with_name("altered.zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            for other, content in change(name, old.read(name)).items():
                new.writestr(other, content)
    return target


def rows_altered(archive: Path, change: Callable[[Any], Any]) -> Path:
    def each(name: str, content: bytes) -> dict[str, bytes]:
        if name == copies.ROWS:
            rows = [change(from_line(line)[2]) for line in content.splitlines(keepends=True)]
            content = "".join(to_line(row) for row in rows if row is not None).encode()
        return {name: content}

    return altered(archive, each)


def nothing_came_of(served: Served, archive: Path, words: str) -> None:
    with pytest.raises(Refused, match=words):
        take_in(served, archive)
    home = served.daemon.installation.home
    assert not list(home.copies.glob("*"))
    assert served.session.get("/api/v1/experiments")["pagination"]["total"] == 1
    assert sorted(path.name for path in home.checkpoints.iterdir()) == [uuid_of(1, 4), uuid_of(2, 4)]


def test_what_is_no_archive_is_refused(served: Served, archive: Path) -> None:
    other = archive.with_name("other.zip")
    for content in (b"", b"name: x\n", archive.read_bytes()[:-200]):
        other.write_bytes(content)
        nothing_came_of(served, other, "not a complete archive")
    later = altered(archive, lambda name, content: {name: content.replace(b'"format": 1', b'"format": 9')})
    nothing_came_of(served, later, "format is 9, and this dethpc reads 1: update dethpc")

    def damaged(name: str, content: bytes) -> dict[str, bytes]:
        known, other = b'"steps_completed": 4', b'"steps_completed": "x"'
        return {name: content.replace(known, other) if name == copies.METRICS else content}

    nothing_came_of(served, altered(archive, damaged), "is no report")


def test_what_was_copied_goes_when_the_rest_cannot_be_read(
    served: Served, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack, copied = client._unpack, []

    def second_is_damaged(*of: Any) -> None:
        if copied:
            raise CheckpointError("its checkpoint is damaged")
        copied.append(unpack(*of))

    monkeypatch.setattr(client, "_unpack", second_is_damaged)
    with pytest.raises(CheckpointError):
        take_in(served, archive)
    home = served.daemon.installation.home
    assert copied and sorted(path.name for path in home.checkpoints.iterdir()) == [uuid_of(1, 4), uuid_of(2, 4)]


def test_members_that_lead_elsewhere_are_left_alone(served: Served, archive: Path, tmp_path: Path) -> None:
    evil = [
        "../x",
        str(tmp_path / "y"),
        "runs/../../x",
        "runs/1.1.1/../../../x",
        "runs/1.1.1/spec.json",
        "runs/1.1.1/claim",
    ]
    evil += [f"checkpoints/{uuid_of(1, 4)}/../../x", "checkpoints/../x", "runs/1.1.1/attempts/0/info-0.json"]

    def more(name: str, content: bytes) -> dict[str, bytes]:
        return {name: content} | (dict.fromkeys(evil, b"evil") if name == copies.ABOUT else {})

    take_in(served, altered(archive, more))
    root = served.daemon.installation.home.root
    assert not [path for path in root.rglob("*") if path.is_file() and path.read_bytes() == b"evil"]
    assert not (tmp_path / "x").exists() and not (tmp_path / "y").exists()


def test_rows_that_do_not_belong_together_are_refused(served: Served, archive: Path) -> None:
    def elsewhere(row: Any) -> Any:
        return replace(row, trial_id=77) if isinstance(row, Checkpoint) else row

    nothing_came_of(served, rows_altered(archive, elsewhere), "do not belong together")
    evil = rows_altered(archive, lambda row: replace(row, uuid="../../x") if isinstance(row, Checkpoint) else row)
    nothing_came_of(served, evil, "do not belong together")
    without = rows_altered(archive, lambda row: None if isinstance(row, Run) and row.number == 1 else row)
    nothing_came_of(served, without, "do not belong together")
    config = rows_altered(
        archive, lambda row: replace(row, config={}) if hasattr(row, "config") and row.config else row
    )
    nothing_came_of(served, config, "cannot be taken in")


def test_an_experiment_that_is_being_deleted_is_not_exported(served: Served, tmp_path: Path) -> None:
    served.put([experiment(state=State.DELETING)])
    with pytest.raises(Refused, match="nothing to export"):
        client.export(served.session, 1, tmp_path / "x.zip", "none", quiet)
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob(".*.part"))


def test_an_answer_that_breaks_off_is_no_archive(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.put([experiment()])
    monkeypatch.setattr(served.session, "chunks", lambda path: iter([b"PK\3\4 and then nothing"]))
    with pytest.raises(Refused, match="was cut off"):
        client.export(served.session, 1, tmp_path / "x.zip", "none", quiet)
    assert list(tmp_path.glob("*.zip")) == []


def _without_checkpoints(served: Served, target: Path) -> Path:
    client.export(served.session, 1, target, "none", quiet)
    return target


def _hostile(served: Served, archive: Path, target: Path, names: dict[str, str]) -> Path:
    """The archive with other names of checkpoints."""
    fields = ("uuid", "resumed_from", "latest_checkpoint", "source_checkpoint")

    def renamed(line: bytes) -> bytes:
        row = from_line(line)[2]
        found = {name: names[value] for name in fields if (value := getattr(row, name, None)) in names}
        return to_line(replace(row, **found)).encode()

    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w") as file:
        for info in source.infolist():
            content = source.read(info)
            if info.filename == copies.ROWS:
                content = b"".join(map(renamed, content.splitlines(keepends=True)))
            file.writestr(info, content)
    return target


def test_deleting_a_copy_removes_no_files_that_were_not_copied_with_it(
    served: Served, archive: Path, tmp_path: Path
) -> None:
    """Two installations may use one storage: what an archive had no files of is the original's there, whose rows are gone here as
    they are nowhere in the other's database."""
    home = served.daemon.installation.home
    names = {uuid_of(trial_id, steps): str(uuids.uuid4()) for trial_id in (1, 2) for steps in (2, 4)}
    owned, *of_before = names.values()
    store = FileStore(home.checkpoints)
    for name, owner in ((owned, Owner("the-original", "u", 5, 6)), *((name, None) for name in of_before)):
        (store.stage(name) / "weights.pt").write_bytes(b"w")
        store.publish(name, owner=owner)
    plain = _without_checkpoints(served, tmp_path / "plain.zip")
    copy = take_in(served, _hostile(served, plain, tmp_path / "elsewhere.zip", names))
    with served.daemon.store.read() as connection:
        known = queries.checkpoints_of_experiment(connection, copy)
    assert {row.uuid for row in known} == set(names.values())
    assert all(row.state is CheckpointState.DELETED for row in known)
    files = {path.name for path in home.checkpoints.iterdir()}
    served.delete(copy)
    assert {path.name for path in home.checkpoints.iterdir()} == files >= set(names.values())


def test_an_archive_that_calls_its_checkpoints_as_folders_are_called_deletes_none(
    served: Served, archive: Path, tmp_path: Path
) -> None:
    home = served.daemon.installation.home
    store = FileStore(home.checkpoints)
    others = str(uuids.uuid4())
    (store.stage(others) / "weights.pt").write_bytes(b"w")
    store.publish(others, owner=Owner("another", "cluster", 5, 6))
    (home.checkpoints / "thesis").mkdir()
    (home.checkpoints / "thesis" / "thesis.tex").write_text("...")
    names = {uuid_of(1, 2): "thesis", uuid_of(2, 2): others}
    copy = take_in(served, _hostile(served, archive, tmp_path / "hostile.zip", names))
    with served.daemon.store.read() as connection:
        rows = {row.uuid: row for row in queries.checkpoints_of_experiment(connection, copy)}
    assert {"thesis", others} <= rows.keys()
    served.daemon.store.commit([replace(rows[name], state=CheckpointState.COMPLETED) for name in ("thesis", others)])
    served.delete(copy)
    left = {path.name for path in home.checkpoints.iterdir()}
    assert {"thesis", others} <= left and not left & (rows.keys() - {"thesis", others} - {uuid_of(1, 4), uuid_of(2, 4)})
    for name in ("..", ".", "/etc", "a/b", "../runs"):
        with pytest.raises(Refused):
            take_in(served, _hostile(served, archive, tmp_path / "outside.zip", {uuid_of(1, 2): name}))


def test_the_files_of_a_copy_name_the_copy_and_go_with_it(served: Served, archive: Path) -> None:
    copy = take_in(served, archive)
    home, cluster = served.daemon.installation.home, served.daemon.installation.cluster_id
    with served.daemon.store.read() as connection:
        row = queries.experiment(connection, copy)
        own = [
            each.uuid
            for each in queries.checkpoints_of_experiment(connection, copy)
            if each.state is CheckpointState.COMPLETED
        ]
    owners = {FileStore(home.checkpoints).identity(uuid).owner for uuid in own}
    assert owners == {Owner(cluster, row.queue_id)} and len(own) == 2
    before = {path.name for path in home.checkpoints.iterdir()}
    served.delete(copy)
    assert {path.name for path in home.checkpoints.iterdir()} == before - set(own)


def test_an_archive_that_is_imported_twice_is_one_experiment_unless_asked_for_again(
    served: Served, archive: Path, tmp_path: Path
) -> None:
    """A client that heard nothing of the first try does not know whether it was taken in."""
    first = client.take_in(served.session, archive, quiet)
    files = {path.name for path in served.daemon.installation.home.checkpoints.iterdir()}
    renamed = Path(shutil.copy(archive, tmp_path / "renamed.zip"))
    second = client.take_in(served.session, renamed, quiet)
    assert second["experiment"]["id"] == first["experiment"]["id"] and second["before"] and not first["before"]
    assert {path.name for path in served.daemon.installation.home.checkpoints.iterdir()} == files
    other = take_in(served, _without_checkpoints(served, tmp_path / "other.zip"))
    again = client.take_in(served.session, archive, quiet, again=True)
    assert len({first["experiment"]["id"], other, again["experiment"]["id"]}) == 3 and not again["before"]
    served.delete(again["experiment"]["id"])
    third = client.take_in(served.session, archive, quiet)
    assert third["before"] and third["experiment"]["id"] == first["experiment"]["id"]


def test_of_two_clients_that_import_one_archive_at_once_the_later_leaves_nothing(
    served: Served, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = served.daemon.installation.home
    before = {path.name for path in home.checkpoints.iterdir()}
    real, found = client.copies.take_in, []

    def slower(session: Any, path: Path, copied: Any, uuid: str, again: bool = False) -> Any:
        monkeypatch.setattr(client.copies, "take_in", real)
        found.append(client.take_in(served.session, archive, quiet))
        return real(session, path, copied, uuid, again)

    monkeypatch.setattr(client.copies, "take_in", slower)
    later = client.take_in(served.session, archive, quiet)
    assert later["before"] and later["experiment"]["id"] == found[0]["experiment"]["id"]
    assert len({path.name for path in home.checkpoints.iterdir()} - before) == 2
    assert client.copies.look(served.session, archive)["takenIn"] == found[0]["experiment"]["id"]
