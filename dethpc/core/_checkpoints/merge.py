"""Merges the metadata and file lists of all ranks of a sharded checkpoint; says which ranks conflict."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

Conflicts = Dict[str, List[int]]
"""Name -> ranks that disagree about it."""


def merge_metadata(all_metadata: Sequence[Dict[str, Any]]) -> Tuple[Dict[str, Any], Conflicts]:
    """One dict of all ranks' metadata. Dicts merge key by key; other values must be equal. Conflicts are named "/key/key"."""
    merged: Dict[str, Any] = {}
    owners: Dict[str, List[int]] = {}
    conflicts: Conflicts = {}

    def merge(into: Dict[str, Any], add: Dict[str, Any], rank: int, prefix: str) -> None:
        for key, value in add.items():
            name = f"{prefix}/{key}"
            if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
                merge(into.setdefault(key, {}), value, rank, name)
            elif key not in into:
                into[key] = value
            elif into[key] != value:
                conflicts.setdefault(name, list(owners.get(name, []))).append(rank)
            owners.setdefault(name, []).append(rank)

    for rank, metadata in enumerate(all_metadata):
        merge(merged, metadata, rank, "")
    return merged, conflicts


def merge_resources(all_resources: Sequence[Dict[str, int]]) -> Tuple[Dict[str, int], Conflicts]:
    """One listing of all ranks' files. A file that several ranks bring, or that another rank has as a directory, is a
    conflict (which equal contents may yet resolve); a directory that several ranks bring is not."""
    merged: Dict[str, int] = {}
    ranks: Dict[str, List[int]] = {}
    files = set()
    for rank, resources in enumerate(all_resources):
        for name, size in resources.items():
            merged[name] = size
            ranks.setdefault(name.rstrip("/"), []).append(rank)
            if not name.endswith("/"):
                files.add(name)
    return merged, {name: ranks[name] for name in sorted(files) if len(ranks[name]) > 1}
