"""Each guard of the matrix is shown by a test that fails without it, and the documents show the matrix as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_promises import functions_of
from tests.evidence.matrix import CELLS, Cell, Guard, table

ROOT = Path(__file__).parents[2]
PARTS = ("dethpc", "launchers", "templates", "determined", "tests", "pyproject.toml", "examples", "docs")


@pytest.mark.parametrize("page", ["reliability", "security"])
def test_the_documents_show_the_matrix(page: str) -> None:
    assert table(page) in (ROOT / "docs" / f"{page}.md").read_text(), f"docs/{page}.md should have:\n{table(page)}"


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.evidence}-{cell.test.rpartition('::')[2]}")
def test_a_guard_stands_where_the_matrix_says(cell: Cell) -> None:
    assert (ROOT / cell.guard.file).read_text().count(cell.guard.old) == 1
    file, _, test = cell.test.partition("::")
    assert test in functions_of(ROOT / file)


def without(guard: Guard, folder: Path) -> Path:
    """A copy of the repository in which the guard is taken out."""
    for part in PARTS:
        source, target = ROOT / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "pictures"))
        else:
            shutil.copy2(source, target)
    file = folder / guard.file
    file.write_text(file.read_text().replace(guard.old, guard.new))
    return folder


def outcome(test: str, root: Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", test],
        cwd=root,
        env={**inherited, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.evidence}-{cell.test.rpartition('::')[2]}")
def test_the_test_of_a_guard_fails_without_it(cell: Cell, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each takes as long as its test; without --everything every sixteenth is tried."""
    if not request.config.getoption("--everything") and CELLS.index(cell) % 16:
        pytest.skip("runs with --everything")
    done = outcome(cell.test, without(cell.guard, tmp_path))
    if done.returncode == 5 or " skipped" in done.stdout and " failed" not in done.stdout:
        pytest.skip("its test is skipped here")
    assert done.returncode == 1 and " failed" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
