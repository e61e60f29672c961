"""What every adapter of ``ports.Scheduler`` does: a test class that each adapter's tests inherit."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from dethpc.domain.ports import JobRecord, JobRequest, JobState, Scheduler
from dethpc.errors import SchedulerUnavailable
from tests.waiting import LONG_ENOUGH, wait_until

T = TypeVar("T")


def answered(scheduler: Scheduler) -> Mapping[str, JobRecord] | None:
    """Its jobs, or None when it gave no answer in time: on a busy machine that is no news."""
    with contextlib.suppress(SchedulerUnavailable):
        return scheduler.jobs()
    return None


class Jobs:
    """Submits small scripts through the adapter under test and cleans up after the test."""

    def __init__(self, scheduler: Scheduler, folder: Path, directives: Callable[[int], list[str]]) -> None:
        self.scheduler, self.folder, self._directives = scheduler, folder, directives
        self.submitted: list[str] = []

    def request(
        self, body: str, *, name: str | None = None, slots: int = 1, env: dict[str, str] | None = None
    ) -> JobRequest:
        n = len(list(self.folder.iterdir())) + 1
        name = name or f"{self.folder.parent.name}-{n}"
        run_dir = self.folder / str(n)
        run_dir.mkdir()
        log = run_dir / "slurm.log"
        options = [
            f'--job-name="{name}"',
            f'--output="{log}"',
            "--open-mode=append",
            "--requeue",
            *self._directives(slots),
        ]
        script = run_dir / "job.sbatch"
        script.write_text("#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options) + f"\n{body}\n")
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **(env or {})}
        return JobRequest(run_id=f"1.1.{n}", name=name, script=script, run_dir=run_dir, slots=slots, env=environment)

    def submit(self, body: str, *, name: str | None = None, slots: int = 1, env: dict[str, str] | None = None) -> str:
        job_id = self.scheduler.submit(self.request(body, name=name, slots=slots, env=env))
        self.submitted.append(job_id)
        return job_id

    def record(self, job_id: str) -> JobRecord | None:
        return self.scheduler.jobs().get(job_id) or self.scheduler.records([job_id]).get(job_id)

    def reaches(self, job_id: str, state: JobState, timeout: float = LONG_ENOUGH) -> JobRecord:
        """Wait for a state; a job that ends in another one fails the test at once."""

        def there() -> JobRecord | None:
            record = self.record(job_id)
            if record is not None and not record.state.live:
                assert record.state is state, record
            return record if record is not None and record.state is state else None

        return wait_until(there, timeout)

    def clean_up(self) -> None:
        self.scheduler.cancel(self.submitted)
        wait_until(lambda: not any(r.state.live for j, r in self.scheduler.jobs().items() if j in self.submitted))


class SchedulerContract:
    """Inherit, and give the fixture ``scheduler``: an otherwise idle machine or cluster of ``all_slots`` slots."""

    all_slots = 4

    @pytest.fixture
    def scheduler(self) -> Scheduler:
        raise NotImplementedError

    def directives(self, slots: int) -> list[str]:
        """``#SBATCH`` options that ask for so many slots, where the adapter reads them from the script."""
        return []

    @pytest.fixture
    def jobs(self, scheduler: Scheduler, tmp_path: Path) -> Iterator[Jobs]:
        folder = tmp_path / "runs"
        folder.mkdir()
        jobs = Jobs(scheduler, folder, self.directives)
        yield jobs
        jobs.clean_up()

    def test_a_job_runs_to_its_end(self, jobs: Jobs, tmp_path: Path) -> None:
        before = time.time()
        job_id = jobs.submit(f"echo ran > '{tmp_path}/ran'", name="the name")
        record = jobs.reaches(job_id, JobState.COMPLETED)
        assert (tmp_path / "ran").read_text() == "ran\n"
        assert (record.job_id, record.name, record.exit_code, record.signal) == (job_id, "the name", 0, None)
        assert (record.restarts, record.preempted, len(record.nodes)) == (0, False, 1)
        assert record.submitted_at is not None and record.started_at is not None and record.ended_at is not None
        assert before - 2 <= record.submitted_at <= record.started_at <= record.ended_at <= time.time() + 2

    def test_a_running_job_says_where_and_since_when(self, jobs: Jobs) -> None:
        record = jobs.reaches(jobs.submit("sleep 1000"), JobState.RUNNING)
        assert record.nodes and record.started_at is not None
        assert (record.ended_at, record.exit_code, record.signal) == (None, None, None)

    def test_an_exit_code_is_kept(self, jobs: Jobs) -> None:
        record = jobs.reaches(jobs.submit("exit 3"), JobState.FAILED)
        assert (record.exit_code, record.signal) == (3, None)

    def test_a_death_by_signal_is_told_from_an_exit_code(self, jobs: Jobs) -> None:
        record = jobs.reaches(jobs.submit("kill -KILL $$"), JobState.FAILED)
        assert (record.exit_code, record.signal) == (None, 9)

    def test_the_job_has_the_environment_it_was_given_and_no_other(
        self, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STRAY", "1")
        value = "hé 'x' \"y\" $(z) `a`\nnext"
        job_id = jobs.submit(f"printf %s \"$GREETING-${{STRAY-none}}\" > '{tmp_path}/out'", env={"GREETING": value})
        jobs.reaches(job_id, JobState.COMPLETED)
        assert (tmp_path / "out").read_text() == f"{value}-none"

    def test_all_jobs_are_listed_at_once(self, jobs: Jobs) -> None:
        ids = [jobs.submit("sleep 1000") for _ in range(3)]
        assert len(set(ids)) == 3
        assert set(ids) <= set(jobs.scheduler.jobs())

    def test_jobs_are_found_by_name_newest_last(self, jobs: Jobs) -> None:
        first = jobs.submit("true", name="twice")
        jobs.reaches(first, JobState.COMPLETED)
        second = jobs.submit("sleep 1000", name="twice")
        other = jobs.submit("true", name="twice-not")
        found = jobs.scheduler.find(["twice", "never"])
        assert [record.job_id for record in found if record.job_id in jobs.submitted] == [first, second]
        assert jobs.scheduler.find(["never"]) == []
        both = {record.job_id for record in jobs.scheduler.find(["twice", "twice-not"])}
        assert {first, second, other} <= both

    def test_records_of_unknown_jobs_are_missing(self, scheduler: Scheduler) -> None:
        assert scheduler.records(["987654"]) == {}
        assert scheduler.records([]) == {}

    def test_cancel_ends_a_running_job_with_a_warning_first(self, jobs: Jobs, tmp_path: Path) -> None:
        body = (
            f"trap 'echo told > \"{tmp_path}/told\"; exit 1' TERM; touch '{tmp_path}/up'; while :; do sleep 0.1; done"
        )
        job_id = jobs.submit(body)
        wait_until((tmp_path / "up").exists)
        jobs.scheduler.cancel([job_id])
        record = jobs.reaches(job_id, JobState.CANCELLED)
        assert (tmp_path / "told").read_text() == "told\n"
        assert record.ended_at is not None

    def test_cancel_kills_what_does_not_listen(self, jobs: Jobs, tmp_path: Path) -> None:
        job_id = jobs.submit(f"trap '' TERM; echo $$ > '{tmp_path}/pid'; while :; do sleep 0.1; done")
        pid = wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        jobs.scheduler.cancel([job_id])
        jobs.reaches(job_id, JobState.CANCELLED)
        wait_until(lambda: not _runs(int(pid)))

    def test_cancel_ignores_unknown_and_ended_jobs(self, jobs: Jobs) -> None:
        ended, running = jobs.submit("true"), jobs.submit("sleep 1000")
        jobs.reaches(ended, JobState.COMPLETED)
        jobs.scheduler.cancel(["987654", ended, running, running])
        jobs.reaches(running, JobState.CANCELLED)
        jobs.scheduler.cancel([])

    def test_a_job_that_waits_says_why_and_can_be_cancelled(self, jobs: Jobs, tmp_path: Path) -> None:
        jobs.reaches(jobs.submit("sleep 1000", slots=self.all_slots), JobState.RUNNING)
        waiting = jobs.submit(f"touch '{tmp_path}/ran'")

        def reason() -> str:
            record = jobs.record(waiting)
            assert record is not None and record.state is JobState.PENDING
            assert (record.nodes, record.started_at) == ((), None)
            return record.reason

        assert wait_until(reason) in ("Resources", "Priority")
        partition = next(pool.partition for pool in jobs.scheduler.pools() if pool.default)
        queue = {job.job_id: job for job in jobs.scheduler.queue(partition)}
        assert queue[waiting].mine and not queue[waiting].running
        assert sum(job.running for job in queue.values()) == 1
        jobs.scheduler.cancel([waiting])
        jobs.reaches(waiting, JobState.CANCELLED)
        assert not (tmp_path / "ran").exists()

    def test_a_waiting_job_starts_when_slots_are_free(self, jobs: Jobs) -> None:
        first = jobs.submit("sleep 1000", slots=self.all_slots)
        jobs.reaches(first, JobState.RUNNING)
        second = jobs.submit("sleep 1000", slots=self.all_slots)
        jobs.scheduler.cancel([first])
        jobs.reaches(second, JobState.RUNNING)

    def test_a_job_that_steps_back_lets_a_later_one_pass_and_may_come_forward_again(self, jobs: Jobs) -> None:
        holder = jobs.submit("sleep 1000", slots=self.all_slots)
        jobs.reaches(holder, JobState.RUNNING)
        first, second, third = (jobs.submit("sleep 1000", slots=self.all_slots) for _ in range(3))

        def order() -> list[str]:
            listed = jobs.scheduler.jobs()
            assert all(listed[id].priority is not None for id in (first, second, third))
            return sorted((first, second, third), key=lambda id: -(listed[id].priority or 0))

        assert order() == [first, second, third]
        if {jobs.scheduler.jobs()[id].priority for id in (first, second, third)} == {1}:
            pytest.skip("this Slurm gives every job the least priority, from which nice takes nothing away")
        jobs.scheduler.nice({first: 5, second: 5, "987654": 5, holder: 5})
        wait_until(lambda: order() == [third, first, second])
        assert {id: jobs.scheduler.jobs()[id].nice for id in (first, second, third)} == {first: 5, second: 5, third: 0}
        jobs.scheduler.nice({second: 0})
        wait_until(lambda: order() == [second, third, first])
        jobs.scheduler.cancel([holder])
        jobs.reaches(second, JobState.RUNNING)

    def test_requeue_starts_the_same_job_once_more(self, jobs: Jobs, tmp_path: Path) -> None:
        body = f"echo ${{SLURM_RESTART_COUNT:-${{DETHPC_RESTART_COUNT:-0}}}} >> '{tmp_path}/starts'; echo out; exec sleep 1000"
        job_id = jobs.submit(body)
        wait_until(lambda: (tmp_path / "starts").exists() and (tmp_path / "starts").read_text() == "0\n")
        jobs.scheduler.requeue(job_id)
        wait_until(lambda: (tmp_path / "starts").read_text() == "0\n1\n")
        record = jobs.reaches(job_id, JobState.RUNNING)
        assert record.restarts == 1

    def test_pools_and_nodes_count_slots(self, jobs: Jobs) -> None:
        pools, nodes = jobs.scheduler.pools(), jobs.scheduler.nodes()
        assert [pool.name for pool in pools if pool.default] and all(pool.nodes for pool in pools)
        default = next(pool for pool in pools if pool.default)
        assert default.slots >= self.all_slots
        assert default.slots == sum(node.slots for node in nodes if default.name in node.pools)
        wait_until(lambda: _used(jobs.scheduler) == 0)
        jobs.reaches(jobs.submit("sleep 1000", slots=2), JobState.RUNNING)
        wait_until(lambda: _used(jobs.scheduler) == 2)
        assert sum(node.slots_used for node in jobs.scheduler.nodes()) == 2


def _used(scheduler: Scheduler) -> int:
    return next(pool.slots_used for pool in scheduler.pools() if pool.default)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
