"""What the monkey plays with: a user's installation and a private Slurm, each on a small disk of its own."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from dethpc.deploy import processes, slurm_dev
from dethpc.deploy.slurm_dev import Cluster
from dethpc.domain.reports import Report
from dethpc.errors import DethpcError
from dethpc.rundir.files import read_json
from tests.cluster import outages
from tests.e2e.conftest import User, make_user, take_down
from tests.e2e.machines import slurm_apart

DISK = "256m"
PAGE = os.sysconf("SC_PAGE_SIZE")


class Damaged(NamedTuple):
    """A line of a journal that the monkey damaged, and what it had said."""

    run: str
    attempt: int
    report: Report


class Zombie(NamedTuple):
    """From then on, processes of that node (empty: of any node) may go on although Slurm has given their job up."""

    at: float
    node: str


@dataclass
class World:
    user: User
    cluster: Cluster
    notes: Path
    bin_without_slurm: Path  # for PATH: the system's commands without Slurm's
    disks: dict[str, Path]  # by what they hold: home, slurm. Empty where nothing can be mounted
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    reports: list[Damaged] = field(default_factory=list)
    damaged: set[Path] = field(default_factory=set)
    zombies: list[Zombie] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # jobs of the same user that are not dethpc's
    killed: set[int] = field(default_factory=set)  # trials that the user killed
    losses: list[str] = field(default_factory=list)  # what rebuilds said that they could not read
    bundles: set[Path] = field(default_factory=set)  # that were damaged, and that a master mends by itself
    imports: int = 0  # that were deleted in another home
    wrong: list[str] = field(default_factory=list)  # what a fault saw itself

    # --- processes --------------------------------------------------------------------------------------------------------

    def masters(self) -> list[int]:
        """Processes of masters of this home."""
        return [pid for pid, command in self.processes() if "dethpc.master" in command]

    def processes(self) -> Iterator[tuple[int, list[str]]]:
        """Every living process of this home or of a job of the cluster, with its command."""
        jobs = set(processes.job_processes(self.cluster.folder))
        home = f"DETHPC_HOME={self.user.home}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                mine = int(entry.name) in jobs or home in (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if mine and processes.alive(int(entry.name)):
                yield int(entry.name), command

    def daemon(self, name: str) -> list[int]:
        """The process of one of Slurm's daemons, if it runs: slurmctld, slurmd-n0."""
        pid = processes.read_pid_file(self.cluster.folder / "run" / f"{name}.pid")
        return [pid] if pid is not None and processes.is_daemon(pid, name, self.cluster.folder) else []

    def stepds(self) -> list[int]:
        found = []
        for pid in processes.job_processes(self.cluster.folder):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("slurmstepd"):
                    found.append(pid)
        return found

    # --- Slurm ------------------------------------------------------------------------------------------------------------

    def jobs(self, *states: str) -> list[str]:
        """Ids of dethpc's jobs. Raises DethpcError, TimeoutExpired."""
        listed = self.slurm("squeue", "--me", "--array", "--noheader", f"--states={','.join(states)}", "--format=%i %j")
        return [line.split()[0] for line in listed.splitlines() if not line.endswith(" mine")]

    def slurm(self, *words: str) -> str:
        return self.cluster.run(*words, timeout=40)

    def restart_controller(self) -> None:
        """Jobs that it had not written down yet when it was killed are forgotten by Slurm alone."""
        if not self.daemon("slurmctld"):
            outages.start_controller(self.cluster)
            self.strangers = [job for job in self.strangers if self.waits(job)]

    def waits(self, stranger: str) -> bool:
        """Whether the job of somebody else is where it was."""
        listed = self.slurm("squeue", "--me", "--noheader", "--states=PENDING", "--format=%i %j")
        return f"{stranger} mine" in listed.splitlines()

    def restart_node(self, name: str) -> None:
        """Raises DethpcError while the node does not come back into service."""
        states = self.cluster.node_states()
        if not states:
            raise DethpcError("slurmctld does not answer")
        if states.get(name, "").startswith(("down", "drain", "drng")):
            self.slurm("scontrol", "update", f"nodename={name}", "state=resume")
        if not self.daemon(f"slurmd-{name}"):
            outages.start_node(self.cluster, name)

    def stranger(self, *options: str, lasts: float = 3600) -> str:
        """Submit a job that is not dethpc's. Returns its id."""
        words = ["sbatch", "--parsable", "--job-name=mine", "--output=/dev/null", "--no-requeue", *options]
        return self.slurm(*words, f"--wrap=sleep {lasts:.1f}").strip()

    # --- files ------------------------------------------------------------------------------------------------------------

    def written(self) -> int:
        """How many bytes all trials have reported: it grows while anything goes on, whether a master lives or not."""
        total = 0
        for path in self.user.home.glob("runs/*/attempts/*/journal.jsonl"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        return total

    def fill(self, disk: str) -> Callable[[], None]:
        """Leave no free block on the disk. Returns what gives the room back."""
        place = self.disks[disk]
        for spare in range(16):  # it may grow while its size is set
            stat = os.statvfs(place)
            used = (stat.f_blocks - stat.f_bfree + spare) * stat.f_frsize
            with contextlib.suppress(OSError):
                _mount("-o", f"remount,size={max(used, PAGE)}", str(place))
                break
        return lambda: _mount("-o", f"remount,size={DISK}", str(place))

    def scratch(self) -> list[Path]:
        """What is in the folder that all nodes have for temporary files."""
        return sorted(Path(self.user.env["TMPDIR"]).iterdir())

    def live_runs(self) -> list[str]:
        """Runs that have been claimed by a job and not ended, by their files."""
        runs = self.user.home / "runs"
        found = []
        for run in sorted(os.listdir(runs)) if runs.is_dir() else []:
            attempts = sorted((runs / run).glob("attempts/*"), key=lambda path: int(path.name))
            if attempts and not (attempts[-1] / "end.json").exists():
                found.append(run)
        return found

    def master_file(self) -> dict[str, object]:
        return read_json(self.user.home / "master.json") or {}


def mountable(folder: Path) -> bool:
    """Whether a small disk can be mounted here (it needs root)."""
    probe = folder / "probe"
    probe.mkdir()
    can = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(probe)], capture_output=True, check=False
    )
    if can.returncode == 0:
        _unmount(probe)
    probe.rmdir()
    return can.returncode == 0


