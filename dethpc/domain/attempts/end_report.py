"""How an attempt ended, as its own node says: ``end.json``."""

from __future__ import annotations

import signal
from typing import Any, Mapping, NamedTuple, Optional, Sequence


class EndReport(NamedTuple):
    """The content of ``end.json``. docs/run-directory.md has the fields in words."""

    finished: bool = False  # the entrypoint exited with 0 and had not been asked to stop
    exit_code: Optional[int] = None  # as a shell states it; None: no process of the user's ended
    signal: Optional[int] = None
    acked: bool = False  # user code had been told to stop
    stop_reason: Optional[str] = None  # why; a ``StopReason`` or the master's own words
    phase: str = ""  # how far it came
    message: str = ""  # the reason in one line
    node: Optional[int] = None  # rank of the node that failed first
    tail: Sequence[str] = ()  # the last lines of the log
    at: Optional[float] = None  # when it was written, in seconds since the epoch

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> EndReport:
        """Reads reports of every release: what is missing, or is not what it should be, counts as not said."""
        at, tail = obj.get("at"), obj.get("tail")
        return cls(
            finished=bool(obj.get("finished")),
            exit_code=_whole(obj.get("exit_code")),
            signal=_whole(obj.get("signal")),
            acked=bool(obj.get("acked")),
            stop_reason=plain_text(obj["stop_reason"]) if obj.get("stop_reason") else None,
            phase=plain_text(obj.get("phase") or ""),
            message=plain_text(obj.get("message") or ""),
            node=_whole(obj.get("node")),
            tail=[plain_text(line) for line in tail] if isinstance(tail, list) else (),
            at=moment(at),
        )


def signal_of(code: int) -> Optional[int]:
    """The signal of an exit code as shells and launchers report it; None: it is of none."""
    return code - 128 if 128 < code <= 128 + 64 else None


def killed_by(number: int) -> str:
    """How a process ended that signal ``number`` killed, in words."""
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    hint = "; unless somebody killed it, the node ran out of memory" if number == signal.SIGKILL else ""
    return f"killed by signal {number}{name}{hint}"


def plain_text(value: object) -> str:
    """``value`` as text that any database takes: without NUL and halves of surrogate pairs."""
    return str(value).replace("\0", "").encode("utf-8", "replace").decode()


def moment(value: object) -> Optional[float]:
    """``value`` as seconds since the epoch; None when it is no such number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -(2.0**53) < value < 2.0**53 else None


def _whole(value: object) -> Optional[int]:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -(2**31) <= value < 2**31 else None
