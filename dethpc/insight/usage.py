"""What a run used of what it had asked for, and when asking for less would be wise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dethpc.domain.attempts.usage import NodeUse

_LONG_ENOUGH = 600.0  # seconds; of a shorter run nobody can tell what the training needs
_LITTLE = 0.25  # of what was given
_SPARE_BYTES = 4 << 30  # less than that is not worth a word
_SPARE_CPUS = 3


@dataclass(frozen=True)
class Usage:
    """Shares are 0 to 1, and None where the scheduler has not said what it gave, or nobody measured it. ``seconds`` is how long it
    was measured. Memory is that of the node that used most of its own, in bytes; CPUs and GPUs are those of all nodes together."""

    seconds: float
    cpu_seconds: float
    cpus: int | None
    cpu: float | None
    memory_bytes: int
    memory_given_bytes: int | None
    memory: float | None
    gpus: int
    gpu: float | None
    gpu_memory: float | None
    advice: list[str] = field(default_factory=list)


def of_nodes(nodes: Sequence[NodeUse]) -> Usage | None:
    """What an attempt used whose nodes measured this; None where none did.

    CPU: the processors' time over the time that they were held. Memory: the most at any moment over what was asked for. GPU: the
    mean share of time in which they computed, and the most of their memory.
    """
    if not nodes:
        return None
    cpus = sum(node.cpus for node in nodes if node.cpus is not None)
    held = sum(node.seconds * node.cpus for node in nodes if node.cpus is not None)
    spent = sum(node.cpu_seconds for node in nodes)
    fullest = max(nodes, key=lambda node: node.memory / node.memory_given if node.memory_given else node.memory)
    gpus = [gpu for node in nodes for gpu in node.gpus]
    has_cpus = all(node.cpus is not None for node in nodes)
    usage = Usage(
        seconds=max(node.seconds for node in nodes),
        cpu_seconds=spent,
        cpus=cpus if has_cpus else None,
        cpu=spent / held if has_cpus and held else None,
        memory_bytes=fullest.memory,
        memory_given_bytes=fullest.memory_given,
        memory=fullest.memory / fullest.memory_given if fullest.memory_given else None,
        gpus=len(gpus),
        gpu=sum(gpu.busy for gpu in gpus) / len(gpus) if gpus else None,
        gpu_memory=max(gpu.memory / gpu.memory_total if gpu.memory_total else 0.0 for gpu in gpus) if gpus else None,
    )
    usage.advice.extend(_advice(usage))
    return usage


def _advice(usage: Usage) -> list[str]:
    """What to ask for instead, where most of it lay idle."""
    if usage.seconds < _LONG_ENOUGH:
        return []
    advice = []
    spare = (usage.memory_given_bytes or 0) - usage.memory_bytes
    if usage.memory is not None and usage.memory < _LITTLE and spare >= _SPARE_BYTES:
        enough = max(1, -(-usage.memory_bytes * 3 // 2 >> 30) + 1)
        advice.append(
            f"{usage.memory:.0%} of the memory was used: slurm.sbatch_args: [--mem={enough}G] asks for less, and may start sooner"
        )
    if usage.cpu is not None and usage.cpus is not None and usage.cpu < _LITTLE:
        busy = usage.cpu * usage.cpus
        if usage.cpus - busy >= _SPARE_CPUS:
            advice.append(f"{busy:.1f} of {usage.cpus} CPUs were busy: slurm.cpus_per_task asks for fewer")
    if usage.gpu is not None and usage.gpu < _LITTLE:
        advice.append(
            f"the GPUs computed in {usage.gpu:.0%} of the time: they wait for something else, such as data that is read too slowly"
        )
    return advice
