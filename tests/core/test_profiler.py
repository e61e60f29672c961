"""System metrics: real samples of this machine, and what is reported of them."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from dethpc import core
from dethpc.core import _system
from dethpc.core._profiler import average
from tests.core.conftest import Cluster, Workers, results
from tests.waiting import wait_until


def test_system_metrics_are_reported_in_determineds_groups(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        context.train.report_training_metrics(7, {"loss": 1.0})
        context.profiler.on(sampling_interval=0.1, samples_per_report=2)  # type: ignore[arg-type]
        context.profiler.on()  # on already
        groups = {"cpu", "memory", "disk", "network"}
        wait_until(lambda: groups <= {event.data["group"] for event in cluster.journal("metrics")})
        context.profiler.off()
        context.profiler.off()
        count = len(cluster.journal("metrics"))
    assert len(cluster.journal("metrics")) == count
    found = {event.data["group"]: event.data for event in cluster.journal("metrics")}
    assert all(data["steps_completed"] == 7 for data in found.values())
    assert 0 <= found["cpu"]["metrics"]["node1"]["cpu_util_simple"] <= 100
    assert found["memory"]["metrics"]["node1"]["memory_free"] > 1 << 20
    assert set(found["network"]["metrics"]["node1"]) == {"net_throughput_sent", "net_throughput_recv"}
    assert 0 < found["disk"]["metrics"]["node1"]["/"]["disk_util"] <= 100


def test_nothing_is_sampled_until_it_is_asked_for(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        assert context.profiler._collector is None
        with pytest.raises(ValueError, match="sampling_interval"):
            context.profiler.on(sampling_interval=0)
        with pytest.raises(ValueError, match="samples_per_report"):
            context.profiler.on(samples_per_report=0)
    assert not cluster.journal()


def test_the_configuration_switches_it_on(cluster: Cluster) -> None:
    cluster.info["trial"]["config"]["profiling"] = {"enabled": True}
    cluster.enter()

    def sampling() -> bool:
        return any(thread.name == "dethpc-profiler" for thread in threading.enumerate())

    with core.init() as context:
        assert sampling()
        context.profiler.on()  # what the Trainer does, too
        context.profiler.off()
        assert not sampling()
        context.profiler.on()
    assert not sampling()


def test_the_chief_reports_for_every_node(cluster: Cluster, workers: Workers) -> None:
    cluster.info["rendezvous"] = {
        "container_addrs": ["127.0.0.1"] * 2,
        "container_rank": 0,
        "container_slot_counts": [1, 1],
    }
    cluster.enter()
    text = cluster.info_file.read_text()
    cluster.attempt.info(1).write_text(text.replace('"node1"', '"node2"'))
    code = """
        from dethpc import core
        from pathlib import Path
        os.environ["DETHPC_INFO"] = os.environ["DETHPC_INFO"].replace("info-0", f"info-{rank}")
        with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
            context.profiler.on(sampling_interval=0.1, samples_per_report=1)
            journal = Path(os.environ["DETHPC_INFO"]).with_name("journal.jsonl")
            while not journal.exists() or b'"node2"' not in journal.read_bytes():
                time.sleep(0.05)
            context.distributed.gather(None)
    """
    results(workers.start(code, 2, nodes=2, DETHPC_INFO=str(cluster.info_file)))
    assert any(set(event.data["metrics"]) == {"node1", "node2"} for event in cluster.journal("metrics"))


def test_gpus_are_read_by_nvidias_tool_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU-1, 50, 1024'\necho 'GPU-2, 0, 80000'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(_system, "_nvml", lambda: None)
    assert _system.GPU().sample() == {
        "GPU-1": {"gpu_util": 50.0, "gpu_free_memory": 1 << 30},
        "GPU-2": {"gpu_util": 0.0, "gpu_free_memory": 80000 << 20},
    }
    tool.write_text("#!/bin/sh\necho 'No devices were found'\n")
    assert _system.GPU().sample() == {}


def test_averages_are_over_the_samples_that_have_a_value() -> None:
    samples = [{"a": 1}, {"a": 3, "g": {"x": 1}}, {"g": {"x": 3}}]
    assert average(samples) == {"a": 2, "g": {"x": 2}}
