"""What goes when an experiment has ended, and how: chosen by its policy, removed by one task for all that has come together."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dethpc.cli.commands.audit import audit
from dethpc.client.nouns import checkpoints, experiments
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import EVERYTHING, Checkpoint, Row, Task, Trial
from dethpc.domain.records import ModelVersion
from dethpc.domain.secrets import MASK
from dethpc.domain.states import State, TaskKind
from dethpc.engine import events
from dethpc.errors import NotFound, Refused
from dethpc.exec import garbage
from dethpc.master.files.collector import REST, REST_AFTER_FAILURE
from dethpc.rundir.files import write_json
from dethpc.state import queries, rows
from dethpc.storage import build
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Owner
from tests.master.conftest import CONFIG, T0, Published, Served, experiment, trained, trial, uuid_of
from tests.storage.contract import stored
from tests.storage.servers import Azure, azure_server

__all__ = ["azure_server"]


@pytest.fixture
def storage(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "storage")


def ended(served: Served, storage: FileStore, id: int = 1, collect: bool = True, **policy: int) -> list[str]:
    """An experiment of one trial that has just ended, with two checkpoints: at step 2, the better one, and at step 4."""
    section = {"type": "shared_fs", "host_path": str(storage), **policy}
    uuids = [uuid_of(id, 2), uuid_of(id, 4)]
    for uuid in uuids:
        with stored(storage, uuid) as path:
            (path / "weights.pt").write_bytes(b"w" * 1000)
    config = {**CONFIG, "checkpoint_storage": section}
    of_trial = trained(trial(id, id, index=0, latest_checkpoint=uuids[1]))
    served.put([experiment(id, config=config, owner=served.owner, collect=collect), *of_trial])
    return uuids


def there(storage: FileStore, *uuids: str) -> list[bool]:
    return [storage.exists(uuid) for uuid in uuids]


def states(served: Served, *uuids: str) -> list[str]:
    return [checkpoints.get(served.session, uuid)["state"].removeprefix("STATE_") for uuid in uuids]


def tasks(served: Served) -> list[Task]:
    with served.daemon.store.read() as connection:
        return rows.read(connection, Task, rows.table(Task).c.kind == TaskKind.CHECKPOINT_GC)


def test_what_the_policy_does_not_keep_goes_when_the_experiment_has_ended(served: Served, storage: FileStore) -> None:
    kept = ended(served, storage, 1)  # the best and the latest
    best, latest = ended(served, storage, 2, save_trial_best=0)
    served.collect()
    assert there(storage, *kept, best, latest) == [True, True, False, True]
    assert states(served, *kept, best, latest) == ["COMPLETED", "COMPLETED", "DELETED", "COMPLETED"]
    gone = checkpoints.get(served.session, best)
    assert gone["resources"] == {}
    assert gone["reason"] == "not among those that save_experiment_best, save_trial_best and save_trial_latest keep"
    served.collect()
    assert len(tasks(served)) == 1  # nothing more is to be done


def test_a_checkpoint_that_is_to_go_keeps_its_state_and_is_none_of_the_best(served: Served, storage: FileStore) -> None:
    best, latest = ended(served, storage)
    with served.daemon.store.read() as connection:
        row = queries.checkpoint(connection, best)
    served.put([replace(row, removing=EVERYTHING)])
    assert there(storage, best) == [True] and states(served, best, latest) == ["COMPLETED", "COMPLETED"]
    assert checkpoints.get(served.session, best)["reason"] == "its files are being removed"
    assert [one["uuid"] for one in experiments.checkpoints(served.session, 1, best=5)] == [latest]


def test_the_end_of_a_task_is_looked_at_at_once(
    served: Served, storage: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(served, storage, save_trial_best=0)
    woken: list[bool] = []
    monkeypatch.setattr(served.daemon.collector, "wake", lambda: woken.append(True))
    served.daemon.collector.look(T0)
    assert not woken, "its task has only begun"
    served.collect(T0)
    assert woken


def test_removal_and_what_people_launch_wait_in_queues_of_their_own(served: Served, storage: FileStore) -> None:
    ended(served, storage, save_trial_best=0)
    served.daemon.collector.look(T0)
    served.session.post("/api/v1/commands", {"config": {"entrypoint": ["true"], "resources": {"slots": 0}}})
    ledger = served.daemon.ledger
    ledger.do(events.Schedule(time.time()))
    runs = list(ledger.state.runs.values())
    job_of = served.daemon.builder.prepare(runs)
    kinds = {ledger.state.tasks[run.task_id].kind: job_of(run).queue for run in runs}
    assert kinds == {TaskKind.CHECKPOINT_GC: "housekeeping", TaskKind.COMMAND: "tasks"}


def test_what_has_come_together_goes_in_one_task_and_the_next_one_waits(served: Served, storage: FileStore) -> None:
    gone = [uuid for id in (1, 2, 3) for uuid in ended(served, storage, id, save_trial_best=0, save_trial_latest=0)]
    served.collect(T0)
    assert not any(there(storage, *gone)) and len(tasks(served)) == 1
    more = ended(served, storage, 4, save_trial_best=0, save_trial_latest=0)
    served.collect(T0 + REST - 1)
    assert states(served, *more) == ["COMPLETED"] * 2 and all(there(storage, *more)) and len(tasks(served)) == 1
    served.collect(T0 + REST)
    assert states(served, *more) == ["DELETED"] * 2 and not any(there(storage, *more)) and len(tasks(served)) == 2


def test_what_could_not_be_removed_is_tried_again_and_no_sooner_than_said(served: Served, storage: FileStore) -> None:
    first, second = ended(served, storage, save_trial_best=0, save_trial_latest=0)
    folder = Path(str(storage))
    folder.rename(folder.with_name("away"))
    served.collect(T0)
    (failed,) = tasks(served)
    assert failed.state is State.ERROR
    folder.with_name("away").rename(folder)
    served.collect(T0 + REST_AFTER_FAILURE - 1)
    assert all(there(storage, first, second))
    served.collect(T0 + REST_AFTER_FAILURE)
    assert not any(there(storage, first, second)) and tasks(served)[-1] is not failed


def test_what_belongs_to_a_pool_that_is_gone_is_removed_by_a_task_in_the_default_pool(
    served: Served, storage: FileStore
) -> None:
    """A partition was renamed, or the master found no Slurm then."""
    best, latest = ended(served, storage, save_trial_best=0)
    with served.daemon.store.read() as connection:
        row = queries.experiment(connection, 1)
    pool = row.pool
    served.put([replace(row, pool="gone")])
    served.collect(T0)
    assert there(storage, best, latest) == [False, True]
    served.session.delete("/api/v1/experiments/1")
    _run_of_deletion(served, T0)
    assert there(storage, latest) == [False]
    assert [(task.pool, task.state) for task in tasks(served)] == [(pool, State.COMPLETED)] * 2
    with pytest.raises(NotFound, match="deleted"):
        experiments.get(served.session, 1)


def test_a_job_that_left_no_word_has_its_work_done_again(served: Served, storage: FileStore) -> None:
    first, second = ended(served, storage, save_trial_best=0, save_trial_latest=0)
    served.daemon.collector.look(T0)
    (run,) = served.daemon.ledger.state.runs.values()
    storage.delete(first)  # its node went down on the way
    served.daemon.ledger.do(events.KillTask(run.task_id, T0))
    served.daemon.ledger.do(events.AttemptEnded(run.id, -1, None, None, T0))
    served.collect(T0 + REST_AFTER_FAILURE)
    assert not any(there(storage, first, second))
    served.collect(T0 + 3 * REST_AFTER_FAILURE)
    assert len(tasks(served)) == 2


def _run_of_deletion(served: Served, at: float) -> None:
    """As its job on a compute node would remove an experiment's files."""
    ledger = served.daemon.ledger
    (run,) = ledger.state.runs.values()
    code = garbage.main(str(served.daemon.builder.prepare([run])(run).run_dir / "garbage.json"))
    ledger.do(events.AttemptStarted(run.id, 0, ["node1"], None, 0, at))
    ledger.do(events.AttemptEnded(run.id, 0, EndReport(finished=not code, exit_code=code), None, at))


