"""Whose scheduler a master serves, and what a shell that is set up for another is told."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.cli.own_master import scheduler, serves_another, serves_another_cluster

DEV = {"scheduler": {"kind": "slurm", "slurm_conf": "/dev/slurm.conf", "chosen": ""}, "host": "login1"}
HERE: dict[str, Any] = {"scheduler": {"kind": "local", "slurm_conf": "", "chosen": ""}, "host": "login1"}


def test_a_shell_with_another_slurm_than_the_masters_is_told() -> None:
    reply = serves_another(HERE, {"SLURM_CONF": "/dev/slurm.conf"})
    assert "without this shell's SLURM_CONF (/dev/slurm.conf) and serves the machine that it runs on, login1" in reply
    assert reply.endswith("det master down")
    assert "serves Slurm (/dev/slurm.conf)" in serves_another(DEV, {"SLURM_CONF": "/site/slurm.conf"})
    chosen = {**HERE, "scheduler": {**HERE["scheduler"], "chosen": "DETHPC_SCHEDULER"}}  # by the shell that started it
    assert serves_another(chosen, {"SLURM_CONF": "/site/slurm.conf"})


@pytest.mark.parametrize(
    "master, env",
    [
        (DEV, {"SLURM_CONF": "/dev/../dev/slurm.conf"}),
        (DEV, {}),
        (HERE, {}),
        (HERE, {"SLURM_CONF": "/dev/slurm.conf", "DETHPC_SCHEDULER": "local"}),
        ({**HERE, "scheduler": {**HERE["scheduler"], "chosen": "the site configuration"}}, {"SLURM_CONF": "/x"}),
        ({"host": "login1"}, {"SLURM_CONF": "/x"}),  # of an earlier release
    ],
)
def test_nothing_is_said_where_it_is_the_same_or_was_chosen(master: dict[str, Any], env: dict[str, str]) -> None:
    assert serves_another(master, env) == ""


def test_the_scheduler_is_named() -> None:
    assert scheduler(DEV) == "Slurm (/dev/slurm.conf)"
    assert scheduler({}) == ""


def test_an_experiment_goes_to_no_other_cluster_than_its_shell_chooses() -> None:
    other = {**DEV, "scheduler": {**DEV["scheduler"], "slurm_clusters": "other"}}  # type: ignore[dict-item]
    reply = serves_another_cluster(DEV, {"SLURM_CLUSTERS": "other"})
    assert "chooses the cluster other (SLURM_CLUSTERS), and your master serves the cluster of its slurm.conf" in reply
    assert "serves the cluster other. To use dev" in serves_another_cluster(other, {"SLURM_CLUSTERS": "dev"})
    assert serves_another_cluster(other, {"SLURM_CLUSTERS": "other"}) == serves_another_cluster(other, {}) == ""
    assert serves_another_cluster(HERE, {"SLURM_CLUSTERS": "other"}) == ""
    assert scheduler(other) == "Slurm (/dev/slurm.conf, cluster other)"
