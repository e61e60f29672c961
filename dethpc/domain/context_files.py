"""Context directories as both sides know them: which names stay at home, and the digest that two of the same files share."""

from __future__ import annotations

import hashlib
import json
from typing import Iterable, Tuple

LEFT_OUT = (
    *(".venv", "venv", "node_modules", "wandb", "mlruns", ".ipynb_checkpoints"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"),
)
"""Names that are not sent unless a ``!pattern`` in ``.detignore`` takes them back: what tools leave, and no training reads."""

WORTH_ASKING = 256 << 10
"""Bytes of content, in base64: fewer are sent in no more time than it takes to ask whether the master has them."""


def digest(files: Iterable[Tuple[str, int, str, int, int]]) -> str:
    """SHA-256, in hexadecimal, over path, type, content (base64), modification time and mode of each file, in their order."""
    sha256 = hashlib.sha256()
    for path, kind, content, mtime, mode in files:
        data = content.encode("utf-8", "surrogatepass")
        sha256.update(json.dumps([path, kind, mtime, mode, len(data)]).encode() + b"\n")
        sha256.update(data)
    return sha256.hexdigest()
