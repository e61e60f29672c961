"""What an attempt used of what it was given, as each of its nodes measured it: ``usage-N.json``."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Sequence

from dethpc.domain.attempts.end_report import moment, plain_text


class GpuUse(NamedTuple):
    """One GPU. ``busy``: the mean share of the time in which it computed, 0 to 1; sizes in bytes."""

    uuid: str
    busy: float
    memory: int  # the most that was in use at once
    memory_total: int


class NodeUse(NamedTuple):
    """One node's part of an attempt, up to ``at``. What is None was not said by the scheduler."""

    seconds: float  # since its part began
    cpu_seconds: float  # of all its processes
    memory: int = 0  # the most bytes that they held at once, without what the kernel keeps of files
    cpus: Optional[int] = None  # given
    memory_given: Optional[int] = None  # bytes
    gpus: Sequence[GpuUse] = ()
    at: Optional[float] = None  # seconds since the epoch

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "gpus": [gpu._asdict() for gpu in self.gpus]}

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> NodeUse:
        """Reads what every release wrote: what is missing, or is not what it should be, counts as nothing used or said."""
        gpus = obj.get("gpus")
        return cls(
            seconds=_amount(obj.get("seconds")),
            cpu_seconds=_amount(obj.get("cpu_seconds")),
            memory=int(_amount(obj.get("memory"))),
            cpus=int(_amount(obj.get("cpus"))) or None,
            memory_given=int(_amount(obj.get("memory_given"))) or None,
            gpus=[_gpu(gpu) for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else (),
            at=moment(obj.get("at")),
        )


def _gpu(obj: Mapping[str, Any]) -> GpuUse:
    return GpuUse(
        uuid=plain_text(obj.get("uuid") or ""),
        busy=min(1.0, _amount(obj.get("busy"))),
        memory=int(_amount(obj.get("memory"))),
        memory_total=int(_amount(obj.get("memory_total"))),
    )


def _amount(value: object) -> float:
    return max(0.0, moment(value) or 0.0)
