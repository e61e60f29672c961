"""Each promise of reliability.md and security.md names the tests that show it, and these exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("reliability.md", "security.md")]


@functools.cache
def functions_of(path: Path) -> frozenset[str]:
    """The tests of a file. Those in classes are ``Class::test``, also where the class has them from a contract elsewhere."""
    tree = ast.parse(path.read_text())
    imported = {a.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
            for base in node.bases:
                if isinstance(base, ast.Name) and (module := imported.get(base.id) or "").startswith("tests."):
                    contract = functions_of(ROOT / (module.replace(".", "/") + ".py"))
                    found |= {name.replace(base.id, node.name) for name in contract}
    return frozenset(found)


def promises(page: Path) -> list[tuple[str, str]]:
    """(what may happen, its tests) of every row of a table whose last column is "tests"."""
    found: list[tuple[str, str]] = []
    columns = 0
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" |")] if line.startswith("|") else []
        if not cells or cells[-1] == "tests":
            columns = len(cells)
        elif columns and not cells[0].startswith("---"):
            assert len(cells) == columns, line
            found.append((cells[0], cells[-1]))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_promise_names_a_test_and_every_test_that_is_named_exists(page: Path) -> None:
    assert promises(page)
    assert not [what for what, tests in promises(page) if not re.search(r"`tests/[^`]+::test_\w+`", tests)]
    for name in set(re.findall(r"`(tests/[^`]*)`", page.read_text())):
        file, _, test = name.partition("::")
        assert (ROOT / file).exists(), f"no file {file}"
        assert not test or test in functions_of(ROOT / file), f"no test {test} in {file}"
