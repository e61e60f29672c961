"""Core, requeued attempts and the doctor with a checkpoint store that is no folder: nobody relies on paths below it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dethpc import core, storage
from dethpc.core._checkpoints import outbox, saving
from dethpc.domain.reports import STORAGE_AWAY
from dethpc.errors import CheckpointError
from dethpc.exec import resume
from dethpc.storage.driver import StoreAway
from dethpc.storage.files import FileStore
from tests.core.conftest import Cluster, Workers, results
from tests.core.test_checkpoint import ASYNC, SHARDED, UPLOADED, fill
from tests.storage import remote
from tests.storage.remote import RemoteStore
from tests.waiting import LONG_ENOUGH, wait_until

INSTALL = "from tests.storage.remote import install; install()\n"


@pytest.fixture
def server(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteStore:
    """The cluster's checkpoints are there."""
    monkeypatch.setattr(storage, "KINDS", dict(storage.KINDS))
    remote.install()
    section = {"type": "s3", "bucket": str(tmp_path / "server")}
    cluster.info["checkpoint_storage"] = section
    cluster.info["slot_ids"] = [0, 1]
    cluster.enter()
    store = storage.build(section)
    assert isinstance(store, RemoteStore)
    return store


def staged(root: Path) -> Any:
    return list(root.glob("disk-of-machine-*/staged/*"))


def test_the_chief_saves_restores_and_deletes(cluster: Cluster, server: RemoteStore, tmp_path: Path) -> None:
    with core.init(distributed=core.DummyDistributedContext()) as context:
        checkpoint = context.checkpoint
        with checkpoint.store_path({"steps_completed": 1}) as (path, first):
            fill(path, {"model": "weights" * (1 << 18), "sub/opt": "state"})
        with checkpoint.store_path_async({"steps_completed": 2}) as (path, second):
            fill(path, {"model": "later"})
        third = checkpoint.upload(fill(tmp_path / "src", {"a": "1", "b/c": "2"}), {"steps_completed": 3})
        with pytest.raises(KeyError), checkpoint.store_path({"steps_completed": 4}) as (path, _):
            fill(path, {"model": "half"})
            raise KeyError
        with checkpoint.restore_path(first) as restored:
            assert (restored / "sub/opt").read_text() == "state"
        checkpoint.download(third, tmp_path / "dst", selector=lambda path: path != "a")
        assert sorted(path.name for path in (tmp_path / "dst").rglob("*")) == ["b", "c", "metadata.json"]
        assert checkpoint.get_metadata(second) == {"steps_completed": 2}
        checkpoint.delete(second)
        with pytest.raises(CheckpointError, match="is not in remote:"), checkpoint.restore_path(second):
            pass
    assert [event.data["uuid"] for event in cluster.journal("checkpoint")] == [first, second, third]
    assert not staged(tmp_path)


@pytest.mark.parametrize("nodes", [1, 2])
def test_workers_of_machines_with_their_own_disks_store_together(
    cluster: Cluster, server: RemoteStore, workers: Workers, tmp_path: Path, nodes: int
) -> None:
    found = results(workers.start(INSTALL + SHARDED, 4, nodes=nodes, DETHPC_INFO=str(cluster.info_file)))
    shards = ["shard0", "shard2", "shard3"]
    for rank, (names, metadata, copied, storage_id) in enumerate(found):
        assert names == ["metadata.json", *shards]
        assert metadata == {"steps_completed": 7, **{f"rank{r}": {"n": r} for r in range(4)}}
        assert copied == (shards if nodes == 1 else ["shard0"] if rank < 2 else ["shard2", "shard3"])
        assert set(server.files(storage_id)) == {"metadata.json", *shards}
    assert not staged(tmp_path)


