"""What a notebook, a TensorBoard or a shell reports of itself: ``service.json``."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional

from dethpc.domain.attempts.end_report import moment, plain_text


class ServiceState(NamedTuple):
    """The content of ``service.json``. docs/run-directory.md has the fields in words."""

    ready: bool = False  # it answers
    idle_ends_at: Optional[float] = None  # when it ends unless it is used; None: it is in use, or has no idle_timeout
    ended: str = ""  # why it ended by itself

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> ServiceState:
        """Fields that are missing or invalid get their defaults."""
        return cls(bool(obj.get("ready")), moment(obj.get("idle_ends_at")), plain_text(obj.get("ended") or "")[:500])