def test_an_experiment_whose_storage_was_away_is_deleted_when_it_is_back(served: Served, storage: FileStore) -> None:
    first, second = ended(served, storage)
    folder = Path(str(storage))
    folder.rename(folder.with_name("away"))
    served.session.delete("/api/v1/experiments/1")
    asked = tasks(served)[0].created_at
    _run_of_deletion(served, asked + 100)
    found = served.session.get("/api/v1/experiments/1")["experiment"]
    assert found["state"] == "STATE_DELETE_FAILED" and "it is tried again by itself" in found["reason"]
    folder.with_name("away").rename(folder)
    served.daemon.collector.look(asked + 199)
    assert len(tasks(served)) == 1
    served.daemon.collector.look(asked + 200)
    assert served.session.get("/api/v1/experiments/1")["experiment"]["state"] == "STATE_DELETING"
    _run_of_deletion(served, asked + 210)
    assert not any(there(storage, first, second)) and len(tasks(served)) == 2
    with pytest.raises(NotFound, match="deleted"):
        served.session.get("/api/v1/experiments/1")


def test_a_deletion_that_its_owner_stopped_does_not_go_on_by_itself(served: Served, storage: FileStore) -> None:
    ended(served, storage)
    served.session.delete("/api/v1/experiments/1")
    (task,) = tasks(served)
    served.daemon.ledger.do(events.KillTask(task.id, task.created_at))
    (run,) = served.daemon.ledger.state.runs.values()
    served.daemon.ledger.do(events.AttemptEnded(run.id, -1, None, None, task.created_at))
    served.daemon.collector.look(task.created_at + 10 * REST_AFTER_FAILURE)
    found = served.session.get("/api/v1/experiments/1")["experiment"]
    assert found["state"] == "STATE_DELETE_FAILED" and found["reason"].endswith("to go on: det experiment delete 1")


