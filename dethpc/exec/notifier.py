"""Notifies the master when the training of an attempt has begun, and when the attempt has ended.

A lost notification does no harm: the master then finds out at its next poll. So it delays nothing and is sent once.
"""

from __future__ import annotations

import threading

from dethpc.domain.ids import AttemptId
from dethpc.rundir.spec import Spec

AFTER_START = 0.3
"""Seconds for which the beginning waits to be told: the processors are the training's meanwhile."""

PATIENCE = 2.0
"""Seconds that the end waits for the master, where it has answered before."""

SHORT_PATIENCE = 0.5
"""The same where it has not."""


class Notifier:
    """``training_began``, if it did, and then ``attempt_ended`` are called once each. They make threads: no user code is started
    after the first."""

    def __init__(self, spec: Spec, attempt: AttemptId) -> None:
        self._spec, self._attempt = spec, attempt
        self._over, self._answered = threading.Event(), False

    def training_began(self) -> None:
        threading.Thread(target=self._tell_start, name="dethpc-notifier", daemon=True).start()

    def attempt_ended(self) -> None:
        """Returns when the master knows, or has had time to."""
        self._over.set()
        telling = threading.Thread(target=self._ring, name="dethpc-notifier", daemon=True)
        telling.start()
        telling.join(PATIENCE if self._answered else SHORT_PATIENCE)

    def _tell_start(self) -> None:
        if not self._over.wait(AFTER_START):
            self._ring()

    def _ring(self) -> None:
        from dethpc.client.address import MasterFinder
        from dethpc.client.session import Session, notify

        finder = MasterFinder(self._spec.master_file, self._spec.master_url)
        self._answered = notify(Session(finder, self._spec.token, timeout=PATIENCE, retries=0), self._attempt)
