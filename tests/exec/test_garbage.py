"""The files of a deleted experiment, on the node that removes them."""

from __future__ import annotations

import os
import sys
import uuid as uuids
from dataclasses import asdict
from pathlib import Path

import pytest

from dethpc.exec import garbage
from dethpc.exec.garbage import Garbage, remove_all
from dethpc.rundir.files import read_json, write_json
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Owner
from dethpc.storage.spool import Spool

LONG_AGO = 1_700_000_000.0

OWN = tuple(str(uuids.UUID(int=number)) for number in range(3))


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
    half, whole, another = OWN
    for uuid in OWN:
        (store / uuid).mkdir(parents=True)
        (store / uuid / "metadata.json").write_text("{}")
    (store / half).rename(store / f".{half}.deleted")  # a job before this one was killed on the way
    (store / "c1" / "tensorboard" / "experiment" / "7" / "trial").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    for name in ("no-folder", "file"):
        (tmp_path / name).write_text("")
    found = Garbage(
        storage={"type": "shared_fs", "host_path": str(store)},
        present=True,
        checkpoints=[half, f"../{another}", whole],
        claims={uuid: ["cluster", "experiment", True] for uuid in (half, whole, f"../{another}")},
        beside="c1/tensorboard/experiment/7",
        folders=[str(tmp_path / name) for name in ("run", "no-folder", "never-there")],
        files=[str(tmp_path / name) for name in ("file", "never-there", "checkpoints")],
    )
    write_json(tmp_path / "garbage.json", found.to_json())
    assert garbage.main(str(tmp_path / "garbage.json")) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"garbage: checkpoint ../{another}") and "no-folder" in last and f"{store}: " in last
    assert sorted(path.name for path in store.iterdir()) == [another, "c1"]
    assert not list(store.rglob("7")) and not (tmp_path / "run").exists() and not (tmp_path / "file").exists()


def test_what_a_killed_writer_left_beside_a_file_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "search.json"
    with monkeypatch.context() as killed:
        killed.setattr(os, "replace", lambda *_: sys.exit())
        with pytest.raises(SystemExit):
            write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    (tmp_path / "search.json.txt").touch()
    assert len(list(tmp_path.iterdir())) == 3
    assert not list(remove_all(Garbage(files=[str(path)])))
    assert [each.name for each in tmp_path.iterdir()] == ["search.json.txt"]


def test_a_task_tells_no_more_than_the_master_reads_and_leaves_the_rest_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "checkpoints"
    names = [str(uuids.UUID(int=number)) for number in range(5)]
    for uuid_ in names:
        (store / uuid_).mkdir(parents=True)
        for name in ("optimizer", *(f"shard-{number}" for number in range(20))):
            (store / uuid_ / name).write_text("w")
        (store / uuid_ / "metadata.json").write_text("{}")
    monkeypatch.setattr(garbage, "_MOST_TOLD", 500)
    section = {"type": "shared_fs", "host_path": str(store)}

    def removed(wanted: list[str]) -> list[str]:
        part = garbage.Part(section, True, {name: ["optimizer"] for name in wanted})
        claims = {name: ["cluster", "experiment", True] for name in wanted}
        found = Garbage(parts=[asdict(part)], claims=claims)
        assert not list(garbage.remove_files(found, tmp_path / "removed.json"))
        return list(read_json(tmp_path / "removed.json") or {})

    assert removed(names) == names[:2]
    assert removed(names[2:]) == names[2:4] and removed(names[4:]) == names[4:]
    assert not list(store.glob("*/optimizer")) and len(list(store.glob("*/shard-*"))) == 100


def test_what_is_not_the_experiments_stays_and_the_log_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither another's checkpoint, nor a folder that is none, nor what lies behind a link; it is no failure of the task."""
    store, thesis, link = FileStore(tmp_path / "store"), tmp_path / "store" / "thesis", tmp_path / "store" / OWN[2]
    for owner, name in ((Owner("cluster", "experiment"), OWN[0]), (Owner("another", "experiment"), OWN[1])):
        (store.stage(name) / "metadata.json").write_text("{}")
        store.publish(name, owner=owner)
    thesis.mkdir()
    (thesis / "thesis.tex").write_text("...")
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    names = [*OWN, "thesis"]
    section = {"type": "shared_fs", "host_path": str(store)}
    claims = {name: ["cluster", "experiment", True] for name in names}
    one = Garbage(storage=section, checkpoints=names, claims=claims)
    parts = [asdict(garbage.Part(section, True, {name: ["**/*"] for name in names}))]
    for wanted in (one, Garbage(parts=parts, claims=claims), Garbage(storage=section, checkpoints=names)):
        write_json(tmp_path / "garbage.json", wanted.to_json())
        assert garbage.main(str(tmp_path / "garbage.json")) == 0
        told = capsys.readouterr().err
        assert sorted(path.name for path in (tmp_path / "store").iterdir()) == sorted([OWN[1], OWN[2], "thesis"])
        for name in (OWN[1], OWN[2], "thesis"):
            assert f"checkpoint {name} in {store}: " in told and "left in place" in told
    removed = read_json(tmp_path / "removed.json") or {}
    assert "another cluster" in removed[OWN[1]]["why"] and "why" not in removed[OWN[0]]
    assert "not a checkpoint" in removed["thesis"]["why"]


def test_what_is_half_in_the_spool_goes_with_whatever_task_comes_next_once_nobody_writes_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for uuid in ("old", "new"):
        (spool.stage(uuid) / "weights").write_text("w")
    for path in [*(tmp_path / "spool" / ".old.partial").rglob("*"), tmp_path / "spool" / ".old.partial"]:
        os.utime(path, (LONG_AGO, LONG_AGO))
    write_json(tmp_path / "garbage.json", Garbage(spool=str(spool)).to_json())
    assert garbage.main(str(tmp_path / "garbage.json")) == 0
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [".new.partial"]
    write_json(tmp_path / "garbage.json", Garbage(spool=str(tmp_path / "none")).to_json())
    assert garbage.main(str(tmp_path / "garbage.json")) == 0 and not (tmp_path / "none").exists()
