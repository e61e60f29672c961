"""What published training code takes from ``determined.util``."""

from __future__ import annotations

import importlib
import os
import pathlib
import sys
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Union, cast


def merge_dicts(base_dict: Dict[Any, Any], source_dict: Dict[Any, Any]) -> Dict[Any, Any]:
    """A new mapping of both, mappings inside merged likewise; of other values ``source_dict``'s count."""
    merged = dict(base_dict)
    for name, value in source_dict.items():
        below = merged.get(name)
        both = isinstance(value, dict) and isinstance(below, dict)
        merged[name] = merge_dicts(merged[name], value) if both else value
    return merged


def has_param(fn: Callable[..., Any], name: str, pos: Optional[int] = None) -> bool:
    """Whether ``fn`` has a parameter of that name, or one at the position ``pos``, counted from 0."""
    import inspect  # most that is imported from here needs none of it

    names = list(inspect.signature(fn).parameters)
    return name in names or (pos is not None and len(names) > pos)


def filter_duplicates(
    in_list: List[Any], sorter: Callable[[List[Any]], List[Any]] = cast(Callable[[List[Any]], List[Any]], sorted)
) -> Set[Any]:
    """What occurs more than once. ``sorter`` brings equal values together."""
    ordered = sorter(in_list)
    return {value for value, after in zip(ordered, ordered[1:]) if value == after}


def is_overridden(full_method: Any, parent_class: Any) -> bool:
    """Whether a method, taken from an instance or a class, is another one than its parent class's. A value that stands where the
    parent has a method is none."""
    if not callable(full_method) or not hasattr(full_method, "__name__"):
        return False
    inherited = getattr(parent_class, full_method.__name__, None)
    return getattr(full_method, "__func__", full_method) is not getattr(inherited, "__func__", inherited)


def download_gcs_blob_with_backoff(blob: Any, n_retries: int = 32, max_backoff: int = 32) -> Any:
    """The bytes of a blob of Google Cloud Storage, tried again after up to ``max_backoff`` seconds. Raises what the last of
    ``n_retries`` tries raised."""
    import random

    for tried in range(1, n_retries + 1):
        try:
            return blob.download_as_string()
        except Exception:
            if tried == n_retries:
                raise
            time.sleep(min(2**tried + random.random(), max_backoff))
    raise ValueError(f"n_retries is at least 1, not {n_retries}")


@contextmanager
def import_from_path(path: Union[str, os.PathLike[str]]) -> Iterator[None]:
    """Imports in the block look into ``path`` first, and leave nothing behind: another checkpoint may hold another module of
    the same name."""
    folder = pathlib.Path(path).absolute()
    before = dict(sys.modules)
    here = {
        name
        for name in before
        if (folder / f"{name.partition('.')[0]}.py").exists() or (folder / name.partition(".")[0]).is_dir()
    }
    for name in here:
        del sys.modules[name]
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name in here or (name not in before and file and pathlib.Path(file).is_relative_to(folder)):
                sys.modules.pop(name)
        sys.modules.update({name: before[name] for name in here})