@contextlib.contextmanager
def world(folder: Path, **shape: object) -> Iterator[World]:
    """A user, a home and a private cluster in ``folder``, which all are gone afterwards."""
    disks = {name: folder / name for name in ("home", "slurm")} if mountable(folder) else {}
    with contextlib.ExitStack() as stack:
        for disk in disks.values():
            disk.mkdir()
            _mount("-t", "tmpfs", "-o", f"size={DISK},mode=700", "none", str(disk))
            stack.callback(_unmount, disk)
        cluster = slurm_dev.up(folder / "slurm" / "cluster", **shape)
        stack.callback(slurm_dev.down, folder / "slurm" / "cluster")
        scratch, notes = folder / "tmp", folder / "notes"
        scratch.mkdir()
        notes.mkdir()
        user = make_user(folder, DETHPC_SCHEDULER="slurm", SLURM_CONF=str(cluster.conf), TMPDIR=str(scratch))
        user.home.mkdir(exist_ok=True)
        site = {
            "limits": {"fastest_poll": 0.5, "slowest_poll": 3, "restart_delay": 0.1},
            "master": {"host": "127.0.0.1"},
            # To dethpc, trials that the monkey kills look like trials of a bad node.
            "bad_nodes": {"failures": 0},
        }
        (user.home / "site.yaml").write_text(yaml.safe_dump(site))
        made = World(user, cluster, notes, slurm_apart(folder / "path")[1], disks)
        stack.callback(take_down, user)
        stack.callback(_thaw, made)
        yield made


def _thaw(world: World) -> None:
    for pid in [*world.masters(), *world.daemon("slurmctld"), *world.stepds()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"mount {' '.join(words)}: {done.stderr.strip()}")


def _unmount(place: Path) -> None:
    for _ in range(50):
        if subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "-l", str(place)], check=True)
    shutil.rmtree(place, ignore_errors=True)
