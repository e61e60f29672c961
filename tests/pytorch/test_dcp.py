"""Sharded checkpoints of ``torch.distributed.checkpoint``: saved by two workers, loaded by two and by one."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any, Dict
from unittest.mock import Mock

import pytest
import torch

from dethpc import core
from dethpc.errors import CheckpointDamaged
from dethpc.pytorch import Snapshot, _snapshot, dcp
from dethpc.pytorch._snapshot import _memory_left
from tests.core.conftest import Cluster, Workers, results, workers
from tests.waiting import LONG_ENOUGH

__all__ = ["workers"]

SAVE = """
import torch, torch.distributed as dist, warnings
warnings.simplefilter("ignore")
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from dethpc import core
from dethpc.pytorch import dcp
from dethpc.storage import manifest
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=size)

def model_and_optimizer(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer

def state_of(model, optimizer, epoch):
    models, optimizers = get_state_dict(model, optimizer)
    return {"model": models, "optimizer": optimizers, "epoch": epoch}

def whole(model): return [p.full_tensor().flatten().tolist() for p in model.parameters()]

with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
    model, optimizer = model_and_optimizer(1)
    said = whole(model)
    first = dcp.save(context, state_of(model, optimizer, 3), {"steps_completed": 1})
    second = dcp.async_save(context, state_of(model, optimizer, 4), {"steps_completed": 2})
    for p in model.parameters(): p.data.zero_()
    other, its = model_and_optimizer(2)
    context.checkpoint.wait()
    context.distributed.allgather(None)
    say([first, second])
    say(said)
    ledger, measure = [], manifest.measure
    manifest.measure = lambda root, paths, *more: ledger.extend(paths) or measure(root, paths, *more)
    for each in (first, second):
        state = state_of(other, its, 0)
        dcp.load(context, each, state)
        set_state_dict(other, its, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        say([state["epoch"], whole(other)])
    say(sorted(set(ledger)))
    try: dcp.load(context, first, {"nothing like it": torch.zeros(1)})
    except RuntimeError as error: say(str(error))
dist.destroy_process_group()
"""


def test_two_workers_save_shards_that_fit_another_number(cluster: Cluster, workers: Workers, tmp_path: Path) -> None:
    cluster.info["slot_ids"] = [0, 1]
    cluster.enter()
    found = results(workers.start(SAVE, 2, nodes=2, DETHPC_INFO=str(cluster.info_file), MEET=str(tmp_path / "meet")))
    ids, weights = found[0][0], found[0][1]
    for said in found:
        assert said[:2] == [ids, weights]
        assert said[2:4] == [[3, weights], [4, weights]]
        assert "Missing key in checkpoint" in said[5]
    # Each machine has read its own worker's shards, and what the chief alone has.
    assert [said[4] for said in found] == [[".metadata", "__0_0.distcp"], ["__1_0.distcp"]]
    assert [event.data["steps_completed"] for event in cluster.journal("checkpoint")] == [1, 2]
    assert {"__0_0.distcp", "__1_0.distcp"} <= set(cluster.journal("checkpoint")[0].data["resources"])
    # One worker loads what two have saved.
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    state: Dict[str, Any] = {"model": model.state_dict(), "epoch": 0}
    with core.init(distributed=core.DummyDistributedContext()) as context:
        for uuid in ids:
            dcp.load(context, uuid, state)
            assert [p.flatten().tolist() for p in model.parameters()] == weights
            model[0].weight.data.zero_()
        shard = cluster.storage / ids[0] / "__1_0.distcp"
        shard.write_bytes(shard.read_bytes()[:-1] + b"x")
        with pytest.raises(CheckpointDamaged, match="__1_0.distcp"):
            dcp.load(context, ids[0], state)


def test_what_the_training_changes_meanwhile_is_not_saved(off_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp, "LARGE", 1 << 10)
    gate = threading.Event()
    state: Dict[str, Any] = {"weight": torch.ones(4), "embedding": torch.full((1024,), 2.0), "epoch": [1]}
    with core.init() as context:
        write = dcp._write
        monkeypatch.setattr(dcp, "_write", lambda *all: (gate.wait(LONG_ENOUGH), write(*all)))
        uuid = dcp.async_save(context, state, {"steps_completed": 1})
        state["weight"].zero_(), state["embedding"].zero_()
        state["epoch"][0] = 7
        gate.set()
        loaded = {"weight": torch.zeros(4), "embedding": torch.zeros(1024), "epoch": [0]}
        dcp.load(context, uuid, loaded)
        assert loaded["weight"].tolist() == [1.0] * 4 and loaded["embedding"].tolist() == [2.0] * 1024
        assert loaded["epoch"] == [1]
        with context.checkpoint.restore_path(uuid) as path:
            assert {"__0_0.distcp", "__0_large_0.distcp"} <= {file.name for file in path.iterdir()}
        with context.checkpoint.store_path({"steps_completed": 2}) as (_, other):
            pass
        with pytest.raises(ValueError, match="none of torch.distributed.checkpoint"):
            dcp.load(context, other, loaded)


def test_a_snapshot_is_the_same_state_in_memory_that_it_keeps() -> None:
    shared = torch.arange(4.0)
    state = {
        "tied": [shared, shared.view(4)],
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "sparse": torch.eye(2).to_sparse(),
        "empty": torch.empty(0),
        "other": ({"lr": 0.1},),
    }
    snapshot = Snapshot()
    first = snapshot.take(state)
    shared.add_(1)
    assert first["tied"][0].tolist() == [0, 1, 2, 3] and first["tied"][0] is first["tied"][1]
    assert first["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert first["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]
    assert first["other"] == ({"lr": 0.1},) and first["other"][0] is not state["other"][0]
    addresses = {first[name].data_ptr() for name in ("transposed",)} | {first["tied"][0].data_ptr()}
    second = snapshot.take(state)
    assert second["tied"][0].tolist() == [1, 2, 3, 4]
    assert {second["transposed"].data_ptr(), second["tied"][0].data_ptr()} == addresses
    assert snapshot.has_room(state)
    assert not snapshot.has_room({"huge": torch.empty(1).expand(1 << 50)})


def test_a_snapshot_tells_a_conjugate_from_what_it_shares_its_memory_with() -> None:
    plain = torch.complex(torch.ones(2), torch.ones(2))
    taken = Snapshot().take([plain, plain.conj(), plain.imag, plain.conj().imag])
    assert [each.tolist() for each in taken] == [[1 + 1j] * 2, [1 - 1j] * 2, [1] * 2, [-1] * 2]


def test_a_snapshot_waits_for_the_copies_from_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [torch.device("cuda", number) for number in range(2)]
    streams = {device: Mock() for device in devices}
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[device])
    snapshot = Snapshot()
    snapshot._copies = {(device, 0): torch.empty(1) for device in devices}  # as if on a machine that has them
    snapshot.take({})
    for stream in streams.values():
        stream.synchronize.assert_called_once_with()


def test_a_snapshot_takes_what_torch_save_takes() -> None:
    nested = torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)])
    taken = Snapshot().take({"nested": nested, "meta": torch.empty(3, device="meta")})
    nested[1].add_(1)
    assert [each.tolist() for each in taken["nested"].unbind()] == [[1, 1], [1, 1, 1]]
    assert taken["meta"].is_meta and taken["meta"].shape == (3,)


def test_several_threads_copy_a_large_state_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_snapshot, "_PIECE", 1000)
    monkeypatch.setattr(_snapshot, "_cores", lambda: 2)
    monkeypatch.setattr(_snapshot.ctypes, "memmove", move := _Together(2))
    state = {n: torch.randn(77 * n) for n in range(20)}
    snapshot = Snapshot()
    for _ in range(2):  # into new buffers, and into those that it has
        copied = snapshot.take(state)
        assert all(torch.equal(copied[n], tensor) for n, tensor in state.items())
        assert copied[19].data_ptr() != state[19].data_ptr()
        state = {n: tensor + 1 for n, tensor in state.items()}
    assert len(move.threads) == 2 and max(move.sizes) == 1000


class _Together:
    """``memmove``, which waits until so many threads have called it."""

    def __init__(self, threads: int, move: Any = ctypes.memmove) -> None:
        self._all, self._move = threading.Barrier(threads), move
        self.threads: set[int] = set()
        self.sizes: set[int] = set()

    def __call__(self, target: int, source: int, size: int) -> None:
        if threading.get_ident() not in self.threads:
            self.threads.add(threading.get_ident())
            self._all.wait(LONG_ENOUGH)
        self.sizes.add(size)
        self._move(target, source, size)


def test_the_room_for_a_copy_is_what_the_job_has_left(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 5000 kB\n",
        "proc/self/cgroup": "4:memory:/slurm/job_7\n0::/slurm/job_7\n",
        "sys/fs/cgroup/slurm/job_7/memory.max": "max\n",
        "sys/fs/cgroup/slurm/memory.max": "1000000\n",
        "sys/fs/cgroup/slurm/memory.current": "900000\n",
        "sys/fs/cgroup/slurm/memory.stat": "anon 300000\ninactive_file 500000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert _memory_left(tmp_path) == 600_000
    old = tmp_path / "sys/fs/cgroup/memory/slurm/job_7"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("700000\n")
    (old / "memory.usage_in_bytes").write_text("400000\n")
    (old / "memory.stat").write_text("total_inactive_file 100000\n")
    assert _memory_left(tmp_path) == 400_000
    assert _memory_left(tmp_path / "without") == float("inf")
