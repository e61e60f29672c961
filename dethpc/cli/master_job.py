"""The user's own master as a Slurm job, for sites whose login nodes end long-running processes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from dethpc import errors
from dethpc.cli import master_process, output
from dethpc.rundir.home import Home

_PATIENCE = 120.0  # seconds


def up(
    root: Path,
    *,
    port: Optional[int] = None,
    host: Optional[str] = None,
    sbatch_args: Sequence[str] = (),
    why: str = "",
) -> str:
    """Submit the master of this home unless it is submitted already, and wait for it; returns its URL. ``why`` is told with it.

    It is a singleton: of several jobs of this name Slurm runs one at a time, so that a requeued one finds its place free. Raises
    SchedulerUnavailable, SubmitRejected, and MasterUnreachable where it has not started in two minutes.
    """
    if shutil.which("sbatch") is None:
        raise errors.SchedulerUnavailable(f"sbatch is not on PATH: {why or '--slurm'} needs a Slurm login node")
    log, name = Home(root).log, job_name(root)
    job = _submitted(name)
    if job is None:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        job = _submit(root, name, port, host, sbatch_args)
        what = "submitted the master as"
    else:
        what = "the master is already submitted as"
    output.say(f"{what} job {job}{f' ({why})' if why else ''}; waiting for it to start ...")
    url = master_process.wait_until_it_answers(root, timeout=_PATIENCE)
    if url is None:
        raise errors.MasterUnreachable(
            f"job {job} has not brought a master up within two minutes, and stays submitted; see squeue --me --name={name} "
            f"and {log}"
        )
    output.say(f"started master at {url}")
    return url


def _submit(root: Path, name: str, port: Optional[int], host: Optional[str], sbatch_args: Sequence[str]) -> str:
    run = f"cd {shlex.quote(master_process.folder())} && exec {shlex.join(master_process.command(root, port, host or '0.0.0.0'))}"
    argv = ["sbatch", "--parsable", f"--job-name={name}", "--dependency=singleton", "--requeue", "--open-mode=append"]
    argv += [f"--output={Home(root).log}", "--ntasks=1", *sbatch_args, f"--wrap={run}"]
    done = subprocess.run(argv, capture_output=True, text=True, env=master_process.environment(), check=False)
    if done.returncode != 0:
        raise errors.SubmitRejected(f"sbatch refused the master's job: {done.stderr.strip() or done.stdout.strip()}")
    numbers = re.findall(r"^\s*(\d+)(?:;.*)?$", done.stdout, re.MULTILINE)  # a site's sbatch may print other lines
    return numbers[0] if len(numbers) == 1 else name


def _submitted(name: str) -> Optional[str]:
    """The job that is to bring the master up, if one waits or runs: another would wait behind it, and follow it one day."""
    command = ["squeue", "--me", f"--name={name}", "--noheader", "--states=PENDING,CONFIGURING,RUNNING", "--format=%A"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    numbers = re.findall(r"^\s*(\d+)\s*$", done.stdout, re.MULTILINE) if done.returncode == 0 else []
    return numbers[0] if numbers else None


def job_name(root: Path) -> str:
    """The same for the same home: that is what --dependency=singleton goes by."""
    import hashlib

    return f"det-master-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
