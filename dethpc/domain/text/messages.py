"""Whether two messages tell of the same failure. Pure.

What differs from one start of a program to the next is masked: paths of temporary folders, numbers, addresses, times, names of
nodes. What says which failure it is stays: names, quoted keys, names of files, exit codes and the numbers of errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_HEX = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE)
_TEMPORARY = re.compile(r"\b(?:tmp[a-z0-9_]{8}|tmp\.[A-Za-z0-9]{6,}|[A-Za-z]+[-_.](?=\w*\d)(?=\w*[a-z])[a-z0-9_]{8})\b")
_PATH = re.compile(r"(?<![\w.])~?(?:/[^\s/'\"()\[\],:;]+)+/?")
_AFTER_TEMPORARY = re.compile(r"^(.*?/(?:tmp|shm))/[^/]+(?=/)")
_OF_DETHPC = re.compile(r"/dethpc-[^/]+")
_SHAPE = re.compile(r"\b\d+(?:x\d+)+\b")
# A number that says which error it is; and a port, as the next start tries another one.
_CODE = r"\b(?:exit(?:ed)?(?: with)?|code|status|signal|errno|error|http|port)(?: code| status| number)?[ :=(]*-?\d+\b"
_UNIT = r"(?: ?(?:[KMGT]i?B|B|bytes|m?s|us|ns|%|seconds?|minutes?)(?!\w))"
# A number of its own with its sign and unit, not a part of a name.
_NUMBER = re.compile(
    rf"(?P<code>{_CODE})|(?<![A-Za-z_\d])[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?{_UNIT}?(?![A-Za-z_])", re.IGNORECASE
)


def alike(first: str, second: str, nodes: Collection[str] = ()) -> bool:
    """Whether both are of one failure. ``nodes``: names of the nodes on which they happened."""
    return first == second or masked(first, nodes) == masked(second, nodes)


def masked(message: str, nodes: Collection[str] = ()) -> str:
    """The message without what another start would print otherwise. For comparing alone: people read the message itself."""
    text = message
    for name in sorted(nodes, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?:\.[\w.-]*\w)?(?![\w-])", "<node>", text)
    text = _UUID.sub("<id>", text)
    text = _TIME.sub("<time>", text)
    text = _PATH.sub(_masked_path, text)
    text = _HEX.sub("<hex>", text)
    text = _TEMPORARY.sub("<temporary>", text)
    text = _SHAPE.sub("<number>", text)
    return _NUMBER.sub(lambda match: match["code"] or "<number>", text)


def _masked_path(match: re.Match[str]) -> str:
    """Its folders without digits, and without the one in a folder for temporary files; the last name as it is."""
    folder, slash, name = _OF_DETHPC.sub("/<temporary>", match[0]).rpartition("/")
    folder = _AFTER_TEMPORARY.sub(r"\1/<temporary>", f"{folder}/").rstrip("/")
    return re.sub(r"\d+", "<number>", folder) + slash + name
