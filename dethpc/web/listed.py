"""Several texts in one form field, separated by commas. A text that contains a comma is quoted, as in CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from dethpc.errors import Refused


def written(texts: Iterable[str]) -> str:
    return ", ".join(_quoted(text) if "," in text or text.startswith('"') else text for text in texts)


def read(field: str) -> list[str]:
    """Without empty ones, and without blanks around them. Raises Refused."""
    try:
        rows = list(csv.reader(io.StringIO(field), skipinitialspace=True))
    except csv.Error as error:  # of a field without an end
        raise Refused(f"the list cannot be read: {error}") from None
    return [text for row in rows for part in row if (text := part.strip())]


def _quoted(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""'))
