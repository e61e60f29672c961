"""Locations of cached datasets: a folder of the node and, for ``s3`` and ``gcs``, a folder in a bucket.

The folder is one user's own (0700), below the one that the section names: what is in it is unpickled.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional

from dethpc.errors import DataLayerError
from dethpc.rundir.scratch import is_own
from dethpc.storage import driver_of
from dethpc.storage.driver import Driver

_GIB = 1 << 30


class Place(NamedTuple):
    """``most``: bytes that the folder may hold; None: half of what the disk would have free without it."""

    folder: Path
    most: Optional[int] = None
    bucket: Optional[Driver] = None


def place(section: Optional[Mapping[str, Any]]) -> Place:
    """Of a ``data_layer`` section; without one, and without a folder in it, one in the node's temporary folder.

    Runs start without a container, so the path of the host counts. Nothing is asked of the bucket, and no driver loaded, before it
    is used. Raises DataLayerError when the folder cannot be made or is somebody else's.
    """
    section = dict(section or {})
    remote = section.get("type") in ("s3", "gcs")
    named = section.get("local_cache_host_path" if remote else "host_storage_path")
    size = section.get("local_cache_size_gib")
    folder = _own_folder(Path(named or tempfile.gettempdir()))
    return Place(folder, None if size is None else int(size) * _GIB, _bucket(section) if remote else None)


def _own_folder(base: Path) -> Path:
    folder = base / f"dethpc-datasets-{os.geteuid()}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise DataLayerError(
            f"datasets cannot be cached in {folder}: {error.strerror}; name another folder in data_layer"
        ) from error
    if not is_own(str(folder)):
        raise DataLayerError(
            f"datasets are not cached in {folder}: it is somebody else's, or others may enter it (chmod 700)"
        )
    return folder


def _bucket(section: Mapping[str, Any]) -> Driver:
    fields = ("type", "bucket", "access_key", "secret_key", "endpoint_url")
    return driver_of({**{name: section.get(name) for name in fields}, "prefix": section.get("bucket_directory_path")})
