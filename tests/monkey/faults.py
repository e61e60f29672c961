"""What the monkey can do, by kind. Each fault says whom it met, and returns what ends it, if it does not end by itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Optional

import yaml

from dethpc.deploy import processes
from dethpc.domain.reports import ReportKind
from dethpc.errors import DethpcError
from dethpc.master.durable import harness
from dethpc.rundir import journal
from tests.bits import flip
from tests.cluster import outages
from tests.e2e.machines import APART, Machine, without_slurm
from tests.monkey.world import Damaged, World, Zombie

Undo = Optional[Callable[[], object]]
Done = tuple[str, Undo]


class NothingThere(Exception):
    """There is nothing that this fault could meet at present."""


class Fault(NamedTuple):
    kind: str
    parts: tuple[str, ...]  # of the world. While something is done to a part, nothing else is done to it
    do: Callable[[World], Done]
    hold: tuple[float, float] = (0.0, 0.0)  # seconds until it is undone, at least and at most


def one_of(world: World, found: Iterable[str]) -> str:
    chosen = sorted(found)
    if not chosen:
        raise NothingThere
    return world.rng.choice(chosen)


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# --- the master -----------------------------------------------------------------------------------------------------------


def master_killed(world: World) -> Done:
    pids = world.masters()
    if not pids:
        raise NothingThere
    processes.kill(pids)
    return str(pids), None


def master_killed_and_raced_for(world: World) -> Done:
    """Four commands at once find no master."""
    target, _ = master_killed(world)
    det = [sys.executable, "-m", "dethpc.cli", "experiment", "list"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    racers = [subprocess.Popen(det, env=world.user.env, cwd=world.user.folder, **quiet) for _ in range(4)]  # type: ignore[call-overload]
    return target, lambda: [racer.wait(timeout=120) for racer in racers]


def master_frozen(world: World) -> Done:
    pids = world.masters()
    if not pids:
        raise NothingThere
    send(pids, signal.SIGSTOP)
    return str(pids), lambda: send(pids, signal.SIGCONT)


def master_stopped(world: World) -> Done:
    world.user.det("master", "down", code=None, timeout=60)
    return "det master down", None


def master_file_damaged(world: World) -> Done:
    path = world.user.home / "master.json"
    if not path.exists():
        raise NothingThere
    how = world.rng.choice(["empty", "garbage", "half"])
    before = path.read_bytes()
    path.write_bytes({"empty": b"", "garbage": b"\xff{}garbage", "half": before[: len(before) // 2]}[how])
    return how, None


def database_lost(world: World) -> Done:
    """The master dies, its database is gone: the files say everything again."""
    user = world.user
    processes.kill(world.masters())
    for path in user.home.glob("dethpc.db*"):
        path.unlink()
    refused = user.det("experiment", "list", code=None)
    said = refused + user.errors
    assert "det master rebuild" in said, f"a missing database was served: {said}"

    def rebuild() -> None:
        user.det("master", "rebuild", "--yes", code=None, timeout=300)
        if not (user.home / "dethpc.db").exists():
            raise OSError(f"not rebuilt: {user.errors}")
        world.losses.append(user.errors)

    return "dethpc.db", rebuild


def shell_without_slurm(world: World) -> Done:
    """The master dies, and the next ``det`` is one of cron, or by ``ssh login1 det ...``."""
    target, _ = master_killed(world)
    cron = without_slurm(world.user)
    del cron.env["DETHPC_SCHEDULER"]
    cron.env["PATH"] = f"{cron.env['PATH'].split(':')[0]}:{world.bin_without_slurm}"
    cron.det("experiment", "list", code=None, timeout=120)
    if (world.user.home / "local").exists():
        world.wrong.append("a shell without Slurm's commands started a master for this machine")
    return target, None


def second_host(world: World) -> Done:
    """The master ends, and the next ``det`` is that of another machine: a second login node, or one without a way to Slurm."""
    if not world.disks:
        raise NothingThere  # it needs root, as mounting does
    target, _ = master_stopped(world)
    cut_off = world.rng.random() < 0.5
    machine = Machine(world.user, "otherhost", APART if cut_off else [each for each in APART if each != "--net"])
    try:
        machine.det("experiment", "list", code=None, timeout=60)
    except BaseException:
        machine.end()
        raise

    def end() -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            machine.det("master", "down", code=None, timeout=60)
        machine.end()

    return f"{target}{', where Slurm gives no answer' if cut_off else ''}", end


# --- Slurm's daemons ------------------------------------------------------------------------------------------------------


def slurmctld_killed(world: World) -> Done:
    processes.kill(world.daemon("slurmctld"))
    return "slurmctld", world.restart_controller


def slurmctld_frozen(world: World) -> Done:
    outages.freeze_controller(world.cluster)
    return "slurmctld", partial(outages.thaw_controller, world.cluster)


def slurm_state_wiped(world: World) -> Done:
    """slurmctld forgets all jobs and gives their ids again, the first ones to jobs of somebody else."""
    processes.kill(world.daemon("slurmctld"))
    state = world.cluster.folder / "state"
    shutil.rmtree(state)
    state.mkdir(mode=0o755)
    world.zombies.append(Zombie(time.time(), ""))
    world.strangers.clear()

    def start() -> None:
        world.restart_controller()
        world.strangers += [world.stranger("--hold") for _ in range(3 - len(world.strangers))]

    with contextlib.suppress(DethpcError, subprocess.TimeoutExpired):
        start()
    return "StateSaveLocation", start


def slurmd_killed(world: World) -> Done:
    node = one_of(world, world.cluster.nodes)
    world.zombies.append(Zombie(time.time(), node))
    processes.kill(world.daemon(f"slurmd-{node}"))
    return node, partial(world.restart_node, node)


def slurmd_frozen(world: World) -> Done:
    node = one_of(world, world.cluster.nodes)
    pids = world.daemon(f"slurmd-{node}")
    world.zombies.append(Zombie(time.time(), node))
    send(pids, signal.SIGSTOP)

    def thaw() -> None:
        send(pids, signal.SIGCONT)
        world.restart_node(node)

    return node, thaw


def node_lost(world: World) -> Done:
    """Slurm gives the node up. What ran there is dead, or goes on and writes as before."""
    node = one_of(world, world.cluster.nodes)
    jobs_too = world.rng.random() < 0.5
    if not jobs_too:
        world.zombies.append(Zombie(time.time(), node))
    with contextlib.suppress(DethpcError, subprocess.TimeoutExpired):  # slurmctld may be away, too, and finds out later
        outages.kill_node(world.cluster, node, jobs_too=jobs_too)
    return f"{node}{' with its jobs' if jobs_too else ''}", partial(world.restart_node, node)


def slurmstepd_killed(world: World) -> Done:
    """What it started runs on, and Slurm does not know of it any more."""
    pid = int(one_of(world, map(str, world.stepds())))
    world.zombies.append(Zombie(time.time(), ""))
    processes.kill([pid])
    return str(pid), None


def slurmstepd_frozen(world: World) -> Done:
    pid = int(one_of(world, map(str, world.stepds())))
    send([pid], signal.SIGSTOP)
    return str(pid), partial(send, [pid], signal.SIGCONT)


# --- what administrators do -----------------------------------------------------------------------------------------------


def partition_closed(world: World) -> Done:
    state = world.rng.choice(["DRAIN", "DOWN", "INACTIVE"])
    world.slurm("scontrol", "update", "partitionname=main", f"state={state}")
    return f"main {state}", partial(world.slurm, "scontrol", "update", "partitionname=main", "state=UP")


def node_drained(world: World) -> Done:
    node = one_of(world, world.cluster.nodes)
    state = world.rng.choice(["drain", "down"])
    if state == "down":
        world.zombies.append(Zombie(time.time(), node))
    world.slurm("scontrol", "update", f"nodename={node}", f"state={state}", "reason=monkey")
    return f"{node} {state}", partial(world.restart_node, node)


def preempted(world: World) -> Done:
    """Somebody's job of a higher partition takes a whole node."""
    node = one_of(world, world.cluster.nodes)
    gpus = world.cluster.shape.gpus_per_node
    job = world.stranger("-p", "high", "-w", node, f"--gres=gpu:{gpus}", lasts=world.rng.uniform(2, 6))
    return f"{node} by job {job}", None


