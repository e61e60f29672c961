"""Workers that are killed at any moment while they save: whatever was reported is whole, and nothing else counts."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from dethpc.storage.files import FileStore
from tests.core.conftest import Cluster, Workers

SAVE = """
import pathlib, shutil
from dethpc import core
shard, way = size > 1, os.environ["WAY"]
content = lambda step: str(step) * (1 << 18)
def fill(path, step):
    (path / f"changes{rank}").write_text(content(step))
    (path / f"frozen{rank}").write_text("f" * (2 << 20))
kwargs = {"distributed": DistributedContext.from_torch_distributed()} if shard else {}
with core.init(**kwargs) as context:
    c = context.checkpoint
    for step in range(1, 10**6):
        meta = {"steps_completed": step}
        if way == "store_async":
            c.store_async(lambda path: fill(path, step), meta, shard=shard)
            c.wait()
        elif way == "write":
            with c.store_path_async(meta, shard=shard, write=lambda path: fill(path, step)): pass
            c.wait()
        elif way == "upload_async":
            own = pathlib.Path(os.environ["DETHPC_HOME"], f"own{rank}")
            c.wait(); own.mkdir(parents=True, exist_ok=True); fill(own, step)
            c.upload_async(own, meta, shard=shard)
        else:
            with getattr(c, way)(meta, shard=shard) as (path, _): fill(path, step)
        say(step)
"""


@pytest.mark.parametrize("way", ["store_path", "store_path_async", "store_async", "write", "upload_async"])
@pytest.mark.parametrize("size", [1, 2])
def test_what_was_reported_before_a_kill_is_whole(cluster: Cluster, workers: Workers, way: str, size: int) -> None:
    cluster.info["slot_ids"] = list(range(size))
    cluster.enter()
    started = workers.start(SAVE, size, DETHPC_INFO=str(cluster.info_file), WAY=way)
    out: Any = started[-1].stdout
    for _ in range(4):
        assert out.readline()
    time.sleep(random.uniform(0, 0.05))
    started[-1].kill()  # the last worker; the others find out, or go with it
    for process in started[:-1]:
        process.kill()
    for process in started:
        process.wait()
    events = [event.data for event in cluster.journal("checkpoint")]
    assert [event["steps_completed"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) >= 3  # of the asynchronous ones, the fourth was under way
    storage = FileStore(cluster.storage)
    for event in events:
        with storage.restore(event["uuid"]) as path:  # compares checksums
            for rank in range(size):
                assert set((path / f"changes{rank}").read_text()) == set(str(event["steps_completed"]))
                assert (path / f"frozen{rank}").stat().st_size == 2 << 20
        assert set(storage.files(event["uuid"])) == set(event["resources"])
