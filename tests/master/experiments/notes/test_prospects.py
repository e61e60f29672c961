"""What Slurm says of a job that it only tests is handed on without a promise."""

from __future__ import annotations

from dethpc.config.loading import load
from dethpc.domain.ports import Prospect
from dethpc.master.experiments.notes import prospects

CONFIG = """
name: x
entrypoint: "true"
searcher: {name: single, metric: loss}
checkpoint_storage: {type: shared_fs, host_path: /tmp}
resources: {resource_pool: main}
"""


def test_a_request_that_drained_nodes_or_no_node_could_meet_is_told_with_both_ends() -> None:
    reason = "Requested node configuration is not available"
    (note,) = prospects.notes(Prospect(hindrance=reason), load(CONFIG, file="config").config)
    assert f"in pool main at present: {reason}" in note
    assert "trials wait if the nodes are only down or drained" in note and "they end with this reason" in note
