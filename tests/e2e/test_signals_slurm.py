"""Signals in user code, under both ways in which Slurm finds the processes to signal: its direct child alone, or every process."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy import slurm_dev
from dethpc.deploy.slurm_dev import Cluster
from tests.cluster.fixtures import CLUSTERS
from tests.e2e.conftest import User
from tests.e2e.test_launchers import MPI
from tests.e2e.test_slurm import user_of
from tests.waiting import wait_until

PARTITIONS = {
    "main": "Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0",
    "grace": "PriorityTier=1 PreemptMode=REQUEUE GraceTime=120",
    "high": "PriorityTier=10 PreemptMode=OFF",
}


@pytest.fixture(scope="module", params=["linuxproc", pytest.param("pgid", marks=pytest.mark.everything)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """linuxproc: every descendant of the step is signalled. pgid: as with cgroup, only slurmstepd's own child, as user code has a
    session of its own."""
    shape = slurm_dev.Shape(
        nodes=8,
        gpus_per_node=2,
        partitions=PARTITIONS,
        kill_wait=60,
        extra=(f"ProctrackType=proctrack/{request.param}",),
    )
    slurm_dev.require_programs(shape)
    with tempfile.TemporaryDirectory(prefix=CLUSTERS) as parent:
        cluster = slurm_dev.up(Path(parent) / "c", shape)
        try:
            yield cluster
        finally:
            slurm_dev.down(cluster.folder)


@pytest.fixture(scope="module")
def user(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    pools = {name: {"partition": name} for name in PARTITIONS}
    with user_of(cluster, tmp_path_factory.mktemp("user"), pools=pools) as user:
        user.write("context/train.py", SAVES_SLOWLY)
        user.write(
            "context/wrapper.sh", "echo wrapped\npython3 train.py\necho not reached where the signal ended this\n"
        )
        yield user


SAVES_SLOWLY = '''
"""Trains until it is asked to stop, or two steps more than a checkpoint has; saving takes 20 s, in which it prints."""
import os, sys, time
import determined as det

info = det.get_cluster_info()
first = lambda *names: int(next((os.environ[name] for name in names if name in os.environ), 0))
rank, size = first("RANK", "OMPI_COMM_WORLD_RANK"), max(1, first("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"))
local, local_size = rank - sum(info.container_slot_counts[: info.container_rank]), info.container_slot_counts[info.container_rank]
workers = None
if size > 1:
    workers = det.core.DistributedContext(
        rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=info.container_rank,
        cross_size=len(info.container_addrs), chief_ip=info.container_addrs[0],
    )
with det.core.init(distributed=workers) as core:
    start = 0
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            start = int((path / "step").read_text())
    print(f"starting at step {start}", flush=True)
    step = start
    while info.latest_checkpoint is None or step < start + 2:
        step += 1
        if rank == 0:
            core.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0})
        if core.preempt.should_preempt():
            for second in range(20):
                time.sleep(1)
                print(f"rank {rank} saves", second, flush=True)
            if rank == 0:
                with core.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
                    (path / "step").write_text(str(step))
            print(f"rank {rank} has saved", flush=True)
            sys.exit(0)
        time.sleep(0.1)
    if rank == 0:
        core.train.report_validation_metrics(steps_completed=step, metrics={"validation_loss": 1.0})
    print(f"rank {rank} is done", flush=True)
'''


def create(user: User, entrypoint: str, pool: str, slots: int = 1, **changes: Any) -> int:
    return user.create(
        entrypoint=entrypoint,
        resources={"resource_pool": pool, "slots_per_trial": slots},
        searcher={"name": "single", "metric": "validation_loss"},
        **changes,
    )


def preempt_everything(cluster: Cluster) -> None:
    """A job of a higher partition takes every node until the others have noticed."""
    words = [
        "--partition=high",
        f"--nodes={len(cluster.nodes)}",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=sleep 1000",
    ]
    taker = cluster.run("sbatch", "--parsable", *words).strip()
    wait_until(lambda: cluster.run("squeue", "--noheader", f"--jobs={taker}", "--format=%T").strip() == "RUNNING")
    cluster.run("scancel", taker)


@pytest.mark.parametrize("pool", ["grace", pytest.param("main", marks=pytest.mark.everything)])
def test_a_preempted_training_gets_to_a_checkpoint_that_takes_20_seconds(
    user: User, cluster: Cluster, pool: str
) -> None:
    """However it is started: TERM comes to its shells, launchers and pipes as well, or to none of them."""
    trainings = {
        "plain": create(user, "python3 train.py", pool),
        "wrapped": create(user, "bash wrapper.sh", pool),
        "nested": create(user, "sh -c 'bash wrapper.sh; true'; echo over", pool),
        "pipeline": create(user, "python3 train.py 2>&1 | tee copy.log | cat", pool),
    }
    if importlib.util.find_spec("torch"):
        launch = "python3 -m determined.launch.torch_distributed python3 train.py"
        trainings["torchrun"] = create(user, launch, pool, 2)
        trainings["torchrun on two nodes"] = create(user, launch, pool, 4)
    if shutil.which("mpirun"):
        environment = {"environment_variables": MPI}
        trainings["mpirun"] = create(
            user, "python3 -m determined.launch.mpi python3 train.py", pool, 2, environment=environment
        )
    for experiment in trainings.values():
        user.wait_steps(experiment, 3)
    preempt_everything(cluster)
    for experiment in trainings.values():
        user.det("experiment", "wait", str(experiment))
    for name, experiment in trainings.items():
        log = user.log(experiment)
        assert user.experiment(experiment)["state"] == "STATE_COMPLETED", (name, log)
        (trial,) = user.trials(experiment)
        assert trial["restarts"] == 0, (name, log)
        begun = [int(step) for step in re.findall(r"starting at step (\d+)", log)]
        assert 0 in begun and max(begun) > 0, (name, log)
        assert log.count("rank 0 has saved") == (0 if name == "pipeline" and "pgid" not in str(cluster.shape) else 1), (
            log
        )


TRAP = """\
#!/bin/bash
#SBATCH --time=1
#SBATCH --signal=B:USR1@35
trap 'echo "script got USR1 with $((end - $(date +%s))) s left"; exit 0' USR1
trap 'echo "script got TERM"; exit 1' TERM
end=$(squeue --noheader --jobs=$SLURM_JOB_ID --format=%e)
end=$(date -d "$end" +%s)
echo "signal of dethpc: ${DETHPC_SIGNAL-none}"
bash -c 'trap "echo child got USR1" USR1; sleep 600 & wait' &
sleep 600 &
wait
"""
STEPS = """\
#!/bin/bash
#SBATCH --time=1 --signal USR2@35
trap 'echo "script got USR2"' USR2
echo waiting
srun --overlap --ntasks=1 python3 -c '
import signal, sys
signal.signal(signal.SIGUSR2, lambda *_: (print("step got USR2", flush=True), sys.exit(0)))
signal.pause()'
echo "step ended with $?"
"""
HANDLER = """\
import os, signal, sys
def stop(number, frame):
    print("rank", os.environ.get("RANK", "-"), "got", signal.Signals(number).name, flush=True)
    sys.exit(0)
