"""When to stop: by a file in the attempt's directory, by the master's answer, or by the clock."""

from __future__ import annotations

import enum
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from dethpc.core._distributed import DistributedContext
from dethpc.domain.attempts.stopping import StopReason, StopRequest
from dethpc.domain.reports import ReportKind
from dethpc.errors import DethpcError, RunDirError
from dethpc.rundir.files import write_json

if TYPE_CHECKING:
    from dethpc.client.address import MasterFinder
    from dethpc.client.session import Session
    from dethpc.core._reporter import Reporter
    from dethpc.rundir.layout import AttemptDir

logger = logging.getLogger("dethpc.core")

_LOOK_EVERY = 0.2  # seconds between two looks at the file
_POLL = 60  # seconds that the master holds one poll


class PreemptMode(enum.Enum):
    """Who may call ``should_preempt()``.

    ``WorkersAskChief``: all workers, in step; the chief finds out and tells them, so that all stop at the same point.
    ``ChiefOnly``: the chief alone; how the others learn of it is up to you. ``WorkersAskMaster``: any worker at any time; each
    finds out for itself, and some may do so earlier than others.
    """

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class _PreemptionWatcher:
    """Why this attempt should stop, if it should. Asking costs no more than a look at the clock most of the time."""

    def __init__(
        self, attempt: AttemptDir, allocation_id: str, session: Session, finder: MasterFinder, stop_at: Optional[float]
    ) -> None:
        self._attempt = attempt
        self._path = f"/api/v1/allocations/{allocation_id}/signals/preemption"
        self._session = session
        self._finder = finder
        self._stop_at = stop_at
        self._reason: Optional[str] = None
        self._looked_at = float("-inf")
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="dethpc-preemption", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The poll in flight is left to itself: its thread does not keep the process."""
        self._closed.set()

    def hear(self, reason: str) -> None:
        """Somebody else learnt it first."""
        if self._reason is None:
            self._reason = reason

    def should_preempt(self, *, fresh: bool = False) -> bool:
        """``fresh``: look now, however short ago the last look was."""
        if self._reason is None:
            now = time.monotonic()
            if fresh or now - self._looked_at >= _LOOK_EVERY:
                self._looked_at = now
                self._look()
        return self._reason is not None

    @property
    def reason(self) -> Optional[str]:
        return self._reason

    def _look(self) -> None:
        try:
            request = self._attempt.stop_request()
        except (RunDirError, OSError):
            request = StopRequest("", 0.0)  # it is there, whatever it says
        if request is not None:
            self.hear(request.reason or "stop")
        elif self._stop_at is not None and time.time() >= self._stop_at:
            self.hear(StopReason.TIME_LIMIT)

    def _poll(self) -> None:
        failures = 0
        while not self._closed.is_set() and self._reason is None:
            try:
                answer = self._session.get(self._path, {"timeoutSeconds": _POLL}, timeout=_POLL + 15)
                failures = 0
                if answer.get("preempt"):
                    self.hear(StopReason.PREEMPTED)
                    self._look()
            except (DethpcError, OSError, AttributeError):
                failures += 1
                self._closed.wait(min(30.0, 0.5 * 2 ** min(failures, 6)))
                self._finder.refresh()


class PreemptContext:
    """Tells the training that it should checkpoint and leave: pause, preemption, a searcher's decision, the time limit."""

    def __init__(
        self,
        dist: DistributedContext,
        preempt_mode: PreemptMode,
        watcher: Optional[_PreemptionWatcher],
        acknowledge: Callable[[str], None],
        await_verdict: Optional[Callable[[], None]] = None,
    ) -> None:
        """``await_verdict`` is called before each look of the chief: whoever has just validated hears first what the search says
        of it, and so stops at the state that it has validated."""
        self._dist = dist
        self._preempt_mode = PreemptMode(preempt_mode)
        self._watcher = watcher if dist.rank == 0 or self._preempt_mode is PreemptMode.WorkersAskMaster else None
        self._acknowledge = acknowledge
        self._await_verdict = await_verdict if self._watcher is not None else None
        self._ack_sent = False
        self._asked = False  # the training has called should_preempt()
        self._answered = False  # it has said True
        self._reason = ""  # why, where the process has it from a signal of its own
        self._started = False
        # Asked after each batch, so what does not change is found out once.
        self._refused = dist.rank != 0 and self._preempt_mode is PreemptMode.ChiefOnly
        self._together = dist.size > 1 and self._preempt_mode is PreemptMode.WorkersAskChief

    def start(self) -> PreemptContext:
        if self._started:
            raise RuntimeError("PreemptContext.start() may be called once")
        self._started = True
        if self._watcher is not None:
            self._watcher.start()
        return self

    def close(self) -> None:
        if self._watcher is None:
            return
        if not self._asked and self._watcher.should_preempt(fresh=True):
            logger.warning(
                "this trial was asked to stop (%s) and went on: its code never calls core.preempt.should_preempt()",
                self._watcher.reason,
            )
        self._watcher.close()

    def __enter__(self) -> PreemptContext:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.close()

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """True when the task should save a checkpoint and end; from then on it stays True.

        Who may call it is a matter of the ``preempt_mode``. It is cheap on one worker; in mode ``WorkersAskChief`` it costs a
        message between the workers, so ask every few steps rather than at each.

        ``auto_ack``: answering True also tells the master that the task complies, see ``acknowledge_preemption_signal``.
        """
        if not self._started:
            raise RuntimeError("should_preempt() only works inside `with core.init() as context:`")
        if self._refused:
            raise RuntimeError(f"in mode ChiefOnly rank {self._dist.rank} may not call should_preempt()")
        self._asked = True
        if self._await_verdict is not None and not self._answered:
            self._await_verdict()
        out = self._watcher is not None and self._watcher.should_preempt()
        if out and auto_ack and not self._ack_sent:
            self.acknowledge_preemption_signal()
        if self._together:
            out = bool(self._dist.broadcast(out))
        self._answered = self._answered or out
        return out

    def acknowledge_preemption_signal(self) -> None:
        """Say that the task ends because it was asked to, with its work unfinished: it is continued later.

        A task that exits with 0 without having said so counts as completed.
        """
        self._ack_sent = self._answered = True
        self._acknowledge(self._reason)

    def _note_term(self) -> None:
        """TERM has come to this process."""
        if self._watcher is not None and self._watcher.reason is None:
            self._watcher.should_preempt(fresh=True)  # a request says why
            if self._watcher.reason is None:
                self._reason = StopReason.PREEMPTED.value
                self._watcher.hear(StopReason.PREEMPTED)

    def _leave(self) -> bool:
        """The chief's own look, which the other workers need not join. True: it has been told, and complies."""
        self._asked = True
        out = self._watcher is not None and self._watcher.should_preempt(fresh=True)
        if out and not self._ack_sent:
            self.acknowledge_preemption_signal()
        return out


class DummyPreemptContext(PreemptContext):
    """Nobody asks a task outside the cluster to stop; who may call what is enforced all the same."""

    def __init__(self, dist: DistributedContext, preempt_mode: PreemptMode = PreemptMode.WorkersAskChief) -> None:
        super().__init__(dist, preempt_mode, None, lambda reason: None)


def acknowledge(attempt: AttemptDir, reporter: Optional[Reporter], reason: str = "") -> None:
    """In the journal for the master and in a file for the node's task process, which may have neither. ``reason``: why the task
    stops, where nobody else may know."""
    if reporter is not None:
        reporter.report(ReportKind.ACK, {}, durable=True)
    elif attempt.ack.exists():
        return
    try:
        write_json(attempt.ack, {"at": time.time(), **({"reason": reason} if reason else {})})
    except OSError as error:
        logger.warning("%s cannot be written: %s", attempt.ack, error)
