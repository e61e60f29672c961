"""Every launcher on a real Slurm, on one node and on two, and what becomes of trials whose workers, nodes or options fail."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests import processes
from tests.cluster import outages
from tests.e2e.conftest import User
from tests.e2e.test_slurm import jobs, on_slurm, slurm_command, user_of
from tests.waiting import wait_until

__all__ = ["on_slurm"]

ENTRYPOINT = """\
name=$(python3 -c 'import json, os; print(json.loads(os.environ["DET_HPARAMS"])["launcher"])')
exec python3 -m determined.launch.$name python3 train.py
"""
PLACE = """\
import json, os
import determined as det
index = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
RANKS = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # the last two are srun's
SIZES = ("WORLD_SIZE", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
rank = next((os.environ[name] for name in RANKS if name in os.environ), index)
size = next((os.environ[name] for name in SIZES if name in os.environ), 0)
if "PMIX_RANK" in os.environ and "OMPI_COMM_WORLD_RANK" not in os.environ:
    from mpi4py import MPI
    assert (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.allreduce(1)) == (int(rank), int(size))
    assert os.getcwd() == os.environ["DET_WORKDIR"]
print(f"place {rank} of {size} on {det.get_cluster_info().agent_id}", flush=True)
"""


def open_mpi() -> int:
    """The release of mpirun; 0 without one."""
    said = (
        subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout if shutil.which("mpirun") else ""
    )
    found = re.search(r"\(Open MPI\) (\d+)", said)
    return int(found[1]) if found else 0


# All nodes of the test are one machine, and the tests may run as root.
MPI = [
    "OMPI_MCA_btl=self,tcp",
    "OMPI_MCA_btl_tcp_if_include=lo",
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
]
# A launcher needs its framework to be there; what the workers do here needs none of them.
INSTALLED = {
    "torch_distributed": importlib.util.find_spec("torch"),
    "deepspeed": importlib.util.find_spec("deepspeed"),
    "horovod": importlib.util.find_spec("horovod"),
    "autohorovod": importlib.util.find_spec("horovod"),
    "mpi": shutil.which("mpirun"),
    # The nodes of the test share /tmp, where Slurm's part of PMIx wants a folder for each; pmi2 is none of Open MPI's.
    "mpi --mpi=pmix --": shutil.which("mpirun") and importlib.util.find_spec("mpi4py"),
    "mpi --mpi=pmi2 --": True,
    "tensorflow": True,
}
# Open MPI 6 (a candidate at the time of writing) does not start its daemons through our agent.
ONE_NODE_ONLY = {"mpi"} if open_mpi() >= 6 else set()


def grid(name: str, values: list[str]) -> dict[str, Any]:
    return {
        "searcher": {"name": "grid", "metric": "validation_loss", "max_concurrent_trials": 8},
        "hyperparameters": {name: {"type": "categorical", "vals": values}},
    }


def test_every_launcher_on_one_node_and_on_two(on_slurm: User) -> None:
    user, names = on_slurm, [name for name, found in INSTALLED.items() if found]
    user.write("context/run.sh", ENTRYPOINT)
    user.write("context/train.py", PLACE)
    shape = {
        "entrypoint": "sh run.sh",
        "resources": {"slots_per_trial": 2},
        "environment": {"environment_variables": MPI},
        **grid("launcher", names),
    }
    shapes = {1: user.create(slurm={"slots_per_node": 2}, **shape)}
    shape.update(grid("launcher", [name for name in names if "pmix" not in name and name not in ONE_NODE_ONLY]))
    shapes[2] = user.create(slurm={"slots_per_node": 1}, **shape)
    for nodes, experiment in shapes.items():
        user.det("experiment", "wait", str(experiment))
        for trial in user.trials(experiment):
            log = user.det("trial", "logs", str(trial["id"]))
            places = re.findall(r"place (\d) of (\d) on (\S+)", log)
            if trial["hparams"]["launcher"] == "tensorflow":  # one worker for each node
                assert sorted(place[0] for place in places) == ["0", "1"][:nodes], log
            else:
                assert sorted(place[:2] for place in places) == [("0", "2"), ("1", "2")], log
            assert len({place[2] for place in places}) == nodes, log


FAULTS = """\
import json, os, signal, sys, time
fault = json.loads(os.environ["DET_HPARAMS"])["fault"]
if os.environ["RANK"] == "1":
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        print("the last words", file=sys.stderr, flush=True)
        sys.exit(3)
time.sleep(86321)
"""
FAULTY = """\
fault=$(python3 -c 'import json, os; print(json.loads(os.environ["DET_HPARAMS"])["fault"])')
[ "$fault" = option ] && set -- --no-such-option --
exec python3 -m determined.launch.torch_distributed "$@" python3 train.py
"""
HANG = """\
fault=$(python3 -c 'import json, os; print(json.loads(os.environ["DET_HPARAMS"])["fault"])')
[ "$fault" = hang ] && [ "$SLURM_NODEID" = 1 ] && sleep 86321
true
"""


def sleepers() -> list[str]:
    found = []
    for path in processes.files("cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            environ = path.with_name("environ").read_bytes()
        except OSError:
            continue
        if b"86321" in words or (b"train.py" in words and b'{"fault"' in environ):
            found.append(str(path))
    return found


@pytest.mark.everything
def test_what_fails_is_named_and_ends_everywhere(on_slurm: User) -> None:
    user = on_slurm
    user.write("context/run.sh", FAULTY)
    user.write("context/train.py", FAULTS)
    user.write("context/startup-hook.sh", HANG)
    wide = {"entrypoint": "sh run.sh", "resources": {"slots_per_trial": 2}, "slurm": {"slots_per_node": 1}}
    alive = user.create(**wide, max_restarts=1, **grid("fault", ["die", "exit", "option"]))
    # By themselves: seconds are short for nodes that do come, and a run whose nodes came too late is run again.
    impatient = {"environment_variables": ["DETHPC_RENDEZVOUS_TIMEOUT=3"]}
    silent = user.create(**wide, environment=impatient, **grid("fault", ["hang"]))
    described, logs, restarts, refused = "", {}, {}, 0
    for experiment in (alive, silent):
        user.det("experiment", "wait", str(experiment), code=1)
        described += user.det("experiment", "describe", str(experiment))
        for trial in user.trials(experiment):
            fault, number = trial["hparams"]["fault"], trial["id"]
            logs[fault], restarts[fault] = user.det("trial", "logs", str(number)), trial["restarts"]
            refused = number if fault == "option" else refused
    # The worker's own faults are tried again as often as allowed, a wrong option is not, a missing node does not count.
    assert restarts == {"die": 1, "exit": 1, "option": 0, "hang": 0}
    for fault, reason in (
        ("die", r"rank 1 on n\d: killed by signal 9 \(SIGKILL\).*after 1 restart"),
        ("exit", r"rank 1 on n\d: exit code 3: the last words.*after 1 restart"),
        ("option", r"unrecognized arguments: --no-such-option"),
        ("hang", r"these nodes had not joined: n\d \(node 1\)"),
    ):
        assert re.search(reason, described), described
        assert re.search(reason.partition(" .*after")[0].partition(".*after")[0], logs[fault]), logs[fault]
    assert "the last words" in logs["exit"]
    assert len(list(user.home.glob(f"runs/*.{refused}.*"))) == 1
    assert sleepers() == []
    wait_until(lambda: not jobs(user))


SLOW_CHECKPOINT = """\
import json, os, sys, time
import determined as det
info = det.get_cluster_info()
distributed = det.core.DistributedContext.from_torch_distributed()
with det.core.init(distributed=distributed) as core:
    state, start = [], 0
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            state = [int(line) for name in ("first", "second") for line in (path / name).read_text().split()]
        start = len(state)
        assert state == list(range(start)), state
    print(f"starting at step {start}", flush=True)
    for step in range(start, 12):
        state.append(step)
        time.sleep(0.1)
        if step % 4 == 3 and distributed.rank == 0:
            with core.checkpoint.store_path({"steps_completed": step + 1}) as (path, uuid):
                half = len(state) // 2
                (path / "first").write_text("\\n".join(map(str, state[:half])))
                print(f"writing at step {step + 1}", flush=True)
                stop = os.path.join(os.path.dirname(os.environ["DETHPC_INFO"]), "stop.json")
                while step + 1 == info.trial.hparams["held"] and not info.latest_checkpoint and not os.path.exists(stop):
                    time.sleep(0.05)  # the first run is still writing when its job is taken away
                time.sleep(0.3)  # core looks for the file five times a second
                (path / "second").write_text("\\n".join(map(str, state[half:])))
        if step % 4 == 3 and core.preempt.should_preempt() and step < 11:
            sys.exit(0)
    if distributed.rank == 0:
        core.train.report_validation_metrics(steps_completed=12, metrics={"validation_loss": sum(state)})
"""
TWO_NODES: dict[str, Any] = {
    "entrypoint": "python3 -m determined.launch.torch_distributed python3 train.py",
    "resources": {"slots_per_trial": 2},
    "slurm": {"slots_per_node": 1},
}


def test_preempted_in_the_middle_of_a_checkpoint(on_slurm: User) -> None:
    user = on_slurm
    user.write("context/train.py", SLOW_CHECKPOINT)
    experiment = user.create(hyperparameters={"held": 4}, **TWO_NODES)
    wait_until(lambda: "writing at step 4" in user.log(experiment))
    whole = ["--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
    slurm_command(user, "sbatch", *whole)

    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    starts = re.findall(r"rank=0.*starting at step (\d+)", user.log(experiment))
    # Whole or not at all: on a machine so busy that the grace is too short for it, the trial begins again.
    assert starts in (["0", "4"], ["0", "0"]), user.log(experiment)
    assert trial["restarts"] == 0
    assert trial["bestValidation"]["metrics"]["avgMetrics"]["validation_loss"] == sum(range(12))


def test_a_node_that_is_lost_costs_no_restart(slurm_private: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = slurm_private(nodes=3, gpus_per_node=1)
    with user_of(cluster, tmp_path) as user:
        user.write("context/train.py", SLOW_CHECKPOINT)
        experiment = user.create(max_restarts=0, hyperparameters={"held": 8}, **TWO_NODES)
        wait_until(lambda: "writing at step 8" in user.log(experiment))
        (job,) = jobs(user)
        nodes = slurm_command(user, "squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
        lost = slurm_command(user, "scontrol", "show", "hostnames", nodes).split()[1]
        outages.kill_node(cluster, lost, jobs_too=True)

        user.det("experiment", "wait", str(experiment))
        (trial,) = user.trials(experiment)
        assert trial["restarts"] == 0
        starts = re.findall(r"rank=0.*starting at step (\d+)", user.log(experiment))
        assert starts in (["0", "4"], ["0", "8"], ["0", "12"]), user.log(experiment)
