"""What a node asks Slurm for, from a controller that answers late or not at all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dethpc.exec import slurm
from dethpc.exec.slurm import Configuration
from tests.waiting import wait_until

ANSWERS = """\
#!/bin/sh
echo asked >> {folder}/asked
while [ -e {folder}/busy ]; do sleep 0.05; done
[ -e {folder}/down ] && exit 1
printf 'Configuration data as of 2026-11-26T10:00:00\\nKillWait                = 60 sec\\nProctrackType = proctrack/pgid\\n'
"""


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder: while it has a file ``busy``, nothing is answered; with ``down``, nothing but an error."""
    (tmp_path / "scontrol").write_text(ANSWERS.format(folder=tmp_path))
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(slurm, "configuration", Configuration())
    return tmp_path


def test_a_busy_controller_stops_nothing_until_it_answers(controller: Path) -> None:
    (controller / "busy").touch()
    before = time.monotonic()
    assert slurm.kill_wait() is None and slurm.signals_this_process_alone() is None
    assert time.monotonic() - before < 60
    wait_until(lambda: (controller / "asked").exists())
    (controller / "busy").unlink()
    wait_until(lambda: slurm.kill_wait() is not None)
    assert (slurm.kill_wait(), slurm.signals_this_process_alone()) == (60.0, True)
    assert (controller / "asked").read_text() == "asked\n", "it was asked once"


def test_a_controller_that_gives_no_answer_is_asked_again(controller: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "RETRY_SECONDS", 0.01)
    (controller / "down").touch()

    def asked(times: int) -> bool:
        assert slurm.kill_wait() is None
        return (controller / "asked").exists() and (controller / "asked").read_text().count("asked") >= times

    wait_until(lambda: asked(2))
    (controller / "down").unlink()
    wait_until(lambda: slurm.kill_wait() == 60.0)


def test_where_slurm_has_no_commands_its_defaults_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(slurm, "configuration", Configuration())
    assert slurm.kill_wait() == slurm.KILL_WAIT
    assert slurm.signals_this_process_alone() is False
