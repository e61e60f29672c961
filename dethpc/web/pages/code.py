"""The files that an experiment was created with, and how they differ from those of the experiment that it was forked from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dethpc.client.nouns import experiments
from dethpc.domain.entrypoint import named_script
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import MasterError, NotFound
from dethpc.web.asked import Answer, Download, Page, PageRequest
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


def page(request: PageRequest) -> Answer:
    shown = experiment.about(request, "code")
    number, parent = shown["experiment"]["id"], shown["experiment"].get("forkedFrom")
    shown.update(changes=None, file=None, tree=[], left_out=0, missing="", parent=parent, sent=0, many=False)
    if request.query.get("changes") and parent:
        shown["changes"] = _changes(request, number, parent, shown)
        return Page("experiment/code.html", shown)
    try:
        every = list(_flat(experiments.file_tree(request.session, number)))
    except (NotFound, MasterError) as error:
        shown["missing"] = str(error)
        return Page("experiment/code.html", shown)
    sizes = {entry["path"]: entry["contentLength"] for entry in every if not entry["isDir"]}
    search = request.query.get("find", "").lower()
    if search:
        every = [
            {**entry, "depth": 0, "name": entry["path"]}
            for entry in every
            if not entry["isDir"] and search in entry["path"].lower()
        ]
    path = request.query.get("path") or _first(shown["config"], sizes)
    if path is not None:
        if path not in sizes:
            raise NotFound(f"experiment {number} was created without a file {path}")
        shown["file"] = _file(request, number, path, sizes[path])
    shown.update(
        tree=every[:MOST_FILES], left_out=max(0, len(every) - MOST_FILES), sent=len(sizes), many=len(sizes) > FEW
    )
    return Page("experiment/code.html", shown)


def raw(request: PageRequest) -> Answer:
    """A whole file, to be kept: never shown by the browser as what it says that it is."""
    path = request.query.get("path", "")
    content = experiments.file(request.session, request.number("experiment"), path)
    return Download(path.rpartition("/")[2] or "file", iter([content]), "application/octet-stream")


def _changes(request: PageRequest, number: int, parent: int, shown: dict[str, Any]) -> dict[str, Any] | None:
    try:
        changes = experiments.code_changes(request.session, number, parent)
    except (NotFound, MasterError) as error:
        shown["missing"] = str(error)
        return None
    for change in changes["changes"]:
        change["lines"] = [(_KINDS.get(line[:1], ""), line) for line in change["diff"].splitlines()]
    return changes


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


def _file(request: PageRequest, number: int, path: str, size: int) -> Shown:
    content = experiments.file(request.session, number, path, MOST_BYTES)
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
        cells = json.loads(content)["cells"]
        return [(str(cell["cell_type"]), _text(cell["source"]), _outputs(cell.get("outputs") or [])) for cell in cells]
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
