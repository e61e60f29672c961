"""A private Slurm on this machine: the real daemons, several nodes on one host, everything in one folder.

``up`` writes the configuration and starts munged, slurmctld and one slurmd per node; ``down`` ends every process of that cluster,
job processes included, and removes the folder. Clusters in different folders do not know of each other. Root is not needed.

The folder:

    slurm.conf gres.conf        what SLURM_CONF points at, with a cgroup.conf where the release wants one
    cluster.json                how it was asked for
    run/ log/ state/ spool/     pid files, logs, slurmctld's state, one spool folder per node
    dev/                        one character device per GPU, as Slurm insists on (symbolic links to /dev/null)
"""

from __future__ import annotations

import json
import os
import pwd
import random
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from dethpc.deploy import accounting as accounting_daemons
from dethpc.deploy import processes
from dethpc.deploy.shape import NodeGroup, Shape
from dethpc.deploy.slurm_conf import cgroup_conf, gres_conf, slurm_conf
from dethpc.errors import DethpcError, NotFound, Refused

__all__ = ["Cluster", "NodeGroup", "Shape", "down", "in_use", "load", "status", "up"]

INSTALL = "apt-get install -y --no-install-recommends slurm-wlm munge"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "scontrol")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SOCKET_PATH_LIMIT = 60  # sun_path holds 108 bytes; Slurm and munge append names of their own


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs, or ran, in ``folder``."""

    folder: Path
    shape: Shape

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(name for group in self.shape.node_groups for name in group.names)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that make Slurm's commands use this cluster."""
        return {"PATH": search_path(), "SLURM_CONF": str(self.conf)}

    def run(self, *argv: str, check: bool = True, timeout: float = 300) -> str:
        """Run a command against this cluster; returns its stdout. Raises DethpcError when it fails and ``check`` is set."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        done = subprocess.run(
            argv,
            env={**environment, **self.env},
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode != 0:
            raise DethpcError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def node_states(self) -> dict[str, str]:
        """State by node, in Slurm's lower-case words (``idle``, ``mixed``, ``down*``, ...); empty when nobody answers."""
        try:
            lines = self.run("sinfo", "--noheader", "--Node", "--format=%N|%t").splitlines()
        except (DethpcError, subprocess.TimeoutExpired):
            return {}
        return dict(line.split("|", 1) for line in lines)

    def daemons(self) -> dict[str, bool]:
        """Whether each daemon runs, by name."""
        names = ["munged", *(("mariadbd", "slurmdbd") if self.shape.accounting else ()), "slurmctld"]
        return {name: bool(self.pids(name)) for name in [*names, *(f"slurmd-{node}" for node in self.nodes)]}

    def pids(self, daemon: str) -> list[int]:
        """The daemon's process, if it runs."""
        pid = processes.read_pid_file(self.folder / "run" / f"{daemon}.pid")
        return [pid] if pid is not None and processes.is_daemon(pid, daemon, self.folder) else []


START_SECONDS = 300.0
"""For a daemon to start, and for nodes to become idle, on a machine with much else to do. A daemon that dies is noticed at once."""


def up(folder: str | os.PathLike[str], shape: Shape | None = None, **options: object) -> Cluster:
    """Start a cluster in ``folder`` (new or empty) and wait until all its nodes are idle.

    ``options`` are fields of Shape. Raises DethpcError when packages are missing or a daemon does not start (nothing is left then),
    Refused when the folder is in use.
    """
    shape = shape or Shape(**options)  # type: ignore[arg-type]
    require_programs(shape)
    target = Path(folder).absolute()
    if target.exists() and any(target.iterdir()):
        raise Refused(f"{target} is not empty; take the cluster in it down first: det deploy slurm-dev down")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # a home that is new is its user's alone
    target.mkdir(exist_ok=True)
    cluster = Cluster(_short(target), shape)
    held = _free_ports(2 + len(cluster.nodes))
    try:
        _write(cluster, [int(listener.getsockname()[1]) for listener in held])
        _start(cluster)
    except BaseException as error:
        complaints = "".join(map(_complaints, sorted(cluster.folder.glob("log/*.log"))))
        down(target)
        if complaints and isinstance(error, DethpcError):
            raise DethpcError(f"the cluster did not start: {error}\n{complaints}") from None
        raise
    finally:
        for listener in held:
            listener.close()
    return cluster


def load(folder: str | os.PathLike[str]) -> Cluster:
    """The cluster in ``folder``. Raises NotFound when there is none."""
    path = Path(folder).absolute() / "cluster.json"
    try:
        facts = json.loads(path.read_text())
    except FileNotFoundError:
        raise NotFound(f"no cluster in {path.parent}") from None
    return Cluster(Path(facts["folder"]), Shape.from_json(facts["shape"]))


def in_use() -> Path | None:
    """The folder of the cluster that SLURM_CONF makes this shell use; None: that is no private one."""
    conf = os.environ.get("SLURM_CONF")
    folder = Path(conf).resolve().parent if conf else None
    return folder if folder is not None and (folder / "cluster.json").is_file() else None


def status(folder: str | os.PathLike[str]) -> tuple[dict[str, bool], dict[str, str]]:
    """Which daemons run, and the state of each node. Raises NotFound when there is no cluster in ``folder``."""
    cluster = load(folder)
    return cluster.daemons(), cluster.node_states()


