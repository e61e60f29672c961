"""Checkpoints after their report: metadata, deletion, and files that are really gone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dethpc import storage as stores
from dethpc.cli.nouns.checkpoint import download_checkpoint
from dethpc.client.nouns import checkpoints
from dethpc.domain.facts import Checkpoint as CheckpointRow
from dethpc.domain.facts import Run
from dethpc.domain.states import State
from dethpc.errors import ConfigError, MasterError, NotFound, Refused
from dethpc.experimental.checkpoint import Checkpoint
from dethpc.master.files.collector import REST
from dethpc.master.http.auth import mint_run_token
from dethpc.rundir.files import write_json
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Owner
from tests.master.conftest import CONFIG, T0, Published, Served, experiment, trained, trial, uuid_of
from tests.storage import remote
from tests.storage.contract import stored

FIRST, SECOND = uuid_of(1, 2), uuid_of(1, 4)
QUEUE = "6d0e4c3c-6f5e-4a6e-9d0c-0b7a3c1f2e11"


def section_of(place: FileStore) -> dict[str, str]:
    return {"type": "shared_fs", "host_path": str(place)}


@pytest.fixture
def storage(served: Served, tmp_path: Path) -> FileStore:
    """A finished trial with two checkpoints in real storage."""
    place = FileStore(tmp_path / "storage")
    for uuid in (FIRST, SECOND):
        with stored(place, uuid) as path:
            (path / "weights.pt").write_bytes(b"w" * 1000)
            (path / "code").mkdir()
            (path / "code" / "net.py").write_text("x = 1\n")
    config = {**CONFIG, "checkpoint_storage": {"type": "shared_fs", "host_path": str(place)}}
    served.put([experiment(1, config=config, owner=served.owner), *trained(trial(1))])
    return place


def test_det_touches_no_files_outside_the_experiments_storage(
    served: Served, storage: FileStore, tmp_path: Path
) -> None:
    """Wherever training code says that it put them."""
    precious = tmp_path / "home" / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("...")
    rows = {row.uuid: row for row in trained(trial(1)) if isinstance(row, CheckpointRow)}
    away = {"type": "shared_fs", "host_path": str(precious.parent)}
    here = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "storage"}
    served.put([replace(rows[FIRST], uuid="precious", seq=99, storage=away), replace(rows[SECOND], storage=here)])
    for act in (
        lambda: checkpoints.delete(served.session, ["precious"]),
        lambda: checkpoints.delete(served.session, [FIRST, "precious"]),
        lambda: checkpoints.remove_files(served.session, ["precious"], ["*.tex"]),
        lambda: checkpoints.remove_files(served.session, ["precious"], []),
        lambda: download_checkpoint(served.session, "precious", str(tmp_path / "got"), True),
        lambda: Checkpoint._from_wire(served.session, checkpoints.get(served.session, "precious")).download(
            str(tmp_path / "got")
        ),
    ):
        with pytest.raises(Refused, match=f"precious is in {precious.parent}, where the training code put it"):
            act()
    assert (precious / "thesis.tex").exists() and not (tmp_path / "got").exists()
    assert (Path(str(storage)) / FIRST / "weights.pt").exists()
    checkpoints.delete(served.session, [SECOND])  # the same place in other words
    served.collect()
    assert not (Path(str(storage)) / SECOND).exists()


@pytest.mark.parametrize("mode", ["direct", "master"])
def test_a_folder_that_holds_another_checkpoint_is_left_as_it_is(
    served: Served, storage: FileStore, tmp_path: Path, mode: str
) -> None:
    into, own = tmp_path / "best", tmp_path / SECOND
    download_checkpoint(served.session, FIRST, str(into), True, mode)
    before = {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}
    download_checkpoint(served.session, FIRST, str(into), True, mode)
    with pytest.raises(Refused, match=f"{into} holds other files than checkpoint {SECOND}.* another folder with -o"):
        download_checkpoint(served.session, SECOND, str(into), True, mode)
    assert {path: path.read_bytes() for path in into.rglob("*") if path.is_file()} == before
    for _ in range(2):  # a folder of its own name needs no mark
        download_checkpoint(served.session, SECOND, str(own), True, mode)
    assert not any(path.name.startswith(".") for path in own.iterdir())


def test_metadata_are_replaced(served: Served, storage: FileStore) -> None:
    checkpoints.set_metadata(served.session, FIRST, {"good": True})
    assert checkpoints.get(served.session, FIRST)["metadata"] == {"steps_completed": 2, "good": True}


def test_a_deleted_checkpoint_has_no_files_and_stays_on_record(served: Served, storage: FileStore) -> None:
    checkpoints.delete(served.session, [FIRST])
    checkpoint = checkpoints.get(served.session, FIRST)
    assert (checkpoint["state"], checkpoint["reason"]) == ("STATE_COMPLETED", "its files are being removed")
    assert (Path(str(storage)) / FIRST).exists()  # no request on the login node removes files
    with pytest.raises(Refused, match="is DELETED"):
        b"".join(checkpoints.archive(served.session, FIRST))
    served.collect()
    checkpoint = checkpoints.get(served.session, FIRST)
    assert (checkpoint["state"], checkpoint["resources"], checkpoint["reason"]) == ("STATE_DELETED", {}, "")
    assert not (Path(str(storage)) / FIRST).exists() and (Path(str(storage)) / SECOND / "weights.pt").exists()
    checkpoints.delete(served.session, [FIRST])  # again does no harm


def test_files_are_removed_by_globs(served: Served, storage: FileStore) -> None:
    checkpoints.remove_files(served.session, [FIRST], ["nothing.of.it"])
    assert checkpoints.get(served.session, FIRST)["reason"] == ""
    checkpoints.remove_files(served.session, [FIRST], ["code"])
    checkpoint = checkpoints.get(served.session, FIRST)
    assert checkpoint["state"] == "STATE_COMPLETED" and "code/" in checkpoint["resources"]
    served.collect(T0)
    checkpoint = checkpoints.get(served.session, FIRST)
    assert (checkpoint["state"], checkpoint["resources"]) == ("STATE_PARTIALLY_DELETED", {"weights.pt": "1000"})
    with storage.restore(FIRST) as path:
        assert [p.name for p in path.iterdir() if not p.name.startswith(".")] == ["weights.pt"]
    checkpoints.remove_files(served.session, [FIRST], ["*.pt"])
    assert checkpoints.get(served.session, FIRST)["state"] == "STATE_PARTIALLY_DELETED"
    served.collect(T0 + REST)
    assert checkpoints.get(served.session, FIRST)["state"] == "STATE_DELETED"
    assert not (Path(str(storage)) / FIRST).exists()


def test_without_globs_the_record_follows_the_files(served: Served, storage: FileStore) -> None:
    (Path(str(storage)) / SECOND / "weights.pt").unlink()
    checkpoints.remove_files(served.session, [SECOND], [])
    found = checkpoints.get(served.session, SECOND)
    assert (found["state"], sorted(found["resources"])) == ("STATE_PARTIALLY_DELETED", ["code/", "code/net.py"])


def test_a_storage_that_is_not_mounted_where_the_master_runs_is_not_taken_for_an_empty_one(
    served: Served, storage: FileStore, tmp_path: Path
) -> None:
    folder = Path(str(storage))
    folder.rename(tmp_path / "elsewhere")
    for globs in ([], ["*.pt"]):
        with pytest.raises(Refused, match="is not there on"):
            checkpoints.remove_files(served.session, [SECOND], globs)
    assert checkpoints.get(served.session, SECOND)["state"] == "STATE_COMPLETED"
    (tmp_path / "elsewhere").rename(folder)
    shutil.rmtree(folder / SECOND)
    checkpoints.remove_files(served.session, [SECOND], [])
    assert checkpoints.get(served.session, SECOND)["state"] == "STATE_DELETED"


def test_a_storage_that_is_away_is_named_when_its_files_are_asked_for(
    served: Served, storage: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> dict[str, int]:
        raise OSError(5, "no answer")

    monkeypatch.setattr(FileStore, "surviving", away)
    with pytest.raises(MasterError, match=r"the master cannot read .*no answer"):
        checkpoints.remove_files(served.session, [SECOND], [])
    assert checkpoints.get(served.session, SECOND)["state"] == "STATE_COMPLETED"


def test_what_a_trial_would_start_from_is_kept(served: Served, storage: FileStore) -> None:
    live = replace(trial(7, 2), index=0, state=State.PAUSED, source_checkpoint=SECOND, ended_at=None)
    served.daemon.ledger.state.apply(experiment(2, state=State.PAUSED))
    served.daemon.ledger.state.apply(live)
    with pytest.raises(Refused, match="trial 7 of experiment 2 would start from it"):
        checkpoints.delete(served.session, [FIRST, SECOND])
    assert checkpoints.get(served.session, FIRST)["state"] == "STATE_COMPLETED"  # all or none
    assert (Path(str(storage)) / FIRST).exists() and (Path(str(storage)) / SECOND).exists()


def test_unknown_checkpoints_and_those_of_an_unfit_storage_are_refused(served: Served, storage: FileStore) -> None:
    with pytest.raises(NotFound):
        checkpoints.delete(served.session, [FIRST, "no-such"])
    config = {**CONFIG, "checkpoint_storage": {"type": "azure", "container": "x"}}
    served.put([experiment(1, config=config, owner=served.owner)])
    with pytest.raises(ConfigError, match="connection_string"):
        checkpoints.delete(served.session, [FIRST])
    assert checkpoints.get(served.session, FIRST)["state"] == "STATE_COMPLETED"


def test_the_published_client_deletes_and_annotates(served: Served, published: Published, storage: FileStore) -> None:
    published.det("checkpoint", "delete", "--yes", FIRST)
    published.det("checkpoint", "rm", "--yes", "--glob", "code", SECOND)
    served.collect()
    assert not (Path(str(storage)) / FIRST).exists() and not (Path(str(storage)) / SECOND / "code" / "net.py").exists()
    found = published.python(
        f"c = client.Determined._from_session(sess).get_checkpoint({SECOND!r})\n"
        "c.add_metadata({'a': 1, 'b': 2}); c.remove_metadata(['a']); c.reload()\n"
        "print(json.dumps([c.state.name, c.metadata]))"
    )
    assert found == ["PARTIALLY_DELETED", {"steps_completed": 4, "framework": "torch", "b": 2}]


def test_files_of_a_store_that_is_no_folder_are_deleted(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "KINDS", dict(stores.KINDS))
    remote.install()
    section = {"type": "s3", "bucket": str(tmp_path / "server")}
    store = stores.build(section)
    for uuid in (FIRST, SECOND):
        with stored(store, uuid) as path:
            (path / "weights.pt").write_bytes(b"w" * 1000)
            (path / "metadata.json").write_text("{}")
    config = {**CONFIG, "checkpoint_storage": section}
    served.put([experiment(1, config=config, owner=served.owner), *trained(trial(1))])
    checkpoints.remove_files(served.session, [FIRST], ["*.pt"])
    checkpoints.delete(served.session, [SECOND])
    served.collect()
    assert store.files(FIRST) == {"metadata.json": 2} and not store.exists(SECOND)
    assert checkpoints.get(served.session, FIRST)["resources"] == {"metadata.json": "2"}


def test_a_runs_token_is_served_what_is_its_experiments_and_nothing_else(
    served: Served, storage: FileStore, tmp_path: Path
) -> None:
    """Whatever its journal has called a checkpoint: a folder of that name proves nothing."""
    rows = {row.uuid: row for row in trained(trial(1)) if isinstance(row, CheckpointRow)}
    thesis, anothers, own = "thesis", uuid_of(9, 2), uuid_of(1, 8)
    (Path(str(storage)) / thesis).mkdir()
    (Path(str(storage)) / thesis / "thesis.tex").write_text("...")
    cluster = served.daemon.installation.cluster_id
    for name, owner in ((anothers, Owner(cluster, "of-another", 9, 9)), (own, Owner(cluster, QUEUE, 1, 1))):
        (storage.stage(name) / "weights.pt").write_bytes(b"w")
        storage.publish(name, owner=owner)
    row = experiment(
        1, config={**CONFIG, "checkpoint_storage": section_of(storage)}, owner=served.owner, queue_id=QUEUE
    )
    served.put([row, *(replace(rows[FIRST], uuid=n, seq=90 + i) for i, n in enumerate((thesis, anothers, own)))])
    run = next(row for row in trained(trial(1)) if isinstance(row, Run))
    by_run = served.as_run(run, mint_run_token(run.id)[0])
    assert b"".join(checkpoints.archive(by_run, FIRST)) and b"".join(checkpoints.archive(by_run, own))
    for name, why in ((thesis, "not a checkpoint"), (anothers, "another experiment of this cluster")):
        with pytest.raises(MasterError, match=why):
            b"".join(checkpoints.archive(by_run, name))
        assert b"".join(checkpoints.archive(served.session, name))  # the owner reads whatever is there
        with pytest.raises(Refused, match=f"{why}.*left in place"):
            checkpoints.remove_files(served.session, [name], ["*.tex", "*.pt"])
    checkpoints.delete(served.session, [thesis, anothers, own, FIRST])
    served.collect()
    names = {path.name for path in Path(str(storage)).iterdir()}
    assert names == {thesis, anothers, SECOND} and (Path(str(storage)) / thesis / "thesis.tex").exists()
    found = checkpoints.get(served.session, anothers)
    assert found["state"] == "STATE_DELETED" and "left in place" in found["reason"]
    served.delete(1)
    assert {path.name for path in Path(str(storage)).iterdir()} == {thesis, anothers}


def test_a_run_whose_checkpoints_name_it_cannot_claim_one_that_names_nobody(served: Served, storage: FileStore) -> None:
    run = next(row for row in trained(trial(1)) if isinstance(row, Run))
    home, cluster = served.daemon.installation.home, served.daemon.installation.cluster_id
    for spec in ({"cluster_id": cluster, "owned": True}, {"cluster_id": "of a home that this one is a copy of"}):
        write_json(home.run(run.id).spec, spec)
        with pytest.raises(Refused, match="names no experiment, and no run of this experiment is known"):
            checkpoints.remove_files(served.session, [FIRST], ["*.pt"])
    home.run(run.id).spec.unlink()
    checkpoints.delete(served.session, [FIRST])
    served.collect()
    assert storage.exists(FIRST) and "left in place" in checkpoints.get(served.session, FIRST)["reason"]
