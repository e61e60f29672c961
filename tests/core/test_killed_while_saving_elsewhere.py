"""A training that is killed at random while it saves to each kind of store, and goes on: it reads what was written, and each step
is trained once."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dethpc import storage
from tests.storage.servers import Server, azure_server, gcs_server, hdfs_server, s3_server
from tests.waiting import LONG_ENOUGH, wait_until

__all__ = ["azure_server", "gcs_server", "hdfs_server", "s3_server"]

# Each worker of the pretended machine writes its own shard; what it read, and what it wrote, goes to the ledger.
TRAIN = """
import hashlib, json, os, sys, time
from dethpc import storage
section, disk, ledger, latest, last = json.loads(sys.argv[1])
store = storage.build(section, disk=disk)
say = lambda **what: (ledger_file.write(json.dumps(what) + "\\n"), ledger_file.flush())
ledger_file = open(ledger, "a")
step, state = 0, ["seed0", "seed1"]
if latest:
    with store.restore(latest) as path:
        step = json.loads((path / "metadata.json").read_text())["steps_completed"]
        state = [(path / f"shard{rank}").read_text()[:64] for rank in range(2)]
        sums = [hashlib.sha256((path / f"shard{rank}").read_bytes()).hexdigest() for rank in range(2)]
    say(read=latest, step=step, sums=sums)
while step < last:
    time.sleep(0.1)
    step += 1
    state = [hashlib.sha256(f"{one}:{step}".encode()).hexdigest() for one in state]
    uuid = f"c{step}-{os.getpid()}"
    path = store.stage(uuid)
    for rank, one in enumerate(state):
        (path / f"shard{rank}").write_text(one * 3000)
    (path / "metadata.json").write_text(json.dumps({"steps_completed": step}))
    sums = [hashlib.sha256((path / f"shard{rank}").read_bytes()).hexdigest() for rank in range(2)]
    safe = {**store.flush(uuid, ["shard0"]), **store.flush(uuid, ["shard1"])}
    say(wrote=uuid, step=step, sums=sums)
    store.publish(uuid, safe)
    say(published=uuid, step=step)
"""

LAST = 12


FOLDERS = {"shared_fs": "host_path", "directory": "container_path"}


@pytest.mark.parametrize("kind", ["shared_fs", "directory", "s3", "gcs", "azure", "hdfs"])
def test_a_training_killed_while_it_saves_goes_on_from_whole_checkpoints(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind in FOLDERS:
        section = {"type": kind, FOLDERS[kind]: str(tmp_path / "here")}
    else:
        server: Server = request.getfixturevalue(f"{kind}_server")
        section = server.section()
    ledger, errors = tmp_path / "ledger", tmp_path / "errors"
    chance = random.Random(f"{kind}:{time.time_ns()}")

    def lines(what: str) -> list[Any]:
        text = ledger.read_text() if ledger.exists() else ""
        return [one for one in map(json.loads, text.splitlines()) if what in one]

    store = storage.build(section, disk=str(tmp_path / "disk"))
    kills = 0
    while not any(one["step"] == LAST for one in lines("published")):
        whole = [one for one in lines("wrote") if store.exists(one["wrote"])]
        latest = max(whole, key=lambda one: one["step"])["wrote"] if whole else None
        told = json.dumps([section, str(tmp_path / f"disk{kills}"), str(ledger), latest, LAST])
        begun = len(lines("wrote"))
        with open(errors, "ab") as err:
            process = subprocess.Popen([sys.executable, "-c", TRAIN, told], stderr=err)
        if kills < 3:
            wait_until(lambda: len(lines("wrote")) > begun + 1 or process.poll() is not None)  # noqa: B023
            time.sleep(chance.uniform(0, 0.1))
            process.kill()
            process.wait()
            kills += 1
        else:
            assert process.wait(LONG_ENOUGH) == 0, errors.read_text()
    wrote = {one["wrote"]: one for one in lines("wrote")}
    assert len(lines("read")) >= 1
    for one in lines("read"):
        assert (one["step"], one["sums"]) == (wrote[one["read"]]["step"], wrote[one["read"]]["sums"])
    for one in lines("published"):
        assert store.exists(one["published"])
    held = {one.uuid for one in store.names() if one.whole}
    for uuid in held:
        found = {c.path: hashlib.sha256(b"".join(c.pieces)).hexdigest() for c in store.read(uuid)}
        assert [found[f"shard{rank}"] for rank in range(2)] == wrote[uuid]["sums"]
    state = "seed1"
    for step in range(1, LAST + 1):
        state = hashlib.sha256(f"{state}:{step}".encode()).hexdigest()
    end = next(one["published"] for one in lines("published") if one["step"] == LAST)
    with store.restore(end) as path:
        assert (path / "shard1").read_text()[:64] == state
