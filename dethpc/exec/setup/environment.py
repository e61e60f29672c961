"""The environment of user code: Determined's variables, the user's own, and Slurm's as its batch script has them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import Any, Iterator, Mapping, NamedTuple, Optional

from dethpc.domain.secrets import masked
from dethpc.exec import pip_shim
from dethpc.exec.place import Place
from dethpc.exec.resume import Resume
from dethpc.exec.single_node import Meeting, Start
from dethpc.rundir.spec import TRIAL, Spec

_BATCH = "DETHPC_SLURM"
_OUR_INPUT = (
    "DETHPC_ADDRESSES",
    "DETHPC_NODES",
    "DETHPC_NODE_RANK",
    "DETHPC_WORKDIR_BASE",
    "DETHPC_DEADLINE",
    "DETHPC_ELEMENT",
    "DETHPC_READY",
    "DETHPC_SIGNAL",
)
# What Slurm and srun tell a process of the job, and what they take from one as requests.
_SLURMS = re.compile(
    r"SLURM|SBATCH_|SRUN_|PMI|(CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)$"
)
# What a task of ``srun --ntasks-per-node=1`` is told of itself and its step. The rest of what srun sets are its own requests, which
# an srun or an mpirun below would take for its own, and addresses of the srun that runs dethpc.exec.
_TASKS = re.compile(
    r"SLURM_(PROCID|LOCALID|NODEID|GTIDS|TASK_PID|TOPOLOGY_ADDR.*|CPUS_ON_NODE|\w+_ON_NODE|NTASKS|NPROCS|NTASKS_PER_NODE|TASKS_PER_NODE"
    r"|STEPID|STEP_(ID|GPUS|NODELIST|NUM_NODES|NUM_TASKS|TASKS_PER_NODE))$|SLURMD_NODENAME$"
    r"|(CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)$"
)


def restored(environ: Mapping[str, str], task: bool) -> dict[str, str]:
    """``environ`` with Slurm's variables as the batch script got them, which ``DETHPC_SLURM`` has, in place of those of the step
    that dethpc.exec is.

    ``task``: user code runs on each of several nodes, so it is told what a task of ``srun --ntasks-per-node=1`` is told.
    """
    if _BATCH not in environ:  # not started through Slurm
        return dict(environ)
    batch = dict(_entries(environ[_BATCH]))
    inherited = {name: value for name, value in environ.items() if name != _BATCH and not _SLURMS.match(name)}
    own = {name: value for name, value in environ.items() if task and _TASKS.match(name)}
    return {**inherited, **batch, **own}


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each ``NAME=VALUE``: in the value a blank is ``%20``, a newline ``%0A``, a percent sign ``%25``."""
    for entry in filter(None, text.split(" ")):
        name, _, value = entry.partition("=")
        yield name, value.replace("%20", " ").replace("%0A", "\n").replace("%25", "%")


def slots_here(spec: Spec, rank: int) -> int:
    """Slots of node ``rank``; the last node may have fewer."""
    return max(0, min(spec.slots_per_node or spec.slots, spec.slots - rank * (spec.slots_per_node or spec.slots)))


def slot_ids(count: int, environ: Mapping[str, str]) -> list[int]:
    """The devices' own numbers where the scheduler gives numbers; 0, 1, ... where it gives UUIDs or MIG names, or
    nothing."""
    visible = [item.strip() for item in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if item.strip()]
    if len(visible) == count and all(item.isdigit() for item in visible):
        return [int(item) for item in visible]
    return list(range(count))


def gpu_uuids(spec: Spec, count: int, environ: Mapping[str, str]) -> list[str]:
    """UUIDs of this node's GPUs that belong to the attempt; empty when nobody can tell."""
    visible = [item.strip() for item in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if item.strip()]
    if visible and not any(item.isdigit() for item in visible):
        return visible
    if spec.slot_type != "cuda" or not count or shutil.which("nvidia-smi") is None:
        return []
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    pairs = [line.split(", ") for line in listed.stdout.splitlines() if ", " in line]
    return [pair[1].strip() for pair in pairs if not visible or pair[0].strip() in visible]


_LONGEST = (128 << 10) - 100
"""Characters of one JSON text, which is ASCII: Linux starts no program with a variable of 128 KiB, its name included."""


class Master(NamedTuple):
    """``certificate``: the file of the certificate that the master made, which programs other than dethpc's verify it by."""

    url: str  # "" when none is known
    certificate: Optional[str] = None


