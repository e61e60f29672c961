"""The copy of a cached dataset in a bucket: ``<key>/<made>/data.mdb``, and ``<key>/about.json``, which goes up last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

from dethpc.data_layer.about import ABOUT, DATA, About
from dethpc.data_layer.key import Key
from dethpc.errors import CheckpointDamaged, DatasetDamaged
from dethpc.storage.driver import Driver
from dethpc.storage.transfer import fetch, send


class Copy:
    """Of the dataset ``key``. Every method raises OSError when the bucket does not answer."""

    def __init__(self, driver: Driver, key: Key) -> None:
        self._driver, self._key = driver, key

    def about(self) -> Optional[About]:
        """None when it is not there. Raises DatasetDamaged."""
        try:
            return About.from_text(self._key, self._driver.get(f"{self._key.folder}/{ABOUT}"))
        except FileNotFoundError:
            return None

    def fetch(self, about: About, folder: Path) -> None:
        """Bring ``data.mdb`` to ``folder``, compared with its checksums. Raises DatasetDamaged."""
        try:
            fetch(self._driver, self._at(about), {DATA: about.data}, folder)
        except CheckpointDamaged as error:
            raise DatasetDamaged(f"{self._key} is damaged in {self._driver.where}: {error}") from None

    def send(self, about: About, folder: Path, instead_of: Optional[About]) -> None:
        """Bring up what is in ``folder``. ``instead_of``: what was there before, which goes."""
        send(self._driver, folder, self._at(about), [DATA])
        self._driver.replace(f"{self._key.folder}/{ABOUT}", json.dumps(about.to_json()).encode())
        if instead_of is not None and instead_of.build_id != about.build_id:
            self._driver.remove([f"{self._at(instead_of)}/{DATA}"])

    def _at(self, about: About) -> str:
        return f"{self._key.folder}/{about.build_id}"
