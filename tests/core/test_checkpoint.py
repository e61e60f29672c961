"""Checkpoints through the Core API: by one worker and by several, stored, restored, refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Dict

import pytest

from dethpc import core
from dethpc.core._checkpoints.save_together import merge_metadata, merge_resources
from dethpc.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound
from dethpc.storage.files import FileStore
from tests.core.conftest import Cluster, Workers, results
from tests.waiting import LONG_ENOUGH


def fill(root: Path, files: Dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_stored_checkpoint_is_reported_and_restored(cluster: Cluster) -> None:
    cluster.enter()
    metadata: Dict[str, Any] = {"steps_completed": 5, "trial_id": 3, "nan": float("nan")}
    with core.init() as context:
        with context.checkpoint.store_path(metadata) as (path, storage_id):
            fill(path, {"model.pt": "weights", "sub/opt": "state"})
            assert not cluster.journal()
        with context.checkpoint.restore_path(storage_id) as restored:
            assert (restored / "model.pt").read_text() == "weights"
            stored = json.loads((restored / "metadata.json").read_text())
        assert context.checkpoint.get_metadata(storage_id) == stored
    assert stored == {"steps_completed": 5, "trial_id": 3, "nan": "NaN"}
    (event,) = cluster.journal("checkpoint")
    assert 0 <= event.data.pop("seconds") < 60
    assert event.data == {
        "uuid": storage_id,
        "steps_completed": 5,
        "metadata": stored,
        "resources": {
            "model.pt": 7,
            "sub/": 0,
            "sub/opt": 5,
            "metadata.json": (restored / "metadata.json").stat().st_size,
        },
        "storage": cluster.info["checkpoint_storage"],
    }
    assert restored == cluster.storage / storage_id


def test_a_checkpoint_into_which_nothing_was_written_is_stored_with_a_warning(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.enter()
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            fill(path, {"weights": "w"})
        assert "holds its metadata alone" not in caplog.text
        with context.checkpoint.store_path({"steps_completed": 2}) as (_, empty):
            pass
    assert f"checkpoint {empty} holds its metadata alone" in caplog.text
    assert len(cluster.journal("checkpoint")) == 2


def test_a_directory_is_uploaded_and_downloaded(cluster: Cluster, tmp_path: Path) -> None:
    cluster.enter()
    source = fill(tmp_path / "src", {"a": "1", "b/c": "2", "skip": "3", "metadata.json": "mine"})
    with core.init() as context:
        storage_id = context.checkpoint.upload(source, {"steps_completed": 1}, selector=lambda path: path != "skip")
        context.checkpoint.download(storage_id, tmp_path / "dst", selector=lambda path: path != "a")
        context.checkpoint.download(storage_id, tmp_path / "all", core.DownloadMode.NoSharedDownload)
    assert set(cluster.journal()[0].data["resources"]) == {"a", "b/", "b/c", "metadata.json"}
    assert sorted(p.name for p in (tmp_path / "dst").rglob("*")) == ["b", "c", "metadata.json"]
    assert (tmp_path / "all" / "a").read_text() == "1"
    assert (source / "metadata.json").read_text() == "mine"


def test_the_master_knows_metadata_that_were_changed_later(cluster: Cluster) -> None:
    master = cluster.start_master()
    cluster.enter()
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (_, storage_id):
            pass
        assert context.checkpoint.get_metadata(storage_id) == {"steps_completed": 1}
        answer = {"checkpoint": {"metadata": {"steps_completed": 1, "note": "good"}}}
        master.answers[f"/api/v1/checkpoints/{storage_id}"] = lambda body: (200, answer)
        assert context.checkpoint.get_metadata(storage_id)["note"] == "good"
        with pytest.raises(CheckpointError):
            context.checkpoint.get_metadata("unknown")


def test_a_deleted_checkpoint_is_reported(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (_, storage_id):
            pass
        context.checkpoint.delete(storage_id)
        with pytest.raises(CheckpointError), context.checkpoint.restore_path(storage_id):
            pass
    assert cluster.journal("checkpoint_deleted")[0].data == {"uuid": storage_id, "resources": {}}


@pytest.mark.parametrize(
    "metadata", [None, {}, {"steps_completed": "5"}, {"steps_completed": None}, {"steps_completed": 1.5}]
)
def test_without_steps_completed_nothing_is_stored(cluster: Cluster, metadata: Any) -> None:
    cluster.enter()
    with core.init() as context:
        with pytest.raises(ValueError, match="steps_completed"), context.checkpoint.store_path(metadata):
            pass
        with pytest.raises(ValueError, match="steps_completed"):
            context.checkpoint.upload(cluster.root, metadata)
    assert not cluster.journal() and not list(cluster.storage.glob("*"))


def test_a_failed_block_is_neither_stored_nor_reported(cluster: Cluster) -> None:
    cluster.enter()
    with (
        core.init() as context,
        pytest.raises(KeyError),
        context.checkpoint.store_path({"steps_completed": 1}) as (path, _),
    ):
        fill(path, {"half": "x"})
        raise KeyError
    assert not cluster.journal() and not list(cluster.storage.iterdir())


def test_damage_is_an_error_when_restoring(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            fill(path, {"model": "weights"})
        (cluster.storage / storage_id / "model").write_text("weightz")
        with pytest.raises(CheckpointDamaged, match="model is damaged"), context.checkpoint.restore_path(storage_id):
            pass
        with pytest.raises(CheckpointDamaged, match="model is damaged"):
            context.checkpoint.download(storage_id, cluster.root / "copy")
    reports = cluster.journal("checkpoint_damaged")
    assert [report.data["uuid"] for report in reports] == [storage_id] * 2
    assert "model is damaged" in reports[0].data["why"]


def test_another_storage_can_be_given(cluster: Cluster, tmp_path: Path) -> None:
    cluster.enter()
    elsewhere = tmp_path / "elsewhere"
    with core.init(checkpoint_storage=str(elsewhere)) as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (_, storage_id):
            pass
    assert (elsewhere / storage_id).is_dir()
    assert cluster.journal()[0].data["storage"] == {"type": "shared_fs", "host_path": str(elsewhere)}


def test_off_the_cluster_checkpoints_are_stored_too(off_cluster: Path, tmp_path: Path) -> None:
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            fill(path, {"model": "weights"})
        assert context.checkpoint.get_metadata(storage_id) == {"steps_completed": 1}
        assert (off_cluster / "checkpoints" / storage_id / "model").exists()
        context.checkpoint.delete(storage_id)
    with core.init(checkpoint_storage={"type": "directory", "container_path": str(tmp_path / "d")}) as context:
        storage_id = context.checkpoint.upload(fill(tmp_path / "src", {"a": "1"}), {"steps_completed": 2})
    assert (tmp_path / "d" / storage_id / "a").exists()


def test_off_the_cluster_a_path_names_a_checkpoint_too(
    off_cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "ours" / "7", {"model": "weights", "sub/extra": "more", "metadata.json": '{"steps_completed": 7}'})
    monkeypatch.chdir(tmp_path)
    with core.init() as context:
        for name in (str(tmp_path / "ours" / "7"), "ours/7"):
            with context.checkpoint.restore_path(name) as path:
                assert (path / "model").read_text() == "weights"
            assert context.checkpoint.get_metadata(name) == {"steps_completed": 7}
        context.checkpoint.download("ours/7", tmp_path / "copy", selector=lambda name: name.startswith("sub"))
        assert [str(file.relative_to(tmp_path)) for file in (tmp_path / "copy").rglob("*")] == [
            "copy/sub",
            "copy/sub/extra",
        ]
        with pytest.raises(CheckpointNotFound, match="no directory"), context.checkpoint.restore_path("ours/8"):
            pass


SHARDED = """
from dethpc import core
with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
    c = context.checkpoint
    with c.store_path({"steps_completed": 7, f"rank{rank}": {"n": rank}}, shard=True) as (path, storage_id):
        if rank != 1:
            (path / f"shard{rank}").write_text(f"of {rank}")
    with c.restore_path(storage_id) as path:
        say(sorted(p.name for p in path.iterdir() if not p.name.startswith(".")))
    say(c.get_metadata(storage_id))
    target = os.path.join(os.environ["DETHPC_HOME"], f"copy{context.distributed.cross_rank}")
    c.download(storage_id, target, selector=lambda name: name == f"shard{rank}")
    say(sorted(os.listdir(target)))
    say(storage_id)
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_workers_store_one_checkpoint_together(cluster: Cluster, workers: Workers, nodes: int) -> None:
    cluster.info["slot_ids"] = [0, 1, 2, 3]
    cluster.enter()
    found = results(workers.start(SHARDED, 4, nodes=nodes, DETHPC_INFO=str(cluster.info_file)))
    shards = ["shard0", "shard2", "shard3"]
    for rank, (names, metadata, copied, storage_id) in enumerate(found):
        assert names == ["metadata.json", *shards]
        assert metadata == {"steps_completed": 7, **{f"rank{r}": {"n": r} for r in range(4)}}
        assert copied == (shards if nodes == 1 else ["shard0"] if rank < 2 else ["shard2", "shard3"])
        assert storage_id == found[0][3]
    (event,) = cluster.journal("checkpoint")
    assert {name for name in event.data["resources"] if name != "metadata.json"} == set(shards)
    manifest = json.loads((cluster.storage / found[0][3] / ".dethpc-manifest.json").read_text())
    assert set(manifest["files"]) == {*shards, "metadata.json"}