# --- what users do --------------------------------------------------------------------------------------------------------


def job_cancelled(world: World) -> Done:
    job = one_of(world, world.jobs("PENDING", "RUNNING"))
    world.slurm("scancel", job)
    return job, None


def job_requeued(world: World) -> Done:
    job = one_of(world, world.jobs("RUNNING"))
    world.slurm("scontrol", "requeue", job)
    return job, None


def job_suspended(world: World) -> Done:
    job = one_of(world, world.jobs("RUNNING"))
    world.slurm("scontrol", "suspend", job)

    def resume() -> None:
        with contextlib.suppress(DethpcError):  # it may have ended or be forgotten
            world.slurm("scontrol", "resume", job)

    return job, resume


def job_held(world: World) -> Done:
    job = one_of(world, world.jobs("PENDING"))
    world.slurm("scontrol", "hold", job)

    def release() -> None:
        with contextlib.suppress(DethpcError):
            world.slurm("scontrol", "release", job)

    return job, release


def training_killed(world: World) -> Done:
    pid = one_of(world, map(str, trainings(world)))
    processes.kill([int(pid)])
    return pid, None


def trainings(world: World) -> list[int]:
    return [pid for pid, command in world.processes() if "train.py" in command]


def environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def task_killed(world: World) -> Done:
    """The process of dethpc on the node, and with it what watches over the training."""
    found = ((pid, command) for pid, command in world.processes() if "dethpc.exec" in command)
    pid = one_of(world, (str(pid) for pid, _ in found))
    world.zombies.append(Zombie(time.time(), ""))
    processes.kill([int(pid)])
    return pid, None


