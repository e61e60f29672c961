"""What pydantic says about a document, in words for the person who wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dethpc.config.source import Source
from dethpc.config.wording import did_you_mean, show
from dethpc.errors import Path, Problem, dotted

UNIONS: Mapping[Path, str] = {("searcher",): "name", ("checkpoint_storage",): "type", ("data_layer",): "type"}
"""Sections of several models, and the field that tells which one."""

_KINDS = {
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "string_pattern_mismatch": "one word",
    "too_short": "a list that is not empty",
}
_BOUNDS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}


def problems_of(
    error: ValidationError, model: type[BaseModel], source: Source, elsewhere: Mapping[str, str] | None = None
) -> Iterator[Problem]:
    """One mistake for each of pydantic's. ``elsewhere`` has hints for names that ``model`` does not know at all."""
    index = {} if elsewhere is None else {**_leaves(model), **elsewhere}
    for details in error.errors(include_url=False):
        yield _problem(details, model, source, index)


def _problem(details: ErrorDetails, model: type[BaseModel], source: Source, index: Mapping[str, str]) -> Problem:
    kind, context, value = details["type"], details.get("ctx") or {}, details["input"]
    path, is_key = _path(details["loc"])
    if kind in ("wrong", "mistaken"):
        below = [part for part in context["field"].split(".") if part]
        culprit = (*path, *(int(part) if part.isascii() and part.isdigit() else part for part in below))
        if kind == "mistaken":
            return Problem(culprit, context["message"])
        actual = context["value"] or show(source.get(culprit), culprit)
        return Problem.of_value(culprit, actual, context["allowed"], context["hint"] or None)
    if kind == "extra_forbidden":
        names = _fields(model, path[:-1], source)
        word = str(path[-1])
        hint = _of_another_kind(model, path) or index.get(word) or did_you_mean(word, names)
        return Problem.unknown(path, ", ".join(names), hint)
    if kind == "missing":
        return Problem(path, "required field is missing")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = UNIONS[path]
        names = kinds_of_section(model, path, tag)
        actual = source.get((*path, tag))
        hint = did_you_mean(actual, names) if isinstance(actual, str) else None
        if actual is None:
            return Problem((*path, tag), f"required field is missing; there are {', '.join(names)}")
        return Problem.of_value((*path, tag), show(actual), "one of " + ", ".join(names), hint)
    if kind in ("literal_error", "enum"):
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        hint = did_you_mean(value, expected.split(", ")) if isinstance(value, str) else None
        return Problem.of_value(path, show(value, path), "one of " + expected, hint)
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return Problem.of_value(path, show(value, path), f"a number {sign} {context[name]}")
    if kind in ("model_type", "model_attributes_type"):
        allowed = "a mapping with " + ", ".join(_fields(model, path, source))
        return Problem.of_value(path, show(value, path), allowed)
    hint = "put it in quotes" if kind == "string_type" and not is_key and not isinstance(value, (dict, list)) else None
    if kind not in _KINDS:
        return Problem(path, f"{show(value, path)}: {details['msg']}")
    return Problem.of_value(path, show(value, path), _KINDS[kind], hint)


def _of_another_kind(model: type[BaseModel], path: Path) -> str | None:
    """A hint when the field is one of a section of several models, but of others than the one that stands there."""
    tag = UNIONS.get(path[:-1])
    if tag is None:
        return None
    owners = [m for m in _at(model, path[:-1], Source({})) if path[-1] in m.model_fields]
    kinds = [str(kind) for m in owners for kind in get_args(m.model_fields[tag].annotation)]
    return f"it goes with {tag} {', '.join(kinds)}" if kinds else None


def _path(loc: tuple[int | str, ...]) -> tuple[Path, bool]:
    """The document's path for a pydantic location, which also names the member of a union, and whether a key is meant."""
    path: Path = ()
    is_key = False
    skip = False
    for part in loc:
        if skip:
            skip = False
        elif part == "[key]":
            is_key = True
        else:
            path = (*path, part)
            skip = path in UNIONS
    return path, is_key


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _at(model: type[BaseModel], path: Path, source: Source) -> list[type[BaseModel]]:
    """The models that may stand at ``path``: one, or each of a union when the data does not tell which."""
    models = [model]
    for end, part in enumerate(path, 1):
        # List indices and the keys of free mappings keep to the models that their container holds.
        fields = [field for m in models for name, field in m.model_fields.items() if (field.alias or name) == part]
        if fields:
            models = [m for field in fields for m in _models(field.annotation)]
        tag = UNIONS.get(path[:end])
        if tag is not None:
            value = source.get((*path[:end], tag))
            models = [m for m in models if value in get_args(m.model_fields[tag].annotation)] or models
    return models


def _fields(model: type[BaseModel], path: Path, source: Source) -> list[str]:
    models = _at(model, path, source)
    return list(dict.fromkeys(field.alias or name for m in models for name, field in m.model_fields.items()))


def kinds_of_section(model: type[BaseModel], path: Path, tag: str) -> list[str]:
    """The values of ``tag`` that tell the kinds of a section of ``UNIONS`` apart."""
    models = _at(model, path, Source({}))
    return [str(value) for m in models for value in get_args(m.model_fields[tag].annotation)]


def _leaves(model: type[BaseModel]) -> dict[str, str]:
    """For each name that stands one level down: a hint that says where."""
    hints: dict[str, str] = {}
    for section, field in model.model_fields.items():
        for inner in _models(field.annotation):
            for name in inner.model_fields:
                if name not in model.model_fields:
                    hints.setdefault(name, f"it belongs at {dotted((section, name))}")
    return hints
