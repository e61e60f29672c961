"""All ways in which Slurm and its people stop a job, on a real Slurm: nothing is lost, trained twice or held against a trial."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy import slurm_dev
from dethpc.deploy.slurm_dev import Cluster
from dethpc.errors import DethpcError
from tests.cluster import outages
from tests.cluster.fixtures import CLUSTERS
from tests.e2e.conftest import TRAIN, User
from tests.e2e.test_slurm import final_state, slurm_command, user_of
from tests.waiting import wait_until

PARTITIONS = {
    "main": "Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0",
    "grace": "PriorityTier=1 PreemptMode=REQUEUE GraceTime=60",
    "cancel": "PriorityTier=1 PreemptMode=CANCEL GraceTime=0",
    "cancelgrace": "PriorityTier=1 PreemptMode=CANCEL GraceTime=60",
    # For what goes on beside the tests. Not of a higher tier: while the other nodes do not answer yet after a restart of
    # slurmctld, Slurm would take the node of a job in main for it.
    "aside": "PriorityTier=1 PreemptMode=OFF",
    "safe": "PriorityTier=5 PreemptMode=OFF",
    "high": "PriorityTier=10 PreemptMode=OFF",
}

# The same training on two nodes, whose second process only keeps in step with the first.
TWO_NODES = TRAIN.replace(
    "with det.core.init() as core:",
    """\
rank = info.container_rank
workers = det.core.DistributedContext(
    rank=rank, size=2, local_rank=0, local_size=1, cross_rank=rank, cross_size=2, chief_ip=info.container_addrs[0]
)
with det.core.init(distributed=workers) as core:
    if rank == 1:
        if info.latest_checkpoint is not None:
            with core.checkpoint.restore_path(info.latest_checkpoint):
                pass
        try:
            while not core.preempt.should_preempt():
                pass
        except ConnectionError:
            pass  # the first process has done its steps
        sys.exit(0)""",
)


def trained(steps: int, lr: float = 0.1) -> str:
    """The state in which the training ends that does each step once."""
    state = "seed"
    for step in range(steps):
        state = hashlib.sha256(f"{state}:{step}:{lr}".encode()).hexdigest()
    return state


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Six nodes of one GPU, and Slurm's own two minutes until a requeued job may start."""
    slurm_dev.require_programs(slurm_dev.Shape())
    import tempfile

    with tempfile.TemporaryDirectory(prefix=CLUSTERS) as parent:
        shape = slurm_dev.Shape(
            nodes=6, gpus_per_node=1, partitions=PARTITIONS, requeue_delay=120, message_timeout=3, kill_wait=60
        )
        cluster = slurm_dev.up(Path(parent) / "c", shape)
        try:
            yield cluster
        finally:
            slurm_dev.down(cluster.folder)


@pytest.fixture(scope="module")
def user(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    pools = {name: {"partition": name} for name in PARTITIONS}
    pools["minute"] = {"partition": "aside", "time_limit": "1"}
    place = tmp_path_factory.mktemp("user")
    pools["gated"] = {"partition": "safe", "prologue": [f"while ! [ -e {place}/gate ]; do sleep 0.1; done"]}
    with user_of(cluster, place, pools=pools) as user:
        yield user


def create(user: User, pool: str, steps: int, pause: float = 0.05, hold: int = 0, **changes: Any) -> int:
    resources = {"resource_pool": pool, "slots_per_trial": 1, **changes.pop("resources", {})}
    hyperparameters = {"lr": 0.1, "steps": steps, "pause": pause, "hold": hold}
    return user.create(hyperparameters=hyperparameters, resources=resources, **changes)


def ends(user: User, experiment: int) -> list[tuple[int, int, str | None]]:
    """(run, attempt, how it ended) of the experiment's attempts, in order."""
    with sqlite3.connect(f"file:{user.home}/dethpc.db?mode=ro", uri=True) as db:
        return db.execute(
            "SELECT runs.number, attempts.number, attempts.end FROM attempts "
            "JOIN runs ON runs.id = run_id WHERE runs.experiment_id = ? ORDER BY 1, 2",
            (experiment,),
        ).fetchall()


def assert_trained_once(user: User, experiment: int, steps: int) -> None:
    """The result is that of an undisturbed training; no step counts twice; no restart was counted."""
    assert user.experiment(experiment)["state"] == "STATE_COMPLETED"
    (trial,) = user.trials(experiment)
    assert trial["restarts"] == 0
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, steps + 1))
    log = user.log(experiment)
    assert final_state(log) == trained(steps)
    assert log.count("final state") == 1
    begun = [int(step) for step in re.findall(r"starting at step (\d+)", log)]
    assert begun == sorted(set(begun)), "each start goes on from further than the one before"


