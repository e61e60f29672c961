"""The files that an experiment was created with, and how they differ from those of the experiment that it was forked from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dethpc.client import experiments
from dethpc.domain.entrypoint import named_script
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import MasterError, NotFound
from dethpc.web.asked import Answer, Asked, Download, Page
from dethpc.web.pages import experiment

MOST_BYTES = 512 << 10
"""Of a file that is shown; all of it is in the download."""

MOST_LINES = 10_000
MOST_FILES = 2000
"""Of the tree."""

FEW = 20
"""Files that one finds by looking; more get a filter."""


@dataclass
class Shown:
    """What the page says of one file. ``cells``: of a notebook; ``cut``: there is more of it than this."""

    path: str
    size: int
    lines: list[str] = field(default_factory=list)
    cells: list[tuple[str, str, str]] = field(default_factory=list)
    binary: bool = False
    cut: bool = False


def page(asked: Asked) -> Answer:
    shown = experiment.about(asked, "code")
    number, parent = shown["experiment"]["id"], shown["experiment"].get("forkedFrom")
    shown.update(changes=None, file=None, tree=[], left_out=0, missing="", parent=parent, sent=0, many=False)
    if asked.query.get("changes") and parent:
        shown["changes"] = _changes(asked, number, parent, shown)
        return Page("experiment/code.html", shown)
    try:
        every = list(_flat(experiments.file_tree(asked.session, number)))
    except (NotFound, MasterError) as error:
        shown["missing"] = str(error)
        return Page("experiment/code.html", shown)
    sizes = {each["path"]: each["contentLength"] for each in every if not each["isDir"]}
    words = asked.query.get("find", "").lower()
    if words:
        every = [
            {**each, "depth": 0, "name": each["path"]}
            for each in every
            if not each["isDir"] and words in each["path"].lower()
        ]
    path = asked.query.get("path") or _first(shown["config"], sizes)
    if path is not None:
        if path not in sizes:
            raise NotFound(f"experiment {number} was created without a file {path}")
        shown["file"] = _file(asked, number, path, sizes[path])
    shown.update(
        tree=every[:MOST_FILES], left_out=max(0, len(every) - MOST_FILES), sent=len(sizes), many=len(sizes) > FEW
    )
    return Page("experiment/code.html", shown)


def raw(asked: Asked) -> Answer:
    """A whole file, to be kept: never shown by the browser as what it says that it is."""
    path = asked.query.get("path", "")
    content = experiments.file(asked.session, asked.number("experiment"), path)
    return Download(path.rpartition("/")[2] or "file", iter([content]), "application/octet-stream")


def _changes(asked: Asked, number: int, parent: int, shown: dict[str, Any]) -> dict[str, Any] | None:
    try:
        found = experiments.code_changes(asked.session, number, parent)
    except (NotFound, MasterError) as error:
        shown["missing"] = str(error)
        return None
    for each in found["changes"]:
        each["lines"] = [(_KINDS.get(line[:1], ""), line) for line in each["diff"].splitlines()]
    return found


_KINDS = {"+": "added", "-": "removed", "@": "place"}


def _flat(nodes: list[dict[str, Any]], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Folders, each before what is in it, then files."""
    for node in sorted(nodes, key=lambda node: (not node["isDir"], node["name"])):
        yield {**node, "depth": min(depth, 8), "contentLength": int(node.get("contentLength") or 0)}
        yield from _flat(node.get("files") or [], depth + 1)


def _first(config: dict[str, Any], paths: dict[str, int]) -> str | None:
    """The file that one looks for first: what the entrypoint runs."""
    script = named_script(TrialConfig.from_json(config).entrypoint or "")
    return next((path for path in (script, "README.md", *sorted(paths)) if path in paths), None)


def _file(asked: Asked, number: int, path: str, size: int) -> Shown:
    content = experiments.file(asked.session, number, path, MOST_BYTES)
    shown = Shown(path, size, cut=size > len(content))
    if path.endswith(".ipynb") and not shown.cut:
        shown.cells = _cells(content)
        if shown.cells:
            return shown
    if b"\0" in content:
        shown.binary = True
        return shown
    lines = content.decode("utf-8", "replace").splitlines()
    shown.lines, shown.cut = lines[:MOST_LINES], shown.cut or len(lines) > MOST_LINES
    return shown


def _cells(content: bytes) -> list[tuple[str, str, str]]:
    """(kind, source, text of its outputs) of each cell of a notebook; none where it is no notebook (nbformat 4)."""
    try:
        found = json.loads(content)["cells"]
        return [(str(cell["cell_type"]), _text(cell["source"]), _outputs(cell.get("outputs") or [])) for cell in found]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "".join(map(str, value))


def _outputs(outputs: list[Any]) -> str:
    parts = []
    for output in outputs:
        data = output.get("data") or {}
        if "text" in output:
            parts.append(_text(output["text"]))
        elif "text/plain" in data:
            parts.append(_text(data["text/plain"]))
        elif output.get("output_type") == "error":
            parts.append(f"{output.get('ename')}: {output.get('evalue')}")
    return "\n".join(part.rstrip("\n") for part in parts)
