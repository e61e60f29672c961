"""Start the user's own master in the background and wait until it answers."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from dethpc import errors
from dethpc.cli import output
from dethpc.rundir.home import Home
from dethpc.rundir.process import lives, stat_fields
from dethpc.rundir.token import read as read_token

if TYPE_CHECKING:
    import subprocess

    from dethpc.client import Session
    from dethpc.config.site import Master, SiteConfig

_PATIENCE = 8.0  # seconds; a master that ends, or is busy, may need some of it
_ROOM = 16 << 20  # bytes that a master wants on its disk: a start writes about one, and must not stop soon after
_TIMEOUT = 60.0  # seconds; a login node's first import from a cold file system may take half of it


def up(*, port: Optional[int] = None) -> str:
    """Start a master detached from this terminal unless one answers already; returns its URL.

    Of two that start at once the lease lets one live: the other exits, and both callers find the winner.
    Raises MasterUnreachable with the end of its log when none answers in time, and when one lives and does not answer; RunDirError
    when the owner's token is damaged.
    """
    import subprocess  # here: most commands find a master, and start none

    from dethpc.client import home

    root = home().absolute()
    read_token(Home(root).token)
    if (url := _answer_of_a_live_one(root)) is not None:
        return url
    if (section := section_of_a_job(root)) is not None:
        from dethpc.cli import master_job

        return master_job.up(root, port=port, sbatch_args=section.sbatch_args, why="master.where: slurm")
    log = Home(root).log
    first = not Home(root).database.exists()
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = _size(log)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        remedy = f". A file belongs there: rm -r {log}" if isinstance(error, IsADirectoryError) else ""
        why = full_disk(root) or f"{log}: {error.strerror}{remedy}"
        raise errors.MasterUnreachable(f"the master did not start: {why}") from error
    if sys.stderr.isatty():
        output.say("starting your master ...")  # the first time takes seconds: a database is made
    with open(file, "wb") as sink:
        process = subprocess.Popen(
            command(root, port),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder(),
            start_new_session=True,
            env=environment(),
        )
    try:
        url = wait_until_it_answers(root, process=process)
    except KeyboardInterrupt:
        process.terminate()  # nobody knows of it yet
        raise
    if url is None:
        if process.poll() is None:
            process.terminate()
        why = full_disk(root) or f"the end of {log}:\n{_new_lines(log, before)}"
        raise errors.MasterUnreachable(f"the master did not start; {why}")
    process.returncode = 0  # it outlives this command: subprocess need not warn of that
    output.say(f"started master at {url}")
    if first:
        _doubt(root)
    return url


def site(root: Path) -> SiteConfig:
    """What the site says of a master of this home. Raises ConfigError."""
    from dethpc.config.site import find_site, load_site

    return load_site(find_site(os.environ, root))


def section_of_a_job(root: Path) -> Optional[Master]:
    """What the site says of its masters where it wants none on login nodes, else None; one that trains on this machine is none of
    Slurm's."""
    configuration = site(root)
    kind = os.environ.get("DETHPC_SCHEDULER") or configuration.scheduler
    return configuration.master if configuration.master.where == "slurm" and kind != "local" else None


def _answer_of_a_live_one(root: Path) -> Optional[str]:
    """The URL of the master that runs on this host, None when there is none. Raises MasterUnreachable when it stays silent."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        held = read_master_file(root)
        url = held.get("url")
        if not url or held.get("host") != socket.gethostname() or not lives(held):
            return None
        if answers(url):
            return str(url)
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    pid = int(held["pid"])
    if _is_unproved(url):
        raise errors.MasterUnreachable(
            f"the master at {url} (pid {pid}) does not know the token in {Home(root).token}: the file was changed after it "
            "started.\nTo start one with this token: det master down; the next det command starts it. Logins and access tokens end "
            "with the old token; nothing else is lost, and trials continue."
        )
    go_on = f" (it is suspended: kill -CONT {pid} resumes it)" if _is_stopped(pid) else ""
    raise errors.MasterUnreachable(
        f"the master at {url} (pid {pid}) runs and does not answer{go_on}.\n"
        f"To replace it: kill -9 {pid}; the next det command starts another. Nothing is lost, and trials continue."
    )


def _is_unproved(url: str) -> bool:
    """Whether a server answers at ``url`` that does not know the token of this home's file."""
    try:
        _met(url)
    except (errors.DethpcError, ValueError) as error:
        return isinstance(error, errors.Unauthorized)
    return False


def _is_stopped(pid: int) -> bool:
    return stat_fields(pid)[:1] in ([b"T"], [b"t"])


def _doubt(root: Path) -> None:
    """Say once what the master's log says at each start."""
    from dethpc.rundir.filesystem import filesystem, sqlite_warning

    if doubt := sqlite_warning(filesystem(root), str(root), site(root).database):
        output.say(f"note: {doubt}")


