"""The spool: who dies while a checkpoint comes to it, or leaves it, loses nothing and leaves nothing half."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from dethpc.errors import CheckpointDamaged, CheckpointNotFound
from dethpc.storage import build, manifest
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Claim, Owner
from dethpc.storage.spool import Spool, Spooled
from tests.storage.contract import FILES, content_of, fill, whole_or_none
from tests.storage.dying import died_at_each_step
from tests.storage.servers import GCS, gcs_server

__all__ = ["gcs_server"]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def whole(spool: Spool) -> list[str]:
    return sorted(one.uuid for one in spool.names() if one.whole)


def test_who_is_killed_at_any_step_of_keeping_leaves_a_whole_copy_or_none(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = died_at_each_step("keep", {"type": "directory", "container_path": "/nowhere"}, tmp_path)
    steps = [f"a{step}" for step in range(1, died + 1)]
    whole_or_none(spool, [f"a{died + 1}"], steps)
    assert any(not one.whole for one in spool.names()), "somebody was killed in the middle"

    fill(tmp_path / "again")
    for uuid in set(steps) - set(whole(spool)):
        spool.put(uuid, tmp_path / "again")
    whole_or_none(spool, [*steps, f"a{died + 1}"], [])
    for uuid in whole(spool):
        spool.delete(uuid)
    monkeypatch.setattr("dethpc.storage.spool._ABANDONED", -1.0)
    spool.tidy()
    assert not list((tmp_path / "spool").iterdir())


@pytest.fixture(params=["shared_fs", "gcs"])
def section(request: pytest.FixtureRequest, tmp_path: Path) -> Dict[str, Any]:
    if request.param == "gcs":
        server: GCS = request.getfixturevalue("gcs_server")
        return server.section()
    return {"type": "shared_fs", "host_path": str(tmp_path / "store")}


def test_who_is_killed_at_any_step_of_bringing_leaves_it_in_one_place_at_least_and_the_next_brings_it(
    spool: Spool, tmp_path: Path, section: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    died = died_at_each_step("bring", section, tmp_path)
    store, steps = build(section, disk=str(tmp_path / "disk")), [f"a{step}" for step in range(1, died + 1)]
    assert store.exists(f"a{died + 1}") and not spool.exists(f"a{died + 1}")
    there = {uuid: (spool.exists(uuid), store.exists(uuid)) for uuid in steps}
    assert set(there.values()) >= {(True, False), (True, True)} and (False, False) not in there.values()
    for uuid, (spooled, _) in there.items():
        with (spool if spooled else store).restore(uuid) as path:
            assert content_of(path) == FILES

    for uuid in whole(spool):
        spool.move(uuid, store)
    whole_or_none(store, [*steps, f"a{died + 1}"], [])
    assert all(one.whole for one in store.names()), "nothing of those that died is left in the store"
    monkeypatch.setattr("dethpc.storage.spool._ABANDONED", -1.0)
    spool.tidy()
    assert not list((tmp_path / "spool").iterdir())


def test_what_is_read_from_the_spool_stays_readable_while_it_is_brought_to_its_store(
    spool: Spool, tmp_path: Path
) -> None:
    fill(tmp_path / "made")
    spool.put("a1", tmp_path / "made")
    store = FileStore(tmp_path / "store")
    with Spooled(store, spool).restore("a1") as path:
        spool.move("a1", store)
        assert content_of(path) == FILES
    assert not list((tmp_path / "spool").iterdir())


@pytest.mark.parametrize("brought", [True, False])
def test_a_checkpoint_that_leaves_the_spool_as_somebody_begins_to_read_it_is_read_from_its_store(
    brought: bool, spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "made")
    spool.put("a1", tmp_path / "made")
    store = FileStore(tmp_path / "store")

    def refused(*names: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    def link(*names: Path) -> None:
        monkeypatch.setattr(os, "link", refused)
        if brought:
            spool.move("a1", store)
        refused()

    monkeypatch.setattr(os, "link", link)
    with Spooled(store, spool).restore("a1") as path:
        assert content_of(path) == FILES
    assert spool.exists("a1") is not brought


def while_copying(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Somebody acts before each file is copied."""
    copy = manifest.copy

    def acting(*files: Any) -> Any:
        act()
        return copy(*files)

    monkeypatch.setattr(manifest, "copy", acting)


def test_what_is_deleted_while_it_is_brought_leaves_nothing_in_its_store(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "made")
    spool.put("a1", tmp_path / "made")
    store = FileStore(tmp_path / "store")
    while_copying(monkeypatch, lambda: spool.delete("a1"))
    with pytest.raises(CheckpointNotFound):
        spool.move("a1", store)
    assert not list(store.names()) and not list(spool.names())


def test_files_that_are_deleted_while_their_checkpoint_is_brought_are_no_failure(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "made")
    spool.put("a1", tmp_path / "made")
    store = FileStore(tmp_path / "store")
    while_copying(monkeypatch, lambda: spool.delete("a1", ["weights.pt", "sub/**/*"]))
    spool.move("a1", store)
    with store.restore("a1") as path:
        assert content_of(path).items() >= {("metadata.json", FILES["metadata.json"])}
    assert not spool.exists("a1")


