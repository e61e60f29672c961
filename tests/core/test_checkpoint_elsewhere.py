"""Core, requeued attempts and the doctor with a checkpoint store that is no folder: nobody relies on paths below it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dethpc import core, storage
from dethpc.errors import CheckpointError
from dethpc.exec import resume
from tests.core.conftest import Cluster, Workers, results
from tests.core.test_checkpoint import ASYNC, SHARDED, UPLOADED, fill
from tests.storage import remote
from tests.storage.remote import RemoteStore

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
    first, second = [event.data["uuid"] for event in cluster.journal("checkpoint")]
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
    )
    found = resume.find(cluster.run, 1, spec)
    assert found.checkpoint == cluster.journal("checkpoint")[0].data["uuid"]
    assert found.steps == 1
