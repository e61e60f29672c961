"""What nodes measured, as the figures of a run; and what is said where most lay idle."""

from __future__ import annotations

from dethpc.domain.attempts.usage import GpuUse, NodeUse
from dethpc.insight.usage import of_nodes

GIB = 1 << 30


def test_figures_are_over_what_was_asked_for() -> None:
    gpus = [GpuUse("a", 0.9, 40 * GIB, 80 * GIB), GpuUse("b", 0.5, 20 * GIB, 80 * GIB)]
    first = NodeUse(100.0, 600.0, 12 * GIB, cpus=8, memory_given=16 * GIB, gpus=gpus)
    second = NodeUse(100.0, 200.0, 4 * GIB, cpus=8, memory_given=16 * GIB)
    found = of_nodes([first, second])
    assert found is not None
    assert (found.cpus, found.cpu, found.cpu_seconds) == (16, 0.5, 800.0)
    assert (found.memory_bytes, found.memory_given_bytes, found.memory) == (12 * GIB, 16 * GIB, 0.75), (
        "the fullest node's"
    )
    assert (found.gpus, found.gpu, found.gpu_memory) == (2, 0.7, 0.5)
    assert found.advice == []


def test_what_nobody_said_has_no_share() -> None:
    assert of_nodes([]) is None
    found = of_nodes([NodeUse(50.0, 20.0, GIB)])
    assert found is not None and (found.cpus, found.cpu, found.memory, found.gpu) == (None, None, None, None)
    assert (found.cpu_seconds, found.memory_bytes) == (20.0, GIB)


def test_advice_names_what_lay_idle_and_what_to_ask_for() -> None:
    idle = NodeUse(3600.0, 3600.0, 2 * GIB, cpus=16, memory_given=64 * GIB, gpus=[GpuUse("a", 0.1, GIB, 80 * GIB)])
    found = of_nodes([idle])
    assert found is not None
    memory, cpus, gpus = found.advice
    assert memory.startswith("3% of the memory was used") and "[--mem=4G]" in memory
    assert cpus == "1.0 of 16 CPUs were busy: slurm.cpus_per_task asks for fewer"
    assert gpus.startswith("the GPUs computed in 10% of the time")


def test_a_short_run_and_a_small_rest_get_no_advice() -> None:
    for use in (
        NodeUse(599.0, 1.0, GIB, cpus=64, memory_given=512 * GIB),
        NodeUse(3600.0, 36.0, GIB // 2, cpus=2, memory_given=4 * GIB),
    ):
        found = of_nodes([use])
        assert found is not None and found.advice == []