@pytest.mark.parametrize("nodes", [1, 2])
def test_workers_upload_and_fail_together(
    cluster: Cluster, server: RemoteStore, workers: Workers, tmp_path: Path, nodes: int
) -> None:
    for rank, said in enumerate(
        results(workers.start(INSTALL + UPLOADED, 2, nodes=nodes, DETHPC_INFO=str(cluster.info_file)))
    ):
        assert said[:2] == [["metadata.json", "s"], ["metadata.json", "only0", "only1", "same"]]
        assert said[5] == ("KeyError: 'disk'" if rank else "RuntimeError: rank 1: its block failed: KeyError('disk')")
    assert len(cluster.journal("checkpoint")) == 3
    assert not staged(tmp_path)


def test_workers_publish_beside_the_training(
    cluster: Cluster, server: RemoteStore, workers: Workers, tmp_path: Path
) -> None:
    found = results(workers.start(INSTALL + ASYNC, 2, nodes=2, DETHPC_INFO=str(cluster.info_file)))
    assert [said[0] for said in found] == [["metadata.json", "shard0", "shard1"]] * 2
    first, second, _ = [event.data["uuid"] for event in cluster.journal("checkpoint")]
    server.damage(second, "shard1")
    with pytest.raises(CheckpointError, match="shard1 is damaged"), server.restore(second):
        pass
    assert server.exists(first) and not staged(tmp_path)


