"""Workflows that sites have already: an sbatch script is the entrypoint, beside job arrays of the user's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

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
srun --label bash -c 'text="task $SLURM_PROCID on $SLURMD_NODENAME has $CUDA_VISIBLE_DEVICES, $(ls train.py)"
    echo "$text" > "$1/$SLURM_JOB_ID.$SLURM_PROCID"; echo "$text"' task "$TASKS"
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


def test_an_sbatch_script_is_the_entrypoint_beside_an_array_of_the_users_own(on_slurm: User, tmp_path: Path) -> None:  # noqa: F811
    user, tasks = on_slurm, tmp_path / "tasks"
    tasks.mkdir()

    def with_gpus() -> int:
        """Tasks that had both GPUs of their node. On a busy machine Slurm may lose what a task of a few milliseconds prints."""
        return sum("has 0,1, train.py" in path.read_text() for path in tasks.iterdir())

    array = slurm_command(
        user, "sbatch", "--parsable", "--array=0-2", "--output=/dev/null", "--wrap=sleep 10000"
    ).strip()
    user.write("context/train.sbatch", SCRIPT)
    user.write("context/train.py", TRAIN)
    user.write(
        "config.yaml",
        "name: sbatch\nentrypoint: train.sbatch 7\nsearcher: {name: single, metric: validation_loss}\nmax_restarts: 0\n"
        f"environment: {{environment_variables: ['TASKS={tasks}']}}\n",
    )
    number = int(user.det("experiment", "create", "config.yaml", "context").split()[-1])
    assert "--output=old-%j.log is left out" in user.errors
    assert "--job-name=old-name is left out" in user.errors

    user.wait_steps(number, 3)
    (job,) = [line for line in jobs(user) if not line.startswith(f"{array}_")]
    shown = slurm_command(user, "scontrol", "show", "job", job)
    assert "NumNodes=2" in shown and "TimeLimit=00:30:00" in shown and "NumTasks=4" in shown and "CPUs/Task=2" in shown
    wait_until(lambda: with_gpus() == 4)
    user.det("experiment", "pause", str(number))
    user.wait_state(number, "PAUSED")
    user.det("experiment", "activate", str(number))
    user.det("experiment", "wait", str(number))

    log = user.log(number)
    assert "tasks 4 dir same" in log
    for task in range(4):
        assert f"{task}: task {task} on " in log
    assert with_gpus() == 8, "two runs, each with four tasks"
    assert "starting at 0" in log and "starting at 0" not in log.rsplit("starting at", 1)[1]
    listed = slurm_command(user, "squeue", "--me", "--noheader", "--array", "--format=%i").split()
    assert {line.split("_")[0] for line in listed} == {array}, "nobody touched the user's own array"


def test_what_a_script_cannot_ask_for_is_named_and_nothing_is_created(on_slurm: User) -> None:  # noqa: F811
    user = on_slurm
    user.write("context/train.sbatch", "#!/bin/bash\n#SBATCH --array=0-9\n#SBATCH -M other\ntrue\n")
    user.write("config.yaml", "entrypoint: sbatch train.sbatch\nsearcher: {name: single, metric: loss}\n")
    user.det("experiment", "create", "config.yaml", "context", code=1)
    assert "--array is not possible in train.sbatch" in user.errors and "--clusters is not" in user.errors
    assert user.json("experiment", "list") == []


def trained(user: User, script: str, **config: Any) -> tuple[str, str]:
    """The log of a trial whose entrypoint is ``job.sh`` with these lines, and what its creation said."""
    user.write("context/job.sh", script).chmod(0o755)
    text = {"entrypoint": "./job.sh", "searcher": {"name": "single", "metric": "loss"}, "max_restarts": 0, **config}
    user.write("config.yaml", yaml.safe_dump(text))
    number, said = int(user.det("experiment", "create", "config.yaml", "context").split()[-1]), user.errors
    user.det("experiment", "wait", str(number))
    return user.log(number), said


ENVIRONMENT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --mem=1G
#SBATCH --job-name="demo job"
#SBATCH --output=./out/%x-%j.out
echo "processes $(( ${SLURM_GPUS_PER_NODE:-1} * ${SLURM_NNODES:-1} )) per node ${SLURM_GPUS_PER_NODE-unset} name $SLURM_JOB_NAME"
srun bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME sees $CUDA_VISIBLE_DEVICES"'
"""


def test_slurm_tells_a_script_what_its_own_options_asked_for(on_slurm: User) -> None:  # noqa: F811
    log, said = trained(on_slurm, ENVIRONMENT)
    assert "job.sh has #SBATCH lines: it runs as sbatch job.sh would" in said
    assert "--output=./out/%x-%j.out is left out" in said
    assert "processes 8 per node 4 name demo job" in log
    for task in range(2):
        assert re.search(rf"task {task} of 2 on \S+ sees 0,1,2,3", log)
    (experiment,) = on_slurm.json("experiment", "list")
    assert experiment["name"] == "demo job"


