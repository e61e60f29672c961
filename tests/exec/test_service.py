"""What a service reports of itself while it is used, while it is idle, and when it ends for want of use."""

from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.domain.attempts.service_state import ServiceState
from dethpc.exec import service
from dethpc.rundir.layout import AttemptDir


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time


class Use:
    """Whether the service is in use, as a test has set it."""

    value = True

    def __call__(self) -> bool:
        return self.value


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(service, "time", clock)
    return clock


def test_a_service_reports_when_its_idle_time_ends(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DETHPC_INFO", str(tmp_path / "info-0.json"))
    attempt, use = AttemptDir(tmp_path), Use()
    idle = service.Idle("it", 600.0, use)
    assert attempt.service_state() is None
    idle.begin()
    assert attempt.service_state() == ServiceState(ready=True)
    clock.now += 100
    assert not idle.expired() and attempt.service_state() == ServiceState(ready=True), "it is in use"
    use.value = False
    clock.now += 50
    assert not idle.expired() and attempt.service_state() == ServiceState(True, idle_ends_at=1700.0)
    use.value = True
    clock.now += 500
    assert not idle.expired() and attempt.service_state() == ServiceState(True)
    use.value = False
    clock.now += 600
    assert idle.expired()
    assert attempt.service_state() == ServiceState(True, ended="idle for 10m00s (idle_timeout)")
    assert "it ends: idle for 10m00s" in capsys.readouterr().err


def test_reports_are_not_written_more_often_than_a_file_system_bears(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETHPC_INFO", str(tmp_path / "info-0.json"))
    use, written = Use(), []
    monkeypatch.setattr(service, "write_json", lambda path, obj, durable: written.append(obj))
    idle = service.Idle("it", 600.0, use)
    idle.begin()
    for second in range(120):
        use.value = second % 2 == 0
        clock.now += 1
        assert not idle.expired()
    assert len(written) <= 1 + 120 / 20


def test_a_full_disk_ends_no_service(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETHPC_INFO", "/proc/nothing/info-0.json")
    idle = service.Idle("it", 600.0, Use())
    idle.begin()
    assert idle.ready and not idle.expired()
