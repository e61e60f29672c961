"""Which scheduler a master serves."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dethpc.config.site import SiteConfig
from dethpc.errors import ConfigError
from dethpc.master.scheduler import find_scheduler
from dethpc.master.scheduler_settings import SchedulerSettings
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home


@pytest.mark.parametrize("kind", ["auto", "slurm"])
def test_a_slurm_that_is_gone_is_told_at_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands would look for the file for a minute."""
    for command in ("sbatch", "scontrol"):
        (tmp_path / command).write_text("#!/bin/sh\necho asked >> $0.asked\n")
        (tmp_path / command).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", f"{tmp_path}/gone.conf")
    monkeypatch.setenv("DETHPC_SCHEDULER", kind)
    with pytest.raises(ConfigError, match=r"SLURM_CONF: there is no file .*gone\.conf .*DETHPC_SCHEDULER=local"):
        find_scheduler(Home(tmp_path / "home"), SiteConfig())
    assert not list(tmp_path.glob("*.asked"))
    monkeypatch.setenv("DETHPC_SCHEDULER", "local")
    find_scheduler(Home(tmp_path / "home"), SiteConfig())


@pytest.fixture
def shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets this process up as a shell with or without Slurm's commands, which answer for any SLURM_CONF that is there."""
    commands = tmp_path / "slurm"
    commands.mkdir()
    for name in ("sbatch", "scontrol"):
        (commands / name).write_text("#!/bin/sh\necho 'ClusterName = c'\n")
        (commands / name).chmod(0o755)

    def shell(slurm: bool, **variables: str) -> None:
        for name in ("DETHPC_SCHEDULER", "SLURM_CONF", "SLURM_CLUSTERS"):
            monkeypatch.setenv(name, "")  # deleting what is not there would not be undone, and the master sets some
            monkeypatch.delenv(name)
        monkeypatch.setenv("PATH", f"{commands}:/nowhere" if slurm else "/nowhere")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return shell


def remembered(home: Home, kind: str, *, alive: bool = False, host: str = "", **settings: str) -> None:
    home.make()
    SchedulerSettings(kind, host=host or socket.gethostname(), **settings).write(home)
    write_json(home.master_file, {"pid": 7 if alive else 0, "host": host or socket.gethostname()})


def chosen(home: Home) -> tuple[str, str | None]:
    return find_scheduler(home, SiteConfig())[0].kind, os.environ.get("SLURM_CONF")


@pytest.mark.parametrize("killed", [True, False])
def test_a_shell_without_slurm_gets_the_slurm_of_the_master_before(
    shells: Callable[..., None], tmp_path: Path, killed: bool
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.touch()
    home = Home(tmp_path / "home")
    remembered(
        home, "slurm", alive=killed, slurm_conf=str(conf), slurm_clusters="two", commands=str(tmp_path / "slurm")
    )
    shells(slurm=False)
    assert chosen(home) == ("slurm", str(conf))
    assert os.environ["SLURM_CLUSTERS"] == "two"
    assert os.environ["PATH"] == f"/nowhere:{tmp_path / 'slurm'}"
    (tmp_path / "slurm" / "sbatch").unlink()  # a host without: Slurm's all the same, which gives no answer there
    shells(slurm=False)
    assert chosen(home) == ("slurm", str(conf))


def test_the_successor_of_a_killed_master_serves_what_it_served(shells: Callable[..., None], tmp_path: Path) -> None:
    conf, other, home = tmp_path / "slurm.conf", tmp_path / "other.conf", Home(tmp_path / "home")
    conf.touch()
    other.touch()
    remembered(home, "slurm", alive=True, slurm_conf=str(conf))
    shells(slurm=True, SLURM_CONF=str(other))
    assert chosen(home) == ("slurm", str(conf))
    remembered(home, "slurm", slurm_conf=str(conf))  # it was stopped: the shell decides
    shells(slurm=True, SLURM_CONF=str(other))
    assert chosen(home) == ("slurm", str(other))
    remembered(home, "local", alive=True)
    shells(slurm=True, SLURM_CONF=str(other))
    assert chosen(home)[0] == "local"
    shells(slurm=True, SLURM_CONF=str(other), DETHPC_SCHEDULER="slurm")
    assert chosen(home) == ("slurm", str(other))
    remembered(home, "local", alive=True, host="elsewhere")  # whose jobs nobody here can run on
    shells(slurm=True, SLURM_CONF=str(other))
    assert chosen(home)[0] == "slurm"


def test_a_private_slurm_that_was_removed_is_forgotten_and_a_home_without_memory_decides_anew(
    shells: Callable[..., None], tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    shells(slurm=False)
    assert chosen(home) == ("local", None)
    remembered(home, "slurm", slurm_conf=str(tmp_path / "gone.conf"))
    shells(slurm=False)
    assert chosen(home) == ("local", None)
    shells(slurm=True)
    assert chosen(home) == ("slurm", None)


def test_an_earlier_release_said_what_it_served_in_its_lease(shells: Callable[..., None], tmp_path: Path) -> None:
    conf, home = tmp_path / "slurm.conf", Home(tmp_path / "home")
    conf.touch()
    home.make()
    write_json(home.master_file, {"pid": 0, "host": "login1", "scheduler": {"kind": "slurm", "slurm_conf": str(conf)}})
    shells(slurm=False)
    assert chosen(home) == ("slurm", str(conf))


def test_settings_of_a_shell_without_slurm_do_not_forget_where_its_commands_are(tmp_path: Path) -> None:
    home = Home(tmp_path)
    SchedulerSettings("slurm", commands="/opt/slurm/bin").write(home)
    SchedulerSettings("slurm", host="login2").write(home)
    assert SchedulerSettings.read(home) == SchedulerSettings("slurm", commands="/opt/slurm/bin", host="login2")
    home.scheduler_file.write_text("{")
    assert SchedulerSettings.read(home) == SchedulerSettings()
