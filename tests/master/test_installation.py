from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from pathlib import Path

import pytest

import dethpc
from dethpc.client import address
from dethpc.config.site import SiteConfig
from dethpc.errors import LeaseHeld, Refused
from dethpc.master.durable.lease import Lease
from dethpc.master.experiments.own_storage import own
from dethpc.master.installation import Installation, cluster_id
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"cluster_id": 5}', '{"pid": "y"}', None])
def test_a_cluster_file_that_is_damaged_or_gone_gets_its_id_again(home: Home, damage: str | None) -> None:
    """Jobs that run are found by the id: with another one their trials would be trained twice."""
    known = cluster_id(home)
    assert cluster_id(home) == known
    home.run("1.1.1").make()
    for witness in (home.master_file, home.run("1.1.1").spec):
        write_json(witness, {"cluster_id": known})
        if damage is None:
            home.cluster_file.unlink()
        else:
            home.cluster_file.write_text(damage)
        assert cluster_id(home) == known == json.loads(home.cluster_file.read_text())["cluster_id"]
        witness.unlink()
    home.cluster_file.write_text(damage or "")
    with pytest.raises(
        Refused, match=r"cluster.json is missing or damaged.* neither master.json nor the spec.json of any run"
    ):
        cluster_id(home)


def test_a_copy_of_a_home_is_refused_while_the_original_is_there(home: Home, tmp_path: Path) -> None:
    known = cluster_id(home)
    original = Lease(home.master_file, known)
    original.take()
    original.publish("http://127.0.0.1:1234")
    copy = Home(shutil.copytree(home.root, tmp_path / "copy"))
    with pytest.raises(Refused, match=f"{copy.root} is a copy of {home.root}, which is still there") as refused:
        cluster_id(copy)
    assert copy.own_master() == {} and home.own_master()["url"] == "http://127.0.0.1:1234"
    assert address.master_url({"DETHPC_HOME": str(copy.root)}) is None
    assert address.master_url({"DETHPC_HOME": str(home.root)}) == "http://127.0.0.1:1234"
    copy.cluster_file.unlink()
    os.link(home.cluster_file, copy.cluster_file)  # as some backups do
    assert copy.copied_from() == home.root
    copy.cluster_file.unlink()
    shutil.copy(home.cluster_file, copy.cluster_file)
    # What the message says makes the copy a home of its own.
    command = str(refused.value).partition("another id: ")[2]
    os.system(command)  # noqa: S605
    assert uuid.UUID(cluster_id(copy)) != uuid.UUID(known) and copy.copied_from() is None and copy.own_master() == {}
    Lease(copy.master_file, cluster_id(copy)).take()
    with pytest.raises(LeaseHeld):
        Lease(home.master_file, known).take()
    assert cluster_id(home) == known
    assert copy.originals == [home.root] and home.originals == []


def test_a_copy_of_a_home_that_is_away_is_served_when_its_owner_says_which_of_both_it_is(
    home: Home, tmp_path: Path
) -> None:
    """The original may come back, and both would have one id."""
    known = cluster_id(home)
    copies = [Home(shutil.copytree(home.root, tmp_path / name)) for name in ("one", "two")]
    home.root.rename(tmp_path / "away")
    for copy, which in zip(copies, (0, 1), strict=True):
        with pytest.raises(
            Refused, match=f"{copy.root} was copied from {home.root}, which is not there now"
        ) as refused:
            cluster_id(copy)
        commands = re.findall(r"echo .*?cluster\.json", str(refused.value))
        os.system(commands[which])  # noqa: S605
    assert cluster_id(copies[0]) == known and copies[0].originals == []
    assert cluster_id(copies[1]) != known and copies[1].originals == [home.root]
    assert cluster_id(copies[0]) == known


