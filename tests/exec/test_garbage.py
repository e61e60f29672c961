"""The files of a deleted experiment, on the node that removes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dethpc.exec import garbage
from dethpc.exec.garbage import Garbage, remove_all
from dethpc.rundir.files import read_json, write_json
from dethpc.storage.spool import Spool

LONG_AGO = 1_700_000_000.0


def context(tmp_path: Path, touched: float) -> Path:
    path = tmp_path / "code.tar.gz"
    path.write_bytes(b"code")
    os.utime(path, (touched, touched))
    return path


def test_a_context_goes_unless_somebody_has_wanted_it_since(tmp_path: Path) -> None:
    for touched, stays in ((LONG_AGO + 50, False), (LONG_AGO + 150, True)):
        path = context(tmp_path, touched)
        assert not list(remove_all(Garbage(context=str(path), unused_at=LONG_AGO + 100)))
        assert [each.name for each in tmp_path.iterdir()] == (["code.tar.gz"] if stays else [])


def test_all_goes_that_can_and_what_cannot_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "checkpoints"
    for uuid in ("half", "whole", "another"):
        (store / uuid).mkdir(parents=True)
        (store / uuid / "weights").write_text("w")
    (store / "half").rename(store / ".half.deleted")  # a job before this one was killed on the way
    (store / "c1" / "tensorboard" / "experiment" / "7" / "trial").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    for name in ("no-folder", "file"):
        (tmp_path / name).write_text("")
    found = Garbage(
        storage={"type": "shared_fs", "host_path": str(store)},
        present=True,
        checkpoints=["half", "../another", "whole"],
        beside="c1/tensorboard/experiment/7",
        folders=[str(tmp_path / name) for name in ("run", "no-folder", "never-there")],
        files=[str(tmp_path / name) for name in ("file", "never-there", "checkpoints")],
    )
    write_json(tmp_path / "garbage.json", found.to_json())
    assert garbage.main(str(tmp_path / "garbage.json")) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("garbage: checkpoint ../another") and "no-folder" in last and f"{store}: " in last
    assert sorted(path.name for path in store.iterdir()) == ["another", "c1"]
    assert not list(store.rglob("7")) and not (tmp_path / "run").exists() and not (tmp_path / "file").exists()


def test_a_task_tells_no_more_than_the_master_reads_and_leaves_the_rest_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "checkpoints"
    uuids = [f"c{number}" for number in range(5)]
    for uuid in uuids:
        (store / uuid).mkdir(parents=True)
        for name in ("optimizer", *(f"shard-{number}" for number in range(20))):
            (store / uuid / name).write_text("w")
    monkeypatch.setattr(garbage, "_MOST_TOLD", 500)
    section = {"type": "shared_fs", "host_path": str(store)}

    def removed(wanted: list[str]) -> list[str]:
        part = garbage.Part(section, True, {uuid: ["optimizer"] for uuid in wanted})
        assert not list(garbage.remove_files([part], tmp_path / "removed.json"))
        return list(read_json(tmp_path / "removed.json") or {})

    assert removed(uuids) == uuids[:2]
    assert removed(uuids[2:]) == uuids[2:4] and removed(uuids[4:]) == uuids[4:]
    assert not list(store.glob("*/optimizer")) and len(list(store.glob("*/shard-*"))) == 100


def test_what_is_half_in_the_spool_goes_with_whatever_task_comes_next_once_nobody_writes_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for uuid in ("old", "new"):
        (spool.store.stage(uuid) / "weights").write_text("w")
    for path in [*(tmp_path / "spool" / ".old.partial").rglob("*"), tmp_path / "spool" / ".old.partial"]:
        os.utime(path, (LONG_AGO, LONG_AGO))
    write_json(tmp_path / "garbage.json", Garbage(spool=str(spool)).to_json())
    assert garbage.main(str(tmp_path / "garbage.json")) == 0
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [".new.partial"]
    write_json(tmp_path / "garbage.json", Garbage(spool=str(tmp_path / "none")).to_json())
    assert garbage.main(str(tmp_path / "garbage.json")) == 0 and not (tmp_path / "none").exists()
