"""What a run needs before it can be prepared, and waits for without a job: its image."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from dethpc.domain.facts import Run
from dethpc.engine import events
from dethpc.errors import SubmitRejected
from dethpc.insight.waiting import WAITS_FOR_IMAGE
from dethpc.master.watching.live_runs import LiveRun, LiveRuns
from dethpc.master.watching.trouble import Trouble
from dethpc.rundir.home import Home

NEEDS = "what it needs"
LOOK_AGAIN = 1.0
"""Seconds between two looks whether what a run needs is there."""

Missing = Callable[[Run], str]
"""What a run waits for before it can be prepared, in words; "" for nothing. Raises SubmitRejected where that will never be there,
OSError."""


class Needs:
    """For the reconciler's thread."""

    def __init__(
        self, runs: LiveRuns, home: Home, trouble: Trouble, tell: Callable[[Run, str], None], missing: Missing
    ) -> None:
        self._runs, self._home, self._trouble = runs, home, trouble
        self._tell, self._missing = tell, missing

    def waits(self, live: LiveRun) -> bool:
        """Whether something is not there yet. The run's row and its trial's log say so, and it lets others pass."""
        if time.monotonic() < live.rests_until.get(NEEDS, 0.0):
            return True
        try:
            why = self._missing(live.run)
        except SubmitRejected as error:
            self._trouble.tell(live, str(error))
            self._runs.do(events.SubmitFailed(live.run.id, str(error), time.time()))
            return True
        except OSError as error:
            why = f"{WAITS_FOR_IMAGE}that cannot be looked for: {error}"
        if not why:
            return False
        live.rests_until[NEEDS] = time.monotonic() + LOOK_AGAIN
        if live.refusal != why:
            live.refusal = why
            self._runs.do(events.SubmitDeferred(live.run.id, why, time.time()))
            with contextlib.suppress(OSError):  # its log lies there, and nothing else yet
                self._home.run(live.run.id).make()
            self._tell(live.run, why)
        return True
