"""Further runs in the same job: when its run has ended the master may hand it another, so that short trials share an allocation."""

from __future__ import annotations

import time
from typing import Optional

from dethpc.rundir.files import create_once, read_json
from dethpc.rundir.layout import RunDir

LOOK_SECONDS = 0.1


def script_after(run: RunDir, wait: float) -> Optional[str]:
    """The batch script of the run that follows ``run`` in its job, None when none does.

    After ``wait`` seconds without a word from the master the job says itself that nothing follows, and the master will hear that
    when it comes with another run. Raises: OSError, RunDirError.
    """
    until = time.monotonic() + wait
    while True:
        word = read_json(run.next)
        if word is not None:
            return word.get("script")
        if time.monotonic() >= until:
            create_once(run.next, {"script": None})
        else:
            time.sleep(LOOK_SECONDS)