def for_user(
    spec: Spec, place: Place, resume: Resume, master: Master, directory: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Variables for the hook and the entrypoint. The token is not among them."""
    env = {name: value for name, value in environ.items() if name not in _OUR_INPUT}
    harness = env.get("PYTHONPATH", "")
    env.setdefault("PYTHONUNBUFFERED", "1")  # or the log comes in lumps, and never when the process is killed
    env.update(spec.environment)
    if "PYTHONPATH" in spec.environment and harness:
        env["PYTHONPATH"] = f"{harness}{os.pathsep}{spec.environment['PYTHONPATH']}"
    allocation = f"{spec.run}.{place.k}"
    for name in (*_OF_TRIALS, "DET_HPARAMS", "DET_EXPERIMENT_CONFIG"):
        env.pop(name, None)
    env.update(
        DET_MASTER=master.url,
        DET_CLUSTER_ID=spec.cluster_id,
        DET_AGENT_ID=place.name,
        DET_ALLOCATION_ID=allocation,
        DET_TASK_ID=spec.task_id,
        DET_TASK_TYPE=spec.kind.upper(),
        DET_RESOURCES_ID=f"{allocation}.{place.rank}",
        DET_CONTAINER_ID=f"{allocation}.{place.rank}",
        DET_SLOT_IDS=json.dumps(slot_ids(slots_here(spec, place.rank), environ)),
        DET_WORKDIR=directory,
    )
    if spec.kind == TRIAL:
        env.update(_of_trial(spec, resume))
    if "SLURM_JOB_ID" in env:
        env["SLURM_SUBMIT_DIR"] = directory  # where scripts go first
    if master.certificate:
        env["DET_MASTER_CERT_FILE"] = master.certificate
    env.pop("DET_TRIAL_DIR", None)
    if spec.trial_dir:
        env["DET_TRIAL_DIR" if spec.kind == TRIAL else "DETHPC_TASK_DIR"] = spec.trial_dir
    env.pop("DET_LATEST_CHECKPOINT", None)
    if resume.checkpoint:
        env["DET_LATEST_CHECKPOINT"] = resume.checkpoint
    if spec.det_prefix:
        _keep_pip_out(env, spec.det_prefix)
    return env


_OF_TRIALS = ("DET_EXPERIMENT_ID", "DET_TRIAL_ID", "DET_TRIAL_RUN_ID", "DET_TRIAL_SEED", "DET_STEPS_COMPLETED")


def _of_trial(spec: Spec, resume: Resume) -> dict[str, str]:
    """What only the task of a trial is told."""
    numbers = (spec.experiment_id, spec.trial_id, spec.run_number, spec.trial_seed, resume.steps)
    env = dict(zip(_OF_TRIALS, map(str, numbers)))
    for name, value in (
        ("DET_HPARAMS", spec.hparams),
        ("DET_EXPERIMENT_CONFIG", masked(spec.config)),  # what prints its environment tells none of its secrets
    ):
        text = json.dumps(value)
        if len(text) < _LONGEST:
            env[name] = text
    return env


def _keep_pip_out(env: dict[str, str], prefix: str) -> None:
    """Of the interpreter that serves det: a package that a job changes there can keep det from starting."""
    message = (
        f"dethpc: pip is kept out of {prefix}: it serves det, and what a job installs there can break it. Install it where you "
        "type det, or in startup-hook.sh, for which the experiment gets an environment of its own."
    )
    pip_shim.keep_out(env, prefix, 1, message)
    if "VIRTUAL_ENV" in env and os.path.realpath(env["VIRTUAL_ENV"]) == os.path.realpath(prefix):
        del env["VIRTUAL_ENV"]  # where uv installs


def cluster_info(
    start: Start,
    meeting: Meeting,
    master: Master,
    stop_at: Optional[float],
    environ: Mapping[str, str],
    folders: Mapping[str, str],
) -> dict[str, Any]:
    """What ``get_cluster_info()`` reads; its layout is stated in ``core/_info``. ``folders`` are this node's."""
    run, spec, place, _ = start
    attempt = run.attempt(place.k)
    count = slots_here(spec, place.rank)
    info: dict[str, Any] = {
        "run": spec.run,
        "attempt": place.k,
        "run_dir": str(run.path),
        "attempt_dir": str(attempt.path),
        "journal": str(attempt.journal),
        "master_file": spec.master_file,
        "master_url": master.url,
        "master_cert_file": master.certificate,
        "cluster_id": spec.cluster_id,
        "agent_id": place.name,
        "slurm_job_id": environ.get("SLURM_JOB_ID"),
        "slot_ids": slot_ids(count, environ),
        "task_id": spec.task_id,
        "allocation_id": f"{spec.run}.{place.k}",
        "session_token": spec.token,
        "worker_secret": spec.among_workers,
        "task_type": spec.kind.upper(),
        "latest_checkpoint": meeting.resume.checkpoint,
        "trial": None
        if spec.kind != TRIAL
        else {
            "trial_id": spec.trial_id,
            "experiment_id": spec.experiment_id,
            "trial_seed": spec.trial_seed,
            "hparams": spec.hparams,
            "config": spec.config,
            "steps_completed": meeting.resume.steps,
            "trial_run_id": spec.run_number,
            "debug": spec.settings.debug,
            "inter_node_network_interface": environ.get("DET_INTER_NODE_NETWORK_INTERFACE"),
            "search": spec.search,
        },
        "rendezvous": {
            "container_addrs": [member.address for member in meeting.members],
            "container_rank": place.rank,
            "container_slot_counts": [member.slots for member in meeting.members],
        },
        "resources": {"gpu_uuids": gpu_uuids(spec, count, environ)},
        "ports": meeting.ports,
        "checkpoint_storage": spec.checkpoint_storage or None,
        "experiment_uuid": spec.queue_id,
        "folders": dict(folders),
        "details": dict(spec.details),
    }
    if stop_at is not None:
        info["stop_at"] = stop_at
    return info
