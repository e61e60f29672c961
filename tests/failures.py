"""What a test that failed says of the world it failed in: its Slurm's nodes and jobs, and its user's runs that have not ended.

A failure that only a busy machine shows is seen once, and what stood there at that moment explains it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from dethpc.errors import DethpcError

_LINES = 15  # of a log
_RUNS = 12


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report: Any = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Cluster):
                report.sections.append((f"Slurm of {name}", _cluster(value)))
            elif isinstance(home := getattr(value, "home", None), Path):
                report.sections.append((f"open runs of {name}", "\n".join(_open_runs(home))))
    return report


def _cluster(cluster: Cluster) -> str:
    said = []
    for command in (
        ["sinfo", "--Node", "--format=%N %P %T %C %G %E"],
        ["squeue", "--all", "--format=%i %u %j %T %r %N %M %e"],
        ["tail", f"--lines={_LINES}", str(cluster.folder / "log" / "slurmctld.log")],
    ):
        try:
            said.append(cluster.run(*command, timeout=30))
        except (DethpcError, subprocess.TimeoutExpired) as error:
            said.append(str(error))
    return "\n".join(said)


def _open_runs(home: Path) -> Iterator[str]:
    runs = sorted((home / "runs").glob("*/spec.json"), key=lambda spec: spec.stat().st_mtime)
    open_ones = [spec.parent for spec in runs if not list(spec.parent.glob("attempts/*/end.json"))]
    for run in open_ones[-_RUNS:]:
        attempts = [*sorted((run / "attempts").glob("*"))]
        yield f"{run.name}: {' '.join(sorted(path.name for path in run.iterdir()))}"
        for folder in attempts:
            yield f"  attempt {folder.name}: {' '.join(sorted(path.name for path in folder.iterdir()))}"
        for log in [run / "slurm.log", *run.glob("attempts/*/logs/*.log"), *run.glob("waiting-*.log")]:
            if log.exists():
                yield from (
                    f"    {log.name}: {line}" for line in log.read_text(errors="replace").splitlines()[-_LINES:]
                )
