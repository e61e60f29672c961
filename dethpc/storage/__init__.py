"""Checkpoint storage: where checkpoints are, by the ``checkpoint_storage`` section of a configuration.

``base.CheckpointStore`` is the contract. ``build`` is the one place that knows which store a section describes, and where it is.
``shared_fs`` and ``directory`` (``files``) need the standard library alone; those of objects (``objects``) load their driver when
they are first used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from dethpc.domain.secrets import without_user
from dethpc.errors import ConfigError, Problem
from dethpc.storage.base import CheckpointStore, PathLike
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Owner
from dethpc.storage.spool import Spool, Spooled

if TYPE_CHECKING:
    from dethpc.storage.driver import Driver

__all__ = ["CheckpointStore", "build", "driver_of", "elsewhere", "from_string", "section"]

Section = Mapping[str, Any]

ABOUT_OTHERS = ("type", "save_experiment_best", "save_trial_best", "save_trial_latest", "verify")
"""Fields of every section that say nothing of where the checkpoints are: garbage collection's, and ours."""


class Kind(NamedTuple):
    """A type of storage: the fields of its section, and its store. ``build`` gets the section, the container
    path and the folder for staging."""

    fields: Tuple[str, ...]
    build: Callable[[Section, Optional[str], Optional[str]], CheckpointStore]


def build(
    config: Section,
    *,
    container_path: Optional[str] = None,
    disk: Optional[str] = None,
    spool: Optional[PathLike] = None,
    owner: Optional[Owner] = None,
) -> CheckpointStore:
    """The store that a ``checkpoint_storage`` section describes; ``verify: false`` in it skips checksums on restore.

    ``container_path``: where a container sees the ``host_path`` of a ``shared_fs``; None outside of containers. ``disk``: a folder
    of this machine, for what a store that is no folder stages. ``spool``: the folder in which checkpoints wait while such a store
    is away; they are found there. ``owner``: whom its published checkpoints name. Raises ConfigError. Nothing is asked, and no
    driver loaded, before the store is used.
    """
    name = config.get("type")
    if name not in KINDS:
        raise _wrong("type", repr(name), "one of " + ", ".join(sorted(KINDS)))
    kind = KINDS[name]
    for field in config:
        if field not in kind.fields and field not in ABOUT_OTHERS:
            raise ConfigError([Problem.unknown(("checkpoint_storage", field), ", ".join(kind.fields))])
    store = kind.build(config, container_path, disk)
    store.verify = config.get("verify") is not False
    store.owner = owner
    if spool is None or not store.may_be_away:
        return store
    waiting = Spool(spool)
    waiting.owner = owner
    return Spooled(store, waiting)


def elsewhere(config: Section, configured: Section) -> str:
    """Where the checkpoints of ``config`` are, if not where those of ``configured`` are, or where that reads from; else ""."""
    if not config or config == configured:
        return ""
    place = _place(config) or f"another storage ({config.get('type')})"
    return "" if place in (_place(configured), *_read_from(configured)) else place


def _read_from(config: Section) -> List[str]:
    folders = config.get("read_from") or []
    if not isinstance(folders, list) or not all(isinstance(path, str) and os.path.isabs(path) for path in folders):
        raise _wrong("read_from", repr(folders), "a list of absolute paths")
    return [os.path.normpath(path) for path in folders]


def _place(config: Section) -> str:
    try:
        return str(build(config))
    except ConfigError:
        return ""


def _shared_fs(config: Section, container_path: Optional[str], disk: Optional[str]) -> CheckpointStore:
    folder = _below(_absolute(config, "host_path"), config, container_path)
    return FileStore(folder, _read_from(config))


def _directory(config: Section, container_path: Optional[str], disk: Optional[str]) -> CheckpointStore:
    return FileStore(_absolute(config, "container_path"))


def _objects(config: Section, container_path: Optional[str], disk: Optional[str]) -> CheckpointStore:
    from dethpc.storage.objects import ObjectStore

    return ObjectStore(driver_of(config), disk=disk)