UPLOADED = """
from dethpc import core
with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
    c, home = context.checkpoint, os.environ["DETHPC_HOME"]
    shared, own = os.path.join(home, "shared"), os.path.join(home, f"own{rank}")
    os.makedirs(shared, exist_ok=True); os.makedirs(own, exist_ok=True)
    open(os.path.join(shared, "s"), "w").write("shared")
    open(os.path.join(own, "same"), "w").write("same")
    open(os.path.join(own, f"only{rank}"), "w").write("x")
    open(os.path.join(own, "differs"), "w").write(str(rank))
    meta = {"steps_completed": 1}
    context.distributed.allgather(None)
    a = c.upload(shared if rank else None, meta, shard=True)
    b = c.upload(own, meta, shard=True, selector=lambda name: name != "differs")
    for x in (a, b):
        with c.restore_path(x) as path: say(sorted(p.name for p in path.iterdir() if not p.name.startswith(".")))
    for source, m in ((own, meta), (shared, {"steps_completed": rank}), (None, meta)):
        try: c.upload(source, m, shard=True)
        except RuntimeError as error: say(str(error))
    try:
        with c.store_path(meta, shard=True) as (path, _):
            if rank == 1: raise KeyError("disk")
    except (KeyError, RuntimeError) as error: say(f"{type(error).__name__}: {error}")
    try: c.upload(shared, meta); say("uploaded")
    except RuntimeError as error: say(str(error))
    context.distributed.allgather(None)
"""