def test_an_experiment_that_goes_on_meanwhile_keeps_what_it_has(served: Served, storage: FileStore) -> None:
    uuids = ended(served, storage, save_trial_best=0, save_trial_latest=0)
    served.put([experiment(1, state=State.ACTIVE, collect=False)])
    served.collect()
    assert states(served, *uuids) == ["COMPLETED", "COMPLETED"]


def _model(served: Served, uuid: str) -> list[Row]:
    served.daemon.services.records.put(ModelVersion("digits", 3, uuid, T0))
    return []


def _rendered(served: Served, uuid: str) -> list[Row]:
    run = served.daemon.installation.home.run("0f3c.1")
    run.make()
    write_json(run.spec, {"run": "0f3c.1", "source_checkpoint": uuid})
    return []


def _trial(state: State, **more: object) -> Trial:
    return replace(trial(7, 7), index=0, state=state, latest_checkpoint=None, **more)  # type: ignore[arg-type]


def _paused(served: Served, uuid: str) -> list[Row]:
    state = served.daemon.ledger.state
    state.apply(experiment(7, state=State.PAUSED))
    state.apply(_trial(State.PAUSED, source_checkpoint=uuid))
    return []


def _yet_to_begin(served: Served, uuid: str) -> list[Row]:
    source = {**CONFIG, "searcher": {**CONFIG["searcher"], "source_checkpoint_uuid": uuid}}
    served.daemon.ledger.state.apply(experiment(7, state=State.ACTIVE, config=source))
    return []


NEEDS = {
    "version 3 of model digits": _model,
    "run 0f3c.1, which was rendered without a master": _rendered,
    "trial 7 of experiment 7 would start from it": _paused,
    "the trials of experiment 7 start from it": _yet_to_begin,
}


