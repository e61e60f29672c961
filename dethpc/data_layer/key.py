"""Key of a cached dataset: the id and version that training code gives it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import NamedTuple

_READABLE = 40  # characters of the id and version that a folder's name shows


class Key(NamedTuple):
    """Two datasets with the same key are the same: whoever changes the records changes the version."""

    dataset_id: str
    version: str

    @classmethod
    def of(cls, dataset_id: object, version: object) -> Key:
        """Raises ValueError for a name that is empty, and TypeError for one that is neither text nor a whole number."""
        for name, value in (("dataset_id", dataset_id), ("dataset_version", version)):
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise TypeError(f"{name} is a text, such as 'mnist' or 'v1', not {value!r}")
            if value == "":
                raise ValueError(f"{name} is empty: give it a text, such as 'mnist' or 'v1'")
        return cls(str(dataset_id), str(version))

    @property
    def folder(self) -> str:
        """A name for it that any file system and any bucket takes, and that no other key has: its beginning is for people."""
        text = json.dumps([self.dataset_id, self.version])
        readable = re.sub(r"[^a-z0-9]+", "-", f"{self.dataset_id}-{self.version}".lower()).strip("-")[:_READABLE]
        return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:24]}".lstrip("-")

    def __str__(self) -> str:
        return f"dataset {self.dataset_id!r}, version {self.version!r}"
