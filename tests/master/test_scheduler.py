"""Which scheduler a master serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.config.site import SiteConfig
from dethpc.errors import ConfigError
from dethpc.master.scheduler import find_scheduler
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
    with pytest.raises(
        ConfigError, match=r"SLURM_CONF: found .*gone\.conf, which is not there; .*DETHPC_SCHEDULER=local"
    ):
        find_scheduler(Home(tmp_path / "home"), SiteConfig())
    assert not list(tmp_path.glob("*.asked"))
    monkeypatch.setenv("DETHPC_SCHEDULER", "local")
    find_scheduler(Home(tmp_path / "home"), SiteConfig())
