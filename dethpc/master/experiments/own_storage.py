"""Gives a copied home that became independent a checkpoint storage of its own.

Configurations name the checkpoint storage by its absolute path, which by default is a folder of the home. In a copy, that is a
folder of the original: its experiments read from there what they had saved until they were copied, and write and delete in this
home.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dethpc import storage
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.trial_config import TrialConfig
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import ConfigError, DethpcError, NotFound
from dethpc.master.durable.ledger import Ledger
from dethpc.rundir.files import read_json, sealed, write_json
from dethpc.rundir.home import Home
from dethpc.state import queries
from dethpc.state.store import SqlStore

log = logging.getLogger(__name__)

_MOVED = "storage_is_own"
"""In cluster.json: the configurations of all experiments that came with the copy name this home's storage."""


def own(section: dict[str, Any], home: Home, originals: Sequence[Path]) -> dict[str, Any]:
    """``section``, or where that is a folder of one of the ``originals``, the same folder of this home, which reads from it."""
    if section.get("type") != "shared_fs":
        return section
    try:
        place = Path(str(storage.build(section)))
    except ConfigError:
        return section
    for original in originals:
        if original in (place, *place.parents):
            folder = home.root / place.relative_to(original)
            earlier = [str(place), *(section.get("read_from") or [])]
            common = {name: section[name] for name in storage.ABOUT_OTHERS if name in section}
            return {**common, "host_path": str(folder), "read_from": list(dict.fromkeys(earlier))}
    return section


def move(home: Home, ledger: Ledger, store: SqlStore) -> None:
    """Change the configurations of all experiments that name a storage of an original of this home; once. Raises StoreError."""
    cluster = read_json(home.cluster_file) or {}
    originals = home.originals
    if not originals or cluster.get(_MOVED):
        return
    with store.read() as connection:
        rows = [row for row in queries.all_experiments(connection) if row.state.keeps_files]
    count = 0
    for row in rows:
        section = TrialConfig.from_json(row.config).checkpoint_storage
        changed = own(section, home, originals)
        if changed == section:
            continue
        config = ExperimentConfig.from_json({**row.config, "checkpoint_storage": changed})
        change = ExperimentChanges(config=config.to_json())
        try:
            wish = events.ChangeExperiment(row.id, change, time.time())
            ledger.do(events.LoadExperiment(row, (), wish))
            count += 1
        except NotFound:
            continue
        except DethpcError as error:
            log.warning("experiment %s keeps its checkpoint_storage %s: %s", row.id, section, error)
    if count:
        log.info(
            "%d experiments that were copied from %s store their checkpoints here from now on", count, originals[0]
        )
    write_json(home.cluster_file, sealed({**(read_json(home.cluster_file) or {}), _MOVED: True}))
    os.makedirs(home.checkpoints, mode=0o700, exist_ok=True)