def test_what_is_brought_while_files_of_it_are_deleted_has_the_others_left(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "made")
    spool.put("a1", tmp_path / "made")
    store = FileStore(tmp_path / "store")
    delete = spool.delete

    def brought(*what: Any, **claim: Any) -> Any:
        monkeypatch.setattr(spool, "delete", delete)
        spool.move("a1", store)
        return delete(*what, **claim)

    monkeypatch.setattr(spool, "delete", brought)
    left = Spooled(store, spool).delete("a1", ["weights.pt"])
    assert left == store.files("a1") and "weights.pt" not in left and "metadata.json" in left


def test_a_damaged_copy_is_found_when_it_is_brought_and_stays(spool: Spool, tmp_path: Path) -> None:
    fill(tmp_path / "made")
    spool.put("a1", tmp_path / "made")
    (tmp_path / "spool" / "a1" / "weights.pt").write_bytes(b"x" * 1000)
    store = build({"type": "shared_fs", "host_path": str(tmp_path / "store")})
    with pytest.raises(CheckpointDamaged, match=r"weights\.pt is damaged"):
        spool.move("a1", store)
    assert spool.exists("a1") and not store.exists("a1") and not list(store.names())


class _Steps:
    """Calls ``first`` before step ``i`` of what is watched, and ``second`` before step ``j``: a call of one of its methods."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, i: int, j: int, first: Any, second: Any) -> None:
        self.count, self._at = 0, {i: [first], j: [second]} if i != j else {i: [first, second]}
        self._busy = False
        self._monkeypatch = monkeypatch

    def watch(self, target: Any, *names: str) -> None:
        for name in names:
            method = getattr(target, name)

            def step(*args: Any, method: Any = method, **kwargs: Any) -> Any:
                if not self._busy:
                    self._busy = True
                    for act in self._at.pop(self.count, []):
                        act()
                    self.count, self._busy = self.count + 1, False
                return method(*args, **kwargs)

            self._monkeypatch.setattr(target, name, step)

    def end(self) -> bool:
        """What has not happened does now. Whether nothing was left."""
        left = [act for acts in self._at.values() for act in acts]
        for act in left:
            act()
        return not left


def test_what_is_deleted_at_any_step_of_its_upload_stays_nowhere(tmp_path: Path) -> None:
    """A deletion removes it from the spool, and later from its store, while a live run brings it there."""
    claim = Claim("cluster", "experiment")
    steps = 0
    pairs = [(i, j) for i in range(12) for j in range(i, 12)]
    for n, (i, j) in enumerate(pairs):
        fill(tmp_path / f"{n}" / "source")
        spool = Spool(tmp_path / f"{n}" / "spool")
        spool.owner = Owner("cluster", "experiment", 1, 1)
        store = FileStore(tmp_path / f"{n}" / "store")
        store.owner = spool.owner
        spool.put("a1", tmp_path / f"{n}" / "source")
        with pytest.MonkeyPatch.context() as patch:
            deleting = _Steps(
                patch,
                i,
                j,
                lambda spool=spool: spool.delete("a1", claim=claim),
                lambda store=store: store.delete("a1", claim=claim),
            )
            deleting.watch(store, "exists", "stage", "add", "publish", "discard")
            deleting.watch(spool, "exists", "delete", "identity")
            try:
                spool.move("a1", store)
            except CheckpointNotFound:
                pass
            steps = max(steps, deleting.count)
            deleting.end()
        assert not store.exists("a1") and not spool.exists("a1"), (i, j)
        assert not list(store.names()), (i, j)
    assert steps >= 4


@pytest.mark.parametrize("by", ["another mover", "the job that wrote it"])
@pytest.mark.parametrize("kind", ["shared_fs", "gcs"])
def test_two_who_bring_one_checkpoint_at_once_lose_nothing(
    by: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A job that the scheduler takes for dead, and the task that the master has sent after it."""
    steps = 0
    for step in range(12):
        place = tmp_path / str(step)
        fill(place / "source")
        spool = Spool(place / "spool")
        section = {"type": "shared_fs", "host_path": str(place / "store")}
        if kind == "gcs":
            section = {**request.getfixturevalue("gcs_server").section(), "prefix": f"{by[0]}{step}"}
        store, other = (build(section, disk=str(place / disk)) for disk in ("here", "there"))
        spool.put("a1", place / "source")

        def act(spool: Spool = spool, other: Any = other, place: Path = place) -> None:
            if by == "another mover":
                Spool(place / "spool").move("a1", other)
            elif not other.exists("a1"):
                other.put("a1", place / "source")
                Spool(place / "spool").forget("a1")

        with pytest.MonkeyPatch.context() as patch:
            others = _Steps(patch, step, step, act, lambda: None)
            others.watch(store, "exists", "stage", "add", "publish", "discard")
            others.watch(spool, "exists", "delete", "forget", "identity")
            try:
                spool.move("a1", store)
            except CheckpointNotFound:
                pass
            steps = max(steps, others.count)
            others.end()
        with store.restore("a1") as path:
            assert content_of(path) == FILES, step
        if by == "another mover":
            assert not spool.exists("a1"), step
    assert steps >= 4
