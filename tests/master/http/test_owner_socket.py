"""The Unix socket of the owner's programs: nothing that comes by TCP keeps them from their master."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.client import Session
from dethpc.client.address import MasterFinder, OwnerToken, local_socket
from dethpc.client.nouns import users
from dethpc.master.durable.lease import Lease
from tests.master.conftest import Running
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    master = Running(tmp_path_factory.mktemp("owner") / "home")
    yield master
    master.stop()


def written(master: Running) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((master.home / "master.json").read_text())
    return content


def test_the_owner_is_answered_while_nobody_is_by_tcp(master: Running, tmp_path: Path) -> None:
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    address = full.getsockname()
    holders = [socket.socket() for _ in range(8)]
    for holder in holders:
        holder.setblocking(False)
        holder.connect_ex(address)
    file = tmp_path / "master.json"
    file.write_text(json.dumps({**written(master), "url": f"http://127.0.0.1:{address[1]}"}))
    session = Session(MasterFinder(str(file)), OwnerToken(master.token), timeout=10, retries=0)
    assert users.me(session)["username"] == master.owner
    session.close()
    for sock in [*holders, full]:
        sock.close()


@pytest.mark.parametrize("other", [{"host": "another"}, {"boot_id": "another"}, {"boot_id": None}, {"owner_socket": 7}])
def test_the_socket_of_another_machine_is_not_used(master: Running, other: dict[str, Any]) -> None:
    held = written(master)
    assert local_socket(held) == held["owner_socket"]
    assert local_socket({**held, **other}) is None


def test_a_folder_that_others_can_enter_or_that_is_a_link_is_not_used(master: Running, tmp_path: Path) -> None:
    held = written(master)
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    there = {**held, "owner_socket": str(folder / "master")}
    assert local_socket(there) == str(folder / "master")
    folder.chmod(0o710)
    assert local_socket(there) is None
    (tmp_path / "link").symlink_to(Path(held["owner_socket"]).parent)
    assert local_socket({**held, "owner_socket": str(tmp_path / "link" / "master")}) is None


def test_another_users_folder_is_not_used(master: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    held = written(master)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert local_socket(held) is None


def test_a_socket_that_has_gone_is_made_anew_and_named_and_meanwhile_tcp_is_used(master: Running) -> None:
    before = written(master)["owner_socket"]
    session = Session(MasterFinder(str(master.home / "master.json")), OwnerToken(master.token), timeout=10)
    shutil.rmtree(Path(before).parent)
    assert users.me(session)["username"] == master.owner
    wait_until(lambda: written(master)["owner_socket"] != before)
    again = written(master)["owner_socket"]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(again)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 ")
    session.close()


def test_the_folder_of_a_killed_master_serves_the_next_and_goes_with_it(tmp_path: Path) -> None:
    first = Running(tmp_path / "home")
    path = Path(written(first)["owner_socket"])
    first.process.kill()
    first.process.wait()
    (tmp_path / "home" / "master.json").write_text(json.dumps({**written(first), "url": ""}))
    second = Running(tmp_path / "home")
    assert Path(written(second)["owner_socket"]) == path and path.is_socket()
    second.stop()
    assert not path.parent.exists()


def test_the_master_of_a_copied_home_leaves_the_socket_of_the_original_alone(master: Running, tmp_path: Path) -> None:
    held = written(master)
    file = tmp_path / "master.json"
    file.write_text(json.dumps({**held, "pid": 0, "url": ""}))
    for cluster, socket_before in (("another", None), (held["cluster_id"], held["owner_socket"])):
        lease = Lease(file, cluster)
        lease.take()
        assert lease.owner_socket == socket_before
        file.write_text(json.dumps({**held, "pid": 0, "url": ""}))