@pytest.mark.parametrize("words", NEEDS)
def test_what_somebody_needs_neither_a_policy_takes_nor_its_owner(
    served: Served, storage: FileStore, words: str
) -> None:
    needed, other = ended(served, storage, save_trial_best=0, save_trial_latest=0)
    served.put(NEEDS[words](served, needed))
    served.collect()
    assert there(storage, needed, other) == [True, False] and states(served, needed) == ["COMPLETED"]
    for refused in (
        lambda: checkpoints.delete(served.session, [needed]),
        lambda: checkpoints.remove_files(served.session, [needed], ["*.pt"]),
        lambda: experiments.delete(served.session, 1),
    ):
        with pytest.raises(Refused, match=f"checkpoint {needed} is needed: .*{words}"):
            refused()


def test_a_trial_that_saved_nothing_keeps_the_checkpoint_at_which_it_began(served: Served, storage: FileStore) -> None:
    """A policy leaves it. Its owner may delete it, and is then told why the trial cannot go on."""
    source, other = ended(served, storage, save_trial_best=0, save_trial_latest=0)
    config = {**CONFIG, "searcher": {"name": "single", "metric": "loss", "source_checkpoint_uuid": source}}
    begun = _trial(State.ERROR, source_checkpoint=source)
    served.put([experiment(7, state=State.ERROR, config=config, owner=served.owner), begun])
    served.collect()
    assert states(served, source, other) == ["COMPLETED", "DELETED"]
    checkpoints.delete(served.session, [source])
    with pytest.raises(Refused, match="trial 7 has no checkpoint of its own .* the one at which it began was deleted"):
        experiments.go_on(served.session, 7)


def test_a_rendered_run_that_has_trained_to_its_end_needs_nothing(served: Served, storage: FileStore) -> None:
    first, second = ended(served, storage, save_trial_best=0, save_trial_latest=0)
    _rendered(served, first)
    attempt = served.daemon.installation.home.run("0f3c.1").attempt(0)
    attempt.make()
    write_json(attempt.end, {"finished": True, "exit_code": 0})
    served.collect()
    assert not any(there(storage, first, second))


def test_a_policy_is_previewed_and_set_by_the_published_client(
    served: Served, published: Published, storage: FileStore
) -> None:
    best, latest = ended(served, storage, collect=False)
    words = ("experiment", "set", "gc-policy", "1", "--save-experiment-best", "1", "--save-trial-best", "0")
    shown = published.det(*words, "--save-trial-latest", "0", input="n\n")
    assert latest in shown and best not in shown and "This policy will delete 1 checkpoints with validations" in shown
    served.collect()
    assert states(served, best, latest) == ["COMPLETED", "COMPLETED"]
    published.det(*words, "--save-trial-latest", "0", "--yes")
    served.collect()
    assert states(served, best, latest) == ["COMPLETED", "DELETED"] and there(storage, best, latest) == [True, False]
    config = served.session.get("/api/v1/experiments/1")["experiment"]["config"]
    kept = {name: value for name, value in config["checkpoint_storage"].items() if name.startswith("save_")}
    assert kept == {"save_experiment_best": 1, "save_trial_best": 0, "save_trial_latest": 0}


def test_policies_of_experiments_that_ended_long_ago_are_followed_when_asked(
    served: Served, storage: FileStore
) -> None:
    for id in (1, 2):
        ended(served, storage, id, collect=False, save_trial_best=0)
    ended(served, storage, 3, collect=False)
    found = checkpoints.prunable(served.session)
    assert [(e["id"], e["checkpoints"], e["size"]) for e in found] == [(1, 1, 1000), (2, 1, 1000)]
    assert [e["id"] for e in checkpoints.prunable(served.session, [2, 3])] == [2]
    checkpoints.prune(served.session, [2])
    served.collect()
    assert there(storage, uuid_of(1, 2), uuid_of(2, 2), uuid_of(2, 4)) == [True, False, True]
    assert [e["id"] for e in checkpoints.prunable(served.session)] == [1]
    shutil.rmtree(str(storage))


