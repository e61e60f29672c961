"""Description of a cached dataset, stored beside it on the node and in the bucket: its key, number of records, checksums.

``about.json``: ``{"format": 1, "dataset_id", "version", "made": id of this making, "records", "size": bytes of data.mdb, "crc32":
[one per block of 64 MiB, 8 hexadecimal digits], "sha256": of all this}``. It is written last, so what has one is whole.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, NamedTuple

from dethpc.data_layer.key import Key
from dethpc.errors import DatasetDamaged
from dethpc.storage.manifest import Checksum

ABOUT, DATA = "about.json", "data.mdb"

_FORMAT = 1


class About(NamedTuple):
    """``build_id``: tells apart datasets built at different times for the same key."""

    key: Key
    build_id: str
    records: int
    data: Checksum

    def to_json(self) -> Dict[str, Any]:
        return {
            "format": _FORMAT,
            "dataset_id": self.key.dataset_id,
            "version": self.key.version,
            "made": self.build_id,
            "records": self.records,
            "size": self.data.size,
            "crc32": [f"{crc:08x}" for crc in self.data.crcs or ()],
        }

    @classmethod
    def from_json(cls, key: Key, content: Mapping[str, Any]) -> About:
        """Raises DatasetDamaged when it is of another dataset, or of a format that this release does not know."""
        try:
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']!r}, and {_FORMAT} is known")
            if content["dataset_id"] != key.dataset_id or content["version"] != key.version:
                raise ValueError(f"it is of {content['dataset_id']!r}, {content['version']!r}")
            if not str(content["made"]).isalnum():
                raise ValueError(f"made {content['made']!r}")
            data = Checksum(int(content["size"]), tuple(int(crc, 16) for crc in content["crc32"]))
            return cls(key, str(content["made"]), int(content["records"]), data)
        except (KeyError, ValueError, TypeError) as error:
            raise DatasetDamaged(f"{key}: {ABOUT} is damaged: {error!r}") from None

    @classmethod
    def from_text(cls, key: Key, text: bytes) -> About:
        """Raises DatasetDamaged."""
        try:
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("no JSON object")
        except (ValueError, RecursionError) as error:
            raise DatasetDamaged(f"{key}: {ABOUT} is damaged: {error}") from None
        return cls.from_json(key, content)
