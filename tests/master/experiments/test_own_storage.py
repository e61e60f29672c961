"""A copy of a home that was made independent, over the objects of its master."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dethpc.client.nouns import checkpoints
from dethpc.domain.facts import Checkpoint
from dethpc.domain.states import State
from dethpc.engine.fold import fold
from dethpc.master.experiments import own_storage
from dethpc.rundir.files import read_json, write_json
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import queries
from dethpc.storage import build
from dethpc.storage.files import FileStore
from tests.master.conftest import CONFIG, Served, experiment, trained, trial, uuid_of
from tests.storage.contract import FILES, content_of, fill


def test_an_independent_copy_trains_on_in_its_own_storage_and_leaves_the_originals_alone(
    served: Served, tmp_path: Path
) -> None:
    home, original = served.daemon.installation.home, tmp_path / "original"
    old = FileStore(original / "checkpoints")
    for uuid in (uuid_of(1, 2), uuid_of(1, 4), uuid_of(2, 4)):
        fill(old.stage(uuid))
        old.publish(uuid)
    section = {"type": "shared_fs", "host_path": str(old), "save_trial_best": 0, "save_trial_latest": 1}
    config = {**CONFIG, "checkpoint_storage": section}
    elsewhere = {**CONFIG, "checkpoint_storage": {"type": "shared_fs", "host_path": str(tmp_path / "site")}}
    open_trial = trial(2, 2, index=0, state=State.PAUSED, ended_at=None, latest_checkpoint=uuid_of(2, 4))
    paused = experiment(2, config=config, state=State.PAUSED, ended_at=None, owner=served.owner)
    ended = experiment(1, config=config, owner=served.owner)
    rows = [ended, *trained(trial(1)), paused, *trained(open_trial), experiment(3, config=elsewhere)]
    served.put([replace(row, storage=section) if isinstance(row, Checkpoint) else row for row in rows])
    served.daemon.ledger.state = fold(build_searcher, served.daemon.store.load())
    for run in ("1.1.1", "2.2.1"):  # they were submitted under the original's id
        write_json(home.run(run).spec, {"cluster_id": "the original's"})
    before = {path: path.stat().st_mtime_ns for path in original.rglob("*")}

    own_storage.move(home, served.daemon.ledger, served.daemon.store)  # it is no copy
    with served.daemon.store.read() as connection:
        assert queries.experiment(connection, 1).config == config
    write_json(home.cluster_file, {**(read_json(home.cluster_file) or {}), "copied_from": [str(original)]})
    for _ in range(2):
        own_storage.move(home, served.daemon.ledger, served.daemon.store)
    with served.daemon.store.read() as connection:
        sections = {id: queries.experiment(connection, id).config["checkpoint_storage"] for id in (1, 2, 3)}
    for id in (1, 2):
        assert (sections[id]["host_path"], sections[id]["read_from"]) == (str(home.checkpoints), [str(old)])
        assert sections[id]["save_trial_best"] == 0
    assert sections[3] == elsewhere["checkpoint_storage"]
    live = served.daemon.ledger.state.experiments[2].config.checkpoint_storage
    assert live is not None and live.model_dump(mode="json") == sections[2]

    store = build(sections[2])
    with store.restore(uuid_of(2, 4)) as path:
        assert content_of(path) == FILES
    assert checkpoints.get(served.session, uuid_of(2, 4))["elsewhere"] == ""
    assert b"".join(checkpoints.archive(served.session, uuid_of(2, 4)))
    checkpoints.delete(served.session, [uuid_of(1, 2)])
    served.collect()
    assert "left in place" in checkpoints.get(served.session, uuid_of(1, 2))["reason"]
    served.delete(1)
    assert {path: path.stat().st_mtime_ns for path in original.rglob("*")} == before
