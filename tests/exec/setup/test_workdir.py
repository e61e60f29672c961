"""Code that names ``/run/determined/workdir`` finds its files there, or hears what to use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.trial_config import WORKDIR
from dethpc.exec.setup import workdir
from dethpc.exec.setup.workdir import WorkdirLink
from dethpc.exec.supervision.tee import Log
from dethpc.rundir.spec import Spec
from tests.exec.fixtures import Run

NAMES = "open('/run/determined/workdir/data')\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the link is made in this test, instead of ``/run``."""
    link = tmp_path / "run" / "determined" / "workdir"
    monkeypatch.setattr(workdir, "WORKDIR", str(link))
    monkeypatch.setattr(workdir, "_LOCK", str(link.parent / ".lock"))
    return link


def spec(entrypoint: str = "python3 train.py") -> Spec:
    empty: dict[str, Any] = {field: "" for field in Spec._fields if field not in Spec._field_defaults}
    return Spec(**{**empty, "entrypoint": entrypoint, "hparams": {}, "config": {}})


def directory(tmp_path: Path, name: str, code: str) -> Path:
    path = tmp_path / name
    path.mkdir()
    (path / "train.py").write_text(code)
    return path


@contextlib.contextmanager
def log(tmp_path: Path) -> Iterator[Log]:
    with contextlib.closing(Log(tmp_path / "log")) as opened:
        yield opened


def test_the_link_is_made_for_code_that_names_it_and_goes_with_the_run(tmp_path: Path, place: Path) -> None:
    context, link = directory(tmp_path, "work", f"DATA = '{place}/data'\n"), WorkdirLink()
    place.parent.mkdir(parents=True)
    place.symlink_to("/gone")  # of a run that was killed
    with pytest.MonkeyPatch.context() as patch, log(tmp_path) as notes:
        patch.setattr("dethpc.domain.workdir.WORKDIR", str(place))
        link.make(spec(), str(context), notes)
        assert link.made and place.resolve() == context
        link.remove()
        link.remove()
    assert not os.path.lexists(place)


def test_code_that_does_not_name_it_leaves_the_node_alone(tmp_path: Path, place: Path) -> None:
    with log(tmp_path) as notes:
        link = WorkdirLink()
        link.make(spec(), str(directory(tmp_path, "work", "DATA = 'data'\n")), notes)
    assert not link.made and not place.parent.exists()


def test_of_two_runs_on_a_node_the_second_is_told_and_leaves_the_link_to_the_first(tmp_path: Path, place: Path) -> None:
    entrypoint, mine = f"python3 {place}/train.py", directory(tmp_path, "mine", "")
    first = "import sys\nfrom dethpc.exec.setup import workdir\n"
    first += f"workdir.WORKDIR, workdir._LOCK = {str(place)!r}, {workdir._LOCK!r}\n"
    first += "assert workdir.WorkdirLink()._link('/first') == ''\nprint('made', flush=True)\nsys.stdin.read()\n"
    other = subprocess.Popen([sys.executable, "-c", first], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "made\n"
        link = WorkdirLink()
        with log(tmp_path) as notes:
            link.make(spec(entrypoint), str(mine), notes)
        assert not link.made and os.readlink(place) == "/first"
        assert (
            "it leads to another run on this node; use a relative path, or $DET_WORKDIR"
            in (tmp_path / "log").read_text()
        )
        link.remove()
        assert os.readlink(place) == "/first"
    finally:
        other.communicate()


def test_what_else_is_there_is_left_alone(tmp_path: Path, place: Path) -> None:
    place.mkdir(parents=True)
    with log(tmp_path) as notes:
        link = WorkdirLink()
        link.make(spec(f"ls {place}"), str(tmp_path), notes)
    assert not link.made and place.is_dir()


def test_the_reason_of_a_failure_says_what_to_use_instead(run: Run) -> None:
    """Whether the user of the tests can write to /run or not: another run has the link."""
    lock = -1
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(WORKDIR), exist_ok=True)
        lock = os.open(os.path.join(os.path.dirname(WORKDIR), ".dethpc.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        _, end = run.run("python3 train.py", {"train.py": NAMES})
    finally:
        if lock >= 0:
            os.close(lock)
    assert end["message"].endswith(
        "No such file or directory: '/run/determined/workdir/data'; outside of containers, nodes have no "
        "/run/determined/workdir: use a relative path, or $DET_WORKDIR"
    )