# --- disks and files ------------------------------------------------------------------------------------------------------


def home_full(world: World) -> Done:
    if "home" not in world.disks:
        raise NothingThere
    return "the home's disk", world.fill("home")


def slurm_full(world: World) -> Done:
    if "slurm" not in world.disks:
        raise NothingThere
    return "Slurm's disk", world.fill("slurm")


def journal_damaged(world: World) -> Done:
    """One bit of one report."""
    run = one_of(world, world.live_runs())
    paths = [path for path in (world.user.home / "runs" / run).glob("attempts/*/journal.jsonl") if path.stat().st_size]
    path = Path(one_of(world, map(str, paths)))
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [at for at, line in enumerate(lines) if line.endswith(b"\n")]
    if not whole:
        raise NothingThere
    at = world.rng.choice(whole)
    try:
        report = journal.from_line(lines[at])
    except ValueError:
        raise NothingThere from None  # damaged already
    position = sum(map(len, lines[:at])) + len(lines[at]) // 2
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0] ^ 0x01
        file.seek(position)
        file.write(bytes([byte if byte != 0x0A else 0x41]))
    world.damaged.add(path)
    world.reports.append(Damaged(run, int(path.parent.name), report))
    return f"{run}.{path.parent.name}, report {report.seq} ({report.kind})", None


def change_log_torn(world: World) -> Done:
    """A line that no master wrote, in the middle of what it writes."""
    path = Path(one_of(world, map(str, world.user.home.glob("experiments/*/changes.jsonl"))))
    with open(path, "ab") as file:
        file.write(b'{"garbage\xff"\n')
    world.damaged.add(path)
    return path.parent.name, None