LONG = 100


@pytest.fixture(scope="module")
def chain(user: User) -> int:
    """A trial of a hundred seconds where jobs have one minute: it goes on beside everything else here."""
    return create(user, "minute", LONG, pause=1.0)


def two_nodes(user: User, pool: str, steps: int, hold: int) -> int:
    user.write("context/two.py", TWO_NODES)
    shape = {"entrypoint": "python3 two.py", "slurm": {"slots_per_node": 1}}
    return create(user, pool, steps, hold=hold, resources={"slots_per_trial": 2}, **shape)


def test_a_preempted_trial_goes_on_from_the_checkpoint_of_its_last_seconds(
    user: User, cluster: Cluster, chain: int
) -> None:
    """A job of a higher partition takes the nodes of four trials at once: REQUEUE and CANCEL, with grace and without, two nodes."""
    steps, hold = 20, 8
    experiments = {pool: create(user, pool, steps, hold=hold) for pool in ("grace", "cancel", "cancelgrace")}
    experiments["main"] = two_nodes(user, "main", steps, hold)
    for experiment in experiments.values():
        user.wait_steps(experiment, hold)
    running = slurm_command(user, "squeue", "--me", "--noheader", "--states=RUNNING", "--format=%P|%N").splitlines()
    wanted = ",".join(row.partition("|")[2] for row in running if not row.startswith("aside"))
    asked = ["--partition=high", "--gres=gpu:1", "--nodes=5", f"--nodelist={wanted}", "--output=/dev/null"]
    taker = cluster.run("sbatch", "--parsable", *asked, "--wrap", "sleep 1000").strip()
    wait_until(lambda: cluster.run("squeue", "--noheader", f"--jobs={taker}", "--format=%T").strip() == "RUNNING")
    cluster.run("scancel", taker)
    for experiment in experiments.values():
        user.det("experiment", "wait", str(experiment))
        assert_trained_once(user, experiment, steps)
        assert re.findall(r"stopping at step (\d+)", user.log(experiment)) == ["8"]
        assert re.findall(r"starting at step (\d+)", user.log(experiment)) == ["0", "8"]
    # Without grace Slurm queues the same job again, and would let it wait for two minutes.
    assert ends(user, experiments["main"]) == [(1, 0, "PREEMPTED"), (1, 1, "COMPLETED")]
    anew = [(1, 0, "PREEMPTED"), (2, 0, "COMPLETED")]
    for pool in ("cancel", "cancelgrace"):
        assert ends(user, experiments[pool]) == anew
    # A job that ends within its grace: Slurm 22.05 lets it end, 24.11 and 26.05 queue it again.
    assert ends(user, experiments["grace"]) in (anew, [(1, 0, "PREEMPTED"), (1, 1, "COMPLETED")])


def job_of(user: User, experiment: int) -> str:
    """The id of the Slurm job of the experiment's last run, as soon as it has one."""

    def known() -> str | None:
        with sqlite3.connect(f"file:{user.home}/dethpc.db?mode=ro", uri=True) as db:
            asked = "SELECT scheduler_job_id FROM runs WHERE experiment_id = ? ORDER BY number DESC LIMIT 1"
            row = db.execute(asked, (experiment,)).fetchone()
        return row and row[0]

    return str(wait_until(known))


def job_state(cluster: Cluster, job: str) -> str:
    return cluster.run("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T").strip()


def by_hand(cluster: Cluster, *words: str) -> None:
    """A person's ``scontrol``, once more where a newer Slurm says that it works on the job at this moment."""

    def done() -> bool:
        try:
            cluster.run("scontrol", *words)
        except DethpcError as error:
            assert "temporarily unavailable" in str(error), error
            return False
        return True

    wait_until(done)


