"""A home whose checkpoints an earlier release stored: their manifests, and the specifications of its runs, name no owner."""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from dethpc.client.nouns import checkpoints
from dethpc.domain.facts import Checkpoint, Run
from dethpc.errors import MasterError
from dethpc.exec import resume
from dethpc.master.http.auth import mint_run_token
from dethpc.rundir.files import sealed, write_json
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec
from tests.master.conftest import CONFIG, T0, Served, experiment, trained, trial, uuid_of

DAY = 86400.0
KEPT = [uuid_of(1, 4), uuid_of(2, 2), uuid_of(2, 4)]


def checkpoint_of_before(folder: Path) -> None:
    """As a release before owners left it on disk, byte for byte but for its sums."""
    folder.mkdir(parents=True)
    (folder / "weights.pt").write_bytes(b"w")
    (folder / "metadata.json").write_text('{\n  "steps_completed": 4\n}')
    files = {
        path.name: {"size": path.stat().st_size, "crc32": [f"{zlib.crc32(path.read_bytes()):08x}"]}
        for path in sorted(folder.iterdir())
    }
    content = {"version": 1, "block": 67108864, "files": files}
    text = json.dumps({**content, "crc32": f"{zlib.crc32(json.dumps(content).encode()):08x}"})
    (folder / ".dethpc-manifest.json").write_text(text)


def spec_of_before(served: Served, run: str, trial_id: int) -> dict[str, Any]:
    installation = served.daemon.installation
    return sealed(
        {
            "cluster_id": installation.cluster_id,
            "cluster_name": "cluster",
            "master_file": str(installation.home.master_file),
            "run": run,
            "experiment_id": trial_id,
            "trial_id": trial_id,
            "task_id": f"{trial_id}.{trial_id}",
            "run_number": 1,
            "trial_seed": 1,
            "hparams": {},
            "config": CONFIG,
            "entrypoint": "python3 train.py",
            "context": "",
            "context_sha256": "",
            "token": "",
            "queue_id": f"00000000-0000-4000-8000-{trial_id:012d}",
            "version": 1,
        }
    )


@pytest.fixture
def storage(served: Served, tmp_path: Path) -> Path:
    """Shared with others: two experiments of this home, one that was imported without its files, and somebody's thesis."""
    folder = tmp_path / "shared"
    section = {"type": "shared_fs", "host_path": str(folder), "save_trial_best": 0, "save_trial_latest": 1}
    config = {**CONFIG, "checkpoint_storage": section}
    for id in (1, 2):
        for steps in (2, 4):
            checkpoint_of_before(folder / uuid_of(id, steps))
        rows = trained(trial(id, id, index=0))
        (run,) = (row for row in rows if isinstance(row, Run))
        served.daemon.installation.home.run(run.id).attempt(0).make()
        write_json(served.daemon.installation.home.run(run.id).spec, spec_of_before(served, run.id, id))
        served.put([experiment(id, config=config, owner=served.owner, collect=id == 1), *rows])
    imported = trained(trial(3, 3, index=0))
    for row in imported:
        if isinstance(row, Checkpoint):
            checkpoint_of_before(folder / row.uuid)
    served.daemon.store.commit(
        [experiment(3, config=config, owner=served.owner, imported_run="0123456789abcdef0123456789abcdef"), *imported]
    )
    (folder / "thesis").mkdir()
    return folder


@pytest.mark.parametrize("folded", [False, True])
def test_old_checkpoints_are_collected_downloaded_resumed_from_and_deleted(
    served: Served, storage: Path, folded: bool
) -> None:
    home = served.daemon.installation.home
    if folded:  # its trials ended long ago
        served.daemon.folding.fold_due(T0 + DAY)
        assert not home.run("1.1.1").path.exists()
    served.collect()
    anothers = {uuid_of(3, 2), uuid_of(3, 4), "thesis"}
    assert {path.name for path in storage.iterdir()} == {*KEPT, *anothers}
    (run,) = (row for row in trained(trial(2, 2)) if isinstance(row, Run))
    by_run = served.as_run(run, mint_run_token(run.id)[0])
    for session in (served.session, by_run):
        assert b"".join(checkpoints.archive(session, uuid_of(2, 4)))
    with pytest.raises(MasterError):
        b"".join(checkpoints.archive(by_run, uuid_of(1, 4)))
    checkpoints.remove_files(served.session, [uuid_of(2, 2)], ["*.pt"])
    served.collect(time.time() + DAY)
    assert sorted(path.name for path in (storage / uuid_of(2, 2)).iterdir()) == [
        ".dethpc-manifest.json",
        "metadata.json",
    ]
    for id in (1, 2, 3):
        served.delete(id)
    assert {path.name for path in storage.iterdir()} == anothers


def test_a_run_goes_on_from_an_old_checkpoint(served: Served, storage: Path, tmp_path: Path) -> None:
    section = {"type": "shared_fs", "host_path": str(storage)}
    known = {"uuid": uuid_of(2, 4), "steps_completed": 4}
    spec = Spec.from_json(spec_of_before(served, "2.2.2", 2))._replace(
        checkpoint_storage=section, checkpoints=[known], latest_checkpoint=uuid_of(2, 4), owned=True
    )
    found = resume.find(RunDir(tmp_path / "2.2.2"), 0, spec)
    assert (found.checkpoint, found.steps) == (uuid_of(2, 4), 4)
