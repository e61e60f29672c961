"""Whose the checkpoints of a training are: their manifests say so, however and wherever they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dethpc import core
from dethpc.errors import CheckpointNotOwned
from dethpc.storage import build, manifest
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Owner
from tests.core.conftest import Cluster

EXPERIMENT = "6d0e4c3c-6f5e-4a6e-9d0c-0b7a3c1f2e11"
OWN = Owner("c1", EXPERIMENT, 1, 3)
STEPS = {"steps_completed": 1}


def write(path: Path) -> None:
    (path / "weights.pt").write_bytes(b"w")


@pytest.mark.parametrize("chosen", [None, "by the training code"])
def test_every_way_to_save_names_the_trial(cluster: Cluster, tmp_path: Path, chosen: Any) -> None:
    cluster.info["experiment_uuid"] = EXPERIMENT
    cluster.enter()
    folder = str(tmp_path / "chosen") if chosen else str(cluster.storage)
    (tmp_path / "made").mkdir()
    write(tmp_path / "made")
    saved = []
    with core.init(checkpoint_storage=folder if chosen else None) as context:
        save = context.checkpoint
        for shard in (False, True):
            with save.store_path(STEPS, shard=shard) as (path, uuid):
                write(path)
            with save.store_path_async(STEPS, shard=shard) as (path, other):
                write(path)
            saved += [uuid, other, save.store_async(write, STEPS, shard=shard)]
            saved += [save.upload(tmp_path / "made", STEPS, shard=shard)]
        save.wait()
    store = FileStore(folder)
    assert len(saved) == 8 and {store.identity(uuid).owner for uuid in saved} == {OWN}
    store.delete(saved[0], ["weights.pt"])
    assert store.identity(saved[0]).owner == OWN


def test_an_object_stores_spool_names_it_too(tmp_path: Path) -> None:
    section = {"type": "s3", "bucket": "b", "endpoint_url": "http://127.0.0.1:1"}
    store: Any = build(section, spool=tmp_path / "spool", owner=OWN)
    assert store.owner == store.store.owner == store.fallback.owner == OWN


def test_training_code_deletes_its_own_experiments_checkpoints_alone(cluster: Cluster) -> None:
    cluster.info["experiment_uuid"] = EXPERIMENT
    cluster.enter()
    store = FileStore(cluster.storage)
    others, of_before, own = "a1", "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    for uuid, owner in ((others, Owner("c1", "of-another")), (of_before, None), (own, Owner("c1", EXPERIMENT, 1, 2))):
        write(store.stage(uuid))
        store.publish(uuid, owner=owner)
    master = cluster.start_master()
    with core.init() as context:
        with pytest.raises(CheckpointNotOwned, match="another experiment"):
            context.checkpoint.delete(others)
        with pytest.raises(CheckpointNotOwned, match="names no experiment"):
            context.checkpoint.delete(of_before)  # the master knows nothing of it
        context.checkpoint.delete(own)
        answer = 200, {"checkpoint": {"uuid": of_before}}
        master.answers[f"/api/v1/checkpoints/{of_before}"] = lambda _: answer
        context.checkpoint.delete(of_before)
    assert store.exists(others) and not store.exists(own) and not store.exists(of_before)


def test_a_run_that_an_earlier_release_prepared_names_nobody(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context, context.checkpoint.store_path(STEPS) as (path, uuid):
        write(path)
    text = (cluster.storage / uuid / manifest.NAME).read_text()
    assert FileStore(cluster.storage).identity(uuid).owner is None and "owner" not in text
