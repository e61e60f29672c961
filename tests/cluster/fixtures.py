"""A real Slurm for the tests: ``slurm`` is one cluster per session, shared; ``slurm_private`` is one per test, free to be broken.

They change nothing global: hand ``cluster.env`` to what should use the cluster. Tests that use them are marked ``slurm``.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dethpc.deploy import accounting, slurm_dev
from dethpc.errors import DethpcError

CLUSTERS = f"slurm-test-{os.getpid()}-{secrets.token_hex(2)}-"
"""How the names of the folders begin where the tests of this process, and no others, start clusters."""

FIXTURES = {"slurm", "slurm_private", "slurm_accounting", "slurm_of_both_priorities"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slurm: runs on a real Slurm that the test starts on this machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        own_cluster = item.path.match("e2e/*_slurm.py")
        if own_cluster or FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slurm)


def _require(shape: slurm_dev.Shape) -> None:
    try:
        slurm_dev.require_programs(shape)
    except DethpcError as error:
        pytest.skip(str(error))


def private_cluster(shape: slurm_dev.Shape) -> Iterator[slurm_dev.Cluster]:
    """For a fixture: a cluster of that shape, as long as the fixture lives."""
    _require(shape)
    with tempfile.TemporaryDirectory(prefix=CLUSTERS) as parent:
        Path(parent).chmod(0o755)  # every user of this machine may use it, as on a site
        folder = Path(parent) / "c"
        cluster = slurm_dev.up(folder, shape)
        try:
            yield cluster
        finally:
            slurm_dev.down(folder)


@pytest.fixture(scope="session")
def slurm() -> Iterator[slurm_dev.Cluster]:
    """4 nodes with 4 GPUs and 8 CPUs each, no accounting; partitions ``main`` (default, preemptible) and ``high``."""
    yield from private_cluster(slurm_dev.Shape())


@pytest.fixture(scope="session")
def slurm_accounting() -> Iterator[slurm_dev.Cluster]:
    """As ``slurm``, with slurmdbd."""
    if not accounting.installed(slurm_dev.search_path()):
        pytest.skip(f"slurmdbd or MariaDB is not installed: {accounting.INSTALL}")
    yield from private_cluster(slurm_dev.Shape(accounting=True, min_job_age=2))


@pytest.fixture(scope="module", params=[pytest.param("basic", marks=pytest.mark.everything), "multifactor"])
def slurm_of_both_priorities(request: pytest.FixtureRequest) -> Iterator[slurm_dev.Cluster]:
    """As ``slurm``: one whose priorities leave room for nice, and one with weights of zero, where all jobs have the least."""
    yield from private_cluster(slurm_dev.Shape(priority=request.param))


@pytest.fixture
def slurm_private() -> Iterator[Callable[..., slurm_dev.Cluster]]:
    """A function that starts a cluster for this test alone; arguments are the fields of ``slurm_dev.Shape``."""
    running: list[slurm_dev.Cluster] = []

    def start(**options: object) -> slurm_dev.Cluster:
        _require(slurm_dev.Shape())
        with tempfile.TemporaryDirectory(prefix=CLUSTERS) as parent:
            folder = Path(parent)
        running.append(slurm_dev.up(folder, **options))
        return running[-1]

    try:
        yield start
    finally:
        for cluster in running:
            slurm_dev.down(cluster.folder)
