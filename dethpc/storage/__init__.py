"""Checkpoint storage: where checkpoint files live, by the ``checkpoint_storage`` section of a configuration.

``shared_fs`` and ``directory`` are built in and need the standard library alone. The others load what they need when they are
first built.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from dethpc.errors import ConfigError, NotSupportedYet, Problem
from dethpc.storage.files import FileStorage

__all__ = ["FileStorage", "build", "from_string", "section"]

TYPES = ("azure", "directory", "gcs", "hdfs", "s3", "shared_fs")

_ABOUT_OTHERS = (
    "type",
    "save_experiment_best",
    "save_trial_best",
    "save_trial_latest",
    "verify",
)  # garbage collection, ours
_FIELDS = {
    "shared_fs": ("host_path", "storage_path", "container_path", "propagation", "checkpoint_path", "tensorboard_path"),
    "directory": ("container_path",),
}


def build(config: Mapping[str, Any], *, container_path: Optional[str] = None) -> FileStorage:
    """The storage that a ``checkpoint_storage`` section describes; ``verify: false`` in it skips checksums on restore.

    ``container_path``: where a container sees the ``host_path`` of a ``shared_fs``; None outside of containers.
    Raises ConfigError, and NotSupportedYet for object stores.
    """
    kind = config.get("type")
    if kind not in TYPES:
        raise _wrong("type", kind, ", ".join(TYPES))
    if kind not in _FIELDS:
        raise NotSupportedYet(f"checkpoint_storage.type: {kind} is not supported yet; use shared_fs or directory")
    for name in config:
        if name not in _FIELDS[kind] and name not in _ABOUT_OTHERS:
            raise _wrong(name, repr(config[name]), ", ".join(_FIELDS[kind]))
    root = config.get("container_path" if kind == "directory" else "host_path")
    if not isinstance(root, str) or not os.path.isabs(root):
        raise _wrong("container_path" if kind == "directory" else "host_path", repr(root), "an absolute path")
    if kind == "shared_fs":
        root = _below(root, config, container_path)
    return FileStorage(root, verify=config.get("verify") is not False)


def from_string(shortcut: str) -> FileStorage:
    """The storage that a path or URL names. Raises as ``build`` does."""
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


def _below(host_path: str, config: Mapping[str, Any], container_path: Optional[str]) -> str:
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
