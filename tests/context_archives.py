"""Context directories as clients send them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from dethpc.master.durable import contexts


@dataclass
class _Sent:
    path: str
    content: str
    type: int = ord("0")
    mtime: int = 0
    mode: int = 0o644


def packed(files: Mapping[str, bytes]) -> bytes:
    """The archive that the master keeps of files."""
    return contexts.pack(_Sent(path, base64.b64encode(content).decode()) for path, content in files.items())