def test_workers_upload_the_union_and_contradictions_are_refused_by_all(cluster: Cluster, workers: Workers) -> None:
    cluster.info["slot_ids"] = [0, 1]
    cluster.enter()
    for rank, said in enumerate(results(workers.start(UPLOADED, 2, DETHPC_INFO=str(cluster.info_file)))):
        assert said[0] == ["metadata.json", "s"]
        assert said[1] == ["metadata.json", "only0", "only1", "same"]
        assert "differs: ranks 0, 1" in said[2]
        assert "/steps_completed: ranks 0, 1" in said[3]
        assert "no worker has a ckpt_dir" in said[4]
        assert said[5] == ("KeyError: 'disk'" if rank else "RuntimeError: rank 1: its block failed: KeyError('disk')")
        assert said[6] == (
            "only the chief may call checkpoint.upload(shard=False); this is rank 1" if rank else "uploaded"
        )
    assert len(cluster.journal("checkpoint")) == 3
    assert len([path for path in cluster.storage.iterdir() if path.name != "c1"]) == 3


def test_damage_is_an_error_on_every_worker(cluster: Cluster, workers: Workers) -> None:
    cluster.info["slot_ids"] = [0, 1]
    cluster.enter()
    with core.init(distributed=core.DummyDistributedContext()) as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            fill(path, {"model": "weights", **{f"shard{rank}": "good" for rank in range(4)}})
    (cluster.storage / storage_id / "model").write_text("weightz")
    body = """
    from dethpc import core
    from dethpc.errors import CheckpointDamaged
    with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
        try:
            with context.checkpoint.restore_path(os.environ["UUID"]): pass
        except CheckpointDamaged as error:
            say(str(error))
        from dethpc.storage import manifest
        ledger, measure = [], manifest.measure
        manifest.measure = lambda root, paths: ledger.extend(paths) or measure(root, paths)
        with context.checkpoint.restore_path(os.environ["UUID"], selector=lambda name: name == f"shard{rank}"): pass
        say(ledger)
    """
    found = results(workers.start(body, 4, nodes=2, DETHPC_INFO=str(cluster.info_file), UUID=storage_id))
    assert all("model is damaged" in said[0] for said in found)
    assert [report.data["uuid"] for report in cluster.journal("checkpoint_damaged")] == [storage_id]
    # What is chosen is compared on the machine that chose it, and nothing else is read.
    assert [said[1] for said in found] == [["shard0", "shard1"], [], ["shard2", "shard3"], []]


