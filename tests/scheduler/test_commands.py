"""Slurm by its commands, on a real one."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import ArrayRequest, JobRequest, JobState, Prospect, Scheduler
from dethpc.errors import SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from dethpc.scheduler.slurm.arrays import id_ranges
from dethpc.scheduler.slurm.commands import SlurmCommands
from dethpc.scheduler.slurm.pools import NodeRow, SlurmPool, describe
from dethpc.scheduler.slurm.throttle import Throttle
from tests.cluster import outages
from tests.scheduler.contract import Jobs, SchedulerContract, answered
from tests.waiting import wait_until


def commands(cluster: Cluster, **options: object) -> SlurmCommands:
    return SlurmCommands(environment={**os.environ, **cluster.env}, **options)  # type: ignore[arg-type]


class SlurmContract(SchedulerContract):
    all_slots = 16

    def directives(self, slots: int) -> list[str]:
        nodes = -(-slots // 4)
        return [f"--nodes={nodes}", f"--gres=gpu:{slots // nodes}"]

    @pytest.mark.parametrize(
        ("option", "said"),
        [
            ("--partition=nowhere", "invalid partition"),
            ("--no-such-option=1", "unrecognized option"),
            ("--gres=gpu:h9000:1", "node configuration"),
            ("--time=soon", "--time"),
            ("--qos=diamond", "qos"),
        ],
    )
    def test_what_slurm_refuses_is_refused_in_its_words(self, jobs: Jobs, option: str, said: str) -> None:
        job = jobs.request("true")
        job.script.write_text(f"#!/bin/bash\n#SBATCH {option}\ntrue\n")
        if option.startswith("--qos") and not _has_accounting(jobs.scheduler):
            pytest.skip("without accounting Slurm does not look at the QOS")
        with pytest.raises(SubmitRejected, match=f"(?i){said}"):
            jobs.scheduler.submit(job)

    def test_an_enclosing_jobs_variables_do_not_leak(self, jobs: Jobs, tmp_path: Path) -> None:
        leaks = {"SLURM_GPUS_PER_TASK": "7", "SBATCH_PARTITION": "nowhere", "SLURM_JOB_ID": "1", "PMI_RANK": "3"}
        job_id = jobs.submit(f"env > '{tmp_path}/env'", env=leaks)
        jobs.reaches(job_id, JobState.COMPLETED)
        seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
        assert seen["SLURM_JOB_ID"] == job_id
        assert not {"SLURM_GPUS_PER_TASK", "SBATCH_PARTITION", "PMI_RANK"} & set(seen)

    def test_a_name_may_hold_anything_that_a_directive_can(self, jobs: Jobs) -> None:
        name = f"a|b 'c' $(d) é {time.time_ns()}"
        job = jobs.request("true", name="plain")
        job.script.write_text(job.script.read_text().replace('--job-name="plain"', f'--job-name="{name}"'))
        job_id = jobs.scheduler.submit(job)
        assert jobs.scheduler.jobs()[job_id].name == name
        assert [record.job_id for record in jobs.scheduler.find([name])] == [job_id]
        jobs.reaches(job_id, JobState.COMPLETED)

    def test_elements_of_an_array_are_jobs_of_their_own(self, jobs: Jobs) -> None:
        like = [jobs.request("true", slots=16) for _ in range(3)]
        name = f"array-{time.time_ns()}"
        options = [f"--job-name={name}", "--output=/dev/null", "--requeue", *self.directives(16)]
        script = like[0].run_dir / "array.sbatch"
        own = like[0].run_dir / "own"
        says = f"echo $SLURM_JOB_ID > {own}-$SLURM_ARRAY_TASK_ID.new; mv {own}-$SLURM_ARRAY_TASK_ID.new {own}-$SLURM_ARRAY_TASK_ID"
        lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), says, "sleep 1000"]
        script.write_text("\n".join(lines) + "\n")
        scheduler = jobs.scheduler
        ids = scheduler.submit_array(ArrayRequest(name, script, like[0].run_dir, like))
        jobs.submitted += ids
        jobs.reaches(ids[0], JobState.RUNNING)
        listed = scheduler.jobs()
        assert [listed[id].state for id in ids[1:]] == [JobState.PENDING] * 2
        assert {listed[id].name for id in ids} == {name} and scheduler.largest_array > 3
        number = wait_until(lambda: (first := Path(f"{own}-0")).exists() and first.read_text().strip())
        assert scheduler.element(number) == ids[0] and scheduler.element("999999") is None
        scheduler.nice({ids[2]: 5})
        wait_until(lambda: [scheduler.jobs()[id].nice for id in ids[1:]] == [0, 5])
        scheduler.cancel([ids[1]])
        jobs.reaches(ids[1], JobState.CANCELLED)
        assert {record.job_id for record in scheduler.find([name])} >= {ids[0], ids[2]}
        assert scheduler.records(ids)[ids[0]].state is JobState.RUNNING
        scheduler.cancel([ids[0]])
        jobs.reaches(ids[2], JobState.RUNNING)
        assert jobs.reaches(ids[0], JobState.CANCELLED).nodes
        scheduler.cancel(ids)  # one word, and two of them are over
        jobs.reaches(ids[2], JobState.CANCELLED)

    def test_a_two_node_job_names_both_nodes(self, jobs: Jobs) -> None:
        record = jobs.reaches(jobs.submit("sleep 1000", slots=8), JobState.RUNNING)
        assert len(set(record.nodes)) == 2

    def test_a_preempted_job_is_known_as_such_and_comes_back(self, jobs: Jobs, slurm_of: Cluster) -> None:
        low = jobs.submit("sleep 1000", slots=16)
        jobs.reaches(low, JobState.RUNNING)
        job = jobs.request("sleep 1000", slots=16)
        job.script.write_text(
            job.script.read_text().replace("#!/bin/bash\n", "#!/bin/bash\n#SBATCH --partition=high\n")
        )
        high = jobs.scheduler.submit(job)
        jobs.submitted.append(high)
        wait_until(lambda: jobs.scheduler.jobs()[low].preempted)  # in its grace
        jobs.reaches(high, JobState.RUNNING)
        jobs.scheduler.cancel([high])
        again = wait_until(
            lambda: (r := jobs.scheduler.jobs()[low]).state is JobState.RUNNING and r.restarts == 1 and r
        )
        assert not again.preempted  # not in this attempt


def _has_accounting(scheduler: Scheduler) -> bool:
    return bool(getattr(scheduler, "has_accounting", False))


def test_a_closed_partition_means_later_and_a_job_that_no_node_can_run_means_never(
    slurm_private: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = slurm_private(nodes=1)
    scheduler = commands(cluster)
    for state in ("DRAIN", "INACTIVE"):
        cluster.run("scontrol", "update", "partitionname=main", f"state={state}")
        with pytest.raises(SubmitDeferred, match="not available"):
            scheduler.submit(_request(tmp_path))
    cluster.run("scontrol", "update", "partitionname=main", "state=UP")
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --gres=gpu:9\ntrue\n")
    job = JobRequest("1.1.1", "a", tmp_path / "job.sbatch", tmp_path, 1, {"PATH": os.environ["PATH"]})
    with pytest.raises(SubmitRejected, match="Requested node configuration is not available"):
        scheduler.submit(job)


def test_a_job_that_a_listing_leaves_out_is_shown_by_the_controller(slurm: Cluster, tmp_path: Path) -> None:
    """squeue prints its header alone, with exit code 0."""
    silent = tmp_path / "bin" / "squeue"
    silent.parent.mkdir()
    silent.write_text(f'#!/bin/bash\n{shutil.which("squeue")} "$@" | head -n 1\n')
    silent.chmod(0o755)
    scheduler = SlurmCommands(environment={**os.environ, **slurm.env, "PATH": f"{silent.parent}:{slurm.env['PATH']}"})
    job_ids = [scheduler.submit(_request(tmp_path, "sleep 1000")) for _ in range(2)]
    try:
        assert scheduler.jobs() == {}
        for asked in (job_ids, job_ids[:1]):
            found = scheduler.records([*asked, "99999"] if len(asked) > 1 else asked)
            assert sorted(found) == sorted(asked) and all(record.state.live for record in found.values())
            assert {record.name for record in found.values()} == {"job.sbatch"}
        assert scheduler.records(["99999"]) == {}
    finally:
        scheduler.cancel(job_ids)


class TestWithoutAccounting(SlurmContract):
    @pytest.fixture
    def slurm_of(self, slurm: Cluster) -> Cluster:
        return slurm

    @pytest.fixture
    def scheduler(self, slurm_of: Cluster) -> SlurmCommands:
        return commands(slurm_of)


class TestWithAccounting(SlurmContract):
    @pytest.fixture
    def slurm_of(self, slurm_accounting: Cluster) -> Cluster:
        return slurm_accounting

    @pytest.fixture
    def scheduler(self, slurm_of: Cluster) -> SlurmCommands:
        return commands(slurm_of)

    def test_jobs_that_left_the_queue_are_found_in_the_accounts(self, jobs: Jobs) -> None:
        name = f"gone {time.time_ns()}"
        failed = jobs.submit("exit 7", name=name)
        killed = jobs.submit("kill -KILL $$")
        wait_until(lambda: not {failed, killed} & set(jobs.scheduler.jobs()))
        records = wait_until(lambda: len(r := jobs.scheduler.records([failed, killed, "987654"])) == 2 and r)
        assert (records[failed].state, records[failed].exit_code) == (JobState.FAILED, 7)
        assert records[failed].name == name and records[failed].nodes and records[failed].ended_at
        assert (records[killed].exit_code, records[killed].signal) == (None, 9)
        assert [record.job_id for record in jobs.scheduler.find([name])] == [failed]

    def test_a_limit_on_submissions_means_later_not_never(self, jobs: Jobs, slurm_of: Cluster) -> None:
        slurm_of.run("sacctmgr", "--immediate", "add", "qos", "narrow", "MaxSubmitJobsPerUser=1", check=False)
        slurm_of.run("sacctmgr", "--immediate", "modify", "account", "root", "set", "qos+=narrow", check=False)

        def job() -> JobRequest:
            request = jobs.request("sleep 1000")
            request.script.write_text(request.script.read_text().replace("bash\n", "bash\n#SBATCH --qos=narrow\n", 1))
            return request

        def first() -> str | None:  # the controller learns of a new QOS a moment later
            try:
                return jobs.scheduler.submit(job())
            except SubmitRejected as error:
                assert "qos" in str(error).lower(), error
                return None

        jobs.submitted.append(wait_until(first))
        with pytest.raises(SubmitDeferred, match="MaxSubmit"):
            jobs.scheduler.submit(job())


def _request(folder: Path, body: str = "true") -> JobRequest:
    script = folder / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH --output=/dev/null\n{body}\n")
    return JobRequest("1.1.1", "a", script, folder, 1, {"PATH": os.environ["PATH"]})


def test_a_lost_answer_is_uncertain_and_the_job_is_found(slurm: Cluster, tmp_path: Path) -> None:
    """sbatch reaches the controller, and the answer does not come back."""
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/bash\n{shutil.which("sbatch")} "$@" >/dev/null\n'
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1\n"
    )
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{slurm.env['PATH']}"
    scheduler = SlurmCommands(environment={**os.environ, **slurm.env, "PATH": path})
    job = _request(tmp_path)
    job.script.write_text(f"#!/bin/bash\n#SBATCH --output=/dev/null --job-name={tmp_path.name}\nsleep 1000\n")
    with pytest.raises(SubmitUncertain, match="Socket timed out"):
        scheduler.submit(job)
    found = scheduler.find([tmp_path.name])
    assert len(found) == 1
    scheduler.cancel([found[0].job_id])


def test_an_sbatch_that_greets_is_understood(slurm: Cluster, tmp_path: Path) -> None:
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f"#!/bin/bash\necho '----- Welcome to Frontier 2 -----'\necho '--> 17 jobs ahead of you'\n"
        f"{shutil.which('sbatch')} \"$@\" || exit $?\necho 'Have a nice day'\n"
    )
    wrapper.chmod(0o755)
    scheduler = SlurmCommands(environment={**os.environ, **slurm.env, "PATH": f"{wrapper.parent}:{slurm.env['PATH']}"})
    job_id = scheduler.submit(_request(tmp_path))
    assert job_id in scheduler.jobs()
    scheduler.cancel([job_id])


def test_an_sbatch_that_hangs_or_is_killed_is_uncertain(slurm: Cluster, tmp_path: Path) -> None:
    wrapper = tmp_path / "sbatch"
    scheduler = SlurmCommands(environment={**slurm.env, "PATH": f"{tmp_path}:{slurm.env['PATH']}"}, timeout=0.5)
    for body in ("exec sleep 60", "kill -KILL $$", "echo nonsense", "echo 41; echo 42"):
        wrapper.write_text(f"#!/bin/bash\n{body}\n")
        wrapper.chmod(0o755)
        with pytest.raises(SubmitUncertain):
            scheduler.submit(_request(tmp_path))


def test_no_controller_no_answer(slurm_private: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = slurm_private(nodes=1, message_timeout=2)
    scheduler = commands(cluster)
    outages.stop_controller(cluster)
    with pytest.raises(SchedulerUnavailable):
        scheduler.submit(_request(tmp_path))
    for question in (scheduler.jobs, scheduler.pools, lambda: scheduler.cancel(["1"])):
        with pytest.raises(SchedulerUnavailable, match="(?i)contact|connect"):
            question()
    outages.start_controller(cluster)
    wait_until(lambda: answered(scheduler) == {})


def test_a_frozen_controller_leaves_a_submission_uncertain(
    slurm_private: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = slurm_private(nodes=1, message_timeout=2)
    scheduler = commands(cluster)
    outages.freeze_controller(cluster)
    try:
        with pytest.raises(SubmitUncertain):
            scheduler.submit(_request(tmp_path))
        with pytest.raises(SchedulerUnavailable):
            scheduler.jobs()
    finally:
        outages.thaw_controller(cluster)


def test_no_slurm_on_the_path() -> None:
    with pytest.raises(SchedulerUnavailable, match="not on PATH"):
        SlurmCommands(environment={"PATH": "/nowhere"}).jobs()


def test_a_lost_node_gives_its_job_back(slurm_private: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = slurm_private(nodes=2)
    scheduler = commands(cluster)
    job_id = scheduler.submit(_request(tmp_path, "sleep 1000"))
    node = wait_until(lambda: scheduler.jobs()[job_id].nodes)[0]
    outages.kill_node(cluster, node, jobs_too=True)
    # Its restart count says that it runs anew: Slurm 24.11 lists it on the node that was lost.
    wait_until(lambda: (r := scheduler.jobs()[job_id]).restarts == 1 and r.state is JobState.RUNNING)
    wait_until(lambda: {info.name: info.state for info in scheduler.nodes()}[node] == "down")
    wait_until(lambda: next(pool for pool in scheduler.pools() if pool.default).slots == 4)


def _rpcs(cluster: Cluster) -> dict[str, int]:
    """Requests by type since the controller's statistics were reset."""
    section = cluster.run("sdiag").split("Remote Procedure Call statistics by message type")[1].split("\n\n")[0]
    return {name: int(count) for name, count in re.findall(r"^\s*(\w+)\s+\(.*?\)\s+count:(\d+)", section, re.MULTILINE)}


