"""Outside of a few files, nobody reads a configuration by the names of its fields in strings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import dethpc
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import Searcher

ROOT = Path(dethpc.__file__).parent

MAY = {
    "domain/trial_config.py": "the node side's typed view is made here",
    "client/custom_search.py": "what a user hands in, before anybody has checked it",
    "master/experiments/config_policies.py": "what a policy fixes is a part of a configuration, and none by itself",
    "master/experiments/unmanaged.py": "a script's sketch, from which a configuration is made",
    "master/http/nouns/experiments.py": "JSON is made here",
    "master/http/nouns/checkpoints.py": "JSON of a page's checkpoints is made here, of configurations as they were stored",
    "master/http/nouns/columns.py": "one field of every configuration of a project, which are too many to check each",
    "pytorch/_trial_context.py": "the mapping is the user's, by get_experiment_config()",
}
"""Files that may, and why; and the config room, which reads what users wrote."""

FIELDS = set(ExperimentConfig.model_fields)
OF_SEARCHERS = {name for model in get_args(get_args(Searcher)[0]) for name in model.model_fields}


def _reads(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """(of what, field, line) of each ``x["field"]`` and ``x.get("field")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            base, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            base, key = node.func.value, node.args[0]
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield ast.unparse(base), key.value, node.lineno


def _wrong(path: Path) -> list[str]:
    found = []
    for base, field, line in _reads(ast.parse(path.read_text())):
        config = "config" in base.lower() and field in FIELDS
        searcher = any(word in base for word in ("searcher", "settings")) and field in OF_SEARCHERS
        if config or searcher:
            found.append(f"{path.relative_to(ROOT)}:{line}: {base}[{field!r}]")
    return found


@pytest.mark.slow
def test_nobody_reads_a_configuration_by_strings() -> None:
    found = {path.relative_to(ROOT).as_posix(): _wrong(path) for path in ROOT.rglob("*.py")}
    wrong = {name: reads for name, reads in found.items() if reads and not name.startswith("config/")}
    assert [reads for name, reads in wrong.items() if name not in MAY] == []
    assert sorted(set(MAY) - set(wrong)) == [], "no longer needed"