def command(root: Path, port: Optional[int] = None, host: Optional[str] = None) -> list[str]:
    """The command that runs a master in the foreground."""
    argv = [sys.executable, "-m", "dethpc.master", "--home", str(root)]
    if host is not None:
        argv += ["--host", host]
    if port is not None:
        argv += ["--port", str(port)]
    return argv


def environment() -> dict[str, str]:
    """This one, without what speaks to a master, such as DET_MASTER and DET_PASS; a path stays what it was in this folder."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    if variables.get("DETHPC_SITE_CONFIG"):
        variables["DETHPC_SITE_CONFIG"] = os.path.abspath(variables["DETHPC_SITE_CONFIG"])
    return variables


def folder() -> str:
    """The folder to start in: a source tree that is not installed is found there, and PYTHONPATH stays as the user set it."""
    import sysconfig

    import dethpc

    parent = str(Path(dethpc.__file__).resolve().parents[1])
    return "/" if parent in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) else parent


def wait_until_it_answers(
    root: Path, *, process: Optional[subprocess.Popen[bytes]] = None, timeout: float = _TIMEOUT
) -> Optional[str]:
    """The URL of a master that answers, or None. Once ``process`` has ended, only another live master is worth a wait."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended = process is not None and process.poll() is not None
        held = read_master_file(root)
        if held.get("url") and answers(held["url"]):
            return str(held["url"])
        if ended and not _may_live(held):
            return None
        time.sleep(0.05)
    return None


def stop(root: Path, timeout: float = 30.0) -> Optional[int]:
    """End the master of this home; its process number, None when none runs. Raises Refused, MasterError."""
    held = read_master_file(root)
    pid, host = int(held.get("pid") or 0), held.get("host")
    if pid and host != socket.gethostname():
        raise errors.Refused(f"the master runs on {host} (pid {pid}): stop it there, or cancel its job if it is one")
    if not lives(held):
        return None
    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile: as wished
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while lives(held):
        if time.monotonic() > deadline:
            raise errors.MasterError(
                f"the master (pid {pid}) has not ended within {timeout:g} s; end it with kill -9 {pid}: nothing is lost"
            )
        time.sleep(0.05)
    return pid


def _may_live(held: dict[str, Any]) -> bool:
    """Whether the master that wrote ``held`` may be alive; on another host nobody can tell from here."""
    return bool(held.get("pid")) and (held.get("host") != socket.gethostname() or lives(held))


def read_master_file(root: Path) -> dict[str, Any]:
    """``master.json``; {} when there is none, or a damaged one: a master that lives writes that again."""
    master = Home(root).own_master()
    return master if isinstance(master.get("pid") or 0, int) else {}


def answers(url: str) -> bool:
    """Whether this user's master answers at ``url``: the port may be somebody else's by now, who can prove nothing."""
    return reached(url) is not None


def reached(url: str) -> Optional[Session]:
    """A session with this user's master, over the connection on which it has just answered; None where it does not answer."""
    from dethpc.client import home

    try:
        session = _met(url)
    except (errors.DethpcError, ValueError):
        return None
    about: Any = session.about
    cluster_id = read_master_file(home()).get("cluster_id")
    if cluster_id and about.get("clusterId") != cluster_id:
        return None
    if about.get("trouble"):
        output.say(f"note: the master answers, and {about['trouble']}")
    if about.get("notice"):
        output.say(f"note: {about['notice']}")
    return session


def _met(url: str) -> Session:
    """A session over the connection on which the server at ``url`` has just shown that it knows this home's token, with what it
    says of itself. Raises DethpcError, ValueError."""
    from dethpc.client import Session, token
    from dethpc.client.proof import OwnerToken, proved_token
    from dethpc.client.transport import HttpTransport

    key = token(url)
    transport = HttpTransport(url, proved_token(key))
    session = Session(transport, key)
    quick = Session(transport, key, timeout=5.0, retries=0)
    session.about = quick.get("/api/v1/master")
    if isinstance(key, OwnerToken):  # by the Unix socket nothing has shown yet that the master knows it
        with contextlib.suppress(errors.MasterUnreachable):  # it cannot tell while its database gives no answer
            quick.get("/api/v1/me")
    return session


def full_disk(root: Path) -> str:
    """That the disk of the home is full, or its quota used up, with what to do; "" where a master can write."""
    import shutil
    import tempfile

    there = next(folder for folder in (root, *root.parents) if folder.is_dir())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = output.size(shutil.disk_usage(there).free)
            return (
                f"{there}: {error.strerror} ({free} left). A master needs {output.size(_ROOM)} there: make room, then try again. "
                "Running trials continue"
            )
    return ""


def last_lines(text: str, count: int = 15) -> str:
    lines: Sequence[str] = text.rstrip().splitlines()
    return "\n".join(lines[-count:]) or "(nothing was written)"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _new_lines(log: Path, since: int) -> str:
    with open(log, "rb") as file:
        file.seek(since if since <= _size(log) else 0)  # it may have been rotated meanwhile
        return last_lines(file.read()[-20_000:].decode(errors="replace"))