signal.signal(signal.SIGUSR1, stop)
print("ready", flush=True)
signal.pause()
"""


def test_the_signal_that_a_script_asks_for_comes_when_and_to_whom_it_asks(user: User) -> None:
    """B: the script alone, not its children; else its steps, and not the script; an ordinary entrypoint's processes or ranks."""
    user.write("context/trap.sbatch", TRAP)
    user.write("context/steps.sbatch", STEPS)
    user.write("context/handler.py", HANDLER)
    asked = {"slurm": {"sbatch_args": ["--time=1", "--signal=USR1@35"]}}
    experiments = {
        "script": create(user, "trap.sbatch", "main"),
        "steps": create(user, "steps.sbatch", "main"),
        "plain": create(user, "python3 handler.py; echo over", "main", **asked),
    }
    if importlib.util.find_spec("deepspeed"):
        launch = "python3 -m determined.launch.deepspeed python3 handler.py"
        experiments["ranks"] = create(user, launch, "main", 2, **asked)
    for experiment in experiments.values():
        user.det("experiment", "wait", str(experiment))
    logs = {name: user.log(experiment) for name, experiment in experiments.items()}
    for name, experiment in experiments.items():
        assert user.experiment(experiment)["state"] == "STATE_COMPLETED", (name, logs[name])
        (trial,) = user.trials(experiment)
        assert (trial["restarts"], len(user.runs_of(experiment))) == (0, 1), (name, logs[name])
    left = re.search(r"script got USR1 with (\d+) s left", logs["script"])
    assert left and 25 <= int(left[1]) <= 36, logs["script"]
    assert "child got" not in logs["script"] and "got TERM" not in logs["script"]
    assert "signal of dethpc: none" in logs["script"]
    assert "step got USR2" in logs["steps"] and "step ended with 0" in logs["steps"], logs["steps"]
    assert "script got" not in logs["steps"]
    assert "rank - got SIGUSR1" in logs["plain"] and "over" in logs["plain"], logs["plain"]
    if "ranks" in logs:
        assert all(f"rank {rank} got SIGUSR1" in logs["ranks"] for rank in (0, 1)), logs["ranks"]


TERM_TRAP = """\
#!/bin/bash
#SBATCH --time=1
trap 'echo "script got TERM"; sleep 8; echo "script has saved"; exit 0' TERM
while :; do  # Slurm may signal the sleep first, whose end alone would end a single wait
  sleep 600 &
  wait
done
"""
TERM_HANDLER = """\
import signal, sys, time
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
while not came:
    time.sleep(0.1)
print("program got TERM", flush=True)
time.sleep(8)
print("program has saved", flush=True)
"""


def test_code_that_waits_for_term_gets_it_at_the_time_limit_and_the_time_until_kill(user: User) -> None:
    user.write("context/term.sbatch", TERM_TRAP)
    user.write("context/term.py", TERM_HANDLER)
    script = create(user, "term.sbatch", "main")
    program = create(user, "python3 term.py", "main", slurm={"sbatch_args": ["--time=1"]})
    for name, experiment in {"script": script, "program": program}.items():
        user.det("experiment", "wait", str(experiment))
        log = user.log(experiment)
        assert f"{name} got TERM" in log and f"{name} has saved" in log, log
        assert user.experiment(experiment)["state"] == "STATE_COMPLETED", log
        assert len(user.runs_of(experiment)) == 1, log
