"""A real sshd on a Unix socket, and OpenSSH's own clients."""

from __future__ import annotations

import getpass
import os
import stat
from pathlib import Path

from dethpc.exec import sshd
from tests.exec.started import Started
from tests.services import Ssh, key_pair
from tests.waiting import wait_until

PRIVATE, PUBLIC = key_pair()
HOST_PRIVATE, HOST_PUBLIC = key_pair()
DETAILS = {"host_key": HOST_PRIVATE, "public_key": PUBLIC}


def started_in(tmp_path: Path, *arguments: str, **environ: str) -> Started:
    started = Started(tmp_path, "sshd", *arguments, details=DETAILS, **environ)
    wait_until(started.socket.exists)
    return started


def client(tmp_path: Path, started: Started, key: str = PRIVATE, host_key: str = HOST_PUBLIC) -> Ssh:
    return Ssh.to_socket(tmp_path, key, host_key, started.socket, getpass.getuser())


def test_a_command_runs_in_the_tasks_environment_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    awkward = 'it\'s "quoted" \\ $HOME\nand goes on'
    functions = {
        "AWKWARD": awkward,
        "BASH_FUNC_module%%": "() { echo loaded $2; }",
        "PATH": f"/first:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "SHLVL": "0",
    }
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.bashrc").write_text("PATH=/mine:$PATH\n")  # bash reads it for commands that come by SSH, too
    with started_in(tmp_path, SHELL="/bin/bash", **functions) as started:
        ssh = client(tmp_path, started)
        done = ssh.run('echo "$AWKWARD"; pwd; module load cuda; echo ${PATH%%:*}; exit 3')
        assert (done.returncode, done.stdout) == (3, f"{awkward}\n{tmp_path}\nloaded cuda\n/first\n"), done.stderr
        (tmp_path / "file").write_text("content")
        copied = ssh.copy(tmp_path / "file", tmp_path / "copy")
        assert copied.returncode == 0 and (tmp_path / "copy").read_text() == "content", copied.stderr
        typed = ssh.run("", "-tt", typed='echo "in $AWKWARD"; exit 4\n')
        assert "Server listening on " in started.log, "as scripts look for it"
        assert typed.returncode == 4 and "\nin it's" in typed.stdout.replace("\r", ""), typed.stdout
        assert started.end() == 0


def test_another_key_is_refused_and_so_is_another_host(tmp_path: Path) -> None:
    with started_in(tmp_path) as started:
        other, other_public = key_pair()
        refused = client(tmp_path, started, key=other).run("echo in")
        assert refused.returncode == 255 and "in" not in refused.stdout and "Permission denied" in refused.stderr
        mistaken = client(tmp_path, started, host_key=other_public).run("echo in")
        assert mistaken.returncode == 255 and "host key" in mistaken.stderr.lower()


def test_what_it_needs_can_be_read_by_its_user_alone(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    config = sshd.prepare(tmp_path, DETAILS, {"A": "b"})
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600, 0o700}
    assert sshd.check(sshd.program("sshd"), config) is None
    text = config.read_text()
    assert "AllowAgentForwarding no" in text and "AuthenticationMethods publickey" in text


def test_it_ends_when_no_connection_has_been_open_for_long_enough(tmp_path: Path) -> None:
    with started_in(tmp_path, "--idle-timeout", "2") as started:
        assert client(tmp_path, started).run("sleep 4; echo done").stdout == "done\n"
        assert started.wait() == 0
        assert "the shell ends: idle for 2s (idle_timeout)" in started.log


def test_where_it_is_not_installed_the_log_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import shutil; shutil.which = lambda *_, **__: None")
    root = Path(__file__).parents[2]
    with Started(tmp_path, "sshd", details=DETAILS, PYTHONPATH=f"{root}:{tmp_path}") as started:
        assert started.wait() == 127
        assert "sshd is not installed" in started.log and "openssh-server" in started.log
