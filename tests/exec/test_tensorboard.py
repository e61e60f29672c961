"""A real TensorBoard on a Unix socket, over what trials have put beside their checkpoints."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from dethpc.core._events import EventFile
from dethpc.exec import tensorboard
from dethpc.exec.tensorboard import Mirror, Source
from dethpc.storage import build
from tests.exec.started import Started
from tests.processes import tcp_ports
from tests.services import Service, unix
from tests.storage.servers import S3, s3_server
from tests.waiting import wait_until

__all__ = ["s3_server"]

PATH = "/proxy/some-task/"
SCALARS = "data/plugin/scalars/scalars?run=experiment-1/trial/2&tag=Determined/loss"


def report(section: dict[str, Any], folder: str, **losses: float) -> None:
    """A trial reports losses by steps, in an event file of its own."""
    with build(section).synced_folder(folder) as path:
        events = EventFile(path)
        for step, loss in losses.items():
            events.add(time.time(), int(step[1:]), {"Determined/loss": loss})
        events.close()


def points(service: Service) -> list[list[float]]:
    """(step, loss) of the trial."""
    status, _, _ = service.request("GET", SCALARS)
    return [[step, value] for _, step, value in service.get(SCALARS)] if status == 200 else []


def shown(tmp_path: Path, *sections: dict[str, Any]) -> Started:
    sources = [
        {"name": f"experiment-{n}", "storage": section, "folder": f"c1/tensorboard/experiment/{n}"}
        for n, section in enumerate(sections, 1)
    ]
    return Started(
        tmp_path, "tensorboard", "--path", PATH, "--", "--reload_interval", "1", details={"sources": sources}
    )


def test_scalars_of_a_trial_are_shown_and_what_comes_later_too(tmp_path: Path) -> None:
    section = {"type": "shared_fs", "host_path": str(tmp_path / "store")}
    report(section, "c1/tensorboard/experiment/1/trial/2", _3=0.25)
    with shown(tmp_path, section) as started:
        service = Service(unix(started.socket), PATH)
        wait_until(lambda: service.ready() and points(service) == [[3, 0.25]])
        assert tcp_ports(started.processes()) == [], "others on this node could connect to a port"
        report(section, "c1/tensorboard/experiment/1/trial/2", _4=0.125)
        wait_until(lambda: points(service) == [[3, 0.25], [4, 0.125]])
        report(section, "c1/tensorboard/experiment/1/trial/7", _1=1.0)
        wait_until(lambda: "experiment-1/trial/7" in service.get("data/runs"))
        assert b"TensorBoard" in service.request("GET", "")[2]
        assert re.search(rf"TensorBoard 2\.\S+ at {PATH} shows experiment-1\n", started.log), "as scripts look for it"
        assert started.end() != 0


def test_files_in_a_bucket_are_shown_and_followed(
    tmp_path: Path, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    section, gone = s3_server.section(), {"type": "shared_fs", "host_path": "/proc/nowhere"}
    folder = "c1/tensorboard/experiment/1/trial/2"
    report(section, folder, _3=0.25)
    logdir = tmp_path / "logdir"
    mirror = Mirror(
        [
            Source("nowhere", {"type": "nothing"}, folder),
            Source("experiment-1", section, "c1/tensorboard/experiment/1"),
        ],
        logdir,
    )
    mirror.update()
    (first,) = logdir.rglob("*tfevents*")
    assert first.parent == logdir / "experiment-1/trial/2"
    report(section, folder, _4=0.125)
    mirror.update()
    assert len(list(logdir.rglob("*tfevents*"))) == 2
    with shown(tmp_path, section, gone) as started:
        service = Service(unix(started.socket), PATH)
        wait_until(lambda: service.ready() and points(service) == [[3, 0.25], [4, 0.125]])


def test_why_a_source_cannot_be_read_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirror = Mirror([Source("experiment-1", {"type": "nothing"}, "x")], tmp_path)
    mirror.update()
    mirror.update()
    assert capsys.readouterr().err.count("experiment-1: its TensorBoard files cannot be read now") == 1


def test_it_ends_when_nobody_has_used_it_for_long_enough(tmp_path: Path) -> None:
    with Started(tmp_path, "tensorboard", "--idle-timeout", "0.5", details={"sources": []}) as started:
        assert started.wait() == 0
        assert "TensorBoard ends: idle for 0.5s (idle_timeout)" in started.log


def test_a_request_is_use(tmp_path: Path) -> None:
    requests = tensorboard.Requests(lambda environ, start_response: [])
    assert not requests.any()
    requests({}, None)  # type: ignore[arg-type]
    assert requests.any() and not requests.any()


def test_where_it_is_not_installed_the_log_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "tensorboard.py").write_text("raise ImportError('not here')")
    with Started(tmp_path, "tensorboard", details={"sources": []}) as started:
        assert started.wait() == 127
        assert "TensorBoard is not installed" in started.log and "pip install tensorboard" in started.log
