"""Stores content that two checkpoints share once: a hard link in the later one to the file of the earlier one.

A file with two names is whole under each until it is removed under that name. What must not happen is that somebody writes to it
in place, so nobody may write to a file any more once it is shared: whoever tries is refused. Checksums only say where it is worth
looking; what is linked has been compared byte for byte.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Sequence

from dethpc.rundir.tree import Tree
from dethpc.storage import manifest

_CHUNK = 1 << 20
_ALL_WRITE = 0o222


def share(folder: Path, later: str, earlier: str, paths: Sequence[str]) -> int:
    """Of the files ``paths`` of checkpoint ``later``, link those that ``earlier`` has, too, under whatever name. Both are in
    ``folder``. Returns the bytes that are not kept twice any more. Raises CheckpointDamaged for a manifest, OSError."""
    new, old = manifest.load(folder / later) or {}, manifest.load(folder / earlier) or {}
    paths_by_sum = {s: path for path, s in old.items() if s.crcs is not None}
    saved = 0
    with Tree(os.path.realpath(folder)) as tree:
        for path in paths:
            same = paths_by_sum.get(new[path]) if path in new else None
            # Deleted meanwhile, on another file system, too many links, a file system without them: each keeps its own.
            with contextlib.suppress(OSError):
                if same is not None and _link(tree, f"{earlier}/{same}", f"{later}/{path}", later):
                    saved += new[path].size
    return saved


def _link(tree: Tree, original: str, replaced: str, later: str) -> bool:
    with tree.read(original) as one, tree.read(replaced) as other:
        first, second = os.fstat(one.fileno()), os.fstat(other.fileno())
        if (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino) or first.st_dev != second.st_dev:
            return False
        if first.st_uid != os.geteuid() or first.st_uid != second.st_uid:
            return False
        while chunk := one.read(_CHUNK):
            if chunk != other.read(_CHUNK):
                return False
        os.fchmod(one.fileno(), stat.S_IMODE(first.st_mode) & ~_ALL_WRITE)
    link = f"{later}/{manifest.NAME}.{os.getpid()}.link"  # no listing shows it
    tree.hard_link(link, original)
    linked = tree.status(link)
    if (linked.st_dev, linked.st_ino) != (first.st_dev, first.st_ino):  # it is another file by now
        tree.remove(link)
        return False
    tree.replace(link, replaced)
    return True
