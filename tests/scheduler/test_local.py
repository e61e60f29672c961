"""The local scheduler: what the contract does not say of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.domain.ports import HOUSEKEEPING, TASKS, JobRecord, JobRequest, JobState
from dethpc.errors import SchedulerUnavailable, SubmitRejected
from dethpc.scheduler.local import LocalScheduler, devices, processes
from dethpc.scheduler.local.jobs import Jobs
from tests.scheduler.contract import SchedulerContract
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


class TestLocal(SchedulerContract):
    @pytest.fixture
    def scheduler(self, tmp_path: Path) -> LocalScheduler:
        return LocalScheduler(tmp_path / "home", slots=self.all_slots, grace=1.0)


def request(folder: Path, script: str, *, slots: int = 1, name: str = "job", **env: str) -> JobRequest:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.sbatch"
    path.write_text(f"#!/bin/bash\n{script}\n")
    return JobRequest(
        run_id="1.1.1",
        name=name,
        script=path,
        run_dir=folder,
        slots=slots,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
    )


class Here:
    """A local scheduler of two CPU slots in a folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.scheduler = LocalScheduler(home, slots=2, grace=1.0)

    def submit(self, script: str, *, slots: int = 1, name: str = "job", **env: str) -> str:
        folder = self.home / "runs" / str(time.monotonic_ns())
        return self.scheduler.submit(request(folder, script, slots=slots, name=name, **env))

    def record(self, job_id: str) -> JobRecord:
        return self.scheduler.records([job_id])[job_id]

    def wait(self, job_id: str, *states: JobState) -> JobRecord:
        wait_until(lambda: self.record(job_id).state in states)
        return self.record(job_id)

    def supervisor(self, job_id: str) -> int:
        with Jobs(self.home / "local").transaction() as table:
            job = table.get(int(job_id))
        assert job is not None and job.supervisor
        return processes.pid_of(job.supervisor)

    def marks(self) -> list[str]:
        with Jobs(self.home / "local").transaction() as table:
            return [mark for (mark,) in table.execute("SELECT mark FROM jobs WHERE mark != ''")]

    def processes(self) -> list[int]:
        return [pid for mark in self.marks() for pid in processes.marked(mark)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    here = Here(tmp_path / "home")
    yield here
    here.scheduler.cancel(list(here.scheduler.jobs()))
    wait_until(lambda: not any(record.state.live for record in here.scheduler.jobs().values()))
    assert here.processes() == []


def test_a_job_runs_with_the_environment_of_its_submission_and_its_own_id(here: Here, tmp_path: Path) -> None:
    out = tmp_path / "env"
    job = here.submit(f'echo said; env > {out}; echo "$0" >&2', GREETING="bon jour")
    record = here.wait(job, JobState.COMPLETED)
    assert (record.exit_code, record.signal, record.restarts) == (0, None, 0)
    assert record.nodes == (socket.gethostname(),)
    assert record.submitted_at <= record.started_at <= record.ended_at  # type: ignore[operator]
    env = dict(line.split("=", 1) for line in out.read_text().splitlines())
    assert env["GREETING"] == "bon jour" and env["DETHPC_JOB_ID"] == job and env["DETHPC_RESTART_COUNT"] == "0"
    assert "PYTHONPATH" not in env and "VIRTUAL_ENV" not in env
    log = next((here.home / "runs").glob("*/slurm.log")).read_text()
    assert "said" in log and "job.sbatch" in log


@pytest.mark.parametrize(("script", "code", "number"), [("exit 7", 7, None), ("kill -KILL $$", None, 9)])
def test_the_end_of_the_script_is_kept(here: Here, script: str, code: int | None, number: int | None) -> None:
    record = here.wait(here.submit(script), JobState.FAILED)
    assert (record.exit_code, record.signal) == (code, number)


def test_jobs_wait_in_order_and_a_large_one_is_not_overtaken(here: Here, tmp_path: Path) -> None:
    gate, order = tmp_path / "gate", tmp_path / "order"
    first = here.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done")
    large = here.submit(f"echo large >> {order}", slots=2)
    small = [here.submit(f"echo small >> {order}") for _ in range(3)]
    here.wait(first, JobState.RUNNING)
    for job in (large, *small):
        assert (here.record(job).state, here.record(job).reason) == (JobState.PENDING, "Resources")
    assert here.scheduler.pools()[0].slots_used == 1 and here.scheduler.nodes()[0].state == "mixed"
    gate.touch()
    for job in (large, *small):
        here.wait(job, JobState.COMPLETED)
    assert order.read_text().split() == ["large", "small", "small", "small"]


def test_the_next_job_waits_for_no_new_process_to_watch_over_it(here: Here, tmp_path: Path) -> None:
    gate, watchers = tmp_path / "gate", tmp_path / "watchers"
    first = here.submit(f"echo $PPID >> {watchers}; while [ ! -e {gate} ]; do sleep 0.05; done", slots=2)
    second = here.submit(f"echo $PPID >> {watchers}", slots=2)
    beside = here.submit(f"echo $PPID >> {watchers}", slots=0)  # needs no slot, and so does not wait
    here.wait(beside, JobState.COMPLETED)
    gate.touch()
    # Nobody asks for jobs meanwhile: whoever does starts those that wait, by a process of their own.
    wait_until(lambda: len(watchers.read_text().split()) == 3)
    assert here.wait(first, JobState.COMPLETED).exit_code == here.wait(second, JobState.COMPLETED).exit_code == 0
    pids = watchers.read_text().split()
    assert len(pids) == 3 and len(set(pids)) == 2 and pids[-1] in pids[:-1]


def test_waiting_jobs_start_when_the_process_that_submitted_them_is_gone(here: Here, tmp_path: Path) -> None:
    gate, done = tmp_path / "gate", tmp_path / "done"
    program = f"""
import os, signal, sys
from pathlib import Path
from dethpc.domain.ports import JobRequest
from dethpc.scheduler.local import LocalScheduler
home = Path({str(here.home)!r})
home.mkdir(exist_ok=True)
script = home / "job.sbatch"
script.write_text("while [ ! -e {gate} ]; do sleep 0.05; done; echo $DETHPC_JOB_ID >> {done}")
scheduler = LocalScheduler(home, slots=2, grace=1.0)
for _ in range(4):
    print(scheduler.submit(JobRequest("1.1.1", "job", script, home, 1, {{"PATH": os.environ["PATH"]}})), flush=True)
while sum(job.state == "RUNNING" for job in scheduler.jobs().values()) < 2:
    pass
os.killpg(0, signal.SIGKILL)
"""
    master = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert master.returncode == -signal.SIGKILL
    gate.touch()
    wait_until(lambda: done.exists() and len(done.read_text().split()) == 4)  # nobody asks the scheduler meanwhile
    assert sorted(done.read_text().split()) == sorted(master.stdout.split())
    for job in master.stdout.split():
        here.wait(job, JobState.COMPLETED)


def test_waiting_jobs_have_no_processes(here: Here) -> None:
    blocker = here.submit("sleep 10000", slots=2)
    here.wait(blocker, JobState.RUNNING)
    jobs = [here.submit("true") for _ in range(100)]
    supervisors = [
        pid
        for pid in os.listdir("/proc")
        if pid.isdigit() and str(here.home / "local").encode() in _read(Path("/proc", pid, "cmdline"))
    ]
    assert len(supervisors) == 1
    here.scheduler.cancel(jobs)
    assert {here.record(job).state for job in jobs} == {JobState.CANCELLED}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


ESCAPES = """
setsid bash -c 'trap "" TERM; (setsid sleep 1000 &) ; while :; do sleep 1; done' &
env -i sh -c 'trap "" TERM; while :; do sleep 1; done' &
trap "" TERM
touch {ready}
while :; do sleep 1; done
"""


def test_cancel_leaves_no_process_not_even_in_other_sessions(here: Here, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    job = here.submit(ESCAPES.format(ready=ready))
    wait_until(ready.exists)
    below = processes.descendants(here.supervisor(job))
    assert len(below) >= 4
    names = [processes.identity(pid) for pid in below]
    here.scheduler.cancel([job, "999", "not a job", "²", "9" * 40])
    here.scheduler.cancel([job])
    record = here.wait(job, JobState.CANCELLED)
    assert record.signal == signal.SIGKILL
    assert not any(processes.alive(name) for name in names)


def test_term_comes_first_and_leaves_time_to_clean_up(here: Here, tmp_path: Path) -> None:
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    job = here.submit(f"trap 'touch {saved}; exit 0' TERM; touch {ready}; while :; do sleep 0.1; done")
    wait_until(ready.exists)
    here.scheduler.cancel([job])
    assert here.wait(job, JobState.CANCELLED).exit_code == 0
    assert saved.exists()


def test_what_outlives_the_script_is_ended_and_no_zombie_stays(here: Here, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = here.submit(
        f"for i in 1 2 3; do (setsid sh -c 'sleep 0.1; exit 1' &); done; setsid sleep 500 & echo $! > {pids}"
    )
    here.wait(job, JobState.COMPLETED)
    assert processes.identity(int(pids.read_text())) is None


SUPERVISED = """
import os, signal, sys
from pathlib import Path
from dethpc.scheduler.local import LocalScheduler, processes, queue, supervisor
from dethpc.scheduler.local.jobs import Jobs
from tests.scheduler.test_local import request

home = Path(sys.argv[1])
queue._start_supervisor = lambda folder, job_id: None  # this process is the supervisor
scheduler = LocalScheduler(home, slots=1)
job_id = scheduler.submit(request(home / "run", sys.argv[2]))
looked, listdir = [], os.listdir
os.listdir = lambda path: looked.append(str(path)) or listdir(path)
signal.pthread_sigmask(signal.SIG_BLOCK, supervisor._SIGNALS)
processes.be_subreaper(True)
jobs = Jobs(home / "local")
supervisor.Supervisor(jobs, queue.claim(jobs, int(job_id), "here")).run()
print(scheduler.records([job_id])[job_id].state.name, sorted(set(looked)))
"""


@pytest.mark.parametrize("script, looked", [("true", []), ("setsid sleep 3600 &", ["/proc"])])
def test_the_machines_processes_are_looked_at_only_while_a_job_has_left_some(
    tmp_path: Path, script: str, looked: list[str]
) -> None:
    words = [sys.executable, "-c", SUPERVISED, str(tmp_path), script]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == f"COMPLETED {looked}\n", done.stderr


def test_requeue_starts_the_job_again_with_one_restart_more(here: Here, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    job = here.submit(
        f"echo $DETHPC_JOB_ID.$DETHPC_RESTART_COUNT >> {starts}; [ $DETHPC_RESTART_COUNT = 2 ] || sleep 100"
    )
    for n in (1, 2):
        wait_until(lambda n=n: starts.exists() and len(starts.read_text().split()) == n)
        here.scheduler.requeue(job)
        wait_until(lambda n=n: here.record(job).restarts == n)
    record = here.wait(job, JobState.COMPLETED)
    assert record.restarts == 2 and record.job_id == job
    assert starts.read_text().split() == [f"{job}.0", f"{job}.1", f"{job}.2"]
    here.scheduler.requeue(job)
    assert here.record(job).state is JobState.COMPLETED


def test_a_killed_supervisor_is_a_failed_node_and_its_slots_are_free_only_when_its_processes_are_gone(
    here: Here, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    job = here.submit(f"setsid sh -c 'trap \"\" TERM; touch {ready}; while :; do sleep 1; done'", slots=2)
    wait_until(ready.exists)
    supervisor = here.supervisor(job)
    names = [processes.identity(pid) for pid in processes.descendants(supervisor)]
    waiting = here.submit("true", slots=2)
    os.kill(supervisor, signal.SIGKILL)
    record = here.wait(job, JobState.NODE_FAIL)
    assert record.exit_code is None and "died" in record.reason
    assert not any(processes.alive(name) for name in names)
    here.wait(waiting, JobState.COMPLETED)


def test_a_supervisor_told_to_end_by_the_machine_ends_its_job_as_a_failed_node(here: Here, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    job = here.submit(f"touch {ready}; sleep 100")
    wait_until(ready.exists)
    os.kill(here.supervisor(job), signal.SIGTERM)
    assert here.wait(job, JobState.NODE_FAIL).signal == signal.SIGTERM


def test_a_job_larger_than_the_machine_is_rejected(here: Here) -> None:
    with pytest.raises(SubmitRejected, match="needs 3 slots and this machine has 2"):
        here.submit("true", slots=3)
    with pytest.raises(SubmitRejected, match="no batch script"):
        here.scheduler.submit(JobRequest("1.1.1", "job", here.home / "none", here.home, 1, {}))


def test_jobs_without_slots_run_beside_a_full_machine(here: Here) -> None:
    full = here.submit("sleep 60", slots=2)
    here.wait(here.submit("true", slots=0), JobState.COMPLETED)
    assert here.record(full).state.live


def test_jobs_without_slots_wait_behind_those_of_their_own_queue_alone(here: Here) -> None:
    trials = [here.submit("sleep 60", slots=0) for _ in os.sched_getaffinity(0)]
    for job in trials:
        here.wait(job, JobState.RUNNING)
    waiting = here.submit("true", slots=0)
    for queue in (TASKS, HOUSEKEEPING):
        other = request(here.home / queue, "true", slots=0)
        other.queue = queue
        here.wait(here.scheduler.submit(other), JobState.COMPLETED)
    assert here.record(waiting).state is JobState.PENDING and all(here.record(job).state.live for job in trials)


def test_more_notebooks_than_cores_are_open_at_once(here: Here) -> None:
    for n in range(len(os.sched_getaffinity(0)) + 1):
        notebook = request(here.home / f"notebook {n}", "sleep 60", slots=0)
        notebook.queue = TASKS
        here.wait(here.scheduler.submit(notebook), JobState.RUNNING)


def test_a_table_of_an_earlier_release_gets_the_columns_that_it_lacks(here: Here) -> None:
    job = here.submit("true")
    here.wait(job, JobState.COMPLETED)
    for column in ("nice", "queue"):
        with Jobs(here.scheduler._jobs.folder).transaction() as table:
            table.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
    again = LocalScheduler(here.home, slots=2, grace=1.0)
    second = again.submit(request(here.home / "again", "true"))
    here.wait(second, JobState.COMPLETED)
    assert set(again.records([job, second])) == {job, second}


def test_find_knows_ended_jobs_by_name_and_ids_are_never_used_again(here: Here) -> None:
    name = "det-$(id) 'x' ☃"
    first = here.submit("true", name=name)
    here.wait(first, JobState.COMPLETED)
    again = LocalScheduler(here.home, slots=2, grace=1.0)
    second = again.submit(request(here.home / "again", "true", name=name))
    assert second != first
    here.wait(second, JobState.COMPLETED)
    assert [record.job_id for record in again.find([name])] == [first, second]
    assert again.find(["another"]) == []
    assert set(again.records([first, second, "77", "x"])) == {first, second}


def test_ended_jobs_leave_the_list_but_not_the_records(here: Here) -> None:
    job = here.submit("true")
    here.wait(job, JobState.COMPLETED)
    assert job in here.scheduler.jobs()
    with Jobs(here.home / "local").transaction() as table:
        table.set(int(job), ended_at=time.time() - 3600)
    assert job not in here.scheduler.jobs()
    assert here.record(job).state is JobState.COMPLETED


def test_the_table_is_private_and_a_damaged_one_is_an_unavailable_scheduler(here: Here) -> None:
    here.scheduler.jobs()
    table = here.home / "local" / "jobs.db"
    assert table.stat().st_mode & 0o777 == 0o600
    copy = here.home / "copy"
    (copy / "local").mkdir(parents=True)
    (copy / "local" / "jobs.db").write_text("this is no database, nor was it ever one" * 100)
    with pytest.raises(SchedulerUnavailable):
        LocalScheduler(copy).jobs()


def test_slots_are_the_granted_gpus_else_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: map(Path, ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"))
    )
    assert devices.find(None, {}).ids == ("0", "1")
    assert devices.find(1, {}) == devices.Slots("cuda", ("0",))
    assert devices.find(None, {"CUDA_VISIBLE_DEVICES": "GPU-aa, MIG-bb"}).ids == ("GPU-aa", "MIG-bb")
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    assert devices.find(3, {"CUDA_VISIBLE_DEVICES": "0"}) == devices.Slots("cpu", ("0", "1", "2"))
    assert devices.find(None, {}).ids[0] == "0"