def held_by_hand(user: User, experiment: int) -> bool:
    """Whether dethpc says so of its run."""
    return "held by hand" in user.det("experiment", "describe", str(experiment))


def test_what_is_done_by_hand_is_taken_in_and_never_undone(user: User, cluster: Cluster, chain: int) -> None:
    steps = 40
    # No node is left for what comes next.
    asked = ["--partition=high", "--gres=gpu:1", "--nodes=4", "--output=/dev/null"]
    blocker = cluster.run("sbatch", "--parsable", *asked, "--wrap", "sleep 1000").strip()
    early = create(user, "gated", steps)
    wait_until(lambda: job_state(cluster, job_of(user, early)) == "RUNNING")
    held = create(user, "main", steps, hold=5)
    by_hand(cluster, "uhold", job_of(user, held))  # what hold is for everybody but root
    # Taken off its node before it has said anything: its first attempt leaves no trace.
    by_hand(cluster, "requeue", job_of(user, early))
    (user.home.parent / "gate").touch()
    wait_until(lambda: held_by_hand(user, held))
    cluster.run("scancel", blocker)
    user.wait_steps(early, 5)
    assert held_by_hand(user, held)
    by_hand(cluster, "update", f"jobid={job_of(user, held)}", "partition=safe", "timelimit=30")
    by_hand(cluster, "release", job_of(user, held))
    user.wait_steps(held, 5)
    by_hand(cluster, "requeue", job_of(user, held))
    cancelled = create(user, "main", steps, hold=5)
    user.wait_steps(cancelled, 5)
    cluster.run("scancel", job_of(user, cancelled))
    shown = user.wait_state(cancelled, "PAUSED")
    assert "cancelled outside" in user.det("experiment", "describe", str(cancelled)), shown
    user.det("experiment", "activate", str(cancelled))
    for experiment in (early, held, cancelled):
        user.det("experiment", "wait", str(experiment))
        assert_trained_once(user, experiment, steps)
    assert ends(user, early) == [(1, 1, "COMPLETED")]
    assert ends(user, held) == [(1, 0, "PREEMPTED"), (1, 1, "COMPLETED")]
    assert ends(user, cancelled) == [(1, 0, "CANCELLED"), (2, 0, "COMPLETED")]


def test_a_controller_that_restarts_hangs_or_is_away_disturbs_nothing(user: User, cluster: Cluster, chain: int) -> None:
    """What a longer absence changes is how often the master has asked in vain: it knows nothing then, and does nothing."""
    steps = 40
    experiments = [create(user, "main", steps, pause=0.2)]
    user.wait_steps(experiments[0], 5)
    outages.stop_controller(cluster)
    outages.start_controller(cluster)
    experiments.append(create(user, "main", steps, pause=0.2))
    user.wait_steps(experiments[1], 3)
    outages.freeze_controller(cluster)  # longer than commands wait
    try:
        experiments.append(create(user, "main", steps, pause=0.2))
        wait_until(lambda: "does not answer" in (user.home / "log/master.log").read_text())
    finally:
        outages.thaw_controller(cluster)
    user.wait_steps(experiments[2], 3)
    outages.stop_controller(cluster)
    experiments.append(create(user, "main", steps, pause=0.2))
    log = user.home / "log/master.log"
    before = log.read_text().count("does not answer")
    wait_until(lambda: log.read_text().count("does not answer") >= before + 5)
    outages.start_controller(cluster)
    for experiment in experiments:
        user.det("experiment", "wait", str(experiment))
        assert_trained_once(user, experiment, steps)
        assert ends(user, experiment) == [(1, 0, "COMPLETED")]


ENDS_WHEN_ASKED = """\
import time
import determined as det
with det.core.init() as core:
    core.train.report_training_metrics(steps_completed=1, metrics={"loss": 1.0})
    print("training", flush=True)
    while not core.preempt.should_preempt(auto_ack=False):
        time.sleep(0.1)
    core.train.report_validation_metrics(steps_completed=1, metrics={"validation_loss": 1.0})
"""


