"""``python3 -m dethpc.exec.sshd``: shells by SSH on a Unix socket, in the environment of the task.

For each connection OpenSSH's sshd runs once, as this user, with a host key and one authorized key made for this task alone. Its
sessions begin in this process's environment and working directory.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence

from dethpc.exec.service import SOCKET, Idle, details, in_use_file, missing
from dethpc.rundir import scratch

_PLACES = (
    "/usr/sbin",
    "/usr/local/sbin",
    "/sbin",
    "/usr/lib/openssh",
    "/usr/libexec/openssh",
    "/usr/lib/ssh",
    "/usr/libexec",
)
_SEPARATION = "/run/sshd"  # which sshd wants to exist where it runs as root

CONFIG = """\
AllowAgentForwarding no
AllowTcpForwarding local
AuthenticationMethods publickey
AuthorizedKeysFile "{folder}/authorized_keys"
ForceCommand "{folder}/session"
GatewayPorts no
HostKey "{folder}/host_key"
KbdInteractiveAuthentication no
LogLevel ERROR
PasswordAuthentication no
PermitRootLogin prohibit-password
PermitTunnel no
PermitUserRC no
PidFile none
PrintLastLog no
PrintMotd no
StrictModes no
Subsystem sftp {sftp}
UsePAM no
X11Forwarding no
"""

SESSION = """\
#!/bin/sh
PYTHONPATH={path} exec {python} -m dethpc.exec.sshd --session {folder}
"""


def program(name: str) -> str:
    """The path of sshd or its helper, which are not on the PATH of users; "" where it is not installed."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(_PLACES)) or ""


def prepare(folder: Path, keys: Mapping[str, str], environ: Mapping[str, str]) -> Path:
    """Write all that sshd needs into ``folder``, which nobody else can enter; the path of its configuration."""
    sftp = program("sftp-server") or "/bin/false"
    state = {
        "environment": dict(environ),
        "directory": os.getcwd(),
        "shell": environ.get("SHELL") or pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh",
        "sftp": sftp,
    }
    here = {"path": environ.get("PYTHONPATH", ""), "python": sys.executable, "folder": str(folder)}
    texts = {
        "host_key": keys["host_key"],
        "authorized_keys": keys["public_key"],
        "session.json": json.dumps(state),
        "session": SESSION.format(**{name: shlex.quote(value) for name, value in here.items()}),
        "sshd_config": CONFIG.format(folder=folder, sftp=sftp),
    }
    for name, text in texts.items():
        with open(folder / name, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f"{text.strip()}\n")
    os.chmod(folder / "session", 0o700)
    return folder / "sshd_config"


def session(folder: Path) -> None:
    """Take the place of this process: what sshd was asked for, in the task's environment and no login shell's."""
    state = json.loads((folder / "session.json").read_text())
    of_session = {name: os.environ[name] for name in os.environ if name == "TERM" or name.startswith("SSH_")}
    command, shell = of_session.pop("SSH_ORIGINAL_COMMAND", ""), state["shell"]
    argv = [state["sftp"]] if command == state["sftp"] else [shell, "-c", command] if command else [shell]
    environment = {**state["environment"], **of_session}
    if command and environment.get("SHLVL", "0") == "0":
        # bash takes a command that comes by SSH for a login, and ~/.bashrc would change the task's environment.
        environment["SHLVL"] = "1"
    os.chdir(state["directory"])
    os.execve(argv[0], argv, environment)


def check(sshd: str, config: Path) -> Optional[str]:
    """What this sshd says against its configuration; None: nothing."""
    if os.geteuid() == 0:
        os.makedirs(_SEPARATION, 0o755, exist_ok=True)
    done = subprocess.run(
        [sshd, "-t", "-f", str(config)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


class Server:
    """Starts sshd for each connection. When it is closed, it ends the sessions."""

    def __init__(self, sshd: str, config: Path, path: str) -> None:
        self._argv = [sshd, "-i", "-e", "-f", str(config)]
        self._sessions: List[subprocess.Popen[bytes]] = []
        self._in_use_file = in_use_file({SOCKET: path})
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        self._socket.listen(16)

    def in_use(self) -> bool:
        """Whether a connection is open, or a shell of ``dethpc.exec.attach``."""
        self._sessions = [session for session in self._sessions if session.poll() is None]
        return bool(self._sessions) or self._attached()

    def _attached(self) -> bool:
        with contextlib.suppress(FileNotFoundError), open(self._in_use_file) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def accept(self, timeout: float) -> None:
        """Wait for a connection for so many seconds."""
        self.in_use()  # sessions that have ended are no zombies
        self._socket.settimeout(timeout)
        try:
            connection, _ = self._socket.accept()
        except socket.timeout:
            return
        with connection:
            connection.setblocking(True)
            file = connection.fileno()
            self._sessions.append(subprocess.Popen(self._argv, stdin=file, stdout=file))

    def close(self) -> None:
        self._socket.close()
        for session in self._sessions:
            session.terminate()


def main(arguments: Sequence[str]) -> int:
    """Ends when no connection has been open for long enough. 127 where sshd is not installed."""
    parser = argparse.ArgumentParser(prog="python3 -m dethpc.exec.sshd", description="shells of a task by SSH")
    parser.add_argument("--idle-timeout", type=float, metavar="SECONDS", help="end after so long without a shell")
    parser.add_argument("--session", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.session is not None:
        session(given.session)
    sshd = program("sshd")
    if not sshd:
        return missing(
            "sshd", "ask for OpenSSH's server on the nodes (Debian: openssh-server), or name an image that has it"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = scratch.make_until_exit("sshd")
    environ: Dict[str, str] = {name: value for name, value in os.environ.items() if name != SOCKET}
    config = prepare(folder, details(), environ)
    if complaint := check(sshd, config):
        sys.stderr.write(f"dethpc: {sshd} does not start: {complaint}\n")
        return 1
    server = Server(sshd, config, os.environ[SOCKET])
    # sshd's own words, for which scripts look.
    sys.stderr.write("dethpc: Server listening on a socket of the task; det shell open leads there\n")
    try:
        idle = Idle("the shell", given.idle_timeout, server.in_use)
        idle.begin()
        while not idle.expired():
            server.accept(idle.pause)
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
