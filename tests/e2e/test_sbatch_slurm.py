"""Workflows that sites have already: an sbatch script is the entrypoint, beside job arrays of the user's own."""

from __future__ import annotations

from tests.e2e.conftest import User
from tests.e2e.test_slurm import jobs, on_slurm, slurm_command  # noqa: F401
from tests.waiting import wait_until

SCRIPT = """#!/bin/bash -e
#SBATCH --job-name=old-name
#SBATCH --nodes=2 --ntasks-per-node=2   # two tasks on each
#SBATCH --gres gpu:2
#SBATCH -c 2
#SBATCH --time=30
#SBATCH --output=old-%j.log

echo "script $1 in $(hostname) tasks $SLURM_NTASKS dir $([ "$PWD" = "$SLURM_SUBMIT_DIR" ] && echo same)"
srun --label bash -c 'echo "task $SLURM_PROCID on $SLURMD_NODENAME has $CUDA_VISIBLE_DEVICES, $(ls train.py)"'
python3 train.py
#SBATCH --array=0-9
"""

TRAIN = """
import itertools, time
import determined as det
alone = det.core.DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)
with det.core.init(distributed=alone) as core:
    info = det.get_cluster_info()
    start = 0
    if info.latest_checkpoint:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            start = int((path / "step").read_text())
    print("starting at", start, flush=True)
    for step in itertools.count() if start == 0 else range(start, start + 2):  # the first run lasts until it is paused
        time.sleep(0.1)
        core.train.report_training_metrics(steps_completed=step + 1, metrics={"loss": 1.0})
        if core.preempt.should_preempt():
            with core.checkpoint.store_path({"steps_completed": step + 1}) as (path, uuid):
                (path / "step").write_text(str(step + 1))
            raise SystemExit(0)
    core.train.report_validation_metrics(steps_completed=step + 1, metrics={"validation_loss": 1.0})
"""


def test_an_sbatch_script_is_the_entrypoint_beside_an_array_of_the_users_own(on_slurm: User) -> None:  # noqa: F811
    user = on_slurm
    array = slurm_command(
        user, "sbatch", "--parsable", "--array=0-2", "--output=/dev/null", "--wrap=sleep 10000"
    ).strip()
    user.write("context/train.sbatch", SCRIPT)
    user.write("context/train.py", TRAIN)
    user.write(
        "config.yaml",
        "name: sbatch\nentrypoint: train.sbatch 7\nsearcher: {name: single, metric: validation_loss}\nmax_restarts: 0\n",
    )
    number = int(user.det("experiment", "create", "config.yaml", "context").split()[-1])
    assert "--output=old-%j.log is left out" in user.errors
    assert "--job-name=old-name is left out" in user.errors

    user.wait_steps(number, 3)
    (job,) = [line for line in jobs(user) if not line.startswith(f"{array}_")]
    shown = slurm_command(user, "scontrol", "show", "job", job)
    assert "NumNodes=2" in shown and "TimeLimit=00:30:00" in shown and "NumTasks=4" in shown and "CPUs/Task=2" in shown
    wait_until(lambda: user.log(number).count("has 0,1, train.py") == 4)
    user.det("experiment", "pause", str(number))
    user.wait_state(number, "PAUSED")
    user.det("experiment", "activate", str(number))
    user.det("experiment", "wait", str(number))

    log = user.log(number)
    assert "tasks 4 dir same" in log
    for task in range(4):
        assert f"{task}: task {task} on " in log
    assert log.count("has 0,1, train.py") == 8, "two runs, each with four tasks that see both GPUs of their node"
    assert "starting at 0" in log and "starting at 0" not in log.rsplit("starting at", 1)[1]
    listed = slurm_command(user, "squeue", "--me", "--noheader", "--array", "--format=%i").split()
    assert {line.split("_")[0] for line in listed} == {array}, "nobody touched the user's own array"


def test_what_a_script_cannot_ask_for_is_named_and_nothing_is_created(on_slurm: User) -> None:  # noqa: F811
    user = on_slurm
    user.write("context/train.sbatch", "#!/bin/bash\n#SBATCH --array=0-9\n#SBATCH -M other\ntrue\n")
    user.write("config.yaml", "entrypoint: sbatch train.sbatch\nsearcher: {name: single, metric: loss}\n")
    user.det("experiment", "create", "config.yaml", "context", code=1)
    assert "--array in train.sbatch" in user.errors and "--clusters in train.sbatch" in user.errors
    assert user.json("experiment", "list") == []
