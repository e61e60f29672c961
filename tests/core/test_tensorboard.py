"""Event files as TensorBoard reads them, written from what is reported."""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from dethpc import core, storage
from dethpc.core import _tensorboard
from dethpc.core._events import EventFile, crc32c
from dethpc.core._tensorboard import TensorboardFiles, TensorboardWriter
from tests.core.conftest import Cluster, Workers, results
from tests.waiting import LONG_ENOUGH, wait_until


def fields(data: bytes) -> Iterator[Tuple[int, Any]]:
    """Fields of a protocol buffer: number and value, by wire type."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        raw = data[at : at + size]
        at += size
        yield key >> 3, struct.unpack("<d", raw)[0] if kind == 1 else struct.unpack("<f", raw)[0] if kind == 5 else raw


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def scalars(path: Path) -> List[Tuple[int, str, float]]:
    """(step, tag, value) of every scalar of an event file, whose checksums must be right."""
    data, found, first = path.read_bytes(), [], True
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        record = data[12 : 12 + length]
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked(record)
        data = data[16 + length :]
        event = dict(fields(record))
        assert abs(event[1] - time.time()) < 600
        if first:
            assert event[3] == b"brain.Event:2"
        else:
            for _, value in fields(event[5]):
                one = dict(fields(value))
                found.append((event.get(2, 0), one[1].decode(), one[2]))
        first = False
    return found


def event_files(root: Path) -> List[Path]:
    return sorted(root.rglob("*tfevents*"))


@pytest.mark.parametrize(
    "data, crc",  # RFC 3720, appendix B.4
    [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"123456789", 0xE3069283)],
)
def test_checksums_are_crc_32c(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


def test_an_event_file_holds_what_was_added(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "new")
    file.add(time.time(), 1, {})
    assert not event_files(tmp_path)
    file.add(time.time(), 3, {"a": 0.5, "größe": float("inf")})
    file.add(time.time(), 1 << 40, {"a": 1e300, "b": -2})
    file.close()
    (path,) = event_files(tmp_path)
    assert scalars(path) == [
        (3, "a", 0.5),
        (3, "größe", float("inf")),
        (1 << 40, "a", float("inf")),
        (1 << 40, "b", -2.0),
    ]


def test_reports_become_event_files_in_checkpoint_storage(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5, "name": "x", "flag": True, "deep": {"a": 1}})
        context.train.report_validation_metrics(2, {"loss": 0.25})
        context.train.report_metrics("mine", 3, {"n": 7, "nan": float("nan")})
    (path,) = event_files(cluster.storage / "c1/tensorboard/experiment/1/trial/3")
    *some, last = scalars(path)
    assert some == [(1, "Determined/loss", 0.5), (2, "Determined/val_loss", 0.25), (3, "Determined/mine/n", 7.0)]
    assert last[:2] == (3, "Determined/mine/nan") and last[2] != last[2]


def test_files_are_copied_while_the_training_goes_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tensorboard, "_COPY_EVERY", 0.05)
    cluster.enter()
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        deadline = time.monotonic() + LONG_ENOUGH
        while not event_files(cluster.storage) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(event_files(cluster.storage)) == 1


def test_links_and_devices_are_not_copied(cluster: Cluster, tmp_path: Path) -> None:
    cluster.enter()
    (tmp_path / "secret").write_text("of the user")
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        path = context.train.get_tensorboard_path()
        (path / "zero").symlink_to("/dev/zero")
        (path / "stolen").symlink_to(tmp_path / "secret")
        os.mkfifo(path / "pipe")
    copied = [path for path in cluster.storage.rglob("*") if not path.is_dir()]
    assert copied == event_files(cluster.storage) and len(copied) == 1


def test_leaving_waits_for_no_rest_between_two_writes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tensorboard, "_SHARE", 1e-9)  # so the writer rests for days after its first report
    store = storage.build({"type": "shared_fs", "host_path": str(cluster.storage)})
    writer = TensorboardWriter(TensorboardFiles(tmp_path / "here", store, "there"))
    writer.start()
    writer.report("training", 1, {"loss": 0.5})
    assert wait_until(lambda: event_files(tmp_path / "here"))
    writer.report("training", 2, {"loss": 0.25})
    leaving = threading.Thread(target=writer.close, daemon=True)
    leaving.start()
    leaving.join(LONG_ENOUGH)
    assert not leaving.is_alive()
    (path,) = event_files(cluster.storage)
    assert [step for step, _, _ in scalars(path)] == [1, 2]


def test_in_mode_manual_nothing_is_written(cluster: Cluster) -> None:
    cluster.enter()
    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
    assert not event_files(cluster.storage)


def test_a_report_of_a_thousand_metrics_is_taken_at_once(cluster: Cluster) -> None:
    cluster.enter()
    metrics: Dict[str, float] = {f"metric_{n}": n / 3 for n in range(1000)}
    with core.init() as context:
        for step in range(50):
            context.train.report_training_metrics(step, metrics)
    (path,) = event_files(cluster.storage)
    steps = [step for step, tag, _ in scalars(path) if tag == "Determined/metric_7"]
    assert steps == sorted(steps) and steps[0] == 0 and len(cluster.journal("metrics")) == 50


def test_storage_that_fails_disturbs_nothing(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    (cluster.storage).parent.mkdir(exist_ok=True)
    cluster.storage.write_text("a file where a directory should be")
    cluster.enter()
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
    assert "TensorBoard files could not be" in caplog.text
    assert len(cluster.journal("metrics")) == 1


def test_only_the_chief_writes(cluster: Cluster, workers: Workers) -> None:
    cluster.enter()
    code = """
        from dethpc import core, storage
        with core.init(distributed=DistributedContext.from_torch_distributed()) as context:
            if rank == 0:
                context.train.report_training_metrics(1, {"loss": 0.5})
    """
    results(workers.start(code, 2, DETHPC_INFO=str(cluster.info_file)))
    assert len(event_files(cluster.storage)) == 1


def test_a_report_wakes_the_writer_unless_it_is_awake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TensorboardWriter(TensorboardFiles(tmp_path, None, ""))  # type: ignore[arg-type]
    woken: List[None] = []
    wake = writer._wake.set
    monkeypatch.setattr(writer._wake, "set", lambda: (woken.append(None), wake()))
    for step in range(3):
        writer.report("training", step, {"loss": 1.0})
    assert len(woken) == 1
    writer._wake.clear()
    writer.report("training", 3, {"loss": 1.0})
    assert len(woken) == 2 and len(writer._waiting) == 4
