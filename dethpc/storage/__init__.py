"""Checkpoint storage: where checkpoints are, by the ``checkpoint_storage`` section of a configuration.

``base.CheckpointStore`` is the contract. ``build`` is the one place that knows which store a section describes, and where it is.
``shared_fs`` and ``directory`` need the standard library alone; others load what they need when they are first built.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from dethpc.errors import ConfigError, NotSupportedYet, Problem
from dethpc.storage.base import CheckpointStore
from dethpc.storage.files import FileStore

__all__ = ["CheckpointStore", "build", "elsewhere", "from_string", "section"]

Section = Mapping[str, Any]

TYPES = ("azure", "directory", "gcs", "hdfs", "s3", "shared_fs")

ABOUT_OTHERS = ("type", "save_experiment_best", "save_trial_best", "save_trial_latest", "verify")
"""Fields of every section that say nothing of where the checkpoints are: garbage collection's, and ours."""


class Kind(NamedTuple):
    """A type of storage: the fields of its section, and its store. ``build`` gets the section and the container path."""

    fields: Tuple[str, ...]
    build: Callable[[Section, Optional[str]], CheckpointStore]


def build(config: Section, *, container_path: Optional[str] = None) -> CheckpointStore:
    """The store that a ``checkpoint_storage`` section describes; ``verify: false`` in it skips checksums on restore.

    ``container_path``: where a container sees the ``host_path`` of a ``shared_fs``; None outside of containers.
    Raises ConfigError, and NotSupportedYet for object stores.
    """
    name = config.get("type")
    if name not in TYPES:
        raise _wrong("type", name, ", ".join(TYPES))
    if name not in KINDS:
        raise NotSupportedYet(f"checkpoint_storage.type: {name} is not supported yet; use {' or '.join(sorted(KINDS))}")
    kind = KINDS[name]
    for field in config:
        if field not in kind.fields and field not in ABOUT_OTHERS:
            raise _wrong(field, repr(config[field]), ", ".join(kind.fields))
    return kind.build(config, container_path)


def elsewhere(config: Section, configured: Section) -> str:
    """Where the checkpoints of ``config`` are, if not where those of ``configured`` are; else ""."""
    if not config or config == configured:
        return ""
    place = _place(config) or f"another storage ({config.get('type')})"
    return "" if place == _place(configured) else place


def _place(config: Section) -> str:
    try:
        return str(build(config))
    except (ConfigError, NotSupportedYet):
        return ""


def _shared_fs(config: Section, container_path: Optional[str]) -> CheckpointStore:
    folder = _below(_absolute(config, "host_path"), config, container_path)
    return FileStore(folder, verify=config.get("verify") is not False)


def _directory(config: Section, container_path: Optional[str]) -> CheckpointStore:
    return FileStore(_absolute(config, "container_path"), verify=config.get("verify") is not False)


KINDS: Dict[str, Kind] = {
    "directory": Kind(("container_path",), _directory),
    "shared_fs": Kind(
        ("host_path", "storage_path", "container_path", "propagation", "checkpoint_path", "tensorboard_path"),
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


def _wrong(field: str, found: Any, allowed: str) -> ConfigError:
    return ConfigError([Problem(f"checkpoint_storage.{field}".rstrip("."), str(found), allowed)])
