"""What a task without a trial was launched with, as its row keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dethpc.domain.facts import Task
from dethpc.domain.records import UNCATEGORIZED


class TaskSettings(NamedTuple):
    """``config``: the configuration of its job, in the form of an experiment's. ``options``: what of its own configuration no
    experiment has, such as ``work_dir``. ``services``: what its proxy leads to, as ``rundir.spec.Spec`` has them. ``details``: what
    belongs to its kind alone."""

    config: Mapping[str, Any]
    context_sha256: str = ""
    workspace_id: int = UNCATEGORIZED
    project_id: int = UNCATEGORIZED
    options: Mapping[str, Any] = {}
    services: Sequence[Mapping[str, Any]] = ()
    details: Mapping[str, Any] = {}
    parent_id: str = ""
    forked_from: str = ""
    no_pause: bool = False

    @classmethod
    def of(cls, task: Task) -> TaskSettings:
        """Fields that a later release wrote are left aside."""
        return cls(**{name: value for name, value in task.config.items() if name in cls._fields})

    def to_json(self) -> dict[str, Any]:
        return self._asdict()