def driver_of(config: Section) -> Driver:
    """Of an object store: its module is loaded when it is wanted."""
    kind = config["type"]
    place = {"azure": "container", "hdfs": "hdfs_url"}.get(kind, "bucket")
    if not isinstance(config.get(place), str) or not config[place]:
        raise _wrong(place, repr(config.get(place)), "a name")
    if kind == "azure":
        if not config.get("connection_string") and not config.get("account_url"):
            raise ConfigError([Problem("checkpoint_storage", "set either connection_string or account_url")])
        from dethpc.storage import azure

        return azure.driver(config)
    if kind == "gcs":
        from dethpc.storage import gcs

        return gcs.driver(config)
    if kind == "hdfs":
        from dethpc.storage import hdfs

        return hdfs.driver(config)
    endpoint = str(config.get("endpoint_url") or "")
    if "@" in endpoint:  # botocore refuses each request there, as if it were away
        allowed = "an address without user and password: keys go to access_key and secret_key"
        raise _wrong("endpoint_url", without_user(endpoint), allowed)
    from dethpc.storage import s3

    return s3.driver(config)


KINDS: Dict[str, Kind] = {
    "azure": Kind(("container", "connection_string", "account_url", "credential"), _objects),
    "directory": Kind(("container_path",), _directory),
    "gcs": Kind(("bucket", "prefix"), _objects),
    "hdfs": Kind(("hdfs_url", "hdfs_path", "user"), _objects),
    "s3": Kind(("bucket", "access_key", "secret_key", "endpoint_url", "prefix", "path_style"), _objects),
    "shared_fs": Kind(
        (
            "host_path",
            "storage_path",
            "container_path",
            "propagation",
            "checkpoint_path",
            "tensorboard_path",
            "read_from",
        ),
        _shared_fs,
    ),
}


def from_string(shortcut: str) -> CheckpointStore:
    """The store that a path or URL names. Raises as ``build`` does."""
    return build(section(shortcut))


def section(shortcut: str) -> dict[str, Any]:
    """The ``checkpoint_storage`` section for a path or a URL of scheme file, s3 or gs. Raises ConfigError."""
    from urllib.parse import urlsplit

    parts = urlsplit(shortcut)
    if not (parts.query or parts.fragment):
        if parts.scheme in ("s3", "gs"):
            kind = "s3" if parts.scheme == "s3" else "gcs"
            return {"type": kind, "bucket": parts.netloc, "prefix": parts.path.lstrip("/")}
        if parts.scheme in ("", "file") and not parts.netloc and parts.path:
            return {"type": "shared_fs", "host_path": os.path.abspath(parts.path)}
    raise _wrong("", repr(shortcut), "a path, or a URL of scheme file, s3 or gs")


def _absolute(config: Section, field: str) -> str:
    path = config.get(field)
    if not isinstance(path, str) or not os.path.isabs(path):
        raise _wrong(field, repr(path), "an absolute path")
    return path


def _below(host_path: str, config: Section, container_path: Optional[str]) -> str:
    """``storage_path`` (older configurations: ``checkpoint_path``) inside the host path, as seen from here.

    ``tensorboard_path`` never moves checkpoints, nor does it in Determined, whose configurations always have a ``storage_path``.
    """
    name = "checkpoint_path" if config.get("checkpoint_path") and not config.get("storage_path") else "storage_path"
    inner = config.get(name) or "."
    host_path = os.path.normpath(host_path)
    full = os.path.normpath(os.path.join(host_path, inner))
    if os.path.commonpath([full, host_path]) != host_path:
        raise _wrong(name, repr(inner), f"a directory inside host_path ({host_path})")
    return os.path.normpath(os.path.join(container_path or host_path, os.path.relpath(full, host_path)))


def _wrong(field: str, value: Any, allowed: str) -> ConfigError:
    return ConfigError([Problem.of_value(f"checkpoint_storage.{field}".rstrip("."), str(value), allowed)])