def test_a_cycle_costs_the_same_for_one_job_and_for_many(slurm_private: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = slurm_private(nodes=1)
    scheduler = commands(cluster)

    def cycle() -> int:
        before = sum(n for name, n in _rpcs(cluster).items() if "NODE_REGISTRATION" not in name and "STATS" not in name)
        ids = list(scheduler.jobs())
        scheduler.records(ids)
        scheduler.pools()
        after = sum(n for name, n in _rpcs(cluster).items() if "NODE_REGISTRATION" not in name and "STATS" not in name)
        return after - before

    def submit(count: int) -> None:
        for _ in range(count):
            cluster.run("sbatch", "--hold", "--output=/dev/null", "--wrap", "true")

    scheduler.records([])  # asks for Slurm's configuration, once
    submit(10)
    few = cycle()
    submit(190)
    assert len(scheduler.jobs()) == 200
    assert cycle() == few


def test_site_pools_are_slices_of_partitions(slurm: Cluster) -> None:
    named = [
        SlurmPool("a100", "main", default=True, description="big ones"),
        SlurmPool("cores", "high", slot_type="cpu", cpus_per_slot=4),
    ]
    gpus, cores = commands(slurm, pools=named).pools()
    assert (gpus.name, gpus.partition, gpus.slots, gpus.slot_type, gpus.default) == ("a100", "main", 16, "cuda", True)
    assert (cores.name, cores.slots, cores.slot_type, cores.default) == ("cores", 8, "cpu", False)


@pytest.mark.parametrize(
    ("constraint", "features", "meets"),
    [
        ("a100", "a100,nvlink", True),
        ("a100&ib", "a100,nvlink", False),
        ("v100|a100&nvlink", "a100,nvlink", True),
        ("[rack1*2|rack2*2]", "rack2", True),
        ("a100,ib", "a100", False),
        ("ib&(a|b)", "", True),  # left to Slurm
    ],
)
def test_a_pool_with_a_constraint_has_the_nodes_that_meet_it(constraint: str, features: str, meets: bool) -> None:
    row = NodeRow("n0", "gpu", False, NodeState.IDLE, {"a100": 4}, features=frozenset(features.split(",")))
    (info,) = describe([SlurmPool("p", "gpu", constraint=constraint)], [row])
    assert (info.nodes, info.slots) == ((1, 4) if meets else (0, 0))


def test_submissions_are_throttled_after_a_burst() -> None:
    throttle = Throttle(rate=20, burst=3)
    start = time.monotonic()
    for _ in range(5):
        throttle.take()
    assert time.monotonic() - start >= 0.09  # two tokens had to be waited for


def test_elements_of_one_array_are_cancelled_with_one_word() -> None:
    ids = ["7", "57_3", "58_1", "57_0", "57_1", "57_2", "57_7", "57_3", "58"]
    assert id_ranges(ids) == ["7", "58", "57_[0-3,7]", "58_1"]
    assert id_ranges([]) == []


def test_what_would_become_of_a_job_is_asked_without_submitting_it(slurm: Cluster, tmp_path: Path) -> None:
    scheduler, script = commands(slurm), tmp_path / "job.sbatch"

    def prospect(option: str) -> Prospect:
        script.write_text(f"#!/bin/bash\n#SBATCH --job-name=prospect\n#SBATCH {option}\ntrue\n")
        return scheduler.prospect(script, {"PATH": os.environ["PATH"]}, tmp_path)

    start = prospect("--nodes=1").start
    assert start is not None and start > 1e9
    assert prospect("--licenses=none-such").refusal == "Invalid license specification"
    assert prospect("--partition=none-such").refusal == "Invalid partition name specified"
    assert prospect("--nodes=99") == Prospect(hindrance="Requested node configuration is not available")
    assert all(job.name != "prospect" for job in scheduler.jobs().values())


def test_a_scheduler_that_is_silent_or_may_not_be_asked_says_nothing_of_a_job(slurm_private, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    cluster, script = slurm_private(nodes=1), tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --licenses=none-such\ntrue\n")
    throttle = Throttle(0.001, 1)
    assert commands(cluster, throttle=throttle).prospect(script, {}, tmp_path).refusal
    assert commands(cluster, throttle=throttle).prospect(script, {}, tmp_path) == Prospect()
    outages.freeze_controller(cluster)
    try:
        assert commands(cluster).prospect(script, {}, tmp_path) == Prospect()
    finally:
        outages.thaw_controller(cluster)
