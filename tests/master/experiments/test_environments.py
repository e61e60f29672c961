"""What the master keeps of the environment that an experiment is created in, and what it tells of it."""

from __future__ import annotations

import base64
import errno
import json
import os
import resource
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from dethpc.client.nouns import experiments
from dethpc.config.site import SiteConfig
from dethpc.domain.environment import MOST_BYTES, Environment
from dethpc.errors import ConfigError, DethpcError, Refused
from dethpc.master.daemon import Daemon
from dethpc.master.experiments import environments
from dethpc.master.installation import cluster_id
from dethpc.master.scheduler import find_scheduler
from dethpc.rundir.home import Home
from tests.master.conftest import Served

YAML = "{name: t, entrypoint: python3 train.py, searcher: {name: single, metric: loss}}"


def file_of(served: Served, answer: dict[str, Any]) -> Path:
    return served.daemon.installation.home.environment(answer["experiment"]["jobId"])


def sent(served: Served, environment: bytes | None = None, **more: Any) -> dict[str, Any]:
    """As another client sends it."""
    body = {"config": YAML, "activate": False, **more}
    if environment is not None:
        body["environment"] = base64.b64encode(environment).decode()
    answer: dict[str, Any] = served.session.post("/api/v1/experiments", json=body)
    return answer


def test_a_clients_environment_is_kept_for_its_owner_alone_and_no_value_is_told(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hush")
    answer = experiments.create(served.session, YAML, [], activate=False)
    file = file_of(served, answer)
    assert b"WANDB_API_KEY=hush\0" in file.read_bytes()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    told = experiments.get(served.session, answer["experiment"]["id"])
    assert told["environment"] == answer["environment"] and told["environment"]["source"] == "shell"
    assert "hush" not in json.dumps([answer, told])
    home = served.daemon.installation.home.root
    assert [path for path in home.rglob("*") if path.is_file() and b"hush" in path.read_bytes()] == [file]

    monkeypatch.setenv("WANDB_API_KEY", "another")
    fork = experiments.create(served.session, YAML, [], activate=False, parent=answer["experiment"]["id"])
    assert b"WANDB_API_KEY=another\0" in file_of(served, fork).read_bytes()

    experiments.act(served.session, answer["experiment"]["id"], "kill")
    experiments.delete(served.session, answer["experiment"]["id"])
    assert not file.exists() and file_of(served, fork).exists()


def test_of_a_client_that_sends_none_the_masters_is_kept_and_a_forks_is_its_parents(served: Served) -> None:
    answer = sent(served)
    path = Environment.from_bytes(file_of(served, answer).read_bytes()).variables["PATH"]
    assert path.split(b":")[0] == os.fsencode(Path(sys.executable).parent)
    assert answer["environment"]["source"] == "master"
    parent = sent(served, b'{"python": "/x/bin/python3"}\0MINE=1\0')
    fork = sent(served, parentId=parent["experiment"]["id"])
    assert file_of(served, fork).read_bytes() == file_of(served, parent).read_bytes()
    expected = {"python": "/x/bin/python3", "packages": {}, "source": "shell", "variables": 1, "image": ""}
    assert fork["environment"] == expected
    file_of(served, parent).unlink()
    with pytest.raises(Refused, match="the environment of experiment 2, which its fork would get, is missing"):
        sent(served, parentId=parent["experiment"]["id"])


@pytest.mark.parametrize("data", [b"A=1", b"{}\0A\0", b"{}\0" + b"A=1\0" * MOST_BYTES])
def test_what_is_no_environment_is_refused_and_nothing_is_left(served: Served, data: bytes) -> None:
    with pytest.raises(Refused, match="environment that came with the request"):
        sent(served, data)
    assert not (served.daemon.installation.home.root / "environments").exists()


def test_of_an_experiment_that_is_refused_none_is_left(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        sent(served, b"{}\0", config="{name: 1}")

    def refuse(decide: object) -> None:
        raise Refused("not now")

    monkeypatch.setattr(served.daemon.ledger, "do_after", refuse)
    with pytest.raises(Refused, match="not now"):
        sent(served, b"{}\0")
    assert list((served.daemon.installation.home.root / "environments").iterdir()) == []


def test_of_one_that_finds_no_room_on_disk_nothing_is_left(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            environments.keep(Home(tmp_path), "x", Environment({"WANDB_API_KEY": b"hush" * 100}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "environments").iterdir()) == []


def test_a_client_is_told_what_the_file_system_refuses(served: Served) -> None:
    (served.daemon.installation.home.root / "environments").touch()
    with pytest.raises(DethpcError, match="FileExistsError: File exists; see the master's log"):
        sent(served, b"{}\0")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_client_is_told_which_folder_has_no_room(
    served: Served, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(environments, "keep", fail)
    home = served.daemon.installation.home.root
    with pytest.raises(DethpcError, match=f"^{home}: {os.strerror(number)}. Make room, or make it writable, then try"):
        sent(served, b"{}\0")


def test_what_no_experiment_refers_to_goes_when_the_next_master_starts(served: Served) -> None:
    """A master that is killed between the file and the row leaves it behind."""
    home, left = served.daemon.installation.home, file_of(served, sent(served, b"{}\0"))
    deleted = sent(served, b"{}\0")["experiment"]
    data = file_of(served, {"experiment": deleted}).read_bytes()
    experiments.act(served.session, deleted["id"], "kill")
    experiments.delete(served.session, deleted["id"])
    for name in (str(uuid.uuid4()), str(uuid.uuid4()) + ".tmp", deleted["jobId"]):
        home.environment(name).write_bytes(data)
    served.daemon.ledger.stop()
    served.daemon.lease.release()
    scheduler, pace = find_scheduler(home, SiteConfig())
    again = Daemon(home, SiteConfig(), scheduler, cluster_id(home), pace)
    again.lease.release()
    again.store.close()
    assert list(home.environments.iterdir()) == [left]


def test_a_damaged_or_missing_file_is_told_as_nothing(served: Served) -> None:
    answer = sent(served, b"{}\0A=1\0")
    number, file = answer["experiment"]["id"], file_of(served, answer)
    file.write_bytes(b"\xff")
    assert experiments.get(served.session, number)["environment"] is None
    file.unlink()
    os.mkfifo(file)  # it keeps no reader for ever
    assert experiments.get(served.session, number)["environment"] is None