TASKS = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --tasks-per-node=4
#SBATCH --cpus-per-task=2
srun bash -c 'echo "proc $SLURM_PROCID of $SLURM_NTASKS with $(nproc) cores"'
"""


@pytest.mark.everything
def test_tasks_per_node_is_another_name_of_ntasks_per_node(on_slurm: User) -> None:  # noqa: F811
    log, said = trained(on_slurm, TASKS)
    assert [f"proc {task} of 4" in log for task in range(4)] == [True] * 4
    assert "asks for no GPU, so its trials get none" in said
    log, _ = trained(on_slurm, "#!/bin/bash\nsrun echo task", slurm={"sbatch_args": ["--tasks-per-node=3"]})
    assert log.count("INFO: task") == 3


SHAPES = {
    "--gpus=6": 6,  # Slurm chooses the nodes
    "--gpus-per-task=1 -n 5": 5,
    "-n 4 --gpus=4 --ntasks-per-gpu=1": 4,
    "--gpus=2 --mem-per-gpu=100": 2,
    "--gpus-per-socket=2 --sockets-per-node=1 -N 2": 4,
    "--exclusive -c 3": 4,
    "--nodes=1-3 --gres=gpu:2 -n 2": 2,
}


OFTEN = ("--gpus=6", "--nodes=1-3 --gres=gpu:2 -n 2")


@pytest.mark.parametrize(
    "options", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.everything) for name in SHAPES]
)
def test_a_script_runs_in_whatever_shape_it_asks_for(on_slurm: User, options: str) -> None:  # noqa: F811
    gpus = r"grep -o '[0-9]*gpu[0-9]*\|gres/gpu=[0-9]*' | tail -1"
    script = f"#!/bin/bash\n#SBATCH {options}\nscontrol show job $SLURM_JOB_ID | grep -o 'TRES=.*' | {gpus}\nsrun echo task\n"
    log, _ = trained(on_slurm, script)
    (experiment,) = on_slurm.json("experiment", "list")
    assert SHAPES[options] == on_slurm.experiment(experiment["id"])["config"]["resources"]["slots_per_trial"]
    assert "INFO: task" in log


def test_dos_line_breaks_are_refused_as_by_sbatch(on_slurm: User) -> None:  # noqa: F811
    user = on_slurm
    (user.folder / "context").mkdir(exist_ok=True)
    (user.folder / "context/job.sbatch").write_bytes(b"#!/bin/bash\r\n#SBATCH --cpus-per-task=1\r\necho hello\r\n")
    user.write("config.yaml", "entrypoint: job.sbatch\nsearcher: {name: single, metric: loss}\n")
    user.det("experiment", "create", "config.yaml", "context", code=1)
    assert "Batch script contains DOS line breaks" in user.errors
    assert user.json("experiment", "list") == []


def test_a_script_with_directives_and_without_an_interpreter_is_refused_as_by_sbatch(on_slurm: User) -> None:  # noqa: F811
    user = on_slurm
    user.write("context/job.sh", "#SBATCH --gpus=2\necho hello\n")
    (user.folder / "context/job.sh").chmod(0o755)
    user.write("config.yaml", "entrypoint: ./job.sh\nsearcher: {name: single, metric: loss}\n")
    user.det("experiment", "create", "config.yaml", "context", code=1)
    assert "job.sh must begin with #!" in user.errors
    assert user.json("experiment", "list") == []


def test_what_slurm_would_never_take_is_refused_at_creation(on_slurm: User) -> None:  # noqa: F811
    user = on_slurm
    config = {"entrypoint": "true", "searcher": {"name": "single", "metric": "loss"}}
    (user.folder / "context").mkdir(exist_ok=True)
    user.write("config.yaml", yaml.safe_dump({**config, "slurm": {"sbatch_args": ["--licenses=none-such"]}}))
    user.det("experiment", "create", "config.yaml", "context", code=1)
    assert "Slurm refuses such a job: Invalid license specification" in user.errors
    assert user.json("experiment", "list") == []
    assert jobs(user) == []


def test_what_slurm_would_not_take_at_present_is_a_note(on_slurm: User) -> None:  # noqa: F811
    user = on_slurm
    slurm_command(user, "scontrol", "update", "nodename=n[0-3]", "state=drain", "reason=test")
    try:
        user.write("context/train.sh", "true\n")
        experiment = user.create("--paused", entrypoint="true")
        assert "would not start such a job in pool main at present: Requested node configuration" in user.errors
        user.det("experiment", "kill", str(experiment))
    finally:
        slurm_command(user, "scontrol", "update", "nodename=n[0-3]", "state=resume")
