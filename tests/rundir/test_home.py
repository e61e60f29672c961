"""The layout of a home is spelled in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dethpc
from dethpc.rundir.home import Home, home, named_home

CODE = Path(dethpc.__file__).parent
NAMES = {"master.json", "cluster.json", "dethpc.db", "master.log", "nodes.jsonl", "records.jsonl", ".dethpc"}
ELSEWHERE = {"deploy/slurm_dev.py": {"cluster.json"}}  # of a private Slurm's own folder


def test_home_is_the_folder_that_the_environment_names_or_one_of_the_users_own(tmp_path: Path) -> None:
    assert home({"DETHPC_HOME": str(tmp_path)}) == named_home({"DETHPC_HOME": str(tmp_path)}) == tmp_path
    assert home({}) == Path.home() / ".dethpc" and named_home({}) is None


def test_home_makes_folders_for_its_owner_alone(tmp_path: Path) -> None:
    own = Home(tmp_path / "home")
    own.make()
    assert own.root.stat().st_mode & 0o777 == own.runs.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("path", sorted(CODE.rglob("*.py")), ids=lambda path: str(path.relative_to(CODE)))
def test_nothing_else_spells_the_names_in_a_home(path: Path) -> None:
    name = path.relative_to(CODE).as_posix()
    if name == "rundir/home.py" or name.startswith("launch/"):
        return
    words = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert words & NAMES <= ELSEWHERE.get(name, set())
    joined = {
        node.right.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant)
    }
    assert "token" not in joined
