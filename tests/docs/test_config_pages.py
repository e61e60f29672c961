"""Every field that a configuration may have is documented, with its default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.problems import _models
from dethpc.config.site import SiteConfig, load_site
from dethpc.config.unsupported import FIELDS, IGNORED

ROOT = Path(__file__).parents[2]
WHOLE_SECTIONS = (*FIELDS, *IGNORED)
"""Sections whose inner fields need no words of their own: they are refused or ignored whatever is in them."""


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def documented(page: str) -> dict[str, str]:
    """Field -> what stands in its column of defaults."""
    tables = re.findall(r"^\| field \| default \|.*\n((?:\|.*\n)+)", text(page), re.MULTILINE)
    found = re.findall(r"^\| `([\w.]+)` \|([^|]*)\|", "".join(tables), re.MULTILINE)
    return {field: default.strip() for field, default in found}


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and default of every field, down to the last; a section's default is None, ``...`` means required."""
    for name, field in model.model_fields.items():
        path = prefix + (field.alias or name)
        inner = list(dict.fromkeys(_models(field.annotation)))
        default = ... if field.is_required() else field.default
        yield path, None if isinstance(default, BaseModel) else default
        for section in inner:
            yield from fields(section, f"{path}.")


def spelled(default: Any) -> str:
    if default is ...:
        return "required"
    if default == "":
        return "empty"
    return (
        f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default, default=lambda section: section.name)}`"
    )


def check(page: str, model: type[BaseModel]) -> None:
    known = documented(page)
    seen: dict[str, list[Any]] = {}
    for path, default in fields(model):
        seen.setdefault(path, []).append(default)
    missing = [
        path
        for path in seen
        if path not in known and not any(path.startswith(f"{whole}.") and whole in known for whole in WHOLE_SECTIONS)
    ]
    assert not missing, f"docs/{page} says nothing of {', '.join(missing)}"
    assert not (stale := set(known) - set(seen)), f"docs/{page} knows fields that are not there: {stale}"
    for path, said in known.items():
        fits = not said.startswith("`") if None in seen[path] else False
        fits = fits or any(said.startswith(spelled(default)) for default in seen[path] if default is not None)
        assert fits, f"docs/{page}: {path} says {said!r}; its default is {seen[path][0]!r}"


def test_every_field_of_an_experiment_is_documented_with_its_default() -> None:
    check("config.md", ExperimentConfig)


def test_every_field_of_a_site_is_documented_with_its_default() -> None:
    known = documented("site-config.md")
    wanted = {path for path, _ in fields(SiteConfig) if not path.startswith(("checkpoint_storage.", "data_layer."))}
    assert set(known) == wanted
    for path, default in fields(SiteConfig):
        if path in known and default is not None and default is not ...:
            assert known[path].startswith(spelled(default)), path


def test_the_fields_that_are_refused_stand_in_their_section() -> None:
    refused = text("config.md").partition("## Read, checked and refused so far")[2].partition("These take effect")[0]
    said = set(re.findall(r"^\| `([\w.]+)` \|", refused, re.MULTILINE)) - {"optimizations"}
    assert said == set(FIELDS) - {"searcher.name", "checkpoint_storage.type"}


@pytest.mark.parametrize("path", sorted((ROOT / "site-configs").glob("*.yaml")), ids=lambda path: path.name)
def test_worked_examples_load(path: Path) -> None:
    site = load_site(path)
    assert site.pools and site.pool in site.pools
    assert path.name in text("site-config.md")