def test_a_job_that_is_queued_again_when_its_training_has_ended_does_not_train_again(
    user: User, cluster: Cluster, chain: int
) -> None:
    user.write("context/ends.py", ENDS_WHEN_ASKED)
    meanwhile = create(user, "main", 1, entrypoint="python3 ends.py")
    afterwards = create(user, "main", 3)
    wait_until(lambda: "training" in user.log(meanwhile))
    job, later = job_of(user, meanwhile), job_of(user, afterwards)

    by_hand(cluster, "requeue", job)
    user.det("experiment", "wait", str(meanwhile))
    wait_until(lambda: job_state(cluster, job) == "CANCELLED")
    user.det("experiment", "wait", str(afterwards))
    wait_until(lambda: job_state(cluster, later) == "COMPLETED")
    by_hand(cluster, "requeue", later)
    by_hand(cluster, "update", f"jobid={later}", "starttime=now+3")  # in this second its node would refuse it
    # It finds its run closed, or the master has cancelled it before.
    wait_until(lambda: job_state(cluster, later) in ("COMPLETED", "CANCELLED"))
    assert user.log(meanwhile).count("training") == 1
    assert_trained_once(user, afterwards, 3)
    for experiment in (meanwhile, afterwards):
        assert user.experiment(experiment)["state"] == "STATE_COMPLETED"
        assert ends(user, experiment) == [(1, 0, "COMPLETED")]
        (run,) = user.home.glob(f"runs/{experiment}.*")
        assert [attempt.name for attempt in (run / "attempts").iterdir()] == ["0"]


@pytest.mark.everything
def test_what_ended_while_no_master_ran_is_found_in_the_accounts_or_in_the_run_directory(
    slurm_accounting: Cluster, slurm_private: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Slurm has forgotten the job by the time a master asks. Only the accounts know a scancel from a preemption."""
    with_accounts, without = slurm_accounting, slurm_private(nodes=1, min_job_age=2, message_timeout=3)
    steps, hold, experiments, lost = 20, 3, {}, {}
    known = ["squeue", "--me", "--noheader", "--states=all", "--format=%i"]
    with user_of(with_accounts, tmp_path / "with") as one, user_of(without, tmp_path / "without") as other:
        for user in (one, other):
            experiments[user] = user.create(hyperparameters={"lr": 0.1, "steps": steps, "hold": hold})
        for user in (one, other):
            user.wait_steps(experiments[user], hold)
            lost[user] = job_of(user, experiments[user])
            user.kill_master()
            slurm_command(user, "scancel", lost[user])
        for user in (one, other):
            wait_until(lambda user=user: lost[user] not in slurm_command(user, *known).split())
            user.det("experiment", "list")  # starts another master
        one.wait_state(experiments[one], "PAUSED")
        assert "cancelled outside" in one.det("experiment", "describe", str(experiments[one]))
        one.det("experiment", "activate", str(experiments[one]))
        for user, end in ((one, "CANCELLED"), (other, "PREEMPTED")):
            user.det("experiment", "wait", str(experiments[user]))
            assert_trained_once(user, experiments[user], steps)
            assert ends(user, experiments[user]) == [(1, 0, end), (2, 0, "COMPLETED")]


def test_a_trial_goes_on_over_as_many_jobs_as_its_time_limit_makes(user: User, chain: int) -> None:
    user.det("experiment", "wait", str(chain))
    assert_trained_once(user, chain, LONG)
    how = [end for _, _, end in ends(user, chain)]
    assert how[-1] == "COMPLETED"
    assert set(how[:-1]) == {"TIMEOUT"} and len(how) >= 3
    log = user.log(chain)
    stopped = re.findall(r"stopping at step (\d+)", log)
    assert re.findall(r"starting at step (\d+)", log) == ["0", *stopped], "each job stopped in time, with a checkpoint"
    (trial,) = user.trials(chain)
    leads = [
        int(
            re.findall(
                r"--signal=B:USR1@(\d+)", (user.home / f"runs/{chain}.{trial['id']}.{n}/job.sbatch").read_text()
            )[0]
        )
        for n in range(1, len(how) + 1)
    ]
    assert leads[0] == 60 and min(leads[1:]) > 60, "what its checkpoints took is set aside"