def _damage(world: World, name: str) -> Done:
    found = [path for run in world.live_runs() for path in (world.user.home / "runs" / run).glob(name)]
    path = Path(one_of(world, map(str, found)))
    how = world.rng.choice(["empty", "garbage", "half"])
    before = path.read_bytes()
    path.write_bytes({"empty": b"", "garbage": b"\xff{}garbage", "half": before[: len(before) // 2]}[how])
    world.damaged.add(path)
    return f"{path.relative_to(world.user.home)} {how}", None


def end_report_damaged(world: World) -> Done:
    """A place where nobody expects anything else: the report of how an attempt ended, written before it ended."""
    run = one_of(world, world.live_runs())
    attempts = sorted((world.user.home / "runs" / run / "attempts").iterdir(), key=lambda path: int(path.name))
    (attempts[-1] / "end.json").write_bytes(b"\xff{}garbage")
    world.damaged.add(attempts[-1] / "end.json")
    return str(attempts[-1]), None


def checkpoint_damaged(world: World) -> Done:
    """A byte of the last checkpoint of a trial, which dies and needs it."""
    run = one_of(world, world.live_runs())
    attempts = sorted((world.user.home / "runs" / run / "attempts").iterdir(), key=lambda path: int(path.name))
    reports, _ = journal.read(attempts[-1] / "journal.jsonl")
    kept = [report.data["uuid"] for report in reports if report.kind == ReportKind.CHECKPOINT]
    if not kept:
        raise NothingThere
    path = world.user.home / "checkpoints" / kept[-1] / "state.json"
    content = path.read_bytes()
    path.write_bytes(content[:12] + bytes([content[12] ^ 1]) + content[13:])
    world.damaged.add(path)
    own = f"DET_ALLOCATION_ID={run}.{attempts[-1].name}"
    processes.kill([pid for pid in trainings(world) if own in environment(pid)])
    return f"{path.parent.name} of run {run}", None


def run_deleted(world: World) -> Done:
    """The directory of a run that trains, with all that it has reported; the training dies."""
    run = one_of(world, world.live_runs())
    path = world.user.home / "runs" / run
    own = [pid for pid in trainings(world) if any(f"DET_ALLOCATION_ID={run}." in each for each in environment(pid))]
    send(own, signal.SIGSTOP)  # so that what is deleted is known
    for attempt in (path / "attempts").iterdir():
        reports = journal.read_remains(attempt / "journal.jsonl").reports  # whatever else was damaged before
        world.reports += [Damaged(run, int(attempt.name), report) for report in reports]
    world.damaged.add(path)
    shutil.rmtree(path, ignore_errors=True)
    processes.kill(own)
    return run, None


def journal_cut(world: World) -> Done:
    """The second half of a journal is gone, in the middle of a line. Its writer does not notice, and leaves a hole."""
    run = one_of(world, world.live_runs())
    attempts = sorted((world.user.home / "runs" / run / "attempts").iterdir(), key=lambda path: int(path.name))
    path, name = attempts[-1] / "journal.jsonl", f"{run}.{attempts[-1].name}"
    if not path.exists():
        raise NothingThere
    writers = [pid for pid in trainings(world) if f"DET_ALLOCATION_ID={name}" in environment(pid)]
    send(writers, signal.SIGSTOP)  # so that what is cut off is known
    try:
        reports, size = journal.read(path)
        os.truncate(path, size // 2)
        kept, _ = journal.read(path)
    finally:
        send(writers, signal.SIGCONT)
    world.damaged.add(path)
    world.reports += [Damaged(run, int(attempts[-1].name), report) for report in reports[len(kept) :]]
    return f"{name}, {len(reports) - len(kept)} reports", None


def bundle_damaged(world: World) -> Done:
    """A bit of the code that every run starts with."""
    path = Path(one_of(world, map(str, (world.user.home / "harness").glob("harness-*.zip"))))
    if harness.damage(path):
        raise NothingThere  # the same bit again would mend it
    flip(path, at=b"dethpc/exec/node.pyc", behind=400)
    world.bundles.add(path)
    return path.name, None


def context_damaged(world: World) -> Done:
    path = Path(one_of(world, map(str, (world.user.home / "contexts").glob("*.tar.gz"))))
    flip(path)
    return path.name, partial(flip, path)


IMPORT_AND_DELETE = """
set -e
det="$PYTHON -m dethpc.cli"
DETHPC_HOME=$ORIGINAL $det experiment export --force $EXPERIMENT $ARCHIVE
$det experiment import --again $ARCHIVE
id=$($det experiment list --json | $PYTHON -c 'import json, sys; print(max(int(e["id"]) for e in json.load(sys.stdin)))')
$det experiment delete --yes $id
while $det experiment describe $id >/dev/null 2>&1; do sleep 0.3; done
echo deleted $id
"""


def import_deleted(world: World) -> Done:
    """Somebody takes the search into a home whose checkpoints go to the same folder, and deletes it there."""
    user = world.user
    experiment = one_of(world, (path.name for path in (user.home / "experiments").iterdir()))
    second = user.folder.parent / "second-home"
    second.mkdir(exist_ok=True)
    storage = {"type": "shared_fs", "host_path": str(user.home / "checkpoints")}
    site = {"checkpoint_storage": storage, "master": {"host": "127.0.0.1"}}
    (second / "site.yaml").write_text(yaml.safe_dump(site))
    env = {name: value for name, value in user.env.items() if name not in ("SLURM_CONF", "TMPDIR")}
    env |= {"DETHPC_HOME": str(second), "DETHPC_SCHEDULER": "local", "ORIGINAL": str(user.home), "PYTHON": user.python}
    env |= {"EXPERIMENT": experiment, "ARCHIVE": str(world.notes / "exported.zip")}
    words = ["timeout", "120", "sh", "-c", IMPORT_AND_DELETE]
    with open(world.notes / "imports.log", "ab") as log:
        there = subprocess.Popen(words, env=env, cwd=user.folder, stdout=log, stderr=log)

    def end() -> None:
        there.wait(timeout=150)
        down = [user.python, "-m", "dethpc.cli", "master", "down"]
        subprocess.run(down, env=env, cwd=user.folder, capture_output=True, timeout=60, check=False)
        if there.returncode == 0:
            world.imports += 1

    return f"experiment {experiment}", end


def trial_killed(world: World) -> Done:
    running = {int(run.split(".")[1]) for run in world.live_runs()} - world.killed
    trial = int(one_of(world, map(str, running)))
    world.killed.add(trial)
    world.user.det("trial", "kill", str(trial), code=None)
    return f"trial {trial}", None


FAULTS = (
    Fault("master killed", ("master",), master_killed),
    Fault("master killed, four started", ("master",), master_killed_and_raced_for, (1, 2)),
    Fault("master frozen", ("master",), master_frozen, (2, 25)),
    Fault("master stopped", ("master",), master_stopped),
    Fault("master.json damaged", ("master",), master_file_damaged),
    Fault("database lost, rebuilt", ("master", "home"), database_lost, (0, 3)),
    Fault("shell without Slurm", ("master",), shell_without_slurm),
    Fault("second host", ("master",), second_host, (2, 15)),
    Fault("slurmctld killed", ("slurmctld",), slurmctld_killed, (1, 15)),
    Fault("slurmctld frozen", ("slurmctld",), slurmctld_frozen, (1, 20)),
    Fault("StateSaveLocation wiped", ("slurmctld",), slurm_state_wiped),
    Fault("slurmd killed", ("nodes",), slurmd_killed, (1, 25)),
    Fault("slurmd frozen", ("nodes",), slurmd_frozen, (1, 25)),
    Fault("node lost", ("nodes",), node_lost, (1, 8)),
    Fault("slurmstepd killed", ("jobs",), slurmstepd_killed),
    Fault("slurmstepd frozen", ("jobs",), slurmstepd_frozen, (1, 8)),
    Fault("partition closed", ("partition",), partition_closed, (2, 8)),
    Fault("node drained or down", ("nodes",), node_drained, (2, 8)),
    Fault("preempted", ("nodes",), preempted),
    Fault("job cancelled", ("jobs",), job_cancelled),
    Fault("job requeued", ("jobs",), job_requeued),
    Fault("job suspended", ("jobs",), job_suspended, (1, 6)),
    Fault("job held", ("jobs",), job_held, (1, 6)),
    Fault("training killed", ("jobs",), training_killed),
    Fault("task process killed", ("jobs",), task_killed),
    Fault("home's disk full", ("home",), home_full, (1, 12)),
    Fault("Slurm's disk full", ("slurm disk",), slurm_full, (1, 8)),
    Fault("report damaged", ("files",), journal_damaged),
    Fault("change log damaged", ("files",), change_log_torn),
    Fault("claim damaged", ("files",), partial(_damage, name="claim")),
    Fault("started.json damaged", ("files",), partial(_damage, name="attempts/*/started.json")),
    Fault("spec.json damaged", ("files",), partial(_damage, name="spec.json")),
    Fault("run directory deleted", ("files",), run_deleted),
    Fault("journal cut", ("files",), journal_cut),
    Fault("checkpoint damaged", ("files",), checkpoint_damaged),
    Fault("end.json damaged", ("files",), end_report_damaged),
    Fault("harness bundle damaged", ("files",), bundle_damaged),
    Fault("context damaged", ("files",), context_damaged, (1, 15)),
    Fault("import deleted", ("master",), import_deleted, (1, 3)),
    Fault("trial killed by its user", ("master", "home"), trial_killed),
)
