"""TERM to a training: the Core API keeps its own process, and no other one, alive until it has saved."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Iterator

import pytest

from dethpc import core
from dethpc.core import _term
from dethpc.rundir.files import write_json
from tests.core.conftest import Cluster
from tests.waiting import LONG_ENOUGH, wait_until


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_term_asks_the_training_to_stop_which_says_so(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        assert not context.preempt.should_preempt()
        for _ in range(2):  # Slurm sends it twice
            os.kill(os.getpid(), signal.SIGTERM)
        assert not context.preempt.should_preempt(), "it may be the end of an attempt in which another worker failed"
        wait_until(context.preempt.should_preempt)
    assert json.loads(cluster.attempt.ack.read_text())["reason"] == "preempted"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_request_that_is_there_gives_the_reason(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        write_json(cluster.attempt.stop, {"reason": "pause", "at": time.time(), "deadline": None})
        wait_until(context.preempt.should_preempt)
        os.kill(os.getpid(), signal.SIGTERM)
    assert "reason" not in json.loads(cluster.attempt.ack.read_text())


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_handler_of_the_users_own_stays(cluster: Cluster, when: str) -> None:
    cluster.enter()
    came = []

    def own(*_: Any) -> None:
        came.append(1)

    if when == "before":
        signal.signal(signal.SIGTERM, own)
    with core.init() as context:
        if when == "inside":
            signal.signal(signal.SIGTERM, own)
        os.kill(os.getpid(), signal.SIGTERM)
        assert came and not context.preempt.should_preempt()
    assert signal.getsignal(signal.SIGTERM) is own


def test_off_the_main_thread_there_is_no_handler_and_no_error(cluster: Cluster) -> None:
    cluster.enter()
    found = []

    def work() -> None:
        with core.init():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_off_the_cluster_there_is_no_handler(off_cluster: Any) -> None:
    with core.init():
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def sleeps() -> None:
    time.sleep(LONG_ENOUGH)


def by_multiprocessing(method: str) -> Callable[[], int]:
    def start() -> int:
        process = multiprocessing.get_context(method).Process(target=sleeps, daemon=True)
        process.start()
        process.terminate()  # at once: while the child is not itself yet
        process.join()
        return process.exitcode or 0

    return start


def by_subprocess() -> int:
    child = subprocess.Popen(["sleep", "600"])
    child.terminate()
    return child.wait()


def by_posix_spawn() -> int:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ)
    os.kill(pid, signal.SIGTERM)
    return -os.WTERMSIG(os.waitpid(pid, 0)[1])


def from_a_thread() -> int:
    found = []
    thread = threading.Thread(target=lambda: found.append(by_multiprocessing("fork")()))
    thread.start()
    thread.join()
    return found[0]


CHILDREN = {
    "fork": by_multiprocessing("fork"),
    "forkserver": by_multiprocessing("forkserver"),
    "spawn": by_multiprocessing("spawn"),
    "subprocess": by_subprocess,
    "posix_spawn": by_posix_spawn,
    "thread": from_a_thread,
}


@pytest.mark.parametrize("start", CHILDREN.values(), ids=CHILDREN)
def test_what_the_training_starts_has_the_default(cluster: Cluster, start: Callable[[], int]) -> None:
    cluster.enter()
    with core.init():
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        for _ in range(20 if start in (CHILDREN["fork"], by_posix_spawn) else 1):
            assert start() == -signal.SIGTERM
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL


TRAINING = """
import sys, time
from dethpc import core
from dethpc.core import _term
_term.PATIENCE, _term.ALONE = 1.0, 0.5
with core.init() as context:
    print("ready", flush=True)
    while not context.preempt.should_preempt() if sys.argv[1] == "asks" else True:
        time.sleep(0.05)
    for second in range(15):
        print("saves", flush=True)
        time.sleep(0.1)
    print("saved", file=sys.stderr, flush=True)
"""


def start(cluster: Cluster, words: str, command: str = "") -> subprocess.Popen[bytes]:
    cluster.enter()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-c", TRAINING, words]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_term_that_nobody_answers_ends_the_process_as_without_the_core_api(cluster: Cluster) -> None:
    """One that was meant for it alone, from a parent that waits for its end."""
    with start(cluster, "does not ask") as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.terminate()
        assert child.wait(LONG_ENOUGH) == -signal.SIGTERM


def test_a_training_that_was_told_is_left_the_time_to_save(cluster: Cluster) -> None:
    with start(cluster, "asks") as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.terminate()
        assert child.communicate(timeout=LONG_ENOUGH)[1] == b"saved\n"
        assert child.returncode == 0


def test_a_training_that_is_killed_is_not_told_to_save(cluster: Cluster) -> None:
    """However long the node takes to end it."""
    write_json(cluster.run.closed, {"intent": "kill", "reason": "killed by a user", "at": time.time()})
    with start(cluster, "asks") as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.terminate()
        assert b"saved" not in child.communicate(timeout=LONG_ENOUGH)[1]
        assert child.returncode == -signal.SIGTERM
    assert not cluster.attempt.ack.exists()


def test_the_end_of_what_reads_its_output_does_not_fail_a_training(cluster: Cluster) -> None:
    """As of tee in a pipeline, which the signal ends as well: what it prints then goes to its other output."""
    with start(cluster, "asks") as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.stdout.close()
        child.terminate()
        assert child.stderr is not None
        said = child.stderr.read()
        assert child.wait(LONG_ENOUGH) == 0
        assert said.endswith(b"saves\nsaved\n"), said


def test_it_waits_long_enough_for_a_busy_node() -> None:
    assert _term.PATIENCE >= 5
