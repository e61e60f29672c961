"""docs/features.md says what is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dethpc.config import unsupported

ROOT = Path(__file__).parents[1]
DOC = (ROOT / "docs" / "features.md").read_text()
EXPECTED = {"A": 8, "B": 10, "C": 6, "D": 8, "E": 9, "F": 8, "G": 11, "H": 4, "J": 8, "K": 6, "X": 37}

Row = tuple[str, str, str, str]


def rows() -> list[Row]:
    """(row, what, status, test) of every feature."""
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in DOC.splitlines()]
    return [(c[0], c[1], c[2], c[3]) for c in cells if len(c) == 4 and re.fullmatch(r"[A-Z]\d+", c[0])]


def functions(path: Path) -> set[str]:
    """The tests of a file, those in classes as ``Class::test``."""
    tree = ast.parse(path.read_text())
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return names | {f"{c.name}::{f.name}" for c in classes for f in c.body if isinstance(f, ast.FunctionDef)}


def named_tests(cell: str) -> list[str]:
    return [name for name in re.split(r"[\s,]+", cell.replace("`", "")) if name]


def test_every_feature_has_its_row() -> None:
    assert [row[0] for row in rows()] == [
        f"{letter}{n + 1}" for letter, count in EXPECTED.items() for n in range(count)
    ]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_feature_that_is_said_to_work_names_a_test_that_exists(row: Row) -> None:
    _, _, status, cell = row
    assert status in ("done", "partly", "later")
    assert bool(named_tests(cell)) == (status != "later"), "done and partly name a test, later names none"
    for name in named_tests(cell):
        file, _, test = name.partition("::")
        assert (ROOT / file).is_file(), f"no file {file}"
        assert test in functions(ROOT / file), f"no test {test} in {file}"


def documented(heading: str) -> list[str]:
    """The fields in the first column of the table under this heading."""
    table = DOC.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def test_the_fields_that_are_not_supported_yet_are_those_that_the_configuration_refuses() -> None:
    assert documented("field") == [row.field for row in unsupported.UNSUPPORTED]
    assert documented("older field") == list(unsupported.OLDER)


def test_the_fields_without_effect_are_those_that_the_configuration_warns_of() -> None:
    assert documented("ignored field") == list(unsupported.IGNORED)
