"""``det config explain``: a field of the configuration, as docs/config.md describes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple, Optional

import click

from dethpc import errors
from dethpc.cli import output, tables


class Description(NamedTuple):
    """``values``: what the page says of each value that the field may have. ``chapter``: under which heading it is."""

    field: str
    default: str
    effect: str
    chapter: str
    values: list[tuple[str, str]]


@click.command()
@click.argument("field", metavar="[FIELD]", required=False)
@output.found_as_json
def explain(field: Optional[str], as_json: bool) -> None:
    """Explain FIELD of a configuration, such as searcher.mode, or list those of a section; without FIELD, all sections.

    A name alone, such as max_trials, finds the fields that end with it; that of a search method, such as pbt, those of its section.
    """
    fields = descriptions((resources.files("dethpc.config") / "fields.md").read_text(encoding="utf-8"))
    hits = _matching_fields(field, fields) if field else [one for one in fields.values() if "." not in one.field]
    if as_json:
        output.print_json(
            [
                {"field": one.field, "default": one.default, "description": one.effect, "values": dict(one.values)}
                for one in hits
            ]
        )
        return
    for n, one in enumerate(hits if field else []):
        if n:
            output.echo()
        _print(one)
    below = [one for one in fields.values() if one.field.startswith(f"{hits[0].field}.")] if len(hits) == 1 else []
    if rows := below if field else hits:
        if field:
            output.echo()
        width = max(len(one.field) for one in rows) + 2
        for one in rows:
            first, *rest = output.wrapped(one.effect or "a section", width)
            output.echo(f"{one.field.ljust(width)}{first}")
            for line in rest:
                output.echo(line)


def _print(one: Description) -> None:
    output.print_fields(
        [
            ("Field", one.field),
            ("Default", one.default),
            ("Effect", one.effect),
            ("Page", f"docs/config.md, {one.chapter}"),
        ]
    )
    if one.values:
        output.echo()
        tables.show(tables.plain(["Value", "Meaning"], one.values), tables.Layout(wide=True))


def _matching_fields(field: str, descriptions: dict[str, Description]) -> list[Description]:
    """The field of that name, or those whose last names it is. Raises NotFound."""
    from dethpc.config.sections.searcher import fields_of_method
    from dethpc.config.wording import did_you_mean

    parts = field.strip(".").split(".")
    word = ".".join(part for part in parts if not part.isdigit())
    if word in descriptions:
        return [descriptions[word]]
    if ends := [one for name, one in descriptions.items() if name.endswith(f".{word}")]:
        return ends
    if parts[0] == "hyperparameters":
        return [descriptions["hyperparameters"]]
    if fields := fields_of_method(field):
        return [descriptions[name] for name in (f"searcher.{part}" for part in sorted(fields)) if name in descriptions]
    meant = did_you_mean(word, [*descriptions, *(name.rpartition(".")[2] for name in descriptions)], 0.7)
    hint = f" ({meant})" if meant else ""
    raise errors.NotFound(f"a configuration has no field {field!r}{hint}; for all sections: det config explain")


def descriptions(page: str) -> dict[str, Description]:
    """Every field that the page has a row for, by its dotted name."""
    fields: dict[str, Description] = {}
    values: dict[str, list[tuple[str, str]]] = {}
    for chapter, header, cells in _rows(page):
        if header[:2] == ["field", "default"]:
            first, *others = re.findall(r"`([^`]+)`", cells[0])
            above = first.rpartition(".")[0]
            for name in [first, *(f"{above}.{other}" if above else other for other in others)]:
                fields.setdefault(name, Description(name, _plain(cells[1]), _plain(cells[2]), chapter, []))
        elif owner := re.fullmatch(r"`(\w+(?:\.\w+)+)`", header[0]):
            values.setdefault(owner[1], []).append((_plain(cells[0]), _plain(cells[1])))
    return {name: one._replace(values=values.get(name, [])) for name, one in fields.items()}


def _rows(page: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The heading, the header and the cells of each row of a table."""
    chapter = ""
    header: list[str] = []
    for line in page.splitlines():
        if line.startswith("#"):
            chapter = _plain(line.lstrip("# "))
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not header:
            header = cells
        elif not re.fullmatch(r"[-: |]+", line):
            yield chapter, header, cells


def _plain(markdown: str) -> str:
    """Without links and backquotes; ``([more](x.md))`` names the page instead."""
    markdown = re.sub(r" \(\[below\]\(#[^)]*\)\)", "", markdown)
    text = re.sub(r"\[more\]\(([\w-]+\.md)[^)]*\)", r"docs/\1", markdown)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")
