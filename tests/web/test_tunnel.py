"""The ssh command that ``det ui`` prints, through a real sshd that takes no port."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.ports import free_port
from tests.waiting import LONG_ENOUGH, wait_until

SSHD = shutil.which("sshd", path=os.defpath + ":/usr/sbin:/usr/local/sbin")

SERVER = """
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
AddressFamily inet
PidFile none
"""

CLIENT = """
BatchMode yes
ExitOnForwardFailure yes
IdentityFile {folder}/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
ProxyCommand {sshd} -i -f {folder}/sshd_config
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd on this machine (Debian: apt install openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd gives up what root may do
    user = make_user(tmp_path / "home", DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="1")
    yield user
    take_down(user)


@pytest.fixture
def near() -> Iterator[int]:
    with free_port() as port:
        yield port


def test_the_printed_command_makes_the_printed_link_work_elsewhere(user: User, tmp_path: Path, near: int) -> None:
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    (tmp_path / "sshd_config").write_text(SERVER.format(folder=tmp_path))
    (tmp_path / "ssh_config").write_text(CLIENT.format(folder=tmp_path, sshd=SSHD))
    told = json.loads(user.det("ui", "--json"))
    link = urlsplit(told["ssh_url"])
    first, *words = shlex.split(told["ssh"])
    assert first == "ssh" and str(link.hostname).endswith(".localhost")
    # The master has its port on this very machine, so that the near end of the tunnel is another one.
    forward = words.index("-L") + 1
    assert words[forward] == f"{link.port}:127.0.0.1:{link.port}"
    words[forward] = f"127.0.0.1:{near}:127.0.0.1:{link.port}"

    def answered() -> http.client.HTTPResponse | None:
        assert tunnel.poll() is None, errors.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", near, timeout=LONG_ENOUGH)
        try:
            connection.request("GET", f"{link.path}?{link.query}", headers={"Host": str(link.netloc)})
        except ConnectionRefusedError:
            return None
        return connection.getresponse()

    errors = tmp_path / "errors"
    with errors.open("w") as file:
        tunnel = subprocess.Popen([first, "-F", tmp_path / "ssh_config", *words], stderr=file)
    try:
        answer = wait_until(answered)
        assert answer.status == 200 and "dethpc_session" in answer.headers["set-cookie"]
    finally:
        tunnel.terminate()
        tunnel.wait()