@pytest.mark.parametrize(
    ("one", "two", "merged", "conflicts"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, {}),
        ({"a": [1]}, {"a": [1]}, {"a": [1]}, {}),
        ({"a": 1}, {"a": 2}, None, {"/a": [0, 1]}),
        ({"a": {"c": 1}}, {"a": {"d": 1}}, {"a": {"c": 1, "d": 1}}, {}),
        ({"a": {"c": 1}}, {"a": {"c": 2}}, None, {"/a/c": [0, 1]}),
        ({"a": {"c": 1}}, {"a": 1}, None, {"/a": [0, 1]}),
        ({"a": []}, {"a": {"c": 1}}, None, {"/a": [0, 1]}),
        ({"a": {}}, {}, {"a": {}}, {}),
    ],
)
def test_metadata_merge_or_conflict(one: Any, two: Any, merged: Any, conflicts: Any) -> None:
    found = merge_metadata([one, two])
    assert found[1] == conflicts
    assert merged is None or found[0] == merged


def test_files_conflict_with_files_and_directories() -> None:
    listings = [{"a": 1, "d/": 0, "x": 1}, {"b": 1, "d/": 0, "x/": 0}, {"a": 2}]
    assert merge_resources(listings)[1] == {"a": [0, 2], "x": [0, 1]}


def held(context: core.Context) -> threading.Event:
    """Keeps the background from publishing until it is set."""
    gate = threading.Event()
    context.checkpoint._background.start(lambda: gate.wait(LONG_ENOUGH) and None)
    return gate


def test_publishing_goes_on_beside_the_training(cluster: Cluster) -> None:
    cluster.enter()
    metadata = {"steps_completed": 1}
    with core.init() as context:
        with context.checkpoint.store_path_async(metadata) as (path, first):
            fill(path, {"model": "weights"})
            gate = held(context)
        metadata["steps_completed"] = 2  # too late to matter
        assert not (cluster.storage / first).exists() and not cluster.journal()
        gate.set()
        with context.checkpoint.restore_path(first) as restored:  # waits for it
            assert (restored / "model").read_text() == "weights"
        (event,) = cluster.journal("checkpoint")
        assert (event.data["uuid"], event.data["steps_completed"]) == (first, 1)
        with context.checkpoint.store_path_async(metadata) as (path, second):
            fill(path, {"model": "x" * (2 << 20)})
    assert [event.data["uuid"] for event in cluster.journal("checkpoint")] == [first, second]
    assert not FileStore(cluster.storage).without_checksums(second)