def test_tensorboard_files_go_there(cluster: Cluster, server: RemoteStore) -> None:
    with core.init(distributed=core.DummyDistributedContext(), tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        fill(context.train.get_tensorboard_path(), {"sub/events": "1"})
        context.train.upload_tensorboard_files()
    assert server.beside_of("c1/tensorboard/experiment/1/trial/3") == {"sub/events": b"1"}


def test_a_requeued_attempt_finds_its_last_checkpoint_there(cluster: Cluster, server: RemoteStore) -> None:
    with core.init(distributed=core.DummyDistributedContext()) as context:
        for steps in (1, 2):
            with context.checkpoint.store_path({"steps_completed": steps}) as (_, uuid):
                pass
        server.delete(uuid)  # and nobody has reported it
    spec: Any = SimpleNamespace(
        checkpoint_storage=cluster.info["checkpoint_storage"],
        latest_checkpoint=None,
        steps_completed=0,
        checkpoints=[],
        source_checkpoint=None,
        spool=cluster.root / "spool",
    )
    found = resume.find(cluster.run, 1, spec)
    assert found.checkpoint == cluster.journal("checkpoint")[0].data["uuid"]
    assert found.steps == 1


class Away(RemoteStore):
    """Is away ``times`` times, at what it is asked for next."""

    times = 2

    @property
    def may_be_away(self) -> bool:
        return True

    def may_come_back(self, error: OSError) -> bool:
        return isinstance(error, ConnectionError)

    def _insert(self, *all: Any) -> Any:
        if Away.times:
            Away.times -= 1
            raise ConnectionError("nobody answers")
        return super()._insert(*all)


@pytest.fixture
def away(cluster: Cluster, server: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Away]:
    """The cluster's checkpoints are there, and go up as soon as ``times`` is 0."""
    kind = storage.Kind(("bucket",), lambda *_: Away(server.server, str(tmp_path / "disk")))
    monkeypatch.setitem(storage.KINDS, "s3", kind)
    monkeypatch.setattr(saving, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(outbox, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(outbox, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(Away, "times", 0)
    cluster.start_master()
    return Away


def told(cluster: Cluster, kind: str) -> list[str]:
    return [event.data["uuid"] for event in cluster.journal(kind)]


def test_what_workers_save_together_stays_here_while_their_store_is_away(
    cluster: Cluster, away: type[Away], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = fill(tmp_path / "own", {"model": "weights"})
    with core.init(distributed=core.DummyDistributedContext()) as context:
        together = context.checkpoint._sharded  # which a worker alone does without
        away.times = 2
        with together.store_path({"steps_completed": 1}, None, in_background=True) as (path, stored):
            fill(path, {"model": "weights"})
        context.checkpoint.wait()
        away.times = 2
        uploaded = together.upload(own, {"steps_completed": 2}, None, in_background=False)
        for uuid in (stored, uploaded):
            with context.checkpoint.restore_path(uuid) as path:
                assert (path / "model").read_text() == "weights"
        monkeypatch.setattr(saving, "_MOST_PATIENCE", 0.05)
        away.times = 1000
        with pytest.raises(ConnectionError):
            together.upload(own, {"steps_completed": 3}, None, in_background=False)
    assert told(cluster, "checkpoint") == [stored, uploaded]
    assert not list(tmp_path.glob("disk/staged/*"))


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("way", ["upload", "upload_async"])
def test_a_copy_waits_for_its_store_as_it_was_when_it_was_made(
    cluster: Cluster, away: type[Away], server: RemoteStore, tmp_path: Path, way: str, shard: bool
) -> None:
    own = fill(tmp_path / "own", {"model": "1", "sub/opt": "state", "left/out": "x"})
    wanted = {"model", "sub/", "sub/opt"}.__contains__
    with core.init(distributed=core.DummyDistributedContext()) as context:
        upload, saved = getattr(context.checkpoint, way), []
        away.times = 10**9
        for step in (1, 2):
            fill(own, {"model": str(step)})
            saved.append(upload(own, {"steps_completed": step}, selector=wanted, shard=shard))
            context.checkpoint.wait()
        fill(own, {"model": "later"})
        assert told(cluster, "checkpoint_waiting") == saved and not told(cluster, "checkpoint")
        away.times = 0
    assert told(cluster, "checkpoint") == saved
    for step, uuid in enumerate(saved, 1):
        assert set(server.files(uuid)) == {"metadata.json", "model", "sub/", "sub/opt"}
        with server.restore(uuid) as path:
            assert (path / "model").read_text() == str(step)
    assert not list(tmp_path.glob("disk/staged/*"))


def test_a_copy_is_kept_in_the_spool_when_its_store_stays_away(
    cluster: Cluster, away: type[Away], spool: FileStore, tmp_path: Path
) -> None:
    own = fill(tmp_path / "own", {"model": "weights"})
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        uuid = context.checkpoint.upload(own, {"steps_completed": 1})
    assert told(cluster, "checkpoint_waiting") == [uuid] == told(cluster, "checkpoint")
    assert (
        set(spool.files(uuid)) == {"metadata.json", "model"} == set(cluster.journal("checkpoint")[0].data["resources"])
    )


@pytest.mark.parametrize("way", ["store_path", "store_path_async", "store_async"])
def test_a_training_goes_on_while_its_store_is_away_and_its_checkpoints_go_up_in_order_afterwards(
    cluster: Cluster, away: type[Away], server: RemoteStore, way: str
) -> None:
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        saved = []
        for step in (1, 2, 3):
            if way == "store_async":
                write = partial(fill, files={"model": str(step)})
                saved.append(context.checkpoint.store_async(write, {"steps_completed": step}))
            else:
                with getattr(context.checkpoint, way)({"steps_completed": step}) as (path, uuid):
                    fill(path, {"model": str(step)})
                saved.append(uuid)
        context.checkpoint.wait()
        assert told(cluster, "checkpoint_waiting") == saved and not told(cluster, "checkpoint")
        assert "nobody answers" in cluster.journal("checkpoint_waiting")[0].data["why"]
        away.times = 0
    assert told(cluster, "checkpoint") == saved
    assert all(event.data["seconds"] is None for event in cluster.journal("checkpoint"))
    assert [server.metadata(uuid)["steps_completed"] for uuid in saved] == [1, 2, 3]


def test_no_more_wait_than_the_bound_says_and_then_the_training_waits(
    cluster: Cluster, away: type[Away], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST", 2)
    monkeypatch.setattr(outbox, "PATIENCE", 0.2)

    def save(step: int) -> None:
        with context.checkpoint.store_path({"steps_completed": step}):
            pass

    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        save(1)
        save(2)
        with pytest.raises(OSError, match=r"has taken none of 2 checkpoint\(s\)"):
            save(3)
        monkeypatch.setattr(outbox, "PATIENCE", LONG_ENOUGH)
        away.times = 0
        save(4)
    steps = [event.data["steps_completed"] for event in cluster.journal("checkpoint")]
    assert steps == [1, 2, 4]


def test_what_does_not_go_up_before_the_job_ends_is_said_to_be_lost(
    cluster: Cluster, away: type[Away], server: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "AT_THE_END", 0.1)
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        for step in (1, 2):
            with context.checkpoint.store_path({"steps_completed": step}) as (_, uuid):
                pass
        context.checkpoint.delete(uuid)
    first, second = told(cluster, "checkpoint_waiting")
    assert told(cluster, "checkpoint_deleted") == [second, first]
    assert "until the job ended" in cluster.journal("checkpoint_deleted")[-1].data["why"]
    assert not list(tmp_path.glob("disk/staged/*"))


@pytest.fixture
def spool(cluster: Cluster, away: type[Away]) -> FileStore:
    """What waits survives its job here."""
    cluster.info["folders"] = {"spool": str(cluster.root / "spool")}
    cluster.enter()
    return FileStore(cluster.root / "spool")


def test_what_does_not_go_up_before_the_job_ends_is_kept_in_the_spool_and_the_next_run_goes_on_from_it(
    cluster: Cluster, away: type[Away], spool: FileStore, tmp_path: Path
) -> None:
    saved = []
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        for step in (1, 2):
            with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
                fill(path, {"model": str(step), "sub/opt": "state"})
            saved.append(uuid)
    assert told(cluster, "checkpoint_waiting") == saved == told(cluster, "checkpoint")
    kept = cluster.journal("checkpoint")[-1].data
    assert kept["spool"] == str(spool) and kept["resources"]["model"] == 1 and kept["seconds"] is None
    assert not told(cluster, "checkpoint_deleted") and not list(tmp_path.glob("disk/staged/*"))
    spec: Any = SimpleNamespace(
        checkpoint_storage=cluster.info["checkpoint_storage"], checkpoints=[], source_checkpoint=None, spool=str(spool)
    )
    assert resume.find(cluster.run, 1, spec).checkpoint == saved[1]
    with core.init(distributed=core.DummyDistributedContext()) as context:  # and the store is still away
        with context.checkpoint.restore_path(saved[1]) as path:
            assert (path / "model").read_text() == "2"
        context.checkpoint.delete(saved[1])
    assert not spool.exists(saved[1]) and spool.exists(saved[0])


def test_a_storage_that_is_given_in_code_has_the_spool_too(
    cluster: Cluster, away: type[Away], spool: FileStore, tmp_path: Path
) -> None:
    chosen = {"type": "s3", "bucket": str(tmp_path / "chosen")}
    with core.init(distributed=core.DummyDistributedContext(), checkpoint_storage=chosen) as context:
        away.times = 10**9
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            fill(path, {"model": "1"})
    kept = cluster.journal("checkpoint")[-1].data
    assert (kept["uuid"], kept["spool"], kept["storage"]) == (uuid, str(spool), chosen) and spool.exists(uuid)
    assert not told(cluster, "checkpoint_deleted")


@pytest.mark.parametrize("way", ["store_path", "upload"])
def test_what_workers_save_together_is_kept_in_the_spool_and_goes_up_when_the_store_is_back(
    cluster: Cluster, away: type[Away], spool: FileStore, server: RemoteStore, tmp_path: Path, way: str
) -> None:
    with core.init(distributed=core.DummyDistributedContext()) as context:
        together, saved = context.checkpoint._sharded, []
        away.times = 10**9
        for step in (1, 2):
            own = {"model": str(step), "sub/opt": "state"}
            if way == "store_path":
                with together.store_path({"steps_completed": step}, None, in_background=True) as (path, uuid):
                    fill(path, own)
                    (path / "empty").mkdir()
                saved.append(uuid)
            else:
                folder = fill(tmp_path / f"own{step}", own)
                (folder / "empty").mkdir()
                saved.append(together.upload(folder, {"steps_completed": step}, None, in_background=True))
            context.checkpoint.wait()
        assert told(cluster, "checkpoint") == saved and not told(cluster, "checkpoint_waiting")
        reported = cluster.journal("checkpoint")[0].data
        assert reported["spool"] == str(spool) and set(reported["resources"]) == set(spool.files(saved[0]))
        assert set(spool.files(saved[0])) == {"empty/", "metadata.json", "model", "sub/", "sub/opt"}
        with context.checkpoint.restore_path(saved[1]) as path:
            assert (path / "model").read_text() == "2"
        away.times = 0
        wait_until(lambda: len(told(cluster, "checkpoint_waiting")) == 2)
    assert [server.metadata(uuid)["steps_completed"] for uuid in saved] == [1, 2] and not list(spool.names())
    assert all(not event.data["why"] for event in cluster.journal("checkpoint_waiting"))
    assert not list(tmp_path.glob("disk/staged/*"))


@pytest.mark.parametrize("alone", [False, True])
def test_what_is_deleted_from_the_spool_before_it_goes_up_does_not_end_the_training(
    cluster: Cluster, away: type[Away], spool: FileStore, server: RemoteStore, tmp_path: Path, alone: bool
) -> None:
    with core.init(distributed=core.DummyDistributedContext()) as context:
        saver, saved = context.checkpoint._alone if alone else context.checkpoint._sharded, []
        away.times = 10**9
        for step in (1, 2):
            with saver.store_path({"steps_completed": step}, None, in_background=False) as (path, uuid):
                fill(path, {"model": str(step)})
                saved.append(uuid)
        wait_until(lambda: told(cluster, "checkpoint") == saved)
        spool.delete(saved[0])  # as a task of the master's does
        away.times = 0
        wait_until(lambda: server.exists(saved[1]) and not spool.exists(saved[1]))
    assert told(cluster, "checkpoint_deleted") == saved[:1] and not server.exists(saved[0])
    arrived = [event.data["uuid"] for event in cluster.journal("checkpoint_waiting") if not event.data["why"]]
    assert arrived == saved[1:] and not list(tmp_path.glob("disk/staged/*"))


def test_what_workers_saved_together_stays_in_the_spool_when_the_training_ends(
    cluster: Cluster, away: type[Away], spool: FileStore, tmp_path: Path
) -> None:
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        with context.checkpoint._sharded.store_path({"steps_completed": 1}, None, in_background=False) as (path, uuid):
            fill(path, {"model": "weights"})
    assert [one.uuid for one in spool.names() if one.whole] == [uuid]
    assert not list(tmp_path.glob("disk/staged/*"))


def test_without_room_in_the_spool_what_workers_save_together_waits_for_the_store(
    cluster: Cluster, away: type[Away], spool: FileStore, server: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.storage.spool.MOST_BYTES", 10)
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 3
        with context.checkpoint._sharded.store_path({"steps_completed": 1}, None, in_background=False) as (path, uuid):
            fill(path, {"model": "weights, many of them"})
    assert told(cluster, "checkpoint") == [uuid] and server.exists(uuid) and not list(spool.names())
    assert "spool" not in cluster.journal("checkpoint")[0].data


AWAY_FOR_ONE = """
from dethpc.storage.driver import StoreAway
from tests.storage import remote
remote.install()
add, publish = remote.RemoteStore.flush, remote.RemoteStore.publish
def flush(self, uuid, names):
    if rank == 1 and names: raise StoreAway("nobody answers")
    return add(self, uuid, names)
remote.RemoteStore.flush = flush
remote.RemoteStore.may_be_away = True
remote.RemoteStore.may_come_back = lambda self, error: isinstance(error, StoreAway)
from dethpc import core
with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
    c = context.checkpoint
    with c.store_path({"steps_completed": 7}, shard=True) as (path, storage_id):
        (path / f"shard{rank}").write_text(f"of {rank}")
    with c.restore_path(storage_id) as path:
        say(sorted(p.name for p in path.iterdir() if not p.name.startswith(".")))
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_all_workers_keep_their_part_where_the_store_is_away_for_one_of_them(
    cluster: Cluster, server: RemoteStore, workers: Workers, nodes: int
) -> None:
    cluster.info["folders"] = {"spool": str(cluster.root / "spool")}
    cluster.enter()
    found = results(workers.start(AWAY_FOR_ONE, 2, nodes=nodes, DETHPC_INFO=str(cluster.info_file)))
    assert found == [[["metadata.json", "shard0", "shard1"]]] * 2
    assert told(cluster, "checkpoint") and cluster.journal("checkpoint")[0].data["spool"]


def test_what_was_kept_and_goes_up_all_the_same_leaves_the_spool(
    cluster: Cluster, away: type[Away], spool: FileStore, server: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST", 2)
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        saved = []
        for step in (1, 2, 3, 4):  # the bound is for what is on this node alone
            with context.checkpoint.store_path({"steps_completed": step}) as (_, uuid):
                pass
            saved.append(uuid)
            wait_until(lambda: uuid in told(cluster, "checkpoint"))  # noqa: B023
        away.times = 0
        wait_until(lambda: told(cluster, "checkpoint_waiting")[-1] == saved[3] and server.exists(saved[3]))
        context.checkpoint._outbox.settle()
    arrived = [e.data["uuid"] for e in cluster.journal("checkpoint_waiting") if not e.data["why"]]
    assert len(arrived) == 2 and arrived == [uuid for uuid in saved if server.exists(uuid)]
    assert [uuid for uuid in saved if spool.exists(uuid)] == [uuid for uuid in saved if uuid not in arrived]


def test_without_room_in_the_spool_the_end_of_the_job_waits_for_the_store_and_says_what_is_lost(
    cluster: Cluster, away: type[Away], spool: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "AT_THE_END", 0.1)
    monkeypatch.setattr("dethpc.storage.spool.MOST_BYTES", 10)
    with core.init(distributed=core.DummyDistributedContext()) as context:
        away.times = 10**9
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            fill(path, {"model": "weights"})
    assert told(cluster, "checkpoint_deleted") == [uuid] and not told(cluster, "checkpoint")
    assert not list(spool.names())


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_training_that_ends_because_its_store_is_away_says_so(
    cluster: Cluster, server: RemoteStore, wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restore(*_: Any, **__: Any) -> Any:
        raise StoreAway(f"{server} does not answer")

    with core.init(distributed=core.DummyDistributedContext()) as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (_, uuid):
            pass
    monkeypatch.setattr(RemoteStore, "restore", restore)
    with pytest.raises(RuntimeError if wrapped else StoreAway):
        with core.init(distributed=core.DummyDistributedContext()) as context:
            try:
                with context.checkpoint.restore_path(uuid):
                    pass
            except StoreAway as error:
                if wrapped:
                    raise RuntimeError("cannot load the weights") from error
                raise
    (said,) = [event.data["reason"] for event in cluster.journal("early_exit")]
    assert said == f"{STORAGE_AWAY}{server} does not answer"


def test_another_failure_is_not_put_down_to_the_store(cluster: Cluster, server: RemoteStore) -> None:
    for error in (StoreAway("s3://data of the training's own does not answer"), OSError(str(server)), KeyError("x")):
        with pytest.raises(type(error)), core.init(distributed=core.DummyDistributedContext()):
            raise error
    assert not cluster.journal("early_exit")


def test_an_attempt_that_cannot_ask_for_its_checkpoint_begins_at_none_before(
    cluster: Cluster, server: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists(*_: Any) -> bool:
        raise StoreAway("nobody answers")

    monkeypatch.setattr(RemoteStore, "exists", exists)
    known = [{"uuid": f"c{steps}", "steps_completed": steps} for steps in (2, 1)]
    section = cluster.info["checkpoint_storage"]
    spec: Any = SimpleNamespace(
        checkpoint_storage=section, checkpoints=known, source_checkpoint=None, spool=cluster.root / "spool"
    )
    found = resume.find(cluster.run, 1, spec)
    assert (found.checkpoint, found.steps, found.missing, found.away) == ("c2", 2, (), "nobody answers")
