"""The text of an older configuration in its present form, everything else in it, comments and all, left as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from dethpc.config.dialects import GENERATIONS, translate
from dethpc.config.dialects.edit import Edit, spell
from dethpc.config.source import read
from dethpc.errors import ConfigError, Path, Problem, dotted

_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")


class Upgraded(NamedTuple):
    """``changes`` has one line for each field that was replaced; none: the text is returned as it was."""

    text: str
    changes: list[str]


def upgrade(text: str, file: str = "config") -> Upgraded:
    """Raises ConfigError when the text cannot be read, an older field is mistaken, or one stands where it cannot be replaced
    alone: in an anchor that is used elsewhere, too."""
    source, problems = read(text, file)
    translation = translate(source.data)
    problems += [source.placed(problem) for problem in translation.problems]
    if problems:
        raise ConfigError(problems)
    changes = []
    for edit in translation.edits:
        line = source.place(edit.path).line
        changes.append(f"{file}:{line}: {edit}" if line else f"{file}: {edit}")
    new = text
    for generation in GENERATIONS:
        edits, _ = generation(read(new, file)[0].data)
        new = _replaced(new, edits)
    after, unreadable = read(new, file)
    if unreadable or after.data != translation.data:
        raise ConfigError([_by_hand(edit, file, source.place(edit.path).line) for edit in translation.edits])
    return Upgraded(new, changes)


def _by_hand(edit: Edit, file: str, line: int | None) -> Problem:
    fields = ", ".join(f"{dotted(path)}: {spell(edit.fields[str(path[-1])])}" for path in edit.paths())
    message = f"an anchor shares this older field, so change it by hand to {fields}"
    return Problem(dotted(edit.path), message).at(file, line)


def _replaced(text: str, edits: list[Edit]) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    spans = [(span, edit) for edit in edits for span in _spans(root, edit.path)]
    for (start, end, flow), edit in sorted(spans, key=lambda item: item[0], reverse=True):
        text = text[:start] + _written(text, start, end, flow, edit.fields) + text[end:]
    return text


def _spans(root: yaml.Node | None, path: Path) -> Iterator[tuple[int, int, bool]]:
    """From where to where the key and value at ``path`` stand, and whether in a mapping with braces. None if not in one piece."""
    flow, node = False, root
    key: yaml.Node | None = None
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return
        flow = bool(node.flow_style)
        pairs = [(k, v) for k, v in node.value if isinstance(k, yaml.ScalarNode) and k.value == name]
        if not pairs:
            return
        key, node = pairs[0]
    if key is not None and node is not None and node.start_mark.index > key.end_mark.index:
        yield key.start_mark.index, _end(node), flow


def _end(node: yaml.Node) -> int:
    """Where a value's text ends. A mapping without braces says it ends where the next thing begins, comments between."""
    while isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        node = node.value[-1][1]
    return int(node.end_mark.index)


def _written(text: str, start: int, end: int, flow: bool, fields: Mapping[str, Any]) -> str:
    """The fields as they are in place of ``text[start:end]``, below the comments that stood inside it."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    indent = "\n" + " " * len(before)
    comments = _COMMENT.findall(text[start:end])  # no key or value of a length has a # in it
    lines = [f"{name}: {spell(value)}" for name, value in fields.items()]
    if not flow:
        return indent.join([*comments, *lines])
    first = indent if comments and before.strip() else ""
    return first + indent.join([*comments, ", ".join(lines)])
