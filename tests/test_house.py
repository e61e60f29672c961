"""The house keeps to its measures: modules and functions that a reader can hold in mind. A class may be as long as its module.

Complexity and statements of a function are ruff's C901 and PLR0915 (pyproject.toml); lengths are counted here.
"""

from __future__ import annotations

import ast
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULE, FUNCTION = 600, 60
"""Lines."""

PACKAGE = 25
"""Modules of one folder."""

BY_NOUN = {
    "dethpc/cli/nouns": "a noun of the command line each",
    "dethpc/client/nouns": "a noun of the REST API each",
    "dethpc/master/http/nouns": "a noun of the REST API each",
}
"""Folders with one file per noun, which may have more."""

REASONED: dict[str, str] = {
    "dethpc/state/migrations/versions/0001_first_schema.py::upgrade": "the tables, one after the other",
}
"""What is longer, and why. Its docstring says so too, where it has one of its own."""


COUNT = runpy.run_path(str(ROOT / "scripts" / "count"))
RATCHET = {
    "code lines": 73_216,
    "modules": 845,
    "functions with more than 6 arguments": 0,
    "arguments of a constructor": 6,
    "names that say nothing": 8,
}
"""What the house has (``scripts/count``). Lower these when it has less; a new noun raises the first two, in a commit that says by
how much and for what."""


def _too_long(path: Path, root: Path) -> Iterator[str]:
    text, name = path.read_text(), path.relative_to(root).as_posix()
    if text.count("\n") > MODULE:
        yield name
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION:
                yield f"{name}::{node.name}"


def test_modules_and_functions_are_short_or_have_a_reason_not_to_be() -> None:
    too_long = {name for path in COUNT["sources"]() for name in _too_long(path, ROOT)}
    assert too_long - REASONED.keys() == set(), "split these, or give the reason in REASONED"
    assert REASONED.keys() - too_long == set(), "these are short by now: take them out of REASONED"


def test_a_package_is_small_or_has_one_module_per_noun() -> None:
    modules = Counter(path.relative_to(ROOT).parent.as_posix() for path in COUNT["sources"]())
    large = {package: count for package, count in modules.items() if count > PACKAGE and package not in BY_NOUN}
    assert large == {}, "sort what belongs together into packages"


def test_the_house_grows_by_nothing_that_nobody_has_said() -> None:
    lines, modules, names, many, _ = COUNT["measure"]()
    measured = {
        "code lines": lines.total(),
        "modules": modules.total(),
        "functions with more than 6 arguments": len(many),
        "arguments of a constructor": COUNT["most_of_a_constructor"](many),
        "names that say nothing": names.total(),
    }
    assert {name: count for name, count in measured.items() if count > RATCHET[name]} == {}


@pytest.mark.parametrize(
    ("start", "limit", "found"),
    [("def long():", FUNCTION, "long.py::long"), ("if x:", MODULE, "long.py")],
)
def test_the_measure_counts_lines(tmp_path: Path, start: str, limit: int, found: str) -> None:
    source = tmp_path / "long.py"
    source.write_text(f"{start}\n" + "    x = 1\n" * (limit - 1))
    assert list(_too_long(source, tmp_path)) == []
    source.write_text(f"{start}\n" + "    x = 1\n" * limit)
    assert list(_too_long(source, tmp_path)) == [found]


def test_the_measure_counts_what_is_named_by_a_participle() -> None:
    tree = ast.parse(
        "class Told:\n    KNOWN = 1\n    async def _kept(self, asked): ...\nsaid_by = self.left = found.wanted\n"
    )
    assert sorted(COUNT["named"](tree)) == [("asked", 3), ("kept", 3), ("known", 2), ("told", 1)]