def test_files_may_be_written_beside_the_training_too(cluster: Cluster) -> None:
    cluster.start_master()
    cluster.enter()
    metadata = {"steps_completed": 1}
    with core.init() as context:
        gate = held(context)
        waited, context.checkpoint.wait = context.checkpoint.wait, lambda: None  # type: ignore[method-assign]
        stored = context.checkpoint.store_async(lambda path: fill(path, {"model": "weights"}), metadata)
        context.checkpoint.wait = waited  # type: ignore[method-assign]
        metadata["steps_completed"] = 2  # too late to matter
        asked = cluster.storage.exists() and list(cluster.storage.iterdir())
        gate.set()
        assert not asked, "the training waits for no disk and no server"
        with context.checkpoint.restore_path(stored) as restored:  # waits for it
            assert (restored / "model").read_text() == "weights"
        assert context.checkpoint.get_metadata(stored) == {"steps_completed": 1}
        with pytest.raises(ValueError, match="steps_completed"):
            context.checkpoint.store_async(lambda path: None, {})
        context.checkpoint.store_async(lambda path: (path / "no" / "such" / "folder").touch(), metadata)
        with pytest.raises(FileNotFoundError):
            context.checkpoint.wait()
        cluster.storage.rename(cluster.root / "aside")
        cluster.storage.write_text("no folder")
        context.checkpoint.store_async(lambda path: fill(path, {"model": "weights"}), {"steps_completed": 2})
        with pytest.raises(CheckpointError, match="cannot be written to"):
            context.checkpoint.wait()
    assert [event.data["uuid"] for event in cluster.journal("checkpoint")] == [stored]
    assert [path.name for path in (cluster.root / "aside").iterdir()] == [stored]


def test_what_is_left_to_write_after_the_block_belongs_to_the_checkpoint(cluster: Cluster) -> None:
    cluster.enter()
    checkpoint, gate = {"steps_completed": 1}, threading.Event()

    def write(path: Path) -> None:
        assert gate.wait(LONG_ENOUGH) and threading.current_thread() is not threading.main_thread()
        fill(path, {"large": "weights"})

    with core.init() as context:
        with context.checkpoint.store_path_async(checkpoint, write=write) as (path, stored):
            fill(path, {"small": "settings"})
        assert [path.name for path in cluster.storage.iterdir()] == [f".{stored}.partial"]
        gate.set()
        with context.checkpoint.restore_path(stored) as restored:
            assert {file.name for file in restored.glob("[!.]*")} == {"large", "small", "metadata.json"}
        with context.checkpoint.store_path_async(checkpoint, write=lambda path: (path / "no" / "folder").touch()):
            pass
        with pytest.raises(FileNotFoundError):
            context.checkpoint.wait()
    assert [event.data["uuid"] for event in cluster.journal("checkpoint")] == [stored]
    assert [path.name for path in cluster.storage.iterdir()] == [stored]


@pytest.mark.parametrize("shard", [False, True])
def test_what_has_not_changed_since_the_checkpoint_before_is_kept_once(cluster: Cluster, shard: bool) -> None:
    cluster.start_master()
    frozen = {"frozen": "f" * (2 << 20)}
    for steps in (1, 2, 3):
        cluster.enter()
        with core.init() as context:  # the trial goes on in another process, as after a pause
            with context.checkpoint.store_path({"steps_completed": steps}, shard=shard) as (path, stored):
                fill(path, {**frozen, "head": str(steps) * (1 << 20)})
            if steps == 2:
                again = context.checkpoint.upload(path.parents[1] / stored, {"steps_completed": 2}, shard=shard)
        cluster.info["latest_checkpoint"] = again if steps == 2 else stored
    kept = [folder / name for folder in cluster.storage.glob("[!.]*") for name in ("frozen", "head")]
    assert len({path.stat().st_ino for path in kept if path.name == "frozen"}) == 1
    assert len({path.stat().st_ino for path in kept if path.name == "head"}) == 3
    for path in kept[::2]:
        with FileStore(cluster.storage).restore(path.parent.name):
            pass


def test_a_failed_publication_is_raised_once_and_leaves_nothing(cluster: Cluster) -> None:
    cluster.enter()

    def fail(context: core.Context) -> None:
        with context.checkpoint.store_path_async({"steps_completed": 1}) as (_, storage_id):
            (cluster.storage / storage_id).mkdir()

    with pytest.raises(CheckpointError, match="exists already"), core.init() as context:
        fail(context)
        with pytest.raises(CheckpointError, match="exists already"):
            context.checkpoint.wait()
        context.checkpoint.wait()
        fail(context)
    with pytest.raises(KeyError), core.init() as context:
        fail(context)
        raise KeyError
    with pytest.raises(CheckpointError, match="exists already"), core.init() as context:
        fail(context)
        sys.exit()  # as after should_preempt(): it must not look as if all were well
    assert not cluster.journal() and not list(cluster.storage.glob(".*"))