def test_a_copy_made_independent_stores_in_a_folder_of_its_own_and_reads_the_originals(
    home: Home, tmp_path: Path
) -> None:
    """Whatever absolute paths its configurations and its site file have."""
    cluster_id(home)
    copies = [Home(shutil.copytree(home.root, tmp_path / "copy"))]
    with pytest.raises(Refused) as refused:
        cluster_id(copies[0])
    os.system(str(refused.value).partition("another id: ")[2])  # noqa: S605
    cluster_id(copies[0])
    copies.append(Home(shutil.copytree(copies[0].root, tmp_path / "copy of copy")))
    with pytest.raises(Refused) as refused:
        cluster_id(copies[1])
    os.system(str(refused.value).partition("another id: ")[2])  # noqa: S605
    cluster_id(copies[1])
    assert copies[1].originals == [copies[0].root, home.root]
    section = {"type": "shared_fs", "host_path": str(home.root), "storage_path": "checkpoints", "save_trial_best": 3}
    moved = own(section, copies[0], copies[0].originals)
    assert moved == {
        "type": "shared_fs",
        "host_path": str(copies[0].checkpoints),
        "read_from": [str(home.checkpoints)],
        "save_trial_best": 3,
    }
    again = own(moved, copies[1], copies[1].originals)
    assert (again["host_path"], again["read_from"]) == (
        str(copies[1].checkpoints),
        [str(copies[0].checkpoints), str(home.checkpoints)],
    )
    assert own(moved, copies[0], copies[0].originals) == moved
    for other in (
        {"type": "shared_fs", "host_path": f"{home.root}-2/checkpoints"},
        {"type": "s3", "bucket": "b"},
        {"type": "directory", "container_path": str(home.checkpoints)},
    ):
        assert own(other, copies[0], copies[0].originals) == other
    site = SiteConfig(checkpoint_storage={"type": "shared_fs", "host_path": str(home.checkpoints)})
    placed = Installation(copies[0], site, "id", "local").checkpoint_storage
    assert placed["host_path"] == str(copies[0].checkpoints) and placed["read_from"] == [str(home.checkpoints)]


def test_a_copy_made_independent_as_an_earlier_release_said_knows_its_original(home: Home, tmp_path: Path) -> None:
    known = cluster_id(home)
    home.make()
    run = home.run("1.1.1")
    run.path.mkdir(parents=True)
    write_json(run.spec, {"cluster_id": known, "master_file": str(home.master_file)})
    copy = Home(shutil.copytree(home.root, tmp_path / "copy"))
    copy.cluster_file.write_text('{"cluster_id": "11111111-2222-4333-8444-555555555555"}')
    cluster_id(copy)
    assert copy.originals == [home.root]
    cluster_id(home)
    assert home.originals == []


def test_a_home_that_was_moved_or_is_reached_by_another_path_keeps_its_id(home: Home, tmp_path: Path) -> None:
    known = cluster_id(home)
    link = tmp_path / "link"
    link.symlink_to(home.root)
    assert cluster_id(Home(link)) == known and cluster_id(home) == known
    moved = Home(home.root.rename(tmp_path / "moved"))
    assert cluster_id(moved) == known and moved.copied_from() is None


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *files: str) -> None:
    """As pip leaves it: the package that this process imports, and the list of its files."""
    record = folder / "dethpc-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True, exist_ok=True)
    others = ("dethpc-0.1.0.dist-info/RECORD,,", "../../../bin/det,sha256=abc,216", "dethpc/__pycache__/x.pyc,,")
    record.write_text("\n".join([*files, *others]))
    monkeypatch.setattr(dethpc, "__file__", str(folder / "dethpc" / "__init__.py"))


def test_a_master_whose_files_were_replaced_says_so(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, "dethpc/a.py,sha256=1,2", "determined/__init__.py,sha256=3,4")
    installation = Installation(home, SiteConfig(), "c", "local")
    assert installation.build and not installation.replaced
    installed(tmp_path, monkeypatch, "determined/__init__.py,sha256=3,4", "dethpc/a.py,sha256=1,2")
    assert not installation.replaced, "the same files"
    installed(tmp_path, monkeypatch, "dethpc/a.py,sha256=5,2", "determined/__init__.py,sha256=3,4")
    assert "det master down" in installation.replaced
    shutil.rmtree(tmp_path / "dethpc-0.1.0.dist-info")
    assert not installation.replaced, "an installer is at work"


def test_a_source_tree_has_no_build(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "_editable_impl_dethpc.pth,sha256=1,2")
    assert Installation(home, SiteConfig(), "c", "local").build == ""
