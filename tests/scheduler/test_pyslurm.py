"""Slurm read through pyslurm. Runs where pyslurm imports: set DETHPC_PYSLURM_PYTHON to an interpreter that has it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from dethpc.errors import SchedulerUnavailable
from dethpc.scheduler.slurm.commands import SlurmCommands
from dethpc.scheduler.slurm.pyslurm_reader import ChildFailed, PyslurmChild, SlurmPyslurm
from tests.cluster import outages
from tests.scheduler.contract import Jobs, answered
from tests.scheduler.test_commands import SlurmContract
from tests.waiting import wait_until


@pytest.fixture(scope="session")
def pyslurm_python(slurm: Cluster) -> str:
    python = os.environ.get("DETHPC_PYSLURM_PYTHON", sys.executable)
    environment = {**os.environ, **slurm.env}  # it looks for slurm.conf when it is imported
    probe = subprocess.run([python, "-c", "import pyslurm"], env=environment, capture_output=True, text=True)
    if probe.returncode != 0:
        why = (probe.stderr.strip().splitlines() or ["it ended"])[-1]
        pytest.skip(f"pyslurm does not import in {python} ({why}); DETHPC_PYSLURM_PYTHON may name another interpreter")
    return python


def reader(cluster: Cluster, python: str, **options: object) -> SlurmPyslurm:
    return SlurmPyslurm(environment={**os.environ, **cluster.env}, python=python, **options)  # type: ignore[arg-type]


class TestReadingThroughPyslurm(SlurmContract):
    @pytest.fixture
    def slurm_of(self, slurm: Cluster) -> Cluster:
        return slurm

    @pytest.fixture
    def scheduler(self, pyslurm_python: str, slurm_of: Cluster) -> Iterator[SlurmPyslurm]:
        scheduler = reader(slurm_of, pyslurm_python)
        assert scheduler.child is not None
        yield scheduler
        assert scheduler.child is not None, "it fell back to the commands"
        scheduler.close()

    def test_both_ways_of_reading_agree(self, jobs: Jobs, slurm_of: Cluster) -> None:
        for body in ("exit 3", "kill -KILL $$", "true"):
            jobs.submit(body)
        wait_until(lambda: all(not r.state.live for r in jobs.scheduler.jobs().values() if r.job_id in jobs.submitted))
        jobs.submit("sleep 1000", slots=8)
        jobs.submit("sleep 1000", slots=16)
        commands = SlurmCommands(environment={**os.environ, **slurm_of.env})

        def agree() -> bool:
            ours, theirs = jobs.scheduler.jobs(), commands.jobs()
            return all(ours[job_id] == theirs[job_id] for job_id in jobs.submitted)

        wait_until(agree)
        wait_until(
            lambda: jobs.scheduler.pools() == commands.pools()
        )  # the controller counts what is in use a moment later
        wait_until(lambda: sorted(map(str, jobs.scheduler.nodes())) == sorted(map(str, commands.nodes())))


def test_a_dead_child_is_replaced_by_the_commands_and_that_is_said_once(
    slurm: Cluster, pyslurm_python: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = reader(slurm, pyslurm_python)
    assert scheduler.child is not None
    os.kill(scheduler.child.pid, signal.SIGKILL)
    with caplog.at_level(logging.WARNING):
        assert scheduler.jobs() is not None
        assert scheduler.pools()
        scheduler.jobs()
    assert [record.message for record in caplog.records] == [
        "the pyslurm process died; reading Slurm by its commands from now on"
    ]


def test_a_child_that_hangs_is_ended_at_its_deadline(
    slurm: Cluster, pyslurm_python: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = reader(slurm, pyslurm_python, deadline=1)
    assert scheduler.child is not None
    pid = scheduler.child.pid
    os.kill(pid, signal.SIGSTOP)
    scheduler.jobs()
    assert "gave no answer in 1 s" in caplog.text
    assert not Path(f"/proc/{pid}").exists()


def test_a_controller_that_is_away_is_unavailable_and_the_child_stays(
    slurm_private: Callable[..., Cluster], pyslurm_python: str
) -> None:
    cluster = slurm_private(nodes=1, message_timeout=2)
    scheduler = reader(cluster, pyslurm_python, deadline=60)
    wait_until(lambda: answered(scheduler) == {})
    outages.stop_controller(cluster)
    with pytest.raises(SchedulerUnavailable):
        scheduler.jobs()
    outages.start_controller(cluster)
    wait_until(lambda: answered(scheduler) == {})
    assert scheduler.child is not None
    scheduler.close()


NO_CLUSTER = """
__version__ = "23.11.0"

class RPCError(Exception): pass

class Jobs:
    load = dict

class Nodes(Jobs): pass
class Partitions(Jobs): pass
"""


def test_each_of_several_threads_gets_the_answer_to_its_own_question(tmp_path: Path) -> None:
    (tmp_path / "pyslurm.py").write_text(NO_CLUSTER)
    child = PyslurmChild({**os.environ, "PYTHONPATH": str(tmp_path)})
    expected = {"jobs": {"jobs": []}, "nodes": {"partitions": [], "nodes": []}}
    with ThreadPoolExecutor(4) as threads:
        asked = [(question, threads.submit(child.ask, question)) for question in ["jobs", "nodes"] * 200]
    assert all(answer.result() == expected[question] for question, answer in asked)
    child.close()
    with pytest.raises(ChildFailed):  # of a thread that waited while another found it dead
        child.ask("jobs")


def test_without_pyslurm_the_commands_read(slurm: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pyslurm.py").write_text("raise ImportError('built for another Slurm')")
    environment = {**os.environ, **slurm.env, "PYTHONPATH": str(tmp_path)}
    scheduler = SlurmPyslurm(environment=environment)
    assert scheduler.pools()
    assert "built for another Slurm" in caplog.text


def test_a_gpu_type_of_digits_is_no_count(slurm_private: Callable[..., Cluster], pyslurm_python: str) -> None:
    cluster = slurm_private(nodes=1, gpu_type="3090")
    scheduler = reader(cluster, pyslurm_python)
    try:
        assert [(row.gpus, row.gpus_used) for row in scheduler.node_rows()] == [({"3090": 4}, {"3090": 0})] * 2
        assert scheduler.child is not None
    finally:
        scheduler.close()
