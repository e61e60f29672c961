"""New values for some fields of a row, each with its type: a field that is not given stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final


class Unset(Enum):
    """Not given. None is a value of its own: ``max_slots`` None is no limit."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The base of what may change about a row. Its fields are those of the row."""

    def given(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not UNSET}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChanges(Changes):
    name: str | Unset = UNSET
    description: str | Unset = UNSET
    notes: str | Unset = UNSET
    labels: list[str] | Unset = UNSET
    archived: bool | Unset = UNSET
    project_id: int | Unset = UNSET
    max_slots: int | None | Unset = UNSET
    weight: float | Unset = UNSET
    priority: int | Unset = UNSET
    config: dict[str, Any] | Unset = UNSET
    collect: bool | Unset = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialChanges(Changes):
    status: str | Unset = UNSET
    metadata: dict[str, Any] | Unset = UNSET
    progress: float | Unset = UNSET
    image: str | Unset = UNSET