def down(folder: str | os.PathLike[str]) -> int | None:
    """End every process of the cluster in ``folder`` and remove the folder. Returns how many daemons it ended; None: there is no
    cluster."""
    target = Path(folder).absolute()
    try:
        cluster = load(target)
    except NotFound:
        if target.is_dir() and not any(target.iterdir()):
            target.rmdir()
        return None
    daemons = [name for name, runs in cluster.daemons().items() if runs]
    for name in cluster.daemons():
        processes.kill(cluster.pids(name))
    while pids := processes.job_processes(cluster.folder):
        processes.kill(pids)
    if cluster.folder != target:
        cluster.folder.unlink()
    wait(lambda: _remove(target), 60, f"cannot remove {target}")
    return len(daemons)


def _remove(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def require_programs(shape: Shape) -> None:
    missing = [name for name in _PROGRAMS if not shutil.which(name, path=search_path())]
    if missing:
        raise DethpcError(
            f"a private Slurm needs {', '.join(missing)}, not installed here; on Debian or Ubuntu: {INSTALL}"
        )
    if shape.accounting:
        accounting_daemons.require_programs(search_path())


def search_path() -> str:
    return f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}".lstrip(":")


def _short(folder: Path) -> Path:
    """Unix socket paths are short: a deep folder is used through a symbolic link."""
    if len(os.fsencode(folder)) <= _SOCKET_PATH_LIMIT:
        return folder
    link = Path(tempfile.gettempdir()) / f"slurm-dev-{secrets.token_hex(4)}"
    link.symlink_to(folder)
    return link


def _write(cluster: Cluster, ports: list[int]) -> None:
    folder, shape = cluster.folder, cluster.shape
    folder.chmod(0o755)
    facts = {"folder": str(folder), "shape": asdict(shape)}
    (folder / "cluster.json").write_text(json.dumps(facts, indent=2) + "\n")
    for name in ("run", "log", "state", "spool", "dev"):
        (folder / name).mkdir()
        (folder / name).chmod(0o755)  # whatever the umask
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    (folder / "gres.conf").write_text("".join(gres_conf(shape, folder)))
    (folder / "slurm.conf").write_text("\n".join(slurm_conf(shape, folder, _user(), ports)) + "\n")
    if text := cgroup_conf(cluster.run("slurmd", "-V")):
        (folder / "cgroup.conf").write_text(text)
    for conf in folder.glob("*.conf"):
        conf.chmod(0o644)  # whatever the umask: other users of the machine submit here, too
    if shape.accounting:
        accounting_daemons.write(folder, ports[-1], _user())


def _start(cluster: Cluster) -> None:
    folder = cluster.folder
    munged = ["munged", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/run/munge.socket"]
    munged += [f"--pid-file={folder}/run/munged.pid", f"--log-file={folder}/log/munged.log"]
    start_daemon(cluster, [*munged, f"--seed-file={folder}/run/munge.seed", "--num-threads=2"], "munged")
    if cluster.shape.accounting:
        accounting_daemons.start(folder, lambda argv, name: start_daemon(cluster, argv, name))
    start_daemon(cluster, ["slurmctld", "-f", str(cluster.conf)], "slurmctld")
    for node in cluster.nodes:
        start_daemon(cluster, ["slurmd", "-N", node, "-f", str(cluster.conf)], f"slurmd-{node}")

    def idle() -> bool:
        dead = [name for name, runs in cluster.daemons().items() if not runs]
        if dead:
            raise DethpcError(f"{dead[0]} died")
        return cluster.node_states() == dict.fromkeys(cluster.nodes, "idle")

    wait(idle, START_SECONDS, "the nodes do not become idle")
    if cluster.shape.accounting:
        accounting_daemons.register(cluster.run, _user(), cluster.shape.accounts)


def start_daemon(cluster: Cluster, argv: list[str], name: str) -> None:
    """Start a daemon that puts itself into the background, and wait for its pid file."""
    environment = {"PATH": search_path(), "SLURM_CONF": str(cluster.conf), "HOME": os.environ.get("HOME", "/")}
    environment["MYSQL_UNIX_PORT"] = f"{cluster.folder}/run/mariadb.socket"
    log = cluster.folder / "log" / f"{name}.start.log"
    with log.open("ab") as out:
        done = subprocess.run(
            argv,
            env=environment,
            cwd=cluster.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=START_SECONDS,
        )
    if done.returncode != 0:
        raise DethpcError(f"{name}: exit code {done.returncode}")
    wait(
        lambda: cluster.daemons().get(name, False),
        START_SECONDS,
        f"{name} did not start; see {cluster.folder}/log/{name}.log",
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _free_ports(count: int) -> list[socket.socket]:
    """Sockets bound to free ports below the kernel's ephemeral range, so that no outgoing connection takes one.

    While they stay open no other cluster that starts gets the ports, and yet daemons may listen there, who all set SO_REUSEADDR:
    Linux lets a socket pass that does not listen itself.
    """
    sockets: list[socket.socket] = []
    candidates = list(range(17000, 32000))
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        held = socket.socket()
        try:
            held.bind(("", port))
        except OSError:
            held.close()
            continue
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sockets.append(held)
        if len(sockets) == count:
            return sockets
    for held in sockets:
        held.close()
    raise DethpcError("no free TCP ports")


def wait(condition: Callable[[], bool], timeout: float, complaint: str) -> None:
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise DethpcError(complaint)
        time.sleep(0.05)


def _complaints(log: Path, limit: int = 5) -> str:
    """The last lines of a log that say what is wrong."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if _BAD.search(line)]
    return "".join(f"{log.name}: {line}\n" for line in lines[-limit:])


_BAD = re.compile("error|fatal|denied|refused|unable|cannot", re.IGNORECASE)