@pytest.mark.parametrize("call", ["store_path", "store_path_async", "store_async"])
def test_a_kill_while_a_checkpoint_is_under_way_leaves_the_one_before(cluster: Cluster, call: str) -> None:
    cluster.enter()
    code = f"""
        import os, signal
        from dethpc import core
        with core.init() as context:
            with context.checkpoint.store_path({{"steps_completed": 1}}) as (path, first):
                (path / "model").write_text("weights")
            print(first, flush=True)
            def write(path):
                (path / "model").write_text("half")
                os.kill(os.getpid(), signal.SIGKILL)
            if "{call}" == "store_async":
                context.checkpoint.store_async(write, {{"steps_completed": 2}})
                signal.pause()
            with context.checkpoint.{call}({{"steps_completed": 2}}) as (path, second):
                (path / "model").write_text("half")
                if "{call}" == "store_path_async":
                    context.checkpoint._background.start(lambda: os.kill(os.getpid(), signal.SIGKILL))
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=LONG_ENOUGH
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [event.data["uuid"] for event in cluster.journal("checkpoint")] == [killed.stdout.strip()]
    assert [path.name for path in cluster.storage.glob("[!.]*")] == [killed.stdout.strip()]
    assert len(list(cluster.storage.glob(".*.partial"))) == 1


ASYNC = """
from dethpc import core
with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
    c, d = context.checkpoint, context.distributed
    for steps in (1, 2):
        with c.store_path_async({"steps_completed": steps}, shard=True) as (path, storage_id):
            (path / f"shard{rank}").write_text(str(steps) * (1 << 20))
        d.allgather(rank)  # the training goes on to talk
    c.wait()
    d.allgather(None)  # each knows of its own part alone
    with c.restore_path(storage_id) as path:
        say(sorted(p.name for p in path.iterdir() if not p.name.startswith(".")))
    def write(path):
        half, told = path / "half", os.path.join(os.environ["DETHPC_HOME"], "half")
        if rank == 1:  # is done while the other's file has a name that it will lose
            while not os.path.exists(told): time.sleep(0.01)
            return
        half.write_text("h"); os.makedirs(told); time.sleep(0.3); half.rename(path / "whole")
    storage_id = c.store_async(write, {"steps_completed": 3}, shard=True)
    c.wait()
    d.allgather(None)
    with c.restore_path(storage_id) as path:
        say(sorted(p.name for p in path.iterdir() if not p.name.startswith(".")))
    try:
        with c.store_path_async({"steps_completed": 4}, shard=True):
            if rank == 1: raise KeyError("disk")
        c.wait()
    except (KeyError, RuntimeError) as error: say(type(error).__name__)
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_workers_publish_together_beside_the_training(cluster: Cluster, workers: Workers, nodes: int) -> None:
    cluster.info["slot_ids"] = [0, 1]
    cluster.enter()
    found = results(workers.start(ASYNC, 2, nodes=nodes, DETHPC_INFO=str(cluster.info_file)))
    assert [said[0] for said in found] == [["metadata.json", "shard0", "shard1"]] * 2
    assert [said[1] for said in found] == [["metadata.json", "whole"]] * 2
    assert [said[2] for said in found] == ["RuntimeError", "KeyError"]
    events = cluster.journal("checkpoint")
    assert [event.data["steps_completed"] for event in events] == [1, 2, 3]
    storage = FileStore(cluster.storage)
    assert [storage.without_checksums(event.data["uuid"]) for event in events] == [[], [], []]
    (cluster.storage / events[1].data["uuid"] / "shard1").write_text("3" * (1 << 20))
    with pytest.raises(CheckpointError, match="shard1 is damaged"), storage.restore(events[1].data["uuid"]):
        pass