def test_files_removed_by_globs_leave_a_checkpoint_that_can_be_read(served: Served, storage: FileStore) -> None:
    uuid, other = ended(served, storage, collect=False)
    mixed = uuid_of(1, 6)
    with stored(storage, mixed) as path:
        (path / "weights.pt").write_bytes(b"w" * 10)
        (path / "optimizer.pt").write_bytes(b"o" * 20)
    row = next(row for row in trained(trial(1)) if isinstance(row, Checkpoint))
    served.put([replace(row, uuid=mixed, seq=50, resources={"weights.pt": 10, "optimizer.pt": 20})])
    checkpoints.remove_files(served.session, [mixed], ["opt*"])
    served.collect()
    found = checkpoints.get(served.session, mixed)
    assert (found["state"], found["resources"]) == ("STATE_PARTIALLY_DELETED", {"weights.pt": "10"})
    with storage.restore(mixed) as path:  # its checksums are compared
        assert sorted(each.name for each in path.iterdir() if not each.name.startswith(".")) == ["weights.pt"]
    assert states(served, uuid, other) == ["COMPLETED", "COMPLETED"]


def test_what_no_experiment_knows_is_named_verified_and_removed_when_asked(
    served: Served, storage: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, deleted = ended(served, storage, save_trial_best=0)
    for uuid in ("orphan", "hurt"):
        with stored(storage, uuid) as path:
            (path / "weights.pt").write_bytes(b"w" * 1000)
    folder = Path(str(storage))
    (folder / "hurt" / "weights.pt").write_bytes(b"x" * 1000)
    (folder / ".half.partial" / "half").mkdir(parents=True)
    (folder / "datasets").mkdir()  # no checkpoint: not ours to name
    checkpoints.delete(served.session, [deleted])  # its files go by the task
    monkeypatch.setattr("dethpc.cli.commands.audit.connect", lambda: served.session)
    run = CliRunner()
    young = run.invoke(audit, [str(folder)])
    assert (
        f"0 checkpoints in {folder} that nobody knows" in young.output
        and "3 more changed in the last 24 hours" in young.output
    )
    assert json.loads(run.invoke(audit, [str(folder), "--older-than", "0", "--json"]).stdout)[0]["uuid"] in {
        "orphan",
        "hurt",
        "half",
    }
    shown = run.invoke(audit, [str(folder), "--older-than", "0", "--verify"]).output
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert {"orphan", "hurt", "half"} <= lines.keys() and known not in shown and deleted not in shown
    changed = datetime.fromisoformat(lines["orphan"].split()[-1])
    assert changed.tzinfo is not None and changed.timestamp() == pytest.approx(time.time(), abs=3600)
    assert "as its manifest says" in lines["orphan"] and "damaged" in lines["hurt"] and "remainder" in lines["half"]
    assert run.invoke(audit, [str(folder), "--older-than", "0", "--remove"], input="n\n").exit_code != 0
    assert storage.exists("orphan")
    other = Path(f"{folder}-2")
    with stored(FileStore(other), "elsewhere") as path:
        (path / "weights.pt").write_bytes(b"w")
    both = run.invoke(audit, [str(folder), str(other), "--older-than", "0"]).output
    assert f"3 checkpoints in {folder} that" in both and f"1 checkpoint in {other} that" in both
    everywhere = [str(folder), str(other), "--older-than", "0", "--remove", "--unowned", "--yes"]
    assert "Removed 4" in run.invoke(audit, everywhere).output
    assert not (other / "elsewhere").exists()
    assert sorted(path.name for path in folder.iterdir()) == sorted([known, deleted, "datasets"])


def test_an_audit_says_whose_checkpoints_are_and_removes_its_own_clusters_alone(
    served: Served, storage: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.cli.commands.audit.connect", lambda: served.session)
    cluster = served.daemon.installation.cluster_id
    for name, owner in (("mine", Owner(cluster, "u", 7, 9)), ("foreign", Owner("elsewhere", "u", 8, 9)), ("old", None)):
        storage.stage(name)
        storage.publish(name, owner=owner)
    run, folder = CliRunner(), str(storage)
    lines = run.invoke(audit, [folder, "--older-than", "0"]).output.splitlines()
    whose = {line.split()[0]: line for line in lines if line.startswith(("mine", "foreign", "old"))}
    assert "experiment 7 of this cluster" in whose["mine"] and "it does not say" in whose["old"]
    assert "experiment 8 of cluster" in whose["foreign"]
    done = run.invoke(audit, [folder, "--older-than", "0", "--remove", "--yes"])
    assert "Removed 1" in done.output and "1 belong to another cluster" in done.output and "--unowned" in done.output
    assert not storage.exists("mine") and storage.exists("foreign") and storage.exists("old")
    run.invoke(audit, [folder, "--older-than", "0", "--remove", "--unowned", "--yes"])
    assert storage.exists("foreign") and not storage.exists("old")


def test_an_audit_says_which_folders_are_not_there(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dethpc.cli.commands.audit.connect", lambda: served.session)
    run, empty, file = CliRunner(), tmp_path / "empty", tmp_path / "a file"
    empty.mkdir()
    file.write_text("")
    assert run.invoke(audit, [str(empty)]).exit_code == 0
    done = run.invoke(audit, [str(empty), str(tmp_path / "nope"), str(file), "--remove", "--yes"])
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.splitlines() == [f"det: error: there is no folder {p}" for p in (tmp_path / "nope", file)]


def test_an_audit_needs_of_a_configuration_its_storage_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dethpc.cli.commands.audit.connect", lambda: served.session)
    run, file, folder = CliRunner(), tmp_path / "config.yaml", tmp_path / "checkpoints"
    folder.mkdir()

    def audited(text: str) -> tuple[int, str]:
        file.write_text(text)
        done = run.invoke(audit, ["--config-file", str(file)])
        return done.exit_code, " ".join(str(done.exception if done.exit_code == 1 else done.output).split())

    storage = f"checkpoint_storage: {{type: shared_fs, host_path: {folder}}}"
    for text in (storage, f"searcher: {{name: nobodys}}\n{storage}"):
        assert audited(text) == (0, f"0 checkpoints in {folder} that nobody knows, 0 B")
    file.write_text("name: x")
    done = run.invoke(audit, ["--config-file", str(file)])
    assert (done.exit_code, done.stderr) == (
        1,
        f"det: error: {file} has no checkpoint_storage: name the storage by a path or a URL\n",
    )
    status, said = audited("name: x\ncheckpoint_storage: {type: shared_fs}")
    assert status == 1 and said.startswith(f"{file}:2: checkpoint_storage.host_path: required field is missing")


def test_an_audit_takes_the_storage_of_a_configuration_with_its_keys_and_shows_none(
    served: Served, azure_server: Azure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    section = azure_server.section()
    with stored(build(section, disk=str(tmp_path / "disk")), "orphan") as path:
        (path / "weights.pt").write_bytes(b"w")
    monkeypatch.setattr("dethpc.cli.commands.audit.connect", lambda: served.session)
    run, file = CliRunner(), tmp_path / "config.yaml"

    def said(storage: Any, *options: str) -> str:
        file.write_text(json.dumps({**CONFIG, "checkpoint_storage": storage}))
        result = run.invoke(audit, ["--config-file", str(file), "--older-than", "0", *options])
        assert not [
            secret for secret in section.values() if len(secret) > 20 and secret in result.output + result.stderr
        ]
        return result.output + str(result.exception or "")

    assert "orphan" in said(section, "--json") and "1 checkpoint in azure://" in said(section)
    assert "stands for a secret that was not shown" in said({**section, "connection_string": MASK})
    wrong = section["connection_string"].replace("AccountKey=", "AccountKey=AAAA")
    assert "azure://" in said({**section, "connection_string": wrong}) and wrong not in said(section)
    assert "Removed 1" in said(section, "--remove", "--unowned", "--yes") and "0 checkpoints in azure://" in said(
        section
    )
    assert run.invoke(audit, []).exit_code == 2
