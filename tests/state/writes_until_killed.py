"""Run as a program with a database URL: commits from several threads and prints each number when it is committed. With a number
after the URL, it kills itself when it has printed that many.

Number n of trial t: its attempt says that n events are applied, and there are n metrics.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading

from dethpc.state import SqlStore, open_store
from tests.state import factories, reading

AT_ONCE = 10


def write(store: SqlStore, trial: int) -> None:
    attempt = f"1.{trial}.1"
    done = len(reading.metrics(store, [trial]))
    while True:
        metrics = [factories.metric(n, attempt, trial_id=trial) for n in range(done + 1, done + AT_ONCE + 1)]
        done += AT_ONCE
        store.commit([*metrics, factories.attempt(attempt, trial_id=trial, applied_seq=done)])
        os.write(1, f"{trial} {done}\n".encode())  # whole lines, whoever else writes
        if next(printed) == most:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    printed = itertools.count(1)
    store = open_store(sys.argv[1])
    store.commit([factories.experiment(), *(factories.trial(n) for n in (1, 2, 3))])
    for trial in (1, 2, 3):
        threading.Thread(target=write, args=(store, trial)).start()
